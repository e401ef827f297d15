"""What every command has in common: how it is shown, and how it ends."""

import functools
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import click

from skillyard.core.errors import PermissionDenied, RuntimeFailed, SkillError
from skillyard.core.phrases import Text
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces import present

#: The agent of commands that run no skill and no script.
AGENT = "skillyard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command gives back: a result for programs, and where there is more to see, a page for people."""

    summary: Text
    words: Mapping[str, object]
    data: Mapping[str, Json]
    page: present.Page | None = None
    state: State = State.SUCCESS
    exit_code: int | None = None


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--lang", type=click.Choice(["zh", "en"]), help="Language of summaries and hints."),
        click.option("--ascii", "ascii_", is_flag=True, help="Nothing but ASCII."),
        click.option("--format", "format_", type=click.Choice(["text", "block"]), help="Layout of a result."),
        click.option("--json", "json_", is_flag=True, help="One JSON envelope on stdout and nothing else."),
    ):
        command = option(command)
    return command


def style_of(json_: bool, format_: str | None, ascii_: bool, lang: str | None) -> present.Style:
    return present.Style(json=json_, block=format_ == "block", ascii=ascii_, lang=present.choose_lang(lang))


def answering(command: Callable[..., Answer]) -> Callable[..., None]:
    """Wraps a command that returns an Answer: shows it, turns expected failures into results, exits."""

    @output_options
    @functools.wraps(command)
    def wrapped(json_: bool, format_: str | None, ascii_: bool, lang: str | None, **options: Any) -> None:
        style = style_of(json_, format_, ascii_, lang)
        started, moment = time.monotonic(), datetime.now(UTC)
        try:
            answer = command(**options)
        except SkillError as error:
            meta = make_meta(AGENT, time.monotonic() - started, moment)
            finish(error_result(error, AGENT, style.lang, meta), style)
        result = Result(
            agent=AGENT,
            state=answer.state,
            summary=answer.summary.fill(style.lang, **answer.words),
            data=answer.data,
            meta=make_meta(AGENT, time.monotonic() - started, moment),
        )
        finish(result, style, answer.page, answer.exit_code)

    return wrapped


def finish(
    result: Result, style: present.Style, page: present.Page | None = None, exit_code: int | None = None
) -> NoReturn:
    present.show(result, style, sys.stdout, page)
    present.show_hint(result, style, sys.stderr)
    sys.stdout.flush()
    raise SystemExit(result.exit_code if exit_code is None else exit_code)


def as_skill_error(error: OSError | sqlite3.Error) -> SkillError:
    """A disk that is full, a folder that is not ours: said plainly, with where."""
    if isinstance(error, PermissionError):
        return PermissionDenied(f"{error.filename or 'a file'}: {error.strerror}")
    if isinstance(error, OSError) and error.filename:
        return RuntimeFailed(f"{error.filename}: {error.strerror}")
    return RuntimeFailed(str(error))
