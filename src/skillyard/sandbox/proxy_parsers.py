"""Parses what a client sends to our proxy: HTTP requests, and the server name in the first message of TLS. Pure.

Strict: whatever two parsers could read in two ways is refused.
"""

import re
from collections.abc import Generator
from typing import Final, NamedTuple

from skillyard.sandbox.hosts import canonical_host, split_port

MOST_HEAD_BYTES: Final = 65_536
_MOST_HEADERS: Final = 128
_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]+) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_ABSOLUTE: Final = re.compile(rb"http://([^/?#]*)([^#]*)", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
#: Headers about one connection only, which end at a proxy; Host is written anew from the target.
_HOP_BY_HOP: Final = frozenset(
    b"connection proxy-connection proxy-authorization proxy-authenticate keep-alive te trailer upgrade host "
    b"content-length transfer-encoding".split()
)


class ProxyError(Exception):
    """Why a request is not forwarded, with the HTTP status for it."""

    status = "400 Bad Request"


class BadRequest(ProxyError):
    """This is no request, or two parsers could read it in two ways."""


class ProxyRequest(NamedTuple):
    host: str
    port: int
    is_tunnel: bool = True  # CONNECT; else `head` is forwarded to the server, and then the body
    head: bytes = b""
    body_bytes: int = 0  # -1 is chunked


def parse_head(head: bytes) -> ProxyRequest:
    """Parse everything before the empty line."""
    first, *lines = head.split(b"\r\n")
    matched = _REQUEST_LINE.fullmatch(first)
    if not matched:
        raise BadRequest("this is no HTTP/1.1 request to a proxy")
    if len(lines) > _MOST_HEADERS:
        raise BadRequest("too many headers")
    fields = [_HEADER.fullmatch(line) for line in lines]
    headers = [(field[1].lower(), field[1], field[2]) for field in fields if field]
    if len(headers) != len(lines):
        raise BadRequest("a header is not written as one")
    method, target, minor = matched.groups()
    if method == b"CONNECT":
        host, port = _authority(target)
        if port is None:
            raise BadRequest("CONNECT needs a port")
        return ProxyRequest(host, port)
    found = _ABSOLUTE.fullmatch(target)
    if not found:
        raise BadRequest("a proxy wants http://host/path, or CONNECT for everything else")
    host, port = _authority(found[1])
    lengths, codings, connection = (
        [value.lower() for lower, _, value in headers if lower == name]
        for name in (b"content-length", b"transfer-encoding", b"connection")
    )
    length = _body_bytes(lengths, codings, minor)
    path = found[2] if found[2].startswith(b"/") else b"/" + found[2]
    shown = host if port is None else f"{host}:{port}"
    dropped = _HOP_BY_HOP.union(word.strip() for value in connection for word in value.split(b","))
    kept = [b"%s: %s" % (name, value) for lower, name, value in headers if lower not in dropped]
    framing = b"Transfer-Encoding: chunked" if length < 0 else b"Content-Length: %d" % length
    fixed = [b"Host: %s" % shown.encode(), b"Connection: close", *([framing] if lengths or codings else [])]
    forwarded = b"\r\n".join((b"%s %s HTTP/1.1" % (method, path), *fixed, *kept, b"", b""))
    return ProxyRequest(host, port or 80, is_tunnel=False, head=forwarded, body_bytes=length)


def _authority(text: bytes) -> tuple[str, int | None]:
    try:
        host, port = split_port(text.decode("ascii"))
        return canonical_host(host), port
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _body_bytes(lengths: list[bytes], codings: list[bytes], minor: bytes) -> int:
    if codings and (lengths or minor == b"0" or codings != [b"chunked"]):
        raise BadRequest("the length of the body is not clear")
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise BadRequest("the length of the body is not clear")
    return -1 if codings else int(lengths[0]) if lengths else 0


_Pieces = Generator[bytes | None, None, None]


class BodyFilter:
    """Passes on exactly the body of one request, and nothing that follows it on the same connection."""

    is_holding = False

    def __init__(self, body_bytes: int) -> None:
        self._held = b""
        self._pieces = self._chunks() if body_bytes < 0 else self._take(body_bytes)
        self.done = body_bytes == 0

    def feed(self, data: bytes) -> bytes:
        """Return what may be forwarded now. Raise BadRequest for a broken chunk."""
        self._held += data
        out: list[bytes] = []
        for piece in self._pieces:
            if piece is None:
                break
            out.append(piece)
        else:
            self.done = True
        return b"".join(out)

    # Each of these yields what may be forwarded, and None where more must come first.

    def _chunks(self) -> _Pieces:
        while size := (yield from self._chunk_size()):
            yield b"%x\r\n" % size
            yield from self._take(size)
            while len(self._held) < 2:
                yield None
            if not self._held.startswith(b"\r\n"):
                raise BadRequest("a chunk is longer than its size")
            self._held = self._held[2:]
            yield b"\r\n"
        yield b"0\r\n"
        while (yield from self._line()):  # trailers are not forwarded
            pass
        yield b"\r\n"

    def _take(self, size: int) -> _Pieces:
        while size:
            piece, self._held = self._held[:size], self._held[size:]
            size -= len(piece)
            yield piece or None

    def _chunk_size(self) -> Generator[None, None, int]:
        matched = _CHUNK.fullmatch((yield from self._line()))
        if not matched:
            raise BadRequest("a chunk has no size")
        return int(matched[1], 16)

    def _line(self) -> Generator[None, None, bytes]:
        while b"\r\n" not in self._held:
            if len(self._held) > MOST_HEAD_BYTES:
                raise BadRequest("a chunk has no size")
            yield None
        line, _, self._held = self._held.partition(b"\r\n")
        return line


_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
_VERSION_AND_RANDOM_BYTES: Final = 2 + 32
#: A ClientHello with post-quantum keys and a resumed session takes a few kilobytes.
_MOST_HELLO_BYTES: Final = 65_536
_BROKEN: Final = "the first message of TLS is broken"


class Incomplete(Exception):
    """More bytes must come first."""


def parse_server_name(data: bytes) -> bytes | None:
    """Return the server name of a TLS client's first message; None if this is not TLS, or it names no server.

    Raise Incomplete while the message is not complete, ValueError if it starts like TLS and is broken.
    """
    if not data:
        raise Incomplete
    if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != 3):
        return None
    if len(data) > _MOST_HELLO_BYTES:
        raise ValueError("the first message of TLS is too long")
    return _find_name(_first_handshake(data))


