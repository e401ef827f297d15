"""What a source of skills fetches, and how much and how long that may be."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from skillyard.core.errors import SourceRefused
from skillyard.core.messages import Message

#: Tells a person how far a fetch has come.
Tell: TypeAlias = Callable[[str], None]
T = TypeVar("T")


class ListedSkill(NamedTuple):
    """A skill that a source tells of, with the digests of its files, before any of them is fetched."""

    #: Its folder inside the source.
    path: str
    name: str
    description: str
    #: What the source itself calls it.
    uri: str
    #: Where its files are once they were fetched, below the folder of the fetch.
    folder: str
    files: Mapping[str, str]
    total_bytes: int


class Fetched(NamedTuple):
    """A folder to look for skills in, and what the source calls this state of it."""

    folder: Path
    commit: str = ""
    #: Every file was written by us, below the staging folder, and is one that a skill may have: it can be moved.
    is_ours: bool = False
    #: Folders of skills that may not be written here, each with the reason.
    refused: Mapping[str, str] = MappingProxyType({})
    #: Of a source that tells what it has: files come only when `bring` is called.
    listed: tuple[ListedSkill, ...] | None = None
    #: Fetches skills, by path, into the folder. Returns why those were refused that are not there then.
    bring: Callable[[Sequence[str]], Mapping[str, str]] = lambda _: {}


class Limits(NamedTuple):
    total_bytes: int = 512 * 1024 * 1024
    files: int = 20_000
    #: Unpacked over packed; only asked where more than `free_bytes` come out.
    ratio: int = 100
    free_bytes: int = 16 * 1024 * 1024
    path_bytes: int = 1024
    #: For a fetch from another place, whole.
    seconds: float = 300.0

    def check(self, files: int = 0, total_bytes: int = 0) -> None:
        """SourceRefused if these are too many."""
        if files > self.files:
            raise SourceRefused(Message("more than {files} files", files=self.files))
        if total_bytes > self.total_bytes:
            raise SourceRefused(Message("more than {total_bytes} bytes", total_bytes=self.total_bytes))


LIMITS = Limits()


class Deadline:
    """One time limit over a whole network operation: name lookup, connecting, headers, redirects and every chunk.

    A socket timeout is not enough: it starts again with each byte that arrives, and name lookup has none. So the
    operation runs in a thread of its own, the caller waits until the limit and no longer, and the sockets are shut down
    so that the thread ends too. A thread that hangs in name lookup ends with the resolver's own timeout; nobody waits.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._hung_up = False

    def left(self) -> float:
        """Seconds that remain, never negative."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise TimeoutError if the deadline has passed. Call it for each chunk."""
        if not self.left() or self._hung_up:
            raise TimeoutError(Message("it took longer than {seconds:g} s", seconds=self.seconds))

    def watch(self, connected: socket.socket) -> None:
        """Shut this socket down when the deadline passes; TimeoutError if that was already."""
        with self._lock:
            self._sockets.append(connected)
            if self._hung_up:
                connected.close()
        self.check()

    def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns or raise what it raises; TimeoutError at the deadline, whatever it is doing."""
        future: Future[T] = Future()

        def fulfil() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  (raised again where it is waited for)
                future.set_exception(error)

        threading.Thread(target=fulfil, name="skillyard-network", daemon=True).start()
        try:
            wait((future,), self.left())
        finally:  # also at Ctrl-C
            if not future.done():
                with self._lock:
                    self._hung_up = True
                for each in self._sockets:
                    with contextlib.suppress(OSError):
                        # Not the method of a TLS socket: that takes its state away from the thread that reads.
                        socket.socket.shutdown(each, socket.SHUT_RDWR)
        if self._hung_up:
            self.check()
        return future.result()
