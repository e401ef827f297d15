"""One field of a JSON text, set in place: every other character of the text stays as it is.

A path names keys and list indices: `a.b`, `items.0.name`, `items[0]`, `items[-]` (one more at the end), `"a.b".c` or
`["a.b"].c` for keys with dots.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, RuntimeFailed, TextNotFound
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.editor.text_edits import TextEdit

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_STEP = re.compile(rf'(?:(?P<dot>^|\.)(?P<key>{_QUOTED}|[^.\[\]"]+))|\[(?P<index>\d+|-|{_QUOTED})\]')
_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)\S")
_DECODER = json.JSONDecoder()
_APPEND = "-"


class PathStep(NamedTuple):
    """A key, or an index where it stands in a list; a name in quotes is always a key."""

    name: str
    quoted: bool = False
    bracket: bool = False

    @property
    def makes_list(self) -> bool:
        """Whether what is missing here becomes a list: `0` and `-` can only be meant so, `2024` is rather a key."""
        return not self.quoted and (self.bracket or self.name in {"0", _APPEND})


class JsonElement(NamedTuple):
    """A member of an object or an item of a list: where it starts, and where its value does."""

    key: str
    start: int
    value: int
    end: int


def parse_path(path: str) -> tuple[PathStep, ...]:
    steps: list[PathStep] = []
    done = 0
    while found := _STEP.match(path, done):
        word = found["key"] or found["index"]
        quoted = word.startswith('"')
        try:
            name = str(json.loads(word)) if quoted else word
        except ValueError as error:
            raise InvalidArgs(Message("{path!r} is no field path: {error}", path=path, error=error)) from None
        steps.append(PathStep(name, quoted, found["index"] is not None and not quoted))
        done = found.end()
    if done == len(path) and steps:
        return tuple(steps)
    forms = Message('{path!r} is no field path; there are a.b, items.0.name, items[0], items[-], "a.b".c', path=path)
    raise InvalidArgs(forms)


def as_value(word: str) -> Json:
    """JSON where it parses, else a text."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not JSON")

    try:
        value: Json = json.loads(word, parse_constant=refuse)
    except (ValueError, RecursionError):
        return word
    return value


def set_field(text: str, path: Sequence[PathStep], value: object) -> TextEdit:
    """Set what the path names, and make what is missing on the way."""
    if not text.strip():
        return TextEdit(0, len(text), json.dumps(_wrapped(path, value), indent=2, ensure_ascii=False) + "\n")
    try:
        json.loads(text)
    except ValueError as error:
        raise RuntimeFailed(Message("the file is not JSON: {error}", error=error)) from None
    except RecursionError:
        raise RuntimeFailed(Message("the file is nested too deeply")) from None
    style, start = _style_of(text), _skip(text, 0)
    end = _DECODER.raw_decode(text, start)[1]
    for depth, step in enumerate(path):
        elements = list(_elements(text, start))
        chosen = _chosen(text[start], step, elements, path[: depth + 1])
        if chosen is None:
            label = f"{style.render(step.name, '')}{style.colon}" if text[start] == "{" else ""
            return _added(text, start, elements, label, _wrapped(path[depth + 1 :], value), style)
        start, end = chosen.value, chosen.end
    return TextEdit(start, end, style.render(value, _line_indent(text, start)))


def _wrapped(path: Sequence[PathStep], value: object) -> object:
    for step in reversed(path):
        if step.makes_list and step.name not in {"0", _APPEND}:
            raise TextNotFound(Message("a new list has no item {name}", name=step.name))
        value = [value] if step.makes_list else {step.name: value}
    return value


def _elements(text: str, start: int) -> Iterator[JsonElement]:
    """What an object or a list holds; nothing in anything else."""
    if text[start] not in "{[":
        return
    place = _skip(text, start + 1)
    while text[place] not in "]}":
        key, value = "", place
        if text[start] == "{":
            key, after = _DECODER.raw_decode(text, place)
            value = _skip(text, _skip(text, after) + 1)
        end = _DECODER.raw_decode(text, value)[1]
        yield JsonElement(key, place, value, end)
        place = _skip(text, end)
        if text[place] == ",":
            place = _skip(text, place + 1)


def _chosen(
    opens: str, step: PathStep, elements: Sequence[JsonElement], path: Sequence[PathStep]
) -> JsonElement | None:
    """The element a step leads to; None where it is to be made."""
    if opens == "{" and not step.bracket:
        return next((element for element in reversed(elements) if element.key == step.name), None)
    shown = ".".join(each.name for each in path)
    is_index = not step.quoted and (step.name == _APPEND or (step.name.isascii() and step.name.isdigit()))
    if opens != "[" or not is_index:
        kind = {"{": "an object", "[": Message("a list")}.get(opens, "a single value")
        raise RuntimeFailed(Message("{shown} leads into {kind}, which has no such field", shown=shown, kind=kind))
    index = len(elements) if step.name == _APPEND else int(step.name)
    if index > len(elements):
        raise TextNotFound(Message("no item {shown}: the list has {count}", shown=shown, count=len(elements)))
    return elements[index] if index < len(elements) else None


class JsonStyle(NamedTuple):
    """How a text is written."""

    #: One level of indentation; None where everything stands on one line.
    unit: str | None
    #: Without spaces.
    compact: bool
    escaped: bool

    @property
    def colon(self) -> str:
        return ":" if self.compact else ": "

    def render(self, value: object, indent: str) -> str:
        marks = ("," if self.compact or self.unit is not None else ", ", self.colon)
        try:
            shown = json.dumps(value, indent=self.unit, separators=marks, ensure_ascii=self.escaped, allow_nan=False)
        except ValueError as error:
            raise InvalidArgs(Message("the value is not JSON: {error}", error=error)) from None
        return shown.replace("\n", f"\n{indent}")


def _style_of(text: str) -> JsonStyle:
    body = text.strip()
    is_compact = "\n" not in body and ":" in text and ": " not in text
    unit = None if len(body) > len("{}") else "  "
    if "\n" in body:
        found = _INDENT.search(text)
        unit = found[1] if found else ""
    return JsonStyle(unit, is_compact, text.isascii() and "\\u" in text)


def _added(
    text: str, start: int, elements: Sequence[JsonElement], label: str, value: object, style: JsonStyle
) -> TextEdit:
    """A new element after the last one, on a line of its own where the others stand so."""
    if elements:
        last = elements[-1]
        indent = _line_indent(text, last.start)
        own_line = text[: last.start].rstrip(" \t").endswith("\n")
        between = f"\n{indent}" if own_line else "" if style.compact else " "
        return TextEdit(last.end, last.end, f",{between}{label}{style.render(value, indent)}")
    end = _skip(text, start + 1)
    if style.unit is None:
        return TextEdit(start + 1, end, label + style.render(value, ""))
    outer = _line_indent(text, start)
    inner = outer + style.unit
    return TextEdit(start + 1, end, f"\n{inner}{label}{style.render(value, inner)}\n{outer}")


def _line_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
