"""DBOS, embedded on SQLite or shared on PostgreSQL; the only module that imports it.

One database holds the tickets of many projects: each is an application of its own to DBOS, so that nobody works off
what belongs to another. Every process has an executor id of its own, and a lock that says whether it lives.

Covered: kill -9 of any worker at any point, several workers at once, a database that restarts, a disk that fills up.
Not covered: power loss right after a commit on SQLite, unless `synchronous = "full"` is set.
"""

import copy
import fcntl
import json
import logging
import math
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

# Before DBOS looks for a handler: it would make one of its own, for the terminal.
_LOG = logging.getLogger("dbos")
_LOG.propagate = False
if not _LOG.handlers:
    _LOG.addHandler(logging.NullHandler())

import sqlalchemy as sa  # noqa: E402
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowStatus  # noqa: E402
from dbos import _context as dbos_context  # noqa: E402
from dbos import error as dbos_error  # noqa: E402
from dbos._sys_db import SystemDatabase  # noqa: E402
from sqlalchemy import event  # noqa: E402

from skillyard.core.errors import DatabaseFailed, RuntimeFailed, StateDamaged, StoreFailed  # noqa: E402
from skillyard.core.messages import Message  # noqa: E402
from skillyard.core.values import Json  # noqa: E402
from skillyard.jobs.engine import Acts, Line, Stage, Standing, Steps, T, Ticket, Work, in_order  # noqa: E402
from skillyard.jobs.liveness import DatabaseLiveness, FileLiveness, Liveness  # noqa: E402

#: Said by us, or each change of our code would strand what was queued before it.
VERSION = "1"
WORKFLOW = "skillyard.ticket"
#: A ticket that took so many workers down with it is not given to another.
_MOST_DEATHS = 5
_LOOK_SECONDS = (0.02, 0.5)
_LIVE = ["ENQUEUED", "DELAYED", "PENDING"]
_OVER = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
_STAGES = {
    "ENQUEUED": Stage.QUEUED,
    "DELAYED": Stage.QUEUED,
    "PENDING": Stage.RUNNING,
    "SUCCESS": Stage.DONE,
    "CANCELLED": Stage.CANCELLED,
}
_BATCH = 500
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


NO_LIMITS: Mapping[str, int] = {}


class Place(NamedTuple):
    """Where the tickets of a project are kept."""

    folder: Path
    #: What names the project there: lower-case letters, digits and dashes.
    project: str
    #: `postgresql://…`; nothing for SQLite in the folder.
    database: str = ""
    #: SQLite: whether each commit waits for the disk.
    full_sync: bool = False
    #: How often a worker looks for tickets; less than a second costs an idle one dearly.
    poll_seconds: float = 1.0
    #: How many of a queue all workers together may do at a time, where somebody said so.
    limits: Mapping[str, int] = NO_LIMITS


class _Started(NamedTuple):
    """A ticket whose work was begun here directly."""

    ticket: Ticket
    created: float
    ending: futures.Future[dict[str, Any]]


