"""What every command has in common: its options, how it is shown, and how it ends."""

import argparse
import errno
import gettext
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

from skillyard.core.errors import InvalidArgs, PermissionDenied, RuntimeFailed, SkillError, StateDamaged, StoreFailed
from skillyard.core.messages import DOMAIN, LOCALE, Lang, Message, render, translate
from skillyard.core.result import Clock, Result, error_result
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces import present

if TYPE_CHECKING:
    from skillyard.faces.live_line import LiveLine

#: The agent of commands that run no skill and no script.
AGENT = "skillyard"
USAGE = 2
_WIDEST = 100
_LONGEST_LINE, _LONGEST_NOTE = 65536, 400
_LAYOUTS = ("human", "lines", "block", "json")

#: BrokenPipeError is one of them and none to tell of: nobody is there to read it.
#: UnicodeEncodeError: a file whose name is not UTF-8, somewhere on the way.
EXPECTED = (SkillError, OSError, sqlite3.Error, UnicodeEncodeError)

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
    """argparse, with usage errors that a program can read too. It returns the `style` and the `lang` to use, too."""

    #: What a usage error exits with.
    usage_code = USAGE

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **{"formatter_class": HelpFormatter, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        with _argparse_speaks(asked_lang()):
            options = super().parse_args(args, namespace)
        options.lang = Lang.choose(options.lang, os.environ)
        options.json = options.json or options.format == "json"
        human = not options.json and (options.format == "human" or (options.format is None and sys.stdout.isatty()))
        options.style = present.Style(
            options.json, options.format == "block", options.ascii, options.lang, human, bool(options.raw)
        )
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from difflib import get_close_matches  # noqa: PLC0415  (only a wrong word needs it)

        names = [str(each) for each in action.choices]
        near = get_close_matches(str(value), names, n=1)
        choices = ", ".join(names)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            meant = Message("; did you mean `{command}`?", command=f"{self.prog} {near[0]}") if near else ""
            self.error(Message("no {value!r} among {choices}{meant}", value=value, choices=choices, meant=meant))
        meant = Message("; did you mean {name!r}?", name=near[0]) if near else ""
        why = Message("{value!r} is none of {choices}{meant}", value=value, choices=choices, meant=meant)
        raise argparse.ArgumentError(action, why)

    def error(self, message: str) -> NoReturn:
        refused = sys.exception()
        if isinstance(refused, argparse.ArgumentError) and isinstance(refused.message, Message):
            message = Message("argument {name}: {reason}", name=refused.argument_name, reason=refused.message)
        if wants_json():
            show_failure(InvalidArgs(message, details={"usage": self.format_usage()}), present.Style(json=True))
        else:
            lang = asked_lang()
            advice = Message("Try '{prog} --help'.", prog=self.prog).render(lang)
            said = present.one_line(f"{self.prog}: {render(message, lang)}")
            sys.stderr.write(f"{said}\n{self.short_usage(lang)}\n{advice}\n")
        raise SystemExit(self.usage_code)

    @property
    def has_words(self) -> bool:
        """Whether it takes more than options: only then can a wrong word be what it refuses."""
        return any(not each.option_strings for each in self._actions)

    def short_usage(self, lang: Lang) -> str:
        """Return the usage on a line: the options are in the help."""
        said = translate("usage", lang, "help")
        if self.usage:
            return f"{said}: {self.usage}"
        formatter = argparse.HelpFormatter(self.prog, width=1000)
        formatter.add_usage(None, [each for each in self._actions if not each.option_strings or each.required], (), "")
        words = formatter.format_help().strip().removeprefix(self.prog).strip()
        options = translate("[options]", lang, "help")
        return f"{said}: {self.prog} {options} {words}".rstrip()

    def _get_formatter(self) -> argparse.HelpFormatter:
        if asked_lang() is Lang.ZH:
            from skillyard.faces.translated_help import translate_parser  # noqa: PLC0415  (only a Chinese reader needs it)

            translate_parser(self)
        return super()._get_formatter()

    def add_commands(self, names: str) -> "Callable[[str, str, Callable[[Options], Answer]], Parser]":
        """Return a function that adds one of the commands below this one: its name, its help, and who answers."""
        commands = self.add_subparsers(metavar=names)

        def add(name: str, says: str, answer: Callable[[Options], Answer]) -> Parser:
            made: Parser = commands.add_parser(name, help=says, description=says)
            set_answer(made, answer, nested=True)
            made.add_arguments_of(answer)
            return made

        return add

    def add_arguments_of(self, answer: object) -> None:
        """Add what `takes` says of the function that answers."""
        groups: dict[str, argparse._ActionsContainer] = {"": self}
        for name, group, options in getattr(answer, "arguments", ()):
            if group not in groups:
                groups[group] = self.add_mutually_exclusive_group()
            added = groups[group].add_argument(name, **options)
            added.required = added.required and added.nargs != argparse.REMAINDER  # nothing is enough for it


_Answering = TypeVar("_Answering", bound=Callable[[Options], Answer | None])


def takes(name: str, says: str | None = None, one_of: str = "", **options: Any) -> Callable[[_Answering], _Answering]:
    """Decorate the function that answers a command with one of its arguments; the first stands on top.

    An option with nothing but a help is a flag. Of those that name the same group in `one_of` only one can be given.
    """
    if name.startswith("--") and not options:
        options = {"action": "store_true"}

    def decorate(answer: _Answering) -> _Answering:
        vars(answer)["arguments"] = ((name, one_of, {"help": says, **options}), *getattr(answer, "arguments", ()))
        return answer

    return decorate


@contextmanager
def _argparse_speaks(lang: Lang) -> Iterator[None]:
    """argparse takes its own words from gettext, and gettext takes the language from the environment.

    A program that asked for JSON gets English: `msg` never changes with the language.
    """
    if lang is Lang.EN or wants_json():
        yield
        return
    before, domain = dict(os.environ), gettext.textdomain()
    gettext.bindtextdomain(DOMAIN, LOCALE)
    gettext.textdomain(DOMAIN)
    os.environ["LANGUAGE"] = str(lang)
    try:
        yield
    finally:
        gettext.textdomain(domain)
        del os.environ["LANGUAGE"]
        os.environ.update(before)


def make_parser(name: str, module: ModuleType) -> Parser:
    """Return the parser of one command.

    `answer_NAME` of the module answers with its docstring as the help, or else `answer` with the module's. `takes` says
    which arguments it has, and `NAME_arguments` or `arguments` adds the commands below it. One that speaks a protocol
    of its own sets who answers there, and has no output options.
    """
    own = getattr(module, f"answer_{name}", None)
    doc, answer = (own or module).__doc__ or "", own or module.answer
    if own:
        doc = "\n".join(line.removeprefix("    ") for line in doc.rstrip().split("\n"))
    parser = Parser(prog=f"skillyard {name}", description=doc)
    parser.set_defaults(
        json=False, format=None, ascii=False, raw=False, lang=None
    )  # for those that have no such options
    parser.add_arguments_of(answer)
    getattr(module, f"{name}_arguments" if own else "arguments", lambda _: None)(parser)
    if parser.get_default("answer") is None:
        set_answer(parser, answer)
    return parser


def set_answer(parser: argparse.ArgumentParser, answer: Callable[[Options], Answer], *, nested: bool = False) -> None:
    """Say who answers, and add the output options. Those before a nested command count for it too."""
    parser.set_defaults(answer=partial(answer_with, answer), parser=parser)
    group = parser.add_argument_group("output")
    default, flag = (argparse.SUPPRESS, argparse.SUPPRESS) if nested else (None, False)
    group.add_argument("--json", action="store_true", default=flag, help="one JSON envelope on stdout and nothing else")
    group.add_argument(
        "--format",
        type=_layout,
        choices=_LAYOUTS,
        default=default,
        help="layout of a result: human on a terminal, elsewhere lines",
    )
    group.add_argument("--raw", action="store_true", default=flag, help="only the content, or the data as JSON")
    group.add_argument("--ascii", action="store_true", default=flag, help="nothing but ASCII")
    if parser.get_default("lang") is None:  # `new` has this option already, and asks for more with it
        group.add_argument("--lang", choices=["zh", "en"], default=default, help="language of what is shown")


def _layout(text: str) -> str:
    return "lines" if text == "text" else text  # its name in earlier versions


def wants_json() -> bool:
    """Whether a program reads, before the words of a command could be read."""
    words = sys.argv[1:]
    return "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words)


def asked_lang() -> Lang:
    """The language of what is said before the words of a command could be read."""
    words = sys.argv[1:]
    given = [word.removeprefix("--lang=") for word in words if word.startswith("--lang=")]
    given += [value for option, value in pairwise(words) if option == "--lang"]
    return Lang.choose(next((value for value in given if value in set(Lang)), None), os.environ)


def answer_with(ask_for: Callable[[Options], Answer], options: Options) -> NoReturn:
    """Ask, show, exit. Expected failures are shown as results."""
    clock = Clock()
    try:
        answer = ask_for(options)
    except EXPECTED as error:
        tell_and_exit(error, options)
    show_and_exit(answer.as_result(AGENT, options.lang, clock.meta(AGENT)), options.style, answer.page)


def show_and_exit(result: Result, style: present.Style, page: present.Page | None = None) -> NoReturn:
    present.show(result, style, sys.stdout, page)
    present.show_notes(result, style)
    sys.stdout.flush()
    raise SystemExit(result.exit_code)


def finish_run(result: Result, style: present.Style, write: Callable[[str, bytes], None]) -> NoReturn:
    """Show what a run came to: its long texts are put into files, unless they are asked for or shown as they are."""
    if style.human:
        style = style._replace(heard=sys.stderr.isatty())
    show_and_exit(result if style.json or style.raw or style.human else present.put_aside(result, write), style)


def show_failure(error: SkillError, style: present.Style) -> None:
    result = error_result(error, AGENT, style.lang, Clock().meta(AGENT))
    present.show(result, style, sys.stdout)
    present.show_notes(result, style)


def as_skill_error(error: Exception) -> SkillError:
    """A disk that is full, a folder that is not ours: said plainly, with where. An error of ours stays what it is."""
    if isinstance(error, SkillError):
        return error
    if isinstance(error, UnicodeEncodeError):
        name = str(error.object)[:200]
        return InvalidArgs(Message("a name here is not UTF-8: {object!a}; rename that file or folder", object=name))
    if isinstance(error, PermissionError):
        return PermissionDenied(f"{error.filename or 'a file'}: {error.strerror}")
    if isinstance(error, sqlite3.OperationalError) and ("unable to open" in str(error) or "readonly" in str(error)):
        why = Message("the database in SKILLYARD_HOME cannot be written; set SKILLYARD_HOME to a folder of yours")
        return PermissionDenied(why)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StateDamaged(f"SKILLYARD_HOME: {error}")
    file = getattr(error, "filename", None)
    if isinstance(error, sqlite3.Error) or getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}:
        return StoreFailed(f"{file or 'SKILLYARD_HOME'}: {error}")
    return RuntimeFailed(f"{file}: {error.strerror}" if isinstance(error, OSError) and file else str(error))


