"""Request → Call: binds what was asked to what the skill takes, and refuses the rest.

Positional words fill the params in their order; `--key value`, `--key=value` and `key=value` name theirs. What nothing
takes is refused: never guessed, never dropped.
"""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from skillyard.core.errors import InvalidArgs, InvalidParam, ParamMissing
from skillyard.core.messages import Message
from skillyard.core.result import Call, Request
from skillyard.core.skill import Param, ParamType, Skill
from skillyard.core.values import Json, check_value
from skillyard.trust.run_policy import NamedPath, find_named, resolve_output

#: The slot that we fill ourselves, and that a caller may name.
OUTPUT = "output"
SCRIPT_SECONDS = 300.0
OUTPUT_FOLDER = "mybox/output"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#]+[^\s]*", re.IGNORECASE)
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_TYPE_NAMES = {
    ParamType.INT: Message("a whole number"),
    ParamType.NUMBER: Message("a number"),
    ParamType.BOOL: Message("true or false"),
    ParamType.ENUM: Message("one of its choices"),
    ParamType.STRING: "text",
    ParamType.PATH: Message("a path"),
}


def check(skill: Skill, request: Request, root: Path, run_id: str) -> Call:
    """Return the call that the request stands for. Raise the first error that is found."""
    action, words = _action(skill, request)
    takes_words = skill.kind.takes_words or bool(request.script)
    given = dict(request.params) if takes_words else {**bind(skill, words), **request.params}
    _refuse_unknown(skill, given)
    output = _output(skill, given.pop(OUTPUT, None), root)
    params = {} if request.script else _complete(skill, given, root)
    paths = _CallerPaths(request.typed_in, root)
    params = _relocate(skill, params, given, paths)
    args = words if takes_words else ()
    if request.script:
        args = tuple(paths.relocate(word) or word for word in args)
    return Call(
        skill=skill,
        asked_as=request.name,
        known_as=str(request.staged or request.name),
        run_id=run_id,
        root=root,
        limit_seconds=limit_of(skill, request),
        params=params,
        args=args,
        script=request.script,
        action=action,
        context=_context(skill, request, run_id),
        output=output,
        named_paths=tuple(named.path for named in paths.found if not named.led_out),
        led_out=tuple(named.path for named in paths.found if named.led_out),
        stdin=request.stdin,
        strict=request.strict,
    )


def check_text_of(request: Request) -> None:
    """Raise InvalidArgs for a lone surrogate anywhere in the request: no file name, table or result can hold it."""
    try:
        check_value([request.name, request.script, request.role, request.action or "", *request.args])
        check_value(request.params)
        check_value(request.context)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("the request is no text: {error}", error=error)) from None


def _context(skill: Skill, request: Request, run_id: str) -> dict[str, Json]:
    """Return the context that a JSON skill gets: the run as the request, the role's uuid as the agent."""
    agent_id = skill.fields.get("agent_id") if skill.role else None
    return {**({"agent_id": agent_id} if agent_id else {}), **request.context, "request_id": run_id}


def limit_of(skill: Skill, request: Request) -> float:
    """Return the time limit: the call's own, else the skill's or its kind's within the deadline of a Task."""
    if request.timeout_seconds is not None:
        if not request.timeout_seconds > 0:
            raise InvalidParam(
                Message(
                    "a time limit must be above zero, not {timeout_seconds:g}", timeout_seconds=request.timeout_seconds
                )
            )
        return request.timeout_seconds
    limit = skill.timeout_seconds or (SCRIPT_SECONDS if request.script else skill.kind.limit_seconds)
    return min(limit, request.deadline_seconds) if request.deadline_seconds else limit


