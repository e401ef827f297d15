"""Opens our database: one SQLite file in the user's home, shared by every process of theirs.

A home that cannot be written can still be read: what is there is shown, and nothing but a write fails.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
)


def open_database(path: Path) -> sqlite3.Connection:
    """The tables of the newest version; an older file is brought up to date, step by step."""
    try:
        return _open(path)
    except (OSError, sqlite3.OperationalError) as error:
        if not _is_closed_to_us(path, error):
            raise
    return _open_to_read(path)


def _is_closed_to_us(path: Path, error: OSError | sqlite3.OperationalError) -> bool:
    if isinstance(error, OSError):
        return error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
    return not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK))


def _open_to_read(path: Path) -> sqlite3.Connection:
    """What is there, or nothing; a write says `readonly`."""
    if os.access(path, os.R_OK):
        # Without its -shm file, which nobody can make here, only the second can be read: it leaves out what a writer
        # that died has not yet moved into the file.
        for how in ("mode=ro", "immutable=1"):
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?{how}", uri=True, timeout=30, isolation_level=None
            )
            try:
                if _version(connection) >= len(_VERSIONS):
                    return connection
            except sqlite3.OperationalError:
                pass
            connection.close()
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _upgrade(connection)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _open(path: Path) -> sqlite3.Connection:
    make_private(path)
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if _version(connection) < len(_VERSIONS):
            _upgrade(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction: all of it is kept, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
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


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _upgrade(connection: sqlite3.Connection) -> None:
    """Once, even when two processes start together: the second finds it done."""
    with writing(connection):
        for step in _VERSIONS[_version(connection) :]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_VERSIONS)}")
