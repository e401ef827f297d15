"""How a person sees an agent at work, answers what it asks, and stops it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from skillyard.core.backend_events import Event, EventKind, Permission, Tell
from skillyard.core.messages import Lang, Message
from skillyard.faces.ask import confirm, on_terminal
from skillyard.faces.command import show_progress
from skillyard.faces.present import Steps, one_line
from skillyard.faces.skill_data import line_of
from skillyard.sandbox.cancel_token import CancelToken

#: The Ctrl-C that waits for nothing; one more is for a program that hangs itself.
_FORCING = 2


class Watching:
    """One task, watched by the person who gave it: what is shown, what is asked, and Ctrl-C."""

    def __init__(self, lang: Lang) -> None:
        self._lang = lang
        self._asking = False
        self._signals = 0
        self._steps: Steps | None = None
        self._at_line_start = True
        self.stop = CancelToken()

    @contextmanager
    def watching(self, *, stream: bool) -> Iterator[Tell]:
        """Within it the first Ctrl-C stops the agent, the second ends it at once. Gives who is to be told.

        Neither raises: an exception between any two lines would cut short what puts an end to the conversation. After
        them another Ctrl-C means nothing any more: all that is left is to show the result.
        """
        before = {number: signal.signal(number, self._signalled) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with Steps("→") as self._steps:
                yield self._stream if stream else self._step
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if self._signals else handler)
            if not self._at_line_start:
                show_progress(b"\n")

    def allows(self, permission: Permission) -> bool:
        """A person at the terminal, or nobody."""
        if not on_terminal():
            return False
        self._asking = True
        try:
            asks = Message("{tool} asks: {says}  Allow it?", tool=permission.tool, says=permission.says)
            return confirm(one_line(asks.render(self._lang)))
        except KeyboardInterrupt:
            self.stop.cancel()
            return False
        finally:
            self._asking = False

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """Hand the work to a thread: whoever was interrupted may hold a lock that it needs, or be writing to stderr."""
        del number, frame
        self._signals += 1
        if self._asking or self._signals > _FORCING:
            raise KeyboardInterrupt
        threading.Thread(target=self._stop if self._signals < _FORCING else self.stop.force).start()

    def _stop(self) -> None:
        stopping = Message("stopping (Ctrl-C again ends it at once)")
        show_progress(f"\n{stopping.render(self._lang)}\n".encode())
        self.stop.cancel()

    def _step(self, event: Event) -> None:
        """The latest of it, on one line, on a terminal only; what has to be waited for, always."""
        line = line_of(event.kind, event.text, event.data, self._lang)
        if event.kind is EventKind.WAITING and not sys.stderr.isatty():
            show_progress(f"→ {line}\n".encode())
        elif self._steps and line:
            self._steps(line)

    def _stream(self, event: Event) -> None:
        """Everything: text as it comes, the rest a line each."""
        if event.kind is EventKind.TEXT:
            show_progress(event.text.encode())
            if event.text:
                self._at_line_start = event.text.endswith("\n")
            return
        if line := line_of(event.kind, event.text, event.data, self._lang):
            show_progress(f"{'' if self._at_line_start else chr(10)}→ {one_line(line)}\n".encode())
            self._at_line_start = True
