"""Holds a value against a JSON Schema: the part of it that our own schemas use, with words for people.

A validator of its own because a run must not pay for a library, and because an unknown key is worth a warning
with the nearest known one, not a refusal.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from skillyard.core.messages import Message
from skillyard.core.skill import Severity
from skillyard.core.values import Json

Path: TypeAlias = tuple[str | int, ...]
Schema: TypeAlias = Mapping[str, Any]

#: Longer keys are cut before anything is compared with them.
_LONGEST_KEY = 64
#: What a schema of ours may say; anything else would be promised and not held.
KEYWORDS = frozenset(
    {
        *("$schema", "title", "description", "definitions", "patternErrorMessage"),
        *("$ref", "type", "enum", "properties", "additionalProperties", "required", "items", "minItems"),
        *("pattern", "minLength", "minimum", "maximum", "exclusiveMinimum", "allOf", "oneOf", "dependencies"),
    }
)
_NAMES = {
    "object": Message("a mapping"),
    "array": Message("a list"),
    "string": Message("text"),
    "integer": Message("a whole number"),
    "number": Message("a number"),
    "boolean": Message("true or false"),
    "null": Message("nothing"),
}


class Problem(NamedTuple):
    """One thing that is not as the schema says, where it stands in the value."""

    path: Path
    severity: Severity
    message: str
    advice: str

    @property
    def shown(self) -> str:
        return show(self.path)


def show(path: Path) -> str:
    """`skills[0].timeout`, as people write it."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step[:_LONGEST_KEY]}" for step in path)
    return text.removeprefix(".") or "the file"


def one_line(text: str) -> str:
    """Without control characters: what a file says is printed on terminals."""
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def problems(value: Json, schema: Schema) -> Iterator[Problem]:
    """Everything that is wrong, in the order of the file."""
    return _Shape(schema).check(value, schema, ())


