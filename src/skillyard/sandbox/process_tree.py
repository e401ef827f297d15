"""Waits for a program, and ends its whole process tree: daemons, double forks, those that ignore SIGTERM.

The caller is a child subreaper, so whoever loses its parent becomes the caller's own child and is found here.
"""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

#: How a run is stopped: SIGTERM, this long, SIGKILL.
GRACE_SECONDS: Final = 0.2
#: How long we wait for killed processes to be gone before we report anyway.
_STUCK_SECONDS: Final = 5.0
_LONGEST_POLL_SECONDS: Final = 3600.0
#: Processes reaped at once: a program whose children end without pause must not keep us from the clock.
_MOST_REAPED: Final = 1000


def descendants(root: int, keep: Iterable[int] = ()) -> tuple[int, ...]:
    """All below `root`, parents first. Zombies are among them until somebody reaps them."""
    found: list[int] = []
    kept = frozenset(keep)
    waiting = [pid for pid in _children(root) if pid not in kept]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += _children(pid)
    return tuple(found)


def _children(pid: int) -> Iterator[int]:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        return  # it ended while we looked


def signal_all(pids: Iterable[int], which: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, which)


def kill_descendants(root: int | None = None, keep: Iterable[int] = ()) -> None:
    """End everybody below `root` (by default this process) except `keep` and those below them.

    Stop first, so that nobody forks while we look; kill when nobody new turns up.
    """
    seen: set[int] = set()
    while fresh := set(descendants(root or os.getpid(), keep)) - seen:
        signal_all(fresh, signal.SIGSTOP)
        seen |= fresh
    signal_all(seen, signal.SIGKILL)


class ChildWatcher:
    """Waits for a program, the clock and the runtime at once. Can be used for one run after the other."""

    def __init__(self) -> None:
        self._main = 0
        #: As waitpid gives it; None while it runs.
        self.status: int | None = None
        self.timed_out = False
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler the pipe is not written

    def wait(self, main: int, control: socket.socket, limit_seconds: float) -> None:
        """Return when the program ended, the limit passed, or the runtime asked to stop or went away."""
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
        """Reap whoever ended; return False when there is nobody left to wait for."""
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

    def end(self, terminate: Callable[[], None], kill: Callable[[], None]) -> None:
        """End the whole tree, with functions that signal everybody in it."""
        if self.status is None:
            terminate()
            self._wait_until(lambda: not self.reap() or self.status is not None, GRACE_SECONDS)
        self._wait_until(lambda: not self.reap(), _STUCK_SECONDS, kill)

    def _wait_until(self, done: Callable[[], bool], seconds: float, act: Callable[[], None] | None = None) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if act:
                act()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            select.select([self._woken], [], [], min(left, 0.05))
