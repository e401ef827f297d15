"""Values as their param's type, and the validations that SKILL.md can ask for."""

import math
import re
from pathlib import Path

from skillyard.core.errors import InvalidParam
from skillyard.core.messages import Message
from skillyard.core.skill import Param, ParamType
from skillyard.core.values import Json

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#]+[^\s]*", re.IGNORECASE)
_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+")
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def as_typed(param: Param, value: Json) -> Json:
    """The value as the param's type; InvalidParam says what would have been right."""
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
        wanted = Message("one of {enum}", enum=", ".join(param.choices)) if param.choices else _WANTED[param.type]
        raise InvalidParam(
            Message("'{name}' takes {wanted}, not {value!r}", name=param.name, wanted=wanted, value=value)
        )
    return typed


_WANTED = {
    ParamType.INT: Message("a whole number"),
    ParamType.NUMBER: Message("a number"),
    ParamType.BOOL: Message("true or false"),
    ParamType.ENUM: Message("one of its choices"),
    ParamType.STRING: "text",
    ParamType.PATH: Message("a path"),
}


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
    """The rule that SKILL.md names for the param, if any."""
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
