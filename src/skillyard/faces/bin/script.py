"""What every script has in common: its words, its two lines, and how it ends."""

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import NoReturn

from skillyard.core.errors import SkillError
from skillyard.core.phrases import Lang
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.states import State
from skillyard.faces import present
from skillyard.faces.cli.command import Answer, Options, as_skill_error

#: Scripts speak as the agent that runs them.
AGENT = "worker_agent"
#: What the worker looks for where a workflow waits for a decision.
INTERRUPT = "[INTERRUPT]"


def run(module: ModuleType, words: Sequence[str]) -> NoReturn:
    """Ask, show, exit. A usage error ends with 2 and the usage on stderr, which the worker reads as InvalidArgs."""
    name = module.__name__.rpartition(".")[2]
    parser = argparse.ArgumentParser(
        prog=f"python bin/{name}.py",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.arguments(parser)
    options = parser.parse_args(words)
    style = present.Style(lang=Lang.choose(None, os.environ))
    result = _ask(options.answer, options, style.lang)
    if result.state is State.INTERRUPTED:
        sys.stdout.write(f"{INTERRUPT}\n")
    present.show(result, style, sys.stdout)
    present.show_hint(result, style, sys.stderr)
    sys.stdout.flush()
    raise SystemExit(result.exit_code)


def _ask(ask: Callable[[Options], Answer], options: Options, lang: Lang) -> Result:
    started, moment = time.monotonic(), datetime.now(UTC)
    try:
        answer = ask(options)
    except (SkillError, OSError, sqlite3.Error) as error:
        expected = error if isinstance(error, SkillError) else as_skill_error(error)
        return error_result(expected, AGENT, lang, make_meta(AGENT, time.monotonic() - started, moment))
    return Result(
        agent=AGENT,
        state=answer.state,
        summary=answer.summary.fill(lang, **answer.words),
        data=answer.data,
        meta=make_meta(AGENT, time.monotonic() - started, moment),
    )
