"""Repairs our database: the damaged file is set aside under its own name, and the last good backup takes its place.

Nothing is ever deleted. The order of the renames is chosen so that a kill at any point leaves a state that the next
process repairs: the database goes first, so its -wal file is never applied to another database, and never lost.

Covered: not a database, damaged pages, zero length, missing with a -wal file or a backup left, kill -9 of the repair.
Not covered: damage that SQLite's integrity_check does not see, such as a changed letter in a text.
"""

import fcntl
import os
import shutil
import sqlite3
import time
from pathlib import Path

from skillyard.core.errors import SkillError, StateDamaged
from skillyard.core.messages import Message
from skillyard.store.atomic import damaged_name, list_damaged, put_in_place, sync_folder
from skillyard.store.backups import list_backups
from skillyard.store.connection import SUSPECT, StateConnection, check_integrity, connect
from skillyard.store.database import Damage, Tell, check_tables, make_new, open_sound, version_known
from skillyard.store.lockholders import describe, other_users

#: What SQLite keeps beside a database.
SIDES = ("-wal", "-shm", "-journal")
#: Of the byte range on which SQLite's processes hold their shared locks, for as long as they use a database.
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510


def repair(path: Path, lock_seconds: float, tell: Tell) -> StateConnection:
    """A connection to a sound file of whatever version. Hold the lock exclusively.

    Raises StateDamaged if another process still uses the damaged file: what it writes must not get lost."""
    try:
        _check_suspect(path, lock_seconds)
        return open_sound(path, lock_seconds)  # another process was faster
    except Damage as damage:
        reason = str(damage)
    is_new = not os.path.lexists(path) and not list_backups(path) and not _leftover_sides(path)
    if not is_new:
        _refuse_while_in_use(path, reason)
    aside = set_aside(path)
    source = _restore(path, lock_seconds)
    if source is None:
        make_new(path, lock_seconds)
    path.with_name(path.name + SUSPECT).unlink(missing_ok=True)
    if not is_new:
        tell(_as_told(path, reason, source, aside))
    return open_sound(path, lock_seconds)


def _check_suspect(path: Path, lock_seconds: float) -> None:
    """Another command met damage: believe it only if the whole file, looked through, shows it."""
    mark = path.with_name(path.name + SUSPECT)
    if not mark.exists() or not path.is_file() or path.stat().st_size == 0:
        return
    if complaint := check_integrity(path, lock_seconds, "mode=rw") or check_tables(path, lock_seconds):
        raise Damage(Message("is damaged: {complaint}", complaint=complaint))
    if not _is_writable(path, lock_seconds):
        raise Damage(Message("is damaged: its header says that nobody may write"))
    mark.unlink(missing_ok=True)


def _is_writable(path: Path, lock_seconds: float) -> bool:
    connection = sqlite3.connect(path, lock_seconds, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_READONLY
    finally:
        connection.close()
    return True


def _refuse_while_in_use(path: Path, reason: str) -> None:
    """A process that has the file open would go on writing into what was set aside."""
    users = other_users(path)
    if users or _is_locked_elsewhere(path):
        raise StateDamaged(
            Message(
                "{path} {reason}, and it is still used by {users}", path=path, reason=reason, users=describe(users)
            ),
            Message(
                "end that process, then run any command: it sets the damaged file aside and restores the last backup"
            ),
        )


def _is_locked_elsewhere(path: Path) -> bool:
    """Where /proc tells nothing. Nobody in this process uses the file, so to close it here takes no lock away."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def set_aside(path: Path) -> Path | None:
    """Rename the database, then what SQLite keeps beside it; the new name, or None if there was nothing.

    What a repair that died has left is put with the database that it belongs to."""
    aside = None
    if os.path.lexists(path):
        aside = damaged_name(path)
        path.rename(aside)
    left = _leftover_sides(path)
    if left and aside is None:
        aside = _widowed(path) or damaged_name(path)
    for ending in left:
        path.with_name(path.name + ending).rename(f"{aside}{ending}")
    if aside is not None:
        sync_folder(path.parent)
    return aside


def _leftover_sides(path: Path) -> list[str]:
    return [ending for ending in SIDES if os.path.lexists(f"{path}{ending}")]


def _widowed(path: Path) -> Path | None:
    """The newest database set aside, if its -wal file has not followed it yet."""
    whole = [name for name in list_damaged(path) if not name.name.endswith(SIDES)]
    newest = whole[-1] if whole else None
    return newest if newest and not any(os.path.lexists(f"{newest}{ending}") for ending in SIDES) else None


def _restore(path: Path, lock_seconds: float) -> Path | None:
    """Put a copy of the newest sound backup in place; None if there is none."""
    for backup in list_backups(path):
        fresh = path.with_name(f"{path.name}.restoring")
        fresh.unlink(missing_ok=True)
        try:
            shutil.copyfile(backup, fresh)
            fresh.chmod(0o600)
            _check_backup(fresh, lock_seconds)
        except (OSError, sqlite3.Error, SkillError, Damage):
            fresh.unlink(missing_ok=True)
            continue
        os.utime(fresh, (time.time(), backup.stat().st_mtime))
        put_in_place(fresh, path)
        return backup
    return None


def _check_backup(fresh: Path, lock_seconds: float) -> None:
    if complaint := check_integrity(fresh, lock_seconds, "immutable=1"):
        raise Damage(complaint)
    connection = connect(fresh, lock_seconds, "immutable=1")
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()
    if not 0 < version <= version_known():
        raise Damage("is of another version")


def _as_told(path: Path, reason: str, source: Path | None, aside: Path | None) -> StateDamaged:
    if aside is None or not os.path.lexists(aside):
        advice = Message(
            "grants are not affected; to start anew, remove {name} together with {name}.backup*", name=path.name
        )
    else:
        advice = Message(
            "grants are not affected; the damaged file is kept as {aside}, and `skillyard doctor` lists it", aside=aside
        )
    if source is None:
        return StateDamaged(
            Message(
                "{path} {reason}; there is no backup, so a new one was made without any history",
                path=path,
                reason=reason,
            ),
            advice,
        )
    minutes = max(0, round((time.time() - source.stat().st_mtime) / 60))
    return StateDamaged(
        Message(
            "{path} {reason}; the backup of {minutes} min ago was restored", path=path, reason=reason, minutes=minutes
        ),
        advice,
    )
