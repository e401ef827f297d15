"""Finds the processes that hold a lock on a file, or have it open, as far as /proc tells. Linux only, best effort."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROC = Path("/proc")
UNKNOWN = "another process"


def describe_flock_holder(file: int) -> str:
    """Name the process that holds a flock on an open lock file."""
    found = os.fstat(file)
    return describe(_lockers((found.st_dev, found.st_ino)))


def describe_lock_holders(path: Path) -> str:
    """Name the processes that hold write locks on an SQLite database, or on its -shm file."""
    marks = [mark for name in (path, Path(f"{path}-shm")) if (mark := _mark(name))]
    found = [pid for mark in marks for pid in _lockers(mark) if pid != os.getpid()]
    return describe(found or other_users(path))


def other_users(path: Path) -> tuple[int, ...]:
    """The ids of the processes that have the file open, this one included."""
    mark = _mark(path)
    return tuple(pid for pid in _pids() if mark in _open_files(pid)) if mark else ()


def describe(pids: Iterable[int]) -> str:
    """Process ids with their names, for a message."""
    known = [f"process {pid} ({_name(pid)})" for pid in sorted(set(pids)) if pid > 0]
    return ", ".join(known) or UNKNOWN


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lockers(mark: tuple[int, int]) -> tuple[int, ...]:
    """Parse /proc/locks. A line is `1: POSIX ADVISORY WRITE 4711 08:01:131 120 120`, `->` marks one that waits."""
    device, inode = mark
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    try:
        lines = (_PROC / "locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return ()
    rows = [line.split() for line in lines if "->" not in line]
    held = [row for row in rows if len(row) >= 6 and row[5] == wanted and row[4].lstrip("-").isdecimal()]
    writing = [row for row in held if row[3] == "WRITE"]
    return tuple(int(row[4]) for row in writing or held)


def _pids() -> Iterator[int]:
    try:
        names = [entry.name for entry in os.scandir(_PROC)]
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _open_files(pid: int) -> set[tuple[int, int]]:
    folder = _PROC / str(pid) / "fd"
    found: set[tuple[int, int]] = set()
    try:
        for entry in os.scandir(folder):
            if mark := _mark(folder / entry.name):
                found.add(mark)
    except OSError:  # it ended, or belongs to somebody else
        pass
    return found


def _name(pid: int) -> str:
    """The short name only: a command line may hold secrets."""
    try:
        return (_PROC / str(pid) / "comm").read_text("utf-8", "replace").strip() or "?"
    except OSError:
        return "?"
