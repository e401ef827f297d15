"""The bytes of a text file as text, and back, with the encoding and the byte order mark it had."""

import codecs
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Message

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, ""),  # starts like UTF-16, and nobody writes it
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Document(NamedTuple):
    text: str = ""
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def encoding_name(self) -> str:
        return f"{self.encoding} with BOM" if self.mark else self.encoding


def decode(content: bytes, name: str) -> Document:
    """UTF-8; UTF-16 where a mark says so; GB18030 where it is no UTF-8. RuntimeFailed where it is no text."""
    mark, encoding = next((pair for pair in _MARKS if content.startswith(pair[0])), (b"", "utf-8"))
    for candidate in (encoding,) if mark else (encoding, "gb18030"):
        document = _decode(content, candidate, mark)
        if document is not None and "\0" not in document.text:
            return document
    raise RuntimeFailed(
        Message("{name} is not a text file that can be edited: neither UTF-8, UTF-16 with a BOM nor GB18030", name=name)
    )


def encode(document: Document, name: str) -> bytes:
    """The bytes; refused where they would be read as another text the next time."""
    content = document.mark + document.text.encode(document.encoding)
    if decode(content, name).text != document.text:
        raise RuntimeFailed(
            Message(
                "{name} would be read in another encoding than {encoding_name} after this edit",
                name=name,
                encoding_name=document.encoding_name,
            )
        )
    return content


def check_text(text: str, what: str) -> None:
    """What is inserted can stand in a text file: no NUL, and nothing that was no text to begin with."""
    if "\0" in text:
        raise InvalidArgs(Message("{what} holds a NUL, which no text file has", what=what))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgs(Message("{what} is not valid text in the encoding of the command line", what=what)) from None


def _decode(content: bytes, encoding: str, mark: bytes) -> Document | None:
    if not encoding:
        return None
    body = content.removeprefix(mark)
    try:
        text = body.decode(encoding)
        return Document(text, encoding, mark) if text.encode(encoding) == body else None
    except UnicodeError:
        return None
