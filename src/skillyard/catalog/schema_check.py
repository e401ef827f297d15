"""Checks a value against a JSON Schema: the keywords that our own schemas use, with messages for people.

A validator of our own, because a run must not pay for a library, and because an unknown key is worth a warning with the
nearest known one, not an error.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

from skillyard.catalog.findings import START, Position, Rule, one_line
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Severity
from skillyard.core.values import Json

KeyPath: TypeAlias = tuple[str | int, ...]
Schema: TypeAlias = Mapping[str, Any]

#: Longer keys are cut before they are compared and shown.
_LONGEST_KEY = 64
#: Further problems of a file are not reported.
MAX_PROBLEMS = 100
#: The keywords that are checked. Our schemas use no others; a test holds it.
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

_CLASSES = {"null": NoneType, "boolean": bool, "string": str, "object": Mapping, "array": Sequence}


class SchemaProblem(NamedTuple):
    """A value that is not as the schema says, and its path."""

    path: KeyPath
    severity: Severity
    message: str
    advice: str

    @property
    def shown(self) -> str:
        """The path as people write it: `skills[0].timeout`."""
        text = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:_LONGEST_KEY]}" for key in self.path)
        return text.removeprefix(".") or "the file"


@cache
def read_schema(name: str) -> dict[str, Any]:
    """Return a schema of this folder."""
    schema: dict[str, Any] = json.loads((Path(__file__).parent / name).read_text("utf-8"))
    return schema


def problems(value: Json, schema: Schema) -> Iterator[SchemaProblem]:
    """Yield everything that is wrong, in the order of the file, up to MAX_PROBLEMS."""
    return islice(_SchemaChecker(schema).check(value, schema, ()), MAX_PROBLEMS)


def as_findings(
    found: Sequence[SchemaProblem], positions: Mapping[KeyPath, Position], error: Rule, unknown: Rule
) -> Iterator[Finding]:
    """Return each problem as a finding at its key, or at the nearest key above it."""
    for problem in found:
        path = problem.path
        while path and path not in positions:
            path = path[:-1]
        finding = (error if problem.severity is Severity.ERROR else unknown).at(*positions.get(path, START))
        message = one_line(Message("`{place}` {reason}", place=problem.shown, reason=problem.message))
        yield finding._replace(message=message, advice=problem.advice)


class _SchemaChecker:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def check(self, value: Json, schema: Schema, path: KeyPath) -> Iterator[SchemaProblem]:
        schema = self._resolve_ref(schema)
        fits = "type" not in schema or _is_of(value, schema["type"])
        if not fits or ("enum" in schema and not (isinstance(value, str) and value in schema["enum"])):
            yield _unfit(value, path, schema)
            return
        if isinstance(value, Mapping):
            yield from self._mapping(value, schema, path)
        elif isinstance(value, str):
            yield from _text(value, schema, path)
        elif isinstance(value, Sequence):
            yield from self._list(value, schema, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _number(value, schema, path)

    def _resolve_ref(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            schema = self._root["definitions"][schema["$ref"].removeprefix("#/definitions/")]
        return schema

    def _list(self, value: Sequence[Json], schema: Schema, path: KeyPath) -> Iterator[SchemaProblem]:
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

    def _mapping(self, value: Mapping[str, Json], schema: Schema, path: KeyPath) -> Iterator[SchemaProblem]:
        known: Schema = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield _wrong(path, Message("lacks `{name}`", name=name), self._resolve_ref(known.get(name, {})))
        for choice in (schema, *schema.get("allOf", ())):
            yield from _exactly_one(value, choice, path)
        for name, needed in schema.get("dependencies", {}).items():
            # One of several, or all of a list.
            met, names = (any, _choices(needed)) if isinstance(needed, Mapping) else (all, needed)
            if name in value and not met(other in value for other in names):
                yield _wrong(
                    (*path, name),
                    Message("goes only with {names}", names=_listed(names)),
                    self._resolve_ref(known.get(name, {})),
                )
        for name, item in value.items():
            if name in known:
                yield from self.check(item, known[name], (*path, name))
            elif schema.get("additionalProperties") is False:
                yield _unknown((*path, name), name, tuple(known))
            elif isinstance(schema.get("additionalProperties"), Mapping):
                yield from self.check(item, schema["additionalProperties"], (*path, name))


def _text(value: str, schema: Schema, path: KeyPath) -> Iterator[SchemaProblem]:
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


def _number(value: float, schema: Schema, path: KeyPath) -> Iterator[SchemaProblem]:
    above, least, most = (schema.get(word) for word in ("exclusiveMinimum", "minimum", "maximum"))
    if (
        (above is not None and value <= above)
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        yield _unfit(value, path, schema)


def _exactly_one(value: Mapping[str, Json], schema: Schema, path: KeyPath) -> Iterator[SchemaProblem]:
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
    """Return the pattern as JSON Schema means it: `$` is the very end."""
    return re.compile(re.sub(r"\$(?=$|\||\))", r"\\Z", text))


def _is_of(value: Json, types: str | Sequence[str]) -> bool:
    return any(_is_a(value, name) for name in ([types] if isinstance(types, str) else types))


def _is_a(value: Json, name: str) -> bool:
    if name in {"integer", "number"}:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (name == "number" or value == value // 1)  # type: ignore[operator]
    return isinstance(value, _CLASSES[name]) and not (name == "array" and isinstance(value, str))


def _describe(value: Json) -> str:
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
    """Return what the schema allows, for people."""
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


def _wrong(path: KeyPath, message: str, schema: Schema) -> SchemaProblem:
    return SchemaProblem(path, Severity.ERROR, message, Message.plain(schema.get("description", "")))


def _unfit(value: Json, path: KeyPath, schema: Schema) -> SchemaProblem:
    told = Message("is {value}; it should be {schema}", value=_describe(value), schema=expected(schema))
    return _wrong(path, told, schema)


def _unknown(path: KeyPath, name: str, known: Sequence[str]) -> SchemaProblem:
    from difflib import get_close_matches  # noqa: PLC0415  (only a key that nobody knows needs it)

    close = get_close_matches(name[:_LONGEST_KEY].lower().replace("-", "_"), known, n=1)
    advice = (
        Message("did you mean `{close}`?", close=close[0])
        if close
        else Message("there are {known}", known=_listed(known))
    )
    return SchemaProblem(path, Severity.WARNING, Message("is not known and does nothing"), advice)
