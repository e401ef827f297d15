"""The last line of a terminal while something runs: a spinner, the time, how far it has come, what was said last.

Drawn by a timer signal of the main thread, not by a thread: docs/explanation/2026-11-18-two-views-of-a-result.md says
why. The handler only writes to the descriptor, so it may come between any two steps of the program.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple, Self, TextIO

from skillyard.faces.present import DRAWN, columns_of, cut, encodes, one_line

#: Nothing is drawn before so long a silence: most commands are over by then.
_SILENCE_SECONDS = 0.5
_EVERY_SECONDS = 0.1
_FRAMES, _ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
_BAR_CELLS = 20
_PROGRESS = re.compile(r"\s*progress\s*[:=]?\s*(\d+(?:\.\d+)?\s?%|\d+\s*/\s*\d+)(.*)", re.IGNORECASE)
_MOST_JSON = 2000


class Progress(NamedTuple):
    """How far a program says that it has come."""

    done: str
    note: str = ""


def read_progress(line: str) -> Progress | None:
    """Return what a line of stderr reports: `progress: 3/10 words`, or JSON with `progress` as 0.3, "3/10" or "30%"."""
    if found := _PROGRESS.match(line):
        return Progress(found[1], found[2].strip(" -:·"))
    if not (line.lstrip().startswith("{") and '"progress"' in line and len(line) < _MOST_JSON):
        return None
    try:
        told: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    value = told.get("progress")
    note = told.get("message")
    if isinstance(value, dict):
        value = f"{value.get('done')}/{value.get('total')}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value * 100 if value <= 1 else value:.0f}%"
    return Progress(value, note if isinstance(note, str) else "") if isinstance(value, str) else None


def bar(note: str, *, is_ascii: bool) -> str:
    """How far it has come, where its own words tell: `60%`, `3/5`."""
    if (percent := re.search(r"(\d{1,3})(?:\.\d+)?\s?%", note)) and int(percent[1]) <= 100:
        share = int(percent[1]) / 100
    elif (of := re.search(r"(?<![\w/.-])(\d{1,9}) ?/ ?(\d{1,9})(?![\w/.-])", note)) and 0 < int(of[2]) >= int(of[1]):
        share = int(of[1]) / int(of[2])
    else:
        return ""
    done, (full, empty) = int(share * _BAR_CELLS), "#-" if is_ascii else "█░"
    return full * done + empty * (_BAR_CELLS - done)


class LiveLine:
    """Drawn while it is entered, after half a second in which nothing else was written.

    `text` gives what stands behind the spinner and the time. One at a time: an inner one leaves the line to the outer.
    """

    def __init__(self, text: Callable[[], str], err: TextIO) -> None:
        self._text, self._file = text, err
        self.is_ascii = not encodes(f"{_FRAMES}█░", err.encoding or "utf-8")
        self._started = self._wrote = time.monotonic()
        self._frame, self._is_drawn = 0, False
        self._ticks = False

    def __enter__(self) -> Self:
        if DRAWN or os.environ.get("TERM", "dumb") == "dumb":
            return self
        with suppress(ValueError):  # only the main thread has signals
            signal.signal(signal.SIGALRM, self._tick)
            signal.siginterrupt(signal.SIGALRM, False)
            signal.setitimer(signal.ITIMER_REAL, _SILENCE_SECONDS, _EVERY_SECONDS)
            self._ticks = True
            DRAWN.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ticks:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            DRAWN.remove(self)
            self._ticks = False
        self.clear()

    def clear(self) -> None:
        """Wipe it out, for something else that is written there. It comes back after the next silence."""
        self._wrote = time.monotonic()
        if self._is_drawn:
            self._write("\r\x1b[K")
            self._is_drawn = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the line to a question."""
        if not self._ticks:
            yield
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.clear()
        try:
            yield
        finally:
            self._wrote = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, _SILENCE_SECONDS, _EVERY_SECONDS)

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._wrote < _SILENCE_SECONDS:
            return
        frames = _ASCII_FRAMES if self.is_ascii else _FRAMES
        self._frame = (self._frame + 1) % len(frames)
        text = one_line(f"{frames[self._frame]} {now - self._started:.0f} s  {self._text()}").rstrip()
        self._is_drawn = True
        self._write(f"\r{cut(text, columns_of(self._file) - 1)}\x1b[K")

    def _write(self, text: str) -> None:
        with suppress(OSError):
            os.write(self._file.fileno(), text.encode(self._file.encoding or "utf-8", "replace"))
