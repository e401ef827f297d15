"""Asks a run to end, from another thread than the one that waits for it."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stop:
    """Made before the run and given to it. Whoever holds it may ask once or often, before, during or after.

    Covered: a run that has not started does not start; one that runs gets the contract's Stop, with its whole tree.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._act: Callable[[], None] | None = None
        self._kill: Callable[[], None] | None = None
        self.asked = False

    def ask(self) -> None:
        with self._lock:
            self.asked = True
            if self._act:
                self._act()

    def force(self) -> None:
        """Ask, and do not wait for the run to wind down. Returns when it is gone, where the run can be forced."""
        self.ask()
        with self._lock:
            if self._kill:
                self._kill()

    @contextlib.contextmanager
    def acting(self, act: Callable[[], None], kill: Callable[[], None] | None = None) -> Iterator[None]:
        """`act` is what ends the run, `kill` what ends it at once; neither is called before or after this block."""
        with self._lock:
            self._act, self._kill = act, kill
            if self.asked:
                act()
        try:
            yield
        finally:
            with self._lock:
                self._act = self._kill = None
