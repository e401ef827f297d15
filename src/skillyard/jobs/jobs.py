"""Jobs: runs of skills that somebody enqueued or scheduled, worked off by whoever is there.

An attempt is one ticket of the engine and one run of ours, under the same id: where it stands is the engine's, what
came of it is kept with the runs. A retry is another attempt, with an id that starts like the first one's.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from skillyard.core.errors import Cancelled, InvalidArgs, RuntimeFailed, ScriptFailed, SkillError, retryable_codes
from skillyard.core.messages import Lang, Message
from skillyard.core.result import error_result
from skillyard.core.values import NOTHING, Json
from skillyard.jobs.agent_job import Errand
from skillyard.jobs.engine import Engine, Stage, Standing, Ticket, Work
from skillyard.jobs.schedule import Schedule
from skillyard.store.runs import Run

QUEUE = "default"
#: Between two attempts: 2 s, 4 s, 8 s …, an hour at the most, each up to half longer by chance.
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 3600.0


_LISTED = Message("`skillyard jobs` lists them with their ids")
_HOW_IT_ENDED = Message(
    "`skillyard jobs show <id>` tells how it ended; `skillyard jobs retry <id>` tries what failed again"
)
_AGAIN = Message("to have it done once more, `skillyard jobs enqueue` it again")
_WAIT_FOR_IT = Message("`skillyard jobs show <id>` tells how far it is, `skillyard jobs cancel <id>` takes it back")


class Job(NamedTuple):
    """What is to be done, in plain JSON values; it travels to whoever does it."""

    skill: str
    name: str = ""
    args: tuple[str, ...] = ()
    params: Mapping[str, Json] = NOTHING
    action: str = ""
    timeout_seconds: float | None = None
    #: How many more attempts after the first.
    retries: int = 0
    queue: str = QUEUE
    on_failure: str = ""
    #: The content of the skill that was meant; nothing where whatever is there will do.
    fingerprint: str = ""
    schedule: str = ""
    lang: str = "en"
    attempt: int = 1
    #: The id of the first attempt, which is the job's.
    first: str = ""
    #: For a flow, which file it is of: see `flow.Meant`. Its inputs are `params`.
    flow: Mapping[str, Json] = NOTHING
    #: For a run that is part of a flow: which step.
    step: str = ""
    #: For a job that runs no skill: see `errand.Errand`.
    errand: Mapping[str, Json] = NOTHING

    @property
    def label(self) -> str:
        return self.name or self.skill or Errand.from_mapping(self.errand).label

    @property
    def agent(self) -> str:
        """Whose result it is."""
        if not self.errand:
            return "skills"
        return "worker_agent" if Errand.from_mapping(self.errand).scripts else "skillyard"

    @property
    def may_go_on(self) -> bool:
        """Whether anything may follow the run, which then must not be made again when that is cut off."""
        return bool(self.on_failure) or self.retries_left > 0

    @property
    def retries_left(self) -> int:
        return self.retries - (self.attempt - 1)

    def as_body(self) -> dict[str, Json]:
        fields: dict[str, Any] = self._asdict()
        mappings = {name: dict(fields[name]) for name in ("params", "flow", "errand")}
        return {**fields, **mappings, "args": list(self.args)}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> "Job":
        """What a newer version of us added is left out."""
        known = {name: value for name, value in body.items() if name in cls._fields}
        return cls(**{**known, "args": tuple(known.get("args", ()))})


#: In `Job.flow`: the attempt whose results are kept up to the first step that failed.
AFTER = "after"


class Known(NamedTuple):
    """A job as people see it: its latest attempt."""

    id: str
    #: Of the latest attempt.
    run: str
    job: Job
    #: queued, running, or how it ended: a state of the envelope.
    state: str
    created: float
    result: Mapping[str, Json] = NOTHING
    #: What comes next, where the attempt failed and another is queued.
    next: str = ""
    #: Whom a failure for good was told to, and what came of that.
    told: Mapping[str, Json] = NOTHING


class History(Protocol):
    """What our own tables keep of jobs; `store.runs.Runs` is one."""

    def list_jobs(self, limit: int) -> tuple[Run, ...]: ...

    def find(self, run_id: str) -> Run | None: ...

    def put(self, run: Run) -> None: ...


class Jobs:
    """The jobs of one project."""

    def __init__(self, engine: Engine, history: History, new_id: Callable[[], str]) -> None:
        self._engine, self._history, self._new_id = engine, history, new_id

    def enqueue(self, job: Job, job_id: str = "", delay_seconds: float = 0.0) -> str:
        ticket = self._ticket(job, job_id or self._new_id(), delay_seconds)
        self._engine.enqueue(ticket)
        return ticket.id

    def start(self, job: Job, work: Work, on_lost: Callable[[], None] = lambda: None) -> str:
        """Here and now; a worker takes over if we die. `on_lost`: others may think that we did."""
        ticket = self._ticket(job, self._new_id(), 0.0)
        self._engine.start(ticket, work, on_lost)
        return ticket.id

    def wait(self, job_id: str, seconds: float | None = None) -> Known | None:
        """Until the last attempt is over."""
        while standing := self._engine.wait(job_id, seconds):
            known = self._known(standing)
            if not known.next:
                return known
            job_id = known.next
        return None

    def list(self, limit: int) -> tuple[Known, ...]:
        """The latest first: those that the engine knows, and those that only we still do."""
        found: dict[str, Known] = {}
        for standing in self._engine.list(limit):
            known = self._known(standing)
            other = found.get(known.id, known)
            latest = max(known, other, key=lambda each: each.job.attempt)
            found[known.id] = latest._replace(created=min(known.created, other.created))
        for run in self._history.list_jobs(limit):
            known = _from_run(run)
            if known.id not in found and not known.job.step:
                found[known.id] = known
        # Ids are in the order of time too: SQLite's clock has seconds only.
        return tuple(sorted(found.values(), key=lambda known: (known.created, known.id), reverse=True))[:limit]

    def find(self, job_id: str, limit: int = 1000) -> Known:
        """By id, or by the beginning of one where only one job starts so."""
        found = [known for known in self.list(limit) if known.id.startswith(job_id) or known.run == job_id]
        exact = [known for known in found if job_id in {known.id, known.run}]
        if not job_id or len(exact or found) != 1:
            raise InvalidArgs(
                Message("no job {job_id!r} here, or more than one starts so", job_id=job_id), advice=_LISTED
            )
        return (exact or found)[0]

    def is_live(self, job_id: str) -> bool:
        """Whether an attempt of it is queued or runs."""
        known = self.latest(job_id)
        return known is not None and known.state in {Stage.QUEUED, Stage.RUNNING}

    def latest(self, job_id: str) -> Known | None:
        """Its latest attempt, however that stands; None where there is no such job."""
        known = None
        while job_id and (standing := self._engine.find(job_id)):
            known = self._known(standing)
            job_id = known.next
        return known

    def cancel(self, job_id: str) -> Known:
        """A run under way is stopped by whoever runs it; InvalidArgs where it is over."""
        known = self.find(job_id)
        was_queued = known.state == "queued"
        if not self._engine.cancel(known.run):
            raise InvalidArgs(Message("{id} is over: {state}", id=known.id, state=known.state), advice=_HOW_IT_ENDED)
        cancelled = known._replace(state="error", result=cancelled_result(known.job))
        if was_queued:
            self._history.put(as_row(cancelled.run, cancelled.job, known.created, cancelled.result))
        return cancelled

    def retry(self, job_id: str, *, from_start: bool = False) -> Known:
        """One more attempt of what failed, as the skill is now. A flow goes on with its first step that failed, or
        starts over."""
        known = self.find(job_id)
        if known.state in {"queued", "running", "success"}:
            advice = _AGAIN if known.state == "success" else _WAIT_FOR_IT
            raise InvalidArgs(Message("{id} did not fail: {state}", id=known.id, state=known.state), advice=advice)
        job = known.job._replace(attempt=known.job.attempt + 1, first=known.id, fingerprint="")
        if job.flow:
            job = job._replace(flow={**job.flow, "skills": {}, AFTER: "" if from_start else known.run})
        ticket = Ticket(_attempt_id(known.id, job.attempt), job.queue, job.as_body())
        if not self._engine.enqueue(ticket):
            raise InvalidArgs(Message("{id} is being retried already", id=known.id), advice=_WAIT_FOR_IT)
        return known._replace(run=ticket.id, job=job, state="queued", result=NOTHING)

    def _ticket(self, job: Job, job_id: str, delay_seconds: float) -> Ticket:
        return Ticket(job_id, job.queue, job._replace(first=job_id).as_body(), delay_seconds)

    def _known(self, standing: Standing) -> Known:
        job = Job.from_body(standing.ticket.body)
        run_id = standing.ticket.id
        answer: Mapping[str, Any] = standing.answer or {}
        result: Mapping[str, Json] = answer.get("result") or NOTHING
        state = str(standing.stage)
        if standing.stage is Stage.DONE:
            state = str(result.get("state", "error"))
        elif standing.stage is Stage.CANCELLED:
            state, result = "error", cancelled_result(job)
        elif standing.stage is Stage.BROKEN:
            state, result = "error", _broken_result(job, standing.trouble)
        return Known(
            id=job.first or run_id,
            run=run_id,
            job=job,
            state=state,
            created=standing.created,
            result=result,
            next=str(answer.get("next") or ""),
            told=answer.get("told") or NOTHING,
        )


def next_attempt(run_id: str, job: Job, result: Mapping[str, Json]) -> Ticket | None:
    """What follows a failure that may pass."""
    if job.retries_left <= 0 or not may_pass(result):
        return None
    first = job.first or run_id
    again = job._replace(attempt=job.attempt + 1, first=first)
    if job.flow:
        again = again._replace(flow={**job.flow, AFTER: run_id})
    return Ticket(_attempt_id(first, again.attempt), job.queue, again.as_body(), pause_seconds(first, job.attempt))


def may_pass(result: Mapping[str, Json]) -> bool:
    """Whether to try again: by the error's code, or by the type of an error that the program told itself."""
    if result.get("state") != "error":
        return result.get("state") == "timeout"
    data, meta = result.get("data"), result.get("meta")
    if isinstance(meta, Mapping) and meta.get("code"):
        return meta["code"] in retryable_codes()
    return isinstance(data, Mapping) and data.get("type") in {RuntimeFailed.type, ScriptFailed.type}


