"""The operations of the file editor: a text in, what to change in it out. No files here.

Each operation is a value; its fields are what the command line and a batch give it. `splices` raises TextNotFound where
there is nothing to work on, AmbiguousText where there are several places and nobody said which.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import ClassVar, Protocol

from skillyard.core.errors import AmbiguousText, InvalidArgs, TextNotFound
from skillyard.core.messages import Message
from skillyard.editor.document import check_text
from skillyard.editor.json_edit import parse_path, set_field
from skillyard.editor.pattern import substitute
from skillyard.editor.text_edits import Splice, with_lf

REGEX_SECONDS = 5.0
_SHOWN_PLACES = 10


class Operation(Protocol):
    """One change of one text. Never touches a file."""

    #: Whether it can start from nothing: the file is made.
    creates: ClassVar[bool]
    #: What its count is called in the result; nothing to count where it is empty.
    counts: ClassVar[str]

    def splices(self, text: str) -> tuple[Splice, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """The exact text `old` becomes `new`: the only place, the nth, or all."""

    old: str
    new: str
    all: bool = False
    nth: int | None = None
    creates: ClassVar[bool] = False
    counts: ClassVar[str] = "replacements"

    def splices(self, text: str) -> tuple[Splice, ...]:
        old = with_lf(self.old)
        places = _places(text, old)
        overlapping = text.find(old, places[0] + 1) if len(places) == 1 and self.nth is None and not self.all else -1
        found = places if overlapping < 0 else [*places, overlapping]
        chosen = _choose(text, old, found, self.all, self.nth)
        return tuple(Splice(place, place + len(old), self.new) for place in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """`content` at the end, on a line of its own: a missing final newline is added before it, none after it."""

    content: str
    creates: ClassVar[bool] = True
    counts: ClassVar[str] = ""

    def splices(self, text: str) -> tuple[Splice, ...]:
        missing = "\n" if text and not text.endswith("\n") else ""
        return (Splice(len(text), len(text), missing + self.content),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepend:
    """`content` at the start, on a line of its own."""

    content: str
    creates: ClassVar[bool] = True
    counts: ClassVar[str] = ""

    def splices(self, text: str) -> tuple[Splice, ...]:
        return (Splice(0, 0, _as_lines(self.content) if text else self.content),)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertAfter:
    """`content` as new lines after the line with `marker`."""

    marker: str
    content: str
    all: bool = False
    nth: int | None = None
    creates: ClassVar[bool] = False
    counts: ClassVar[str] = "insertions"

    def splices(self, text: str) -> tuple[Splice, ...]:
        marker = with_lf(self.marker)
        chosen = _choose(text, marker, _places_by_line(text, marker), self.all, self.nth)
        return tuple(self._after(text, _line_end(text, place + len(marker))) for place in chosen)

    def _after(self, text: str, end: int) -> Splice:
        return Splice(end, end, _as_lines(self.content) if text[end - 1] == "\n" else "\n" + self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertBefore:
    """`content` as new lines before the line with `marker`."""

    marker: str
    content: str
    all: bool = False
    nth: int | None = None
    creates: ClassVar[bool] = False
    counts: ClassVar[str] = "insertions"

    def splices(self, text: str) -> tuple[Splice, ...]:
        marker = with_lf(self.marker)
        chosen = _choose(text, marker, _places_by_line(text, marker), self.all, self.nth)
        starts = [_line_start(text, place) for place in chosen]
        return tuple(Splice(start, start, _as_lines(self.content)) for start in starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteBetween:
    """The lines between the one with `start` and the next one with `end`; those two go only `with_markers`."""

    start: str
    end: str
    with_markers: bool = False
    nth: int | None = None
    creates: ClassVar[bool] = False
    counts: ClassVar[str] = "lines"

    def splices(self, text: str) -> tuple[Splice, ...]:
        start, end = with_lf(self.start), with_lf(self.end)
        if not end:
            raise InvalidArgs(Message("an empty text is everywhere"))
        (place,) = _choose(text, start, _places_by_line(text, start), False, self.nth)
        after = place + len(start)
        last = text.find(end, after)
        if last < 0:
            raise TextNotFound(Message("no {end} after {start}", end=_shown(end), start=_shown(start)))
        if self.with_markers:
            return (Splice(_line_start(text, place), _line_end(text, last + len(end)), ""),)
        first = _line_end(text, after)
        return (Splice(first, max(first, _line_start(text, last)), ""),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regex:
    """What `pattern` matches becomes `replacement` (`\\1`, `\\g<name>`): all of it, or the first `count`."""

    pattern: str
    replacement: str
    count: int = 0
    multiline: bool = False
    dotall: bool = False
    ignore_case: bool = False
    seconds: float = REGEX_SECONDS
    creates: ClassVar[bool] = False
    counts: ClassVar[str] = "replacements"

    def splices(self, text: str) -> tuple[Splice, ...]:
        chosen = {re.MULTILINE: self.multiline, re.DOTALL: self.dotall, re.IGNORECASE: self.ignore_case}
        flags = re.RegexFlag(sum(flag for flag, wanted in chosen.items() if wanted))
        found = substitute(text, self.pattern, self.replacement, flags=flags, count=self.count, seconds=self.seconds)
        if not found:
            raise TextNotFound(Message("nothing matches {pattern}", pattern=_shown(self.pattern)))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateJson:
    """The field of a JSON file that `field` names gets `value`."""

    field: str
    value: object
    creates: ClassVar[bool] = True
    counts: ClassVar[str] = ""

    def splices(self, text: str) -> tuple[Splice, ...]:
        return (set_field(text, parse_path(self.field), self.value),)


OPERATIONS: Mapping[str, type[Operation]] = {
    "replace": Replace,
    "append": Append,
    "prepend": Prepend,
    "insert-after": InsertAfter,
    "insert-before": InsertBefore,
    "delete-between": DeleteBetween,
    "regex": Regex,
    "update-json": UpdateJson,
}


def make_operation(name: str, given: Mapping[str, object]) -> Operation:
    """The operation of that name with these fields; InvalidArgs says which of them is wrong."""
    known = fields_of(name)
    for field in known.values():
        if field.default is MISSING and field.name not in given:
            raise InvalidArgs(Message("{name} needs {field!r}", name=name, field=field.name))
    for key, value in given.items():
        if key not in known:
            raise InvalidArgs(
                Message("{name} takes no {key!r}; it takes {known}", name=name, key=key, known=", ".join(known))
            )
        _check_value(f"{name} {key}", value, known[key].type)
    return OPERATIONS[name](**given)


def fields_of(name: str) -> "dict[str, Field[object]]":
    """What the operation of that name takes."""
    kind = OPERATIONS.get(name)
    if kind is None:
        raise InvalidArgs(
            Message("no operation {name!r}; there are {operations}", name=name, operations=", ".join(OPERATIONS))
        )
    return {field.name: field for field in fields(kind)}  # type: ignore[arg-type]


def _check_value(what: str, value: object, wanted: object) -> None:
    is_flag = isinstance(value, bool)
    if wanted is float:
        wanted = int | float
    fits = wanted is object or (is_flag if wanted is bool else not is_flag and isinstance(value, wanted))  # type: ignore[arg-type]
    if not fits:
        raise InvalidArgs(Message("{what}: {value!r} is not what it takes", what=what, value=value))
    if isinstance(value, int | float) and not is_flag and wanted is not object and value < 0:
        raise InvalidArgs(Message("{what}: {value} is below zero", what=what, value=value))
    for text in (value,) if isinstance(value, str) else ():
        check_text(text, what)
    if wanted is object:
        check_text(json.dumps(value, ensure_ascii=False), what)


def count_of(operation: Operation, text: str, splices: Sequence[Splice]) -> int:
    """How many replacements, insertions, or lines."""
    if operation.counts != DeleteBetween.counts:
        return len(splices)
    gone = "".join(text[start:end] for start, end, _ in splices)
    return gone.count("\n") + (bool(gone) and not gone.endswith("\n"))


def _places(text: str, wanted: str) -> list[int]:
    """Where it stands, without overlaps."""
    if not wanted:
        raise InvalidArgs(Message("an empty text is everywhere"))
    return [found.start() for found in re.finditer(re.escape(wanted), text)]


def _places_by_line(text: str, marker: str) -> list[int]:
    """The first place on each line: a marker that stands twice on a line is still one line."""
    found: dict[int, int] = {}
    for place in _places(text, marker):
        found.setdefault(_line_start(text, place), place)
    return list(found.values())


def _choose(text: str, wanted: str, places: Sequence[int], every: bool, nth: int | None) -> Sequence[int]:
    """One place where there is one, else what was asked for; never a guess."""
    if every and nth is not None:
        raise InvalidArgs(Message("all of them, or the nth: not both"))
    if nth == 0:
        raise InvalidArgs(Message("the first is number 1"))
    if not places or (nth is not None and nth > len(places)):
        raise TextNotFound(
            Message("{wanted} stands there {count} times", wanted=_shown(wanted), count=len(places))
            if places
            else f"no {_shown(wanted)}"
        )
    if nth is not None:
        return places[nth - 1 : nth]
    if every or len(places) == 1:
        return places
    lines = [text.count("\n", 0, place) + 1 for place in places[:_SHOWN_PLACES]]
    raise AmbiguousText(_shown(wanted), len(places), lines)


def _as_lines(content: str) -> str:
    return content if content.endswith(("\n", "\r")) else content + "\n"


def _line_start(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def _line_end(text: str, end: int) -> int:
    """Behind the newline of the line on which what ends at `end` ends."""
    found = text.find("\n", end - 1)
    return len(text) if found < 0 else found + 1


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
