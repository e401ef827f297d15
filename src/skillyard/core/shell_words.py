"""Splits a text into words as a shell does, and tells which were quoted. Nothing else of a shell is supported."""

from collections.abc import Iterator
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message


class Word(NamedTuple):
    text: str
    #: Some of it was in quotes or after a backslash.
    quoted: bool = False


def split(text: str) -> list[Word]:
    """Return the words. Raise InvalidArgs if a quote is left open."""
    if "\0" in text:
        raise InvalidArgs(Message("a prompt holds no NUL characters"))
    return list(_words(text))


def _words(text: str) -> Iterator[Word]:
    characters = iter(text)
    current: list[str] = []
    started = quoted = False
    for character in characters:
        if character.isspace():
            if started:
                yield Word("".join(current), quoted)
            current, started, quoted = [], False, False
            continue
        started = True
        if character == "\\":
            quoted = True
            current.append(_next(characters))
        elif character in {"'", '"'}:
            quoted = True
            current.extend(_quoted(characters, character))
        else:
            current.append(character)
    if started:
        yield Word("".join(current), quoted)


def _quoted(characters: Iterator[str], end: str) -> Iterator[str]:
    while (character := _next(characters)) != end:
        if character == "\\" and end == '"':
            following = _next(characters)
            yield following if following in {'"', "\\"} else f"\\{following}"
        else:
            yield character


def _next(characters: Iterator[str]) -> str:
    character = next(characters, None)
    if character is None:
        raise InvalidArgs(Message("a quote is opened and never closed"))
    return character
