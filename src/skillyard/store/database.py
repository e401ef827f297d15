"""Our database: one SQLite file in the user's home, shared by every process of theirs.

A home that cannot be written can still be read: what is there is shown, and only a write fails. A damaged file is set
aside and repaired (`repair.py`); one of a newer version is not touched. What SQLite reports becomes a named error, and
damage is remembered, so that the next process checks the whole file.

Every process opens the file under a shared lock on `state.lock`, and makes or repairs it under an exclusive one.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from skillyard.core.errors import SkillError, StateDamaged, StateNewer
from skillyard.core.messages import Message
from skillyard.core.values import lazy_pattern
from skillyard.store import locks
from skillyard.store.locks import LOCK_SECONDS

#: The version of the tables. Earlier ones were never released.
VERSION = 7
LOCK = "state.lock"
#: Its modification time is that of the latest attempt to make a backup.
BACKUP_LOCK = "backup.lock"
_BACKUP_SECONDS = 3600.0
#: An empty file beside the database: some statement met damage, so the next process that opens it checks all of it.
SUSPECT = ".suspect"
#: When what the -wal file holds is moved to the database: a run writes five pages.
_WAL_PAGES = 200
#: A page of SQLite has no less.
_SMALLEST_BYTES = 512
#: Of a -wal file; the last bit tells the order of bytes.
_WAL_STARTS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
OTHER_TABLES = Message("the definition of a table was changed")
#: What SQLite says of a statement of ours if the definition of a table is not ours any more.
_OTHER_TABLES = lazy_pattern(
    "no such table|no such column|has no column|malformed database schema|unsupported file format|text encoding"
)

Tell = Callable[[SkillError], None]
T = TypeVar("T")


class StateConnection(sqlite3.Connection):
    """Raises StateDamaged and StateLocked in place of sqlite3's errors; other errors pass."""

    path: Path
    lock_seconds: float
    #: Whether damage is noted, so that the next process that opens the file checks all of it.
    marks: bool

    def cursor(self, *_: Any) -> "StateCursor":  # type: ignore[override]  # (any factory is ours)
        return super().cursor(StateCursor)

    # sqlite3's own method would make a cursor of its own class.
    def execute(self, *args: Any) -> "StateCursor":
        return self.cursor().execute(*args)

    def guarded(self, call: Callable[..., T], *args: Any) -> T:
        try:
            return call(*args)
        except sqlite3.DatabaseError as error:
            # No local name for it: the cycle would keep the statement, and with it the file, open.
            raise self._named(error) or error from None
        except UnicodeDecodeError:  # sqlite3 cannot even say what is wrong with the definition of a table
            raise self._damaged(OTHER_TABLES) from None

    def _named(self, error: sqlite3.DatabaseError) -> SkillError | None:
        """Return None for what is neither damage nor a lock."""
        code = primary_code(error)
        if code == sqlite3.SQLITE_BUSY:
            return locks.as_locked(self.path, locks.describe_lock_holders(self.path), self.lock_seconds)
        is_damage = code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
        if code == sqlite3.SQLITE_ERROR:
            is_damage = _OTHER_TABLES.search(str(error)) is not None
        elif code == sqlite3.SQLITE_READONLY and self.marks:  # a header in which a byte changed can claim it
            may_write = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
            is_damage = may_write and not super().execute("PRAGMA query_only").fetchone()[0]
        return self._damaged(str(error)) if is_damage else None

    def _damaged(self, reason: str) -> StateDamaged:
        if self.marks:
            with suppress(OSError):  # a read-only home cannot be repaired either
                self.path.with_name(self.path.name + SUSPECT).touch(mode=0o600)
        return as_damaged(self.path, reason)


class StateCursor(sqlite3.Cursor):
    connection: StateConnection

    def execute(self, *args: Any) -> Self:
        return self.connection.guarded(super().execute, *args)

    def fetchone(self) -> Any:
        return self.connection.guarded(super().fetchone)

    def fetchall(self) -> list[Any]:
        return self.connection.guarded(super().fetchall)

    def __next__(self) -> Any:
        return self.connection.guarded(super().__next__)


def connect(path: Path, lock_seconds: float, how: str = "", *, marks: bool = True) -> StateConnection:
    """Open the file. Raise sqlite3.Error. `how`: `mode=ro` or `immutable=1`, or `mode=memory` for an empty database."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}" if how else path,
        timeout=lock_seconds,
        isolation_level=None,
        check_same_thread=False,  # one thread uses it, and another may close it
        factory=StateConnection,
        uri=bool(how),
    )
    connection.path, connection.lock_seconds, connection.marks = path, lock_seconds, marks
    # A changed byte in a text must not hide the rest of the row.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def primary_code(error: sqlite3.Error) -> int:
    """The result code without the bits of the extended one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def as_damaged(path: Path, reason: str) -> StateDamaged:
    """Return the error. The reason, which completes "state.db …", is in its details."""
    advice = Message("run it again: the file is checked, and repaired where it has to be")
    error = StateDamaged(Message("{place}: {reason}", place=path, reason=reason), advice)
    error.details = {"reason": reason}
    return error


