"""What `doctor` says of our databases. Looks thoroughly, and changes nothing."""

import os
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import SkillError
from skillyard.core.messages import Message
from skillyard.store.atomic import list_damaged
from skillyard.store.backups import list_backups
from skillyard.store.connection import check_integrity
from skillyard.store.database import LOCK_SECONDS, check_tables, version_known


class StateReport(NamedTuple):
    """`problem` says what is wrong and what to do; it is empty if all is well. `version` is 0 if there is no file, or
    it could not be read."""

    version: int = 0
    size_bytes: int = 0
    problem: str = ""


class BackupReport(NamedTuple):
    path: Path
    age_seconds: float
    problem: str


def inspect_state(path: Path, lock_seconds: float = LOCK_SECONDS) -> StateReport:
    """The database as it lies there; a missing one is a problem only if something of it is left."""
    if not os.path.lexists(path):
        left = list_backups(path) or os.path.lexists(f"{path}-wal")
        return (
            StateReport(problem=Message("{path} is missing; `skillyard runs` restores it", path=path))
            if left
            else StateReport()
        )
    if not path.is_file():
        return StateReport(problem=Message("{path} is not a plain file; `skillyard runs` repairs it", path=path))
    size = path.stat().st_size
    if size == 0:
        return StateReport(problem=Message("{path} is empty; `skillyard runs` repairs it", path=path))
    try:
        if complaint := check_database(path, lock_seconds) or check_tables(path, lock_seconds):
            return StateReport(
                0,
                size,
                Message("{path} is damaged: {complaint}; `skillyard runs` repairs it", path=path, complaint=complaint),
            )
        version = _version_of(path, lock_seconds)
    except SkillError as error:
        return StateReport(0, size, error.msg)
    except (OSError, sqlite3.Error) as error:
        return StateReport(
            0, size, Message("{path} cannot be read: {error}; see `ls -l {path}`", path=path, error=error)
        )
    if version > version_known():
        return StateReport(
            version, size, Message("{path} was written by a newer Skillyard: `pip install -U skillyard`", path=path)
        )
    return StateReport(version, size)


def check_database(path: Path, lock_seconds: float = LOCK_SECONDS) -> str:
    """Empty if it is sound, else the first complaint of SQLite. In a read-only folder without what is in the -wal."""
    try:
        return check_integrity(path, lock_seconds)
    except sqlite3.OperationalError:
        return check_integrity(path, lock_seconds, "immutable=1")


def _version_of(path: Path, lock_seconds: float) -> int:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", lock_seconds, uri=True)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()


def inspect_backups(path: Path) -> tuple[BackupReport, ...]:
    """The newest first."""
    found = []
    for name in list_backups(path):
        try:
            problem = check_integrity(name, 0.0, "immutable=1")
        except (SkillError, sqlite3.Error) as error:
            problem = str(error)
        found.append(BackupReport(name, max(0.0, time.time() - name.stat().st_mtime), problem))
    return tuple(found)


def list_set_aside(home: Path) -> tuple[Path, ...]:
    """What was found damaged and is kept: databases and files of grants, without what SQLite keeps beside them."""
    names = (name for file in ("state.db", "grants.json", "grants.json.copy") for name in list_damaged(home / file))
    return tuple(name for name in names if not name.name.endswith(("-wal", "-shm", "-journal")))
