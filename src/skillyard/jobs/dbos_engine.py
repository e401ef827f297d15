"""The engine: DBOS, embedded on SQLite or shared on PostgreSQL. The only module that imports DBOS.

One database holds the tickets of many projects: each is an application of its own to DBOS, so that no worker takes the
tickets of another project. Every process has an executor id of its own, and a lock that says whether it is alive: the
kernel or the database takes it away at death. It is not a heartbeat: on a busy machine a beat comes late, and living
processes would be declared dead.

Covered: kill -9 of any worker at any point, several workers at once, a database that restarts, a disk that fills up.
Not covered: power loss right after a commit on SQLite, unless `synchronous = "full"` is set.
"""

import copy
import hashlib
import json
import logging
import math
import os
import select
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import psycopg
import sqlalchemy as sa
from sqlalchemy import event

from skillyard.core.errors import DatabaseFailed, RuntimeFailed, StateDamaged, StoreFailed
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.jobs.engine import EngineConfig, Stage, Ticket, TicketStatus, TimetableEntry, Work
from skillyard.store import locks

# Before DBOS looks for a handler: it would make one that writes to the terminal.
_LOG = logging.getLogger("dbos")
_LOG.propagate = False
if not _LOG.handlers:
    _LOG.addHandler(logging.NullHandler())

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowStatus  # noqa: E402
from dbos import _context as dbos_context  # noqa: E402
from dbos import error as dbos_error  # noqa: E402
from dbos._sys_db import SystemDatabase  # noqa: E402

T = TypeVar("T", bound=Json)
#: Set by us: by default each change of our code would strand what was queued before it.
VERSION = "1"
WORKFLOW = "skillyard.ticket"
#: A ticket that killed so many workers is not given to another.
_MOST_DEATHS = 5
_LOOK_SECONDS = (0.02, 0.5)
_STAGES = {
    "ENQUEUED": Stage.QUEUED,
    "DELAYED": Stage.QUEUED,
    "PENDING": Stage.RUNNING,
    "SUCCESS": Stage.DONE,
    "CANCELLED": Stage.CANCELLED,
    "ERROR": Stage.BROKEN,
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": Stage.BROKEN,
}
_BATCH = 500
#: How long the database's clock is advanced by ours before it is read again.
_CLOCK_SECONDS = 30.0
#: The one place where DBOS takes tickets from a queue.
_CLAIM = SystemDatabase.start_queued_workflows


