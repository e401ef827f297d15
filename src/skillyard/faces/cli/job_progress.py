"""Somebody waits for a job: a line that moves on a terminal, events elsewhere, and nothing where a program reads."""

import os
import re
import sys
import time
from typing import NoReturn, Self, TextIO

from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message
from skillyard.faces.command import Options, ProgramLines, show_failure, style_of
from skillyard.faces.present import Steps, Style, write_lines

_PERCENT = re.compile(r"(\d{1,3})(?:\.\d+)?\s?%")
_OF = re.compile(r"(?<![\w/.-])(\d{1,9}) ?/ ?(\d{1,9})(?![\w/.-])")
_BAR_CELLS = 20
#: What is told as an event; how it ended is the result's to say.
_UNDER_WAY = ("queued", "running")


class Looking:
    """What a job says and where it stands. `hear` may come from another thread; only `look` draws."""

    def __init__(self, label: str, style: Style, err: TextIO | None = None) -> None:
        self._label, self._style = label, style
        self._err = err or sys.stderr
        self._line = Steps(label, err=self._err)
        self._started = time.monotonic()
        self._rest, self._note, self._state = b"", "", ""
        self._said = ProgramLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    @property
    def _moves(self) -> bool:
        return not self._style.json and self._err.isatty()

    def tell(self, text: str) -> None:
        """An event: it stays where it was printed."""
        if not self._style.json:
            self._line.clear()
            write_lines([text], self._style.lang, self._err)

    def hear(self, piece: bytes) -> None:
        """What the run says on stderr: its latest line on a terminal, every line elsewhere."""
        if not self._moves:
            if not self._style.json:
                self._said(piece)
            return
        *lines, self._rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
        said = [line for line in lines if line.strip()]
        if said:
            self._note = said[-1].decode("utf-8", "replace").strip()

    def look(self, state: str) -> None:
        """Where it stands now."""
        if self._moves:
            seconds = time.monotonic() - self._started
            parts = (state, f"{seconds:.0f} s", bar(self._note, is_ascii=self._style.ascii), self._note)
            self._line("  ".join(part for part in parts if part))
        elif state != self._state and state in _UNDER_WAY:
            self.tell(f"{self._label}: {state}")
        self._state = state


def bar(note: str, *, is_ascii: bool) -> str:
    """How far it has come, where its own words tell: `60%`, `3/5`."""
    if (percent := _PERCENT.search(note)) and int(percent[1]) <= 100:
        share = int(percent[1]) / 100
    elif (of := _OF.search(note)) and 0 < int(of[2]) >= int(of[1]):
        share = int(of[1]) / int(of[2])
    else:
        return ""
    full, empty = "#-" if is_ascii else "█░"
    done = int(share * _BAR_CELLS)
    return full * done + empty * (_BAR_CELLS - done)


def end_lost(options: Options) -> NoReturn:
    """Others may think that we are dead and do our job: it must end here, at once, and with nothing said of how."""
    lost = Message(
        "the database went away: the run here was stopped, and a worker does it again (`skillyard jobs` lists it)"
    )
    show_failure(RuntimeFailed(lost), style_of(options))
    sys.stdout.flush()
    os._exit(1)
