"""Request → Call: binds what was asked to what the skill takes, and refuses the rest."""

from collections.abc import Mapping
from pathlib import Path

from skillyard.core.errors import InvalidParam, ParamMissing
from skillyard.core.request import Call, Request
from skillyard.core.skill import Kind, Param, ParamType, Skill
from skillyard.core.values import Json

DEFAULT_SECONDS = {Kind.COMMAND: 60.0, Kind.JSON: 300.0, Kind.PROMPT: 60.0}


def check(skill: Skill, request: Request, root: Path, run_id: str) -> Call:
    action, words = request.action, request.args
    if skill.kind is Kind.JSON and action is None and words and "=" not in words[0]:
        action, words = words[0], words[1:]
    given = {**_by_name(skill, words), **request.params} if skill.kind is not Kind.PROMPT else dict(request.params)
    params = _complete(skill, given)
    output = given.get("output")
    return Call(
        skill=skill,
        asked_as=request.name,
        run_id=run_id,
        root=root,
        limit_seconds=request.timeout_seconds or skill.timeout_seconds or DEFAULT_SECONDS[skill.kind],
        params=params,
        args=words,
        action=action,
        context={**request.context, "request_id": run_id},
        output=Path(str(output)) if output else None,
        strict=request.strict,
    )


def _by_name(skill: Skill, words: tuple[str, ...]) -> dict[str, Json]:
    """Positional words fill the params in their order; --key value, --key=value and key=value name theirs."""
    named: dict[str, Json] = {}
    waiting = [param.name for param in skill.params]
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        if word.startswith("--"):
            named[key[2:]] = value if equals else (rest.pop(0) if rest else "true")
        elif equals and (skill.kind is Kind.JSON or key in waiting or key == "output"):
            named[key] = value
        else:
            free = [name for name in waiting if name not in named]
            if not free:
                raise InvalidParam(f"nothing takes {word!r}")
            named[free[0]] = word
    return named


def _complete(skill: Skill, given: Mapping[str, Json]) -> dict[str, Json]:
    known = {param.name: param for param in skill.params}
    if known and skill.kind is Kind.COMMAND:
        for name in given:
            if name not in known and name != "output":
                raise InvalidParam(f"unknown param '{name}'", details={"known": sorted(known)})
    missing = tuple(param.name for param in skill.params if param.required and given.get(param.name) is None)
    if missing:
        optional = tuple(param.name for param in skill.params if not param.required)
        prompts = {param.name: param.prompt for param in skill.params if param.name in missing and param.prompt}
        raise ParamMissing(missing, optional, prompts)
    values = {name: _typed(known[name], value) if name in known else value for name, value in given.items()}
    defaults = {param.name: param.default for param in skill.params if param.default is not None}
    return {**defaults, **values}


def _typed(param: Param, value: Json) -> Json:
    if not isinstance(value, str) or param.type is ParamType.STRING:
        return value
    try:
        match param.type:
            case ParamType.INT:
                return int(value)
            case ParamType.NUMBER:
                return float(value)
            case ParamType.BOOL:
                return {"true": True, "false": False}[value.lower()]
            case _:
                return value
    except (ValueError, KeyError):
        raise InvalidParam(f"'{param.name}' takes {param.type}, not {value!r}") from None
