"""A backend's process: one JSON object on each line, both ways; and the turns that are played with it.

Covered: lines of any sensible length; a write never blocks on a backend that does not read; the whole process tree,
with the tools that the backend started, ends when we close it and when we are killed with SIGKILL.

A driver adds `_open` (the handshake), `_play` (one turn) and `_interrupt`. All but the last run in the thread that
iterates, so only `cancel` and `close` can come from another thread.
"""

import contextlib
import json
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, Full, Queue, SimpleQueue
from typing import Final

from skillyard.backends.driver import Start, Turn
from skillyard.core.backend_events import Ask, Event, EventKind, Permission, TurnEnd, refuse
from skillyard.core.child_process import DEPTH, deeper
from skillyard.core.errors import AgentSilent, BackendFailed, SkillError, Timeout
from skillyard.core.messages import Message
from skillyard.core.secrets import mask_keys
from skillyard.core.values import Json
from skillyard.sandbox.launch import Launch, make_sandbox

_PIECE_BYTES: Final = 1 << 16
#: A longer line is no message: it would be in memory several times.
_LINE_BYTES: Final = 64 << 20
#: How much of the end of stderr is kept, for the message if the backend fails.
_STDERR_BYTES: Final = 16_384
#: A backend that prints faster than anybody reads blocks after this many lines.
_MOST_LINES: Final = 10_000
#: How long a backend has, after its stdin was closed, to save its session and exit.
EXIT_SECONDS: Final = 2.0
#: One that closed its stdout is about to exit. On a busy machine that takes time, and its exit code says why it went.
_ENDED_EXIT_SECONDS: Final = 20.0
_NO_LIMIT: Final = 1e9
_LONGEST_WAIT_SECONDS: Final = 3600.0
#: How long a backend has to end a cancelled turn by itself.
_CANCEL_SECONDS: Final = 3.0
_MOST_WORDS: Final = 500
#: Limit for a tool's input and output in an event.
_MOST_SHOWN: Final = 2_000

_CREDENTIALS: Final = re.compile(
    r"log ?in\b|api.?key|credential|unauthori[sz]ed|authenticat|missing environment", re.IGNORECASE
)
_MODEL: Final = re.compile(
    r"\bmodel\b.*(not (found|exist|supported|available)|invalid|unknown)|issue with the selected model", re.IGNORECASE
)

#: What a driver's `_play` returns: the backend's own word for a turn that did not end well, else nothing.
Played = Generator[Event, None, str]
#: Turns a line of stderr into a message, if it stands for one.
AsMessage = Callable[[str], Mapping[str, Json] | None]


def no_message(_: str) -> None:
    """The `AsMessage` of a backend that prints no messages on stderr."""


class ProcessEnded(Exception):
    """The process is gone; no more messages will come."""


class _Cancelled(Exception):
    """A cancelled turn did not end by itself in time."""


