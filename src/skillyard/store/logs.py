"""What runs said while they ran: a file for each, locked for as long as its runtime lives.

The kernel takes the lock away when the process dies, however it dies: a run that is `running` in the table and
whose log nobody holds has lost its runtime.
"""

import fcntl
import os
from pathlib import Path
from typing import Self

from skillyard.store import locks

#: What a log may grow to; what comes after is counted, not kept.
LOG_BYTES = 4_194_304


class Log:
    """A log that is being written. Pieces come from another thread than the one that opened it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._left = LOG_BYTES

    def write(self, piece: bytes) -> None:
        kept = piece[: self._left]
        self._left -= len(kept)
        while kept:
            kept = kept[os.write(self._file, kept) :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


class Logs:
    """The folder of all logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.log"

    def open(self, run_id: str) -> Log:
        return Log(self.path(run_id))

    def read(self, run_id: str) -> str:
        try:
            return self.path(run_id).read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def read_from(self, run_id: str, offset: int) -> bytes:
        """What was written since then, for somebody who looks on."""
        try:
            with self.path(run_id).open("rb") as file:
                file.seek(offset)
                return file.read()
        except FileNotFoundError:
            return b""

    def is_held(self, run_id: str) -> bool:
        """Whether the run's runtime still lives."""
        return locks.is_held(self.path(run_id))

    def remove(self, run_id: str) -> None:
        self.path(run_id).unlink(missing_ok=True)
