"""The engine: DBOS, embedded on SQLite or shared on PostgreSQL. The only module that imports DBOS.

One database holds the tickets of many projects: each is an application of its own to DBOS, so that no worker takes the
tickets of another project. Every process has an executor id of its own, and a lock that says whether it is alive.

Covered: kill -9 of any worker at any point, several workers at once, a database that restarts, a disk that fills up.
Not covered: power loss right after a commit on SQLite, unless `synchronous = "full"` is set.
"""

import copy
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, ClassVar, cast

from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.jobs.engine import Acts, DurableSteps, EngineConfig, Stage, T, Ticket, TicketStatus, Work, in_order
from skillyard.jobs.engine_database import (
    DatabaseClock,
    DatabaseLiveness,
    DatabaseTimetable,
    FileLiveness,
    database_errors,
    open_database,
)
from skillyard.store.locks import LockedFile

# Before DBOS looks for a handler: it would make one that writes to the terminal.
_LOG = logging.getLogger("dbos")
_LOG.propagate = False
if not _LOG.handlers:
    _LOG.addHandler(logging.NullHandler())

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowStatus  # noqa: E402
from dbos import _context as dbos_context  # noqa: E402
from dbos import error as dbos_error  # noqa: E402
from dbos._sys_db import SystemDatabase  # noqa: E402

#: Set by us: by default each change of our code would strand what was queued before it.
VERSION = "1"
WORKFLOW = "skillyard.ticket"
#: A ticket that killed so many workers is not given to another.
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


