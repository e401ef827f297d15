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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from skillyard.core.errors import SkillError, StateDamaged, StateNewer
from skillyard.core.messages import Message
from skillyard.store import locks

_VERSIONS = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, project TEXT NOT NULL, agent TEXT NOT NULL, skill TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL, started REAL NOT NULL, seconds REAL, request TEXT NOT NULL, launch TEXT NOT NULL,
        result TEXT NOT NULL
    );
    CREATE INDEX runs_by_start ON runs (project, started);
    CREATE TABLE usage (
        project TEXT NOT NULL, skill TEXT NOT NULL, count INTEGER NOT NULL, last REAL NOT NULL,
        PRIMARY KEY (project, skill)
    ) WITHOUT ROWID;
    CREATE TABLE grants (
        project TEXT NOT NULL, skill TEXT NOT NULL, fingerprint TEXT NOT NULL, capability TEXT NOT NULL,
        granted REAL NOT NULL, PRIMARY KEY (project, skill, fingerprint, capability)
    ) WITHOUT ROWID;
    CREATE TABLE keys (
        digest TEXT PRIMARY KEY, prompt TEXT NOT NULL, boot TEXT NOT NULL, at REAL NOT NULL, result TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE trusts (project TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, granted REAL NOT NULL) WITHOUT ROWID;
    """,
    """
    CREATE TABLE activations (
        id INTEGER PRIMARY KEY, user TEXT NOT NULL, conversation TEXT NOT NULL, project TEXT NOT NULL,
        skill TEXT NOT NULL, activated REAL NOT NULL, UNIQUE (user, conversation, project, skill)
    );
    CREATE INDEX activations_by_skill ON activations (skill);
    """,
    """
    CREATE TABLE conversations (
        id INTEGER PRIMARY KEY AUTOINCREMENT, backend TEXT NOT NULL, folder TEXT NOT NULL, name TEXT NOT NULL,
        session TEXT NOT NULL, state TEXT NOT NULL, started REAL NOT NULL, last REAL NOT NULL, run TEXT NOT NULL,
        size INTEGER NOT NULL, UNIQUE (backend, folder, name)
    );
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, conversation INTEGER NOT NULL, run TEXT NOT NULL, at REAL NOT NULL,
        told TEXT NOT NULL, text TEXT NOT NULL, data TEXT NOT NULL, size INTEGER NOT NULL
    );
    CREATE INDEX events_by_conversation ON events (conversation, id);
    """,
    """
    ALTER TABLE runs ADD COLUMN job TEXT NOT NULL DEFAULT '';
    CREATE INDEX runs_of_jobs ON runs (project, started) WHERE job != '';
    """,
    # Grants and trust live in a file of their own; `_upgrade` moves them there first.
    """
    DROP TABLE grants;
    DROP TABLE trusts;
    """,
)
#: The version that this Skillyard writes.
VERSION = len(_VERSIONS)
#: The last version that kept grants in tables.
_WITH_GRANTS = 4
LOCK_SECONDS = 30.0
LOCK = "state.lock"

#: A page of SQLite has no less.
_SMALLEST_BYTES = 512
#: Of a -wal file; the last bit tells the order of bytes. All zero is one that was only just made.
_WAL_START = b"\x37\x7f\x06\x82"
_TABLES = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"
#: Its modification time is that of the latest attempt to make a backup.
BACKUP_LOCK = "backup.lock"
_BACKUP_SECONDS = 3600.0

#: An empty file beside the database: some statement met damage, so the next process that opens it checks all of it.
SUSPECT = ".suspect"

Tell = Callable[[SkillError], None]
T = TypeVar("T")


class StateConnection(sqlite3.Connection):
    """Raises StateDamaged and StateLocked in place of sqlite3's errors; other errors pass."""

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
            raise _damaged(self.path, OTHER_TABLES) from None

    def _named(self, error: sqlite3.DatabaseError) -> SkillError | None:
        if _code(error) == sqlite3.SQLITE_READONLY:  # a header in which a byte changed can claim it, too
            may_write = os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
            if may_write and not super().execute("PRAGMA query_only").fetchone()[0]:
                return _damaged(self.path, str(error))
        return as_named(error, self.path, self.lock_seconds)


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
    """Open the file. Raise sqlite3.Error. Statements raise named errors. `how`: `mode=ro` or `immutable=1`."""
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
    # A changed byte in a text must not hide the rest of the row.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


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
    """Return None for what is neither damage nor a lock. Mark damage, so that the next start checks everything."""
    if is_damage(error):
        return _damaged(path, str(error))
    if is_busy(error):
        return locks.as_locked(path, locks.describe_lock_holders(path), lock_seconds)
    return None


