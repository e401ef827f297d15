"""Reads the params of a skill, in the three forms that occur.

    params: {input: {required: true, type: path, default: a.txt, description: …}}
    params: [{name: input, required: true, prompt: …, validation: not_empty}]
    command: ./run.sh {input} --to ${format}

A bad declaration gives a finding, and as much of the param as can be read is kept.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Block
from skillyard.core.messages import Message
from skillyard.core.skill import OWN_SLOTS, SLOT, Param, ParamType
from skillyard.core.values import Json

PARAM_FIELDS = ("params", "parameters", "required_params")
VALIDATIONS = frozenset({"not_empty", "url_format", "email", "file_exists"})

_NAME = re.compile(r"[^\W\d][\w.-]*")
_TYPES = {
    **{str(kind): kind for kind in ParamType},
    **dict.fromkeys(("str", "text", "url", "email", "date"), ParamType.STRING),
    **dict.fromkeys(("file", "filepath", "file_path", "dir", "directory", "folder"), ParamType.PATH),
    "integer": ParamType.INT,
    "float": ParamType.NUMBER,
    "double": ParamType.NUMBER,
    "boolean": ParamType.BOOL,
    "flag": ParamType.BOOL,
    "choice": ParamType.ENUM,
    "select": ParamType.ENUM,
}
_IMPLIED_VALIDATION = {"url": "url_format", "email": "email"}


#: Called with a rule and its values: adds a finding at the field that is read.
_Report: TypeAlias = Callable[..., None]


class _Declared(NamedTuple):
    """One declaration before it is checked."""

    name: str
    spec: Mapping[str, Json]
    required: bool = False


def read_params(block: Block, command: str) -> tuple[Param, ...]:
    """Return the declared params in their order, then the command's other slots. Never raises."""
    found: dict[str, Param] = {}
    for field in PARAM_FIELDS:
        report = partial(block.report, field)
        for declared in _declared(field, block.fields.get(field), report):
            if declared.name in found:
                report(Rule.PARAM_TWICE, name=declared.name)
            else:
                found[declared.name] = _param(declared, report)
    if command:
        _match_slots(found, command, partial(block.report, "command"))
    return tuple(found.values())


def slots(command: str) -> tuple[str, ...]:
    """Return the names of the slots that a caller fills, each once."""
    return tuple(dict.fromkeys(name for name in SLOT.findall(command) if name not in OWN_SLOTS))


def _match_slots(found: dict[str, Param], command: str, report: _Report) -> None:
    """Add a required param for each slot without a declaration; a param without a slot would never arrive."""
    names = slots(command)
    has_declared = bool(found)
    for name in found:
        if name not in names and name not in OWN_SLOTS:
            report(Rule.PARAM_UNUSED, name=name)
    for name in names:
        if name not in found:
            found[name] = Param(name=name, required=True)
            if has_declared:
                report(Rule.PARAM_UNDECLARED, name=name)


def _declared(field: str, value: Json, report: _Report) -> Iterator[_Declared]:
    if isinstance(value, Mapping):
        yield from _from_mapping(value, report)
    elif isinstance(value, list):
        for item in value:
            declared = _from_item(item, required=field == "required_params")
            if declared:
                yield declared
            else:
                report(Rule.PARAM_NAME)
    elif value is not None:
        report(Rule.PARAMS_SHAPE, field=field, shape=describe_type(value))


def _from_mapping(value: Mapping[str, Json], report: _Report) -> Iterator[_Declared]:
    """Read params by name, or a JSON Schema: `{type: object, properties: {…}, required: […]}`."""
    properties, required = value.get("properties"), value.get("required")
    if value.get("type") == "object" and isinstance(properties, Mapping):
        names = required if isinstance(required, list) else []
        value = {
            name: {**spec, "required": name in names} if isinstance(spec, Mapping) else spec
            for name, spec in properties.items()
        }
    for name, spec in value.items():
        if not _NAME.fullmatch(name):
            report(Rule.PARAM_NAME)
        elif isinstance(spec, Mapping):
            yield _Declared(name, spec)
        elif spec is None or isinstance(spec, str):
            yield _Declared(name, _from_word(spec))
        else:
            report(Rule.PARAM_SHAPE, name=name, shape=describe_type(spec))


