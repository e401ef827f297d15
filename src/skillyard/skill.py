"""JSON skills in a few lines: typed actions, errors by code, progress.

    from skillyard.skill import action, serve

    @action
    def analyze(target: str, days: int = 7) -> dict:
        return {"target": target, "days": days}

    if __name__ == "__main__":
        serve()

Stands outside the rooms: it imports nothing of ours and nothing that is slow to import, and runs on any Python from
3.9 on, because a skill is run by the user's Python and not by ours.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, without importing typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, NoReturn, TypeVar

    F = TypeVar("F", bound=Callable[..., object])
    Code = Literal[
        "INVALID_JSON",
        "UNKNOWN_ACTION",
        "MISSING_PARAM",
        "INVALID_PARAM",
        "TIMEOUT",
        "PERMISSION_DENIED",
        "DATA_NOT_FOUND",
        "EXTERNAL_SERVICE_ERROR",
        "INTERNAL_ERROR",
    ]

__all__ = ["Context", "Problem", "Reply", "action", "debug", "progress", "serve"]

CODES = (
    "INVALID_JSON",
    "UNKNOWN_ACTION",
    "MISSING_PARAM",
    "INVALID_PARAM",
    "TIMEOUT",
    "PERMISSION_DENIED",
    "DATA_NOT_FOUND",
    "EXTERNAL_SERVICE_ERROR",
    "INTERNAL_ERROR",
)
_MARK = "__skill_action__"
_TAKES_ANY_NAME = 0x08  # CO_VARKEYWORDS


class Problem(Exception):
    """An error for the caller: `raise Problem("DATA_NOT_FOUND", "no such log", path=name)`."""

    def __init__(self, code: Code, message: str, **details: Any) -> None:
        if code not in CODES:
            raise ValueError(f"{code!r} is no code; there are {', '.join(CODES)}")
        super().__init__(message)
        self.code, self.message, self.details = code, message, details

    def as_error(self) -> dict[str, Any]:
        details = {"details": self.details} if self.details else {}
        return {"code": self.code, "message": self.message, **details}


class Reply:
    """Data with a message for people and further metadata."""

    def __init__(self, data: object, message: str = "", **metadata: object) -> None:
        self.data, self.message, self.metadata = data, message, metadata


class Context(dict):  # type: ignore[type-arg]  # (Python 3.9 may run this)
    """The context of a request. An action receives it in the param that has this type."""

    @property
    def request_id(self) -> str | None:
        return self.get("request_id")

    @property
    def agent_id(self) -> str | None:
        return self.get("agent_id")

    @property
    def user_id(self) -> str | None:
        return self.get("user_id")


def action(function: F, name: str = "") -> F:
    """Make a function an action of this name, by default its own. Tests can still call the function."""
    if function.__code__.co_posonlyargcount:
        raise TypeError(f"{function.__name__}: params are given by name, so none can be positional-only")
    setattr(function, _MARK, name or function.__name__)
    return function


def progress(text: object) -> None:
    """Print a line to stderr, which is shown while the skill runs."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def debug(text: object) -> None:
    """Like `progress`, only with SKILL_DEBUG=1."""
    if os.environ.get("SKILL_DEBUG") == "1":
        progress(text)


def serve() -> NoReturn:
    """Read one request from stdin, write one response to stdout, and exit. Call it last, from the program itself."""
    import __main__  # noqa: PLC0415  (only now is it complete)

    found = (value for value in vars(__main__).values() if callable(value) and hasattr(value, _MARK))
    actions: Mapping[str, Callable[..., object]] = {getattr(function, _MARK): function for function in found}
    saved = os.dup(1)
    os.dup2(2, 1)  # what else is printed, before or by C code and child processes too, goes to stderr
    sys.stdout.flush()
    if sys.argv[1:] == ["--actions"]:
        _print(saved, {"actions": [_Action(function).described(name) for name, function in actions.items()]})
        raise SystemExit(0)
    if sys.stdin.isatty():
        progress(f"one JSON request on stdin, please; actions: {', '.join(actions)}")
    response = respond(actions, sys.stdin.buffer.read())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    _print(saved, response)
    raise SystemExit(0 if response["success"] else 1)


