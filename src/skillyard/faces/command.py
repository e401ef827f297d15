"""What every command has in common: its options, how it is shown, and how it ends."""

import argparse
import errno
import gettext
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias

from skillyard.core.errors import InvalidArgs, PermissionDenied, RuntimeFailed, SkillError, StateDamaged, StoreFailed
from skillyard.core.messages import DOMAIN, LOCALE, Lang, Message, render
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces import present

#: The agent of commands that run no skill and no script.
AGENT = "skillyard"
USAGE = 2
_WIDEST = 100

Options: TypeAlias = argparse.Namespace


class Answer(NamedTuple):
    """What a command gives back: a result for programs, and where there is more to see, a page for people.

    `failure` is for a check that found something: its type stands before the summary, its data before the other data.
    """

    summary: Message
    data: Mapping[str, Json]
    page: present.Page | None = None
    state: State = State.SUCCESS
    failure: SkillError | None = None

    def as_result(self, agent: str, lang: Lang, meta: Mapping[str, Json]) -> Result:
        summary = self.summary.render(lang)
        if self.failure is None:
            return Result(agent, self.state, summary, self.data, meta)
        data = {**self.failure.data(), **self.data}
        return Result(agent, State.ERROR, f"{self.failure.type}: {summary}", data, meta)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, up to 100 columns. argparse would import shutil for it, for each argument."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdigit() else _WIDEST
        if not columns.isdigit() and sys.stdout and sys.stdout.isatty():
            width = min(os.get_terminal_size().columns or _WIDEST, _WIDEST)
        super().__init__(prog, width=width)


class Parser(argparse.ArgumentParser):
    """argparse, with usage errors that a program can read too."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    #: What a usage error exits with.
    usage_code = USAGE

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        with _argparse_speaks(asked_lang()):
            return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        refused = sys.exception()
        if isinstance(refused, argparse.ArgumentError) and isinstance(refused.message, Message):
            message = Message("argument {name}: {reason}", name=refused.argument_name, reason=refused.message)
        if "--json" in sys.argv:
            show_failure(InvalidArgs(message, details={"usage": self.format_usage()}), present.Style(json=True))
        else:
            lang = asked_lang()
            advice = Message("Try '{prog} --help'.", prog=self.prog).render(lang)
            sys.stderr.write(f"{self.format_usage()}{self.prog}: {render(message, lang)}\n{advice}\n")
        raise SystemExit(self.usage_code)

    def format_usage(self) -> str:
        self._speak()
        return super().format_usage()

    def format_help(self) -> str:
        self._speak()
        return super().format_help()

    def _speak(self) -> None:
        if asked_lang() is Lang.ZH:
            from skillyard.faces.translated_help import translate_parser  # noqa: PLC0415  (only a Chinese reader needs it)

            translate_parser(self)


@contextmanager
def _argparse_speaks(lang: Lang) -> Iterator[None]:
    """argparse takes its own words from gettext, and gettext takes the language from the environment.

    A program that asked for JSON gets English: `msg` never changes with the language.
    """
    if lang is Lang.EN or "--json" in sys.argv:
        yield
        return
    before, domain = os.environ.get("LANGUAGE"), gettext.textdomain()
    gettext.bindtextdomain(DOMAIN, LOCALE)
    gettext.textdomain(DOMAIN)
    os.environ["LANGUAGE"] = str(lang)
    try:
        yield
    finally:
        gettext.textdomain(domain)
        if before is None:
            del os.environ["LANGUAGE"]
        else:
            os.environ["LANGUAGE"] = before


def make_parser(name: str, module: ModuleType) -> Parser:
    """Return the parser of one command.

    A module with several commands has `answer_NAME` for each, whose docstring is the help, and `NAME_arguments` if it
    takes any. A module with one command has `answer` and `arguments`, and its own docstring is the help. Without
    `answer` it speaks a protocol of its own, and `arguments` says who answers.
    """
    answer = getattr(module, f"answer_{name}", None)
    doc = (answer or module).__doc__ or ""
    description = "\n".join(line.removeprefix("    ") for line in doc.rstrip().split("\n")) if answer else doc
    parser = Parser(prog=f"skillyard {name}", description=description)
    getattr(module, f"{name}_arguments" if answer else "arguments", lambda _: None)(parser)
    if answer := answer or getattr(module, "answer", None):
        set_answer(parser, answer)
    return parser


def set_answer(parser: argparse.ArgumentParser, answer: Callable[[Options], Answer], *, nested: bool = False) -> None:
    """Say who answers, and add the output options. Those before a nested command count for it too."""
    parser.set_defaults(answer=partial(answer_with, answer), parser=parser)
    group = parser.add_argument_group("output")
    default: Any = argparse.SUPPRESS if nested else None
    flag: Any = argparse.SUPPRESS if nested else False
    group.add_argument("--json", action="store_true", default=flag, help="one JSON envelope on stdout and nothing else")
    group.add_argument("--format", choices=["text", "block"], default=default, help="layout of a result")
    group.add_argument("--ascii", action="store_true", default=flag, help="nothing but ASCII")
    if parser.get_default("lang") is None:  # `new` has this option already, and asks for more with it
        group.add_argument("--lang", choices=["zh", "en"], default=default, help="language of what is shown")


def add_commands(parser: Parser, names: str) -> Callable[[str, str, Callable[[Options], Answer]], Parser]:
    """Return a function that adds one of the commands below this one: its name, its help, and who answers."""
    commands = parser.add_subparsers(metavar=names)

    def add(name: str, says: str, answer: Callable[[Options], Answer]) -> Parser:
        made = commands.add_parser(name, help=says, description=says)
        set_answer(made, answer, nested=True)
        return made

    return add


def asked_lang() -> Lang:
    """The language of what is said before the words of a command could be read."""
    words = sys.argv[1:]
    given = [word.removeprefix("--lang=") for word in words if word.startswith("--lang=")]
    given += [value for option, value in pairwise(words) if option == "--lang"]
    return Lang.choose(next((value for value in given if value in set(Lang)), None), os.environ)


def lang_of(options: Options) -> Lang:
    return Lang.choose(options.lang, os.environ)


def style_of(options: Options) -> present.Style:
    return present.Style(options.json, options.format == "block", options.ascii, lang_of(options))


def answer_with(ask: Callable[[Options], Answer], options: Options) -> NoReturn:
    """Ask, show, exit. Expected failures are shown as results."""
    started, moment = time.monotonic(), datetime.now(UTC)
    try:
        answer = ask(options)
    except EXPECTED as error:
        tell_and_exit(error, options)
    style = style_of(options)
    result = answer.as_result(AGENT, style.lang, make_meta(AGENT, time.monotonic() - started, moment))
    show_and_exit(result, style, answer.page)


def show_and_exit(result: Result, style: present.Style, page: present.Page | None = None) -> NoReturn:
    present.show(result, style, sys.stdout, page)
    present.show_notes(result, style)
    sys.stdout.flush()
    raise SystemExit(result.exit_code)


def show_failure(error: SkillError, style: present.Style) -> None:
    result = error_result(error, AGENT, style.lang, make_meta(AGENT, 0.0, datetime.now(UTC)))
    present.show(result, style, sys.stdout)
    present.show_notes(result, style)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def as_skill_error(error: Exception) -> SkillError:
    """A disk that is full, a folder that is not ours: said plainly, with where."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgs(
            Message("a name here is not UTF-8: {object!a}; rename that file or folder", object=str(error.object)[:200])
        )
    if isinstance(error, PermissionError):
        return PermissionDenied(f"{error.filename or 'a file'}: {error.strerror}")
    if isinstance(error, sqlite3.OperationalError) and ("unable to open" in str(error) or "readonly" in str(error)):
        return PermissionDenied(
            Message("the database in SKILLYARD_HOME cannot be written; set SKILLYARD_HOME to a folder of yours")
        )
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
        return StateDamaged(f"SKILLYARD_HOME: {error}")
    file = getattr(error, "filename", None)
    if isinstance(error, sqlite3.Error) or getattr(error, "errno", None) in _NO_ROOM:
        return StoreFailed(f"{file or 'SKILLYARD_HOME'}: {error}")
    return RuntimeFailed(f"{file}: {error.strerror}" if isinstance(error, OSError) and file else str(error))


