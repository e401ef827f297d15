"""One time limit over a whole network operation: name lookup, connecting, headers, redirects and every chunk.

A socket timeout is not enough: it starts again with each byte that arrives, and name lookup has none. So the operation
runs in a thread of its own, the caller waits until the limit and no longer, and the sockets are shut down so that the
thread ends too. A thread that hangs in name lookup ends with the resolver's own timeout; nobody waits for it.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from skillyard.core.messages import Message

T = TypeVar("T")


class Deadline:
    """A point in time, and the sockets that must be closed when it is reached."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._hung_up = False

    def left(self) -> float:
        """Seconds that remain, never negative."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise TimeoutError if the deadline has passed. Call it for each chunk."""
        if not self.left() or self._hung_up:
            raise self._passed()

    def watch(self, connected: socket.socket) -> None:
        """Shut this socket down when the deadline passes; TimeoutError if that was already."""
        with self._lock:
            if not self._hung_up:
                self._sockets.append(connected)
                return
        connected.close()
        raise self._passed()

    def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns or raise what it raises; TimeoutError at the deadline, whatever it is doing."""
        future: Future[T] = Future()

        def fulfil() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  (raised again where it is waited for)
                future.set_exception(error)

        thread = threading.Thread(target=fulfil, name="skillyard-network", daemon=True)
        thread.start()
        try:
            thread.join(self.left())
        except BaseException:  # Ctrl-C, for example
            self._hang_up()
            raise
        if not future.done():
            self._hang_up()
            raise self._passed()
        return future.result()

    def _passed(self) -> TimeoutError:
        return TimeoutError(Message("it took longer than {seconds:g} s", seconds=self.seconds))

    def _hang_up(self) -> None:
        with self._lock:
            self._hung_up = True
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                # Not the method of a TLS socket: that takes its state away from the thread that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)
