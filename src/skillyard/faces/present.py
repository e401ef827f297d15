"""The one module that renders: results, tables and progress, for people and for programs."""

import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TextIO, TypeAlias

from skillyard.core.errors import PermissionDenied
from skillyard.core.messages import Lang, Message, render, translate
from skillyard.core.result import Result, as_size
from skillyard.core.values import Json

if TYPE_CHECKING:
    from skillyard.faces.live_line import LiveLine

_TELL_SECONDS = 0.2
_CLEANED = {
    "removed_links": Message("removed links that lead out of the folder where the run may write: {paths}"),
    "cleared_setuid": Message("cleared setuid and setgid bits: {paths}"),
}
#: Fields of a result that go to a file below `_ASIDE` if they are long.
_TEXTS, _INLINE_CHARACTERS = frozenset({"content", "text", "article", "stderr"}), 2000
_CODES, _INLINE_LINES = frozenset({"code", "script"}), 100
_FIRST_LINES = 5
_ASIDE = "mybox/workspace"
_NO_TERMINAL = 100
_SIGNS = {"added": "+", "modified": "~", "deleted": "-", "renamed": ">", "mode": "%"}


#: What is drawn on the last line of stderr just now: whatever is written there wipes it out before.
DRAWN: list["LiveLine"] = []


class Style(NamedTuple):
    """How the person at the other end wants to see it."""

    json: bool = False
    block: bool = False
    ascii: bool = False
    lang: Lang = Lang.EN
    #: Laid out for reading: the default where stdout is a terminal.
    human: bool = False
    #: The content or the data alone.
    raw: bool = False
    #: The person saw what the program said on stderr already.
    heard: bool = False


class Table(NamedTuple):
    """Rows for people, with messages rendered. The same things stand in the result's data for programs."""

    #: Their English names, which are labels.
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    #: What to say where there is nothing to show.
    empty: str = ""
    #: What to say below.
    note: str = ""


class Record(NamedTuple):
    """Everything that is known of a run or a job; `result` and `log` are two of its fields."""

    data: Mapping[str, Json]

    def result(self, otherwise: Result) -> Result:
        """Return what the run came to, if it came to something."""
        from skillyard.core.envelope import from_dict  # noqa: PLC0415  (only where it is shown by itself)

        told = self.data.get("result")
        try:
            return from_dict(told) if isinstance(told, Mapping) else otherwise
        except ValueError:  # it is still running, or was killed
            return otherwise


class Diff(NamedTuple):
    """A unified diff."""

    lines: Sequence[str]


#: A table, lines whose messages are rendered, or a text that is the answer itself, to the letter.
Page: TypeAlias = Table | Record | Diff | Sequence[str] | str


def show(result: Result, style: Style, out: TextIO, page: Page | None = None) -> None:
    """Print a result the way it was asked for; a page stands in for the envelope where people read."""
    if style.raw:
        _show_raw(page.result(result) if isinstance(page, Record) else result, style, out)
    elif style.human and not style.json:
        from skillyard.faces.human import show_human  # noqa: PLC0415  (only people need it)

        show_human(_readable(result), style, out, page)
    elif style.json or page is None:
        write_encoded(out, _envelope(result, style, out) + "\n")
    elif isinstance(page, Table):
        show_table(page, out, style.lang)
    elif isinstance(page, str):  # unless a terminal would obey what stands in it
        write_encoded(out, printable(page) + "\n" if out.isatty() else page)
    elif isinstance(page, Record):
        write_lines(_record_lines(page.data, style.lang), style.lang, out)
    else:
        write_lines(page.lines if isinstance(page, Diff) else page, style.lang, out)


def _show_raw(result: Result, style: Style, out: TextIO) -> None:
    """Print the content to the letter, else the data as JSON. A failure is told on stderr: stdout may be a file."""
    content = result.data.get("content")
    if isinstance(content, str):
        ended = "" if content.endswith("\n") or not out.isatty() else "\n"
        write_encoded(out, printable(content) + ended if out.isatty() else content)
    elif result.ok:
        write_encoded(out, _envelope(result, style._replace(json=True), out, only_data=True) + "\n")
    if not result.ok:
        out.flush()
        write_lines(
            [f"{result.mark.ascii if style.ascii else result.mark.icon} {result.agent} {result.summary}"], style.lang
        )


def write_lines(lines: Iterable[str], lang: Lang, out: TextIO | None = None) -> None:
    """Write lines for people, to stderr unless told otherwise."""
    out = out or sys.stderr
    for line in DRAWN:
        line.clear()
    write_encoded(out, "".join(f"{one_line(render(line, lang))}\n" for line in lines))
    out.flush()


