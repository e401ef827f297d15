"""Runs a function in a process that is killed with SIGKILL at its n-th access to a file."""

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator

_EVENTS = ("open", "os.", "shutil.", "fcntl.", "sqlite3.")


def killed_at(number: int, act: Callable[[], object]) -> bool:
    """Whether it was killed; False if it came to its end first."""
    child = os.fork()
    if child == 0:
        count = itertools.count()

        def watch(event: str, _: object) -> None:
            if event.startswith(_EVENTS) and next(count) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            act()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def each_kill(prepare: Callable[[], None], act: Callable[[], object]) -> Iterator[int]:
    """After each the caller looks at what is left; the last round came to its end."""
    for number in itertools.count():
        prepare()
        killed = killed_at(number, act)
        yield number
        if not killed:
            return
