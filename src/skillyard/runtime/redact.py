"""Takes secrets out of what is kept and shown: the values that we passed, and what looks like a key."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from skillyard.core.values import Json

MASK = "•••"
#: Shorter values are words, not secrets: masking them would mask half of every text.
_SHORTEST = 6
_KEYS = r"""
      \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}                      # model providers
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,}    # GitHub
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                         # Slack
    | \bAKIA[0-9A-Z]{16}\b                                   # AWS
    | \bAIza[0-9A-Za-z_-]{30,}                               # Google
    | \beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}             # JSON web tokens
    | -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----|\Z)
    | (?i:(?<=bearer[ ])[\w.~+/-]{16,}=*)
    """


#: One of these is in every text that the pattern can match; most texts have none.
_HINTS = ("k-", "gh", "github_pat_", "xox", "AKIA", "AIza", "eyJ", "PRIVATE", "earer ", "EARER ")


@cache
def _keys() -> re.Pattern[str]:
    return re.compile(_KEYS, re.VERBOSE)


class Redactor:
    """Masks texts and whole values, longest secrets first."""

    def __init__(self, secrets: Iterable[str] = (), *, keys: bool = True) -> None:
        """`keys`: also what only looks like a secret, which a result must not lose but a log may."""
        self._keys = keys
        known = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def text(self, text: str) -> str:
        masked = self._known.sub(MASK, text) if self._known else text
        if not self._keys or not any(hint in masked for hint in _HINTS):
            return masked
        return _keys().sub(MASK, masked)

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
