"""Conversations with backend agents: the state of each, its events, bounded in size, and which process works on it.

One row for each backend, working directory and name of ours. The agent's own session belongs to all three: an agent
that is asked for it from another directory does not find it. Events are kept as the agents' drivers report them; the
oldest goes first when a conversation grows too large. The caller removes secrets before.

A conversation that is `running` in the table and that no process has locked has lost its runtime.
"""

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.core.values import NOTHING, Json
from skillyard.store import locks
from skillyard.store.database import writing
from skillyard.store.locks import LockedFile

#: The size of a conversation's history, in characters; above it the oldest tenth is dropped.
HISTORY_CHARACTERS = 2_000_000
#: The size of an event's text; the rest is cut, with a mark.
EVENT_CHARACTERS = 20_000
#: What an event counts beside its texts.
_OVERHEAD = 100
#: Whoever only looks holds the lock for an instant: to be waited for, not taken for an owner.
_GLANCE_SECONDS = 1.0
_PIPE_BYTES = 4096
#: What lies in the folder for a conversation beside its lock: its cancel pipe, and the files of a kept-warm agent.
_BESIDE = (".bell", ".warm", ".sock", ".log", ".state", ".end")


class ConversationState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    #: Ready for the next turn.
    IDLE = "idle"
    #: Cancelled by whoever asked.
    STOPPED = "stopped"
    #: The agent, or the runtime around it, ended in the middle of a turn.
    CRASHED = "crashed"
    #: The turn came to its end, and the end is an error.
    FAILED = "failed"


_AT_WORK = (ConversationState.STARTING, ConversationState.RUNNING)


class Conversation(NamedTuple):
    """`session` is the agent's own, empty until it reported one; `run` that of the present turn, or of the latest."""

    id: int
    backend: str
    #: The agent's working directory.
    folder: str
    #: What the user calls it.
    name: str
    session: str
    state: ConversationState
    started: float
    last: float
    run: str


class ConversationEvent(NamedTuple):
    """What a driver reported, in which run, and when."""

    run: str
    at: float
    told: str
    text: str = ""
    data: Mapping[str, Json] = NOTHING


_SELECT = f"SELECT {', '.join(Conversation._fields)} FROM conversations WHERE"


class ConversationLocks:
    """The folder of all locks."""

    def __init__(self, folder: Path, ending: str = ".lock") -> None:
        self._folder, self._ending = folder, ending

    def warm(self) -> "ConversationLocks":
        """The other lock of each conversation: of the process that keeps an agent warm for it."""
        return ConversationLocks(self._folder, ".warm")

    def list(self) -> tuple[int, ...]:
        """The conversations that are locked."""
        numbers = sorted(int(path.stem) for path in self._folder.glob(f"*{self._ending}") if path.stem.isdecimal())
        return tuple(filter(self.is_held, numbers))

    def take(self, conversation_id: int) -> LockedFile | None:
        """Return None if another process works on it."""
        return LockedFile.attempt(self._path(conversation_id), _GLANCE_SECONDS)

    def is_held(self, conversation_id: int) -> bool:
        return locks.is_held(self._path(conversation_id))

    def remove(self, conversation_id: int) -> None:
        """Remove the lock file, and whatever a killed runtime left beside it."""
        for ending in (self._ending, *_BESIDE):
            self._path(conversation_id).with_suffix(ending).unlink(missing_ok=True)

    def _path(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}{self._ending}"


