"""Jobs: runs of skills that somebody enqueued or scheduled, and that a worker does.

An attempt is one ticket of the engine and one run of ours, under the same id: its state is the engine's, its result is
kept with the runs. A retry is another attempt, with an id that starts like the first one's.
"""

import hashlib
import os
import random
import re
from collections.abc import Callable, Container, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.core.child_process import DEPTH
from skillyard.core.errors import (
    Cancelled,
    InvalidArgs,
    PermissionDenied,
    Replaced,
    RuntimeFailed,
    ScriptFailed,
    SkillError,
    retryable_codes,
)
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Request, error_result
from skillyard.core.values import NOTHING, Json
from skillyard.dispatch.request import check_task
from skillyard.jobs.engine import Stage, Ticket, TicketStatus, Work
from skillyard.scripts.prompt_grammar import Addressee, addressee, parse_prompt, parse_script_calls
from skillyard.store.runs import RUNNING, Run, Runs

if TYPE_CHECKING:
    from skillyard.jobs.dbos_engine import DurableEngine

QUEUE = "default"
#: How a job ended that was taken back, beside the states of a result: neither is a failure.
CANCELLED, REPLACED = "cancelled", "replaced"
#: In the body of a ticket: a notice that could not be delivered, and is sent again.
NOTICE = "notice"
#: Among so many latest tickets is the one that replaced a run.
_RECENT = 200
#: Of all jobs: those that an id is looked for in first, and all that there can be.
_SOME, _EVERY = 1000, 1_000_000
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
#: In `Job.flow`: the attempt whose results are kept up to the first step that failed.
AFTER = "after"
_LABEL_CHARACTERS = 40
#: Between two attempts: 2 s, 4 s, 8 s …, an hour at the most, each up to half longer by chance.
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 3600.0
_WAIT_FOR_IT = Message("`skillyard jobs show <id>` tells how far it is, `skillyard jobs cancel <id>` takes it back")


class AgentTask(NamedTuple):
    """The task of a job that runs no skill, in plain JSON values: it travels with the job."""

    text: str
    #: Whether it names scripts of bin/; otherwise it is for a backend, and the rest counts.
    scripts: bool = False
    #: The role whose CLAUDE.md goes before it, and in whose folder the backend works; empty for the project's.
    role: str = ""
    #: A backend; empty for the first that is installed.
    to: str = ""
    #: The conversation that every run resumes; empty for one of its own.
    session: str = ""
    model: str = ""


class Job(NamedTuple):
    """What is to be done, in plain JSON values: another worker reads it."""

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
    #: For a flow: what it was started from, as `Workflows.make_job` says. It runs exactly that. Inputs are `params`.
    flow: Mapping[str, Json] = NOTHING
    #: For a run that is part of a flow: which step.
    step: str = ""
    #: The run that this one takes the place of.
    replaces: str = ""
    task: AgentTask | None = None

    @property
    def label(self) -> str:
        words = " ".join(self.task.text.split()) if self.task else ""
        short = words if len(words) <= _LABEL_CHARACTERS else words[: _LABEL_CHARACTERS - 1] + "…"
        return self.name or self.skill or short

    @property
    def agent(self) -> str:
        if not self.task:
            return "skills"
        return "worker_agent" if self.task.scripts else "skillyard"

    def as_body(self) -> dict[str, Json]:
        task = {name: value for name, value in self.task._asdict().items() if value} if self.task else {}
        changed = {"params": dict(self.params), "flow": dict(self.flow), "task": task, "args": list(self.args)}
        return {**self._asdict(), **changed}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> "Job":
        """Read a stored job. Fields of a newer version are left out."""
        known = {name: value for name, value in body.items() if name in cls._fields}
        task = {name: value for name, value in (known.pop("task", None) or {}).items() if name in AgentTask._fields}
        return cls(**{**known, "args": tuple(known.get("args", ())), "task": AgentTask(**task) if task else None})

    def as_request(self) -> Request:
        """Nobody can answer, and paths lie inside the project."""
        return Request(
            name=self.skill,
            args=self.args,
            params=self.params,
            action=self.action or None,
            timeout_seconds=self.timeout_seconds,
            interactive=False,
            lang=Lang(self.lang),
            job=self.about(),
        )

    def about(self) -> dict[str, Json]:
        """What the row of a run says of its job."""
        body = {"label": self.label, **self.as_body()}
        names = ("label", "name", "first", "attempt", "retries", "schedule", "queue", "step", "flow", "task")
        return {name: body[name] for name in names if body[name] not in ("", {})}

    def as_row(self, run_id: str, started: float, result: Mapping[str, Json]) -> Run:
        """The row of an attempt that never started a program."""
        return Run(
            id=run_id,
            agent=self.agent,
            skill=self.skill,
            kind="job",
            state=str(result.get("state", "error")),
            started=started,
            seconds=0.0,
            job=self.label,
            request={"name": self.skill, "args": list(self.args), "params": dict(self.params), "job": self.about()},
            result=result,
        )

    def cancelled_result(self, state: str = CANCELLED) -> dict[str, Json]:
        return self.failed_result((Replaced if state == REPLACED else Cancelled)(self.label))

    def failed_result(self, error: SkillError) -> dict[str, Json]:
        return error_result(error, self.agent, Lang(self.lang), {}).as_dict()


