"""Cancels a run from another thread than the one that waits for it."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class CancelToken:
    """Made before the run and passed to it. `cancel` may be called once or often, before, during or after the run.

    Covered: a cancelled run does not start; a running one is stopped (SIGTERM, then SIGKILL) with its whole tree.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callback: Callable[[], None] | None = None
        self._kill: Callable[[], None] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._callback:
                self._callback()

    def force(self) -> None:
        """Cancel without waiting for the run to wind down. Return when it is gone, if the run can be killed."""
        self.cancel()
        with self._lock:
            if self._kill:
                self._kill()

    @contextlib.contextmanager
    def on_cancel(self, callback: Callable[[], None], kill: Callable[[], None] | None = None) -> Iterator[None]:
        """Call `callback` on cancel, or at once if cancelled already, and `kill` on `force`; only within this block."""
        with self._lock:
            self._callback, self._kill = callback, kill
            if self.cancelled:
                callback()
        try:
            yield
        finally:
            with self._lock:
                self._callback = self._kill = None
