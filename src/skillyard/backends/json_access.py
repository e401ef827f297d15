"""An agent's words are never trusted to have the right form: what has another one is nothing."""

from collections.abc import Mapping, Sequence

from skillyard.core.values import NOTHING, Json


def mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else NOTHING


def items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
