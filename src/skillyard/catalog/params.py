"""The params of a skill, in the three forms that occur.

    params: {input: {required: true, type: path, default: a.txt, description: …}}
    params: [{name: input, required: true, prompt: …, validation: not_empty}]
    command: ./run.sh {input} --to ${format}

A bad declaration is a finding, and as much of the param as can be read is kept.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Place
from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Param, ParamType
from skillyard.core.slots import OWN_SLOTS, SLOT
from skillyard.core.values import Json

PARAM_FIELDS = ("params", "parameters", "required_params")
VALIDATIONS = frozenset({"not_empty", "url_format", "email", "file_exists"})

_NAME = re.compile(r"[^\W\d][\w.-]*")
_TYPES = {
    **{str(kind): kind for kind in ParamType},
    "str": ParamType.STRING,
    "text": ParamType.STRING,
    "url": ParamType.STRING,
    "email": ParamType.STRING,
    "date": ParamType.STRING,
    "integer": ParamType.INT,
    "float": ParamType.NUMBER,
    "double": ParamType.NUMBER,
    "boolean": ParamType.BOOL,
    "flag": ParamType.BOOL,
    "choice": ParamType.ENUM,
    "select": ParamType.ENUM,
    "file": ParamType.PATH,
    "filepath": ParamType.PATH,
    "file_path": ParamType.PATH,
    "dir": ParamType.PATH,
    "directory": ParamType.PATH,
    "folder": ParamType.PATH,
}
_IMPLIED_VALIDATION = {"url": "url_format", "email": "email"}


class Params(NamedTuple):
    params: tuple[Param, ...]
    findings: tuple[Finding, ...]


class _Declared(NamedTuple):
    """One declaration before it is checked."""

    name: str
    spec: Mapping[str, Json]
    required: bool


def read_params(fields: Mapping[str, Json], places: Mapping[str, Place], command: str) -> Params:
    """Declared params in their order, then the command's other slots. Never raises."""
    found: dict[str, Param] = {}
    findings: list[Finding] = []
    for field in PARAM_FIELDS:
        if fields.get(field) is not None:
            place = places.get(field, (1, 1))
            for declared in _declared(field, fields[field], place, findings):
                if declared.name in found:
                    findings.append(Rule.PARAM_TWICE.at(*place, name=declared.name))
                    continue
                found[declared.name] = _param(declared, place, findings)
    if command:
        _match_slots(found, command, places, findings)
    return Params(tuple(found.values()), tuple(findings))


def slots(command: str) -> tuple[str, ...]:
    """The names of the slots that a caller fills, each once."""
    return tuple(dict.fromkeys(name for name in SLOT.findall(command) if name not in OWN_SLOTS))


def _match_slots(found: dict[str, Param], command: str, places: Mapping[str, Place], findings: list[Finding]) -> None:
    """A slot without a declaration is a required param; a param without a slot would never arrive."""
    names = slots(command)
    place = places.get("command", (1, 1))
    declared = bool(found)
    unused = [name for name in found if name not in names and name not in OWN_SLOTS]
    findings += [Rule.PARAM_UNUSED.at(*place, name=name) for name in unused]
    for name in names:
        if name not in found:
            found[name] = Param(name=name, required=True)
            findings += [Rule.PARAM_UNDECLARED.at(*place, name=name)] if declared else []


def _declared(field: str, value: Json, place: Place, findings: list[Finding]) -> Iterator[_Declared]:
    if isinstance(value, Mapping):
        yield from _from_mapping(value, place, findings)
    elif isinstance(value, list):
        for item in value:
            declared = _from_item(item, required=field == "required_params")
            if declared:
                yield declared
            else:
                findings.append(Rule.PARAM_NAME.at(*place))
    else:
        findings.append(Rule.PARAMS_SHAPE.at(*place, field=field, shape=shape(value)))


