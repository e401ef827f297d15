"""Opens our database: one SQLite file in the user's home, shared by every process of theirs.

A home that cannot be written can still be read: what is there is shown, and nothing but a write fails. A damaged file
is set aside and repaired (`repair.py`); one of a newer version is not touched.

Every process opens the file under a shared lock on `state.lock`, and makes or repairs it under an exclusive one.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skillyard.core.errors import SkillError, StateDamaged, StateNewer
from skillyard.core.messages import Message
from skillyard.store import locks
from skillyard.store.connection import OTHER_TABLES, SUSPECT, StateConnection, connect

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
#: The last version that kept grants in tables.
_WITH_GRANTS = 4
LOCK_SECONDS = 30.0
LOCK = "state.lock"

Tell = Callable[[SkillError], None]


class Damage(Exception):
    """Why the file cannot be used; the message completes "state.db …"."""


def open_database(path: Path, lock_seconds: float = LOCK_SECONDS, tell: Tell = lambda _: None) -> sqlite3.Connection:
    """The tables of the newest version; an older file is brought up to date, step by step.

    Raises StateNewer, StateLocked, and StateDamaged if the file is damaged and cannot be repaired now. `tell` hears of
    every repair."""
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
    """What is there, or nothing; a write says `readonly`."""
    if os.access(path, os.R_OK) and path.is_file():
        # Without its -shm file, which nobody can make here, only the second can be read: it leaves out what a writer
        # that died has not yet moved into the file.
        for how in ("mode=ro", "immutable=1"):
            connection = connect(path, lock_seconds, how)
            try:
                if _checked_version(connection) == len(_VERSIONS):
                    return connection
            except Damage as damage:
                connection.close()
                raise StateDamaged(
                    Message("{path} {damage}, and SKILLYARD_HOME cannot be written", path=path, damage=damage),
                    Message("run a command as the user who may write there: it repairs the file"),
                ) from None
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
        if _version(connection) < len(_VERSIONS):
            _upgrade(connection, path.parent, tell)
    except BaseException:
        connection.close()
        raise
    return connection


def open_sound(path: Path, lock_seconds: float) -> StateConnection:
    """A connection to a file that looks like ours, whatever its version. Hold the lock. Raises Damage with the reason,
    StateNewer, StateLocked and sqlite3.Error."""
    _look(path)
    connection = connect(path, lock_seconds)
    try:
        _checked_version(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _look(path: Path) -> None:
    """What can be told without opening it: to close the file would take away the locks that SQLite has on it in this
    process."""
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

    Damage further behind looks like what a writer that was killed leaves, and is not noticed."""
    try:
        file = os.open(f"{path}-wal", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        start = os.read(file, len(_WAL_START))
    finally:
        os.close(file)
    return not start.strip(b"\0") or (start[:3] == _WAL_START[:3] and start[3] in b"\x82\x83")


#: A page of SQLite has no less.
_SMALLEST_BYTES = 512
#: Of a -wal file; the last bit tells the order of bytes. All zero is one that was only just made.
_WAL_START = b"\x37\x7f\x06\x82"


def _checked_version(connection: StateConnection) -> int:
    """The version of a file whose tables can be read. Raises Damage and StateNewer."""
    try:
        version = _version(connection)
        if version > len(_VERSIONS):
            raise StateNewer(
                Message(
                    "{path} has version {version}, this Skillyard knows {count}",
                    path=connection.path,
                    version=version,
                    count=len(_VERSIONS),
                )
            )
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'runs'").fetchone()[0]
    except StateDamaged as error:
        raise Damage(error.msg.removeprefix(f"{connection.path}: ")) from None
    if version <= 0 or not found:
        raise Damage(Message("is not a database of Skillyard"))
    return version


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction: all of it is kept, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself ends it when the disk is full or fails
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def make_private(path: Path) -> None:
    """What was run, and with which params, is nobody else's business; SQLite gives its files beside it the same mode.

    The file itself is never opened here: to close it would take away the locks that SQLite has on it in this process.
    Where it cannot be made, whoever opens it finds out, and says so.
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
    """An empty database of the newest version, which appears at once as a whole. Hold the lock exclusively.

    So a database of zero length is never one that is only just being made."""
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
    """Empty if the tables are defined as this version defines them, else what is wrong. Other versions pass."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    there = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", lock_seconds, uri=True)
    there.text_factory = bytes
    try:
        if _version(there) != len(_VERSIONS):
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


_TABLES = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"


def version_known() -> int:
    return len(_VERSIONS)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _upgrade(connection: sqlite3.Connection, home: Path | None, tell: Tell = lambda _: None) -> None:
    """Once, even when two processes start together: the second finds it done."""
    with writing(connection):
        version = _version(connection)
        if home is not None and 0 < version <= _WITH_GRANTS:
            _move_grants(connection, home, tell)
        for step in _VERSIONS[version:]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_VERSIONS)}")


def _move_grants(connection: sqlite3.Connection, home: Path, tell: Tell) -> None:
    """Write the file before the tables go: a crash in between leaves both, and the file counts from then on."""
    from skillyard.store.grantfile import GrantFile, GrantRow, TrustRow  # noqa: PLC0415  (once in a lifetime)

    grants = connection.execute("SELECT project, skill, fingerprint, capability, granted FROM grants").fetchall()
    trusts = connection.execute("SELECT project, fingerprint, granted FROM trusts").fetchall()
    GrantFile(home, tell).import_once(map(GrantRow._make, grants), map(TrustRow._make, trusts))
