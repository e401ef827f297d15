"""Reads what `notation` writes: YAML flow mappings.

It takes a little more than writing gives, because people write envelopes too: values over several lines and plain
words, as in the seeds' examples. A module of its own: most runs only write.
"""

import math
import re
from collections.abc import Mapping

from skillyard.core.values import MAX_DEPTH, Json, check_text

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_UNESCAPED = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "b": "\b",
    "f": "\f",
    "0": "\0",
    "e": "\x1b",
    "a": "\a",
    "v": "\v",
}
_UNESCAPED |= {"N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}

_SPACE = re.compile(r"\s*")
_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_SINGLE = re.compile(r"'([^']*(?:''[^']*)*)'")
_PLAIN = re.compile(r"[^,\[\]{}\"'\n:]+(?::(?![\s,\[\]{}])[^,\[\]{}\"'\n:]*)*")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: Mapping[str, Json] = {"true": True, "false": False, "null": None, "~": None}


def unescape(text: str) -> str:
    return _join_surrogates(_ESCAPE.sub(_from_escape, text)) if "\\" in text else text


def _from_escape(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3]
    if digits is None:
        return _UNESCAPED.get(found[4], found[4])
    code = int(digits, 16)
    if code > 0x10FFFF:
        raise ValueError(f"\\U{digits} is no character")
    return chr(code)


def _join_surrogates(text: str) -> str:
    """Two escaped halves make one character, as in JSON; half of one is refused."""
    if not re.search(r"[\ud800-\udfff]", text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("lone surrogate in an escape") from None


class Reader:
    """Reads one value after another from a text; every refusal says where."""

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position

    def fail(self, wanted: str) -> ValueError:
        line = self.text.count("\n", 0, self.position) + 1
        column = self.position - self.text.rfind("\n", 0, self.position)
        return ValueError(f"line {line}, column {column}: {wanted} expected")

    def skip(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.position)
        if found:
            self.position = found.end()
        return found

    def peek(self) -> str:
        self.skip(_SPACE)
        return self.text[self.position : self.position + 1]

    def take(self, character: str) -> bool:
        if self.peek() != character:
            return False
        self.position += 1
        return True

    def mapping(self, depth: int = 0) -> dict[str, Json]:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        if not self.take("{"):
            raise self.fail("{")
        items: dict[str, Json] = {}
        while not self.take("}"):
            if self.take("?"):
                self.skip(_SPACE)
            key = self._key()
            if key in items:
                raise self.fail(f"a key other than {key!r}, which is there already,")
            if not self.take(":"):
                raise self.fail(":")
            items[key] = self.value(depth + 1)
            if not self.take(",") and self.peek() != "}":
                raise self.fail(", or }")
        return items

    def value(self, depth: int = 0) -> Json:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        match self.peek():
            case "{":
                return self.mapping(depth)
            case "[":
                return self._sequence(depth)
            case '"' | "'":
                return self._quoted()
            case _:
                return self._plain_value()

    def _sequence(self, depth: int) -> list[Json]:
        self.take("[")
        items: list[Json] = []
        while not self.take("]"):
            items.append(self.value(depth + 1))
            if not self.take(",") and self.peek() != "]":
                raise self.fail(", or ]")
        return items

    def _key(self) -> str:
        return self._quoted() if self.peek() in {'"', "'"} else self._plain()

    def _quoted(self) -> str:
        if found := self.skip(_QUOTED):
            return unescape(found[1])
        if found := self.skip(_SINGLE):
            return found[1].replace("''", "'")
        raise self.fail("the end of a quoted text")

    def _plain(self) -> str:
        found = self.skip(_PLAIN)
        if not found or not found[0].strip():
            raise self.fail("a value")
        return found[0].strip()

    def _plain_value(self) -> Json:
        start, word = self.position, self._plain()
        if word in _WORDS:
            return _WORDS[word]
        if _INT.match(word):
            return int(word)
        if not _FLOAT.match(word):
            return word
        number = float(word)
        if not math.isfinite(number):
            self.position = start
            raise self.fail("a finite number")
        return number


def read(text: str) -> dict[str, Json]:
    """The mapping that `write` wrote."""
    check_text(text)
    reader = Reader(text)
    items = reader.mapping()
    if reader.peek():
        raise reader.fail("the end")
    return items
