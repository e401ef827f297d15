"""Serve the skills to an agent over MCP, on stdin and stdout.

The agent finds skills, runs them and reads their files; it can grant nothing, and reaches the worker, other agents and
jobs only with --allow. `skillyard init --mcp` prints what to put into the agent's configuration.

examples:
  skillyard mcp
  skillyard mcp --expose-skills all
  skillyard mcp --expose-skills word-count,markdown-converter --allow worker
"""

import importlib.util
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import NoReturn

from skillyard.app.paths import find_paths
from skillyard.app.project import Project
from skillyard.core.errors import ExtraMissing, InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.faces.command import Options, Parser, lang_of
from skillyard.faces.present import one_line

_ALLOWED = ("worker", "dispatch", "jobs")


def arguments(parser: Parser) -> None:
    exposing = parser.add_argument("--expose-skills", type=_names, default=frozenset(), metavar="all|active|NAME,…")
    exposing.help = "skills that are tools of their own"
    allowing = parser.add_argument("--allow", type=_allowed, default=frozenset(), metavar="worker,dispatch,jobs")
    allowing.help = "let the agent use the worker, other agents, and jobs"
    parser.add_argument("--project", default=".", metavar="DIR", help="the project's folder (here)")
    parser.add_argument("--lang", choices=["zh", "en"], help="language of summaries and hints")
    parser.set_defaults(answer=_answer)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip().removeprefix("@") for name in text.split(",") if name.strip())


def _allowed(text: str) -> frozenset[str]:
    asked = frozenset(name.strip() for name in text.split(",") if name.strip())
    if unknown := ", ".join(sorted(asked.difference(_ALLOWED))):
        allowed = ", ".join(_ALLOWED)
        raise ArgumentTypeError(
            Message("nothing called {unknown} can be allowed; there is {allowed}", unknown=unknown, allowed=allowed)
        )
    return asked


def _answer(options: Options) -> NoReturn:
    """stdout is the protocol's from the first byte on: what goes wrong before is said on stderr."""
    lang = lang_of(options)
    try:
        folder = Path(options.project).absolute()
        if not folder.is_dir():
            raise InvalidArgs(Message("{project} is no folder", project=options.project))
        if importlib.util.find_spec("mcp") is None:
            raise ExtraMissing("mcp", "mcp")
        from skillyard.faces.mcp.listing import Options as Served
        from skillyard.faces.mcp.server import serve

        with Project(find_paths(folder), ends_with_process=True) as project:
            serve(project, Served(options.expose_skills, options.allow, lang))
    except SkillError as error:
        sys.stderr.write(f"skillyard mcp: {one_line(error.summary(lang))}\n→ {one_line(error.hint(lang))}\n")
        raise SystemExit(1) from None
    raise SystemExit(0)