class DurableEngine:
    """The tickets of one project. Any thread may call it."""

    def __init__(self, config: EngineConfig, clock: Callable[[], float] | None = None) -> None:
        """`clock` defaults to the database's, or on SQLite to this machine's."""
        self._config = config
        #: One name of a version belongs to one application.
        self._version = f"{config.project}.{VERSION}"
        self._serializer = DBOSPortableJSONSerializer()
        self._engine = open_database(config)
        self._liveness: DatabaseLiveness | FileLiveness = (
            DatabaseLiveness(config.database) if config.database else FileLiveness(config.folder / "alive")
        )
        self._launched = False
        self._executor = ""
        #: What was started in this process, with what its work will give.
        self._started: dict[str, tuple[TicketStatus, futures.Future[dict[str, Any]]]] = {}
        self._clock = clock or (None if config.database else time.time)
        self._clock_lock = threading.Lock()
        #: When the database's clock was read, and how far it is ahead of `time.monotonic`.
        self._clock_read, self._clock_ahead = -math.inf, 0.0
        with engine_errors(config), tables_lock(config):
            DBOS.migrate(self._engine.url.render_as_string(hide_password=False))
            self.timetable = DatabaseTimetable(self._engine, config)
            self._client = DBOSClient(
                system_database_engine=self._engine,
                serializer=self._serializer,
                application_name=config.project,
                retry_connection_errors=False,
            )

    def enqueue(self, ticket: Ticket) -> bool:
        """Return False if the id is known already."""
        with engine_errors(self._config):
            try:
                self._client.enqueue(self.options_of(ticket), ticket.queue, dict(ticket.body))
            except dbos_error.DBOSWorkflowIDInUseError:
                return False
        return True

    def start(self, ticket: Ticket, work: Work, on_lost: Callable[[], None] = lambda: None) -> None:
        """Start in this process; if it dies, a worker takes over. `on_lost` as for `serve`."""
        self._launch(work, {}, on_lost)
        with SetWorkflowID(ticket.id):
            handle = DBOS.start_workflow(_ticket, ticket.queue, dict(ticket.body))
        status = TicketStatus(ticket, Stage.RUNNING, self.now())
        self._started[ticket.id] = (status, cast("Any", handle).future)

    def wait(self, ticket_id: str, seconds: float | None = None) -> TicketStatus | None:
        """Return it once it is over; None if there is none, or the time is up."""
        began = time.monotonic()
        left = math.inf if seconds is None else seconds
        if ticket_id in self._started:
            status, ending = self._started[ticket_id]
            if not futures.wait([ending], seconds).done:
                return None
            del self._started[ticket_id]
            if ending.exception() is None:  # its record was written before the future was done
                return status._replace(stage=Stage.DONE, answer=ending.result())
        shortest, longest = _LOOK_SECONDS
        while found := self.find(ticket_id):
            if found.stage.is_over:
                return found
            waited = time.monotonic() - began
            if waited >= left:
                return None
            time.sleep(min(max(waited / 10, shortest), longest, left - waited))  # less often the longer it takes
        return None

    def cancel(self, ticket_id: str) -> bool:
        """Return False if it is over already. Whoever runs it stops the run."""
        before = self.find(ticket_id)
        if before is None or before.stage.is_over:
            return False
        with engine_errors(self._config):
            self._client.cancel_workflow(ticket_id)
        after = self.find(ticket_id)
        return after is not None and after.stage is Stage.CANCELLED

    def find(self, ticket_id: str) -> TicketStatus | None:
        with engine_errors(self._config):
            found = self._client.list_workflows(workflow_ids=[ticket_id], application_name=self._config.project)
        return _status(found[0]) if found else None

    def list(self, limit: int, *, live: bool = False) -> tuple[TicketStatus, ...]:
        """Return the latest first; `live`: only those that are not over."""
        live_only = [name for name, stage in _STAGES.items() if not stage.is_over] if live else None
        with engine_errors(self._config):
            found = self._client.list_workflows(status=live_only, name=WORKFLOW, limit=limit, sort_desc=True)
        return tuple(map(_status, found))

    def forget_before(self, moment: float) -> None:
        """Delete what was over by then."""
        stamp = datetime.fromtimestamp(moment, UTC).isoformat()
        over = [name for name, stage in _STAGES.items() if stage.is_over]
        with engine_errors(self._config):
            while found := self._client.list_workflows(
                status=over, completed_before=stamp, limit=_BATCH, load_input=False, load_output=False
            ):
                self._client.delete_workflows([each.workflow_id for each in found])

    def serve(self, work: Work, queues: Mapping[str, int], on_lost: Callable[[], None]) -> None:
        """Work off the queues until `close`, each with its limit. `on_lost`: others may think that we are dead."""
        with engine_errors(self._config):
            for queue in queues:
                # DBOS keeps one row for all workers of a queue: the limit of one worker is set in `_limited_claim`.
                self._client.register_queue(
                    self._queue(queue),
                    worker_concurrency=1,
                    global_concurrency=self._config.limits.get(queue),
                    polling_interval_sec=self._config.poll_seconds,
                )
        self._launch(work, queues, on_lost)

    def take_over(self) -> Sequence[str]:
        """Give the tickets of dead processes back to their queues, and return those processes."""
        with engine_errors(self._config):
            found = self._client.list_workflows(status="PENDING", load_input=False, load_output=False)
        taken = []
        for executor in sorted({each.executor_id for each in found if each.executor_id} - {self._executor}):
            if self._liveness.is_dead(executor):
                # Safe for two workers at once: it checks that the ticket is pending and still that executor's. The
                # public `resume_workflow` does not, and forgets how often the ticket has killed its worker.
                DBOS._recover_pending_workflows([executor])  # noqa: SLF001
                self._liveness.bury(executor)
                taken.append(executor)
        return taken

    def ended_steps(self, ticket_id: str) -> Mapping[str, Json]:
        """Return the results of a ticket's steps by name; empty if it is forgotten."""
        with engine_errors(self._config):
            found = self._client.list_workflow_steps(ticket_id)
        return {step["function_name"]: step["output"] for step in reversed(found) if step["error"] is None}

    def now(self) -> float:
        """The one clock of all workers: on PostgreSQL the database's, advanced by ours between two looks at it."""
        if self._clock:
            return self._clock()
        with engine_errors(self._config), self._clock_lock:
            if time.monotonic() - self._clock_read > _CLOCK_SECONDS:
                with self._engine.connect() as connection:
                    told = connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one()
                self._clock_read = time.monotonic()
                self._clock_ahead = float(told) - self._clock_read
            return self._clock_ahead + time.monotonic()

    def close(self, grace_seconds: float = 0.0) -> None:
        """Take nothing more, wait so long for what runs, and leave the rest to be taken over."""
        if self._launched:
            DBOS.destroy(workflow_completion_timeout_sec=math.ceil(grace_seconds))
            self._launched = False
        self._client.destroy()
        if not _Working.active:
            self._liveness.release()  # otherwise the end of the process does it, with what still runs
        self._engine.dispose()

    def _launch(self, work: Work, queues: Mapping[str, int], on_lost: Callable[[], None]) -> None:
        if self._launched:
            return
        self._executor = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        _log_to(self._config.folder / "engine.log")
        with engine_errors(self._config):
            self._liveness.hold(self._executor, on_lost)  # before anything can be claimed in this name
            _Working.work, _Working.engine = work, self
            DBOS(
                config={
                    "name": self._config.project,
                    "system_database_engine": self._engine,
                    "serializer": self._serializer,
                    "application_version": self._version,
                    "executor_id": self._executor,
                    "enable_otlp": False,
                    "log_level": "WARNING",
                    "notification_listener_polling_interval_sec": self._config.poll_seconds,
                }
            )
            DBOS.listen_queues([self._queue(queue) for queue in queues])
            # DBOS counts what has begun, not what it has just claimed, and claims more on a busy machine.
            claims_file = None if self._config.database else self._config.folder / "claims"
            claim = _limited_claim({self._queue(queue): count for queue, count in queues.items()}, claims_file)
            SystemDatabase.start_queued_workflows = claim  # type: ignore[method-assign]  # (DBOS has no hook for it)
            DBOS.launch()
        self._launched = True

    def _queue(self, name: str) -> str:
        """Queues have one name for all applications."""
        return f"{self._config.project}.{name}"

    def options_of(self, ticket: Ticket, *, if_known: str = "reject") -> Any:
        options: dict[str, Any] = {
            "workflow_name": WORKFLOW,
            "queue_name": self._queue(ticket.queue),
            "workflow_id": ticket.id,
            "workflow_id_reuse_policy": if_known,
            "app_version": self._version,
        }
        return {**options, "delay_seconds": ticket.delay_seconds} if ticket.delay_seconds > 0 else options


