"""Backups of our database, and its repair: a damaged file is set aside, and the last good backup takes its place.

A backup is a compact copy, made at most once an hour by a process that changed something. Short commands make one after
they have shown their result, and only while the database is small; processes that live long make them whatever its
size. A copy is checked before it takes its name, so a damaged database never replaces a good backup.

A repair deletes nothing. The order of its renames is chosen so that a kill at any point leaves a state that the next
process repairs: the database goes first, so its -wal file is never applied to another database, and never lost.

Covered: not a database, damaged pages, zero length, missing with a -wal file or a backup left, kill -9 of the repair.
Not covered: damage that SQLite's integrity_check does not see, such as a changed letter in a text.
"""

import fcntl
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import SkillError, StateDamaged, StoreFailed
from skillyard.core.messages import Message
from skillyard.store import database, locks
from skillyard.store.atomic import damaged_name, list_damaged, put_in_place, sync
from skillyard.store.locks import LOCK_SECONDS, LockedFile

#: The two newest backups, the newest first.
BACKUPS = (".backup", ".backup.1")
#: Limits of a backup by a short command, which somebody may be waiting for.
SHORT_BYTES = 32_000_000
SHORT_SECONDS = 2.0
#: How many instructions of SQLite's virtual machine run between two looks at the clock.
_STEPS = 10_000
#: What SQLite keeps beside a database.
SIDES = ("-wal", "-shm", "-journal")
#: Of the byte range on which SQLite's processes hold their shared locks, for as long as they use a database.
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_TABLES = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'"


# -- backups


def list_backups(path: Path) -> tuple[Path, ...]:
    """The existing backups, the newest first."""
    names = (path.with_name(path.name + ending) for ending in BACKUPS)
    return tuple(name for name in names if name.is_file())


def back_up(path: Path, lock_seconds: float, *, is_short: bool = False) -> Path | None:
    """Make a backup; return None if another process does, or nothing changed, or it would take too long.

    Raise StateDamaged if the database is damaged, StoreFailed if the backup could not be written."""
    newest, older = (path.with_name(path.name + ending) for ending in BACKUPS)
    fresh = newest.with_name(f"{newest.name}.new")
    try:
        lock = LockedFile.attempt(path.with_name(database.BACKUP_LOCK))
        if lock is None:
            return None
        with lock:
            if not _has_changed(path) or (is_short and path.stat().st_size > SHORT_BYTES):
                return None
            os.utime(path.with_name(database.BACKUP_LOCK))
            try:
                if not _copy(path, fresh, lock_seconds, SHORT_SECONDS if is_short else None):
                    return None
                if newest.exists():
                    newest.replace(older)
                put_in_place(fresh, newest)
                return newest
            finally:
                _clear(fresh)
    except (OSError, sqlite3.Error) as error:
        raise StoreFailed(Message("{fresh}: no backup could be made: {error}", fresh=fresh, error=error)) from None


def _has_changed(path: Path) -> bool:
    """Whether there is a database with something that the newest backup does not have."""
    times = [name.stat().st_mtime for name in (path, Path(f"{path}-wal")) if name.exists()]
    backups = list_backups(path)
    return path.is_file() and (not backups or max(times) > backups[0].stat().st_mtime)


def _copy(path: Path, fresh: Path, lock_seconds: float, limit_seconds: float | None) -> bool:
    """Return False if the limit passed. Raise StateDamaged if the copy is not sound."""
    _make_empty(fresh)
    with closing(database.connect(path, lock_seconds)) as connection:
        if limit_seconds is not None:
            end = time.monotonic() + limit_seconds
            connection.set_progress_handler(lambda: int(time.monotonic() > end), _STEPS)
        try:
            connection.execute("VACUUM INTO ?", (str(fresh),))
        except sqlite3.OperationalError as error:
            if database.primary_code(error) == sqlite3.SQLITE_INTERRUPT:
                return False
            raise
    if found := check_integrity(fresh, lock_seconds, "immutable=1"):
        raise StateDamaged(Message("{fresh}: the new backup is not sound: {found}", fresh=fresh, found=found))
    return True


