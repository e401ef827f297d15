"""Locks on files: the kernel takes one away when its process dies, however it dies. Nobody has to guess who lives."""

import fcntl
import os
from pathlib import Path


def take(file: int) -> bool:
    """Without waiting; False where another has it. It is held until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
