"""An agent's program while it runs: one JSON object on each line, both ways.

Covered: lines of any sensible length; a write never waits for an agent that does not read; the whole tree, with the
tools that the agent started, ends when we close it and when we are killed with -9.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, Full, Queue, SimpleQueue
from typing import Final

from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.sandbox.launch import Launch, make_sandbox

_PIECE_BYTES: Final = 1 << 16
#: A longer line is no message: it would stand in memory several times.
_LINE_BYTES: Final = 64 << 20
#: What is kept of the end of stderr, for the message when an agent fails.
_STDERR_BYTES: Final = 16_384
#: An agent that prints faster than anybody reads waits after this many lines.
_MOST_LINES: Final = 10_000
#: How long an agent has, after its stdin closed, to write its session down and go.
FAREWELL_SECONDS: Final = 2.0
#: One that closed its stdout is going already. A busy machine takes its time, and its exit code says why it went.
_LEAVING_SECONDS: Final = 20.0
_NO_LIMIT: Final = 1e9
_LONGEST_WAIT_SECONDS: Final = 3600.0


class Ended(Exception):
    """The agent is gone; nothing more will come."""


#: A message that a line of stderr stands for, if it does.
AsMessage = Callable[[str], Mapping[str, Json] | None]


def never(_: str) -> None:
    """The `AsMessage` of an agent whose stderr is only words."""


class Process:
    """Any thread may send, wake and close; one receives. Raises OSError where not even a supervisor can start."""

    def __init__(
        self,
        argv: tuple[str, ...],
        folder: Path,
        env: Mapping[str, str],
        as_message: AsMessage = never,
        farewell_seconds: float = FAREWELL_SECONDS,
    ) -> None:
        """`as_message` makes a message of a line of stderr, for an agent that tells some things only there."""
        self._as_message = as_message
        self._farewell_seconds = farewell_seconds
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
        #: It said its last; what it said before may still wait to be received.
        self.ended = False
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._read, self._listen)]
        for thread in self._threads:
            thread.start()

    def send(self, message: Mapping[str, Json]) -> None:
        """Never waits. What an agent that is gone does not read is lost: `receive` tells that it is gone."""
        self._outgoing.put(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Json] | None:
        """The next message, or None when none came yet. Raises Ended. A line that is no JSON object is noise."""
        try:
            line = self._incoming.get(timeout=min(max(0.0, seconds), _LONGEST_WAIT_SECONDS))
        except Empty:
            return None
        if line is None:
            self._end()
            raise Ended
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._note(line + b"\n")
            return None
        return message if isinstance(message, dict) else None

    def forget(self) -> None:
        """Whatever came and was not received; not that it ended."""
        ended = False
        with contextlib.suppress(Empty):
            while True:
                ended |= self._incoming.get_nowait() is None
        if ended:
            self._end()

    def wake(self) -> None:
        """Let `receive` return now."""
        with contextlib.suppress(Full):  # then it has something to return anyway
            self._incoming.put_nowait(b"{}")

    def words(self) -> str:
        """The last that it said on stderr, and whatever stood on stdout between the messages."""
        return self._stderr.decode(errors="replace").strip()

    def close(self) -> str:
        """How it ended. Its stdin closes first, so that an agent that wants to ends by itself; then nothing is left."""
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
            code = self._program.wait(_LEAVING_SECONDS if self.ended else self._farewell_seconds)
            code = self._program.stop() if code is None else code
        except OSError as error:
            return Message("it could not start: {strerror}", strerror=error.strerror or error)
        return Message("exit code {code}", code=code) if code >= 0 else f"signal {-code}"

    def _join(self, thread: threading.Thread) -> None:
        """The one that reads may be waiting for room. Outside Linux a process that got away may hold a stream open."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            with contextlib.suppress(Empty):
                self._incoming.get_nowait()
            thread.join(0.01)

    def _end(self) -> None:
        """Whoever receives next hears it again."""
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
