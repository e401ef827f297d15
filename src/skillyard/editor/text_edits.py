"""Text files as text, and edits of that text.

A file is decoded with the encoding and byte order mark that it has, and encoded the same way. Operations see the text
with `\\n` alone and return edits; the edits are applied to the text as it stands in the file. So every character that
no edit touches stays as it is, also in a file with mixed line ends, and inserted lines end as most lines do.
"""

import codecs
import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Message

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, ""),  # starts like UTF-16, and nobody writes it
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NEWLINE = re.compile(r"\r\n?")
_NEWLINE_STYLES = ("\n", "\r\n", "\r")


class TextEdit(NamedTuple):
    """Replaces the characters from `start` to `end`."""

    start: int
    end: int
    text: str


def with_lf(text: str) -> str:
    return _NEWLINE.sub("\n", text) if "\r" in text else text


def apply_edits(text: str, edits: Sequence[TextEdit]) -> str:
    """Return the edited text. The edits are in order, and their positions are those of `with_lf(text)`."""
    count = text.count("\r\n")
    counts = (text.count("\n") - count, count, text.count("\r") - count)
    newline = _NEWLINE_STYLES[counts.index(max(counts))]  # as most lines end
    pairs = [found.start() - nth for nth, found in enumerate(re.finditer("\r\n", text))]
    parts: list[str] = []
    done = 0
    for start, end, inserted in edits:
        parts.append(text[done : start + bisect_left(pairs, start)])
        parts.append(with_lf(inserted).replace("\n", newline))
        done = end + bisect_left(pairs, end)
    return "".join([*parts, text[done:]])


class Document(NamedTuple):
    """The text of a file, and how it is encoded there."""

    text: str = ""
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def encoding_name(self) -> str:
        return f"{self.encoding} with BOM" if self.mark else self.encoding

    def encode(self, name: str) -> bytes:
        """Return the bytes. Raise RuntimeFailed if they would be read as another text the next time."""
        content = self.mark + self.text.encode(self.encoding)
        if decode(content, name).text != self.text:
            about = {"name": name, "encoding_name": self.encoding_name}
            raise RuntimeFailed(
                Message("{name} would be read in another encoding than {encoding_name} after this edit", **about)
            )
        return content


def decode(content: bytes, name: str) -> Document:
    """Decode UTF-8, UTF-16 with a mark, or GB18030 if it is not UTF-8. Raise RuntimeFailed if it is not text."""
    mark, encoding = next((pair for pair in _MARKS if content.startswith(pair[0])), (b"", "utf-8"))
    body = content.removeprefix(mark)
    for candidate in (encoding,) if mark else (encoding, "gb18030"):
        with suppress(UnicodeError, LookupError):  # LookupError: UTF-32, which has no encoding here
            text = body.decode(candidate)
            if text.encode(candidate) == body and "\0" not in text:
                return Document(text, candidate, mark)
    raise RuntimeFailed(
        Message("{name} is not a text file that can be edited: neither UTF-8, UTF-16 with a BOM nor GB18030", name=name)
    )


def check_text(text: str, what: str) -> None:
    """Raise InvalidArgs unless the text can stand in a text file."""
    if "\0" in text:
        raise InvalidArgs(Message("{what} holds a NUL, which no text file has", what=what))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgs(Message("{what} is not valid text in the encoding of the command line", what=what)) from None
