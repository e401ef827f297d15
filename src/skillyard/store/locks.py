"""Locks on files: the kernel releases one when its process dies, however it dies, so no heartbeat is needed.

Whoever only looks (`is_held`) has the lock for an instant. Who holds a lock is read from /proc:
Linux only, best effort.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from skillyard.core.errors import StateLocked
from skillyard.core.messages import Message

LOCK_SECONDS = 30.0
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
        with LockedFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as lock:
            return not take(lock.file)
    except FileNotFoundError:
        return False


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
        file = _open_private(path)
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


def give_to_owner_of(folder: Path, file: int | Path) -> None:
    """Change the owner of what root writes into a user's home, so that the user can read it."""
    owner = folder.stat()
    if os.geteuid() == 0 and owner.st_uid not in {0, os.stat(file).st_uid}:  # noqa: PTH116  (or a descriptor)
        os.chown(file, owner.st_uid, owner.st_gid)


def _open_private(path: Path, flags: int = os.O_RDWR) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    give_to_owner_of(path.parent, file)
    return file


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
    with LockedFile(_open_private(path)) as lock:
        if not _wait_for(lock.file, seconds, shared=shared):
            raise as_locked(path, describe(_list_lockers(path)), seconds)
        yield


def as_locked(path: Path, holders: str, seconds: float) -> StateLocked:
    about = {"path": path, "holders": holders, "seconds": seconds}
    return StateLocked(Message("{path}: {holders} has held it for {seconds:g} s", **about))


# -- who holds a lock


def describe_lock_holders(path: Path) -> str:
    """Name the processes that hold write locks on an SQLite database, or on its -shm file."""
    found = {*_list_lockers(path), *_list_lockers(Path(f"{path}-shm"))} - {os.getpid()}
    return describe(found or list_users(path))


def list_users(path: Path) -> tuple[int, ...]:
    """The ids of the processes that have the file open, this one included."""
    wanted, pids = _file_id(path), list[int]()
    with suppress(OSError):
        pids = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdecimal()] if wanted else []
    return tuple(pid for pid in pids if wanted in _open_files(pid))


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


def _list_lockers(path: Path) -> list[int]:
    """Parse /proc/locks. A line is `1: POSIX ADVISORY WRITE 4711 08:01:131 120 120`, `->` marks one that waits."""
    found = _file_id(path)
    if found is None:
        return []
    device, inode = found
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    held: list[list[str]] = []
    with suppress(OSError):
        lines = (_PROC / "locks").read_text("ascii", "replace").splitlines()
        held = [line.split() for line in lines if f" {wanted} " in line and "->" not in line]
    writers = [row for row in held if row[3] == "WRITE"]
    return [int(row[4]) for row in writers or held]


def _open_files(pid: int) -> set[tuple[int, int]]:
    folder = _PROC / str(pid) / "fd"
    try:
        return {found for entry in os.scandir(folder) if (found := _file_id(folder / entry.name))}
    except OSError:  # it ended, or belongs to somebody else
        return set()


def _name(pid: int) -> str:
    """The short name only: a command line may hold secrets."""
    with suppress(OSError):
        return (_PROC / str(pid) / "comm").read_text("utf-8", "replace").strip() or "?"
    return "?"
