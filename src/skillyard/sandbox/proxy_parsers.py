"""Parses what a client sends to our proxy: HTTP requests, and the server name in the first message of TLS. Pure.

Strict: whatever two parsers could read in two ways is refused.
"""

import re
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


class BadRequest(Exception):
    """A request that is not forwarded, with the reason."""


class ProxyRequest(NamedTuple):
    host: str
    port: int
    #: CONNECT; else `head` is forwarded to the server, and then the body.
    is_tunnel: bool = True
    head: bytes = b""
    #: -1 is chunked.
    body_bytes: int = 0


def parse_head(head: bytes) -> ProxyRequest:
    """Parse everything before the empty line."""
    first, *lines = head.split(b"\r\n")
    matched = _REQUEST_LINE.fullmatch(first)
    if not matched:
        raise BadRequest("this is no HTTP/1.1 request to a proxy")
    if len(lines) > _MOST_HEADERS:
        raise BadRequest("too many headers")
    headers = [_header(line) for line in lines]
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
    length = _body_bytes(headers, minor)
    path = found[2] if found[2].startswith(b"/") else b"/" + found[2]
    shown = host if port is None else f"{host}:{port}"
    dropped = _HOP_BY_HOP | _named_in_connection(headers)
    kept = [b"%s: %s" % (name, value) for name, value in headers if name.lower() not in dropped]
    framing = {-1: b"Transfer-Encoding: chunked", 0: b"Content-Length: 0"}.get(length, b"Content-Length: %d" % length)
    has_body = any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in headers)
    fixed = [b"Host: %s" % shown.encode(), b"Connection: close", *([framing] if has_body else [])]
    forwarded = b"\r\n".join((b"%s %s HTTP/1.1" % (method, path), *fixed, *kept, b"", b""))
    return ProxyRequest(host, port or 80, is_tunnel=False, head=forwarded, body_bytes=length)


def _header(line: bytes) -> tuple[bytes, bytes]:
    matched = _HEADER.fullmatch(line)
    if not matched:
        raise BadRequest("a header is not written as one")
    return matched[1], matched[2]


def _authority(text: bytes) -> tuple[str, int | None]:
    try:
        host, port = split_port(text.decode("ascii"))
        return canonical_host(host), port
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _named_in_connection(headers: list[tuple[bytes, bytes]]) -> frozenset[bytes]:
    values = b",".join(value for name, value in headers if name.lower() == b"connection")
    return frozenset(word.strip().lower() for word in values.split(b","))


def _body_bytes(headers: list[tuple[bytes, bytes]], minor: bytes) -> int:
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    codings = [value for name, value in headers if name.lower() == b"transfer-encoding"]
    if codings:
        if lengths or minor == b"0" or [coding.lower() for coding in codings] != [b"chunked"]:
            raise BadRequest("the length of the body is not clear")
        return -1
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise BadRequest("the length of the body is not clear")
    return int(lengths[0]) if lengths else 0


class BodyFilter:
    """Passes on exactly the body of one request, and nothing that follows it on the same connection."""

    def __init__(self, body_bytes: int) -> None:
        self._left = max(body_bytes, 0)
        self._is_chunked = body_bytes < 0
        self._held = b""
        self._in_trailer = False
        self._expects_line_end = False
        self.done = body_bytes == 0

    def feed(self, data: bytes) -> bytes:
        """Return what may be forwarded now. Raise BadRequest for a broken chunk."""
        if self.done:
            return b""
        if not self._is_chunked:
            piece = data[: self._left]
            self._left -= len(piece)
            self.done = self._left == 0
            return piece
        self._held += data
        out: list[bytes] = []
        while (chunk := self._next_chunk()) is not None:
            out.append(chunk)
        return b"".join(out)

    def _next_chunk(self) -> bytes | None:
        """Return None where more must come first or nothing is left."""
        if self.done:
            return None
        if self._left:
            piece, self._held = self._held[: self._left], self._held[self._left :]
            self._left -= len(piece)
            return piece or None
        if self._expects_line_end:
            return self._line_end()
        line, end, rest = self._held.partition(b"\r\n")
        if not end:
            if len(self._held) > MOST_HEAD_BYTES:
                raise BadRequest("a chunk has no size")
            return None
        self._held = rest
        if self._in_trailer:
            self.done = not line
            return b"\r\n" if self.done else b""
        matched = _CHUNK.fullmatch(line)
        if not matched:
            raise BadRequest("a chunk has no size")
        size = int(matched[1], 16)
        self._in_trailer = size == 0
        self._expects_line_end = size > 0
        self._left = size
        return b"%x\r\n" % size

    def _line_end(self) -> bytes | None:
        if len(self._held) < 2:
            return None
        end, self._held = self._held[:2], self._held[2:]
        if end != b"\r\n":
            raise BadRequest("a chunk is longer than its size")
        self._expects_line_end = False
        return end


# -- TLS

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
#: A ClientHello with post-quantum keys and a resumed session takes a few kilobytes.
_MOST_HELLO_BYTES: Final = 65_536


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
    hello = _first_handshake(data)
    try:
        return _find_name(hello)
    except IndexError:
        raise ValueError("the first message of TLS is broken") from None


def _first_handshake(data: bytes) -> bytes:
    """The body of the first handshake message, which may be spread over several records."""
    message, at = b"", 0
    while True:
        if len(message) >= 4:
            if message[0] != _CLIENT_HELLO:
                raise ValueError("TLS starts with something else than a ClientHello")
            size = int.from_bytes(message[1:4], "big")
            if len(message) >= 4 + size:
                return message[4 : 4 + size]
        if len(data) < at + 5:
            raise Incomplete
        if data[at] != _HANDSHAKE:
            raise ValueError("the first message of TLS is broken")
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        if len(data) < at + 5 + length:
            raise Incomplete
        message += data[at + 5 : at + 5 + length]
        at += 5 + length


class _TlsReader:
    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, size: int) -> bytes:
        if len(self.left) < size:
            raise IndexError(size)
        piece, self.left = self.left[:size], self.left[size:]
        return piece

    def vector(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes), "big"))


def _find_name(hello: bytes) -> bytes | None:
    reader = _TlsReader(hello)
    reader.take(2 + 32)  # version, random
    for length_bytes in (1, 2, 1):  # session, ciphers, compressions
        reader.vector(length_bytes)
    if not reader.left:
        return None
    extensions = _TlsReader(reader.vector(2))
    names: list[bytes] = []
    while extensions.left:
        kind, body = extensions.take(2), extensions.vector(2)
        if int.from_bytes(kind, "big") == _SERVER_NAME:
            entries = _TlsReader(_TlsReader(body).vector(2))
            while entries.left:
                is_host, name = entries.take(1) == b"\0", entries.vector(2)
                names += [name] if is_host else []
    if len(names) > 1:
        raise ValueError("TLS names several servers")
    return names[0] if names else None
