"""Request → Call: binds what was asked to what the skill takes, and refuses the rest."""

import os
from collections.abc import Mapping
from pathlib import Path

from skillyard.core.errors import InvalidArgs, InvalidParam, ParamMissing
from skillyard.core.messages import Message
from skillyard.core.request import Call, Request
from skillyard.core.skill import Kind, Param, ParamType, Skill
from skillyard.core.values import Json, check_value
from skillyard.runtime.bind_args import OUTPUT, as_scalar, bind
from skillyard.runtime.paths import Meant, find_meant, resolve_output
from skillyard.runtime.types import as_typed, validate

DEFAULT_SECONDS = {Kind.COMMAND: 60.0, Kind.JSON: 300.0, Kind.PROMPT: 60.0}
SCRIPT_SECONDS = 300.0
OUTPUT_FOLDER = "mybox/output"


def check(skill: Skill, request: Request, root: Path, run_id: str) -> Call:
    """Every check there is; what it returns may be run."""
    action, words = _action(skill, request)
    takes_words = skill.kind is Kind.PROMPT or bool(request.script)
    given = dict(request.params) if takes_words else {**bind(skill, words), **request.params}
    _refuse_unknown(skill, given)
    output = _output(skill, given.pop(OUTPUT, None), root)
    params = {} if request.script else _complete(skill, given, root)
    relocated, named = _relocate(skill, params, given, request.typed_in, root)
    args, named_args = _relocate_words(words if takes_words else (), request, root)
    return Call(
        skill=skill,
        asked_as=request.name,
        known_as=str(request.staged or request.name),
        run_id=run_id,
        root=root,
        limit_seconds=limit_of(skill, request),
        params=relocated,
        args=args,
        script=request.script,
        action=action,
        context=_context(skill, request, run_id),
        output=output,
        named_paths=tuple(meant.path for meant in (*named, *named_args) if not meant.led_out),
        led_out=tuple(meant.path for meant in (*named, *named_args) if meant.led_out),
        stdin=request.stdin,
        strict=request.strict,
    )


def check_text_of(request: Request) -> None:
    """InvalidArgs for half a surrogate pair anywhere in a request: no file name, table or result can hold it."""
    try:
        check_value([request.name, request.script, request.role, request.action or "", *request.args])
        check_value(request.params)
        check_value(request.context)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("the request is no text: {error}", error=error)) from None


def _context(skill: Skill, request: Request, run_id: str) -> dict[str, Json]:
    """S3: the run is the request, the role's uuid the agent; a user only where one was given."""
    agent_id = skill.fields.get("agent_id") if skill.role else None
    return {**({"agent_id": agent_id} if agent_id else {}), **request.context, "request_id": run_id}


def limit_of(skill: Skill, request: Request) -> float:
    """The call's own limit, else the skill's, else the default; a Task's deadline bounds all but the first."""
    if request.timeout_seconds is not None:
        if not request.timeout_seconds > 0:
            raise InvalidParam(
                Message(
                    "a time limit must be above zero, not {timeout_seconds:g}", timeout_seconds=request.timeout_seconds
                )
            )
        return request.timeout_seconds
    limit = skill.timeout_seconds or (SCRIPT_SECONDS if request.script else DEFAULT_SECONDS[skill.kind])
    return min(limit, request.deadline_seconds) if request.deadline_seconds else limit


def _action(skill: Skill, request: Request) -> tuple[str | None, tuple[str, ...]]:
    """For a JSON skill the first positional word is the action."""
    action, words = request.action, request.args
    if skill.kind is not Kind.JSON or request.script:
        return action, words
    if action is None and words and not words[0].startswith("--") and "=" not in words[0]:
        action, words = words[0], words[1:]
    elif action is None and "--action" in words[:-1]:
        at = words.index("--action")
        action, words = words[at + 1], (*words[:at], *words[at + 2 :])
    if action is None and len(skill.actions) == 1:
        action = skill.actions[0]
    if action is None:
        offered = ", ".join(skill.actions)
        prompts = {"action": f"one of: {offered}"} if offered else {}
        raise ParamMissing(("action",), tuple(param.name for param in skill.params), prompts)
    if skill.actions and action not in skill.actions:
        supported = list(skill.actions)
        details: Mapping[str, Json] = {"code": "UNKNOWN_ACTION", "supported_actions": supported}
        raise InvalidParam(
            Message("unknown action '{action}'; supported: {actions}", action=action, actions=", ".join(skill.actions)),
            details=details,
        )
    return action, words