def _damaged(path: Path, reason: str) -> StateDamaged:
    """Return the error, and mark the file so that the next process that opens it checks all of it."""
    with suppress(OSError):  # a read-only home cannot be repaired either
        path.with_name(path.name + SUSPECT).touch(mode=0o600)
    error = StateDamaged(Message("{place}: {reason}", place=path, reason=reason), _CHECKED)
    error.details = {"reason": reason}
    return error


def _code(error: sqlite3.Error) -> int:
    """The primary result code, without the bits of the extended one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def check_integrity(path: Path, lock_seconds: float, how: str = "mode=ro") -> str:
    """Return SQLite's first complaint, or an empty text if the database is sound. Slow: every page is read.

    Marks nothing. Raise StateLocked, and sqlite3.OperationalError if it cannot be read for another reason."""
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


# -- opening


class Damage(Exception):
    """Why the file cannot be used; the message completes "state.db …"."""


def open_database(path: Path, lock_seconds: float = LOCK_SECONDS, tell: Tell = lambda _: None) -> sqlite3.Connection:
    """Open the database, and upgrade an older version step by step.

    Raise StateNewer, StateLocked, and StateDamaged if the file is damaged and cannot be repaired now. `tell` is called
    with every repair."""
    try:
        return _open(path, lock_seconds, tell)
    except (OSError, sqlite3.OperationalError) as error:
        if not _is_closed_to_us(path, error):
            raise
    return _open_to_read(path, lock_seconds)


def _is_closed_to_us(path: Path, error: OSError | sqlite3.OperationalError) -> bool:
    if isinstance(error, OSError):
        return error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
    return not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK))


def _open_to_read(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """Open the file read-only, or an empty database in its place; a write fails with `readonly`."""
    if os.access(path, os.R_OK) and path.is_file():
        # Without its -shm file, which nobody can make here, only the second can be read: it leaves out what a writer
        # that died has not yet moved into the file.
        for how in ("mode=ro", "immutable=1"):
            connection = connect(path, lock_seconds, how)
            try:
                if _checked_version(connection) == VERSION:
                    return connection
            except Damage as damage:
                connection.close()
                told = Message("{path} {damage}, and SKILLYARD_HOME cannot be written", path=path, damage=damage)
                advice = Message("run a command as the user who may write there: it repairs the file")
                raise StateDamaged(told, advice) from None
            except sqlite3.OperationalError:
                pass
            except SkillError:
                connection.close()
                raise
            connection.close()
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=StateConnection)
    connection.path, connection.lock_seconds = path, lock_seconds
    _upgrade(connection, None)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _open(path: Path, lock_seconds: float, tell: Tell) -> StateConnection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_name(LOCK)
    connection = None
    # What the exception holds on to must be gone before the repair looks who uses the file.
    with suppress(Damage), locks.holding(lock, lock_seconds, shared=True):
        connection = open_sound(path, lock_seconds)
    if connection is None:
        from skillyard.store.repair import repair  # noqa: PLC0415  (most starts find the file as it should be)

        with locks.holding(lock, lock_seconds):
            connection = repair(path, lock_seconds, tell)
    try:
        if read_version(connection) < VERSION:
            _upgrade(connection, path.parent, tell)
    except BaseException:
        connection.close()
        raise
    return connection


def open_sound(path: Path, lock_seconds: float) -> StateConnection:
    """Open a file that looks like ours, whatever its version. Hold the lock.

    Raise Damage with the reason, StateNewer, StateLocked and sqlite3.Error."""
    _check_file(path)
    connection = connect(path, lock_seconds)
    try:
        _checked_version(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_file(path: Path) -> None:
    """Raise Damage for what is visible without opening the file: to close it would release SQLite's locks on it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise Damage(Message("is a link to nothing") if path.is_symlink() else Message("is missing")) from None
    if not stat.S_ISREG(found.st_mode):
        raise Damage(Message("is not a plain file"))
    if found.st_size == 0:
        raise Damage(Message("is empty"))
    if found.st_size < _SMALLEST_BYTES:  # SQLite takes it for a new database
        raise Damage(Message("is cut off"))
    if not _has_sound_wal(path):
        raise Damage(Message("has a damaged -wal file"))
    if path.with_name(path.name + SUSPECT).exists():
        raise Damage("was found damaged by another command")
    if stat.S_IMODE(found.st_mode) & 0o077:
        with suppress(OSError):
            path.chmod(0o600)


