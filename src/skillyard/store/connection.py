"""The connection to our database: what SQLite reports becomes a named error, and damage is remembered."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from skillyard.core.errors import SkillError, StateDamaged, StateLocked
from skillyard.core.messages import Message

#: An empty file beside the database: some statement met damage, so the next process that opens it checks all of it.
SUSPECT = ".suspect"

T = TypeVar("T")


class StateConnection(sqlite3.Connection):
    """Raises StateDamaged and StateLocked instead of sqlite3's errors for the same; others pass."""

    path: Path
    lock_seconds: float

    def cursor(self, *_: Any) -> "StateCursor":  # type: ignore[override]
        return super().cursor(StateCursor)

    # sqlite3's own methods would make cursors of its own class.
    def execute(self, *args: Any) -> "StateCursor":
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> "StateCursor":
        return self.cursor().executemany(*args)

    def guarded(self, call: Callable[..., T], *args: Any) -> T:
        try:
            return call(*args)
        except sqlite3.DatabaseError as error:
            # No local name for it: the cycle would keep the statement, and with it the file, open.
            raise self._named(error) or error from None
        except UnicodeDecodeError:  # sqlite3 cannot even say what is wrong with the definition of a table
            mark_suspect(self.path)
            raise StateDamaged(Message("{place}: {reason}", place=self.path, reason=OTHER_TABLES), _CHECKED) from None

    def _named(self, error: sqlite3.DatabaseError) -> SkillError | None:
        if _code(error) == sqlite3.SQLITE_READONLY and self._should_be_writable():
            mark_suspect(self.path)
            return StateDamaged(f"{self.path}: {error}", _CHECKED)
        return as_named(error, self.path, self.lock_seconds)

    def _should_be_writable(self) -> bool:
        """A header in which a byte changed can claim that nobody may write."""
        if not (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)):
            return False
        return not super().execute("PRAGMA query_only").fetchone()[0]


class StateCursor(sqlite3.Cursor):
    connection: StateConnection

    def execute(self, *args: Any) -> Self:
        return self.connection.guarded(super().execute, *args)

    def executemany(self, *args: Any) -> Self:
        return self.connection.guarded(super().executemany, *args)

    def fetchone(self) -> Any:
        return self.connection.guarded(super().fetchone)

    def fetchall(self) -> list[Any]:
        return self.connection.guarded(super().fetchall)

    def __next__(self) -> Any:
        return self.connection.guarded(super().__next__)


def connect(path: Path, lock_seconds: float, how: str = "") -> StateConnection:
    """Raises sqlite3.Error. Statements on the connection raise named errors. `how`: `mode=ro` or `immutable=1`."""
    address = f"{path.absolute().as_uri()}?{how}" if how else path
    connection = sqlite3.connect(
        address,
        lock_seconds,
        isolation_level=None,
        check_same_thread=False,  # one thread uses it, and another may close it
        factory=StateConnection,
        uri=bool(how),
    )
    connection.path, connection.lock_seconds = path, lock_seconds
    connection.text_factory = _decode
    return connection


def _decode(text: bytes) -> str:
    """A changed byte in a text must not keep the rest of the row from being shown."""
    return text.decode("utf-8", "replace")


OTHER_TABLES = Message("the definition of a table was changed")
_CHECKED = Message("run it again: the file is checked, and repaired where it has to be")
#: What SQLite says of a statement of ours if the definition of a table is not ours any more.
_OTHER_TABLES = (
    "no such table",
    "no such column",
    "has no column",
    "malformed database schema",
    "unsupported file format",
    "text encoding",
)


def is_damage(error: sqlite3.Error) -> bool:
    if _code(error) == sqlite3.SQLITE_ERROR:
        return any(words in str(error) for words in _OTHER_TABLES)
    return _code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_busy(error: sqlite3.Error) -> bool:
    return _code(error) == sqlite3.SQLITE_BUSY


def as_named(error: sqlite3.DatabaseError, path: Path, lock_seconds: float) -> SkillError | None:
    """None for what is neither damage nor a lock. Damage is marked, so that the next start checks everything."""
    if is_damage(error):
        mark_suspect(path)
        return StateDamaged(f"{path}: {error}", _CHECKED)
    if is_busy(error):
        from skillyard.store.lockholders import describe_lock_holders  # noqa: PLC0415  (only on failure)

        return StateLocked(
            Message(
                "{path}: {describe_lock_holders} has held it for {lock_seconds:g} s",
                path=path,
                describe_lock_holders=describe_lock_holders(path),
                lock_seconds=lock_seconds,
            )
        )
    return None


def mark_suspect(path: Path) -> None:
    try:
        path.with_name(path.name + SUSPECT).touch(mode=0o600)
    except OSError:  # a read-only home: it cannot be repaired either
        return


def _code(error: sqlite3.Error) -> int:
    """The primary code; the bits above tell the kinds of each."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def check_integrity(path: Path, lock_seconds: float, how: str = "mode=ro") -> str:
    """Empty if SQLite finds the database sound, else its first complaint. Slow: every page is read.

    Marks nothing. Raises StateLocked, and sqlite3.OperationalError if it cannot be read for another reason."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", lock_seconds, uri=True)
        try:
            found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return str(error)
        raise as_named(error, path, lock_seconds) or error from None
    except UnicodeDecodeError:
        return OTHER_TABLES
    return "" if found == "ok" else found