class Conversations:
    def __init__(self, connection: sqlite3.Connection, conversation_locks: ConversationLocks) -> None:
        self._connection, self._locks = connection, conversation_locks

    def open(self, backend: str, folder: str, name: str, moment: float) -> Conversation:
        """Find the conversation, or make it."""
        self._connection.execute(
            "INSERT INTO conversations (backend, folder, name, session, state, started, last, run, size) "
            "VALUES (?1, ?2, ?3, '', ?4, ?5, ?5, '', 0) ON CONFLICT DO NOTHING",
            (backend, folder, name, ConversationState.IDLE, moment),
        )
        if found := self.find(backend, folder, name):
            return found
        raise sqlite3.OperationalError("the conversation was forgotten while it was being opened")

    def find(self, backend: str, folder: str, name: str) -> Conversation | None:
        return next(iter(self._select("backend = ? AND folder = ? AND name = ?", backend, folder, name)), None)

    def get(self, number: int) -> Conversation | None:
        return next(iter(self._select("id = ?", number)), None)

    def list(
        self, limit: int = 100, *, backend: str = "", name: str = "", folder: str = ""
    ) -> tuple[Conversation, ...]:
        """The latest first; only those of a backend, name or folder, if given."""
        wanted = {"backend": backend, "name": name, "folder": folder}
        given = {column: value for column, value in wanted.items() if value}
        where = " AND ".join(f"{column} = ?" for column in given) or "true"
        return self._select(f"{where} ORDER BY last DESC, id DESC LIMIT ?", *given.values(), limit)

    def _select(self, where: str, *values: object) -> tuple[Conversation, ...]:
        return tuple(map(self._checked, self._connection.execute(f"{_SELECT} {where}", values).fetchall()))

    def _checked(self, row: tuple[Any, ...]) -> Conversation:
        """Write that a turn crashed if no process has it locked: it has lost its runtime.

        Only for the very turn that was seen: another may have begun since."""
        conversation = _conversation(row)
        if conversation.state not in _AT_WORK or self._locks.is_held(conversation.id):
            return conversation
        self._connection.execute(
            "UPDATE conversations SET state = ? WHERE id = ? AND state = ? AND run = ?",
            (ConversationState.CRASHED, conversation.id, conversation.state, conversation.run),
        )
        again = self._connection.execute(f"{_SELECT} id = ?", (conversation.id,)).fetchone()
        return _conversation(again) if again else conversation

    def hold(self, conversation: Conversation) -> LockedFile | None:
        """Lock it before a turn begins and until its end is written. Return None if another process has it."""
        return self._locks.take(conversation.id)

    def begin(self, conversation: Conversation, run: str, moment: float) -> None:
        """Write that a turn begins."""
        query = "UPDATE conversations SET state = ?, run = ?, last = ? WHERE id = ?"
        self._connection.execute(query, (ConversationState.STARTING, run, moment, conversation.id))

    def move(self, conversation: Conversation, state: ConversationState, moment: float, session: str = "") -> None:
        """Change its state, and the agent's own session if given."""
        self._connection.execute(
            "UPDATE conversations SET state = ?1, last = ?2, session = iif(?3 = '', session, ?3) WHERE id = ?4",
            (state, moment, _clean(session), conversation.id),
        )

    def record(self, conversation: Conversation, event: ConversationEvent) -> None:
        """Write at once, so that a crash loses nothing that came before it."""
        text = _clean(event.text)
        if len(text) > EVENT_CHARACTERS:
            text = f"{text[:EVENT_CHARACTERS]}… ({len(text) - EVENT_CHARACTERS} characters more)"
        data = json.dumps(event.data, default=dict)  # ASCII, so that whatever an agent said can be written
        if len(data) > EVENT_CHARACTERS:
            data = json.dumps({"cut": len(data)})
        size = len(text) + len(data) + _OVERHEAD
        with writing(self._connection):
            self._connection.execute(
                "INSERT INTO events (conversation, run, at, told, text, data, size) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (conversation.id, event.run, event.at, event.told, text, data, size),
            )
            (total,) = self._connection.execute(
                "UPDATE conversations SET size = size + ?, last = max(last, ?) WHERE id = ? RETURNING size",
                (size, event.at, conversation.id),
            ).fetchone()
            if total > HISTORY_CHARACTERS:
                self._drop_oldest(conversation.id)

    def _drop_oldest(self, number: int) -> None:
        """A tenth at once, so that most events drop nothing."""
        self._connection.execute(
            "DELETE FROM events WHERE conversation = ?1 AND id <= (SELECT max(id) FROM (SELECT id, sum(size) OVER "
            "(ORDER BY id DESC) AS total FROM events WHERE conversation = ?1) WHERE total > ?2)",
            (number, HISTORY_CHARACTERS * 9 // 10),
        )
        self._connection.execute(
            "UPDATE conversations SET size = (SELECT coalesce(sum(size), 0) FROM events WHERE conversation = ?1) "
            "WHERE id = ?1",
            (number,),
        )

    def history(self, conversation: Conversation, after: int = 0) -> "tuple[tuple[int, ConversationEvent], ...]":
        """The events in order, each with its number; `after` a number only the later ones."""
        rows = self._connection.execute(
            "SELECT id, run, at, told, text, data FROM events WHERE conversation = ? AND id > ? ORDER BY id",
            (conversation.id, after),
        )
        return tuple((number, ConversationEvent._make((*told, _from_data(data)))) for number, *told, data in rows)

    def forget_before(self, moment: float) -> int:
        """Drop conversations without an event since then, if no process works on them and no agent is warm."""
        rows = self._connection.execute("SELECT id FROM conversations WHERE last < ?", (moment,)).fetchall()
        return sum(self._forget(number, moment) for (number,) in rows)

    def _forget(self, number: int, moment: float) -> bool:
        lock = None if self._locks.warm().is_held(number) else self._locks.take(number)
        if lock is None:
            return False
        with lock, writing(self._connection):
            query = "DELETE FROM conversations WHERE id = ? AND last < ?"
            gone = self._connection.execute(query, (number, moment)).rowcount
            if gone:
                self._connection.execute("DELETE FROM events WHERE conversation = ?", (number,))
                self._locks.remove(number)
        return bool(gone)


def _conversation(row: tuple[Any, ...]) -> Conversation:
    """An unknown state, after bytes changed on the disk, counts as a crash."""
    found = Conversation._make(row)
    known = found.state in set(ConversationState)
    return found._replace(state=ConversationState(found.state) if known else ConversationState.CRASHED)


def _from_data(text: str) -> Mapping[str, Json]:
    """Return nothing if bytes of it changed on the disk: the rest of the event is shown."""
    with suppress(ValueError, TypeError):
        if isinstance(found := json.loads(text), dict):
            return found
    return NOTHING


def _clean(text: str) -> str:
    """Replace half surrogate pairs, which JSON can carry and the database cannot."""
    return text.encode("utf-8", "replace").decode()


class AgentSlots:
    """At most `count` agents at once, in all processes of this user together."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self.count = folder, count

    def take(self) -> LockedFile | None:
        """Return None if all are taken."""
        slots = (LockedFile.attempt(self._folder / f"slot-{number}.lock") for number in range(self.count))
        return next(filter(None, slots), None)


class CancelPipes:
    """Lets another process cancel a turn through a named pipe, one for each conversation.

    Nothing stale can be left behind: the kernel tells the sender if nobody listens. The message names the run, so one
    that comes late never cancels the next turn."""

    def __init__(self, folder: Path, ending: str = ".bell") -> None:
        self._folder, self._ending = folder, ending

    @contextmanager
    def listening(self, conversation_id: int, run: str, on_cancel: Callable[[], None]) -> Iterator[None]:
        """Within this block, call `on_cancel` in a thread of its own when this run is cancelled. Hold the lock."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(conversation_id)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # Open for both, so that it never ends when a sender closes, and we can wake the listener.
        pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        ended = threading.Event()
        listener = threading.Thread(target=_listen, args=(pipe, ended, run, on_cancel), daemon=True)
        listener.start()
        try:
            yield
        finally:
            ended.set()
            os.write(pipe, b"\n")
            listener.join()
            path.unlink(missing_ok=True)
            os.close(pipe)

    def cancel(self, conversation_id: int, run: str) -> bool:
        """Return whether anybody listened."""
        try:
            pipe = os.open(self._path(conversation_id), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENXIO}:
                return False
            raise
        try:
            os.write(pipe, f"{run}\n".encode())
        finally:
            os.close(pipe)
        return True

    def _path(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}{self._ending}"


def _listen(pipe: int, ended: threading.Event, run: str, on_cancel: Callable[[], None]) -> None:
    received = b""
    while True:
        received = (received + os.read(pipe, _PIPE_BYTES))[-_PIPE_BYTES:]
        if ended.is_set():
            return
        if run.encode() in received.split(b"\n")[:-1]:
            on_cancel()
            received = b""
