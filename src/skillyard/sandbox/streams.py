"""The three pipes of a run, fed and drained together by the thread that waits for it.

Covered: a program that does not read, or writes without end, or leaves a pipe open, blocks nobody; the wait
ends with the supervisor's report and not with the pipes.
"""

import contextlib
import fcntl
import os
import select
import socket
from typing import Final, Self

from skillyard.sandbox.output import PIECE_BYTES, Capture
from skillyard.sandbox.types import STDERR_BYTES, Launch

#: A wide pipe means fewer turns for ten megabytes.
_PIPE_BYTES: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
#: What can still be in the pipes when everybody who wrote is gone.
_LAST_PIECES: Final = 64


class Streams:
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
        self._asked_to_stop = False

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
        while True:
            for file, _ in poll.poll():
                if file == control.fileno():
                    return
                if not (self._feed() if file == self._in else self._take(file)):
                    poll.unregister(file)
            if self.out.overflowed and not self._asked_to_stop:
                self._asked_to_stop = True
                with contextlib.suppress(ConnectionError):
                    control.send(b"!")

    def _take(self, file: int) -> bool:
        """Read one piece; False at the end."""
        piece = os.read(file, PIECE_BYTES)
        if not piece:
            return False
        if file == self._out:
            self.out.add(piece)
            return True
        self.err.add(piece)
        if self._launch.on_stderr:
            self._launch.on_stderr(piece)
        return True

    def _feed(self) -> bool:
        """Write what fits; False when all is written or nobody reads any more."""
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
        """What the pipes still hold, without waiting for anybody."""
        for file in (self._out, self._err):
            os.set_blocking(file, False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(_LAST_PIECES):
                    if not self._take(file):
                        break