def _from_mapping(value: Mapping[str, Json], place: Place, findings: list[Finding]) -> Iterator[_Declared]:
    """Also a JSON Schema: `{type: object, properties: {…}, required: […]}`."""
    properties, required = value.get("properties"), value.get("required")
    if value.get("type") == "object" and isinstance(properties, Mapping):
        names = required if isinstance(required, list) else []
        value = {
            name: {**spec, "required": name in names} if isinstance(spec, Mapping) else spec
            for name, spec in properties.items()
        }
    for name, spec in value.items():
        if not _NAME.fullmatch(name):
            findings.append(Rule.PARAM_NAME.at(*place))
        elif isinstance(spec, Mapping):
            yield _Declared(name, spec, required=False)
        elif spec is None or isinstance(spec, str):
            yield _Declared(name, _from_word(spec), required=False)
        else:
            findings.append(Rule.PARAM_SHAPE.at(*place, name=name, shape=shape(spec)))


def _from_item(item: Json, *, required: bool) -> _Declared | None:
    if isinstance(item, str):
        return _Declared(item, {}, required=required) if _NAME.fullmatch(item) else None
    if not isinstance(item, Mapping):
        return None
    name = item.get("name")
    if isinstance(name, str) and _NAME.fullmatch(name):
        return _Declared(name, item, required=required)
    if len(item) == 1:
        (only, spec), *_ = item.items()
        if _NAME.fullmatch(only) and only != "name":
            return _Declared(only, spec if isinstance(spec, Mapping) else _from_word(spec), required=required)
    return None


def _from_word(word: Json) -> Mapping[str, Json]:
    """`input: path` names a type; any other words describe."""
    if not isinstance(word, str):
        return {}
    return {"type": word} if word.lower() in _TYPES else {"description": word}


def _param(declared: _Declared, place: Place, findings: list[Finding]) -> Param:
    name, spec = declared.name, declared.spec
    default = spec.get("default")
    choices = _choices(spec)
    kind = _type(name, spec, choices, place, findings)
    if kind is ParamType.ENUM and not choices:
        findings.append(Rule.PARAM_CHOICES.at(*place, name=name))
        kind = ParamType.STRING
    if default is not None and not _fits(default, kind, choices):
        findings.append(Rule.PARAM_DEFAULT.at(*place, name=name, type=kind))
        default = None
    required = _flag(name, spec, "required", declared.required, place, findings)
    return Param(
        name=name,
        required=required and default is None,
        type=kind,
        default=default,
        description=_text(spec.get("description")),
        prompt=_text(spec.get("prompt")),
        choices=choices,
        validation=_validation(name, spec, place, findings),
        option=_flag(name, spec, "option", False, place, findings),
    )


def _type(
    name: str, spec: Mapping[str, Json], choices: tuple[str, ...], place: Place, findings: list[Finding]
) -> ParamType:
    said = spec.get("type")
    if said is None:
        return ParamType.ENUM if choices else ParamType.STRING
    kind = _TYPES.get(said.lower()) if isinstance(said, str) else None
    if kind is None:
        findings.append(Rule.PARAM_TYPE.at(*place, name=name, type=said, known=", ".join(ParamType)))
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


def _validation(name: str, spec: Mapping[str, Json], place: Place, findings: list[Finding]) -> str:
    said = spec.get("validation", spec.get("validate"))
    if said is None:
        return _IMPLIED_VALIDATION.get(_text(spec.get("type")).lower(), "")
    if isinstance(said, str) and said in VALIDATIONS:
        return said
    known = ", ".join(sorted(VALIDATIONS))
    findings.append(Rule.PARAM_VALIDATION.at(*place, name=name, check=said, known=known))
    return ""


def _flag(
    name: str, spec: Mapping[str, Json], flag: str, otherwise: bool, place: Place, findings: list[Finding]
) -> bool:
    said = spec.get(flag, otherwise)
    if isinstance(said, bool):
        return said
    findings.append(Rule.PARAM_FLAG.at(*place, name=name, flag=flag))
    return otherwise


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def shape(value: Json) -> str:
    """What a value is, in words for people."""
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
