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

from skillyard.catalog.findings import START, KeyPath, Position, make_finding, one_line
from skillyard.catalog.references import nearest
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Severity
from skillyard.core.values import Json

Schema: TypeAlias = Mapping[str, Any]

#: Longer keys are cut before they are compared and shown.
_LONGEST_KEY = 64
#: Further problems of a file are not reported.
MAX_PROBLEMS = 100
_NAMES = {
    "object": Message("a mapping"),
    "array": Message("a list"),
    "string": Message("text"),
    "integer": Message("a whole number"),
    "number": Message("a number"),
    "boolean": Message("true or false"),
}
_LIMITS = ("exclusiveMinimum", "minimum", "maximum")
_CLASSES = {"null": NoneType, "boolean": bool, "string": str, "object": Mapping, "array": list | tuple}


class SchemaProblem(NamedTuple):
    """A value that is not as the schema says, and its path."""

    path: KeyPath
    message: str
    advice: str = ""
    severity: Severity = Severity.ERROR

    @property
    def shown(self) -> str:
        """The path as people write it: `skills[0].timeout`."""
        text = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:_LONGEST_KEY]}" for key in self.path)
        return text.removeprefix(".") or "the file"


@cache
def read_schema(file: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return schema


def problems(value: Json, schema: Schema) -> Iterator[SchemaProblem]:
    """Yield everything that is wrong, in the order of the file, up to MAX_PROBLEMS."""
    return islice(_check(value, schema, (), schema.get("definitions", {})), MAX_PROBLEMS)


def as_findings(found: Sequence[SchemaProblem], positions: Mapping[KeyPath, Position], kind: str) -> Iterator[Finding]:
    """Return each problem of a `role` or `flow` as a finding at its key, or at the nearest key above it."""
    for problem in found:
        path = problem.path
        while path and path not in positions:
            path = path[:-1]
        code = f"{kind}-value" if problem.severity is Severity.ERROR else f"{kind}-key"
        message = one_line(Message("`{place}` {reason}", place=problem.shown, reason=problem.message))
        yield make_finding(code, *positions.get(path, START))._replace(message=message, advice=problem.advice)


def _check(value: Json, schema: Schema, path: KeyPath, definitions: Schema) -> Iterator[SchemaProblem]:
    schema = _resolve_ref(schema, definitions)
    message: str = ""
    if not _fits(value, schema):
        message = Message("is {value}; it should be {schema}", value=_describe(value), schema=expected(schema))
    elif isinstance(value, Mapping):
        yield from _check_keys(value, schema, path, definitions)
    elif isinstance(value, str):
        message = _find_text_problem(value, schema)
    elif isinstance(value, Sequence):
        least: int = schema.get("minItems", 0)
        if len(value) < least:
            count = Message("has {count} items; it should have at least {minitems}", count=len(value), minitems=least)
            yield _wrong(path, count, schema)
        for position, item in enumerate(value if "items" in schema else ()):
            yield from _check(item, schema["items"], (*path, position), definitions)
    if message:
        yield _wrong(path, message, schema)


def _resolve_ref(schema: Schema, definitions: Schema) -> Schema:
    while "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    return schema


def _fits(value: Json, schema: Schema) -> bool:
    """Whether it has the type, is one of the values, and lies between the limits."""
    types = _types(schema)
    if types and not any(_is_a(value, name) for name in types):
        return False
    if "enum" in schema:
        return value in schema["enum"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    above, least, most = (schema.get(word) for word in _LIMITS)
    return (above is None or value > above) and (least is None or value >= least) and (most is None or value <= most)


def _is_a(value: Json, name: str) -> bool:
    if name not in {"integer", "number"}:
        return isinstance(value, _CLASSES[name])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (name == "number" or value == value // 1)  # type: ignore[operator]  # (it is one)


def _types(schema: Schema) -> Sequence[str]:
    types = schema.get("type", ())
    return [types] if isinstance(types, str) else types


def _find_text_problem(value: str, schema: Schema) -> str:
    least, pattern = schema.get("minLength", 0), schema.get("pattern")
    if len(value) < least:
        return Message("is empty") if least == 1 else Message("has less than {wanted} characters", wanted=least)
    # As JSON Schema means it: `$` is the very end.
    if not pattern or re.search(re.sub(r"\$(?=$|\||\))", r"\\Z", pattern), value):
        return ""
    wanted = Message.plain(schema.get("patternErrorMessage", ""))
    return Message("is {value!r}; it should be {schema}", value=value[:_LONGEST_KEY], schema=wanted)


def _check_keys(
    value: Mapping[str, Json], schema: Schema, path: KeyPath, definitions: Schema
) -> Iterator[SchemaProblem]:
    known: Schema = {name: _resolve_ref(each, definitions) for name, each in schema.get("properties", {}).items()}
    for name in schema.get("required", ()):
        if name not in value:
            yield _wrong(path, Message("lacks `{name}`", name=name), known.get(name, {}))
    for choice in (schema, *schema.get("allOf", ())):
        names = _choices(choice)
        given = [name for name in names if name in value]
        if names and len(given) != 1:
            both = Message("has both {given}", given=_listed(given))
            has = both if given else Message("has none of {names}", names=_listed(names))
            yield _wrong(path, Message("{has}; it needs exactly one", has=has), {})
    for name, needed in schema.get("dependencies", {}).items():
        # One of several, or all of a list.
        met, names = (any, _choices(needed)) if isinstance(needed, Mapping) else (all, needed)
        if name in value and not met(other in value for other in names):
            yield _wrong((*path, name), Message("goes only with {names}", names=_listed(names)), known.get(name, {}))
    rest = schema.get("additionalProperties")
    for name, item in value.items():
        if name in known or isinstance(rest, Mapping):
            yield from _check(item, known.get(name, rest), (*path, name), definitions)
        elif rest is False:
            message = Message("is not known and does nothing")
            yield SchemaProblem((*path, name), message, _place_of(name, known), Severity.WARNING)


def _place_of(name: str, known: Schema) -> str:
    """Return where an unknown key may belong: below a section, or under a name like it."""
    sections = (section for section, inner in known.items() if name in inner.get("properties", ()))
    if section := next(sections, ""):
        return Message("write it below `{section}`", section=section)
    return nearest(name[:_LONGEST_KEY].lower().replace("-", "_"), list(known))


def _choices(schema: Schema) -> list[str]:
    return [name for option in schema.get("oneOf", ()) for name in option["required"]]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _wrong(path: KeyPath, message: str, schema: Schema) -> SchemaProblem:
    return SchemaProblem(path, message, Message.plain(schema.get("description", "")))


def _describe(value: Json) -> str:
    if value is None:
        return Message("nothing")
    if isinstance(value, str):
        return Message("the text {text!r}", text=value[:_LONGEST_KEY])
    if isinstance(value, Mapping):
        return Message("a mapping")
    return Message("a list") if isinstance(value, Sequence) else json.dumps(value)[:_LONGEST_KEY]


def expected(schema: Schema) -> str:
    """Return what the schema allows, for people."""
    if "enum" in schema:
        return Message("one of {enum}", enum=", ".join(filter(None, schema["enum"])))
    words = [_NAMES[kind] for kind in _types(schema) if kind != "null"]
    what = words[0] if len(words) == 1 else Message("{one} or {other}", one=words[0], other=words[1]) if words else ""
    above, least, most = (schema.get(word) for word in _LIMITS)
    if above is not None:
        return Message("{what} above {above}", what=what, above=above)
    if least is not None and most is not None:
        return Message("{what} from {least} to {most}", what=what, least=least, most=most)
    return what if least is None else Message("{what} from {least}", what=what, least=least)