class Process:
    """Any thread may send, wake and close; one receives. Raise OSError if not even the supervisor can start."""

    def __init__(
        self,
        argv: tuple[str, ...],
        folder: Path,
        env: Mapping[str, str],
        as_message: AsMessage = no_message,
        exit_seconds: float = EXIT_SECONDS,
    ) -> None:
        """`as_message` is for a backend that reports some things only on stderr."""
        self._as_message = as_message
        self._exit_seconds = exit_seconds
        self._sandbox = make_sandbox()
        try:
            self._program = self._sandbox.attach(Launch(argv=argv, cwd=folder, env=env, limit_seconds=_NO_LIMIT))
        except (OSError, ValueError):
            self._sandbox.close()
            raise
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._incoming: Queue[bytes | None] = Queue(_MOST_LINES)
        self._stderr = b""
        self._closing = threading.Lock()
        self._exit = ""
        #: Stdout is closed; messages from before may still wait to be received.
        self.ended = False
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read, self._listen)]
        for thread in self._threads:
            thread.start()

    def send(self, message: Mapping[str, Json]) -> None:
        """Never block. If the process is gone the message is lost; `receive` reports that."""
        self._outgoing.put(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Json] | None:
        """Return the next message, or None if none came in time. Raise ProcessEnded. Lines without JSON are ignored."""
        try:
            line = self._incoming.get(timeout=min(max(0.0, seconds), _LONGEST_WAIT_SECONDS))
        except Empty:
            return None
        if line is None:
            self._end()
            raise ProcessEnded
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._note(line + b"\n")
            return None
        return message if isinstance(message, dict) else None

    def forget(self) -> None:
        """Drop every message that was not received, but not the end of the process."""
        ended = False
        with contextlib.suppress(Empty):
            while True:
                ended |= self._incoming.get_nowait() is None
        if ended:
            self._end()

    def wake(self) -> None:
        """Make `receive` return now."""
        with contextlib.suppress(Full):  # then it has something to return anyway
            self._incoming.put_nowait(b"{}")

    def words(self) -> str:
        """Return the end of stderr, with the lines of stdout that were no messages."""
        return self._stderr.decode(errors="replace").strip()

    def close(self) -> str:
        """Close stdin, so that the backend can exit by itself, then end the process tree. Return how it ended."""
        with self._closing:
            if not self._exit:
                self._outgoing.put(None)
                self._exit = self._stop()
                for thread in self._threads:
                    self._join(thread)
                self._sandbox.close()
            self._end()
            return self._exit

    def _stop(self) -> str:
        try:
            code = self._program.wait(_ENDED_EXIT_SECONDS if self.ended else self._exit_seconds)
            code = self._program.stop() if code is None else code
        except OSError as error:
            return Message("it could not start: {strerror}", strerror=error.strerror or error)
        return Message("exit code {code}", code=code) if code >= 0 else f"signal {-code}"

    def _join(self, thread: threading.Thread) -> None:
        """The reader may wait for room in its queue. Outside Linux an escaped process may hold a stream open."""
        deadline = time.monotonic() + EXIT_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            with contextlib.suppress(Empty):
                self._incoming.get_nowait()
            thread.join(0.01)

    def _end(self) -> None:
        """The next `receive` raises ProcessEnded again."""
        with contextlib.suppress(Full):
            self._incoming.put_nowait(None)

    def _write(self) -> None:
        try:
            while (line := self._outgoing.get()) is not None:
                left = memoryview(line)
                while left:
                    left = left[os.write(self._program.stdin, left) :]
        except BrokenPipeError:
            return  # it is gone, or reads no more
        finally:
            os.close(self._program.stdin)

    def _read(self) -> None:
        rest: list[bytes] = []
        size = 0
        while size <= _LINE_BYTES and (piece := os.read(self._program.stdout, _PIECE_BYTES)):
            first, *more = piece.split(b"\n")
            rest.append(first)
            size += len(first)
            for line in more:
                self._incoming.put(b"".join(rest))
                rest, size = [line], len(line)
        if size > _LINE_BYTES:
            self._note(f"it sent a line of more than {_LINE_BYTES} bytes\n".encode())
        os.close(self._program.stdout)
        self.ended = True
        self._incoming.put(None)

    def _listen(self) -> None:
        rest = b""
        while piece := os.read(self._program.stderr, _PIECE_BYTES):
            self._note(piece)
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-_STDERR_BYTES:]
            for line in lines:
                if message := self._as_message(line.decode(errors="replace")):
                    self._incoming.put(json.dumps(message).encode())
        os.close(self._program.stderr)

    def _note(self, piece: bytes) -> None:
        self._stderr = (self._stderr + piece)[-_STDERR_BYTES:]


