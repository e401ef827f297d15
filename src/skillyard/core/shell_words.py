"""Splits a text into words as a shell does, and tells which were quoted. Nothing else of a shell is supported."""

import re
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

#: White space, an escaped character, a text in single or double quotes, or anything else.
_PART = re.compile(r"""(\s+)|\\(.)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|[^\s\\'"]+""", re.DOTALL)


class Word(NamedTuple):
    text: str
    #: Some of it was in quotes or after a backslash.
    quoted: bool = False


def split(text: str) -> list[Word]:
    """Return the words. Raise InvalidArgs if a quote is left open."""
    if "\0" in text:
        raise InvalidArgs(Message("a prompt holds no NUL characters"))
    words: list[Word] = []
    position, starts_word = 0, True
    while position < len(text):
        found = _PART.match(text, position)
        if found is None:
            raise InvalidArgs(Message("a quote is opened and never closed"))
        position = found.end()
        space, escaped, single, double = found.groups()
        if not space:
            quoted = next((part for part in (escaped, single) if part is not None), None)
            if double is not None:
                quoted = re.sub(r'\\(["\\])', r"\1", double)
            before = Word("") if starts_word else words.pop()
            part = found[0] if quoted is None else quoted
            words.append(Word(before.text + part, before.quoted or quoted is not None))
        starts_word = bool(space)
    return words
