"""Conversations with backend agents: where each stands, and what was told in it, bounded in size.

One row for each backend, working directory and name of ours. The agent's own session belongs to all three: an agent
that is asked for it from another directory does not find it. What was told is kept as the agents' drivers tell it; the
oldest goes first when a conversation grows too large. Secrets are taken out before, by whoever knows them.
"""

import json
import sqlite3
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from skillyard.core.values import NOTHING, Json
from skillyard.store.conversation_locks import Hold, Holds
from skillyard.store.database import writing

#: What a conversation's history may grow to, in characters; then the oldest tenth goes.
HISTORY_CHARACTERS = 2_000_000
#: What one event may say; the rest is cut, with a mark.
EVENT_CHARACTERS = 20_000
#: What an event costs beside its texts.
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
    #: The agent's own session; empty until it told.
    session: str
    state: ConversationState
    started: float
    last: float
    #: The run of the present turn, or of the latest.
    run: str


class Telling(NamedTuple):
    """One event as it is kept: what a driver told, in which run, and when."""

    run: str
    at: float
    told: str
    text: str = ""
    data: Mapping[str, Json] = NOTHING


_COLUMNS = ", ".join(Conversation._fields)


class Conversations:
    def __init__(self, connection: sqlite3.Connection, holds: Holds) -> None:
        self._connection = connection
        self._holds = holds

    def open(self, backend: str, folder: str, name: str, moment: float) -> Conversation:
        """Found, or made."""
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
        row = self._connection.execute(
            f"SELECT {_COLUMNS} FROM conversations WHERE backend = ? AND folder = ? AND name = ?",
            (backend, folder, name),
        ).fetchone()
        return self._as_it_stands(row) if row else None

    def get(self, number: int) -> Conversation | None:
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM conversations WHERE id = ?", (number,)).fetchone()
        return self._as_it_stands(row) if row else None

    def list(
        self, limit: int = 100, *, backend: str = "", name: str = "", folder: str = ""
    ) -> tuple[Conversation, ...]:
        """The latest first; only those of a backend, a name, a folder, where one is given."""
        wanted = {"backend": backend, "name": name, "folder": folder}
        given = {column: value for column, value in wanted.items() if value}
        where = " AND ".join(f"{column} = ?" for column in given) or "true"
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM conversations WHERE {where} ORDER BY last DESC, id DESC LIMIT ?",
            (*given.values(), limit),
        ).fetchall()
        return tuple(map(self._as_it_stands, rows))

    def hold(self, conversation: Conversation) -> Hold | None:
        """Take it before a turn begins, and keep it until its end is written down. None where another has it."""
        return self._holds.take(conversation.id)

    def begin(self, conversation: Conversation, run: str, moment: float) -> None:
        """A turn begins."""
        self._connection.execute(
            "UPDATE conversations SET state = ?, run = ?, last = ? WHERE id = ?",
            (ConversationState.STARTING, run, moment, conversation.id),
        )

    def move(self, conversation: Conversation, state: ConversationState, moment: float, session: str = "") -> None:
        """Into another state; with the agent's own session where it told one."""
        self._connection.execute(
            "UPDATE conversations SET state = ?1, last = ?2, session = iif(?3 = '', session, ?3) WHERE id = ?4",
            (state, moment, _clean(session), conversation.id),
        )

    def record(self, conversation: Conversation, telling: Telling) -> None:
        """Kept at once, so that a crash loses nothing of what was told before it."""
        text, data = _cut(telling.text), _as_data(telling.data)
        size = len(text) + len(data) + _OVERHEAD
        with writing(self._connection):
            self._connection.execute(
                "INSERT INTO events (conversation, run, at, told, text, data, size) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (conversation.id, telling.run, telling.at, telling.told, text, data, size),
            )
            (total,) = self._connection.execute(
                "UPDATE conversations SET size = size + ?, last = max(last, ?) WHERE id = ? RETURNING size",
                (size, telling.at, conversation.id),
            ).fetchone()
            if total > HISTORY_CHARACTERS:
                self._drop_oldest(conversation.id)

    def history(self, conversation: Conversation, after: int = 0) -> "tuple[tuple[int, Telling], ...]":
        """What was told, in order, each with its number; `after` a number only what came since."""
        rows = self._connection.execute(
            "SELECT id, run, at, told, text, data FROM events WHERE conversation = ? AND id > ? ORDER BY id",
            (conversation.id, after),
        )
        return tuple((number, Telling._make((*told, _from_data(data)))) for number, *told, data in rows)

    def forget_before(self, moment: float) -> int:
        """Drop conversations that nothing happened in since then, nobody is at work on and no agent is warm for."""
        rows = self._connection.execute("SELECT id FROM conversations WHERE last < ?", (moment,)).fetchall()
        return sum(self._forget(number, moment) for (number,) in rows)

    def _forget(self, number: int, moment: float) -> bool:
        hold = None if self._holds.warm().is_held(number) else self._holds.take(number)
        if hold is None:
            return False
        with hold, writing(self._connection):
            gone = self._connection.execute(
                "DELETE FROM conversations WHERE id = ? AND last < ?", (number, moment)
            ).rowcount
            if gone:
                self._connection.execute("DELETE FROM events WHERE conversation = ?", (number,))
                self._holds.remove(number)
        return bool(gone)

    def _as_it_stands(self, row: tuple[Any, ...]) -> Conversation:
        """A turn that nobody holds has lost its runtime: it crashed, and that is written down.

        Only for the very turn that was seen: another may have begun since.
        """
        conversation = _conversation(row)
        if conversation.state not in _AT_WORK or self._holds.is_held(conversation.id):
            return conversation
        self._connection.execute(
            "UPDATE conversations SET state = ? WHERE id = ? AND state = ? AND run = ?",
            (ConversationState.CRASHED, conversation.id, conversation.state, conversation.run),
        )
        again = self._connection.execute(
            f"SELECT {_COLUMNS} FROM conversations WHERE id = ?", (conversation.id,)
        ).fetchone()
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
    """A state that is none of ours, after bytes changed on the disk, is that of a turn that was lost."""
    found = Conversation._make(row)
    known = found.state in set(ConversationState)
    return found._replace(state=ConversationState(found.state) if known else ConversationState.CRASHED)


def _cut(text: str) -> str:
    text = _clean(text)
    if len(text) <= EVENT_CHARACTERS:
        return text
    return f"{text[:EVENT_CHARACTERS]}… ({len(text) - EVENT_CHARACTERS} characters more)"


def _as_data(data: Mapping[str, Json]) -> str:
    """ASCII, so that whatever an agent said can be written; what is too large is only counted."""
    written = json.dumps(data, default=dict)
    return written if len(written) <= EVENT_CHARACTERS else json.dumps({"cut": len(written)})


def _from_data(text: str) -> Mapping[str, Json]:
    """Nothing if bytes of it changed on the disk: the rest of the event is shown."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError):
        return NOTHING
    return found if isinstance(found, dict) else NOTHING


def _clean(text: str) -> str:
    """Half a character, which JSON can carry, cannot be kept."""
    return text.encode("utf-8", "replace").decode()
