"""Splits a text into words as a shell does, and tells which were quoted. Nothing else of a shell is supported."""

import re
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

#: White space, an escaped character, a text in single or double quotes, or anything else.
_PART = re.compile(r"""(\s+)|\\(\r\n|.)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|[^\s\\'"]+""", re.DOTALL)


class Word(NamedTuple):
    text: str
    #: Some of it was in quotes or after a backslash.
    quoted: bool = False
    #: Its first character was.
    starts_quoted: bool = False


def split(text: str) -> list[Word]:
    """Return the words. Raise InvalidArgs if a quote is left open."""
    return [word for line in split_lines(text) for word in line]


def split_lines(text: str) -> list[list[Word]]:
    """Return the words of each line that has any; a line end in quotes is part of a word."""
    if "\0" in text:
        raise InvalidArgs(Message("a prompt holds no NUL characters"))
    lines: list[list[Word]] = [[]]
    position, starts_word = 0, True
    while position < len(text):
        found = _PART.match(text, position)
        if found is None:
            raise InvalidArgs(Message("a quote is opened and never closed"))
        position = found.end()
        space, escaped, single, double = found.groups()
        if space:
            if "\n" in space or "\r" in space:
                lines.append([])
            starts_word = True
        elif escaped not in {"\n", "\r\n"}:  # which continues the line
            quoted = next((part for part in (escaped, single) if part is not None), None)
            if double is not None:
                quoted = re.sub(r'\\(["\\])', r"\1", double)
            before = Word("", starts_quoted=quoted is not None) if starts_word else lines[-1].pop()
            part = found[0] if quoted is None else quoted
            lines[-1].append(before._replace(text=before.text + part, quoted=before.quoted or quoted is not None))
            starts_word = False
    return [line for line in lines if line]
