"""The one module that renders: results, tables and progress, for people and for programs."""

import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self, TextIO, TypeAlias

from skillyard.core.messages import Lang, Message, render
from skillyard.core.result import Result
from skillyard.core.values import Json

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
    """Rows for people. The same things stand in the result's data for programs."""

    #: Their English names; `labels` has the Chinese ones.
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    #: What to say where there is nothing to show.
    empty: str = ""


class Lines(NamedTuple):
    """A page for people, line by line."""

    lines: Sequence[str]


class Exact(NamedTuple):
    """A text that is the answer itself: to the letter, unless a terminal would obey what stands in it."""

    text: str


Page: TypeAlias = Table | Lines | Exact


def show(result: Result, style: Style, out: TextIO, page: Page | None = None) -> None:
    """Print a result the way it was asked for; a page stands in for the envelope where people read."""
    if isinstance(page, Table) and not style.json:
        show_table(page, out, style.lang)
    elif isinstance(page, Lines) and not style.json:
        _write(out, "".join(f"{one_line(line)}\n" for line in page.lines))
    elif isinstance(page, Exact) and not style.json:
        _show_exactly(page.text, out)
    else:
        _write(out, _envelope(result, style, out) + "\n")


def _show_exactly(text: str, out: TextIO) -> None:
    _write(out, printable(text) + "\n" if out.isatty() else text)


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
        return render(_escaped(result))


def _with_escapes(value: Json) -> Json:
    """The same value with names that are no UTF-8 escaped: a file system takes any bytes, a result only text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {str(_with_escapes(key)): _with_escapes(item) for key, item in value.items()}
    return [_with_escapes(item) for item in value] if isinstance(value, list | tuple) else value


def _escaped(result: Result) -> Result:
    data, meta = _with_escapes(result.data), _with_escapes(result.meta)
    summary = str(_with_escapes(result.summary))
    return result._replace(
        summary=summary,
        data=data if isinstance(data, Mapping) else {},
        meta=meta if isinstance(meta, Mapping) else {},
    )


def show_hint(result: Result, style: Style, err: TextIO) -> None:
    """The advice, on its own line, where a person looks."""
    hint = result.meta.get("hint")
    if isinstance(hint, str) and not style.json and not result.ok:
        _write(err, f"→ {one_line(hint)}\n")


def show_cleaned(result: Result, style: Style, err: TextIO) -> None:
    """What was cleaned up after a run, one line for each kind."""
    for key, text in _CLEANED.items():
        paths = result.meta.get(key)
        if isinstance(paths, list) and paths and not style.json:
            _write(err, f"→ {one_line(text.render(style.lang, paths=', '.join(map(str, paths))))}\n")


def show_table(table: Table, out: TextIO, lang: Lang = Lang.EN) -> None:
    if not table.rows:
        _write(out, f"{one_line(table.empty)}\n")
        return
    on_terminal = out.isatty()
    lines = list(_lines(table, _columns(out) if on_terminal else 0, lang))
    if on_terminal:
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    _write(out, "\n".join(lines) + "\n")


def _columns(out: TextIO) -> int:
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdigit() else os.get_terminal_size(out.fileno()).columns or 80


def _lines(table: Table, width: int, lang: Lang) -> Iterator[str]:
    """Columns side by side; on a terminal the last one takes what room is left, and ends in an ellipsis."""
    names = [name.upper() for name in _names(table.columns, lang)]
    rows = [names, *([one_line(cell) for cell in row] for row in table.rows)]
    widths = [max(cell_width(row[i]) for row in rows) for i in range(len(table.columns) - 1)]
    room = max(width - sum(widths) - 2 * len(widths), _SMALLEST_ROOM) if width else 0
    for row in rows:
        padded = [cell + " " * (wide - cell_width(cell)) for cell, wide in zip(row, widths, strict=False)]
        last = _cut(row[-1], room) if room else row[-1]
        yield "  ".join([*padded, last]).rstrip()


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


class Progress:
    """A line on stderr that tells a person how far long work has come; silent where nobody looks."""

    def __init__(self, doing: str, err: TextIO | None = None) -> None:
        self._doing = one_line(doing)
        self._err = err or sys.stderr
        self._told = time.monotonic()
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int) -> None:
        if not self._err.isatty() or time.monotonic() - self._told < _TELL_SECONDS:
            return
        self._told = time.monotonic()
        text = f"{self._doing}: {done}/{total}"
        self._width = cell_width(text)
        _write(self._err, f"\r{text}")
        self._err.flush()

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._err.write("\r" + " " * self._width + "\r")
            self._err.flush()


class Steps:
    """The same for work whose end nobody knows: the latest step, on a terminal only."""

    def __init__(self, doing: str, err: TextIO | None = None, lang: Lang = Lang.EN) -> None:
        self._doing = doing
        self._err = err or sys.stderr
        self._lang = lang
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __call__(self, step: str) -> None:
        if not self._err.isatty():
            return
        text = _cut(one_line(f"{self._doing}: {render(step, self._lang)}"), 78)
        self._clear()
        self._width = cell_width(text)
        _write(self._err, text)
        self._err.flush()

    def _clear(self) -> None:
        if self._width:
            self._err.write("\r" + " " * self._width + "\r")

    def __exit__(self, *_: object) -> None:
        self._clear()
        self._err.flush()
