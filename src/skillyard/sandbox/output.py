"""What a program writes, kept within bounds: all of it up to a size, then only its end.

Covered: a writer that never ends cannot fill the memory; bytes stay bytes.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

#: What is kept of the end when there is too much.
TAIL_BYTES: Final = 65_536
#: How much is taken at once.
PIECE_BYTES: Final = 262_144


class Capture:
    """Keeps the first `head_bytes`, counts everything, and past the head remembers the last `tail_bytes`."""

    def __init__(self, head_bytes: int, tail_bytes: int = TAIL_BYTES) -> None:
        self.total = 0
        self._room = head_bytes
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_bytes = tail_bytes

    @property
    def overflowed(self) -> bool:
        return self._tail_size > 0

    @property
    def head(self) -> bytes:
        return b"".join(self._head)

    @property
    def tail(self) -> bytes:
        return b"".join(self._tail)[-self._tail_bytes :] if self._tail_bytes else b""

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        if len(piece) <= self._room:
            self._head.append(piece)
            self._room -= len(piece)
            return
        if self._room:
            self._head.append(piece[: self._room])
            piece = piece[self._room :]
            self._room = 0
        self._tail.append(piece)
        self._tail_size += len(piece)
        while self._tail_size - len(self._tail[0]) >= self._tail_bytes:
            self._tail_size -= len(self._tail.popleft())

    def pieces(self) -> Iterator[bytes]:
        """Head and tail, with a line between them that says what was left out."""
        yield from self._head
        tail = self.tail
        left_out = self.total - sum(map(len, self._head)) - len(tail)
        if left_out:
            yield b"\n[... %d bytes left out ...]\n" % left_out
        yield tail

    def shortened(self) -> bytes:
        return b"".join(self.pieces())
