"""Takes secrets out of what is kept and shown: the values that we passed, and what looks like a key."""

import re
from collections.abc import Iterable, Mapping, Sequence

from skillyard.core.secrets import MASK, mask_keys
from skillyard.core.values import Json

#: Shorter values are words, not secrets: masking them would mask half of every text.
_SHORTEST = 6


class Redactor:
    """Masks texts and whole values, longest secrets first."""

    def __init__(self, secrets: Iterable[str] = (), *, keys: bool = True) -> None:
        """`keys`: also what only looks like a secret, which a result must not lose but a log may."""
        self._keys = keys
        known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def text(self, text: str) -> str:
        masked = self._known.sub(MASK, text) if self._known else text
        return mask_keys(masked) if self._keys else masked

    def value(self, value: Json) -> Json:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {key: self.value(item) for key, item in value.items()}
            case Sequence():
                return [self.value(item) for item in value]
            case _:
                return value

    def mapping(self, values: Mapping[str, Json]) -> dict[str, Json]:
        return {key: self.value(item) for key, item in values.items()}