def _envelope(result: Result, style: Style, out: TextIO, *, only_data: bool = False) -> str:
    from skillyard.core.envelope import as_block, as_json, as_text, data_as_json  # noqa: PLC0415  (a table needs none)

    def render(shown: Result) -> str:
        if only_data:
            return data_as_json(shown)
        if style.json:
            return as_json(shown)
        encoding = "ascii" if style.ascii else (out.encoding or "utf-8")
        return (as_block if style.block else as_text)(shown, encoding)

    try:
        return render(result)
    except ValueError:  # a name that is not UTF-8
        return render(_readable(result))


def _readable(result: Result) -> Result:
    summary, data, meta = map(_with_escapes, (result.summary, result.data, result.meta))
    return result._replace(summary=summary, data=data, meta=meta)


def _with_escapes(value: object) -> Any:
    """The same value with names that are no UTF-8 escaped: a file system takes any bytes, a result only text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_with_escapes(key): _with_escapes(item) for key, item in value.items()}
    return [_with_escapes(item) for item in value] if isinstance(value, list | tuple) else value


def put_aside(result: Result, write: Callable[[str, bytes], None]) -> Result:
    """Put long texts into files with `write`; path, size and first lines stand in their place. A prompt stays whole."""
    if result.data.get("type") == "prompt":
        return result
    run = str(result.meta.get("run") or result.meta.get("ts", "")).replace(":", "")
    data = dict(result.data)
    for key, value in result.data.items():
        if not isinstance(value, str):
            continue
        is_long_text = key in _TEXTS and len(value) > _INLINE_CHARACTERS
        if is_long_text or (key in _CODES and len(value.splitlines()) > _INLINE_LINES):
            content, path = value.encode(), f"{_ASIDE}/{key}-{run}.txt"
            first = "\n".join(value[:_INLINE_CHARACTERS].splitlines()[:_FIRST_LINES])
            with suppress(PermissionDenied, OSError):  # what cannot be put aside is shown whole
                write(path, content)
                data[key] = {"path": path, "size": as_size(len(content)), "first_lines": first}
    return result._replace(data=data)


def show_notes(result: Result, style: Style) -> None:
    """Tell a person on stderr what was cleaned up after a run, and what to do about a failure."""
    notes: list[str] = []
    for key, text in _CLEANED.items():
        paths = result.meta.get(key)
        if isinstance(paths, list) and paths:
            notes.append(text.render(style.lang, paths=", ".join(map(str, paths))))
    hint = result.meta.get("hint")
    if isinstance(hint, str) and not result.ok and not style.human:
        notes.append(hint)
    if notes and not style.json:
        write_lines((f"→ {note}" for note in notes), style.lang)


def show_table(table: Table, out: TextIO, lang: Lang = Lang.EN) -> None:
    """Columns side by side."""
    if not table.rows:
        write_lines(filter(None, (table.empty, table.note)), lang, out)
        return
    names = [label(name, lang).upper() for name in table.columns]
    rows = [names, *([one_line(render(cell, lang)) for cell in row] for row in table.rows)]
    widths = [max(cell_width(row[i]) for row in rows) for i in range(len(names) - 1)]
    lines = []
    for row in rows:
        padded = [cell + " " * (wide - cell_width(cell)) for cell, wide in zip(row, widths, strict=False)]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    write_encoded(out, "\n".join(lines) + "\n")
    if table.note:
        write_lines([table.note], lang, out)


def encodes(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def columns_of(out: TextIO) -> int:
    """How wide the terminal is; 100 where there is none."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    return (os.get_terminal_size(out.fileno()).columns or 80) if out.isatty() else _NO_TERMINAL


def _record_lines(data: Mapping[str, Json], lang: Lang) -> Iterator[str]:
    for key, value in data.items():
        named = label(key, lang)
        if key in {"request", "launch", "result"} and isinstance(value, dict):
            yield f"{named}:"
            yield from (f"  {name}: {_as_json(item)}" for name, item in value.items() if item not in (None, "", [], {}))
        elif key == "log":
            yield f"{named}:" if value else f"{named}: {Message('empty').render(lang)}"
            yield from (f"  {line}" for line in str(value).splitlines())
        else:
            yield f"{named}: {_as_json(value)}"


def _as_json(value: Json) -> str:
    import json  # noqa: PLC0415  (only records need it)

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=dict)