def _status(found: WorkflowStatus) -> TicketStatus:
    queue, body = found.input["args"] if found.input else ("", {})
    ticket, created = Ticket(found.workflow_id, queue, body), (found.created_at or 0) / 1000
    stage = _STAGES.get(found.status, Stage.BROKEN)
    if stage is Stage.BROKEN:
        trouble = str(found.error) if found.error else f"{_MOST_DEATHS} workers died over it"
        return TicketStatus(ticket, stage, created, trouble=trouble)
    return TicketStatus(ticket, stage, created, found.output if stage is Stage.DONE else None)


class _Working:
    """What this process does with a ticket. DBOS knows functions by name only, so this is global."""

    work: Work
    engine: DurableEngine
    active: ClassVar[set[str]] = set()


def _limited_claim(most: Mapping[str, int], claims_file: Path | None) -> Callable[..., Any]:
    """Limit the tickets of each queue that this worker has at a time, from the moment it claims them."""
    #: Claimed here and perhaps not over; each queue has one thread that claims.
    claimed_before: dict[str, set[str]] = {queue: set() for queue in most}

    def claim(
        database: SystemDatabase, queue: Any, executor: str, version: str, key: Any, running: int = 0, **more: Any
    ) -> Any:
        if queue.name not in most:
            return _CLAIM(database, queue, executor, version, key, running, **more)
        before = claimed_before[queue.name]
        held = before & _Working.active
        if unsure := before - held:  # they have not begun, or are over
            held |= {
                each["workflow_uuid"]
                for each in database.get_workflow_statuses(sorted(unsure))
                if each["status"] == "PENDING" and each["executor_id"] == executor
            }
        queue._worker_concurrency = most[queue.name]  # noqa: SLF001
        # Under a limit for all workers one at a time counts and claims. PostgreSQL does that by itself.
        file = claims_file if queue._concurrency is not None else None  # noqa: SLF001
        with locks.LockedFile.wait(file) if file else nullcontext():
            claimed, stopped_by = _CLAIM(database, queue, executor, version, key, len(held), **more)
        claimed_before[queue.name] = held | set(claimed)
        return claimed, stopped_by

    return claim


