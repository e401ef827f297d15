"""Text in lines of so many columns, in any script: a Chinese line may end after any character."""

import re
from collections.abc import Iterator

from skillyard.faces.present import cell_width

#: Joins words that stay on one line.
JOINED = "\x1f"
_TOKEN = re.compile(r" +|[!-~\x1f…]+|.")
#: No line starts with one of these.
_CLOSING = frozenset(",.;:!?)]}、。”’，：；！？）】》…")
#: No line ends with one of these.
_OPENING = frozenset("（《【“‘([{")


def fold(text: str, width: int) -> Iterator[str]:
    """The text in lines of at most so many columns; words stay whole unless one alone is wider."""
    line, taken = list[str](), 0
    for token in _tokens(text, width):
        wide = cell_width(token)
        if line and taken + wide > width and not token.isspace():
            carried = list[str]()
            while len(line) > 1 and (
                line[-1] in _OPENING or (not carried and token[0] in _CLOSING and line[-1] != " ")
            ):
                carried.insert(0, line.pop())
            if sum(map(cell_width, carried)) + wide > width:
                line, carried = [*line, *carried], []
            yield "".join(line).rstrip()
            line, taken = carried, sum(map(cell_width, carried))
        if line or not token.isspace():
            line.append(token)
            taken += wide
    yield "".join(line).rstrip()


def _tokens(text: str, width: int) -> Iterator[str]:
    for token in _TOKEN.findall(text):
        for at in range(0, len(token), width if len(token) > 1 else 1):
            yield token[at : at + max(width, 1)] if len(token) > 1 else token
