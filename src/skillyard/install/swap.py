"""Puts a whole folder in the place of another in one step, where the system can; else in two, for the journal to end.

A plain rename cannot replace a folder that holds something.
"""

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Protocol

_AT_FDCWD = -100
_LINUX_EXCHANGE = 2
_MACOS_SWAP = 2
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


class Exchange(Protocol):
    """Swaps two folders in one step; False where it cannot, and then nothing has happened."""

    def __call__(self, one: Path, other: Path) -> bool: ...


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def exchange(one: Path, other: Path) -> bool:
    """By the system call of the platform."""
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "linux":
            failed = _library().renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _LINUX_EXCHANGE)
        elif sys.platform == "darwin":
            failed = _library().renamex_np(first, second, _MACOS_SWAP)
        else:
            return False
    except AttributeError:  # an older C library
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def never_exchange(one: Path, other: Path) -> bool:
    """For systems without such a call, and to test what happens there."""
    del one, other
    return False


def swap_in(staged: Path, target: Path, trash: Path, swap: Exchange = exchange) -> None:
    """The staged folder stands at the target, what stood there lies in the trash. Can be repeated after any stop.

    Whoever repeats it must know from elsewhere that the staged folder is not at the target yet.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        if swap(staged, target):
            staged.rename(trash)
            return
        target.rename(trash)
    staged.rename(target)
