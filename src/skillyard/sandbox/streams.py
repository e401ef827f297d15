"""The three pipes of a run, fed and drained together by the thread that waits for it, and what is kept of them.

Covered: a program that does not read, or writes without end, or leaves a pipe open, blocks nobody and fills no memory;
the wait ends with the supervisor's report and not with the pipes; bytes stay bytes.
"""

import contextlib
import fcntl
import os
import select
import socket
from collections import deque
from typing import Final, Self

from skillyard.sandbox.launch import STDERR_BYTES, Launch

#: How much is kept of the end when there is too much.
TAIL_BYTES: Final = 65_536
#: How much is read at once.
PIECE_BYTES: Final = 262_144
#: A wide pipe means fewer turns for ten megabytes.
_PIPE_BYTES: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
#: How many pieces can still be in the pipes when every writer is gone.
_LAST_PIECES: Final = 64

StreamFds = tuple[int, int, int]


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
        kept, rest = piece[: self._room], piece[self._room :]
        if kept:
            self._head.append(kept)
            self._room -= len(kept)
        if not rest:
            return
        self._tail.append(rest)
        self._tail_size += len(rest)
        while self._tail_size - len(self._tail[0]) >= self._tail_bytes:
            self._tail_size -= len(self._tail.popleft())

    def shortened(self) -> bytes:
        """Head and tail, with a line between them that says how much was left out."""
        head, tail = self.head, self.tail
        left_out = self.total - len(head) - len(tail)
        return head + (b"\n[... %d bytes left out ...]\n" % left_out if left_out else b"") + tail


def open_pipes() -> tuple[StreamFds, StreamFds]:
    """The program's ends of its three streams, and ours."""
    (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
    return (their_in, their_out, their_err), (our_in, our_out, our_err)


class RunStreams:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.out = Capture(launch.output_bytes)
        self.err = Capture(STDERR_BYTES, STDERR_BYTES)
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        with contextlib.suppress(OSError):  # more than this person may have in pipes
            fcntl.fcntl(out, _F_SETPIPE_SZ, _PIPE_BYTES)
        if launch.stdin:
            inner, self._in = os.pipe()
            os.set_blocking(self._in, False)
        else:
            inner, self._in = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1
        self._unfed = memoryview(launch.stdin)
        self.inner = (inner, out, err)
        self._open = {inner, out, err, self._out, self._err} | ({self._in} if launch.stdin else set())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in tuple(self._open):
            self._close(file)

    def _close(self, file: int) -> None:
        self._open.discard(file)
        os.close(file)

    def close_inner(self) -> None:
        for file in self.inner:
            self._close(file)

    def collect(self, control: socket.socket) -> None:
        """Move bytes until the supervisor speaks, or is gone."""
        poll = select.poll()
        for file in (control.fileno(), self._out, self._err):
            poll.register(file, select.POLLIN)
        if self._launch.stdin:
            poll.register(self._in, select.POLLOUT)
        asked_to_stop = False
        while True:
            for file, _ in poll.poll():
                if file == control.fileno():
                    return
                if not (self._feed() if file == self._in else self._take(file)):
                    poll.unregister(file)
            if self.out.overflowed and not asked_to_stop:
                asked_to_stop = True
                with contextlib.suppress(ConnectionError):
                    control.send(b"!")

    def _take(self, file: int) -> bool:
        """Read one piece; return False at the end."""
        piece = os.read(file, PIECE_BYTES)
        if not piece:
            return False
        (self.out if file == self._out else self.err).add(piece)
        if file == self._err and self._launch.on_stderr:
            self._launch.on_stderr(piece)
        return True

    def _feed(self) -> bool:
        """Write what fits; return False when all is written or nobody reads any more."""
        try:
            self._unfed = self._unfed[os.write(self._in, self._unfed[:PIECE_BYTES]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self._unfed = memoryview(b"")
        if not self._unfed:
            self._close(self._in)
        return bool(self._unfed)

    def drain(self) -> None:
        """Read what the pipes still hold, without waiting for anybody."""
        for file in (self._out, self._err):
            os.set_blocking(file, False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(_LAST_PIECES):
                    if not self._take(file):
                        break
