"""The database below the engine: opening it, its errors, its clock, the timetable, and who is alive.

Who is alive is told by a lock that the kernel or the database takes away at death. It is not a heartbeat: on a busy
machine a beat comes late, and living processes would be declared dead.
"""

import hashlib
import json
import select
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import event

from skillyard.core.errors import DatabaseFailed, StateDamaged, StoreFailed
from skillyard.core.messages import Message
from skillyard.jobs.engine import EngineConfig, TimetableEntry
from skillyard.store import locks

#: How often the connection to the database is checked.
_LOOK_SECONDS = 1.0
#: Without an answer in this time the database is gone. Shorter than its own time limit for us, so that our runs end
#: before others begin them.
_LOOK_ANSWER_SECONDS = 5.0
_ANSWER_SECONDS = 10
#: A database on another machine notices within about ten seconds that ours is gone.
_KEEPALIVE: Any = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
#: How long a lock must be free: whoever lost it without dying has this long to notice, and to end its runs.
_SETTLE_SECONDS = 3.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_METADATA = sa.MetaData()
_LINES = sa.Table(
    "skillyard_timetable",
    _METADATA,
    sa.Column("project", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("line", sa.Text, nullable=False),
)


def open_database(config: EngineConfig) -> sa.Engine:
    config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if config.database:
        url = sa.make_url(config.database).set(drivername="postgresql+psycopg")
        return sa.create_engine(url, pool_size=20, max_overflow=30, pool_pre_ping=True)
    file = config.folder / "engine.db"
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(file)), pool_size=20, max_overflow=30)

    @event.listens_for(engine, "connect")
    def settle(connection: Any, _: object) -> None:
        # As DBOS sets up its own: writers wait for each other from the start of a transaction, and long enough.
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout = 30000", "foreign_keys = ON", "journal_mode = WAL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if config.full_sync else 'NORMAL'}")

    @event.listens_for(engine, "handle_error")
    def note_full_disk(context: sa.engine.ExceptionContext) -> None:
        """Treat a full disk as a lost connection: DBOS then waits until the database is back."""
        code = getattr(context.original_exception, "sqlite_errorcode", 0)
        if code & 0xFF in _NO_ROOM:  # above are the kinds of each
            context.is_disconnect = True

    with database_errors(config), engine.connect():
        file.chmod(0o600)
    return engine


@contextmanager
def database_errors(config: EngineConfig) -> Iterator[None]:
    """Raise what the database raises as an error of ours, without its password."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        reason = (str(getattr(error, "orig", None) or error).strip().splitlines() or [""])[0]
        if config.database:
            raise DatabaseFailed(f"{sa.make_url(config.database).render_as_string()}: {reason}") from None
        if getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            file = config.folder / "engine.db"
            advice = Message(
                "stop the workers and set it aside: `mv {file} {file}.damaged`; a new one is made, jobs and flows that "
                "waited in it must be added again, and what already ran stays in `skillyard jobs history`",
                file=file,
            )
            raise StateDamaged(f"{file}: {reason}", advice) from None
        raise StoreFailed(f"{config.folder}: {reason}") from None


class DatabaseClock:
    """The database's clock, read now and then, and advanced by ours in between."""

    _VALID_SECONDS = 30.0

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._asked: tuple[float, float] | None = None

    def __call__(self) -> float:
        with self._lock:
            if self._asked is None or time.monotonic() - self._asked[0] > self._VALID_SECONDS:
                with self._engine.connect() as connection:
                    told = connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
                self._asked = (time.monotonic(), float(told))
            at, told = self._asked
            return told + time.monotonic() - at


class DatabaseTimetable:
    """Our own table beside those of DBOS, seen by all workers of the project."""

    def __init__(self, engine: sa.Engine, config: EngineConfig) -> None:
        self._engine, self._config = engine, config
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                # Two that make the same table at once would collide.
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7305821)"))
            _METADATA.create_all(connection)

    def list(self) -> tuple[TimetableEntry, ...]:
        asked = sa.select(_LINES.c.line).where(_LINES.c.project == self._config.project).order_by(_LINES.c.name)
        with database_errors(self._config), self._engine.connect() as connection:
            rows = [json.loads(text) for (text,) in connection.execute(asked)]
        known = TimetableEntry._fields
        return tuple(TimetableEntry(**{name: value for name, value in row.items() if name in known}) for row in rows)

    def put(self, line: TimetableEntry) -> None:
        values = {"project": self._config.project, "name": line.name, "line": _as_text(line)}
        with database_errors(self._config), self._engine.begin() as connection:
            connection.execute(sa.delete(_LINES).where(*self._is(line.name)))
            connection.execute(sa.insert(_LINES).values(values))

    def drop(self, name: str) -> bool:
        with database_errors(self._config), self._engine.begin() as connection:
            return connection.execute(sa.delete(_LINES).where(*self._is(name))).rowcount > 0

    def swap(self, before: TimetableEntry, after: TimetableEntry) -> bool:
        condition = (*self._is(before.name), _LINES.c.line == _as_text(before))
        with database_errors(self._config), self._engine.begin() as connection:
            return connection.execute(sa.update(_LINES).where(*condition).values(line=_as_text(after))).rowcount > 0

    def _is(self, name: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (_LINES.c.project == self._config.project, _LINES.c.name == name)


def _as_text(line: TimetableEntry) -> str:
    return json.dumps({**line._asdict(), "says": dict(line.says)}, ensure_ascii=False, sort_keys=True)


class FileLiveness:
    """For one machine: a file for each process, locked by it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: tuple[Path, locks.LockedFile] | None = None

    def hold(self, name: str, on_lost: Callable[[], None]) -> None:  # noqa: ARG002  (a file's lock is not lost)
        """Be alive under this name until `release`; `on_lost` is called when others may think otherwise."""
        path = self._folder / name
        self._held = (path, locks.LockedFile.wait(path))

    def release(self) -> None:
        if self._held:
            path, file = self._held
            path.unlink(missing_ok=True)
            file.close()
            self._held = None

    def is_dead(self, name: str) -> bool:
        return not locks.is_held(self._folder / name)

    def bury(self, name: str) -> None:
        """Forget the name: nothing is left to take over."""
        (self._folder / name).unlink(missing_ok=True)


class DatabaseLiveness:
    """For many machines: an advisory lock of PostgreSQL, on a connection of its own that is watched.

    Covered: the process dies, its machine goes away, the network is cut or goes silent, the database restarts.
    Not covered: a process that is held still for longer than `_SETTLE_SECONDS` while the database lets go of it;
    a pooler that shares one session among clients (PgBouncer's transaction mode).
    """

    def __init__(self, url: str) -> None:
        self._url = url
        #: Since when each lock has been free.
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
        if not (row and row[0]):  # if we got it, closing the connection released it
            self._free.pop(name, None)
            return False
        return time.monotonic() - self._free.setdefault(name, time.monotonic()) >= _SETTLE_SECONDS

    def bury(self, name: str) -> None:
        self._free.pop(name, None)

    def _connect(self) -> psycopg.Connection:
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


def _answers(connection: psycopg.Connection, seconds: float) -> bool:
    """Ask through libpq: the calls of psycopg itself wait as long as the network is silent."""
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
    """Return the 64 bits that name the lock in PostgreSQL."""
    digest = hashlib.blake2b(f"skillyard\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