def _action(skill: Skill, request: Request) -> tuple[str | None, tuple[str, ...]]:
    """Split off the action: for a kind with actions it is the first positional word."""
    action, words = request.action, request.args
    if not skill.kind.has_actions or request.script:
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
    if not skill.kind.takes_only_declared:
        return
    known = {param.name for param in skill.params} | ({OUTPUT} if _takes_output(skill) else set())
    for name in given:
        if name not in known:
            raise InvalidParam(Message("unknown param '{key}'", key=name), details={"known": sorted(known - {OUTPUT})})


def _takes_output(skill: Skill) -> bool:
    """Whether the command has a place for an output; a named one that it ignores is refused."""
    return not skill.command or f"{{{OUTPUT}}}" in skill.command


def _complete(skill: Skill, given: Mapping[str, Json], root: Path) -> dict[str, Json]:
    """Return the params typed, validated and with defaults. ParamMissing names all that are missing at once."""
    missing = [p for p in skill.params if p.required and p.default is None and given.get(p.name) is None]
    if missing and not skill.kind.takes_words:
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


def _output(skill: Skill, asked: Json, root: Path) -> str:
    """Return what `{output}` stands for: the default folder, or the path that the caller or the skill names."""
    declared = next((param.default for param in skill.params if param.name == OUTPUT), None)
    if asked is None and declared is None:
        return f"{OUTPUT_FOLDER}/"
    named = Path(str(asked if asked is not None else declared))
    inside = named if asked is not None or named.parts[:1] == ("mybox",) else Path(OUTPUT_FOLDER) / named
    return resolve_output(str(inside), root)


class _CallerPaths:
    """Collects the paths that a caller names: a person means them from where they stand, and the run may read them."""

    def __init__(self, typed_in: Path | None, root: Path) -> None:
        self.typed_in, self.root = typed_in, root
        self.found: list[NamedPath] = []

    def relocate(self, value: str) -> str | None:
        """Return the path as the run sees it: as written, else from the root, else in full. None if it names none."""
        typed_in, root = self.typed_in, self.root
        named = find_named(value, typed_in or root, root)
        if named is None:
            return None
        is_inside = named.path.is_relative_to(os.path.realpath(root))
        if typed_in is None and not is_inside:
            return None
        self.found.append(named)
        if typed_in is None:
            return value
        if not is_inside and str(named.path) != os.path.normpath(typed_in / value):
            return str(named.path)  # only what the link leads to is visible in there, not the link
        if typed_in == root or Path(value).is_absolute():
            return value
        relative = Path(os.path.normpath(typed_in / value))
        return str(relative.relative_to(root)) if relative.is_relative_to(root) else str(named.path)


def _relocate(
    skill: Skill, params: Mapping[str, Json], given: Mapping[str, Json], paths: _CallerPaths
) -> dict[str, Json]:
    types = {param.name: param.type for param in skill.params}
    moved = dict(params)
    for name, value in params.items():
        if not isinstance(value, str) or name not in given:
            continue  # a default is not a name that somebody gave
        if relocated := paths.relocate(value):
            moved[name] = relocated
        elif types.get(name) is ParamType.PATH and paths.typed_in is None and _leaves(value, paths.root):
            raise InvalidParam(Message("'{name}' lies outside the project: {value!r}", name=name, value=value))
    return moved


def _leaves(value: str, root: Path) -> bool:
    try:
        return not Path(os.path.realpath(root / value)).is_relative_to(os.path.realpath(root))
    except (OSError, ValueError):
        return True


def bind(skill: Skill, words: Sequence[str]) -> dict[str, Json]:
    """Return the values by the names of their params, as text."""
    known = {_plain(param.name): param for param in skill.params}
    bound: dict[str, Json] = {}
    rest = list(words)
    only_values = False
    while rest:
        word = rest.pop(0)
        if word == "--" and not only_values:
            only_values = True
        elif word.startswith("--") and len(word) > 2 and not only_values:
            _bind_option(skill, known, bound, word, rest)
        elif not only_values and _names_a_param(skill, known, word):
            key, _, value = word.partition("=")
            _put(bound, _name(known, key), value)
        else:
            _put(bound, _next_free(skill, bound, word), word)
    return bound