def _make_empty(fresh: Path) -> None:
    _clear(fresh)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _clear(fresh: Path) -> None:
    for ending in ("", *SIDES):
        fresh.with_name(fresh.name + ending).unlink(missing_ok=True)


# -- repair


def repair(path: Path, lock_seconds: float, tell: database.Tell) -> database.StateConnection:
    """Repair the file, or make it, and open it. Hold the lock exclusively.

    Raise StateDamaged if another process still uses the damaged file: what it writes must not get lost."""
    mark = path.with_name(path.name + database.SUSPECT)
    try:
        if mark.exists() and path.is_file() and path.stat().st_size > 0:
            _check_whole(path, lock_seconds)
            mark.unlink(missing_ok=True)
        return database.open_sound(path, lock_seconds)  # another process was faster
    except StateDamaged as error:
        reason = str(error.details["reason"])
    is_new = not os.path.lexists(path) and not list_backups(path) and not _leftover_sides(path)
    users = () if is_new else locks.list_users(path)
    if users or _is_locked_elsewhere(path):  # it would continue to write into what was set aside
        user = locks.describe(users)
        raise StateDamaged(
            Message("{path} {reason}, and it is still used by {user}", path=path, reason=reason, user=user),
            Message("end that process, then run any command: it sets the file aside and restores the last backup"),
        )
    aside = _set_aside(path)
    done = _restore(path, lock_seconds)
    mark.unlink(missing_ok=True)
    if not is_new:
        name = path.name
        advice = Message(
            "grants are not affected; to start anew, remove {name} together with {name}.backup*", name=name
        )
        if aside is not None and os.path.lexists(aside):
            advice = Message(
                "grants are not affected; the damaged file is kept as {aside}, and `skillyard doctor` lists it",
                aside=aside,
            )
        tell(StateDamaged(Message("{path} {reason}; {done}", path=path, reason=reason, done=done), advice))
    return database.open_sound(path, lock_seconds)