class DurableSteps:
    """The steps of one ticket's work. A step that ended is never repeated; one under way may be."""

    def run(self, name: str, act: Callable[[], T]) -> T:
        return DBOS.run_step({"name": name}, act)

    def run_each(
        self, name: str, acts: Sequence[Callable[[], T]], at_once: int, go_on: Callable[[T], bool]
    ) -> list[tuple[int, T]]:
        """Run a step for each act, `at_once` at a time, until `go_on` is false for a result. Return the results of
        those that started, with their positions; each is remembered by itself.

        DBOS numbers the steps of a workflow as they begin, and threads begin in any order. Here each step has the
        number of its position, so that after a crash it finds its own result.
        """
        whole = dbos_context.assert_current_dbos_context()
        before = whole.function_id

        def do(position: int) -> T:
            own = copy.copy(whole)
            own.function_id = before + position
            dbos_context._set_local_dbos_context(own)  # noqa: SLF001
            try:
                return DBOS.run_step({"name": f"{name}[{position}]"}, acts[position])
            finally:
                dbos_context._set_local_dbos_context(whole)  # noqa: SLF001

        ended = in_order(do, len(acts), at_once, go_on)
        whole.function_id = before + len(acts)
        return ended

    def follow(self, ticket: Ticket) -> None:
        """Enqueue what follows; only once, also if this work is done a second time."""
        options = _Working.engine.options_of(ticket, if_known="return-existing")
        DBOS.enqueue_workflow_with_options(options, ticket.queue, dict(ticket.body))

    def ended_of(self, ticket_id: str) -> Mapping[str, Json]:
        """Return the results of another ticket's steps by name; empty if it is forgotten."""
        return _Working.engine.ended_steps(ticket_id)


def in_order(do: Callable[[int], T], count: int, at_once: int, go_on: Callable[[T], bool]) -> list[tuple[int, T]]:
    """`run_each` for engines: with threads only if more than one may run at a time."""
    ended: list[tuple[int, T]] = []
    over = threading.Event()

    def one(position: int) -> None:
        if over.is_set():
            return
        try:
            result = do(position)
        except BaseException:
            over.set()
            raise
        ended.append((position, result))
        if not go_on(result):
            over.set()

    with futures.ThreadPoolExecutor(at_once) if at_once > 1 and count > 1 else nullcontext() as pool:
        for _ in (pool.map if pool else map)(one, range(count)):
            pass  # what one raised is raised here
    return sorted(ended, key=lambda each: each[0])


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=_MOST_DEATHS)
def _ticket(queue: str, body: dict[str, Any]) -> dict[str, Any]:
    workflow_id = DBOS.workflow_id
    assert workflow_id is not None  # noqa: S101  (we are inside one)
    _Working.active.add(workflow_id)
    try:
        return dict(_Working.work(Ticket(workflow_id, queue, body), DurableSteps()))
    finally:
        _Working.active.discard(workflow_id)


