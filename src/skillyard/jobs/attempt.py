"""One attempt of a job: the skill that was meant, through the one pipeline, with an end from outside if somebody asks.

Steps are at least once: an attempt whose worker died is made again, under the same run id, which the skill gets as
`context.request_id` and `SKILLYARD_RUN`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.errors import SkillChanged, SkillError, SkillNotFound
from skillyard.core.messages import Lang, Message
from skillyard.core.request import Request
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.values import Json
from skillyard.jobs.engine import Steps, Ticket
from skillyard.jobs.jobs import Job, about, as_row, cancelled_result, next_attempt
from skillyard.runtime.guard import OnProgress
from skillyard.runtime.pipeline import Runtime
from skillyard.sandbox.cancel_token import CancelToken
from skillyard.store.runs import RUNNING, Runs

_ENDED = Message("{id} {label}: {state}")
_AGAIN = Message("{id} {label}: {state}, another attempt follows")


class Bench(NamedTuple):
    """What one thread needs for its attempts; databases do not go from thread to thread."""

    runtime: Runtime
    runs: Runs
    #: Installs what the lock says and is not here; errors say why it cannot.
    restore: Callable[[], None]
    #: Does a job that runs no skill, under the id of its run.
    do_errand: Callable[[str, Job, CancelToken], Result]


class Notify(Protocol):
    """Tells the owner of a job that failed for good. What it returns is kept with the job."""

    def __call__(self, job: Job, result: Mapping[str, Json]) -> dict[str, Json]: ...


class Flow(Protocol):
    """Does a job that has several steps."""

    def __call__(self, flow_id: str, job: Job, steps: Steps) -> dict[str, Json]: ...


class Underway:
    """The attempts of this process that run now, each with the way to end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[str, CancelToken] = {}

    @contextmanager
    def running(self, run_id: str) -> Iterator[CancelToken]:
        stop = CancelToken()
        with self._lock:
            self._stops[run_id] = stop
        try:
            yield stop
        finally:
            with self._lock:
                del self._stops[run_id]

    def list(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._stops)

    def stop(self, run_id: str) -> bool:
        """Whether it was not asked before."""
        with self._lock:
            stop = self._stops.get(run_id)
        if stop is None or stop.cancelled:
            return False
        stop.cancel()
        return True


class Attempts:
    """Does the work of tickets. Any number of threads may call it at once."""

    def __init__(
        self,
        bench: Callable[[], Bench],
        host: str,
        notify: Notify,
        tell: Callable[[str], None] = lambda _: None,
        on_progress: OnProgress = None,
    ) -> None:
        self._bench, self._host, self._notify, self._tell = bench, host, notify, tell
        self._on_progress = on_progress
        self.underway = Underway()
        #: Does the jobs that are flows, by means of `run`.
        self.flows: Flow | None = None

    def __call__(self, ticket: Ticket, steps: Steps) -> dict[str, Json]:
        job = Job.from_body(ticket.body)
        if job.flow and self.flows:
            result = self.flows(ticket.id, job, steps)
        elif job.may_go_on:
            result = steps.once("run", lambda: self.run(ticket.id, job))
        else:
            result = self.run(ticket.id, job)  # the ticket's own end is the record of its one step
        again = next_attempt(ticket.id, job, result)
        said = _AGAIN if again else _ENDED
        self._tell(Message(said.template, id=ticket.id, label=job.label, state=result["state"]))
        told: dict[str, Json] = {}
        if again:
            steps.follow(again)
        elif job.on_failure and result["state"] not in {"success", "partial"}:
            told = steps.once("tell", lambda: self._notify(job, result))
        return {"result": result, "next": again.id if again else "", "told": told}

    def run(self, run_id: str, job: Job) -> dict[str, Json]:
        """One run, under this id; its row is kept whatever came of it."""
        bench = self._bench()
        started, moment = time.monotonic(), datetime.now(UTC)
        with self.underway.running(run_id) as stop:
            try:
                result = bench.do_errand(run_id, job, stop) if job.errand else self._run(bench, run_id, job, stop)
            except SkillError as error:
                meta = make_meta(job.agent, time.monotonic() - started, moment)
                result = error_result(error, job.agent, Lang(job.lang), meta)
        told = self._told(result, run_id)
        if stop.cancelled:
            told = cancelled_result(job)
        row = bench.runs.find(run_id)
        if stop.cancelled and row:
            bench.runs.put(row._replace(state="error", result=told))
        elif row is None or row.state == RUNNING:
            bench.runs.put(as_row(run_id, job, moment.timestamp(), told))
        return told

    def _run(self, bench: Bench, run_id: str, job: Job, stop: CancelToken) -> Result:
        request = as_request(job)
        self._demand_content(bench, job, request)
        return bench.runtime._replace(new_id=lambda: run_id).run(request, self._on_progress, stop)

    def _told(self, result: Result, run_id: str) -> dict[str, Json]:
        return result._replace(meta={**result.meta, "run": run_id, "host": self._host}).as_dict()

    def _demand_content(self, bench: Bench, job: Job, request: Request) -> None:
        """The bytes that were meant: here, or installed from the lock; SkillChanged otherwise."""
        if not job.fingerprint or _content(bench, request) == job.fingerprint:
            return
        try:
            bench.restore()
        except SkillError as error:
            raise SkillChanged(
                Message(
                    "{skill} is not as it was queued, and cannot be restored: {msg}", skill=job.skill, msg=error.msg
                )
            ) from None
        if _content(bench, request) != job.fingerprint:
            raise SkillChanged(Message("{skill} is not as it was when the job was queued", skill=job.skill))


def as_request(job: Job) -> Request:
    """Nobody can answer, and paths lie inside the project."""
    return Request(
        name=job.skill,
        args=job.args,
        params=job.params,
        action=job.action or None,
        timeout_seconds=job.timeout_seconds,
        interactive=False,
        lang=Lang(job.lang),
        job=about(job),
    )


def _content(bench: Bench, request: Request) -> str:
    try:
        return fingerprint(bench.runtime.resolve(request).folder)
    except SkillNotFound:
        return ""