class DurableEngine:
    def __init__(self, place: Place, clock: Callable[[], float] | None = None) -> None:
        """Without a clock of the caller's: the database's, or on SQLite this machine's."""
        self._place = place
        self._serializer = DBOSPortableJSONSerializer()
        self._engine = _open_postgres(place) if place.database else _open_sqlite(place)
        self._liveness: Liveness = (
            DatabaseLiveness(place.database) if place.database else FileLiveness(place.folder / "alive")
        )
        self._launched = False
        self._started: dict[str, _Started] = {}
        self._clock = clock or (_DatabaseClock(self._engine) if place.database else time.time)
        with _told(place):
            with _tables_alone(place):
                DBOS.migrate(self._engine.url.render_as_string(hide_password=False))
                self.timetable = _Timetable(self._engine, place)
            self._client = DBOSClient(
                system_database_engine=self._engine,
                serializer=self._serializer,
                application_name=place.project,
                retry_connection_errors=False,
            )

    # -- tickets

    def enqueue(self, ticket: Ticket) -> bool:
        with _told(self._place):
            try:
                self._client.enqueue(self._options(ticket), ticket.queue, dict(ticket.body))
            except dbos_error.DBOSWorkflowIDInUseError:
                return False
        return True

    def start(self, ticket: Ticket, work: Work, on_lost: Callable[[], None] = lambda: None) -> None:
        self._launch(work, {}, on_lost)
        with SetWorkflowID(ticket.id):
            handle = DBOS.start_workflow(_ticket, ticket.queue, dict(ticket.body))
        self._started[ticket.id] = _Started(ticket, self.now(), cast("Any", handle).future)

    def wait(self, ticket_id: str, seconds: float | None = None) -> Standing | None:
        began = time.monotonic()
        left = math.inf if seconds is None else seconds
        started = self._started.get(ticket_id)
        if started:
            if not futures.wait([started.ending], None if seconds is None else left).done:
                return None
            del self._started[ticket_id]
            if started.ending.exception() is None:  # its record was written before this was said
                return Standing(started.ticket, Stage.DONE, started.created, started.ending.result())
        while standing := self.find(ticket_id):
            if standing.stage.is_over:
                return standing
            waited = time.monotonic() - began
            if waited >= left:
                return None
            time.sleep(min(_next_look(waited), left - waited))
        return None

    def cancel(self, ticket_id: str) -> bool:
        standing = self.find(ticket_id)
        if standing is None or standing.stage.is_over:
            return False
        with _told(self._place):
            self._client.cancel_workflow(ticket_id)
        after = self.find(ticket_id)
        return after is not None and after.stage is Stage.CANCELLED

    def find(self, ticket_id: str) -> Standing | None:
        with _told(self._place):
            found = self._client.list_workflows(workflow_ids=[ticket_id], application_name=self._place.project)
        return self._standing(found[0]) if found else None

    def list(self, limit: int, *, live: bool = False) -> tuple[Standing, ...]:
        with _told(self._place):
            found = self._client.list_workflows(
                status=_LIVE if live else None, name=WORKFLOW, limit=limit, sort_desc=True
            )
        return tuple(map(self._standing, found))

    def forget_before(self, moment: float) -> None:
        stamp = datetime.fromtimestamp(moment, UTC).isoformat()
        with _told(self._place):
            while found := self._client.list_workflows(
                status=_OVER, completed_before=stamp, limit=_BATCH, load_input=False, load_output=False
            ):
                self._client.delete_workflows([each.workflow_id for each in found])

    # -- workers

    def serve(self, work: Work, queues: Mapping[str, int], on_lost: Callable[[], None]) -> None:
        with _told(self._place):
            for queue in queues:
                # DBOS keeps one row for all workers of a queue: what is each worker's own stays out of it.
                self._client.register_queue(
                    self._queue(queue),
                    worker_concurrency=1,
                    global_concurrency=self._place.limits.get(queue),
                    polling_interval_sec=self._place.poll_seconds,
                )
        self._launch(work, queues, on_lost)

    def take_over(self) -> Sequence[str]:
        with _told(self._place):
            found = self._client.list_workflows(status="PENDING", load_input=False, load_output=False)
        taken = []
        for executor in sorted({each.executor_id for each in found if each.executor_id} - {self._executor}):
            if self._liveness.is_dead(executor):
                # Its guard (still pending, still that executor's) makes it safe for two who do the same; the public
                # `resume_workflow` has none, and forgets how often the ticket has killed its worker.
                DBOS._recover_pending_workflows([executor])  # noqa: SLF001
                self._liveness.bury(executor)
                taken.append(executor)
        return taken

    def now(self) -> float:
        with _told(self._place):
            return self._clock()

    def close(self, grace_seconds: float = 0.0) -> None:
        if self._launched:
            DBOS.destroy(workflow_completion_timeout_sec=math.ceil(grace_seconds))
            self._launched = False
        self._client.destroy()
        if not _working.active:
            self._liveness.release()  # else our death does it, together with what is still under way
        self._engine.dispose()

    def _launch(self, work: Work, queues: Mapping[str, int], on_lost: Callable[[], None]) -> None:
        if self._launched:
            return
        self._executor = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        _log_to(self._place.folder / "engine.log")
        with _told(self._place):
            self._liveness.hold(self._executor, on_lost)  # before anything can be claimed in this name
            _working.work, _working.engine = work, self
            DBOS(
                config={
                    "name": self._place.project,
                    "system_database_engine": self._engine,
                    "serializer": self._serializer,
                    "application_version": self._version,
                    "executor_id": self._executor,
                    "enable_otlp": False,
                    "log_level": "WARNING",
                    "notification_listener_polling_interval_sec": self._place.poll_seconds,
                }
            )
            DBOS.listen_queues([self._queue(queue) for queue in queues])
            # DBOS counts what has begun, not what it has just claimed, and claims more on a busy machine.
            limits = _Limits({self._queue(queue): count for queue, count in queues.items()}, self._claims_file)
            SystemDatabase.start_queued_workflows = limits.bind()  # type: ignore[method-assign]
            DBOS.launch()
        self._launched = True

    _executor = ""

    @property
    def _claims_file(self) -> Path | None:
        return None if self._place.database else self._place.folder / "claims"

    def _queue(self, name: str) -> str:
        """DBOS knows queues by one name for all applications."""
        return f"{self._place.project}.{name}"

    @property
    def _version(self) -> str:
        """Versions too: one name belongs to one application alone."""
        return f"{self._place.project}.{VERSION}"

    def _options(self, ticket: Ticket) -> Any:
        options: dict[str, Any] = {
            "workflow_name": WORKFLOW,
            "queue_name": self._queue(ticket.queue),
            "workflow_id": ticket.id,
            "workflow_id_reuse_policy": "reject",
            "app_version": self._version,
        }
        return {**options, "delay_seconds": ticket.delay_seconds} if ticket.delay_seconds > 0 else options

    def _standing(self, found: WorkflowStatus) -> Standing:
        queue, body = found.input["args"] if found.input else ("", {})
        stage = _STAGES.get(found.status, Stage.BROKEN)
        trouble = ""
        if stage is Stage.BROKEN:
            trouble = str(found.error) if found.error else f"{_MOST_DEATHS} workers died over it"
        return Standing(
            ticket=Ticket(found.workflow_id, queue, body),
            stage=stage,
            created=(found.created_at or 0) / 1000,
            answer=found.output if stage is Stage.DONE else None,
            trouble=trouble,
        )


