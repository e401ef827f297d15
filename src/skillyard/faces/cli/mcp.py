"""Serve the skills to an agent over MCP, on stdin and stdout. Every start of the agent waits for these imports."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from skillyard.app.paths import find_paths
from skillyard.app.project import Project
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Message
from skillyard.faces.command import Options, Parser, comma_list, takes
from skillyard.faces.mcp.listing import Options as Served
from skillyard.faces.mcp.server import serve
from skillyard.faces.present import one_line

#: What `mcp --allow` can let an agent use.
_ALLOWED = "worker,dispatch,jobs"


def _allowed(text: str) -> frozenset[str]:
    asked = frozenset(comma_list(text))
    if unknown := ", ".join(sorted(asked.difference(_ALLOWED.split(",")))):
        words = {"unknown": unknown, "allowed": _ALLOWED.replace(",", ", ")}
        raise argparse.ArgumentTypeError(
            Message("nothing called {unknown} can be allowed; there is {allowed}", **words)
        )
    return asked


@takes(
    "--expose-skills",
    "skills that are tools of their own (those that you activated)",
    type=comma_list,
    default="active",
    metavar="active|all|none|NAME,…",
)
@takes("--allow", "let the agent use the worker, other agents, and jobs", type=_allowed, default="", metavar=_ALLOWED)
@takes("--project", "the project's folder (here)", default=".", metavar="DIR")
@takes("--lang", "language of summaries and hints", choices=["zh", "en"])
def answer_mcp(options: Options) -> NoReturn:
    """Serve the skills to an agent over MCP, on stdin and stdout.

    The agent finds skills, runs them and reads their files; it can grant nothing, and reaches the worker, other agents
    and jobs only with --allow. `skillyard init --mcp` prints what to put into the agent's configuration.

    examples:
      skillyard mcp
      skillyard mcp --expose-skills all
      skillyard mcp --expose-skills word-count,markdown-converter --allow worker
    """
    try:  # stdout is the protocol's from the first byte on: what goes wrong before is said on stderr
        folder = Path(options.project).absolute()
        if not folder.is_dir():
            raise InvalidArgs(Message("{project} is no folder", project=options.project))
        exposed = frozenset(name.removeprefix("@") for name in options.expose_skills)
        with Project(find_paths(folder), ends_with_process=True) as project:
            serve(project, Served(exposed, options.allow, options.lang))
    except SkillError as error:
        hint = one_line(error.hint(options.lang))
        sys.stderr.write(f"skillyard mcp: {one_line(error.summary(options.lang))}\n→ {hint}\n")
        raise SystemExit(1) from None
    raise SystemExit(0)


def mcp_arguments(parser: Parser) -> None:
    parser.set_defaults(answer=answer_mcp)