def _from_item(item: Json, *, required: bool) -> _Declared | None:
    if isinstance(item, str):
        return _Declared(item, {}, required) if _NAME.fullmatch(item) else None
    if not isinstance(item, Mapping):
        return None
    name = item.get("name")
    if isinstance(name, str) and _NAME.fullmatch(name):
        return _Declared(name, item, required)
    if len(item) == 1:
        (only, spec), *_ = item.items()
        if _NAME.fullmatch(only) and only != "name":
            return _Declared(only, spec if isinstance(spec, Mapping) else _from_word(spec), required)
    return None


def _from_word(word: Json) -> Mapping[str, Json]:
    """Read `input: path` as a type, and any other text as a description."""
    if not isinstance(word, str):
        return {}
    return {"type": word} if word.lower() in _TYPES else {"description": word}


def _param(declared: _Declared, report: _Report) -> Param:
    name, spec = declared.name, declared.spec
    default = spec.get("default")
    choices = _choices(spec)
    kind = _type(name, spec, choices, report)
    if kind is ParamType.ENUM and not choices:
        report(Rule.PARAM_CHOICES, name=name)
        kind = ParamType.STRING
    if default is not None and not _fits(default, kind, choices):
        report(Rule.PARAM_DEFAULT, name=name, type=kind)
        default = None
    required = _flag(name, spec, "required", declared.required, report)
    return Param(
        name=name,
        required=required and default is None,
        type=kind,
        default=default,
        description=_text(spec.get("description")),
        prompt=_text(spec.get("prompt")),
        choices=choices,
        validation=_validation(name, spec, report),
        option=_flag(name, spec, "option", False, report),
    )


def _type(name: str, spec: Mapping[str, Json], choices: tuple[str, ...], report: _Report) -> ParamType:
    given = spec.get("type")
    if given is None:
        return ParamType.ENUM if choices else ParamType.STRING
    kind = _TYPES.get(given.lower()) if isinstance(given, str) else None
    if kind is None:
        report(Rule.PARAM_TYPE, name=name, type=given, known=", ".join(ParamType))
        return ParamType.STRING
    return ParamType.ENUM if choices and kind is ParamType.STRING else kind


def _choices(spec: Mapping[str, Json]) -> tuple[str, ...]:
    listed = spec.get("choices", spec.get("enum", spec.get("options")))
    if not isinstance(listed, list):
        return ()
    return tuple(_word(item) for item in listed if isinstance(item, str | int | float))


def _word(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fits(default: Json, kind: ParamType, choices: tuple[str, ...]) -> bool:
    match kind:
        case ParamType.BOOL:
            return isinstance(default, bool)
        case ParamType.INT:
            return isinstance(default, int) and not isinstance(default, bool)
        case ParamType.NUMBER:
            return isinstance(default, int | float) and not isinstance(default, bool)
        case ParamType.ENUM:
            return isinstance(default, str | int | float) and _word(default) in choices
        case _:
            return isinstance(default, str | int | float)


def _validation(name: str, spec: Mapping[str, Json], report: _Report) -> str:
    given = spec.get("validation", spec.get("validate"))
    if given is None:
        return _IMPLIED_VALIDATION.get(_text(spec.get("type")).lower(), "")
    if isinstance(given, str) and given in VALIDATIONS:
        return given
    known = ", ".join(sorted(VALIDATIONS))
    report(Rule.PARAM_VALIDATION, name=name, check=given, known=known)
    return ""


def _flag(name: str, spec: Mapping[str, Json], flag: str, otherwise: bool, report: _Report) -> bool:
    given = spec.get(flag, otherwise)
    if isinstance(given, bool):
        return given
    report(Rule.PARAM_FLAG, name=name, flag=flag)
    return otherwise


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def describe_type(value: Json) -> str:
    """Return what a value is, for people."""
    match value:
        case None:
            return "empty"
        case bool():
            return Message("true or false")
        case int() | float():
            return Message("a number")
        case str():
            return "text"
        case Mapping():
            return Message("a mapping")
        case _:
            return Message("a list")
