"""Request → Call: binds what was asked to what the skill takes, and refuses the rest.

Positional words fill the params in their order; `--key value`, `--key=value` and `key=value` name theirs. What nothing
takes is refused: never guessed, never dropped.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from skillyard.core.errors import InvalidArgs, InvalidParam, MetadataMissing, ParamMissing
from skillyard.core.messages import Message
from skillyard.core.result import Call, Request
from skillyard.core.skill import Param, ParamType, Skill
from skillyard.core.values import Json, check_value, lazy_pattern
from skillyard.trust.run_policy import NamedPath, find_named, resolve_output

#: The slot that we fill ourselves, and that a caller may name.
OUTPUT = "output"
_SCRIPT_SECONDS = 300.0
_OUTPUT_FOLDER = "mybox/output"
_URL = lazy_pattern(r"[a-z][a-z0-9+.-]*://[^\s/?#]+[^\s]*", re.IGNORECASE)
_EMAIL = lazy_pattern(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
#: What `validation` may name in SKILL.md.
#: Each takes the text, and the project with what lies over it.
_RULES: Mapping[str, Callable[[str, Sequence[Path]], bool]] = {
    "not_empty": lambda text, _: bool(text.strip()),
    "url_format": lambda text, _: bool(_URL.fullmatch(text)),
    "email": lambda text, _: bool(_EMAIL.fullmatch(text)),
    "file_exists": lambda text, layers: any(
        (layer / os.path.relpath(layers[0] / text, layers[0])).exists() for layer in layers
    ),
}
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_TYPE_NAMES = {
    ParamType.INT: Message("a whole number"),
    ParamType.NUMBER: Message("a number"),
    ParamType.BOOL: Message("true or false"),
    ParamType.ENUM: Message("one of its choices"),
    ParamType.STRING: "text",
    ParamType.PATH: Message("a path"),
    ParamType.OBJECT: Message("a JSON object"),
    ParamType.ARRAY: Message("a JSON list"),
}


def check(skill: Skill, request: Request, root: Path, run_id: str, earlier: Path | None = None) -> Call:
    """Return the call that the request stands for. Raise the first error that is found.

    `earlier` is the layer with what the earlier steps of a flow changed in the project.
    """
    if skill.broken and not request.script:
        place = f"{skill.path}:{skill.broken.line}"
        raise MetadataMissing(Message("{place}: {reason}", place=place, reason=skill.broken.message))
    if request.stdin.strip() and not request.script:
        request = _with_input(skill, request)
    action, words = _action(skill, request)
    if request.shell_words and not (skill.kind.takes_words or request.script):
        told = Message(
            "{word!r} is no param and no shell reads it; in quotes it is a value", word=request.shell_words[0]
        )
        raise InvalidParam(told, details={"known": [param.name for param in skill.params]})
    takes_words = skill.kind.takes_words or bool(request.script)
    given = dict(request.params) if takes_words else {**bind(skill, words), **request.params}
    if skill.kind.takes_only_declared:
        has_output = not skill.command or f"{{{OUTPUT}}}" in skill.command
        known = {*(param.name for param in skill.params), *([OUTPUT] if has_output else [])}
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            raise _unknown(skill, unknown)
    output = _output(skill, given.pop(OUTPUT, None), root)
    paths = _CallerPaths(request.typed_in, root)
    params = {} if request.script else paths.relocate_params(skill, _complete(skill, given, root, earlier), given)
    args = words if takes_words else ()
    if request.script:
        args = tuple(paths.relocate(word) or word for word in args)
    agent_id = skill.fields.get("agent_id") if skill.role else None
    return Call(
        skill=skill,
        asked_as=request.name,
        known_as=str(request.staged or request.name),
        run_id=run_id,
        root=root,
        limit_seconds=_limit_of(skill, request),
        params=params,
        args=args,
        script=request.script,
        action=action,
        context={**({"agent_id": agent_id} if agent_id else {}), **request.context, "request_id": run_id},
        output=output,
        named_paths=tuple(named.path for named in paths.found if not named.led_out),
        led_out=tuple(named.path for named in paths.found if named.led_out),
        stdin=request.stdin,
        strict=request.strict,
        success_exit_codes=request.success_exit_codes or skill.success_exit_codes,
    )


def _with_input(skill: Skill, request: Request) -> Request:
    """Return the request with its piped input: for a kind with actions that is the request. InvalidArgs if unread."""
    if not skill.kind.reads_stdin:
        raise InvalidArgs(Message("@{name} reads no input: give it words, or </dev/null", name=request.name))
    if not skill.kind.has_actions:
        return request
    if request.args or request.params or request.action is not None:
        raise InvalidArgs(Message("words and piped input: give one of them, or </dev/null"))
    asked: Json = None
    with suppress(ValueError, RecursionError):
        asked = json.loads(request.stdin)
        check_value(asked)
    fields = asked if isinstance(asked, dict) and asked.keys() <= {"action", "params", "context"} else {"params": None}
    action, params, context = fields.get("action"), fields.get("params", {}), fields.get("context", {})
    if not isinstance(action, str | None) or not isinstance(params, dict) or not isinstance(context, dict):
        form = '{"action": "...", "params": {}, "context": {}}'
        raise InvalidArgs(Message("the input is no request: one JSON object like {form}", form=form))
    return request._replace(action=action, params=params, context=context, stdin=b"")


def check_text_of(request: Request) -> None:
    """Raise InvalidArgs for a lone surrogate anywhere in the request: no file name, table or result can hold it."""
    try:
        check_value([request.name, request.script, request.role, request.action or "", *request.args])
        check_value(request.params)
        check_value(request.context)
    except (ValueError, RecursionError) as error:
        raise InvalidArgs(Message("the request is no text: {error}", error=error)) from None


def _limit_of(skill: Skill, request: Request) -> float:
    """Return the time limit: the call's own, else the skill's or its kind's within the deadline of a Task."""
    seconds = request.timeout_seconds
    if seconds is not None:
        if not seconds > 0:
            raise InvalidParam(Message("a time limit must be above zero, not {seconds:g}", seconds=seconds))
        return seconds
    limit = skill.timeout_seconds or (_SCRIPT_SECONDS if request.script else skill.kind.limit_seconds)
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
    actions = ", ".join(skill.actions)
    if action is None:
        prompts = {"action": f"one of: {actions}"} if actions else {}
        raise ParamMissing(("action",), tuple(param.name for param in skill.params), prompts)
    if skill.actions and action not in skill.actions:
        details: dict[str, Json] = {"code": "UNKNOWN_ACTION", "supported_actions": list(skill.actions)}
        told = Message("unknown action '{action}'; supported: {actions}", action=action, actions=actions)
        raise InvalidParam(told, details=details)
    return action, words


