"""Locks on files: the kernel releases one when its process dies, however it dies, so no heartbeat is needed.

Whoever only looks (`is_held`) has the lock for an instant. Who holds a lock is read from /proc:
Linux only, best effort.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from skillyard.core.errors import StateLocked
from skillyard.core.messages import Message

_POLL_SECONDS = 0.005
_PROC = Path("/proc")


def take(file: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; return False if another process has it. Held until the file is closed."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock file at `path`."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not take(file)
    finally:
        os.close(file)


class LockedFile:
    """A lock that is held until it is closed, or the process ends. Programs that are started do not inherit it."""

    def __init__(self, file: int) -> None:
        self.file = file

    @classmethod
    def wait(cls, path: Path, flags: int = os.O_RDWR) -> Self:
        """Open and lock a file, which is made with its folder if needed. Waits for the lock."""
        file = _open_private(path, flags)
        fcntl.flock(file, fcntl.LOCK_EX)
        return cls(file)

    @classmethod
    def attempt(cls, path: Path, seconds: float = 0.0) -> Self | None:
        """The same; return None if another process holds it for all of `seconds`."""
        file = _open_private(path, os.O_RDWR)
        if _wait_for(file, seconds):
            return cls(file)
        os.close(file)
        return None

    def close(self) -> None:
        os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_private(path: Path, flags: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _wait_for(file: int, seconds: float, *, shared: bool = False) -> bool:
    deadline = time.monotonic() + seconds
    while not take(file, shared=shared):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


@contextmanager
def holding(path: Path, seconds: float, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file at `path`, which is created if needed. Raise StateLocked after `seconds`."""
    file = _open_in_home(path)
    try:
        if not _wait_for(file, seconds, shared=shared):
            found = os.fstat(file)
            raise as_locked(path, describe(_list_lockers((found.st_dev, found.st_ino))), seconds)
        yield
    finally:
        os.close(file)


def as_locked(path: Path, holders: str, seconds: float) -> StateLocked:
    told = Message("{path}: {holders} has held it for {seconds:g} s", path=path, holders=holders, seconds=seconds)
    return StateLocked(told)


@contextmanager
def trying(path: Path) -> Iterator[bool]:
    """Hold the lock file at `path` if nobody else does; yield whether it is held."""
    file = _open_in_home(path)
    try:
        yield take(file)
    finally:
        os.close(file)


def _open_in_home(path: Path) -> int:
    """What root makes in a user's home belongs to that user."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        if owner.st_uid != 0:
            os.fchown(file, owner.st_uid, owner.st_gid)
    return file


# -- who holds a lock


def describe_lock_holders(path: Path) -> str:
    """Name the processes that hold write locks on an SQLite database, or on its -shm file."""
    ids = [found for name in (path, Path(f"{path}-shm")) if (found := _file_id(name))]
    holders = [pid for each in ids for pid in _list_lockers(each) if pid != os.getpid()]
    return describe(holders or list_users(path))


def list_users(path: Path) -> tuple[int, ...]:
    """The ids of the processes that have the file open, this one included."""
    wanted = _file_id(path)
    return tuple(pid for pid in _list_pids() if wanted in _open_files(pid)) if wanted else ()


def describe(pids: Iterable[int]) -> str:
    """Process ids with their names, for a message."""
    known = [f"process {pid} ({_name(pid)})" for pid in sorted(set(pids)) if pid > 0]
    return ", ".join(known) or "another process"


def _file_id(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _list_lockers(file_id: tuple[int, int]) -> tuple[int, ...]:
    """Parse /proc/locks. A line is `1: POSIX ADVISORY WRITE 4711 08:01:131 120 120`, `->` marks one that waits."""
    device, inode = file_id
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    try:
        lines = (_PROC / "locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return ()
    rows = [line.split() for line in lines if "->" not in line]
    held = [row for row in rows if len(row) >= 6 and row[5] == wanted and row[4].lstrip("-").isdecimal()]
    writers = [row for row in held if row[3] == "WRITE"]
    return tuple(int(row[4]) for row in writers or held)


def _list_pids() -> tuple[int, ...]:
    try:
        return tuple(int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdecimal())
    except OSError:
        return ()


def _open_files(pid: int) -> set[tuple[int, int]]:
    folder = _PROC / str(pid) / "fd"
    try:
        return {found for entry in os.scandir(folder) if (found := _file_id(folder / entry.name))}
    except OSError:  # it ended, or belongs to somebody else
        return set()


def _name(pid: int) -> str:
    """The short name only: a command line may hold secrets."""
    try:
        return (_PROC / str(pid) / "comm").read_text("utf-8", "replace").strip() or "?"
    except OSError:
        return "?"