def respond(actions: Mapping[str, Callable[..., object]], raw: bytes) -> dict[str, Any]:
    """Return a response that can be written as JSON, whatever the request and the action do."""
    name = None
    started = time.perf_counter()
    try:
        request = _as_request(raw)
        name = request.get("action")
        debug(f"request: {request}")
        if isinstance(name, str) and name in actions:
            reply = _Action(actions[name]).call(request)
            response = _success(name, reply, time.perf_counter() - started)
            _as_bytes(response)  # what cannot be written is an error of the action
            return response
        error = {"code": "UNKNOWN_ACTION", "message": f"Unknown action: {name}", "supported_actions": list(actions)}
    except Problem as problem:
        error = problem.as_error()
    except (Exception, SystemExit) as unexpected:  # noqa: BLE001  (a skill always answers, see docs/spec)
        error = _internal(unexpected)
    return {"success": False, "action": name, "error": error}


def _as_request(raw: bytes) -> dict[str, Any]:
    try:
        request = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Problem("INVALID_JSON", f"Failed to parse input JSON: {error}") from None
    if not isinstance(request, dict):
        raise Problem("INVALID_JSON", "the request must be a JSON object")
    for field in ("params", "context"):
        if not isinstance(request.get(field) or {}, dict):
            raise Problem("INVALID_PARAM", f"'{field}' must be an object")
    return request


def _success(name: object, reply: object, seconds: float) -> dict[str, Any]:
    whole = reply if isinstance(reply, Reply) else Reply({} if reply is None else reply)
    count = {"items_count": len(whole.data)} if isinstance(whole.data, (list, tuple)) else {}
    metadata = {"execution_time_ms": round(seconds * 1000), **count, **whole.metadata}
    message = {"message": whole.message} if whole.message else {}
    return {"success": True, "action": name, "data": whole.data, **message, "metadata": metadata}


def _internal(error: BaseException) -> dict[str, Any]:
    if os.environ.get("SKILL_DEBUG") == "1":
        import traceback  # noqa: PLC0415  (only who debugs pays for it)

        traceback.print_exception(type(error), error, error.__traceback__)
    message = f"it ended itself with {error}" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
    return {"code": "INTERNAL_ERROR", "message": message.encode("utf-8", "backslashreplace").decode()}


def _print(descriptor: int, response: dict[str, Any]) -> None:
    with os.fdopen(descriptor, "wb", closefd=False) as stream:
        stream.write(_as_bytes(response))


def _as_bytes(response: dict[str, Any]) -> bytes:
    text = json.dumps(response, ensure_ascii=False, indent=2, allow_nan=False, default=_as_json)
    return text.encode() + b"\n"


