"""Repairs and inspects our database: a damaged file is set aside, and the last good backup takes its place.

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
from typing import NamedTuple

from skillyard.core.errors import SkillError, StateDamaged
from skillyard.core.messages import Message
from skillyard.store.atomic import damaged_name, list_damaged, put_in_place, sync
from skillyard.store.backups import list_backups
from skillyard.store.database import (
    LOCK_SECONDS,
    SUSPECT,
    VERSION,
    Damage,
    StateConnection,
    Tell,
    check_integrity,
    check_tables,
    connect,
    make_new,
    open_sound,
    read_version,
)
from skillyard.store.locks import describe, list_users

#: What SQLite keeps beside a database.
SIDES = ("-wal", "-shm", "-journal")
#: Of the byte range on which SQLite's processes hold their shared locks, for as long as they use a database.
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510


def repair(path: Path, lock_seconds: float, tell: Tell) -> StateConnection:
    """Repair the file and open it, whatever its version. Hold the lock exclusively.

    Raise StateDamaged if another process still uses the damaged file: what it writes must not get lost."""
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
    """Check the whole file if another command met damage. Raise Damage if there is some."""
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
    """A process that has the file open would continue to write into what was set aside."""
    users = list_users(path)
    if users or _is_locked_elsewhere(path):
        user = describe(users)
        raise StateDamaged(
            Message("{path} {reason}, and it is still used by {user}", path=path, reason=reason, user=user),
            Message("end that process, then run any command: it sets the file aside and restores the last backup"),
        )


def _is_locked_elsewhere(path: Path) -> bool:
    """For systems without /proc. Nobody in this process uses the file, so closing it here releases no lock."""
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
    """Rename the database, then its side files. Return the new name, or None if there was nothing.

    Side files that a killed repair left go with the database that they belong to."""
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
        sync(path.parent)
    return aside


def _leftover_sides(path: Path) -> list[str]:
    return [ending for ending in SIDES if os.path.lexists(f"{path}{ending}")]


def _widowed(path: Path) -> Path | None:
    """The newest database set aside, if its -wal file has not followed it yet."""
    whole = [name for name in list_damaged(path) if not name.name.endswith(SIDES)]
    newest = whole[-1] if whole else None
    return newest if newest and not any(os.path.lexists(f"{newest}{ending}") for ending in SIDES) else None


def _restore(path: Path, lock_seconds: float) -> Path | None:
    """Put a copy of the newest sound backup in place. Return None if there is none."""
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
        version = read_version(connection)
    finally:
        connection.close()
    if not 0 < version <= VERSION:
        raise Damage("is of another version")


def _as_told(path: Path, reason: str, source: Path | None, aside: Path | None) -> StateDamaged:
    name = path.name
    advice = Message("grants are not affected; to start anew, remove {name} together with {name}.backup*", name=name)
    if aside is not None and os.path.lexists(aside):
        advice = Message(
            "grants are not affected; the damaged file is kept as {aside}, and `skillyard doctor` lists it", aside=aside
        )
    done = Message("there is no backup, so a new one was made without any history")
    if source is not None:
        minutes = max(0, round((time.time() - source.stat().st_mtime) / 60))
        done = Message("the backup of {minutes} min ago was restored", minutes=minutes)
    return StateDamaged(Message("{path} {reason}; {done}", path=path, reason=reason, done=done), advice)


# -- what `doctor` reports: it looks thoroughly, and changes nothing


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
    """Inspect the database as it is; a missing one is a problem only if something of it is left."""
    if not os.path.lexists(path):
        left = list_backups(path) or os.path.lexists(f"{path}-wal")
        problem = Message("{path} is missing; `skillyard runs` restores it", path=path)
        return StateReport(problem=problem) if left else StateReport()
    if not path.is_file():
        return StateReport(problem=Message("{path} is not a plain file; `skillyard runs` repairs it", path=path))
    size = path.stat().st_size
    if size == 0:
        return StateReport(problem=Message("{path} is empty; `skillyard runs` repairs it", path=path))
    try:
        if complaint := check_database(path, lock_seconds) or check_tables(path, lock_seconds):
            problem = Message(
                "{path} is damaged: {complaint}; `skillyard runs` repairs it", path=path, complaint=complaint
            )
            return StateReport(0, size, problem)
        version = _version_of(path, lock_seconds)
    except SkillError as error:
        return StateReport(0, size, error.msg)
    except (OSError, sqlite3.Error) as error:
        problem = Message("{path} cannot be read: {error}; see `ls -l {path}`", path=path, error=error)
        return StateReport(0, size, problem)
    if version > VERSION:
        problem = Message("{path} was written by a newer Skillyard: `pip install -U skillyard`", path=path)
        return StateReport(version, size, problem)
    return StateReport(version, size)


def check_database(path: Path, lock_seconds: float = LOCK_SECONDS) -> str:
    """Return SQLite's first complaint, or an empty text. In a read-only folder the -wal file is not checked."""
    try:
        return check_integrity(path, lock_seconds)
    except sqlite3.OperationalError:
        return check_integrity(path, lock_seconds, "immutable=1")


def _version_of(path: Path, lock_seconds: float) -> int:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", lock_seconds, uri=True)
    try:
        return read_version(connection)
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
    """The damaged databases and files of grants that were set aside, without side files."""
    names = (name for file in ("state.db", "grants.json", "grants.json.copy") for name in list_damaged(home / file))
    return tuple(name for name in names if not name.name.endswith(SIDES))