class RunningBackend(ABC):
    """Base class of every `Running`."""

    def __init__(self, backend: str, login: str, start: Start, process: Process) -> None:
        self.backend, self.session = backend, start.session
        self._login, self._start, self._process = login, start, process
        self._ask: Ask = refuse
        self._turn = Turn("")
        self._began = self._deadline = 0.0
        self._cancelled_at: float | None = None
        self._opened = self._closed = False
        self._busy = threading.Lock()
        #: The tools that run; meanwhile a silent backend is fine.
        self._tools: set[Json] = set()
        self._said: list[str] = []
        self._message: Json = None

    @abstractmethod
    def _open(self) -> None:
        """Do the handshake, within the first turn and its limits."""

    @abstractmethod
    def _play(self, text: str) -> Played: ...

    @abstractmethod
    def _interrupt(self) -> None:
        """Ask the backend to stop its turn. Called from any thread; must not block."""

    def _greet(self) -> None:
        """Do the handshake if no turn follows. Differs from `_open` for a backend that is silent in that."""
        self._open()

    def turn(self, turn: Turn, ask: Ask = refuse) -> Iterator[Event]:
        if not self._busy.acquire(blocking=False):
            raise BackendFailed(self.backend, Message("it is still busy with another turn"))
        try:
            yield from self._run(turn, ask)
        finally:
            self._busy.release()

    def hello(self, limit_seconds: float) -> None:
        self._begin(Turn("", limit_seconds, limit_seconds))
        try:
            self._greet()
            self._opened = True
        except (SkillError, ProcessEnded, _Cancelled) as error:
            raise self._as_error(error) from None

    def _begin(self, turn: Turn) -> None:
        self._turn, self._began = turn, time.monotonic()
        self._deadline = self._began + turn.limit_seconds

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

    def _run(self, turn: Turn, ask: Ask) -> Iterator[Event]:
        if self._closed and self._cancelled_at is None:
            raise BackendFailed(self.backend, Message("it was stopped; start it again with its session"))
        self._begin(turn)
        self._ask = ask
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
        except (SkillError, ProcessEnded, _Cancelled) as error:
            if not self._stopped:
                raise self._as_error(error) from None
        finally:
            if not whole:
                self.close()
        stop = TurnEnd.CANCELLED if not whole else TurnEnd.CUT if word else TurnEnd.END
        data: dict[str, Json] = {"stop": stop.value, "session": self.session}
        if word and stop is TurnEnd.CUT:
            data["reason"] = word
        yield Event(EventKind.DONE, "".join(self._said), data)

    @property
    def _stopped(self) -> bool:
        """Stopped by the caller: an error that follows from that is not reported."""
        return self._closed or self._cancelled_at is not None

    def _noted(self, events: Played) -> Played:
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                return str(end.value or "")
            if event.kind is EventKind.TEXT:
                if event.data.get("message") != self._message:
                    self._said, self._message = [], event.data.get("message")
                self._said.append(event.text)
            elif event.kind is EventKind.TOOL_CALL:
                self._tools.add(event.data.get("id"))
            elif event.kind is EventKind.TOOL_RESULT:
                self._tools.discard(event.data.get("id"))
            elif event.kind is EventKind.ERROR:
                event = event._replace(text=_clean(event.text))
            yield event

    def _next(self) -> Mapping[str, Json]:
        """Return the next message. Raise ProcessEnded, Timeout, AgentSilent or _Cancelled."""
        since = time.monotonic()
        while True:
            silent = float("inf") if self._tools else since + self._turn.silent_seconds
            end = min(silent, self._deadline)
            if self._cancelled_at is not None:
                end = self._cancelled_at + _CANCEL_SECONDS
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
        """Whether the settings or the person allow it. The time to answer does not count against the limit."""
        if permission.tool in self._start.allowed_tools:
            return True
        asked = time.monotonic()
        allowed = self._ask(permission)
        self._deadline += time.monotonic() - asked
        return allowed and self._cancelled_at is None

    def _failed(self, reason: str, status: int | None = None) -> BackendFailed:
        """Return an error with the backend's own words."""
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

    def _as_error(self, error: Exception) -> SkillError:
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
    backend: str, argv: Sequence[str], start: Start, env: Mapping[str, str], as_message: AsMessage = no_message
) -> Process:
    """Start a backend, one level deeper than we are. Raise TooDeep or BackendFailed."""
    told = {**env, "PWD": str(start.folder), DEPTH: deeper(env)}
    try:
        return Process(tuple(argv), start.folder, told, as_message)
    except (OSError, ValueError) as error:
        raise BackendFailed(backend, Message("it could not start: {strerror}", strerror=error)) from None


def _clean(words: str) -> str:
    """Put it on one line and mask secrets."""
    return shortened(" ".join(mask_keys(words).split()), _MOST_WORDS)


def shortened(words: str, most: int = _MOST_SHOWN) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def shown(value: Json) -> Json:
    """Return a tool's input for an event: as it is if it is short, else the beginning of its JSON."""
    whole = json.dumps(value, ensure_ascii=False)
    return value if len(whole) <= _MOST_SHOWN else shortened(whole)