def _complete(skill: Skill, given: Mapping[str, Json], root: Path, earlier: Path | None) -> dict[str, Json]:
    """Return the params typed, validated and with defaults. ParamMissing names all that are missing at once."""
    missing = [p for p in skill.params if p.required and p.default is None and given.get(p.name) is None]
    if missing and not skill.kind.takes_words:
        optional = tuple(param.name for param in skill.params if not param.required)
        prompts = {param.name: text for param in missing if (text := param.prompt or param.description)}
        raise ParamMissing(tuple(param.name for param in missing), optional, prompts)
    values: dict[str, Json] = {}
    for param in skill.params:
        value = given.get(param.name, param.default)
        if value is not None:
            values[param.name] = as_typed(param, value)
            text, is_valid = str(values[param.name]), _RULES.get(param.validation)
            if is_valid and not is_valid(text, [root, earlier] if earlier else [root]):
                names = {"name": param.name, "rule": param.validation}
                raise InvalidParam(Message("'{name}' fails {rule}: {text!r}", text=text, **names))
    declared = {param.name for param in skill.params}
    for name, value in given.items():
        if name not in declared:
            values[name] = as_scalar(value) if isinstance(value, str) else value
    return values


def _output(skill: Skill, asked: Json, root: Path) -> str:
    """Return what `{output}` stands for: the default folder, or the path that the caller or the skill names."""
    declared = next((param.default for param in skill.params if param.name == OUTPUT), None)
    if asked is None and declared is None:
        return f"{_OUTPUT_FOLDER}/"
    named = Path(str(asked if asked is not None else declared))
    inside = named if asked is not None or named.parts[:1] == ("mybox",) else Path(_OUTPUT_FOLDER) / named
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

    def relocate_params(self, skill: Skill, params: dict[str, Json], given: Mapping[str, Json]) -> dict[str, Json]:
        """Relocate the values that somebody gave, not the defaults. A PATH must not lead out of the project."""
        types = {param.name: param.type for param in skill.params}
        for name, value in params.items():
            if not isinstance(value, str) or name not in given:
                continue
            if relocated := self.relocate(value):
                params[name] = relocated
            elif types.get(name) is ParamType.PATH and self.typed_in is None and self._leaves(value):
                raise InvalidParam(Message("'{name}' lies outside the project: {value!r}", name=name, value=value))
        return params

    def _leaves(self, value: str) -> bool:
        try:
            return not Path(os.path.realpath(self.root / value)).is_relative_to(os.path.realpath(self.root))
        except (OSError, ValueError):
            return True


