"""The server name in the first message of a TLS connection. Pure."""

from typing import Final

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
#: A ClientHello with post-quantum keys and a resumed session takes a few kilobytes.
_MOST_BYTES: Final = 65_536


class NotYet(Exception):
    """More bytes must come first."""


def server_name(data: bytes) -> bytes | None:
    """The name that a client asks for; None if these bytes are no TLS, or it names nobody.

    NotYet while the message is not complete; ValueError where it starts like TLS and is broken.
    """
    if not data:
        raise NotYet
    if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != 3):
        return None
    if len(data) > _MOST_BYTES:
        raise ValueError("the first message of TLS is too long")
    hello = _handshake(data)
    try:
        return _name_in(hello)
    except IndexError:
        raise ValueError("the first message of TLS is broken") from None


def _handshake(data: bytes) -> bytes:
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
            raise NotYet
        if data[at] != _HANDSHAKE:
            raise ValueError("the first message of TLS is broken")
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        if len(data) < at + 5 + length:
            raise NotYet
        message += data[at + 5 : at + 5 + length]
        at += 5 + length


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, size: int) -> bytes:
        if len(self.left) < size:
            raise IndexError(size)
        piece, self.left = self.left[:size], self.left[size:]
        return piece

    def vector(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes), "big"))


def _name_in(hello: bytes) -> bytes | None:
    reader = _Reader(hello)
    reader.take(2 + 32)  # version, random
    for length_bytes in (1, 2, 1):  # session, ciphers, compressions
        reader.vector(length_bytes)
    if not reader.left:
        return None
    extensions = _Reader(reader.vector(2))
    names: list[bytes] = []
    while extensions.left:
        kind, body = extensions.take(2), extensions.vector(2)
        if int.from_bytes(kind, "big") == _SERVER_NAME:
            entries = _Reader(_Reader(body).vector(2))
            while entries.left:
                is_host, name = entries.take(1) == b"\0", entries.vector(2)
                names += [name] if is_host else []
    if len(names) > 1:
        raise ValueError("TLS names several servers")
    return names[0] if names else None
