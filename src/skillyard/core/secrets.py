"""Masks secrets in what is kept and shown: the values that were passed, and what looks like a key.

One rule for results, logs, requests and transcripts: whatever leaves a run goes through a `Redactor`.
Programs may print millions of characters that start like a key: no part of the pattern goes over the same ones twice.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skillyard.core.values import Json

if TYPE_CHECKING:
    from skillyard.core.result import Result

MASK = "•••"
#: Shorter values are words, not secrets: masking them would mask half of every text.
SHORTEST = 6
#: How much of a stream waits for the end of a line or a word.
_LONGEST_HELD = 65_536
_OF_KEYS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~+/=:@-"
_KEYS = r"""
      \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}                      # model providers
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,}    # GitHub
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                         # Slack
    | \bAKIA[0-9A-Z]{16}\b                                   # AWS
    | \bAIza[0-9A-Za-z_-]{30,}                               # Google
    | \beyJ(?:(?!-eyJ)[\w-]){10,}+\.eyJ[\w-]{10,}(?:\.[\w-]{10,})?  # JSON web tokens
    | (?<=://)[^\s/:@]{1,80}:[^\s/@]{1,80}(?=@)              # a password in an address
    | -----BEGIN[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ](?:[A-Z]+[ ])*PRIVATE[ ]KEY-----|\Z)
    | (?i:(?<=bearer[ ])[\w.~+/-]{16,}=*)
    """
#: One of these is in every text that the pattern can match; most texts have none.
_HINTS = ("k-", "gh", "github_pat_", "xox", "AKIA", "AIza", "eyJ", "://", "PRIVATE", "earer ", "EARER ")


def mask_keys(text: str) -> str:
    return re.sub(_KEYS, MASK, text, flags=re.VERBOSE) if any(hint in text for hint in _HINTS) else text


class Redactor:
    """Masks texts and whole values, longest secrets first."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if len(form) >= SHORTEST}
        known = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        #: As much as can be cut off from a secret that goes on.
        self.longest_bytes = max((len(form.encode()) for form in known), default=0)

    def text(self, text: str) -> str:
        return mask_keys(self._known.sub(MASK, text) if self._known else text)

    def blob(self, content: bytes) -> bytes:
        """Bytes that may be no text at all: only what holds a secret is changed."""
        text = content.decode("utf-8", "surrogateescape")
        masked = self.text(text)
        return content if masked == text else masked.encode("utf-8", "surrogateescape")

    def document(self, content: bytes) -> bytes:
        """What a program answered: in JSON the values are masked, however they were escaped, and it stays JSON."""
        if self._known is None and not any(hint.encode() in content for hint in (*_HINTS, "\\u")):
            return content
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return self.blob(content)
        masked = self.value(value)
        return content if masked == value else json.dumps(masked, ensure_ascii=False).encode("utf-8", "replace")

    def value(self, value: Json) -> Json:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return self.mapping(value)
            case Sequence():
                return [self.value(item) for item in value]
            case int() | float() if self._known and self._known.search(str(value)):
                return MASK
            case _:
                return value

    def mapping(self, values: Mapping[str, Json]) -> dict[str, Json]:
        return {self.text(key): self.value(item) for key, item in values.items()}

    def result(self, result: "Result") -> "Result":
        data, meta = self.mapping(result.data), self.mapping(result.meta)
        return result._replace(summary=self.text(result.summary), data=data, meta=meta)

    def split_safe(self, content: bytes) -> tuple[bytes, bytes]:
        """Return what of a stream may be shown now, masked, and its end, which could be the start of a secret."""
        if self._known is not None:
            end = content.rfind(b"\n") + 1
        else:
            plain = content.rstrip(_OF_KEYS)
            tail = content[len(plain) :]
            is_key = any(letter not in b".-=/:@~+" for letter in tail)
            end = len(plain) if is_key or not tail else len(content)
            while content[:end][-7:].lower() == b"bearer ":  # the word after it would be a token
                end = len(content[: end - 7].rstrip(_OF_KEYS))
        opened = content.rfind(b"-----BEGIN ")
        if opened >= 0 and b"PRIVATE KEY-----" in content[opened:] and b"-----END " not in content[opened:]:
            end = min(end, opened)
        if len(content) - end > _LONGEST_HELD:  # no line and no word: all but what the longest secret could need
            masked = self.blob(content)
            end = max(len(masked) - self.longest_bytes, 0)
            return masked[:end], masked[end:]
        return self.blob(content[:end]), content[end:]


def _forms(secret: str) -> Iterator[str]:
    """As it is, line by line, and as JSON, addresses, base64 and hex write it."""
    yield secret
    lines = [line.strip() for line in secret.splitlines()]
    if len(secret) < SHORTEST:
        return
    yield from lines
    from base64 import b64encode  # noqa: PLC0415  (few runs have secrets)
    from urllib.parse import quote, quote_plus  # noqa: PLC0415

    for text in {secret, *lines}:
        yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
        yield from (quote(text), quote(text, safe=""), quote_plus(text))
    content = secret.encode("utf-8", "replace")
    yield from (content.hex(), content.hex().upper())
    for before in range(3):
        # What base64 makes of it after 0, 1 or 2 other bytes, without the letters that its neighbours share.
        letters = b64encode(bytes(before) + content).decode()
        whole = letters[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        yield from (whole, whole.replace("+", "-").replace("/", "_"))
