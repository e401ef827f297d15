"""JSON values: what `data` and `meta` may hold. And patterns that are compiled when they are first used."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, AnyStr, Generic, TypeAlias, cast

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None

#: The empty mapping as a default; typed as a Mapping so that nobody fills it.
NOTHING: Mapping[str, Json] = {}

#: Deeper values are refused: every parser has a limit, and most crash at theirs.
MAX_DEPTH = 100


def check_value(value: object, depth: int = 0) -> None:
    """Raise ValueError unless `value` can be written and read back unchanged."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
        case None | bool() | int() | float():
            return
        case str():
            check_text(value)
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"a key must be text, not {type(key).__name__}")  # noqa: TRY004
                check_text(key)
                check_value(item, depth + 1)
        case list() | tuple():
            for item in value:
                check_value(item, depth + 1)
        case _:
            raise ValueError(f"{type(value).__name__} is not a JSON value")


def check_text(text: str) -> None:
    """Raise ValueError if `text` holds half a surrogate pair, which no encoding can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"lone surrogate U+{ord(text[error.start]):04X} at character {error.start}") from None


class LazyPattern(Generic[AnyStr]):
    """Becomes what `re.compile` returns, one method after the other."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what can be used like `re.compile` of it: a run knows dozens of patterns, and needs a few."""
    return cast("re.Pattern[AnyStr]", LazyPattern(text, flags))