def _bind_option(skill: Skill, known: Mapping[str, Param], bound: dict[str, Json], word: str, rest: list[str]) -> None:
    key, equals, value = word[2:].partition("=")
    param = known.get(_plain(key))
    if param is None and key != OUTPUT and not skill.kind.takes_any_param:
        raise InvalidParam(Message("unknown param '{key}'", key=key), details={"known": [p.name for p in skill.params]})
    if not equals:
        if param is not None and param.type is ParamType.BOOL and not _is_bool(rest[:1]):
            value = "true"
        elif rest:
            value = rest.pop(0)
        elif skill.kind.takes_any_param:
            value = "true"
        else:
            raise InvalidParam(Message("'--{key}' needs a value", key=key))
    _put(bound, _name(known, key), value)


def _names_a_param(skill: Skill, known: Mapping[str, Param], word: str) -> bool:
    key, equals, _ = word.partition("=")
    if not equals:
        return False
    return _plain(key) in known or key == OUTPUT or (skill.kind.takes_any_param and key.isidentifier())


def _next_free(skill: Skill, bound: Mapping[str, Json], word: str) -> str:
    for param in skill.params:
        if param.name not in bound:
            return param.name
    raise InvalidParam(
        Message("nothing takes {word!r}", word=word), details={"known": [param.name for param in skill.params]}
    )


def _put(bound: dict[str, Json], name: str, value: str) -> None:
    if name in bound:
        raise InvalidParam(Message("'{name}' is given twice", name=name))
    bound[name] = value


def _name(known: Mapping[str, Param], key: str) -> str:
    param = known.get(_plain(key))
    return param.name if param else key


def _plain(name: str) -> str:
    """Normalize a name, so that `--input-file` names `input_file` too."""
    return name.replace("-", "_")


def _is_bool(words: Sequence[str]) -> bool:
    return any(word.lower() in {"true", "false"} for word in words)


def as_scalar(text: str) -> Json:
    """Return an undeclared value as a JSON scalar if it is one, else as text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_scalar = value is None or isinstance(value, bool | int | float)
    return value if is_scalar and value == value else text


def as_typed(param: Param, value: Json) -> Json:
    """Return the value as the param's type. Raise InvalidParam with what would have been right."""
    if isinstance(value, str) and "\0" in value:
        raise InvalidParam(Message("'{name}' holds a NUL character", name=param.name))
    typed: Json
    match param.type:
        case ParamType.INT:
            typed = _as_int(value)
        case ParamType.NUMBER:
            typed = _as_number(value)
        case ParamType.BOOL:
            typed = value if isinstance(value, bool) else _BOOLS.get(str(value).lower())
        case ParamType.ENUM:
            typed = value if str(value) in param.choices or not param.choices else None
        case ParamType.STRING | ParamType.PATH:
            typed = value if isinstance(value, str) else None if isinstance(value, list | dict) else str(value)
    if typed is None:
        wanted = Message("one of {enum}", enum=", ".join(param.choices)) if param.choices else _TYPE_NAMES[param.type]
        raise InvalidParam(
            Message("'{name}' takes {wanted}, not {value!r}", name=param.name, wanted=wanted, value=value)
        )
    return typed


def _as_int(value: Json) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None


def _as_number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and "." not in str(value) else number


def validate(param: Param, value: Json, root: Path) -> None:
    """Raise InvalidParam if the value breaks the rule that SKILL.md names for the param."""
    text = str(value)
    match param.validation:
        case "not_empty":
            valid = bool(text.strip())
        case "url_format":
            valid = bool(_URL.fullmatch(text))
        case "email":
            valid = bool(_EMAIL.fullmatch(text))
        case "file_exists":
            valid = (root / text).exists()
        case _:
            valid = True
    if not valid:
        raise InvalidParam(
            Message("'{name}' fails {validation}: {text!r}", name=param.name, validation=param.validation, text=text)
        )