def pause_seconds(first: str, attempt: int) -> float:
    """The same for all who ask, so that a repeated step says the same."""
    pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1), _LONGEST_PAUSE_SECONDS)
    chance = random.Random(f"{first}-{attempt}").random()  # noqa: S311  (spreads load, guards nothing)
    return pause * (1 + chance / 2)


def tick_id(project: str, schedule: Schedule, tick: float) -> str:
    """One id for one tick, whoever fires it; shaped like every other run's, in the order of time."""
    digest = hashlib.blake2b(f"{project}\0{schedule.name}\0{tick:.3f}".encode(), digest_size=6).hexdigest()
    return f"{int(tick * 1000):011x}{digest}"


def jitter_of(job_id: str, jitter_seconds: float) -> float:
    return random.Random(job_id).random() * jitter_seconds  # noqa: S311  (spreads load, guards nothing)


def as_row(run_id: str, job: Job, started: float, result: Mapping[str, Json]) -> Run:
    """The row of an attempt that never started a program."""
    return Run(
        id=run_id,
        agent=job.agent,
        skill=job.skill,
        kind="job",
        state=str(result.get("state", "error")),
        started=started,
        seconds=0.0,
        job=job.label,
        request={"name": job.skill, "args": list(job.args), "params": dict(job.params), "job": about(job)},
        result=result,
    )


