"""The values behind YAML 1.1's plain words, as JSON knows them.

Dates, infinities and not-a-number stay text: JSON has none of them.
"""

import re

from skillyard.core.values import Json

_WORDS: dict[str, Json] = {
    form: value
    for word, value in {
        "yes": True,
        "no": False,
        "true": True,
        "false": False,
        "on": True,
        "off": False,
        "null": None,
    }.items()
    for form in (word, word.capitalize(), word.upper())
}
_WORDS |= {"": None, "~": None}
NULLS = frozenset(word for word, value in _WORDS.items() if value is None)
#: Whatever does not start with one of these is text, which spares most values the look-ups below.
_FIRST = frozenset("yYnNtTfFoO~+-.0123456789")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_OTHER_INT = re.compile(r"([-+]?)0(?:(b)([01_]+)|(x)([0-9a-fA-F_]+)|()([0-7_]+))")
_SIXTIES = re.compile(r"([-+]?)([1-9][0-9_]*(?::[0-5]?[0-9])+)")
_FLOAT = re.compile(r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_BASES = {"b": 2, "x": 16, "": 8}
_MAX_DIGITS = 300


def typed(word: str) -> Json:
    """The value of a plain word."""
    if not word:
        return None
    if word[0] not in _FIRST:
        return word
    if word in _WORDS:
        return _WORDS[word]
    if len(word) > _MAX_DIGITS:
        return word
    return _number(word)


def _number(word: str) -> Json:
    if _INT.fullmatch(word):
        return int(word.replace("_", ""))
    if _FLOAT.fullmatch(word):
        return _finite(word)
    if other := _OTHER_INT.fullmatch(word):
        return _based(other) if other[0].strip("+-0bx_") else 0
    if sixties := _SIXTIES.fullmatch(word):
        return _sixties(sixties[1], sixties[2])
    return word


def _finite(word: str) -> Json:
    value = float(word.replace("_", ""))
    return word if value in {float("inf"), float("-inf")} else value


def _based(found: re.Match[str]) -> int:
    sign, kind, digits = (group for group in found.groups() if group is not None)
    value = int(digits.replace("_", ""), _BASES[kind])
    return -value if sign == "-" else value


def _sixties(sign: str, digits: str) -> int:
    """YAML 1.1 reads 1:30 as ninety."""
    value = 0
    for part in digits.replace("_", "").split(":"):
        value = value * 60 + int(part)
    return -value if sign == "-" else value
