"""Request → Call: binds what was asked to what the skill takes, and refuses the rest."""

import os
from collections.abc import Mapping
from pathlib import Path

from skillyard.core.errors import InvalidParam, ParamMissing, PermissionDenied
from skillyard.core.request import Call, Request
from skillyard.core.skill import Kind, Param, ParamType, Skill
from skillyard.core.values import Json
from skillyard.runtime.types import as_typed, validate
from skillyard.runtime.words import OUTPUT, as_scalar, bind

DEFAULT_SECONDS = {Kind.COMMAND: 60.0, Kind.JSON: 300.0, Kind.PROMPT: 60.0}
SCRIPT_SECONDS = 300.0
OUTPUT_FOLDER = "mybox/output"
#: Never an output, whoever asks: what lies there decides what may run.
GUARDED = (".git", ".claude", ".skillyard", "agents", "bin")


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
        named_paths=(*named, *named_args),
        stdin=request.stdin,
        strict=request.strict,
    )


def _context(skill: Skill, request: Request, run_id: str) -> dict[str, Json]:
    """S3: the run is the request, the role's uuid the agent; a user only where one was given."""
    agent_id = skill.fields.get("agent_id") if skill.role else None
    return {**({"agent_id": agent_id} if agent_id else {}), **request.context, "request_id": run_id}


def limit_of(skill: Skill, request: Request) -> float:
    """The call's own limit, else the skill's, else the default; a Task's deadline bounds all but the first."""
    if request.timeout_seconds is not None:
        if not request.timeout_seconds > 0:
            raise InvalidParam(f"a time limit must be above zero, not {request.timeout_seconds:g}")
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
        raise InvalidParam(f"unknown action '{action}'; supported: {', '.join(skill.actions)}", details=details)
    return action, words


def _refuse_unknown(skill: Skill, given: Mapping[str, Json]) -> None:
    if skill.kind is not Kind.COMMAND:
        return
    known = {param.name for param in skill.params} | ({OUTPUT} if _takes_output(skill) else set())
    for name in given:
        if name not in known:
            raise InvalidParam(f"unknown param '{name}'", details={"known": sorted(known - {OUTPUT})})


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
    target = (root / inside).resolve()
    real_root = root.resolve()
    if target == real_root or target.is_relative_to(real_root):
        below = target.relative_to(real_root)
        if below.parts[:1] and below.parts[0] in GUARDED:
            raise PermissionDenied(f"{below.parts[0]}/ is never an output")
        text = below.as_posix()
    else:
        text = str(target)
    return f"{text}/" if target.is_dir() else text


def _relocate(
    skill: Skill, params: Mapping[str, Json], given: Mapping[str, Json], typed_in: Path | None, root: Path
) -> tuple[dict[str, Json], tuple[Path, ...]]:
    """Paths that a person typed are meant from where they stand; and naming a path lets the run read it."""
    types = {param.name: param.type for param in skill.params}
    moved: dict[str, Json] = {}
    named: list[Path] = []
    for name, value in params.items():
        moved[name] = value
        if not isinstance(value, str) or name not in given:
            continue  # a default is not a name that somebody gave
        path = _existing(value, typed_in or root)
        if path is not None and (typed_in is not None or path.is_relative_to(root.resolve())):
            named.append(path)
            moved[name] = _from_root(path, value, typed_in, root)
        elif types.get(name) is ParamType.PATH and typed_in is None and _leaves(value, root):
            raise InvalidParam(f"'{name}' lies outside the project: {value!r}")
    return moved, tuple(named)


def _relocate_words(words: tuple[str, ...], request: Request, root: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    if not request.script:
        return words, ()
    paths = [(word, _existing(word, request.typed_in or root)) for word in words]
    may = [path for _, path in paths if path and (request.typed_in or path.is_relative_to(root.resolve()))]
    moved = (_from_root(path, word, request.typed_in, root) if path else word for word, path in paths)
    return tuple(moved), tuple(may)


def _existing(value: str, where: Path) -> Path | None:
    if not value or len(value) > 4096 or "\n" in value or "\0" in value:
        return None
    try:
        path = (where / value).resolve()
        return path if path.exists() else None
    except (OSError, RuntimeError):
        return None


def _from_root(path: Path, value: str, typed_in: Path | None, root: Path) -> str:
    """As it was written, where the run sees the same file under that name; else from the root, else in full."""
    if typed_in is None or typed_in == root or Path(value).is_absolute():
        return value
    relative = Path(os.path.normpath(typed_in / value))
    return str(relative.relative_to(root)) if relative.is_relative_to(root) else str(path)


def _leaves(value: str, root: Path) -> bool:
    return not (root / value).resolve().is_relative_to(root.resolve())
