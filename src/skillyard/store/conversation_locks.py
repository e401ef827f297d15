"""Which process works on a conversation, how many agents run, and how another process cancels a turn.

A conversation that is `running` in the table and that no process has locked has lost its runtime.
"""

import contextlib
import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from skillyard.store import locks
from skillyard.store.locks import LockedFile

#: Whoever only looks holds the lock for an instant: to be waited for, not taken for an owner.
_GLANCE_SECONDS = 1.0
_PIPE_BYTES = 4096
#: What lies in the folder for a conversation beside its lock: its cancel pipe, and the files of a kept-warm agent.
_BESIDE = (".bell", ".warm", ".sock", ".log", ".state", ".end")


class ConversationLocks:
    """The folder of all locks."""

    def __init__(self, folder: Path, ending: str = ".lock") -> None:
        self._folder = folder
        self._ending = ending

    def warm(self) -> "ConversationLocks":
        """The other lock of each conversation: of the process that keeps an agent warm for it."""
        return ConversationLocks(self._folder, ".warm")

    def list(self) -> tuple[int, ...]:
        """The conversations that are locked."""
        numbers = sorted(int(path.stem) for path in self._folder.glob(f"*{self._ending}") if path.stem.isdecimal())
        return tuple(filter(self.is_held, numbers))

    def take(self, conversation_id: int) -> LockedFile | None:
        """Return None if another process works on it."""
        return LockedFile.attempt(self._path(conversation_id), _GLANCE_SECONDS)

    def is_held(self, conversation_id: int) -> bool:
        return locks.is_held(self._path(conversation_id))

    def remove(self, conversation_id: int) -> None:
        """Remove the lock file, and whatever a killed runtime left beside it."""
        for ending in (self._ending, *_BESIDE):
            self._path(conversation_id).with_suffix(ending).unlink(missing_ok=True)

    def _path(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}{self._ending}"


class AgentSlots:
    """At most `count` agents at once, in all processes of this user together."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.count = count

    def take(self) -> LockedFile | None:
        """Return None if all are taken."""
        for number in range(self.count):
            if slot := LockedFile.attempt(self._folder / f"slot-{number}.lock"):
                return slot
        return None


class CancelPipes:
    """Lets another process cancel a turn through a named pipe, one for each conversation.

    Nothing stale can be left behind: the kernel tells the sender if nobody listens. The message names the run, so one
    that comes late never cancels the next turn.
    """

    def __init__(self, folder: Path, ending: str = ".bell") -> None:
        self._folder, self._ending = folder, ending

    @contextlib.contextmanager
    def listening(self, conversation_id: int, run: str, on_cancel: Callable[[], None]) -> Iterator[None]:
        """Within this block, call `on_cancel` in a thread of its own when this run is cancelled. Hold the lock."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(conversation_id)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # Open for both, so that it never ends when a sender closes; without waiting for one.
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        ended, end = os.pipe()
        listener = threading.Thread(target=_listen, args=(pipe, ended, run, on_cancel), daemon=True)
        listener.start()
        try:
            yield
        finally:
            os.close(end)
            listener.join()
            path.unlink(missing_ok=True)
            os.close(pipe)
            os.close(ended)

    def cancel(self, conversation_id: int, run: str) -> bool:
        """Return whether anybody listened."""
        try:
            pipe = os.open(self._path(conversation_id), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENXIO}:
                return False
            raise
        try:
            os.write(pipe, f"{run}\n".encode())
        finally:
            os.close(pipe)
        return True

    def _path(self, conversation_id: int) -> Path:
        return self._folder / f"{conversation_id}{self._ending}"


def _listen(pipe: int, ended: int, run: str, on_cancel: Callable[[], None]) -> None:
    received = b""
    while True:
        ready, _, _ = select.select([pipe, ended], [], [])
        if ended in ready:
            return
        received = (received + os.read(pipe, _PIPE_BYTES))[-_PIPE_BYTES:]
        if run.encode() in received.split(b"\n")[:-1]:
            on_cancel()
            received = b""