def _refuse_unknown(skill: Skill, given: Mapping[str, Json]) -> None:
    if skill.kind is not Kind.COMMAND:
        return
    known = {param.name for param in skill.params} | ({OUTPUT} if _takes_output(skill) else set())
    for name in given:
        if name not in known:
            raise InvalidParam(Message("unknown param '{key}'", key=name), details={"known": sorted(known - {OUTPUT})})


def _takes_output(skill: Skill) -> bool:
    """Naming an output that the command has no place for would be a param that nothing takes."""
    return not skill.command or f"{{{OUTPUT}}}" in skill.command


def _complete(skill: Skill, given: Mapping[str, Json], root: Path) -> dict[str, Json]:
    """Typed, validated, with defaults; ParamMissing names all that are missing at once."""
    missing = [param for param in skill.params if param.required and param.default is None and _is_void(param, given)]
    if missing and skill.kind is not Kind.PROMPT:
        optional = tuple(param.name for param in skill.params if not param.required)
        prompts = {param.name: param.prompt or param.description for param in missing}
        asked = {name: text for name, text in prompts.items() if text}
        raise ParamMissing(tuple(param.name for param in missing), optional, asked)
    declared = {param.name: param for param in skill.params}
    values: dict[str, Json] = {}
    for param in skill.params:
        value = given.get(param.name, param.default)
        if value is not None:
            values[param.name] = as_typed(param, value)
            validate(param, values[param.name], root)
    for name, value in given.items():
        if name not in declared:
            values[name] = as_scalar(value) if isinstance(value, str) else value
    return values


def _is_void(param: Param, given: Mapping[str, Json]) -> bool:
    return given.get(param.name) is None


def _output(skill: Skill, asked: Json, root: Path) -> str:
    """What `{output}` stands for: the folder, or the file that the caller or the skill names."""
    declared = next((param.default for param in skill.params if param.name == OUTPUT), None)
    if asked is None and declared is None:
        return f"{OUTPUT_FOLDER}/"
    named = Path(str(asked if asked is not None else declared))
    inside = named if asked is not None or named.parts[:1] == ("mybox",) else Path(OUTPUT_FOLDER) / named
    return resolve_output(str(inside), root)


def _relocate(
    skill: Skill, params: Mapping[str, Json], given: Mapping[str, Json], typed_in: Path | None, root: Path
) -> tuple[dict[str, Json], tuple[Meant, ...]]:
    """Paths that a person typed are meant from where they stand; and naming a path lets the run read it."""
    types = {param.name: param.type for param in skill.params}
    moved: dict[str, Json] = {}
    named: list[Meant] = []
    for name, value in params.items():
        moved[name] = value
        if not isinstance(value, str) or name not in given:
            continue  # a default is not a name that somebody gave
        meant = find_meant(value, typed_in or root, root)
        if meant is not None and (typed_in is not None or meant.path.is_relative_to(root.resolve())):
            named.append(meant)
            moved[name] = _from_root(meant, value, typed_in, root)
        elif types.get(name) is ParamType.PATH and typed_in is None and _leaves(value, root):
            raise InvalidParam(Message("'{name}' lies outside the project: {value!r}", name=name, value=value))
    return moved, tuple(named)


def _relocate_words(words: tuple[str, ...], request: Request, root: Path) -> tuple[tuple[str, ...], tuple[Meant, ...]]:
    if not request.script:
        return words, ()
    found = [(word, find_meant(word, request.typed_in or root, root)) for word in words]
    may = [meant for _, meant in found if meant and (request.typed_in or meant.path.is_relative_to(root.resolve()))]
    moved = (
        _from_root(meant, word, request.typed_in, root) if meant in may and meant else word for word, meant in found
    )
    return tuple(moved), tuple(may)


def _from_root(meant: Meant, value: str, typed_in: Path | None, root: Path) -> str:
    """As it was written, where the run sees the same file under that name; else from the root, else in full."""
    is_outside = typed_in is not None and not meant.path.is_relative_to(os.path.realpath(root))
    if is_outside and str(meant.path) != os.path.normpath((typed_in or root) / value):
        return str(meant.path)  # only what the link leads to is visible in there, not the link
    if typed_in is None or typed_in == root or Path(value).is_absolute():
        return value
    relative = Path(os.path.normpath(typed_in / value))
    return str(relative.relative_to(root)) if relative.is_relative_to(root) else str(meant.path)


def _leaves(value: str, root: Path) -> bool:
    try:
        return not Path(os.path.realpath(root / value)).is_relative_to(os.path.realpath(root))
    except (OSError, ValueError):
        return True