def _next_look(waited: float) -> float:
    """The longer it took so far, the less a little more matters."""
    shortest, longest = _LOOK_SECONDS
    return min(max(waited / 10, shortest), longest)


class _Working:
    """What this process does with a ticket; DBOS knows functions by their names alone."""

    work: Work
    engine: DurableEngine
    #: The tickets that are under way in this process.
    active: ClassVar[set[str]] = set()


_working = _Working()


class _Limits:
    """How many tickets of each queue this worker has at a time, from the moment it claims them."""

    def __init__(self, most: Mapping[str, int], claims_file: Path | None) -> None:
        self._most, self._claims_file = most, claims_file
        #: What was claimed here and may not be over; each queue has one thread that claims.
        self._held: dict[str, set[str]] = {queue: set() for queue in most}

    def bind(self) -> Callable[..., Any]:
        def claim(
            database: SystemDatabase, queue: Any, executor: str, version: str, key: Any, running: int = 0, **more: Any
        ) -> Any:
            if queue.name not in self._most:
                return _CLAIM(database, queue, executor, version, key, running, **more)
            held = self._held[queue.name] = self._still_held(database, queue.name, executor)
            queue._worker_concurrency = self._most[queue.name]  # noqa: SLF001
            with self._alone(queue):
                claimed, stopped_by = _CLAIM(database, queue, executor, version, key, len(held), **more)
            held.update(claimed)
            return claimed, stopped_by

        return claim

    def _still_held(self, database: SystemDatabase, queue: str, executor: str) -> set[str]:
        """The database is asked only about those that are not seen at work: they have not begun, or are over."""
        held = self._held[queue]
        at_work = held & _working.active
        unsure = held - at_work
        if not unsure:
            return at_work
        found = database.get_workflow_statuses(sorted(unsure))
        return at_work | {
            each["workflow_uuid"] for each in found if each["status"] == "PENDING" and each["executor_id"] == executor
        }

    @contextmanager
    def _alone(self, queue: Any) -> Iterator[None]:
        """A limit for all workers is counted and used up by one of them at a time. PostgreSQL sees to that itself."""
        if self._claims_file is None or queue._concurrency is None:  # noqa: SLF001
            yield
            return
        with self._claims_file.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


#: The one place where DBOS takes tickets from a queue.
_CLAIM = SystemDatabase.start_queued_workflows


class _Steps(Steps):
    def once(self, name: str, act: Callable[[], T]) -> T:
        return DBOS.run_step({"name": name}, act)

    def each(self, name: str, acts: Acts[T], at_once: int, go_on: Callable[[T], bool]) -> list[tuple[int, T]]:
        """DBOS counts the steps of a workflow as they begin, which threads do in any order: here each has the number
        of its position, so that what comes after a crash finds its own."""
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
        options = _working.engine._options(ticket)  # noqa: SLF001
        options["workflow_id_reuse_policy"] = "return-existing"
        DBOS.enqueue_workflow_with_options(options, ticket.queue, dict(ticket.body))

    def ended_of(self, ticket_id: str) -> Mapping[str, Json]:
        engine = _working.engine
        with _told(engine._place):  # noqa: SLF001
            found = engine._client.list_workflow_steps(ticket_id)  # noqa: SLF001
        return {step["function_name"]: step["output"] for step in reversed(found) if step["error"] is None}


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=_MOST_DEATHS)
def _ticket(queue: str, body: dict[str, Any]) -> dict[str, Any]:
    workflow_id = DBOS.workflow_id
    assert workflow_id is not None  # noqa: S101  (we are inside one)
    _working.active.add(workflow_id)
    try:
        return dict(_working.work(Ticket(workflow_id, queue, body), _Steps()))
    finally:
        _working.active.discard(workflow_id)


