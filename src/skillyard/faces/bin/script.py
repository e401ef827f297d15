"""What every script has in common: its words, its two lines, and how it ends."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from skillyard.core.messages import Lang
from skillyard.core.result import Clock, error_result
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces import present
from skillyard.faces.command import EXPECTED, as_skill_error

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.install.review import Review

#: Scripts speak as the agent that runs them.
AGENT = "worker_agent"
#: What the worker looks for where a workflow waits for a decision.
INTERRUPT = "[INTERRUPT]"
#: Of the interrupt file, in `meta` for the worker: any run could have replaced the file by the time it reads it.
DIGEST = "interrupt_digest"
#: Stands in the resume command where the decisions go, one JSON object; taken literally it is refused.
SLOT = "{decisions}"


def run(name: str, words: Sequence[str]) -> NoReturn:
    """Ask, show, exit. A usage error ends with 2 and the usage on stderr, which the worker reads as InvalidArgs."""
    module = sys.modules[f"skillyard.faces.bin.{name}"]
    parser = argparse.ArgumentParser(
        prog=f"python bin/{name}.py",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.arguments(parser)
    options = parser.parse_args(words)
    style = present.Style(lang=Lang.choose(None, os.environ))
    clock = Clock()
    try:
        result = options.answer(options).as_result(AGENT, style.lang, clock.meta(AGENT))
    except EXPECTED as error:
        result = error_result(as_skill_error(error), AGENT, style.lang, clock.meta(AGENT))
    if result.state is State.INTERRUPTED:
        sys.stdout.write(f"{INTERRUPT}\n")
        data = dict(result.data)
        digest = data.pop(DIGEST, None)
        result = result._replace(data=data, meta={**result.meta, **({DIGEST: digest} if digest else {})})
    present.show(result, style, sys.stdout)
    present.show_notes(result, style)
    sys.stdout.flush()
    raise SystemExit(result.exit_code)


def add_decisions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--decisions", type=_decisions, default={}, metavar="JSON", help='{"skill": "keep"}')


def _decisions(text: str) -> dict[str, str]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise argparse.ArgumentTypeError('one JSON object of texts: {"skill": "keep"}')
    return given


def paused(project: "Project", review: "Review", resume_command: str) -> dict[str, Json]:
    """The file that tells what waits and why, and the two things that the result says of it."""
    digest = project.reviews.write_interrupt(review, resume_command)
    return {"interrupted_skills": sorted(review.held), "resume_command": resume_command, DIGEST: digest}


def tell(progress: str) -> None:
    """How far a fetch has come; never on stdout, which is the result."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{present.one_line(progress)}\n")
