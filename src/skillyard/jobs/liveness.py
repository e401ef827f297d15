"""Who lives: a lock that the kernel or the database takes away at death.

Not a heartbeat: on a busy machine a beat comes late, and the living are declared dead.
"""

import hashlib
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from skillyard.core.errors import DatabaseFailed
from skillyard.store import locks
from skillyard.store.locks import LockedFile

if TYPE_CHECKING:
    import psycopg

#: How often we look whether the database still knows us.
_LOOK_SECONDS = 1.0
#: A look that is not answered in this time is a database that is gone. Shorter than its own patience with us, so that
#: we end our runs before others begin them.
_LOOK_ANSWER_SECONDS = 5.0
_ANSWER_SECONDS = 10
#: A database on another machine notices within about ten seconds that ours is gone.
_KEEPALIVE: Any = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
#: How long a lock must lie free: whoever lost it without dying has this long to notice, and to end what it runs.
_SETTLE_SECONDS = 3.0


class Liveness(Protocol):
    def hold(self, name: str, on_lost: Callable[[], None]) -> None:
        """Be alive under this name until `release`; `on_lost` where others may now think otherwise."""

    def release(self) -> None: ...

    def is_dead(self, name: str) -> bool: ...

    def bury(self, name: str) -> None:
        """Nothing of it is left to take over."""


class FileLiveness:
    """For one machine: a file for each process, locked by it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: tuple[Path, LockedFile] | None = None

    def hold(self, name: str, on_lost: Callable[[], None]) -> None:  # noqa: ARG002  (a file's lock is not lost)
        path = self._folder / name
        self._held = (path, LockedFile.wait(path))

    def release(self) -> None:
        if self._held:
            path, locked = self._held
            path.unlink(missing_ok=True)
            locked.close()
            self._held = None

    def is_dead(self, name: str) -> bool:
        return not locks.is_held(self._folder / name)

    def bury(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class DatabaseLiveness:
    """For many machines: an advisory lock of PostgreSQL, on a connection of its own that is watched.

    Covered: the process dies, its machine goes away, the network is cut or goes silent, the database restarts.
    Not covered: a process that is held still for longer than `_SETTLE_SECONDS` while the database lets go of it;
    a pooler that shares one session among clients (PgBouncer's transaction mode).
    """

    def __init__(self, url: str) -> None:
        self._url = url
        #: Since when a lock lay free whenever we looked.
        self._free: dict[str, float] = {}
        self._connection: psycopg.Connection | None = None
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None

    def hold(self, name: str, on_lost: Callable[[], None]) -> None:
        self._connection = self._connect()
        self._connection.execute("SELECT pg_advisory_lock(%s)", (_number(name),))
        self._watcher = threading.Thread(target=self._watch, args=(on_lost,), name="skillyard-liveness", daemon=True)
        self._watcher.start()

    def release(self) -> None:
        self._ended.set()
        if self._watcher:
            self._watcher.join(_ANSWER_SECONDS)
        if self._connection:
            self._connection.close()

    def is_dead(self, name: str) -> bool:
        with self._connect() as connection:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_number(name),)).fetchone()
        if not (row and row[0]):  # where we got it, it went with the connection
            self._free.pop(name, None)
            return False
        return time.monotonic() - self._free.setdefault(name, time.monotonic()) >= _SETTLE_SECONDS

    def bury(self, name: str) -> None:
        self._free.pop(name, None)

    def _connect(self) -> "psycopg.Connection":
        import psycopg

        try:
            connection = psycopg.connect(self._url, autocommit=True, connect_timeout=_ANSWER_SECONDS, **_KEEPALIVE)
        except psycopg.Error as error:
            raise DatabaseFailed(str(error)) from None
        for setting, value in (("idle", 5), ("interval", 2), ("count", 3)):
            connection.execute(f"SET tcp_keepalives_{setting} = {value}")
        connection.execute(f"SET statement_timeout = {_ANSWER_SECONDS * 1000}")
        return connection

    def _watch(self, on_lost: Callable[[], None]) -> None:
        assert self._connection is not None  # noqa: S101  (we are started when it is there)
        while not self._ended.wait(_LOOK_SECONDS):
            if not _answers(self._connection, _LOOK_ANSWER_SECONDS):
                if not self._ended.is_set():
                    self._connection.close()
                    on_lost()
                return


def _answers(connection: "psycopg.Connection", seconds: float) -> bool:
    """Asked below psycopg's own calls: those wait as long as the network keeps silent."""
    import psycopg

    asked, deadline = connection.pgconn, time.monotonic() + seconds
    try:
        asked.send_query(b"SELECT 1")
        asked.flush()
        while asked.is_busy():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([asked.socket], [], [], left)[0]:
                return False
            asked.consume_input()
        answers = []
        while (answer := asked.get_result()) is not None:
            answers.append(answer.status)
    except psycopg.Error:
        return False
    return answers == [psycopg.pq.ExecStatus.TUPLES_OK]


def _number(name: str) -> int:
    """The 64 bits by which PostgreSQL knows the lock."""
    digest = hashlib.blake2b(f"skillyard\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
