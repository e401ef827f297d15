"""What all running agents have in common: the clock, the end, the cancel and the words of an error.

A driver's own part is `_open` (the handshake), `_play` (one turn) and `_interrupt`; all but the last run in the thread
that iterates, so nothing here needs a lock but the two things that may come from outside: `cancel` and `close`.
"""

import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final

from skillyard.backends.driver import Ask, Event, Permission, Start, Stop, Told, Turn, refuse
from skillyard.backends.process import AsMessage, Ended, Process, never
from skillyard.core.depth import DEPTH, deeper
from skillyard.core.errors import AgentSilent, BackendFailed, SkillError, Timeout
from skillyard.core.messages import Message
from skillyard.core.secrets import mask_keys
from skillyard.core.values import Json

#: How long an agent has to end its turn by itself once it was told to.
_GRACE_SECONDS: Final = 3.0
_MOST_WORDS: Final = 500
#: Of a tool's input and of what came of it, in an event.
MOST_SHOWN: Final = 2_000

_CREDENTIALS: Final = re.compile(
    r"log ?in\b|api.?key|credential|unauthori[sz]ed|authenticat|missing environment", re.IGNORECASE
)
_MODEL: Final = re.compile(
    r"\bmodel\b.*(not (found|exist|supported|available)|invalid|unknown)|issue with the selected model", re.IGNORECASE
)

#: What a driver's `_play` gives back: the agent's own word for a turn that did not end well, else nothing.
Played = Generator[Event, None, str]


class _Cancelled(Exception):
    """The grace is over."""