class _Shape:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def check(self, value: Json, schema: Schema, path: Path) -> Iterator[Problem]:
        schema = self._followed(schema)
        if not _is_of(value, schema.get("type")) or ("enum" in schema and not _is_one(value, schema["enum"])):
            yield _wrong(
                path, Message("is {value}; it should be {schema}", value=_told(value), schema=expected(schema)), schema
            )
            return
        if isinstance(value, Mapping):
            yield from self._mapping(value, schema, path)
        elif isinstance(value, str):
            yield from _text(value, schema, path)
        elif isinstance(value, Sequence):
            yield from self._list(value, schema, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _number(value, schema, path)

    def _followed(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            schema = self._root["definitions"][schema["$ref"].removeprefix("#/definitions/")]
        return schema

    def _list(self, value: Sequence[Json], schema: Schema, path: Path) -> Iterator[Problem]:
        if len(value) < schema.get("minItems", 0):
            yield _wrong(
                path,
                Message(
                    "has {count} items; it should have at least {minitems}",
                    count=len(value),
                    minitems=schema["minItems"],
                ),
                schema,
            )
        if "items" in schema:
            for position, item in enumerate(value):
                yield from self.check(item, schema["items"], (*path, position))

    def _mapping(self, value: Mapping[str, Json], schema: Schema, path: Path) -> Iterator[Problem]:
        known: Schema = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield _wrong(path, Message("lacks `{name}`", name=name), self._followed(known.get(name, {})))
        for choice in (schema, *schema.get("allOf", ())):
            yield from _exactly_one(value, choice, path)
        for name, needed in schema.get("dependencies", {}).items():
            # One of several, or all of a list.
            met, names = (any, _choices(needed)) if isinstance(needed, Mapping) else (all, needed)
            if name in value and not met(other in value for other in names):
                yield _wrong(
                    (*path, name),
                    Message("goes only with {names}", names=_listed(names)),
                    self._followed(known.get(name, {})),
                )
        for name, item in value.items():
            if name in known:
                yield from self.check(item, known[name], (*path, name))
            elif schema.get("additionalProperties") is False:
                yield _unknown((*path, name), name, tuple(known))
            elif isinstance(schema.get("additionalProperties"), Mapping):
                yield from self.check(item, schema["additionalProperties"], (*path, name))


def _text(value: str, schema: Schema, path: Path) -> Iterator[Problem]:
    pattern = schema.get("pattern")
    if len(value) < schema.get("minLength", 0):
        wanted = schema["minLength"]
        yield _wrong(
            path,
            Message("is empty") if wanted == 1 else Message("has less than {wanted} characters", wanted=wanted),
            schema,
        )
    elif pattern and not _pattern(pattern).search(value):
        yield _wrong(
            path,
            Message(
                "is {value!r}; it should be {schema}",
                value=value[:_LONGEST_KEY],
                schema=Message.plain(schema.get("patternErrorMessage", "")),
            ),
            schema,
        )


def _number(value: float, schema: Schema, path: Path) -> Iterator[Problem]:
    above, least, most = (schema.get(word) for word in ("exclusiveMinimum", "minimum", "maximum"))
    if (
        (above is not None and value <= above)
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        yield _wrong(
            path, Message("is {value}; it should be {schema}", value=_told(value), schema=expected(schema)), schema
        )


def _exactly_one(value: Mapping[str, Json], schema: Schema, path: Path) -> Iterator[Problem]:
    names = _choices(schema)
    given = [name for name in names if name in value]
    if names and len(given) != 1:
        has = (
            Message("has both {given}", given=_listed(given))
            if given
            else Message("has none of {names}", names=_listed(names))
        )
        yield _wrong(path, Message("{has}; it needs exactly one", has=has), {})


def _choices(schema: Schema) -> list[str]:
    return [name for option in schema.get("oneOf", ()) for name in option["required"]]


def _pattern(text: str) -> re.Pattern[str]:
    """As a JSON Schema means it: `$` is the very end."""
    return re.compile(re.sub(r"\$(?=$|\||\))", r"\\Z", text))


def _is_of(value: Json, kinds: str | Sequence[str] | None) -> bool:
    if kinds is None:
        return True
    return any(_is_a(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _is_a(value: Json, kind: str) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, Sequence) and not isinstance(value, str)
        case "integer":
            return isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _is_one(value: Json, choices: Sequence[str]) -> bool:
    return isinstance(value, str) and value in choices


def _told(value: Json) -> str:
    match value:
        case None:
            return Message("nothing")
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)[:_LONGEST_KEY]
        case str():
            return Message("the text {text!r}", text=value[:_LONGEST_KEY])
        case Mapping():
            return Message("a mapping")
        case _:
            return Message("a list")


def expected(schema: Schema) -> str:
    """What may stand there, for people."""
    if "enum" in schema:
        return Message("one of {enum}", enum=", ".join(schema["enum"]))
    kinds = schema.get("type", ())
    words = [_NAMES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
    what = words[0] if len(words) == 1 else Message("{one} or {other}", one=words[0], other=words[1]) if words else ""
    above, least, most = (schema.get(word) for word in ("exclusiveMinimum", "minimum", "maximum"))
    if above is not None:
        return Message("{what} above {above}", what=what, above=above)
    if least is not None and most is not None:
        return Message("{what} from {least} to {most}", what=what, least=least, most=most)
    return what if least is None else Message("{what} from {least}", what=what, least=least)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _wrong(path: Path, message: str, schema: Schema) -> Problem:
    return Problem(path, Severity.ERROR, message, Message.plain(schema.get("description", "")))


def _unknown(path: Path, name: str, known: Sequence[str]) -> Problem:
    from difflib import get_close_matches  # noqa: PLC0415  (only a key that nobody knows needs it)

    close = get_close_matches(name[:_LONGEST_KEY].lower().replace("-", "_"), known, n=1)
    advice = (
        Message("did you mean `{close}`?", close=close[0])
        if close
        else Message("there are {known}", known=_listed(known))
    )
    return Problem(path, Severity.WARNING, Message("is not known and does nothing"), advice)
