"""The notation of `data` and `meta`: YAML flow mappings on one line, which any YAML reader reads back.

Identifier keys are bare, strings double-quoted, and nothing in a value can end the line or move the cursor. What is
written here is read back in `reader`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial

from skillyard.core.values import Json, check_text, check_value

#: Line ends, C0 and C1 controls, direction overrides, byte order marks and non-characters.
UNSAFE = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff"
_UNSAFE = re.compile(f"[{UNSAFE}]")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Words that YAML 1.1 reads as something other than text.
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
#: YAML readers look no further than 1,024 characters for the colon of a plain key.
_LONGEST_PLAIN_KEY = 1000

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def write(value: Mapping[str, Json], encoding: str = "utf-8") -> str:
    """One line of YAML; characters that `encoding` lacks are escaped."""
    check_value(value)
    return _for_encoding(_write(value), encoding)


def escape(text: str, encoding: str = "utf-8") -> str:
    """Text for the first line of an envelope: one line, whatever it holds, and it reads back."""
    check_text(text)
    return _for_encoding(_UNSAFE.sub(_as_escape, text.replace("\\", "\\\\")), encoding)


def _as_escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"


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
        return as_code(character)
    return character


def as_code(character: str) -> str:
    """A character as the escape that stands for it where an encoding lacks it."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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
