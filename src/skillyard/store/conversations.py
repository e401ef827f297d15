"""Conversations with backend agents: the state of each, and its events, bounded in size.

One row for each backend, working directory and name of ours. The agent's own session belongs to all three: an agent
that is asked for it from another directory does not find it. Events are kept as the agents' drivers report them; the
oldest goes first when a conversation grows too large. The caller removes secrets before.
"""

import json
import sqlite3
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from skillyard.core.values import NOTHING, Json
from skillyard.store.conversation_locks import ConversationLocks
from skillyard.store.database import writing
from skillyard.store.locks import LockedFile

#: The size of a conversation's history, in characters; above it the oldest tenth is dropped.
HISTORY_CHARACTERS = 2_000_000
#: The size of an event's text; the rest is cut, with a mark.
EVENT_CHARACTERS = 20_000
#: What an event counts beside its texts.
_OVERHEAD = 100


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
    id: int
    backend: str
    #: The agent's working directory.
    folder: str
    #: What the user calls it.
    name: str
    #: The agent's own session; empty until it reported one.
    session: str
    state: ConversationState
    started: float
    last: float
    #: The run of the present turn, or of the latest.
    run: str


class ConversationEvent(NamedTuple):
    """What a driver reported, in which run, and when."""

    run: str
    at: float
    told: str
    text: str = ""
    data: Mapping[str, Json] = NOTHING


_COLUMNS = ", ".join(Conversation._fields)


class Conversations:
    def __init__(self, connection: sqlite3.Connection, conversation_locks: ConversationLocks) -> None:
        self._connection = connection
        self._locks = conversation_locks

    def open(self, backend: str, folder: str, name: str, moment: float) -> Conversation:
        """Find the conversation, or make it."""
        self._connection.execute(
            "INSERT INTO conversations (backend, folder, name, session, state, started, last, run, size) "
            "VALUES (?1, ?2, ?3, '', ?4, ?5, ?5, '', 0) ON CONFLICT DO NOTHING",
            (backend, folder, name, ConversationState.IDLE, moment),
        )
        found = self.find(backend, folder, name)
        if found is None:
            raise sqlite3.OperationalError("the conversation was forgotten while it was being opened")
        return found

    def find(self, backend: str, folder: str, name: str) -> Conversation | None:
        query = f"SELECT {_COLUMNS} FROM conversations WHERE backend = ? AND folder = ? AND name = ?"
        row = self._connection.execute(query, (backend, folder, name)).fetchone()
        return self._checked(row) if row else None

    def get(self, number: int) -> Conversation | None:
        row = self._row(number)
        return self._checked(row) if row else None

    def _row(self, number: int) -> tuple[Any, ...] | None:
        query = f"SELECT {_COLUMNS} FROM conversations WHERE id = ?"
        row: tuple[Any, ...] | None = self._connection.execute(query, (number,)).fetchone()
        return row

    def list(
        self, limit: int = 100, *, backend: str = "", name: str = "", folder: str = ""
    ) -> tuple[Conversation, ...]:
        """The latest first; only those of a backend, name or folder, if given."""
        wanted = {"backend": backend, "name": name, "folder": folder}
        given = {column: value for column, value in wanted.items() if value}
        where = " AND ".join(f"{column} = ?" for column in given) or "true"
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM conversations WHERE {where} ORDER BY last DESC, id DESC LIMIT ?",
            (*given.values(), limit),
        ).fetchall()
        return tuple(map(self._checked, rows))

    def hold(self, conversation: Conversation) -> LockedFile | None:
        """Lock it before a turn begins and until its end is written. Return None if another process has it."""
        return self._locks.take(conversation.id)

    def begin(self, conversation: Conversation, run: str, moment: float) -> None:
        """Write that a turn begins."""
        self._connection.execute(
            "UPDATE conversations SET state = ?, run = ?, last = ? WHERE id = ?",
            (ConversationState.STARTING, run, moment, conversation.id),
        )

    def move(self, conversation: Conversation, state: ConversationState, moment: float, session: str = "") -> None:
        """Change its state, and the agent's own session if given."""
        self._connection.execute(
            "UPDATE conversations SET state = ?1, last = ?2, session = iif(?3 = '', session, ?3) WHERE id = ?4",
            (state, moment, _clean(session), conversation.id),
        )

    def record(self, conversation: Conversation, event: ConversationEvent) -> None:
        """Write at once, so that a crash loses nothing that came before it."""
        text, data = _cut(event.text), _as_data(event.data)
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

    def _checked(self, row: tuple[Any, ...]) -> Conversation:
        """Write that a turn crashed if no process has it locked: it has lost its runtime.

        Only for the very turn that was seen: another may have begun since.
        """
        conversation = _conversation(row)
        if conversation.state not in _AT_WORK or self._locks.is_held(conversation.id):
            return conversation
        self._connection.execute(
            "UPDATE conversations SET state = ? WHERE id = ? AND state = ? AND run = ?",
            (ConversationState.CRASHED, conversation.id, conversation.state, conversation.run),
        )
        again = self._row(conversation.id)
        return _conversation(again) if again else conversation

    def _drop_oldest(self, number: int) -> None:
        """A tenth at once, so that most events drop nothing."""
        last = self._connection.execute(
            "SELECT max(id) FROM (SELECT id, sum(size) OVER (ORDER BY id DESC) AS total FROM events "
            "WHERE conversation = ?) WHERE total > ?",
            (number, HISTORY_CHARACTERS * 9 // 10),
        ).fetchone()[0]
        self._connection.execute("DELETE FROM events WHERE conversation = ? AND id <= ?", (number, last))
        self._connection.execute(
            "UPDATE conversations SET size = (SELECT coalesce(sum(size), 0) FROM events WHERE conversation = ?1) "
            "WHERE id = ?1",
            (number,),
        )


def _conversation(row: tuple[Any, ...]) -> Conversation:
    """An unknown state, after bytes changed on the disk, counts as a crash."""
    found = Conversation._make(row)
    known = found.state in set(ConversationState)
    return found._replace(state=ConversationState(found.state) if known else ConversationState.CRASHED)


def _cut(text: str) -> str:
    text = _clean(text)
    if len(text) <= EVENT_CHARACTERS:
        return text
    return f"{text[:EVENT_CHARACTERS]}… ({len(text) - EVENT_CHARACTERS} characters more)"


def _as_data(data: Mapping[str, Json]) -> str:
    """ASCII JSON, so that whatever an agent said can be written; if it is too large, only its size."""
    written = json.dumps(data, default=dict)
    return written if len(written) <= EVENT_CHARACTERS else json.dumps({"cut": len(written)})


def _from_data(text: str) -> Mapping[str, Json]:
    """Return nothing if bytes of it changed on the disk: the rest of the event is shown."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError):
        return NOTHING
    return found if isinstance(found, dict) else NOTHING


def _clean(text: str) -> str:
    """Replace half surrogate pairs, which JSON can carry and the database cannot."""
    return text.encode("utf-8", "replace").decode()