def with_task(job: Job, task: AgentTask, knows: Callable[[str], bool]) -> Job:
    """Return the job for a task. What looks like a prompt is parsed as one: its mistakes raise, and reach no backend.

    `knows` tells whether a name is a skill's.
    """
    check_task(task.text)
    whom = addressee(task.text)
    if whom is Addressee.BACKEND:
        return job._replace(task=task)
    if task.to or task.session or task.model:
        raise InvalidArgs(Message("this task is for {whom}: no backend, session or model goes with it", whom=whom))
    if whom is Addressee.WORKER:
        parse_script_calls(task.text)
        return job._replace(task=AgentTask(task.text, scripts=True))
    asked = parse_prompt(task.text, knows)
    if asked.script:
        raise InvalidArgs(Message("a job runs a skill, not one of its scripts"))
    return job._replace(skill=asked.name, args=asked.args)


def refuse_loops(job: Job, env: Mapping[str, str] = os.environ) -> None:
    """Raise PermissionDenied if an agent queues a task for an agent: a worker does not know how deep the asker is."""
    if job.task and not job.task.scripts and env.get(DEPTH):
        msg = Message("an agent cannot queue tasks for agents: `skillyard dispatch` hands one over now")
        raise PermissionDenied(msg)


class JobStatus(NamedTuple):
    """A job as people see it: its latest attempt."""

    id: str
    run: str
    job: Job
    #: queued, running, or how it ended: cancelled, replaced, or a state of the envelope.
    state: str
    created: float
    result: Mapping[str, Json] = NOTHING
    #: What comes next, where the attempt failed and another is queued.
    next: str = ""
    #: Whom a failure for good was told to, and what came of that.
    told: Mapping[str, Json] = NOTHING


class JobFilter(NamedTuple):
    """Which jobs are meant; what is empty does not matter."""

    states: tuple[str, ...] = ()
    skill: str = ""
    role: str = ""
    queue: str = ""
    schedule: str = ""
    since: float = 0.0

    def matches(self, known: JobStatus) -> bool:
        job = known.job
        role = job.task.role if job.task else ""
        return (
            (not self.states or known.state in self.states)
            and (not self.skill or self.skill in {job.skill, job.skill.rpartition("/")[2]})
            and (not self.role or self.role in {role, job.skill.partition("/")[0] if "/" in job.skill else ""})
            and (not self.queue or self.queue == job.queue)
            and (not self.schedule or self.schedule == job.schedule)
            and known.created >= self.since
        )


