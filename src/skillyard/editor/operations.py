"""The operations of the file editor: each takes a text and returns the edits to make in it. No files here.

Each operation is a value; its fields are what the command line and a batch give it. `edits` raises TextNotFound if
there is nothing to work on, and AmbiguousText if there are several places and nobody said which.
"""

import json
import math
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from skillyard.core.errors import AmbiguousText, InvalidArgs, RuntimeFailed, TextNotFound
from skillyard.core.messages import Message
from skillyard.editor.json_edit import parse_path, set_field
from skillyard.editor.text_edits import TextEdit, check_text, with_lf

REGEX_SECONDS = 5.0
_SHOWN_PLACES = 10
_REGEX_PROCESS = Path(__file__).with_name("regex_process.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(ABC):
    """One change of one text. Never touches a file."""

    #: Whether it can start from nothing: the file is made.
    creates: ClassVar[bool] = False
    #: The name of its count in the result; empty if there is nothing to count.
    counts: ClassVar[str] = ""

    @abstractmethod
    def edits(self, text: str) -> tuple[TextEdit, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace(Operation):
    """The exact text `old` becomes `new`: the only place, the nth, or all."""

    old: str
    new: str
    all: bool = False
    nth: int | None = None
    counts: ClassVar[str] = "replacements"

    def edits(self, text: str) -> tuple[TextEdit, ...]:
        old = with_lf(self.old)
        places = _places(text, old)
        overlapping = text.find(old, places[0] + 1) if len(places) == 1 and self.nth is None and not self.all else -1
        found = places if overlapping < 0 else [*places, overlapping]
        chosen = _choose(text, old, found, self.all, self.nth)
        return tuple(TextEdit(place, place + len(old), self.new) for place in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(Operation):
    """`content` at the end, on a line of its own: a missing final newline is added before it, none after it."""

    content: str
    creates: ClassVar[bool] = True

    def edits(self, text: str) -> tuple[TextEdit, ...]:
        missing = "\n" if text and not text.endswith("\n") else ""
        return (TextEdit(len(text), len(text), missing + self.content),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepend(Operation):
    """`content` at the start, on a line of its own."""

    content: str
    creates: ClassVar[bool] = True

    def edits(self, text: str) -> tuple[TextEdit, ...]:
        return (TextEdit(0, 0, _as_lines(self.content) if text else self.content),)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertAfter(Operation):
    """`content` as new lines after the line with `marker`."""

    marker: str
    content: str
    all: bool = False
    nth: int | None = None
    counts: ClassVar[str] = "insertions"

    def edits(self, text: str) -> tuple[TextEdit, ...]:
        marker = with_lf(self.marker)
        chosen = _choose(text, marker, _places_by_line(text, marker), self.all, self.nth)
        return tuple(self._insertion(text, place, place + len(marker)) for place in chosen)

    def _insertion(self, text: str, _start: int, end: int) -> TextEdit:
        at = _line_end(text, end)
        return TextEdit(at, at, _as_lines(self.content) if text[at - 1] == "\n" else "\n" + self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertBefore(InsertAfter):
    """`content` as new lines before the line with `marker`."""

    def _insertion(self, text: str, start: int, _end: int) -> TextEdit:
        at = _line_start(text, start)
        return TextEdit(at, at, _as_lines(self.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteBetween(Operation):
    """The lines between the one with `start` and the next one with `end`; those two go only `with_markers`."""

    start: str
    end: str
    with_markers: bool = False
    nth: int | None = None
    counts: ClassVar[str] = "lines"

    def edits(self, text: str) -> tuple[TextEdit, ...]:
        start, end = with_lf(self.start), with_lf(self.end)
        if not end:
            raise InvalidArgs(Message("an empty text is everywhere"))
        (place,) = _choose(text, start, _places_by_line(text, start), False, self.nth)
        after = place + len(start)
        last = text.find(end, after)
        if last < 0:
            raise TextNotFound(Message("no {end} after {start}", end=_shown(end), start=_shown(start)))
        if self.with_markers:
            return (TextEdit(_line_start(text, place), _line_end(text, last + len(end)), ""),)
        first = _line_end(text, after)
        return (TextEdit(first, max(first, _line_start(text, last)), ""),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regex(Operation):
    """What `pattern` matches becomes `replacement` (`\\1`, `\\g<name>`): all of it, or the first `count`."""

    pattern: str
    replacement: str
    count: int = 0
    multiline: bool = False
    dotall: bool = False
    ignore_case: bool = False
    seconds: float = REGEX_SECONDS
    counts: ClassVar[str] = "replacements"

    def edits(self, text: str) -> tuple[TextEdit, ...]:
        """Match in a child process that is killed at the limit: some patterns never end on some texts."""
        request = {**asdict(self), "text": text, "cpu_seconds": math.ceil(self.seconds) + 1}
        command, limit = [sys.executable, "-I", "-S", str(_REGEX_PROCESS)], self.seconds
        try:
            done = subprocess.run(
                command, input=json.dumps(request).encode(), capture_output=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            msg = Message("the pattern was stopped after {seconds:g} s: it may never end on this text", seconds=limit)
            raise RuntimeFailed(msg, details={"limit": limit}) from None
        if done.returncode != 0:
            raise RuntimeFailed(Message("the matcher ended with {returncode}", returncode=done.returncode))
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise InvalidArgs(Message("the pattern or its replacement cannot be used: {error}", error=answer["error"]))
        if not answer["matches"]:
            raise TextNotFound(Message("nothing matches {pattern}", pattern=_shown(self.pattern)))
        return tuple(TextEdit(*match) for match in answer["matches"])


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateJson(Operation):
    """The field of a JSON file that `field` names gets `value`."""

    field: str
    value: object
    creates: ClassVar[bool] = True

    def edits(self, text: str) -> tuple[TextEdit, ...]:
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
    """Return the operation of that name with these fields. Raise InvalidArgs if one of them is wrong."""
    known = fields_of(name)
    for field in known.values():
        if field.default is MISSING and field.name not in given:
            raise InvalidArgs(Message("{name} needs {field!r}", name=name, field=field.name))
    for key, value in given.items():
        if key not in known:
            names = ", ".join(known)
            raise InvalidArgs(Message("{name} takes no {key!r}; it takes {known}", name=name, key=key, known=names))
        _check_value(f"{name} {key}", value, known[key].type)
    return OPERATIONS[name](**given)


def fields_of(name: str) -> "dict[str, Field[object]]":
    if name not in OPERATIONS:
        names = ", ".join(OPERATIONS)
        raise InvalidArgs(Message("no operation {name!r}; there are {operations}", name=name, operations=names))
    return {field.name: field for field in fields(OPERATIONS[name])}


def _check_value(what: str, value: object, wanted: Any) -> None:
    wanted = int | float if wanted is float else wanted
    if wanted is object:
        check_text(json.dumps(value, ensure_ascii=False), what)
    elif isinstance(value, bool) != (wanted is bool) or not isinstance(value, wanted):
        raise InvalidArgs(Message("{what}: {value!r} is not what it takes", what=what, value=value))
    elif isinstance(value, str):
        check_text(value, what)
    elif isinstance(value, int | float) and value < 0:
        raise InvalidArgs(Message("{what}: {value} is below zero", what=what, value=value))


def count_of(operation: Operation, text: str, edits: Sequence[TextEdit]) -> int:
    """Return the number of replacements, insertions or lines."""
    if operation.counts != DeleteBetween.counts:
        return len(edits)
    gone = "".join(text[start:end] for start, end, _ in edits)
    return gone.count("\n") + (bool(gone) and not gone.endswith("\n"))


def _places(text: str, wanted: str) -> list[int]:
    """Return where it stands, without overlaps."""
    if not wanted:
        raise InvalidArgs(Message("an empty text is everywhere"))
    return [found.start() for found in re.finditer(re.escape(wanted), text)]


def _places_by_line(text: str, marker: str) -> list[int]:
    """Return the first place on each line: a marker that stands twice on a line is still one line."""
    found: dict[int, int] = {}
    for place in _places(text, marker):
        found.setdefault(_line_start(text, place), place)
    return list(found.values())


def _choose(text: str, wanted: str, places: Sequence[int], every: bool, nth: int | None) -> Sequence[int]:
    """Return the only place, or those that were asked for; never a guess."""
    if every and nth is not None:
        raise InvalidArgs(Message("all of them, or the nth: not both"))
    if nth == 0:
        raise InvalidArgs(Message("the first is number 1"))
    if not places or (nth is not None and nth > len(places)):
        times = Message("{wanted} stands there {count} times", wanted=_shown(wanted), count=len(places))
        raise TextNotFound(times if places else f"no {_shown(wanted)}")
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
    """Return the place after the newline of the line on which what ends at `end` ends."""
    found = text.find("\n", end - 1)
    return len(text) if found < 0 else found + 1


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