def bind(skill: Skill, words: Sequence[str]) -> dict[str, Json]:
    """Return the values by the names of their params, as text. `--input-file` names `input_file` too."""
    known = {param.name.replace("-", "_"): param for param in skill.params}
    takes_any = skill.kind.takes_any_param
    bound: dict[str, Json] = {}
    rest = list(words)
    only_values = False
    while rest:
        word = rest.pop(0)
        is_option = word.startswith("--") and not only_values
        if is_option and word == "--":
            only_values = True
            continue
        key, equals, value = (word[2:] if is_option else word).partition("=")
        param = known.get(key.replace("-", "_"))
        name = param.name if param else key
        is_named = param is not None or key == OUTPUT
        if is_option:
            if not is_named and not takes_any:
                raise _unknown(skill, key)
            value = value if equals else _next_value(skill, key, param, rest)
        elif only_values or not equals or not (is_named or (takes_any and key.isidentifier())):
            if equals and not only_values and nearest_params(skill, key):
                raise _unknown(skill, key)  # a misspelt name, not a value
            name, value = next((each.name for each in skill.params if each.name not in bound), ""), word
            if not name:
                raise _unknown(skill, key if equals else "", word)
        if name in bound:
            raise InvalidParam(Message("'{name}' is given twice", name=name))
        bound[name] = value
    return bound


def _next_value(skill: Skill, key: str, param: Param | None, rest: list[str]) -> str:
    """Take the value of an option from the words after it. A flag needs none."""
    is_flag = param is not None and param.type is ParamType.BOOL
    if is_flag and not (rest and rest[0].lower() in {"true", "false"}):
        return "true"
    if rest:
        return rest.pop(0)
    if skill.kind.takes_any_param:
        return "true"
    raise InvalidParam(Message("'--{key}' needs a value", key=key))


def _unknown(skill: Skill, key: str, word: str = "") -> InvalidParam:
    """Return the error for a param that the skill does not take, or for a surplus word, with the nearest params."""
    told = Message("nothing takes {word!r}", word=word) if word else Message("unknown param '{key}'", key=key)
    known, nearest = ", ".join(param.name for param in skill.params), nearest_params(skill, key)
    if nearest:
        told = Message("{told}; did you mean '{nearest}'?", told=told, nearest=nearest[0])
    elif known:
        told = Message("{told}; it takes: {known}", told=told, known=known)
    else:
        told = Message("{told}; it takes no params", told=told)
    return InvalidParam(told, details={"known": [param.name for param in skill.params], "nearest": [*nearest]})


def nearest_params(skill: Skill, key: str) -> tuple[str, ...]:
    """Return the params whose names are like this one, the most alike first."""
    from difflib import get_close_matches  # noqa: PLC0415  (only an unknown name needs it)

    names = {param.name.replace("-", "_").lower(): param.name for param in skill.params}
    return tuple(names[near] for near in get_close_matches(key.replace("-", "_").lower(), names, n=3))


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
    name = param.name
    if isinstance(value, str) and "\0" in value:
        raise InvalidParam(Message("'{name}' holds a NUL character", name=name))
    typed: Json = None
    with suppress(ValueError, OverflowError, RecursionError):
        match param.type:
            case ParamType.INT if isinstance(value, int | str) and not isinstance(value, bool):
                typed = int(value)
            case ParamType.NUMBER if isinstance(value, int | float | str) and not isinstance(value, bool):
                number = float(value)
                whole = number.is_integer() and "." not in str(value)
                typed = int(number) if whole else number if math.isfinite(number) else None
            case ParamType.BOOL:
                typed = value if isinstance(value, bool) else _BOOLS.get(str(value).lower())
            case ParamType.ENUM:
                typed = value if str(value) in param.choices or not param.choices else None
            case ParamType.OBJECT | ParamType.ARRAY:
                read = json.loads(value) if isinstance(value, str) else value
                check_value(read)
                typed = read if isinstance(read, Mapping if param.type is ParamType.OBJECT else list) else None
            case ParamType.STRING | ParamType.PATH if not isinstance(value, list | dict):
                typed = str(value)
    if typed is None:
        wanted = Message("one of {enum}", enum=", ".join(param.choices)) if param.choices else _TYPE_NAMES[param.type]
        raise InvalidParam(Message("'{name}' takes {wanted}, not {value!r}", name=name, wanted=wanted, value=value))
    return typed