def _check_whole(path: Path, lock_seconds: float) -> None:
    if complaint := check_integrity(path, lock_seconds, "mode=rw") or _check_tables(path, lock_seconds):
        raise database.as_damaged(path, Message("is damaged: {complaint}", complaint=complaint))
    with closing(sqlite3.connect(path, timeout=lock_seconds, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if database.primary_code(error) == sqlite3.SQLITE_READONLY:
                raise database.as_damaged(path, Message("is damaged: its header says that nobody may write")) from None


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


def _set_aside(path: Path) -> Path | None:
    """Rename the database, then its side files. Return the new name, or None if there was nothing.

    Side files that a killed repair left go with the database that they belong to."""
    aside = None
    if os.path.lexists(path):
        aside = damaged_name(path)
        path.rename(aside)
    left = _leftover_sides(path)
    if left and aside is None:
        whole = [name for name in list_damaged(path) if not name.name.endswith(SIDES)]
        # The newest database set aside, if its side files have not followed it yet.
        aside = whole[-1] if whole and not _leftover_sides(whole[-1]) else damaged_name(path)
    for ending in left:
        path.with_name(path.name + ending).rename(f"{aside}{ending}")
    if aside is not None:
        sync(path.parent)
    return aside


def _leftover_sides(path: Path) -> list[str]:
    return [ending for ending in SIDES if os.path.lexists(f"{path}{ending}")]


def _restore(path: Path, lock_seconds: float) -> Message:
    """Put a copy of the newest sound backup in place, or a new database. Return what was done."""
    fresh = path.with_name(f"{path.name}.restoring")
    for backup in list_backups(path):
        fresh.unlink(missing_ok=True)
        try:
            shutil.copyfile(backup, fresh)
            fresh.chmod(0o600)
            if check_integrity(fresh, lock_seconds, "immutable=1"):
                continue
            database.connect_checked(fresh, lock_seconds, "immutable=1").close()
        except (OSError, sqlite3.Error, SkillError):
            continue
        made = backup.stat().st_mtime
        os.utime(fresh, (time.time(), made))
        put_in_place(fresh, path)
        return Message("the backup of {minutes} min ago was restored", minutes=max(0, round((time.time() - made) / 60)))
    fresh.unlink(missing_ok=True)
    _make_new(path, lock_seconds)
    return Message("there is no backup, so a new one was made without any history")


def _make_new(path: Path, lock_seconds: float) -> None:
    """Make an empty database, which appears at once as a whole: one of zero length is never just being made."""
    fresh = path.with_name(f"{path.name}.new")
    _make_empty(fresh)
    with closing(database.connect(fresh, lock_seconds)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(database.read_schema())
    put_in_place(fresh, path)


# -- checks that change nothing, and what `doctor` reports


def check_integrity(path: Path, lock_seconds: float, how: str = "mode=ro") -> str:
    """Return SQLite's first complaint, or an empty text if the database is sound. Slow: every page is read.

    Marks nothing. Raise StateLocked, and sqlite3.OperationalError if it cannot be read for another reason."""
    try:
        with closing(database.connect(path, lock_seconds, how, marks=False)) as connection:
            found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except StateDamaged as error:
        return str(error.details["reason"])
    return "" if found == "ok" else found


def check_database(path: Path, lock_seconds: float = LOCK_SECONDS) -> str:
    """Return SQLite's first complaint, or an empty text. In a read-only folder the -wal file is not checked."""
    try:
        return check_integrity(path, lock_seconds)
    except sqlite3.OperationalError:
        return check_integrity(path, lock_seconds, "immutable=1")


def _check_tables(path: Path, lock_seconds: float) -> str:
    """Return what is wrong with the definitions of the tables; empty if nothing, or for another version."""
    made = sqlite3.connect(":memory:")
    with closing(made), closing(database.connect(path, lock_seconds, "mode=ro", marks=False)) as there:
        made.executescript(database.read_schema())
        made.text_factory = there.text_factory = bytes
        try:
            if database.read_version(there) != database.VERSION:
                return ""
            wanted, found = (set(each.execute(_TABLES).fetchall()) for each in (made, there))
        except StateDamaged as error:
            return str(error.details["reason"])
    return "" if wanted <= found else database.OTHER_TABLES


class StateReport(NamedTuple):
    """`problem` says what is wrong and what to do, or is empty. `version` is 0 if none could be read."""

    problem: str
    version: int = 0
    size_bytes: int = 0


class BackupReport(NamedTuple):
    path: Path
    age_seconds: float
    problem: str


def inspect_state(path: Path, lock_seconds: float = LOCK_SECONDS) -> StateReport:
    """Inspect the database as it is; a missing one is a problem only if something of it is left."""
    if not os.path.lexists(path):
        left = list_backups(path) or os.path.lexists(f"{path}-wal")
        return StateReport(Message("{path} is missing; `skillyard runs` restores it", path=path) if left else "")
    if not path.is_file():
        return StateReport(Message("{path} is not a plain file; `skillyard runs` repairs it", path=path))
    size = path.stat().st_size
    if size == 0:
        return StateReport(Message("{path} is empty; `skillyard runs` repairs it", path=path))
    version, problem = 0, ""
    try:
        if found := check_database(path, lock_seconds) or _check_tables(path, lock_seconds):
            problem = Message("{path} is damaged: {complaint}; `skillyard runs` repairs it", path=path, complaint=found)
        else:
            with closing(database.connect(path, lock_seconds, "mode=ro", marks=False)) as connection:
                version = database.read_version(connection)
    except SkillError as error:
        problem = error.msg
    except (OSError, sqlite3.Error) as error:
        problem = Message("{path} cannot be read: {error}; see `ls -l {path}`", path=path, error=error)
    if version > database.VERSION:
        problem = Message("{path} was written by a newer Skillyard: `pip install -U skillyard`", path=path)
    return StateReport(problem, version, size)


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