class Agent(ABC):
    """A `Running`."""

    def __init__(self, backend: str, login: str, start: Start, process: Process) -> None:
        self.backend, self.session = backend, start.session
        self._login, self._start, self._process = login, start, process
        self._ask: Ask = refuse
        self._turn = Turn("")
        self._began = self._deadline = 0.0
        self._cancelled_at: float | None = None
        self._opened = self._closed = False
        self._busy = threading.Lock()
        #: The tools that run; while one does, silence means nothing.
        self._tools: set[Json] = set()
        self._said: list[str] = []
        self._message: Json = None

    # -- what a driver adds

    @abstractmethod
    def _open(self) -> None:
        """The handshake, within the first turn and its limits."""

    @abstractmethod
    def _play(self, text: str) -> Played: ...

    @abstractmethod
    def _interrupt(self) -> None:
        """Tell the agent to stop its turn; any thread, must not wait."""

    def _greet(self) -> None:
        """The handshake where no turn follows; other than `_open` only for an agent that says nothing in it."""
        self._open()

    # -- what everybody calls

    def turn(self, turn: Turn, ask: Ask = refuse) -> Iterator[Event]:
        if not self._busy.acquire(blocking=False):
            raise BackendFailed(self.backend, Message("it is still busy with another turn"))
        try:
            yield from self._run(turn, ask)
        finally:
            self._busy.release()

    def hello(self, limit_seconds: float) -> None:
        self._turn = Turn("", limit_seconds, limit_seconds)
        self._began = time.monotonic()
        self._deadline = self._began + limit_seconds
        try:
            self._greet()
            self._opened = True
        except (SkillError, Ended, _Cancelled) as error:
            raise self._told(error) from None

    def alive(self) -> bool:
        return not (self._stopped or self._process.ended)

    def cancel(self) -> None:
        if self._cancelled_at is None:
            self._cancelled_at = time.monotonic()
            self._interrupt()
            self._process.wake()

    def close(self) -> None:
        self._closed = True
        self._process.close()

    # -- a turn

    def _run(self, turn: Turn, ask: Ask) -> Iterator[Event]:
        if self._closed and self._cancelled_at is None:
            raise BackendFailed(self.backend, Message("it was stopped; start it again with its session"))
        self._turn, self._ask = turn, ask
        self._began = time.monotonic()
        self._deadline = self._began + turn.limit_seconds
        self._tools.clear()
        self._said, self._message = [], None
        word = ""
        whole = False
        try:
            if not self._opened:
                self._open()
                self._opened = True
            if self._cancelled_at is None:
                word = yield from self._noted(self._play(turn.text))
            whole = not self._stopped
        except (SkillError, Ended, _Cancelled) as error:
            if not self._stopped:
                raise self._told(error) from None
        finally:
            if not whole:
                self.close()
        stop = Stop.CANCELLED if not whole else Stop.CUT if word else Stop.END
        data: dict[str, Json] = {"stop": stop.value, "session": self.session}
        if word and stop is Stop.CUT:
            data["reason"] = word
        yield Event(Told.DONE, "".join(self._said), data)

    @property
    def _stopped(self) -> bool:
        """By somebody else: what the agent says of it is no error."""
        return self._closed or self._cancelled_at is not None

    def _noted(self, events: Played) -> Played:
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                return str(end.value or "")
            if event.told is Told.TEXT:
                if event.data.get("message") != self._message:
                    self._said, self._message = [], event.data.get("message")
                self._said.append(event.text)
            elif event.told is Told.TOOL_CALL:
                self._tools.add(event.data.get("id"))
            elif event.told is Told.TOOL_RESULT:
                self._tools.discard(event.data.get("id"))
            elif event.told is Told.ERROR:
                event = event._replace(text=_clean(event.text))
            yield event

    def _next(self) -> Mapping[str, Json]:
        """The next message. Raises Ended, Timeout, and _Cancelled when a cancelled turn does not end by itself."""
        since = time.monotonic()
        while True:
            silent = float("inf") if self._tools else since + self._turn.silent_seconds
            end = min(silent, self._deadline)
            if self._cancelled_at is not None:
                end = self._cancelled_at + _GRACE_SECONDS
            now = time.monotonic()
            if now >= end:
                raise self._late(now, silent)
            message = self._process.receive(end - now)
            if message:
                return message

    def _late(self, now: float, silent: float) -> Exception:
        elapsed = round(now - self._began, 3)
        if self._cancelled_at is not None:
            return _Cancelled()
        if now >= self._deadline or now < silent:
            return Timeout(self.backend, elapsed, self._turn.limit_seconds, "backend")
        return AgentSilent(self.backend, elapsed, self._turn.silent_seconds, self._last_words())

    def _allows(self, permission: Permission) -> bool:
        """What was opted in, else whoever is asked; the clock stands while a person thinks."""
        if permission.tool in self._start.allowed_tools:
            return True
        asked = time.monotonic()
        allowed = self._ask(permission)
        self._deadline += time.monotonic() - asked
        return allowed and self._cancelled_at is None

    # -- errors

    def _failed(self, reason: str, status: int | None = None) -> BackendFailed:
        """In the agent's own words, on one line, without secrets."""
        words = _clean(reason) or "it gave no reason"
        details: dict[str, Json] = {"session": self.session}
        if status:
            details["status"] = status
        error = BackendFailed(self.backend, words, details=details)
        error.extra_hint = self._advice(words, status)
        return error

    def _advice(self, words: str, status: int | None) -> Message | None:
        if status in {401, 403} or _CREDENTIALS.search(words):
            return Message("log in: {login}", login=self._login)
        if status == 429:
            return Message("try again later, or with another model")
        if status == 404 or _MODEL.search(words):
            return Message("name another model with --model")
        return None

    def _told(self, error: Exception) -> SkillError:
        if isinstance(error, SkillError):
            return error
        ended = self._process.close()
        words = self._last_words()
        crashed = self._failed(f"it ended without an answer ({ended})" + (f": {words}" if words else ""))
        crashed.details = {**crashed.details, "ended": ended}
        return crashed

    def _last_words(self) -> str:
        said = mask_keys(self._process.words()).splitlines()
        return shortened(" / ".join(line.strip() for line in said[-5:] if line.strip()), _MOST_WORDS)


def launch(
    backend: str, argv: Sequence[str], start: Start, env: Mapping[str, str], as_message: AsMessage = never
) -> Process:
    """The agent in its folder, one deeper than we are. Raises TooDeep, BackendFailed."""
    told = {**env, "PWD": str(start.folder), DEPTH: deeper(env)}
    try:
        return Process(tuple(argv), start.folder, told, as_message)
    except (OSError, ValueError) as error:
        raise BackendFailed(backend, Message("it could not start: {strerror}", strerror=error)) from None


def _clean(words: str) -> str:
    """On one line, without secrets."""
    return shortened(" ".join(mask_keys(words).split()), _MOST_WORDS)


def shortened(words: str, most: int = MOST_SHOWN) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def shown(value: Json) -> Json:
    """A tool's input, small enough for an event that is kept: its own form if it is short, else its beginning."""
    whole = json.dumps(value, ensure_ascii=False)
    return value if len(whole) <= MOST_SHOWN else shortened(whole)
