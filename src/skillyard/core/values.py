"""JSON values: what `data` and `meta` may hold."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

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
