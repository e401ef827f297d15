"""How a turn is stopped by another process: a pipe with a name, on which only the process at work listens.

Nothing stale can be left behind: who rings where nobody listens is told so by the kernel. What is rung is the run that
is meant, so that a ring that comes late never stops the next one.
"""

import contextlib
import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_MOST_BYTES = 4096


class Bells:
    """One for each conversation, in the folder of their locks."""

    def __init__(self, folder: Path, ending: str = ".bell") -> None:
        self._folder, self._ending = folder, ending

    @contextlib.contextmanager
    def listening(self, conversation_id: int, run: str, act: Callable[[], None]) -> Iterator[None]:
        """Within this block a ring for this run calls `act`, from a thread of its own. Hold the conversation."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(conversation_id)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # Open for both, so that it never ends when a ringer closes; without waiting for one.
        bell = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        leave, left = os.pipe()
        listener = threading.Thread(target=_listen, args=(bell, leave, run, act), daemon=True)
        listener.start()
        try:
            yield
        finally:
            os.close(left)
            listener.join()
            path.unlink(missing_ok=True)
            os.close(bell)
            os.close(leave)

    def ring(self, conversation_id: int, run: str) -> bool:
        """Whether anybody heard it."""
        try:
            bell = os.open(self._path(conversation_id), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENXIO}:
                return False
            raise
        try:
            os.write(bell, f"{run}\n".encode())
        finally:
            os.close(bell)
        return True

    def _path(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}{self._ending}"


def _listen(bell: int, leave: int, run: str, act: Callable[[], None]) -> None:
    heard = b""
    while True:
        ready, _, _ = select.select([bell, leave], [], [])
        if leave in ready:
            return
        heard = (heard + os.read(bell, _MOST_BYTES))[-_MOST_BYTES:]
        if run.encode() in heard.split(b"\n")[:-1]:
            act()
            heard = b""
