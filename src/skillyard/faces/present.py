"""The one module that renders: results, tables and progress, for people and for programs."""

import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TextIO, TypeAlias

from skillyard.core.messages import Lang, Message, render
from skillyard.core.result import Result

_TELL_SECONDS = 0.2
_CLEANED = {
    "removed_links": Message("removed links that lead out of the folder where the run may write: {paths}"),
    "cleared_setuid": Message("cleared setuid and setgid bits: {paths}"),
}
#: Below this the last column would say nothing: rather let the line fold.
_SMALLEST_ROOM = 20


class Style(NamedTuple):
    """How the person at the other end wants to see it."""

    json: bool = False
    block: bool = False
    ascii: bool = False
    lang: Lang = Lang.EN


class Table(NamedTuple):
    """Rows for people, with messages rendered. The same things stand in the result's data for programs."""

    #: Their English names, which are labels.
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    #: What to say where there is nothing to show.
    empty: str = ""


class Lines(NamedTuple):
    """A page for people, line by line; messages are rendered."""

    lines: Sequence[str]


class Exact(NamedTuple):
    """A text that is the answer itself: to the letter, unless a terminal would obey what stands in it."""

    text: str


Page: TypeAlias = Table | Lines | Exact


def show(result: Result, style: Style, out: TextIO, page: Page | None = None) -> None:
    """Print a result the way it was asked for; a page stands in for the envelope where people read."""
    if style.json or page is None:
        _write(out, _envelope(result, style, out) + "\n")
    elif isinstance(page, Table):
        show_table(page, out, style.lang)
    elif isinstance(page, Lines):
        write_lines(page.lines, style.lang, out)
    else:
        _write(out, printable(page.text) + "\n" if out.isatty() else page.text)


def write_lines(lines: Iterable[str], lang: Lang, out: TextIO | None = None) -> None:
    """Write lines for people, to stderr unless told otherwise."""
    out = out or sys.stderr
    _write(out, "".join(f"{one_line(render(line, lang))}\n" for line in lines))
    out.flush()


def _envelope(result: Result, style: Style, out: TextIO) -> str:
    from skillyard.core.envelope import as_block, as_json, as_text  # noqa: PLC0415  (a table needs none)

    def render(shown: Result) -> str:
        if style.json:
            return as_json(shown)
        encoding = "ascii" if style.ascii else (out.encoding or "utf-8")
        return (as_block if style.block else as_text)(shown, encoding)

    try:
        return render(result)
    except ValueError:  # a name that is not UTF-8
        return render(result._replace(**_with_escapes(result._asdict())))


def _with_escapes(value: object) -> Any:
    """The same value with names that are no UTF-8 escaped: a file system takes any bytes, a result only text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_with_escapes(key): _with_escapes(item) for key, item in value.items()}
    return [_with_escapes(item) for item in value] if isinstance(value, list | tuple) else value


def show_notes(result: Result, style: Style) -> None:
    """Tell a person on stderr what was cleaned up after a run, and what to do about a failure."""
    notes: list[str] = []
    for key, text in _CLEANED.items():
        paths = result.meta.get(key)
        if isinstance(paths, list) and paths:
            notes.append(text.render(style.lang, paths=", ".join(map(str, paths))))
    hint = result.meta.get("hint")
    if isinstance(hint, str) and not result.ok:
        notes.append(hint)
    if notes and not style.json:
        write_lines((f"→ {note}" for note in notes), style.lang)


def show_table(table: Table, out: TextIO, lang: Lang = Lang.EN) -> None:
    """Columns side by side; on a terminal the last one takes what room is left, and ends in an ellipsis."""
    if not table.rows:
        write_lines([table.empty], lang, out)
        return
    names = [name.upper() for name in _names(table.columns, lang)]
    rows = [names, *([one_line(render(cell, lang)) for cell in row] for row in table.rows)]
    widths = [max(cell_width(row[i]) for row in rows) for i in range(len(names) - 1)]
    on_terminal = out.isatty()
    room = max(_columns(out) - sum(widths) - 2 * len(widths), _SMALLEST_ROOM) if on_terminal else 0
    lines = []
    for row in rows:
        padded = [cell + " " * (wide - cell_width(cell)) for cell, wide in zip(row, widths, strict=False)]
        lines.append("  ".join([*padded, _cut(row[-1], room) if room else row[-1]]).rstrip())
    if on_terminal:
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    _write(out, "\n".join(lines) + "\n")


def _columns(out: TextIO) -> int:
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdigit() else os.get_terminal_size(out.fileno()).columns or 80


def _names(columns: Sequence[str], lang: Lang) -> Sequence[str]:
    if lang is Lang.EN:
        return columns
    from skillyard.faces.labels import label  # noqa: PLC0415  (only a Chinese table needs them)

    return [label(name, lang) for name in columns]


def _cut(text: str, room: int) -> str:
    if cell_width(text) <= room:
        return text
    kept, taken = [], 0
    for character in text:
        taken += cell_width(character)
        if taken > room - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


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


def printable(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _write(stream: TextIO, text: str) -> None:
    """What the stream cannot encode is escaped rather than a crash."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


class StatusLine:
    """A line on stderr that tells a person how far long work has come; silent where nobody looks."""

    def __init__(self, doing: str, lang: Lang = Lang.EN, err: TextIO | None = None) -> None:
        self._doing, self._lang, self._err = one_line(render(doing, lang)), lang, err or sys.stderr
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        if self._width:
            self._err.write("\r" + " " * self._width + "\r")
            self._err.flush()
            self._width = 0

    def _draw(self, step: str) -> None:
        text = _cut(f"{self._doing}: {one_line(render(step, self._lang))}", 78)
        self.clear()
        self._width = cell_width(text)
        _write(self._err, text)
        self._err.flush()


class Steps(StatusLine):
    """The latest step of work whose end nobody knows."""

    def __call__(self, step: str) -> None:
        if self._err.isatty():
            self._draw(step)


class Progress(StatusLine):
    """How many of how many, five times a second at most."""

    _told = 0.0

    def __call__(self, done: int, total: int) -> None:
        self._told = self._told or time.monotonic()
        if self._err.isatty() and time.monotonic() - self._told >= _TELL_SECONDS:
            self._told = time.monotonic()
            self._draw(f"{done}/{total}")