class DurableEngine:
    def __init__(self, config: EngineConfig, clock: Callable[[], float] | None = None) -> None:
        """`clock` defaults to the database's, or on SQLite to this machine's."""
        self._config = config
        self._serializer = DBOSPortableJSONSerializer()
        self._engine = open_database(config)
        self._liveness: DatabaseLiveness | FileLiveness = (
            DatabaseLiveness(config.database) if config.database else FileLiveness(config.folder / "alive")
        )
        self._launched = False
        self._executor = ""
        #: What was started in this process, with what its work will give.
        self._started: dict[str, tuple[TicketStatus, futures.Future[dict[str, Any]]]] = {}
        self._clock = clock or (DatabaseClock(self._engine) if config.database else time.time)
        # One process at a time makes the tables of a new SQLite file; on PostgreSQL DBOS sees to that.
        alone = nullcontext() if config.database else LockedFile.wait(config.folder / "tables.lock")
        with _engine_errors(config), alone:
            DBOS.migrate(self._engine.url.render_as_string(hide_password=False))
            self.timetable = DatabaseTimetable(self._engine, config)
        with _engine_errors(config):
            self._client = DBOSClient(
                system_database_engine=self._engine,
                serializer=self._serializer,
                application_name=config.project,
                retry_connection_errors=False,
            )

    # -- tickets

    def enqueue(self, ticket: Ticket) -> bool:
        with _engine_errors(self._config):
            try:
                self._client.enqueue(self._options(ticket), ticket.queue, dict(ticket.body))
            except dbos_error.DBOSWorkflowIDInUseError:
                return False
        return True

    def start(self, ticket: Ticket, work: Work, on_lost: Callable[[], None] = lambda: None) -> None:
        self._launch(work, {}, on_lost)
        with SetWorkflowID(ticket.id):
            handle = DBOS.start_workflow(_ticket, ticket.queue, dict(ticket.body))
        status = TicketStatus(ticket, Stage.RUNNING, self.now())
        self._started[ticket.id] = (status, cast("Any", handle).future)

    def wait(self, ticket_id: str, seconds: float | None = None) -> TicketStatus | None:
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
        before = self.find(ticket_id)
        if before is None or before.stage.is_over:
            return False
        with _engine_errors(self._config):
            self._client.cancel_workflow(ticket_id)
        after = self.find(ticket_id)
        return after is not None and after.stage is Stage.CANCELLED

    def find(self, ticket_id: str) -> TicketStatus | None:
        with _engine_errors(self._config):
            found = self._client.list_workflows(workflow_ids=[ticket_id], application_name=self._config.project)
        return _status(found[0]) if found else None

    def list(self, limit: int, *, live: bool = False) -> tuple[TicketStatus, ...]:
        with _engine_errors(self._config):
            live_only = _LIVE if live else None
            found = self._client.list_workflows(status=live_only, name=WORKFLOW, limit=limit, sort_desc=True)
        return tuple(map(_status, found))

    def forget_before(self, moment: float) -> None:
        stamp = datetime.fromtimestamp(moment, UTC).isoformat()
        with _engine_errors(self._config):
            while found := self._client.list_workflows(
                status=_OVER, completed_before=stamp, limit=_BATCH, load_input=False, load_output=False
            ):
                self._client.delete_workflows([each.workflow_id for each in found])

    # -- workers

    def serve(self, work: Work, queues: Mapping[str, int], on_lost: Callable[[], None]) -> None:
        with _engine_errors(self._config):
            for queue in queues:
                # DBOS keeps one row for all workers of a queue: the limit of one worker is set in `_Limits`.
                self._client.register_queue(
                    self._queue(queue),
                    worker_concurrency=1,
                    global_concurrency=self._config.limits.get(queue),
                    polling_interval_sec=self._config.poll_seconds,
                )
        self._launch(work, queues, on_lost)

    def take_over(self) -> Sequence[str]:
        with _engine_errors(self._config):
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

    def now(self) -> float:
        with _engine_errors(self._config):
            return self._clock()

    def close(self, grace_seconds: float = 0.0) -> None:
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
        with _engine_errors(self._config):
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
            limits = _Limits({self._queue(queue): count for queue, count in queues.items()}, claims_file)
            SystemDatabase.start_queued_workflows = limits.bind()  # type: ignore[method-assign]
            DBOS.launch()
        self._launched = True

    def _queue(self, name: str) -> str:
        """Queues have one name for all applications."""
        return f"{self._config.project}.{name}"

    @property
    def _version(self) -> str:
        """Versions too: one name belongs to one application."""
        return f"{self._config.project}.{VERSION}"

    def _options(self, ticket: Ticket) -> Any:
        options: dict[str, Any] = {
            "workflow_name": WORKFLOW,
            "queue_name": self._queue(ticket.queue),
            "workflow_id": ticket.id,
            "workflow_id_reuse_policy": "reject",
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
    #: The tickets that run in this process.
    active: ClassVar[set[str]] = set()


class _Limits:
    """Limits the tickets of each queue that this worker has at a time, from the moment it claims them."""

    def __init__(self, most: Mapping[str, int], claims_file: Path | None) -> None:
        self._most, self._claims_file = most, claims_file
        #: Claimed here and perhaps not over; each queue has one thread that claims.
        self._held: dict[str, set[str]] = {queue: set() for queue in most}

    def bind(self) -> Callable[..., Any]:
        def claim(
            database: SystemDatabase, queue: Any, executor: str, version: str, key: Any, running: int = 0, **more: Any
        ) -> Any:
            if queue.name not in self._most:
                return _CLAIM(database, queue, executor, version, key, running, **more)
            held = self._held[queue.name] = self._still_held(database, queue.name, executor)
            queue._worker_concurrency = self._most[queue.name]  # noqa: SLF001
            # Under a limit for all workers one at a time counts and claims. PostgreSQL does that by itself.
            file = self._claims_file if queue._concurrency is not None else None  # noqa: SLF001
            with LockedFile.wait(file) if file else nullcontext():
                claimed, stopped_by = _CLAIM(database, queue, executor, version, key, len(held), **more)
            held.update(claimed)
            return claimed, stopped_by

        return claim

    def _still_held(self, database: SystemDatabase, queue: str, executor: str) -> set[str]:
        """Ask the database only about those that do not run here: they have not begun, or are over."""
        held = self._held[queue]
        at_work = held & _Working.active
        unsure = held - at_work
        if not unsure:
            return at_work
        found = database.get_workflow_statuses(sorted(unsure))
        return at_work | {
            each["workflow_uuid"] for each in found if each["status"] == "PENDING" and each["executor_id"] == executor
        }


#: The one place where DBOS takes tickets from a queue.
_CLAIM = SystemDatabase.start_queued_workflows


class _DbosSteps(DurableSteps):
    def run(self, name: str, act: Callable[[], T]) -> T:
        return DBOS.run_step({"name": name}, act)

    def run_each(self, name: str, acts: Acts[T], at_once: int, go_on: Callable[[T], bool]) -> list[tuple[int, T]]:
        """DBOS numbers the steps of a workflow as they begin, and threads begin in any order. Here each step has the
        number of its position, so that after a crash it finds its own result."""
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
        options = _Working.engine._options(ticket)  # noqa: SLF001
        options["workflow_id_reuse_policy"] = "return-existing"
        DBOS.enqueue_workflow_with_options(options, ticket.queue, dict(ticket.body))

    def ended_of(self, ticket_id: str) -> Mapping[str, Json]:
        engine = _Working.engine
        with _engine_errors(engine._config):  # noqa: SLF001
            found = engine._client.list_workflow_steps(ticket_id)  # noqa: SLF001
        return {step["function_name"]: step["output"] for step in reversed(found) if step["error"] is None}


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=_MOST_DEATHS)
def _ticket(queue: str, body: dict[str, Any]) -> dict[str, Any]:
    workflow_id = DBOS.workflow_id
    assert workflow_id is not None  # noqa: S101  (we are inside one)
    _Working.active.add(workflow_id)
    try:
        return dict(_Working.work(Ticket(workflow_id, queue, body), _DbosSteps()))
    finally:
        _Working.active.discard(workflow_id)


@contextmanager
def _engine_errors(config: EngineConfig) -> Iterator[None]:
    try:
        with database_errors(config):
            yield
    except dbos_error.DBOSException as error:
        raise RuntimeFailed(Message("the engine cannot be used: {error}", error=error)) from None


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