def _first_handshake(data: bytes) -> bytes:
    """The body of the first handshake message, which may be spread over several records."""
    message, at = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        if len(data) > at and data[at] != _HANDSHAKE:
            raise ValueError(_BROKEN)
        end = at + 5 + int.from_bytes(data[at + 3 : at + 5], "big")
        if len(data) < end:
            raise Incomplete
        message, at = message + data[at + 5 : end], end
        if message and message[0] != _CLIENT_HELLO:
            raise ValueError("TLS starts with something else than a ClientHello")
    return message[4 : 4 + int.from_bytes(message[1:4], "big")]


def _take(data: bytes, length_bytes: int) -> tuple[bytes, bytes]:
    """Split off a vector, whose length stands in its first bytes."""
    end = length_bytes + int.from_bytes(data[:length_bytes], "big")
    if len(data) < end:
        raise ValueError(_BROKEN)
    return data[length_bytes:end], data[end:]


def _find_name(hello: bytes) -> bytes | None:
    rest = hello[_VERSION_AND_RANDOM_BYTES:]
    for length_bytes in (1, 2, 1):  # session, ciphers, compressions
        _, rest = _take(rest, length_bytes)
    extensions = _take(rest, 2)[0] if rest else b""
    names: list[bytes] = []
    while extensions:
        kind = int.from_bytes(extensions[:2], "big")
        body, extensions = _take(extensions[2:], 2)
        entries = _take(body, 2)[0] if kind == _SERVER_NAME else b""
        while entries:
            is_host = entries[0] == 0
            name, entries = _take(entries[1:], 2)
            names += [name] if is_host else []
    if len(names) > 1:
        raise ValueError("TLS names several servers")
    return names[0] if names else None
