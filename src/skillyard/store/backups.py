"""Backups of our database: a compact copy, made at most once an hour by a process that changed something.

Short commands make one after they have shown their result, and only while the database is small. Processes that live
long make them whatever its size. A copy is checked before it takes its name, so a damaged database never replaces a
good backup. The two newest are kept.
"""

import os
import sqlite3
import time
from pathlib import Path

from skillyard.core.errors import StateDamaged, StoreFailed
from skillyard.core.messages import Message
from skillyard.store import locks
from skillyard.store.atomic import put_in_place
from skillyard.store.database import BACKUP_LOCK, check_integrity, connect

BACKUP = ".backup"
OLDER = ".backup.1"
#: Limits for a short command, which somebody may be waiting for.
SHORT_BYTES = 32_000_000
SHORT_SECONDS = 2.0
#: How many instructions of SQLite's virtual machine run between two looks at the clock.
_STEPS = 10_000


def list_backups(path: Path) -> tuple[Path, ...]:
    """The existing backups, the newest first."""
    names = (path.with_name(path.name + ending) for ending in (BACKUP, OLDER))
    return tuple(name for name in names if name.is_file())


def back_up(path: Path, lock_seconds: float, *, is_short: bool = False) -> Path | None:
    """Make a backup; return None if another process does, or nothing changed, or it would take too long.

    Raise StateDamaged if the database is damaged, StoreFailed if the backup could not be written."""
    fresh = path.with_name(f"{path.name}{BACKUP}.new")
    try:
        with locks.trying(path.with_name(BACKUP_LOCK)) as held:
            if not held or not path.is_file() or not _has_changed(path):
                return None
            if is_short and path.stat().st_size > SHORT_BYTES:
                return None
            os.utime(path.with_name(BACKUP_LOCK))
            _clear(fresh)
            try:
                done = _copy(path, fresh, lock_seconds, SHORT_SECONDS if is_short else None)
                return _put_in_place(fresh, path) if done else None
            finally:
                _clear(fresh)
    except (OSError, sqlite3.Error) as error:
        raise StoreFailed(Message("{fresh}: no backup could be made: {error}", fresh=fresh, error=error)) from None


def _has_changed(path: Path) -> bool:
    newest = next(iter(list_backups(path)), None)
    if newest is None:
        return True
    times = [name.stat().st_mtime for name in (path, Path(f"{path}-wal")) if name.exists()]
    return max(times) > newest.stat().st_mtime


def _copy(path: Path, fresh: Path, lock_seconds: float, limit_seconds: float | None) -> bool:
    """Return False if the limit passed. Raise StateDamaged if the copy is not sound."""
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = connect(path, lock_seconds)
    try:
        if limit_seconds is not None:
            end = time.monotonic() + limit_seconds
            connection.set_progress_handler(lambda: int(time.monotonic() > end), _STEPS)
        connection.execute("VACUUM INTO ?", (str(fresh),))
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return False
        raise
    finally:
        connection.close()
    if found := check_integrity(fresh, lock_seconds, "immutable=1"):
        raise StateDamaged(Message("{fresh}: the new backup is not sound: {found}", fresh=fresh, found=found))
    return True


def _put_in_place(fresh: Path, path: Path) -> Path:
    newest, older = path.with_name(path.name + BACKUP), path.with_name(path.name + OLDER)
    if newest.exists():
        newest.replace(older)
    put_in_place(fresh, newest)
    return newest


def _clear(fresh: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        fresh.with_name(fresh.name + ending).unlink(missing_ok=True)