class _Timetable:
    """Our own table beside those of DBOS, where all workers of the project see it."""

    def __init__(self, engine: sa.Engine, place: Place) -> None:
        self._engine, self._place, self._project = engine, place, place.project
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                # Two that make the same table at once would collide.
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7305821)"))
            _METADATA.create_all(connection)

    def list(self) -> tuple[Line, ...]:
        with _told(self._place), self._engine.connect() as connection:
            rows = connection.execute(
                sa.select(_LINES.c.line).where(_LINES.c.project == self._project).order_by(_LINES.c.name)
            ).fetchall()
        return tuple(_as_line(text) for (text,) in rows)

    def put(self, line: Line) -> None:
        with _told(self._place), self._engine.begin() as connection:
            connection.execute(sa.delete(_LINES).where(*self._is(line.name)))
            connection.execute(sa.insert(_LINES).values(project=self._project, name=line.name, line=_as_text(line)))

    def drop(self, name: str) -> bool:
        with _told(self._place), self._engine.begin() as connection:
            return connection.execute(sa.delete(_LINES).where(*self._is(name))).rowcount > 0

    def swap(self, before: Line, after: Line) -> bool:
        condition = (*self._is(before.name), _LINES.c.line == _as_text(before))
        with _told(self._place), self._engine.begin() as connection:
            return connection.execute(sa.update(_LINES).where(*condition).values(line=_as_text(after))).rowcount > 0

    def _is(self, name: str) -> tuple[sa.ColumnElement[bool], ...]:
        return (_LINES.c.project == self._project, _LINES.c.name == name)


def _as_text(line: Line) -> str:
    return json.dumps({**line._asdict(), "says": dict(line.says)}, ensure_ascii=False, sort_keys=True)


def _as_line(text: str) -> Line:
    fields: dict[str, Any] = json.loads(text)
    return Line(**{name: value for name, value in fields.items() if name in Line._fields})


@contextmanager
def _tables_alone(place: Place) -> Iterator[None]:
    """Of several that start on a new SQLite file at once, one makes the tables; on PostgreSQL DBOS sees to that."""
    if place.database:
        yield
        return
    with (place.folder / "tables.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open_sqlite(place: Place) -> sa.Engine:
    place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = place.folder / "engine.db"
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(file)), pool_size=20, max_overflow=30)

    @event.listens_for(engine, "connect")
    def settle(connection: Any, _: object) -> None:
        # As DBOS sets up its own: writers wait for each other from the start of a transaction, and long enough.
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout = 30000", "foreign_keys = ON", "journal_mode = WAL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if place.full_sync else 'NORMAL'}")

    @event.listens_for(engine, "handle_error")
    def note_full_disk(context: sa.engine.ExceptionContext) -> None:
        """A disk without room is a database that is away for a while: what is under way waits for it to come back."""
        code = getattr(context.original_exception, "sqlite_errorcode", 0)
        if code & 0xFF in _NO_ROOM:  # above are the kinds of each
            context.is_disconnect = True

    with _told(place), engine.connect():
        file.chmod(0o600)
    return engine


def _open_postgres(place: Place) -> sa.Engine:
    place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    url = sa.make_url(place.database).set(drivername="postgresql+psycopg")
    return sa.create_engine(url, pool_size=20, max_overflow=30, pool_pre_ping=True)


@contextmanager
def _told(place: Place) -> Iterator[None]:
    """A database that cannot be reached is a failure that can be expected; its password is nobody's business."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        reason = (str(getattr(error, "orig", None) or error).strip().splitlines() or [""])[0]
        if place.database:
            raise DatabaseFailed(f"{sa.make_url(place.database).render_as_string()}: {reason}") from None
        if getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            file = place.folder / "engine.db"
            raise StateDamaged(
                f"{file}: {reason}",
                Message(
                    "stop the workers and set it aside: `mv {file} {file}.damaged`; a new one is made, jobs and "
                    "flows that waited in it must be added again, and what already ran stays in `skillyard jobs "
                    "history`",
                    file=file,
                ),
            ) from None
        raise StoreFailed(f"{place.folder}: {reason}") from None
    except dbos_error.DBOSException as error:
        raise RuntimeFailed(Message("the engine cannot be used: {error}", error=error)) from None


class _DatabaseClock:
    """The database's clock, asked now and then, and ours in between."""

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


class _Log(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """What cannot be written, on a full disk, is let go: the terminal is not the place for it."""


def _log_to(file: Path) -> None:
    """What DBOS has to say goes to a file, never to the terminal."""
    for handler in tuple(_LOG.handlers):
        _LOG.removeHandler(handler)
        handler.close()
    kept = _Log(file, maxBytes=1_000_000, backupCount=1, encoding="utf-8", delay=True)
    kept.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    _LOG.addHandler(kept)
