"""Ends a whole process tree, not only its root: daemons, double forks, those that ignore SIGTERM.

The caller is a child subreaper, so whoever loses its parent becomes the caller's own child and is found here.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path


def descendants(root: int, keep: Iterable[int] = ()) -> tuple[int, ...]:
    """All below `root`, parents first. Zombies are among them until somebody reaps them."""
    found: list[int] = []
    kept = frozenset(keep)
    waiting = [pid for pid in _children(root) if pid not in kept]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += _children(pid)
    return tuple(found)


def _children(pid: int) -> Iterator[int]:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        return  # it ended while we looked


def signal_all(pids: tuple[int, ...], which: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, which)


def kill_descendants(root: int | None = None, keep: Iterable[int] = ()) -> None:
    """End everybody below `root` (below us, if not given) except `keep` and those below them.

    Stop first, so that nobody forks while we look; kill when nobody new turns up.
    """
    seen: set[int] = set()
    while fresh := set(descendants(root or os.getpid(), keep)) - seen:
        signal_all(tuple(fresh), signal.SIGSTOP)
        seen |= fresh
    signal_all(tuple(seen), signal.SIGKILL)