def _has_sound_wal(path: Path) -> bool:
    """Whether SQLite will read the -wal file: it deletes one whose first bytes it does not know.

    Damage after that looks like what a killed writer leaves, and is not noticed."""
    try:
        file = os.open(f"{path}-wal", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        start = os.read(file, len(_WAL_START))
    finally:
        os.close(file)
    return not start.strip(b"\0") or (start[:3] == _WAL_START[:3] and start[3] in b"\x82\x83")


def _checked_version(connection: StateConnection) -> int:
    """Return the version of a file whose tables can be read. Raise Damage and StateNewer."""
    try:
        version = read_version(connection)
        if version > VERSION:
            told = Message("version {version}, and this Skillyard knows {known}", version=version, known=VERSION)
            raise StateNewer(Message("{place}: {reason}", place=connection.path, reason=told))
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'runs'").fetchone()[0]
    except StateDamaged as error:
        raise Damage(error.details.get("reason")) from None
    if version <= 0 or not found:
        raise Damage(Message("is not a database of Skillyard"))
    return version


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

    The file itself is never opened here: to close it would release the locks that SQLite has on it in this process.
    If it cannot be made, whoever opens it reports that.
    """
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


def make_new(path: Path, lock_seconds: float) -> None:
    """Make an empty database, which appears at once as a whole. Hold the lock exclusively.

    So a database of zero length is never one that is just being made."""
    fresh = path.with_name(f"{path.name}.new")
    for ending in ("", "-wal", "-shm", "-journal"):
        fresh.with_name(fresh.name + ending).unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = connect(fresh, lock_seconds)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = WAL")
        _upgrade(connection, None)
    finally:
        connection.close()
    from skillyard.store.atomic import put_in_place  # noqa: PLC0415  (once in a lifetime)

    put_in_place(fresh, path)


def check_tables(path: Path, lock_seconds: float) -> str:
    """Return what is wrong with the definitions of the tables; empty if nothing, or for another version."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    there = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", lock_seconds, uri=True)
    there.text_factory = bytes
    try:
        if read_version(there) != VERSION:
            return ""
        _upgrade(made, None)
        made.text_factory = bytes
        wanted, found = (set(each.execute(_TABLES).fetchall()) for each in (made, there))
    except sqlite3.DatabaseError as error:
        return str(error)
    except UnicodeDecodeError:
        return OTHER_TABLES
    finally:
        made.close()
        there.close()
    return "" if wanted <= found else OTHER_TABLES


def read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _upgrade(connection: sqlite3.Connection, home: Path | None, tell: Tell = lambda _: None) -> None:
    """Upgrade once, even if two processes start together: the second finds it done."""
    with writing(connection):
        version = read_version(connection)
        if home is not None and 0 < version <= _WITH_GRANTS:
            _move_grants(connection, home, tell)
        for step in _VERSIONS[version:]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _move_grants(connection: sqlite3.Connection, home: Path, tell: Tell) -> None:
    """Write the file of grants before the tables go: a crash in between leaves both, and then the file counts."""
    from skillyard.store.grants import GrantFile, GrantRow, TrustRow  # noqa: PLC0415  (once in a lifetime)

    grants = connection.execute("SELECT project, skill, fingerprint, capability, granted FROM grants").fetchall()
    trusts = connection.execute("SELECT project, fingerprint, granted FROM trusts").fetchall()
    GrantFile(home, tell).import_once(map(GrantRow._make, grants), map(TrustRow._make, trusts))
