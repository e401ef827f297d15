"""A change of a text: which characters give way to which. Lines end with `\\n` here, whatever the file has.

Operations see the text with `\\n` alone and say what they change as splices; the splices go into the text as it stands
in the file. So everything that no splice touches stays as it is, also in a file whose lines end in several ways, and
what is inserted ends its lines as most of the file does.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

_NEWLINE = re.compile(r"\r\n?")
_STYLES = ("\n", "\r\n", "\r")


class Splice(NamedTuple):
    start: int
    end: int
    text: str


def with_lf(text: str) -> str:
    return _NEWLINE.sub("\n", text) if "\r" in text else text


def newline_of(text: str) -> str:
    """How most of its lines end; a text without lines ends them with `\\n`."""
    pairs = text.count("\r\n")
    counts = (text.count("\n") - pairs, pairs, text.count("\r") - pairs)
    return _STYLES[counts.index(max(counts))]


def splice(text: str, splices: Sequence[Splice]) -> str:
    """The text with every splice in it. They are in order, and meant for `with_lf(text)`."""
    newline = newline_of(text)
    pairs = [found.start() - nth for nth, found in enumerate(re.finditer("\r\n", text))]
    parts: list[str] = []
    done = 0
    for start, end, inserted in splices:
        parts.append(text[done : start + bisect_left(pairs, start)])
        parts.append(with_lf(inserted).replace("\n", newline))
        done = end + bisect_left(pairs, end)
    return "".join([*parts, text[done:]])
