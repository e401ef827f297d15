"""What every command has in common: its options, how it is shown, and how it ends."""

import argparse
import errno
import gettext
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
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


TRY = Message("Try '{prog} --help'.")


class Answer(NamedTuple):
    """What a command gives back: a result for programs, and where there is more to see, a page for people."""

    summary: Message
    words: Mapping[str, object]
    data: Mapping[str, Json]
    page: present.Page | None = None
    state: State = State.SUCCESS


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A width of our own: argparse would import shutil for it, for each argument that is added."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_help_columns())


@cache
def _help_columns() -> int:
    """As wide as the terminal, and no wider than lines are read well."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit():
        return int(columns)
    return min(os.get_terminal_size().columns or _WIDEST, _WIDEST) if sys.stdout and sys.stdout.isatty() else _WIDEST


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
            style = present.Style(json=True)
            show_failure(InvalidArgs(message, details={"usage": self.format_usage()}), style)
        else:
            lang = asked_lang()
            said = f"{self.format_usage()}{self.prog}: {render(message, lang)}\n{TRY.render(lang, prog=self.prog)}\n"
            sys.stderr.write(said)
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


def _without_indent(doc: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in doc.rstrip().split("\n"))


def make_parser(name: str, module: ModuleType) -> Parser:
    """Return the parser of one command.

    A module with several commands has `NAME_arguments` and `answer_NAME` for each, whose docstring is the help. A
    module with one command has `arguments`, and its own docstring is the help.
    """
    answer = getattr(module, f"answer_{name}", None)
    if answer is None:
        parser = Parser(prog=f"skillyard {name}", description=module.__doc__)
        module.arguments(parser)
        return parser
    parser = Parser(prog=f"skillyard {name}", description=_without_indent(answer.__doc__))
    getattr(module, f"{name}_arguments")(parser)
    add_output_options(parser)
    parser.set_defaults(answer=partial(answer_with, answer))
    return parser


def add_output_options(parser: argparse.ArgumentParser, *, lang: bool = True) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON envelope on stdout and nothing else")
    group.add_argument("--format", choices=["text", "block"], help="layout of a result")
    group.add_argument("--ascii", action="store_true", help="nothing but ASCII")
    if lang:  # `new` asks for more with this option
        group.add_argument("--lang", choices=["zh", "en"], help="language of what is shown")


def asked_lang() -> Lang:
    """The language of what is said before the words of a command could be read."""
    words = sys.argv[1:]
    given = [word.removeprefix("--lang=") for word in words if word.startswith("--lang=")]
    given += [value for option, value in pairwise(words) if option == "--lang"]
    return Lang.choose(next((value for value in given if value in set(Lang)), None), os.environ)


def lang_of(options: Options) -> Lang:
    return Lang.choose(options.lang, os.environ)


def style_of(options: Options) -> present.Style:
    return present.Style(
        json=options.json,
        block=options.format == "block",
        ascii=options.ascii,
        lang=lang_of(options),
    )


def answer_with(
    ask: Callable[[Options], Answer], options: Options, exit_code_of: Callable[[SkillError], int] = lambda _: 1
) -> NoReturn:
    """Ask, show, exit. Expected failures are shown as results."""
    style = style_of(options)
    started, moment = time.monotonic(), datetime.now(UTC)
    try:
        answer = ask(options)
    except SkillError as error:
        show_failure(error, style)
        raise SystemExit(exit_code_of(error)) from None
    result = Result(
        agent=AGENT,
        state=answer.state,
        summary=answer.summary.render(style.lang, **answer.words),
        data=answer.data,
        meta=make_meta(AGENT, time.monotonic() - started, moment),
    )
    show_and_exit(result, style, answer.page)


def show_and_exit(result: Result, style: present.Style, page: present.Page | None = None) -> NoReturn:
    present.show(result, style, sys.stdout, page)
    present.show_cleaned(result, style, sys.stderr)
    present.show_hint(result, style, sys.stderr)
    sys.stdout.flush()
    raise SystemExit(result.exit_code)


def show_failure(error: SkillError, style: present.Style) -> None:
    meta = make_meta(AGENT, 0.0, datetime.now(UTC))
    result = error_result(error, AGENT, style.lang, meta)
    present.show(result, style, sys.stdout)
    present.show_hint(result, style, sys.stderr)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def as_skill_error(error: OSError | sqlite3.Error | UnicodeEncodeError) -> SkillError:
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
    if isinstance(error, sqlite3.Error) or error.errno in _NO_ROOM:
        return StoreFailed(f"{getattr(error, 'filename', None) or 'SKILLYARD_HOME'}: {error}")
    return RuntimeFailed(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def positive(text: str) -> int:
    """An argument type: a whole number above zero."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(Message("at least 1"))
    return number


def not_negative(text: str) -> int:
    """An argument type: a whole number from zero on."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(Message("at least 0"))
    return number


def seconds(text: str) -> float:
    """An argument type: a number of seconds above zero."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(Message("above 0"))
    return number


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


_STOPPED = Message("stopped")


def guarded(command: Callable[[Sequence[str]], None], words: Sequence[str]) -> None:
    """Run it; what can be expected to go wrong is told as a result."""
    try:
        command(words)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has left; nothing more to say
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{_STOPPED.render(asked_lang())}\n")
        raise SystemExit(130) from None
    except EXPECTED as error:
        tell_and_exit(error, chosen_style(None))


#: BrokenPipeError is one of them and none to tell of: nobody is there to read it.
#: UnicodeEncodeError: a file whose name is not UTF-8, somewhere on the way.
EXPECTED = (SkillError, OSError, sqlite3.Error, UnicodeEncodeError)


def tell_and_exit(error: SkillError | OSError | sqlite3.Error | UnicodeEncodeError, style: present.Style) -> NoReturn:
    if isinstance(error, BrokenPipeError):
        raise error
    show_failure(error if isinstance(error, SkillError) else as_skill_error(error), style)
    raise SystemExit(1) from None


def chosen_style(options: Options | None) -> present.Style:
    """As the person asked for it, where their words could be read. `--json` may still stand among a skill's own."""
    as_json = "--json" in sys.argv
    if options and hasattr(options, "lang"):
        return style_of(options)._replace(json=as_json)
    return present.Style(json=as_json, lang=asked_lang())
