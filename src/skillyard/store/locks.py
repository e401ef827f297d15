"""Locks on files: the kernel takes one away when its process dies, however it dies. Nobody has to guess who lives."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skillyard.core.errors import StateLocked
from skillyard.core.messages import Message

_POLL_SECONDS = 0.01


def take(file: int, *, shared: bool = False) -> bool:
    """Without waiting; False where another has it. It is held until the file is closed."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether a process that lives holds it; whoever looks has it for an instant."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not take(file)
    finally:
        os.close(file)


@contextmanager
def holding(path: Path, seconds: float, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file at `path`, which is created if needed. Raises StateLocked after `seconds`."""
    file = _open(path)
    try:
        ceiling = time.monotonic() + seconds
        while not take(file, shared=shared):
            if time.monotonic() > ceiling:
                from skillyard.store.lockholders import describe_flock_holder  # noqa: PLC0415  (only on failure)

                raise StateLocked(
                    Message(
                        "{path}: {describe_lock_holders} has held it for {lock_seconds:g} s",
                        path=path,
                        describe_lock_holders=describe_flock_holder(file),
                        lock_seconds=seconds,
                    )
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(file)


@contextmanager
def trying(path: Path) -> Iterator[bool]:
    """Hold the lock file at `path` if nobody else does; gives whether it is held."""
    file = _open(path)
    try:
        yield take(file)
    finally:
        os.close(file)


def _open(path: Path) -> int:
    """What root makes in a user's home belongs to that user."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        if owner.st_uid != 0:
            os.fchown(file, owner.st_uid, owner.st_gid)
    return file