def parse_since(text: str, now: float) -> float:
    """Return the moment that `2h`, `7d`, or a date such as `2026-11-18` or `2026-11-18T09:00` means."""
    if found := _AGO.fullmatch(text.strip()):
        return now - float(found[1]) * _UNITS[found[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise InvalidArgs(Message("{text!r} is no time: write 2h, 7d or 2026-11-18T09:00", text=text)) from None


class Jobs:
    def __init__(
        self,
        engine: "DurableEngine",
        history: Runs,
        new_id: Callable[[], str],
        is_held: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_held` tells whether the runtime of a run lives on this machine."""
        self.engine, self._history, self._new_id, self._is_held = engine, history, new_id, is_held

    def enqueue(self, job: Job, job_id: str = "", delay_seconds: float = 0.0) -> str:
        job_id = job_id or self._new_id()
        self.engine.enqueue(Ticket(job_id, job.queue, job._replace(first=job_id).as_body(), delay_seconds))
        return job_id

    def start(self, job: Job, work: Work, on_lost: Callable[[], None] = lambda: None) -> str:
        """Do it in this process; a worker takes over if it dies. `on_lost`: others may think that it did."""
        job_id = self._new_id()
        self.engine.start(Ticket(job_id, job.queue, job._replace(first=job_id).as_body()), work, on_lost)
        return job_id

    def wait(self, job_id: str, seconds: float | None = None) -> JobStatus | None:
        """Return the last attempt once it is over, or None when the time is up."""
        while status := self.engine.wait(job_id, seconds):
            known = _from_ticket(status)
            if not known.next:
                return known
            job_id = known.next
        return None

    def list(self, limit: int) -> tuple[JobStatus, ...]:
        """The latest first: those that the engine knows, and those that only we still do."""
        found: dict[str, JobStatus] = {}
        replaced: set[str] = set()
        for status in self.engine.list(limit):
            if NOTICE in status.ticket.body:
                continue
            replaced.add(str(status.ticket.body.get("replaces")))
            known = _from_ticket(status, replaced)
            other = found.get(known.id, known)
            latest = max(known, other, key=lambda each: each.job.attempt)
            found[known.id] = latest._replace(created=min(known.created, other.created))
        for run in self._history.list_jobs(limit):
            known = _from_run(run)
            if known.id not in found and not known.job.step:
                found[known.id] = known
        # Ids are in the order of time too: SQLite's clock has seconds only.
        return tuple(sorted(found.values(), key=lambda known: (known.created, known.id), reverse=True))[:limit]

    def select(self, wanted: JobFilter, offset: int, limit: int) -> tuple[tuple[JobStatus, ...], bool]:
        """Return a page of the jobs that a filter means, the latest first, and whether more follow."""
        end = offset + limit
        found = [known for known in self.list(end + 1 if wanted == JobFilter() else _EVERY) if wanted.matches(known)]
        return tuple(found[offset:end]), len(found) > end

    def find(self, job_id: str) -> JobStatus:
        """Return a job by its id, or by a unique beginning of it, with what came of a late notice. Raise InvalidArgs
        otherwise."""

        def starts_so(count: int) -> list[JobStatus]:
            return [known for known in self.list(count) if known.id.startswith(job_id) or known.run == job_id]

        found = starts_so(_SOME) or starts_so(_EVERY)
        found = [known for known in found if job_id in {known.id, known.run}] or found
        if not job_id or len(found) != 1:
            msg = Message("no job {job_id!r} here, or more than one starts so", job_id=job_id)
            raise InvalidArgs(msg, advice=Message("`skillyard jobs` lists them with their ids"))
        told = found[0].told
        while (status := self.engine.find(str(told.get("next") or ""))) and status.answer:
            later = status.answer.get("told")
            told = later if isinstance(later, Mapping) else NOTHING
        return found[0]._replace(told=told)

    def stopped_state(self, run_id: str) -> str:
        """Return how a run ended that the engine has as cancelled: `replaced` if another took its place."""
        recent = self.engine.list(_RECENT)
        return REPLACED if any(each.ticket.body.get("replaces") == run_id for each in recent) else CANCELLED

    def latest(self, job_id: str) -> JobStatus | None:
        """Return its latest attempt, or None if there is no such job."""
        known = None
        while job_id and (status := self.engine.find(job_id)):
            known = _from_ticket(status)
            job_id = known.next
        return known

    def cancel(self, job_id: str) -> JobStatus:
        """Cancel a job; whoever runs it stops the run. Raise InvalidArgs if it is over."""
        known = self.find(job_id)
        if not self.engine.cancel(known.run):
            advice = Message(
                "`skillyard jobs show <id>` tells how it ended; `skillyard jobs retry <id>` tries what failed again"
            )
            raise InvalidArgs(Message("{id} is over: {state}", id=known.id, state=known.state), advice=advice)
        return self._record_stop(known)

    def replace(self, before: JobStatus) -> None:
        """Stop a run whose place another has taken. Nothing is done if it is over."""
        if self.engine.cancel(before.run):
            self._record_stop(before, REPLACED)

    def _record_stop(self, known: JobStatus, state: str = CANCELLED) -> JobStatus:
        """Write the end of a run that nobody makes any more; whoever makes one writes its end."""
        stopped = known._replace(state=state, result=known.job.cancelled_result(state))
        row = self._history.find(known.run)
        if known.state == Stage.QUEUED and row is None:
            self._history.put(known.job.as_row(known.run, known.created, stopped.result)._replace(state=state))
        rows = (row, *self._history.list_of(known.run)) if known.job.flow else (row,)
        for each in rows:
            if each and each.state == RUNNING and not self._is_held(each.id):
                self._history.put(each._replace(state=state, result=stopped.result))
        return stopped

    def retry(self, job_id: str, *, from_start: bool = False) -> JobStatus:
        """Enqueue one more attempt of what failed, with the skill as it is now. A flow resumes with its first failed
        step unless `from_start`."""
        known = self.find(job_id)
        if known.state in {"queued", "running", "success"}:
            again = Message("to have it done once more, `skillyard jobs enqueue` it again")
            advice = again if known.state == "success" else _WAIT_FOR_IT
            raise InvalidArgs(Message("{id} did not fail: {state}", id=known.id, state=known.state), advice=advice)
        job = known.job._replace(attempt=known.job.attempt + 1, first=known.id, fingerprint="")
        if job.flow:
            job = job._replace(flow={**job.flow, "skills": {}, AFTER: "" if from_start else known.run})
        ticket = Ticket(f"{known.id}-{job.attempt}", job.queue, job.as_body())
        if not self.engine.enqueue(ticket):
            raise InvalidArgs(Message("{id} is being retried already", id=known.id), advice=_WAIT_FOR_IT)
        return known._replace(run=ticket.id, job=job, state="queued", result=NOTHING)


def next_attempt(run_id: str, job: Job, result: Mapping[str, Json]) -> Ticket | None:
    """Return the ticket that follows a failure that may pass, or None."""
    if job.attempt > job.retries or not may_pass(result):
        return None
    first = job.first or run_id
    again = job._replace(attempt=job.attempt + 1, first=first)
    if job.flow:
        again = again._replace(flow={**job.flow, AFTER: run_id})
    return Ticket(f"{first}-{again.attempt}", job.queue, again.as_body(), pause_seconds(first, job.attempt))


def may_pass(result: Mapping[str, Json]) -> bool:
    """Whether to try again: by the error's code, or by the type of an error that the program told itself."""
    if result.get("state") != "error":
        return result.get("state") == "timeout"
    data, meta = result.get("data"), result.get("meta")
    if isinstance(meta, Mapping) and meta.get("code"):
        return meta["code"] in retryable_codes()
    return isinstance(data, Mapping) and data.get("type") in {RuntimeFailed.type, ScriptFailed.type}


def pause_seconds(first: str, attempt: int) -> float:
    """Return the pause before the next attempt; the same each time, so that a repeated step enqueues the same."""
    pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1), _LONGEST_PAUSE_SECONDS)
    return pause * (1 + jitter_of(f"{first}-{attempt}", 0.5))


def tick_id(project: str, schedule: str, tick: float) -> str:
    """One id for one tick, whoever fires it; shaped like every other run's, in the order of time."""
    digest = hashlib.blake2b(f"{project}\0{schedule}\0{tick:.3f}".encode(), digest_size=6).hexdigest()
    return f"{int(tick * 1000):011x}{digest}"


def jitter_of(job_id: str, most: float) -> float:
    return random.Random(job_id).random() * most  # noqa: S311  (spreads load, guards nothing)


def _from_ticket(status: TicketStatus, replaced: Container[str] = ()) -> JobStatus:
    """`replaced`: runs whose place others took."""
    job, run_id = Job.from_body(status.ticket.body), status.ticket.id
    answer: Mapping[str, Any] = status.answer or {}
    result: Mapping[str, Json] = answer.get("result") or NOTHING
    state = str(status.stage)
    if status.stage is Stage.DONE:
        state = str(result.get("state", "error"))
    elif status.stage is Stage.CANCELLED:
        state = REPLACED if run_id in replaced else CANCELLED
        result = job.cancelled_result(state)
    elif status.stage is Stage.BROKEN:
        state, result = "error", job.failed_result(RuntimeFailed(status.trouble or Message("the worker failed")))
    following, told = str(answer.get("next") or ""), answer.get("told") or NOTHING
    return JobStatus(job.first or run_id, run_id, job, state, status.created, result, following, told)


def _from_run(run: Run) -> JobStatus:
    request: Mapping[str, Any] = run.request
    said = {key: request[key] for key in ("args", "params", "action") if request.get(key)}
    job = Job.from_body({"skill": request.get("name") or run.skill, **said, **(request.get("job") or {})})
    return JobStatus(job.first or run.id, run.id, job, run.state, run.started, run.result)
