"""One JSON object on each line, both ways: to a backend's process, and between two processes of ours.

Covered: lines of any sensible length; a write never blocks on a backend that does not read; the whole process tree,
with the tools that the backend started, ends when we close it and when we are killed with SIGKILL.
"""

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, Full, Queue, SimpleQueue
from typing import Final

from skillyard.core.messages import Message
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
#: What every kernel takes as the name of a socket.
_NAME_BYTES: Final = 100
_NO_LIMIT: Final = 1e9
_LONGEST_WAIT_SECONDS: Final = 3600.0


class ProcessEnded(Exception):
    """The process is gone; no more messages will come."""


class Process:
    """Any thread may send, wake and close; one receives. Raise OSError if not even the supervisor can start."""

    def __init__(
        self,
        argv: tuple[str, ...],
        folder: Path,
        env: Mapping[str, str],
        as_message: Callable[[str], Mapping[str, Json] | None] = lambda _: None,
        exit_seconds: float = EXIT_SECONDS,
    ) -> None:
        """`as_message` turns a line of stderr into a message, if it stands for one."""
        self._as_message, self._exit_seconds = as_message, exit_seconds
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
                try:
                    code = self._program.wait(_ENDED_EXIT_SECONDS if self.ended else self._exit_seconds)
                    code = self._program.stop() if code is None else code
                    self._exit = Message("exit code {code}", code=code) if code >= 0 else f"signal {-code}"
                except OSError as error:
                    self._exit = Message("it could not start: {strerror}", strerror=error.strerror or error)
                for thread in self._threads:
                    self._join(thread)
                self._sandbox.close()
            self._end()
            return self._exit

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


class Disconnected(Exception):
    """The other side closed the connection, or sent something else than our messages."""


class JsonConnection:
    """A JSON object on each line, between two processes of one user."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._lines = connected, connected.makefile("rb")

    def send(self, message: Mapping[str, Json]) -> None:
        """Raise Disconnected. ASCII, so that half a character can be sent too."""
        try:
            self._socket.sendall(json.dumps(message, default=dict).encode() + b"\n")
        except OSError:
            raise Disconnected from None

    def receive(self, seconds: float | None = None) -> dict[str, Json]:
        """Return the next message. Raise Disconnected, also if none comes in time: then the connection is of no use."""
        try:
            self._socket.settimeout(seconds)
            message = json.loads(self._lines.readline(_LINE_BYTES))
        except (OSError, ValueError, RecursionError):
            raise Disconnected from None
        if not isinstance(message, dict):
            raise Disconnected
        return message

    def finish(self, how: int = socket.SHUT_WR) -> None:
        """Send nothing more; the other side can still send."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(how)

    def close(self) -> None:
        """Thread-safe; a `receive` that waits raises Disconnected."""
        self.finish(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()


def connect(path: Path) -> JsonConnection | None:
    """Return None if nobody listens, or a process of another user does."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(OSError), open_name(path) as name:
        connected.connect(name)
        if is_ours(connected):
            return JsonConnection(connected)
    connected.close()
    return None


def is_ours(connected: socket.socket) -> bool:
    """Whether the other side belongs to this user. Outside Linux the closed folder ensures that."""
    credentials = getattr(socket, "SO_PEERCRED", None)
    if credentials is None:
        return True
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, credentials, struct.calcsize("3i")))
    return bool(user == os.geteuid())


@contextlib.contextmanager
def open_name(path: Path) -> Iterator[str]:
    """A name that is too long for the kernel is reached through the descriptor of its folder."""
    if len(os.fsencode(path)) <= _NAME_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
