"""The notation of `data` and `meta`: YAML flow mappings on one line, which any YAML reader reads back.

Identifier keys are bare, strings double-quoted, and nothing in a value can end the line or move the cursor.
Reading takes a little more than writing gives, because people write envelopes too: values over several lines
and plain words, as in the seeds' examples.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial

from skillyard.core.values import MAX_DEPTH, Json, check_text, check_value

#: Line ends, C0 and C1 controls, direction overrides, byte order marks and non-characters.
UNSAFE = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff"
_UNSAFE = re.compile(f"[{UNSAFE}]")
_UNSAFE_OR_BACKSLASH = re.compile(rf"[{UNSAFE}\\]")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Words that YAML 1.1 reads as something other than text.
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
#: YAML readers look no further than 1,024 characters for the colon of a plain key.
_LONGEST_PLAIN_KEY = 1000

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
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


def write(value: Mapping[str, Json], encoding: str = "utf-8") -> str:
    """One line of YAML; characters that `encoding` lacks are escaped."""
    check_value(value)
    return _for_encoding(_write(value), encoding)


def escape(text: str, encoding: str = "utf-8") -> str:
    """Text for the first line of an envelope: one line, whatever it holds, and it reads back."""
    check_text(text)
    return _for_encoding(_UNSAFE_OR_BACKSLASH.sub(_as_escape, text), encoding)


def unescape(text: str) -> str:
    return _join_surrogates(_ESCAPE.sub(_from_escape, text)) if "\\" in text else text


def _as_escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"


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


def _for_encoding(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(map(partial(_for_character, encoding), text))
    return text


def _for_character(encoding: str, character: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        code = ord(character)
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


def _write(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _write_float(value)
        case str():
            return _write_string(value)
        case Mapping():
            return "{" + ", ".join(f"{_write_key(key)}: {_write(item)}" for key, item in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(map(_write, value)) + "]"


def _write_float(value: float) -> str:
    text = repr(value)
    if "e" in text and "." not in text:
        # YAML 1.1 takes 1e+16 for text.
        text = text.replace("e", ".0e")
    return text


def _write_string(text: str) -> str:
    return escape_unsafe(json.dumps(text, ensure_ascii=False))


def escape_unsafe(written: str) -> str:
    """JSON without a character that ends a line or moves a cursor; it reads the same."""
    return _UNSAFE.sub(_as_escape, written)


def is_bare(word: str) -> bool:
    """Whether any YAML reader takes the word for text without quotes."""
    return bool(_IDENTIFIER.match(word)) and word.lower() not in _YAML_WORDS and len(word) <= _LONGEST_PLAIN_KEY


def _write_key(key: str) -> str:
    if is_bare(key):
        return key
    text = _write_string(key)
    # An encoding that lacks a character makes ten of it: \U0001f600.
    return text if len(text) <= _LONGEST_PLAIN_KEY // 10 else f"? {text} "


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
