"""A skill's params as JSON Schema: for the tool that a skill can be, and for the form that asks for what is missing."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from skillyard.core.skill import Kind, Param, ParamType, Skill
from skillyard.core.values import Json
from skillyard.faces.mcp.names import safe_names
from skillyard.faces.mcp.text import clean

ACTION = "action"
#: More than a model could use, and less than a hostile file could hold.
_MOST_PARAMS = 64
_MOST_CHOICES = 100
_DESCRIPTION = 300
_TYPES = {
    ParamType.STRING: "string",
    ParamType.PATH: "string",
    ParamType.ENUM: "string",
    ParamType.INT: "integer",
    ParamType.NUMBER: "number",
    ParamType.BOOL: "boolean",
}
_FORMATS = {"email": "email", "url_format": "uri"}


class Signature(NamedTuple):
    """What a tool takes, and which param of the skill each property stands for."""

    schema: Mapping[str, Any]
    params: Mapping[str, str]


def signature_of(skill: Skill) -> Signature:
    """The params of a skill. Their names are made safe too: for one bad name, model APIs refuse all tools at once."""
    params = skill.params[:_MOST_PARAMS]
    names = safe_names((param.name for param in params), frozenset({ACTION}) if _asks_action(skill) else frozenset())
    properties: dict[str, Any] = {}
    if _asks_action(skill):
        properties[ACTION] = _action(skill)
    required = [ACTION] if len(skill.actions) > 1 else []
    for param in params:
        properties[names[param.name]] = _property(param)
        if param.required and param.default is None:
            required.append(names[param.name])
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if skill.kind is Kind.COMMAND:
        schema["additionalProperties"] = False
    return Signature(schema, {safe: name for name, safe in names.items()})


def form_of(skill: Skill, missing: Sequence[str], prompts: Mapping[str, Json]) -> Signature:
    """The same for the missing ones alone: flat, and with primitive types only, as a form must be."""
    declared = {param.name: param for param in skill.params}
    names = safe_names(missing)
    properties: dict[str, Any] = {}
    for name in missing:
        param = declared.get(name) or Param(name=name, required=True)
        shown = _action(skill) if name == ACTION and name not in declared else _property(param)
        said = clean(str(prompts.get(name) or ""), _DESCRIPTION)
        properties[names[name]] = {**shown, "title": clean(name, 80), **({"description": said} if said else {})}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Signature(schema, {safe: name for name, safe in names.items()})


def _asks_action(skill: Skill) -> bool:
    return skill.kind is Kind.JSON


def _action(skill: Skill) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "string", "description": "what the skill is to do"}
    return {**told, **_choices(skill.actions)}


def _property(param: Param) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": _TYPES[param.type]}
    if said := clean(param.description or param.prompt, _DESCRIPTION):
        shown["description"] = said
    shown |= _choices(param.choices)
    if param.validation in _FORMATS and param.type is ParamType.STRING:
        shown["format"] = _FORMATS[param.validation]
    if _can_be_shown(param.default):
        shown["default"] = param.default
    return shown


def _can_be_shown(default: Json) -> bool:
    if isinstance(default, str):
        return clean(default, _DESCRIPTION) == default
    return isinstance(default, bool | int | float)


def _choices(choices: Sequence[str]) -> dict[str, Any]:
    """Values are sent back as they are: one that cannot be shown as it is would be another one."""
    plain = [choice for choice in choices if choice and clean(choice, 200) == choice]
    return {"enum": plain} if 0 < len(plain) <= _MOST_CHOICES else {}