def change_line(change: Mapping[str, Any]) -> str:
    """One change of a project on a line, as `data.changes` has it."""
    origin = f"{change['old_path']} → " if "old_path" in change else ""
    slash = "/" if change.get("type") == "folder" else ""
    return f"{_SIGNS.get(str(change.get('kind')), '?')} {origin}{change.get('path')}{slash}"


def cut(text: str, room: int) -> str:
    if cell_width(text) <= room:
        return text
    end = taken = 0
    while (taken := taken + cell_width(text[end])) < room:
        end += 1
    return text[:end].rstrip() + "…"


def cell_width(text: str) -> int:
    """Columns on a terminal: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) or c == "\ufe0f" else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def one_line(text: str) -> str:
    """Nothing that a skill's text holds can move the cursor or fake a row."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def without_colours(text: str) -> str:
    """The text without the sequences that colour it (SGR)."""
    if "\x1b[" not in text:
        return text
    import re  # noqa: PLC0415  (most texts have none)

    return re.sub(r"\x1b\[[\d;:]*m", "", text)


def printable(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def write_encoded(stream: TextIO, text: str, encoding: str = "") -> None:
    """What the stream cannot encode is escaped rather than a crash."""
    encoding = encoding or stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


class StatusLine:
    """A line on stderr that tells a person how far long work has come; silent where nobody looks."""

    #: Whether a timer draws it anew with a spinner and the time.
    ticks = True

    def __init__(self, doing: str, lang: Lang = Lang.EN, err: TextIO | None = None) -> None:
        self._doing, self._lang, self._err = one_line(render(doing, lang)), lang, err or sys.stderr
        self._text, self._shown, self._counted = self._doing, False, 0.0
        self._live: LiveLine | None = None

    def __enter__(self) -> Self:
        if self.ticks and self._err.isatty():
            from skillyard.faces.live_line import LiveLine  # noqa: PLC0415  (only a terminal has one)

            self._live = LiveLine(lambda: self._text, self._err).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.__exit__()
            self._live = None
        self.wipe()

    def wipe(self) -> None:
        """Take the line away, so that something else can be written there."""
        if self._live:
            self._live.clear()
        if self._shown:
            self._err.write("\r\x1b[K")
            self._err.flush()
            self._shown = False

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.wipe()
        write_lines([text], self._lang, self._err)

    def __call__(self, step: str) -> None:
        """Show the latest step of work whose end nobody knows."""
        self._text = f"{self._doing}: {one_line(render(step, self._lang))}"
        if self._err.isatty():
            if self._live:
                self._live.clear()
            write_encoded(self._err, f"\r{cut(self._text, columns_of(self._err) - 1)}\x1b[K")
            self._err.flush()
            self._shown = True

    def count(self, done: int, total: int) -> None:
        """Show how many of how many, five times a second at most."""
        self._counted = self._counted or time.monotonic()
        if time.monotonic() - self._counted >= _TELL_SECONDS and self._err.isatty():
            from skillyard.faces.live_line import bar  # noqa: PLC0415  (only a terminal has one)

            self._counted = time.monotonic()
            drawn = bar(f"{done}/{total}", is_ascii=not encodes("█░", self._err.encoding or "utf-8"))
            self(f"{drawn} {done}/{total}")


def label(name: str, lang: Lang) -> str:
    """Return the name as it is if it has no translation: somebody else's, such as a field of a file."""
    return translate(name, lang, "label")


def field_lines(data: Mapping[str, Json], lang: Lang) -> Iterator[str]:
    """Yield what is known of something, a line for each field that is not empty; records in a list have their own."""
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield f"{label(key, lang)}:"
            yield from (f"  - {as_words(item, lang)}" for item in value)
        elif value is not None and value not in ("", [], {}):
            yield f"{label(key, lang)}: {as_words(value, lang)}"


def as_words(value: Json, lang: Lang) -> str:
    """Return it on one line, without what is empty. A list among other things has its brackets."""
    if isinstance(value, Mapping):
        held = {key: as_words(item, lang) for key, item in value.items() if item not in (None, "", [], {})}
        listed = {key: f"[{words}]" if isinstance(value[key], list) else words for key, words in held.items()}
        return ", ".join(f"{label(key, lang)}: {words}" for key, words in listed.items())
    if isinstance(value, list):
        return ", ".join(as_words(item, lang) for item in value)
    if isinstance(value, bool):
        return yes_or_no(value).render(lang)
    return render(value, lang) if isinstance(value, str) else str(value)


def yes_or_no(claim: object) -> Message:
    return Message("yes") if claim else Message("no")
