"""JSON objects, one on each line, between two processes of one user: who keeps an agent, and who has a task for it.

Covered: whoever belongs to another user is refused; what is no JSON object, or too long, is taken for a hang-up.
"""

import contextlib
import json
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from skillyard.backends.driver import Event, Told
from skillyard.backends.json_access import mapping, text
from skillyard.core.errors import (
    AgentNotInstalled,
    AgentSilent,
    AgentTooOld,
    BackendFailed,
    RuntimeFailed,
    SkillError,
    Stopped,
    Timeout,
    TooDeep,
)
from skillyard.core.messages import Message, as_json, of_json
from skillyard.core.values import Json

_PIECE_BYTES: Final = 1 << 16
#: As much as an agent's own lines may have.
_LINE_BYTES: Final = 64 << 20
#: What the kernel takes as the name of a socket, everywhere.
_NAME_BYTES: Final = 100
_KINDS: Final = (
    AgentNotInstalled,
    AgentTooOld,
    AgentSilent,
    BackendFailed,
    RuntimeFailed,
    Stopped,
    Timeout,
    TooDeep,
)
_ERRORS: Final[Mapping[str, type[SkillError]]] = {kind.__name__: kind for kind in _KINDS}


class Gone(Exception):
    """The other side hung up, or talks nonsense."""


class Wire:
    """Any thread sends; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._rest = bytearray()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, message: Mapping[str, Json]) -> None:
        """ASCII, so that half a character travels too. Raises Gone."""
        line = json.dumps(message, default=dict).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError:
            raise Gone from None

    def receive(self, seconds: float | None = None, most_bytes: int = _LINE_BYTES) -> dict[str, Json] | None:
        """The next message, or None when none came in time. Raises Gone."""
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            if searched > most_bytes:
                raise Gone
            if not self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
                return None
            self._rest += self._piece()
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise Gone from None
        if not isinstance(message, dict):
            raise Gone
        return message

    def close(self) -> None:
        """From any thread, more than once; whoever receives hears it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _piece(self) -> bytes:
        try:
            piece = self._connection.recv(_PIECE_BYTES)
        except OSError:
            piece = b""
        if not piece:
            raise Gone
        return piece


def listen(path: Path) -> socket.socket:
    """On a name that nobody listens on: what a killed process left there goes. Hold the lock that stands for it."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with open_name(path) as name:
            listener.bind(name)
        path.chmod(0o600)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def connect(path: Path) -> Wire | None:
    """None where nobody listens, or a stranger does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with open_name(path) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        return None
    if not is_ours(connection):
        connection.close()
        return None
    return Wire(connection)


def is_ours(connection: socket.socket) -> bool:
    """Whether the other side belongs to this user; outside Linux the folder, which is closed to others, says so."""
    credentials = getattr(socket, "SO_PEERCRED", None)
    if credentials is None:
        return True
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, credentials, struct.calcsize("3i")))
    return bool(user == os.geteuid())


@contextlib.contextmanager
def open_name(path: Path) -> Iterator[str]:
    """A name that is too long for the kernel is reached through its folder, which has a number while it is open."""
    if len(os.fsencode(path)) <= _NAME_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


# -- what travels


def event_as_json(event: Event) -> dict[str, Json]:
    return {"told": event.told.value, "text": event.text, "data": dict(event.data)}


def event_from(value: Json) -> Event:
    """Raises Gone."""
    told = mapping(value)
    try:
        return Event(Told(text(told.get("told"))), text(told.get("text")), mapping(told.get("data")))
    except ValueError:
        raise Gone from None


def error_as_json(error: SkillError) -> dict[str, Json]:
    """Everything that its words are made of, so that the other side can say it in any language."""
    hint = error.extra_hint
    return {
        "error": type(error).__name__,
        "msg": as_json(error.msg),
        "details": dict(error.details),
        "values": {name: as_json(value) for name, value in error.values.items()},
        "figures": dict(error.figures) if isinstance(error, Timeout) else {},
        "hint": as_json(hint) if hint else None,
    }


def error_from(told: Mapping[str, Json], backend: str) -> SkillError:
    msg, details = of_json(told.get("msg")), mapping(told.get("details"))
    kind = _ERRORS.get(text(told.get("error")))
    if kind is None:
        return BackendFailed(backend, msg, details=details)
    error = kind.__new__(kind)
    SkillError.__init__(
        error, msg, details=details, **{name: of_json(value) for name, value in mapping(told.get("values")).items()}
    )
    if isinstance(error, Timeout):
        error.figures = dict(mapping(told.get("figures")))
    hint = of_json(told.get("hint"))
    if isinstance(hint, Message):
        error.extra_hint = hint
    return error
