"""Who is at work on a conversation, and how many are: locks, which the kernel takes away when a process dies.

No heartbeat: a conversation that is `running` in the table and that nobody holds has lost its runtime.
"""

import os
import time
from pathlib import Path
from typing import Self

from skillyard.store import locks

#: Whoever only looks holds the lock for an instant: to be waited for, not taken for an owner.
_GLANCE_SECONDS = 1.0
_POLL_SECONDS = 0.005


class Hold:
    """Held until it is closed, or the process ends, however it ends. Programs that are started do not inherit it."""

    def __init__(self, file: int) -> None:
        self._file = file

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: What stands for a conversation in the folder, beside its lock: its bell, and what a keeper of a warm agent has.
_BESIDE = (".bell", ".warm", ".sock", ".log", ".state", ".end")


class Holds:
    """The folder of all locks."""

    def __init__(self, folder: Path, ending: str = ".lock") -> None:
        self._folder = folder
        self._ending = ending

    def warm(self) -> "Holds":
        """The other lock of each conversation: of the process that keeps an agent warm for it."""
        return Holds(self._folder, ".warm")

    def list(self) -> tuple[int, ...]:
        """Those that are held."""
        numbers = sorted(int(path.stem) for path in self._folder.glob(f"*{self._ending}") if path.stem.isdecimal())
        return tuple(filter(self.is_held, numbers))

    def take(self, conversation_id: int) -> Hold | None:
        """None where another is at work on it."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self._path(conversation_id), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        ceiling = time.monotonic() + _GLANCE_SECONDS
        while not locks.take(file):
            if time.monotonic() > ceiling:
                os.close(file)
                return None
            time.sleep(_POLL_SECONDS)
        return Hold(file)

    def is_held(self, conversation_id: int) -> bool:
        return locks.is_held(self._path(conversation_id))

    def remove(self, conversation_id: int) -> None:
        """With whatever a killed runtime left."""
        for ending in (self._ending, *_BESIDE):
            self._path(conversation_id).with_suffix(ending).unlink(missing_ok=True)

    def _path(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}{self._ending}"


class Slots:
    """At most so many agents at once, in all processes of this user together."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.count = count

    def take(self) -> Hold | None:
        """None where all are taken."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(self.count):
            file = os.open(self._folder / f"slot-{number}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if locks.take(file):
                return Hold(file)
            os.close(file)
        return None
