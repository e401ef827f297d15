"""Waits for a program, the clock and the runtime at once, and ends the whole tree whichever comes first."""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

#: The contract's Stop: SIGTERM, this long, SIGKILL.
GRACE_SECONDS: Final = 0.2
#: How long we wait for killed processes to be gone before we say so anyway.
_STUCK_SECONDS: Final = 5.0
_LONGEST_POLL_SECONDS: Final = 3600.0
#: Processes taken in at once: a program whose children end without pause must not keep us from the clock.
_MOST_REAPED: Final = 1000


class Watch:
    """For one run after the other. `ask` signals everybody, `kill` ends them; who that is, the way knows."""

    def __init__(self) -> None:
        self._main = 0
        #: As waitpid gives it; None while it runs.
        self.status: int | None = None
        self.timed_out = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)

    def wait(self, main: int, control: socket.socket, limit_seconds: float) -> None:
        """Until the program ended, the limit passed, or the runtime asked to stop or went away."""
        self._main, self.status, self.timed_out = main, None, False
        deadline = time.monotonic() + limit_seconds
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while self.reap() and self.status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self.timed_out = True
                return
            ready = poll.poll(min(left, _LONGEST_POLL_SECONDS) * 1000)
            if any(file != self._woken for file, _ in ready):
                return
        # Killed after the limit: the starter's clock was faster than ours.
        self.timed_out = self._was_killed() and time.monotonic() >= deadline

    def _was_killed(self) -> bool:
        return self.status == signal.SIGKILL

    def reap(self) -> bool:
        """Take in whoever ended; False when there is nobody left to wait for."""
        with contextlib.suppress(BlockingIOError):  # nobody ended since we looked last
            os.read(self._woken, 4096)
        for _ in range(_MOST_REAPED):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self.status = status
        with contextlib.suppress(BlockingIOError):  # it is full: we wake up anyway
            os.write(self._wake, b".")
        return True

    def end(self, ask: Callable[[], None], kill: Callable[[], None]) -> None:
        """After this nothing of the tree is left."""
        if self.status is None:
            ask()
            self._until(GRACE_SECONDS, lambda: not self.reap() or self.status is not None)
        self._until(_STUCK_SECONDS, lambda: not self.reap(), kill)

    def _until(self, seconds: float, done: Callable[[], bool], act: Callable[[], None] | None = None) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if act:
                act()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            select.select([self._woken], [], [], min(left, 0.05))


def _noted(*_: object) -> None:
    """A handler must exist for the wake-up pipe to be written."""