# -- opening


def open_database(path: Path, lock_seconds: float = LOCK_SECONDS, tell: Tell = lambda _: None) -> sqlite3.Connection:
    """Open the database; make or repair it first if it has to be. `tell` is called with every repair.

    Raise StateNewer, StateLocked, and StateDamaged if the file is damaged and cannot be repaired now."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = path.with_name(LOCK)
        # What the exception holds on to must be gone before the repair looks who uses the file.
        with suppress(StateDamaged), locks.holding(lock, lock_seconds, shared=True):
            return open_sound(path, lock_seconds)
        from skillyard.store.repair import repair  # noqa: PLC0415  (most starts find the file as it should be)

        with locks.holding(lock, lock_seconds):
            return repair(path, lock_seconds, tell)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
    except sqlite3.OperationalError:
        if os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK)):
            raise
    return _open_to_read(path, lock_seconds)


def _open_to_read(path: Path, lock_seconds: float) -> StateConnection:
    """Open the file read-only, or an empty database in its place; a write fails with `readonly`."""
    # Without its -shm file, which nobody can make here, only the second can be read: it leaves out what a writer that
    # died has not yet moved into the file.
    for how in ("mode=ro", "immutable=1") if os.access(path, os.R_OK) and path.is_file() else ():
        try:
            return connect_checked(path, lock_seconds, how)
        except StateDamaged as error:
            reason = str(error.details["reason"])
            told = Message("{path} {damage}, and SKILLYARD_HOME cannot be written", path=path, damage=reason)
            advice = Message("run a command as the user who may write there: it repairs the file")
            raise StateDamaged(told, advice) from None
        except sqlite3.OperationalError:
            continue
    connection = connect(path, lock_seconds, "mode=memory")
    connection.executescript(read_schema())
    connection.execute("PRAGMA query_only = ON")
    return connection


def open_sound(path: Path, lock_seconds: float) -> StateConnection:
    """Open a file that looks like ours. Hold the lock. Raise StateDamaged, StateNewer, StateLocked, sqlite3.Error."""
    if reason := _find_damage(path):
        raise as_damaged(path, reason)
    return connect_checked(path, lock_seconds)


def _find_damage(path: Path) -> str:
    """Return what is visible without opening the file: to close it would release SQLite's locks on it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return Message("is a link to nothing") if path.is_symlink() else Message("is missing")
    if not stat.S_ISREG(found.st_mode):
        return Message("is not a plain file")
    if found.st_size < _SMALLEST_BYTES:  # SQLite takes it for a new database
        return Message("is cut off") if found.st_size else Message("is empty")
    # SQLite deletes a -wal file whose first bytes it does not know, unless they are zero: that one was only just made.
    # Damage after them looks like what a killed writer leaves, and is not noticed.
    with suppress(FileNotFoundError):
        with os.fdopen(os.open(f"{path}-wal", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", 0) as wal:
            start = wal.read(4) or b""
        if start.strip(b"\0") and start not in _WAL_STARTS:
            return Message("has a damaged -wal file")
    if path.with_name(path.name + SUSPECT).exists():
        return "was found damaged by another command"
    if stat.S_IMODE(found.st_mode) & 0o077:
        with suppress(OSError):
            path.chmod(0o600)
    return ""


def connect_checked(path: Path, lock_seconds: float, how: str = "") -> StateConnection:
    """Open a file of our version whose tables can be read. Raise StateDamaged, StateNewer and sqlite3.Error."""
    with ExitStack() as stack:
        connection = stack.enter_context(closing(connect(path, lock_seconds, how)))
        version = read_version(connection)
        if version > VERSION:
            newer = Message("version {version}, and this Skillyard knows {known}", version=version, known=VERSION)
            raise StateNewer(Message("{place}: {reason}", place=path, reason=newer))
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'runs'").fetchone()[0]
        if version < VERSION or not found:
            raise as_damaged(path, Message("is not a database of Skillyard"))
        if not how:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            # The next process reads all of the -wal file first, because we end without closing the database.
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        stack.pop_all()
    return connection


def read_schema() -> str:
    return Path(__file__).with_name("schema.sql").read_text("ascii")


def read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_backup_due(path: Path, now: float) -> bool:
    """Whether the latest attempt (or the home, if there was none) is older than an hour. Cheap: every command asks."""
    for name in (BACKUP_LOCK, LOCK):
        try:
            return not 0 <= now - path.with_name(name).stat().st_mtime < _BACKUP_SECONDS
        except OSError:
            continue
    return False


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction: all of it is written, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself ends it when the disk is full or fails
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def make_private(path: Path) -> None:
    """Make the file readable for its user only; SQLite gives its files beside it the same mode.

    An existing file is not opened: to close it would release the locks that SQLite has on it in this process.
    If it cannot be made, whoever opens it reports that."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(OSError):
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
            os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            try:
                path.hardlink_to(fresh)  # of several that start together one succeeds
            finally:
                fresh.unlink()
        elif stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