class _Log(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop what cannot be written, on a full disk, instead of writing to the terminal."""


def _log_to(file: Path) -> None:
    """Send the log of DBOS to a file, never to the terminal."""
    for handler in tuple(_LOG.handlers):
        _LOG.removeHandler(handler)
        handler.close()
    kept = _Log(file, maxBytes=1_000_000, backupCount=1, encoding="utf-8", delay=True)
    kept.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    _LOG.addHandler(kept)


# -- the database

_CHECK_SECONDS = 1.0
#: Without an answer in this time the database is gone. Shorter than its own time limit for us, so that our runs end
#: before others begin them.
_CHECK_ANSWER_SECONDS = 5.0
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
        if sqlite3.sqlite_version_info < (3, 42):
            # On Python 3.12 and newer DBOS makes tables whose default is unixepoch('subsec'), which SQLite knows
            # from 3.42 on. Registered for every Python, because each must read what another made.
            connection.create_function("unixepoch", 1, _unixepoch)
        for pragma in ("busy_timeout = 30000", "foreign_keys = ON", "journal_mode = WAL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if config.full_sync else 'NORMAL'}")

    @event.listens_for(engine, "handle_error")
    def note_full_disk(context: sa.engine.ExceptionContext) -> None:
        """Treat a full disk as a lost connection: DBOS then waits until the database is back."""
        code = getattr(context.original_exception, "sqlite_errorcode", 0)
        if code & 0xFF in _NO_ROOM:  # above are the kinds of each
            context.is_disconnect = True

    # SQLite does not wait where two change a new file to WAL at once: the second is told that the file is locked.
    with engine_errors(config), tables_lock(config), engine.connect():
        file.chmod(0o600)
    return engine


def _unixepoch(modifier: str) -> float:
    """Return what SQLite's `unixepoch('subsec')` does from 3.42 on: the only call that DBOS makes."""
    if modifier != "subsec":
        raise ValueError(f"no stand-in for unixepoch({modifier!r})")
    return time.time()


def tables_lock(config: EngineConfig) -> AbstractContextManager[object]:
    """Let one process at a time make a new SQLite file and its tables; on PostgreSQL DBOS sees to that."""
    return nullcontext() if config.database else locks.LockedFile.wait(config.folder / "tables.lock")


@contextmanager
def engine_errors(config: EngineConfig) -> Iterator[None]:
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
    except dbos_error.DBOSException as error:
        raise RuntimeFailed(Message("the engine cannot be used: {error}", error=error)) from None


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
        with engine_errors(self._config), self._engine.connect() as connection:
            rows = [json.loads(text) for (text,) in connection.execute(asked)]
        known = TimetableEntry._fields
        return tuple(TimetableEntry(**{name: value for name, value in row.items() if name in known}) for row in rows)

    def put(self, line: TimetableEntry) -> None:
        values = {"project": self._config.project, "name": line.name, "line": _as_text(line)}
        self._change(sa.delete(_LINES).where(*self._is(line.name)), sa.insert(_LINES).values(values))

    def drop(self, name: str) -> bool:
        return self._change(sa.delete(_LINES).where(*self._is(name)))

    def swap(self, before: TimetableEntry, after: TimetableEntry) -> bool:
        condition = (*self._is(before.name), _LINES.c.line == _as_text(before))
        return self._change(sa.update(_LINES).where(*condition).values(line=_as_text(after)))

    def _change(self, *statements: sa.Executable) -> bool:
        """Execute them in one transaction. Return whether the last changed something."""
        with engine_errors(self._config), self._engine.begin() as connection:
            return [connection.execute(statement).rowcount > 0 for statement in statements][-1]

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
        while not self._ended.wait(_CHECK_SECONDS):
            if not _answers(self._connection, _CHECK_ANSWER_SECONDS):
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