def _as_json(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


class _Action:
    """A function and its params, read from its signature; importing `inspect` would take longer than all the rest."""

    def __init__(self, function: Callable[..., object]) -> None:
        code = function.__code__
        self.function = function
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        positional = function.__defaults__ or ()
        first = code.co_argcount - len(positional)
        self.defaults = dict(zip(names[first : code.co_argcount], positional))  # noqa: B905  (3.9)
        self.defaults.update(function.__kwdefaults__ or {})
        self.types = _types(function)
        self.names = {_plain(name): name for name in names if self.types.get(name) is not Context}
        self.context = [name for name in names if self.types.get(name) is Context]
        self.takes_any = bool(code.co_flags & _TAKES_ANY_NAME)

    def call(self, request: Mapping[str, Any]) -> object:
        values = self._bind(request.get("params") or {})
        values.update({name: Context(request.get("context") or {}) for name in self.context})
        return self.function(**values)

    def _bind(self, params: Mapping[str, Any]) -> dict[str, object]:
        missing = [shown for shown, name in self.names.items() if name not in self.defaults and shown not in params]
        if missing:
            raise Problem("MISSING_PARAM", f"Missing required parameters: {missing}", missing=missing)
        unknown = [name for name in params if name not in self.names]
        if unknown and not self.takes_any:
            raise Problem("INVALID_PARAM", f"Unknown parameters: {unknown}", known=list(self.names))
        return {self.names.get(name, name): self._typed(name, value) for name, value in params.items()}

    def _typed(self, shown: str, value: object) -> object:
        wanted = self.types.get(self.names.get(shown, ""))
        try:
            return _convert(wanted, value)
        except ValueError:
            wants = ", ".join(map(str, _choices(wanted))) or _type_name(wanted)
            raise Problem("INVALID_PARAM", f"'{shown}' takes {wants}, not {value!r}") from None

    def described(self, name: str) -> dict[str, Any]:
        """Return what `--actions` prints, for `skillyard check` and for people."""
        params = []
        for shown, own in self.names.items():
            wanted = self.types.get(own)
            param = {"name": shown, "type": _type_name(wanted), "required": own not in self.defaults}
            if own in self.defaults:
                param["default"] = _as_plain(self.defaults[own])
            if choices := _choices(wanted):
                param["choices"] = choices
            params.append(param)
        return {"name": name, "description": (self.function.__doc__ or "").strip(), "params": params}


def _plain(name: str) -> str:
    """Return the name of a param: a function takes the param `from` as `from_`."""
    return name[:-1] if name.endswith("_") and len(name) > 1 else name


def _types(function: Callable[..., object]) -> dict[str, Any]:
    found = function.__annotations__
    if any(isinstance(wanted, str) for wanted in found.values()):
        import typing  # noqa: PLC0415  (only for annotations that are texts)

        return typing.get_type_hints(function)
    return found


def _convert(wanted: Any, value: Any) -> object:
    """Return the value as the type wants it, with the items of lists and dicts. Raise ValueError if it does not fit."""
    if choices := _choices(wanted):
        if not any(choice == value and type(choice) is type(value) for choice in choices):
            raise ValueError
        return value
    if options := _options(wanted):
        return _first_that_fits(options, value)
    plain = getattr(wanted, "__origin__", wanted)
    if isinstance(plain, type) and issubclass(plain, os.PathLike):
        return plain(_instance(str, value))  # type: ignore[call-arg]  # (a caller's own type)
    if plain is float:
        return float(_instance((int, float), value))
    if plain not in (str, int, bool, list, dict, type(None)):
        return value
    _instance(plain, value)
    args: tuple[Any, ...] = getattr(wanted, "__args__", ())
    if plain is list and len(args) == 1:
        return [_convert(args[0], item) for item in value]
    if plain is dict and len(args) == 2:
        return {key: _convert(args[1], item) for key, item in value.items()}
    return value


def _first_that_fits(options: tuple[Any, ...], value: object) -> object:
    for option in options:
        try:
            return _convert(option, value)
        except ValueError:
            continue
    raise ValueError


def _instance(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError
    return value


def _choices(wanted: Any) -> list[Any]:
    """Return the choices of a Literal; whoever uses one has imported typing."""
    typing = sys.modules.get("typing")
    return list(wanted.__args__) if typing and getattr(wanted, "__origin__", None) is typing.Literal else []


def _options(wanted: Any) -> tuple[Any, ...]:
    """Return the types of `Optional[int]`, `Union[int, str]` and `int | None`."""
    typing, origin = sys.modules.get("typing"), getattr(wanted, "__origin__", None)
    is_union = hasattr(wanted, "__args__") if origin is None or typing is None else origin is typing.Union
    is_union = is_union and not isinstance(origin, type)
    return tuple(wanted.__args__) if is_union else ()


_TYPE_NAMES = {str: "string", int: "int", float: "number", bool: "bool", list: "list", dict: "dict"}


def _type_name(wanted: Any) -> str:
    """Return the name of a type in SKILL.md."""
    if _choices(wanted):
        return "enum"
    if options := _options(wanted):
        return " or ".join(dict.fromkeys(_type_name(each) for each in options if each is not type(None)))
    plain = getattr(wanted, "__origin__", wanted)
    if isinstance(plain, type) and issubclass(plain, os.PathLike):
        return "path"
    return _TYPE_NAMES.get(plain, "any")


def _as_plain(value: object) -> object:
    return value if value is None or isinstance(value, (bool, int, float, str, list, dict)) else str(value)
