"""The worker: makes attempts of jobs, fires schedules, stops what was cancelled, and takes over from dead workers.

An attempt runs the skill that was meant through the one pipeline. Steps are at least once: an attempt whose worker died
is made again, under the same run id, which the skill gets as `context.request_id` and `SKILLYARD_RUN`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.errors import InvalidArgs, MultiStep, NotGranted, SkillChanged, SkillError, SkillNotFound
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.values import Json
from skillyard.jobs.engine import DurableSteps, Engine, Stage, Ticket, TimetableEntry
from skillyard.jobs.jobs import Job, Jobs, jitter_of, next_attempt, tick_id
from skillyard.jobs.schedule import Schedule, beat
from skillyard.runtime.pipeline import Runtime
from skillyard.runtime.record import OnProgress
from skillyard.sandbox.cancel_token import CancelToken
from skillyard.store.runs import RUNNING, Runs

_TAKE_OVER_SECONDS = 3.0
_FORGET_SECONDS = 3600.0
_BACK_UP_SECONDS = 60.0
_DAY = 86_400.0
_ENDED = Message("{id} {label}: {state}")
_AGAIN = Message("{id} {label}: {state}, another attempt follows")
#: Does a job that has several steps.
RunFlow = Callable[[str, Job, DurableSteps], dict[str, Json]]
#: Tells the owner of a job that failed for good. What it returns is kept with the job.
Notify = Callable[[Job, Mapping[str, Json]], dict[str, Json]]


class AttemptContext(NamedTuple):
    """What one thread needs for its attempts; a database connection belongs to one thread."""

    runtime: Runtime
    runs: Runs
    #: Installs what the lock says and is not here. Raises SkillError.
    restore: Callable[[], None]
    #: Does a job that is a task, under the id of its run.
    run_task: Callable[[str, Job, CancelToken], Result]


class Underway:
    """The attempts that run in this process now, each with its cancel token."""

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
        """Stop an attempt. Return False if it was stopped before, or does not run here."""
        with self._lock:
            stop = self._stops.get(run_id)
        if stop is None or stop.cancelled:
            return False
        stop.cancel()
        return True


class Attempts:
    """Makes attempts of tickets. Any number of threads may call it at once."""

    def __init__(
        self,
        open_context: Callable[[], AttemptContext],
        host: str,
        notify: Notify,
        tell: Callable[[str], None] = lambda _: None,
        on_progress: OnProgress = None,
    ) -> None:
        self._open_context, self._host, self._notify, self._tell = open_context, host, notify, tell
        self._on_progress = on_progress
        self.underway = Underway()
        #: Set by `Flows`, which makes its steps with `run`.
        self.run_flow: RunFlow | None = None

    def __call__(self, ticket: Ticket, steps: DurableSteps) -> dict[str, Json]:
        job = Job.from_body(ticket.body)
        if job.flow and self.run_flow:
            result = self.run_flow(ticket.id, job, steps)
        elif job.on_failure or job.retries_left > 0:
            result = steps.run("run", lambda: self.run(ticket.id, job))
        else:
            result = self.run(ticket.id, job)  # the ticket's own end is the record of its one step
        again = next_attempt(ticket.id, job, result)
        said = _AGAIN if again else _ENDED
        self._tell(Message(said.template, id=ticket.id, label=job.label, state=result["state"]))
        told: dict[str, Json] = {}
        if again:
            steps.follow(again)
        elif job.on_failure and result["state"] not in {"success", "partial"}:
            told = steps.run("tell", lambda: self._notify(job, result))
        return {"result": result, "next": again.id if again else "", "told": told}

    def run(self, run_id: str, job: Job) -> dict[str, Json]:
        """Make one run under this id. Its row is kept whatever came of it."""
        context = self._open_context()
        started, moment = time.monotonic(), datetime.now(UTC)
        with self.underway.running(run_id) as stop:
            try:
                if job.task:
                    result = context.run_task(run_id, job, stop)
                else:
                    _demand_content(context, job)
                    runtime = context.runtime._replace(new_id=lambda: run_id)
                    result = runtime.run(job.as_request(), self._on_progress, stop)
            except SkillError as error:
                meta = make_meta(job.agent, time.monotonic() - started, moment)
                result = error_result(error, job.agent, Lang(job.lang), meta)
        meta = {**result.meta, "run": run_id, "host": self._host}
        told = job.cancelled_result() if stop.cancelled else result._replace(meta=meta).as_dict()
        row = context.runs.find(run_id)
        if stop.cancelled and row:
            context.runs.put(row._replace(state="error", result=told))
        elif row is None or row.state == RUNNING:
            context.runs.put(job.as_row(run_id, moment.timestamp(), told))
        return told


def _demand_content(context: AttemptContext, job: Job) -> None:
    """Raise SkillChanged unless the skill has the bytes that were queued, here or installed from the lock."""

    def is_as_queued() -> bool:
        try:
            return fingerprint(context.runtime.resolve(job.as_request()).folder) == job.fingerprint
        except SkillNotFound:
            return False

    if not job.fingerprint or is_as_queued():
        return
    skill = job.skill
    try:
        context.restore()
    except SkillError as error:
        msg = Message("{skill} is not as it was queued, and cannot be restored: {msg}", skill=skill, msg=error.msg)
        raise SkillChanged(msg) from None
    if not is_as_queued():
        raise SkillChanged(Message("{skill} is not as it was when the job was queued", skill=skill))


class WorkerLoop(NamedTuple):
    """The loop of a worker, with everything that it needs passed in."""

    engine: Engine
    jobs: Jobs
    attempts: Attempts
    #: Everything that recurs in the project now, from files and from the timetable.
    schedules: Callable[[Sequence[TimetableEntry]], tuple[Schedule, ...]]
    #: A schedule's job as the skill is now.
    job_of: Callable[[Schedule], Job]
    project: str
    tell: Callable[[str], None]
    keep_days: float = 30.0
    #: How often it looks what is due.
    beat_seconds: float = 1.0
    #: Makes the hourly backup of our database, if it is due.
    back_up: Callable[[], None] = lambda: None

    def serve(
        self, queues: Mapping[str, int], ended: threading.Event, on_lost: Callable[[], None], *, drain: bool
    ) -> None:
        """Work until `ended` is set, or with `drain` until nothing is queued or runs."""
        self.engine.serve(self.attempts, queues, on_lost)
        every = {
            self.watch: 0.0,
            self.tick: 0.0,
            self.take_over: _TAKE_OVER_SECONDS,
            self.forget: _FORGET_SECONDS,
            self.back_up: _BACK_UP_SECONDS,
        }
        due = dict.fromkeys(every, 0.0)
        while not ended.is_set():
            now = time.monotonic()
            for act, seconds in every.items():
                if now >= due[act]:
                    due[act] = now + seconds
                    self._try(act)
            if drain and self._is_drained():
                return
            ended.wait(self.beat_seconds)

    def _try(self, act: Callable[[], None]) -> None:
        """Report an error and go on: a database may be away for a while."""
        try:
            act()
        except SkillError as error:
            self.tell(Message("{place}: {reason}", place=act.__name__, reason=error))

    def _is_drained(self) -> bool:
        try:
            return not self.engine.list(1, live=True)
        except SkillError:
            return False

    def watch(self) -> None:
        """Stop what was cancelled elsewhere."""
        for run_id in self.attempts.underway.list():
            status = self.engine.find(run_id)
            if status and status.stage is Stage.CANCELLED and self.attempts.underway.stop(run_id):
                self.tell(Message("{run_id}: cancelled", run_id=run_id))

    def take_over(self) -> None:
        for dead in self.engine.take_over():
            self.tell(Message("took over from {dead}, which died", dead=dead))

    def forget(self) -> None:
        self.engine.forget_before(self.engine.now() - self.keep_days * _DAY)

    def tick(self) -> None:
        """Fire what is due. Whoever else does the same fires the same ids, and the engine takes each once."""
        timetable = self.engine.timetable
        lines = {line.name: line for line in timetable.list()}
        for schedule in self.schedules(tuple(lines.values())):
            line = lines.get(schedule.name)
            if line is None or line.when != schedule.mark:  # new, or with another time: it counts from now on
                fresh = (line or TimetableEntry(schedule.name))._replace(when=schedule.mark, until=self.engine.now())
                if line:
                    timetable.swap(line, fresh)
                else:
                    timetable.put(fresh)
            elif schedule.enabled and not line.paused:
                try:
                    self._fire(schedule, line)
                except (InvalidArgs, MultiStep, NotGranted) as error:  # cannot be meant, or must not: the others go on
                    self.tell(Message("{place}: {reason}", place=schedule.name, reason=error))
                    timetable.swap(line, line._replace(until=self.engine.now()))

    def _fire(self, schedule: Schedule, line: TimetableEntry) -> None:
        now = self.engine.now()
        if schedule.parsed.after(line.until, schedule.zone) > now and line.until <= now:
            return
        found = beat(schedule, line.until, now, busy=self.jobs.is_live(line.latest))
        latest = line.latest
        if found.tick is not None:
            job = self.job_of(schedule)
            if found.replaces:
                try:
                    self.jobs.cancel(line.latest)
                except SkillError as error:  # it ended while we looked
                    self.tell(Message("{place}: {reason}", place=line.latest, reason=error))
            latest = tick_id(self.project, schedule, found.tick)
            self.jobs.enqueue(job, latest, jitter_of(latest, schedule.jitter_seconds))
        if (found.until, latest) != (line.until, line.latest):
            self.engine.timetable.swap(line, line._replace(until=found.until, latest=latest))