def about(job: Job) -> dict[str, Json]:
    """What a run's row says of its job."""
    told: dict[str, Json] = {
        "label": job.label,
        "name": job.name,
        "first": job.first,
        "attempt": job.attempt,
        "retries": job.retries,
        "schedule": job.schedule,
        "queue": job.queue,
        "step": job.step,
        "flow": dict(job.flow),
        "errand": dict(job.errand),
    }
    return {key: value for key, value in told.items() if value not in ("", None, {})}


def _from_run(run: Run) -> Known:
    said = run.request.get("job")
    fields: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    args, params = run.request.get("args"), run.request.get("params")
    job = Job.from_body(
        {
            "skill": run.request.get("name") or run.skill,
            "args": args if isinstance(args, Sequence) else (),
            "params": params if isinstance(params, Mapping) else {},
            "action": run.request.get("action") or "",
            **fields,
        }
    )
    return Known(job.first or run.id, run.id, job, run.state, run.started, run.result)


def _attempt_id(first: str, attempt: int) -> str:
    return f"{first}-{attempt}"


def cancelled_result(job: Job) -> dict[str, Json]:
    return _failed(Cancelled(job.label), job)


def _broken_result(job: Job, trouble: str) -> dict[str, Json]:
    return _failed(RuntimeFailed(trouble or Message("the worker failed")), job)


def _failed(error: SkillError, job: Job) -> dict[str, Json]:
    return error_result(error, job.agent, Lang(job.lang), {}).as_dict()