def at_least(least: int) -> Callable[[str], int]:
    """An argument type: a whole number from this one on."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(Message("at least {least}", least=least))
        return int(text)

    return number


def seconds(text: str) -> float:
    """An argument type: a number of seconds above zero."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(Message("above 0"))
    return number


def split_pairs(words: Sequence[str], option: str) -> dict[str, Json]:
    """Return the values of an option that takes NAME=VALUE and can be repeated."""
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise InvalidArgs(Message("{option} takes NAME=VALUE, not {name!r}", option=option, name=name))
    return {name: value for name, _, value in pairs}


def read_object(text: str, option: str) -> dict[str, Json]:
    """Return the JSON object that an option takes."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("{option} is not JSON: {error}", option=option, error=error)) from None
    if not isinstance(value, dict):
        raise InvalidArgs(Message("{option} takes one JSON object", option=option))
    return value


class ProgramLines:
    """Shows what a program says on stderr while it runs, each line marked as the program's.

    Nothing of it can move the cursor, and no line of it can pass for a question or an advice of ours. Leaving the
    block ends a line that the program left open.
    """

    _MARK = "| "

    def __init__(self) -> None:
        self._at_start = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._at_start:
            self(b"\n")

    def __call__(self, piece: bytes) -> None:
        text = present.printable(piece.decode("utf-8", "replace"))
        for line in text.splitlines(keepends=True):
            sys.stderr.write(self._MARK + line if self._at_start else line)
            self._at_start = line.endswith("\n")
        sys.stderr.flush()


def show_progress(piece: bytes) -> None:
    """What the program says while it runs; nothing of it can move the cursor."""
    sys.stderr.write(present.printable(piece.decode("utf-8", "replace")))
    sys.stderr.flush()


def guarded(command: Callable[[Sequence[str]], None], words: Sequence[str]) -> None:
    """Run it; what can be expected to go wrong is told as a result."""
    try:
        command(words)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has left; nothing more to say
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{Message('stopped').render(asked_lang())}\n")
        raise SystemExit(130) from None
    except EXPECTED as error:
        tell_and_exit(error)


#: BrokenPipeError is one of them and none to tell of: nobody is there to read it.
#: UnicodeEncodeError: a file whose name is not UTF-8, somewhere on the way.
EXPECTED = (SkillError, OSError, sqlite3.Error, UnicodeEncodeError)


def tell_and_exit(error: Exception, options: Options | None = None) -> NoReturn:
    """Show an expected error as the person asked for it. `--json` may still stand among a skill's own words."""
    if isinstance(error, BrokenPipeError):
        raise error
    style = style_of(options) if options else present.Style(lang=asked_lang())
    told = error if isinstance(error, SkillError) else as_skill_error(error)
    show_failure(told, style._replace(json="--json" in sys.argv))
    raise SystemExit(getattr(options, "exit_codes", {}).get(type(told), 1)) from None