def split_options(words: Sequence[str], known: Mapping[str, argparse.Action]) -> tuple[list[str], list[str]]:
    """Return the words that are these options and their values, and all others: every one from `--` on."""
    ours, others, left = list[str](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return ours, [*others, word, *left]
        action = known.get(word.partition("=")[0] if word.startswith("--") else word)
        (others if action is None else ours).append(word)
        if action and action.nargs is None and "=" not in word:
            ours += left[:1]
            del left[:1]
    return ours, others


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


def comma_list(text: str) -> tuple[str, ...]:
    """An argument type: names with commas between, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def split_pairs(words: Sequence[str], option: str) -> dict[str, Json]:
    """Return the values of an option that takes NAME=VALUE and can be repeated."""
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise InvalidArgs(Message("{option} takes NAME=VALUE, not {name!r}", option=option, name=name))
    return {name: value for name, _, value in pairs}


def read_object(text: str, option: str) -> dict[str, Json]:
    """Return the JSON object that an option takes."""
    import json  # noqa: PLC0415  (most commands read none)

    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("{option} is not JSON: {error}", option=option, error=error)) from None
    if not isinstance(value, dict):
        raise InvalidArgs(Message("{option} takes one JSON object", option=option))
    return value


class ProgramLines:
    """Shows what a program says on stderr while it runs, each line marked as the program's.

    Nothing of it can move the cursor, and no line of it can pass for a question or an advice of ours. On a terminal,
    where `doing` says what runs, a line of ours below it shows that it goes on: what reports progress is shown there
    alone. Leaving the block ends a line that the program left open.
    """

    def __init__(self, doing: str = "") -> None:
        self._at_start, self._rest = True, b""
        self._doing, self._note, self._bar = doing, doing, ""
        self._live: LiveLine | None = None

    def __enter__(self) -> Self:
        if self._doing and sys.stderr.isatty():
            from skillyard.faces.live_line import LiveLine  # noqa: PLC0415  (only a terminal has one)

            self._live = LiveLine(self._standing, sys.stderr).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.__exit__()
            self._write(self._rest)
        if not self._at_start:
            self._write(b"\n")

    def __call__(self, piece: bytes) -> None:
        if self._live is None:
            self._write(piece)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._hear(self._live, line)
        if len(self._rest) > _LONGEST_LINE:
            self._write(self._rest)
            self._rest = b""
        elif drawn := self._rest.rpartition(b"\r")[2].strip():  # a bar of the program's own, drawn over and over
            self._note_of(drawn)

    def _standing(self) -> str:
        return f"{self._bar} {self._note}".strip()

    def _hear(self, live: "LiveLine", line: bytes) -> None:
        from skillyard.faces.live_line import bar, read_progress  # noqa: PLC0415  (only a terminal has a line)

        last = line.rstrip(b"\r").rpartition(b"\r")[2]
        if progress := read_progress(last.decode("utf-8", "replace")):
            self._bar = f"{bar(progress.done, is_ascii=live.is_ascii)} {progress.done}"
            self._note = progress.note or self._doing
            return
        live.clear()
        shown = present.without_colours(last.decode("utf-8", "replace"))
        self._write(shown.encode() + b"\n")
        self._note_of(shown.encode())

    def _note_of(self, line: bytes) -> None:
        self._note = line[:_LONGEST_NOTE].decode("utf-8", "replace").strip() or self._note

    def _write(self, piece: bytes) -> None:
        text = present.printable(piece.decode("utf-8", "replace"))
        for line in text.splitlines(keepends=True):
            sys.stderr.write(f"| {line}" if self._at_start else line)
            self._at_start = line.endswith("\n")
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


def tell_and_exit(error: Exception, options: Options | None = None) -> NoReturn:
    """Show an expected error as the person asked for it. `--json` may still stand among a skill's own words."""
    if isinstance(error, BrokenPipeError):
        raise error
    style = options.style if options else present.Style(lang=asked_lang(), human=sys.stdout.isatty())
    told = as_skill_error(error)
    if type(told) is InvalidArgs and style.human and options and told.extra_hint is None and options.parser.has_words:
        told.details = {"usage": options.parser.short_usage(style.lang), **told.details}
    show_failure(told, style._replace(json=wants_json()))
    raise SystemExit(getattr(options, "exit_codes", {}).get(type(told), 1)) from None


def on_terminal() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str | None:
    """Return the answer, or None where the person has left. Asked on stderr, so that stdout stays the result.

    Whatever the question quotes, it looks like what it is.
    """
    with _alone():
        sys.stderr.write(present.printable(question))
        sys.stderr.flush()
        line = sys.stdin.readline()
    if not line:  # what comes next starts on a line of its own
        sys.stderr.write("\n")
    return line.rstrip("\n") if line else None


def _alone() -> AbstractContextManager[None]:
    """Nothing of ours is drawn on the line of a question."""
    return present.DRAWN[-1].paused() if present.DRAWN else nullcontext()


YES: Final = frozenset({"y", "yes", "是", "好"})


def confirm(question: str) -> bool:
    """Nothing but a clear yes is one."""
    answer = ask(f"{question} [y/N] ")
    return (answer or "").strip().lower() in YES


def require_yes(question: str, refused: Message, *, accepted: bool, details: Mapping[str, Json] | None = None) -> None:
    """Raise InvalidArgs unless an option already said yes, or a person at the terminal does. Their no ends it."""
    if accepted:
        return
    if not on_terminal():
        raise InvalidArgs(refused, details=details)
    if not confirm(question):
        present.write_lines([Message("Nothing was changed.")], asked_lang())
        raise SystemExit(1)


def ask_key(question: str, keys: str) -> str:
    """One key, without Enter, of those that count; nothing where the person has left."""
    import termios  # noqa: PLC0415  (only a terminal has keys)
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(sys.stdin)
    paused = _alone()
    paused.__enter__()
    try:
        tty.setcbreak(sys.stdin, termios.TCSADRAIN)  # before we ask, and without losing what was typed ahead
        sys.stderr.write(present.printable(question))
        sys.stderr.flush()
        while (typed := os.read(sys.stdin.fileno(), 1).decode("ascii", "replace").lower()) not in {*keys, "", "\x04"}:
            pass
        key = typed.strip("\x04")
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        paused.__exit__(None, None, None)
    sys.stderr.write(f"{key}\n")
    return key
