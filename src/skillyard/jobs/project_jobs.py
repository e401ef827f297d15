"""The jobs of a project: makes them of skills, tasks and schedules, makes attempts of them, and is the worker's loop.

An attempt runs the skill that was meant through the one pipeline. Steps are at least once: an attempt whose worker died
is made again, under the same run id, which the skill gets as `context.request_id` and `SKILLYARD_RUN`.
"""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from skillyard.catalog.agentfile import Role, read_role
from skillyard.catalog.bounds import read_bounds
from skillyard.catalog.files import read_plain
from skillyard.catalog.skill_text import decode
from skillyard.core.cancel_token import CancelToken
from skillyard.core.capability import ALLOWED_TOOLS, SCHEDULE
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import (
    Cancelled,
    ExtraMissing,
    InvalidArgs,
    MetadataMissing,
    MultiStep,
    NotGranted,
    RoleInvalid,
    SkillChanged,
    SkillError,
    SkillNotFound,
)
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Clock, Request, Result, error_result
from skillyard.core.values import Json
from skillyard.jobs.engine import EngineConfig, Stage, Ticket, TimetableEntry
from skillyard.jobs.flow import FlowRun, Watch, Workflows
from skillyard.jobs.jobs import (
    CANCELLED,
    NOTICE,
    AgentTask,
    Job,
    Jobs,
    jitter_of,
    next_attempt,
    refuse_loops,
    tick_id,
    with_task,
)
from skillyard.jobs.notify import Notifier, failure_notice, untold_repeats
from skillyard.jobs.schedule import PREFIX, ProjectSchedules, Schedule, beat
from skillyard.runtime.check import check
from skillyard.runtime.pipeline import Runtime
from skillyard.runtime.record import OnProgress
from skillyard.sandbox.launch import Sandbox
from skillyard.scripts.prompt_grammar import parse_script_calls
from skillyard.store.changes import ChangeSets
from skillyard.store.runs import RUNNING, Logs, Runs
from skillyard.trust.run_policy import mark_of_skill

if TYPE_CHECKING:
    from skillyard.dispatch.request import DispatchRequest
    from skillyard.jobs.dbos_engine import DurableEngine, DurableSteps
    from skillyard.scripts.worker import Worker

_TAKE_OVER_SECONDS = 3.0
_FORGET_SECONDS = 3600.0
_BACK_UP_SECONDS = 60.0
_DAY = 86_400.0
_TRUST_SECONDS = 5.0
#: In the timetable: a schedule that was told to wait for trust. It starts anew when it is trusted.
_WAITS = "waits for trust"
#: Between the attempts to deliver a notice.
_NOTICE_PAUSES = (2.0, 10.0, 60.0, 300.0, 1800.0, 7200.0)
#: So many runs of a schedule are looked through for an equal failure.
_MOST_BEFORE = 500
#: A text for an agent is no archive.
_MOST_BYTES = 200_000
Tell = Callable[[str], None]


class Underway:
    """The attempts that run in this process now, each with its cancel token. Any thread may call it."""

    def __init__(self) -> None:
        self._tokens: dict[str, CancelToken] = {}
        #: How the attempts ended that were stopped.
        self.stopped: dict[str, str] = {}

    @contextmanager
    def running(self, run_id: str) -> Iterator[CancelToken]:
        self._tokens[run_id] = token = CancelToken()
        try:
            yield token
        finally:
            del self._tokens[run_id]
            self.stopped.pop(run_id, None)

    def list(self) -> tuple[str, ...]:
        return tuple(self._tokens)

    def stop(self, run_id: str, state: str = CANCELLED) -> bool:
        """Stop an attempt. Return False if it was stopped before, or does not run here."""
        token = self._tokens.get(run_id)
        if token is None or token.cancelled:
            return False
        self.stopped[run_id] = state
        token.cancel()
        return True


def _is_taken_back(result: Mapping[str, Json]) -> bool:
    data = result.get("data")
    return isinstance(data, Mapping) and data.get("type") == Cancelled.type


class Attempts:
    """Makes attempts of tickets. Any number of threads may call it at once."""

    def __init__(
        self,
        project: "ProjectJobs",
        tell: Tell = lambda _: None,
        watch: Watch = lambda _: None,
        on_progress: OnProgress = None,
    ) -> None:
        self.project, self._tell, self.watch, self._on_progress = project, tell, watch, on_progress
        self.host = socket.gethostname()
        self.underway = Underway()

    def __call__(self, ticket: Ticket, steps: "DurableSteps") -> dict[str, Json]:
        if NOTICE in ticket.body:
            return self._send_again(ticket, steps)
        job = Job.from_body(ticket.body)
        if job.flow:
            result = FlowRun(self, ticket.id, job, steps).run()
        elif job.on_failure or job.attempt <= job.retries:
            result = steps.run("run", lambda: self.run(ticket.id, job))
        else:
            result = self.run(ticket.id, job)  # the ticket's own end is the record of its one step
        again = next_attempt(ticket.id, job, result)
        about = {"id": ticket.id, "label": job.label, "state": result["state"]}
        told: dict[str, Json] = {}
        if again:
            self._tell(Message("{id} {label}: {state}, another attempt follows", **about))
            steps.follow(again)
        else:
            self._tell(Message("{id} {label}: {state}", **about))
            job = job._replace(on_failure=job.on_failure or self.project.notify_to)
            if job.on_failure and result["state"] not in {"success", "partial"} and not _is_taken_back(result):
                told = steps.run("tell", lambda: self._notify(job, result))
                told = self._send_later(job, ticket.id, failure_notice(job, result), told, 0, steps)
        return {"result": result, "next": again.id if again else "", "told": told}

    def _notify(self, job: Job, result: Mapping[str, Json]) -> dict[str, Json]:
        is_told, repeats = True, 0
        if job.schedule:
            before = self.project.history().latest_of(job.label, _MOST_BEFORE)
            is_told, repeats = untold_repeats(job, result, before, time.time())
        if not is_told:
            return {"to": "", "ok": True, "repeats": repeats, "msg": Message("the same as before: told once a day")}
        return self.project.notifier().notify(job, result, repeats)

    def _send_later(
        self,
        job: Job,
        run_id: str,
        notice: Mapping[str, Json],
        told: dict[str, Json],
        tried: int,
        steps: "DurableSteps",
    ) -> dict[str, Json]:
        """Queue a notice that failed to be sent again, later each time. Return what is kept of it."""
        if told["ok"]:
            return told
        about = {"label": job.label, "id": job.first or run_id, "reason": told["msg"]}
        if tried == len(_NOTICE_PAUSES) or os.environ.get(DEPTH):
            self._tell(Message("{id} {label}: the notice failed for good: {reason}", **about))
            return told
        self._tell(Message("{id} {label}: the notice failed and is sent again: {reason}", **about))
        body = {**job._replace(on_failure="").as_body(), NOTICE: {"to": job.on_failure, "tried": tried + 1, **notice}}
        later = Ticket(f"{run_id.partition('~')[0]}~{tried + 1}", job.queue, body, _NOTICE_PAUSES[tried])
        steps.follow(later)
        return {**told, "next": later.id}

    def _send_again(self, ticket: Ticket, steps: "DurableSteps") -> dict[str, Json]:
        notice = dict(cast("Mapping[str, Json]", ticket.body[NOTICE]))
        to, tried = str(notice.pop("to")), int(str(notice.pop("tried")))
        job = Job.from_body(ticket.body)._replace(on_failure=to)
        told = steps.run("tell", lambda: self.project.notifier().send(to, notice))
        return {"told": self._send_later(job, ticket.id, notice, told, tried, steps)}

    def run(self, run_id: str, job: Job, changes: Callable[[], ChangeSets] | None = None) -> dict[str, Json]:
        """Make one run under this id. Its row is kept whatever came of it. `changes` takes those of a flow's step."""
        runs, clock = self.project.history(), Clock()
        with self.underway.running(run_id) as stop:
            try:
                if job.task:
                    with self.project.reopened() as project:
                        result = project.run_task(run_id, job, job.task, stop)
                else:
                    self._demand_content(job)
                    runtime = self.project.runtime()._replace(new_id=lambda: run_id)
                    runtime = runtime._replace(changes=changes()) if changes else runtime
                    result = runtime.run(job.as_request(), self._on_progress, stop)
            except SkillError as error:
                result = error_result(error, job.agent, Lang(job.lang), clock.meta(job.agent))
            state = self.underway.stopped.get(run_id, CANCELLED)
        meta = {**result.meta, "run": run_id, "host": self.host}
        told = job.cancelled_result(state) if stop.cancelled else result._replace(meta=meta).as_dict()
        row = runs.find(run_id)
        if stop.cancelled and row:
            runs.put(row._replace(state=state, result=told))
        elif row is None or row.state == RUNNING:
            runs.put(job.as_row(run_id, clock.moment.timestamp(), told))
        return told

    def _demand_content(self, job: Job) -> None:
        """Raise SkillChanged unless the skill has the bytes that were queued, here or installed from the lock."""

        def is_as_queued() -> bool:
            try:
                return mark_of_skill(self.project.runtime().resolve(job.as_request())) == job.fingerprint
            except (SkillNotFound, MetadataMissing):  # not there, or only the rest of it
                return False

        if not job.fingerprint or is_as_queued():
            return
        skill = job.skill
        try:
            self.project.restore()
        except SkillError as error:
            msg = Message("{skill} is not as it was queued, and cannot be restored: {msg}", skill=skill, msg=error.msg)
            raise SkillChanged(msg) from None
        if not is_as_queued():
            raise SkillChanged(Message("{skill} is not as it was when the job was queued", skill=skill))


def _with_role(role: Role, task: str) -> str:
    file = role.claude_text
    if file is None:
        return task
    content = read_plain(file, _MOST_BYTES)
    if len(content) > _MOST_BYTES:
        path = f"agents/{role.name}/{file.name}"
        raise InvalidArgs(Message("{path} has more than {most_bytes} bytes", path=path, most_bytes=_MOST_BYTES))
    said = decode(content).text.strip()
    return f"{said}\n\n---\n\n{task}" if said else task


class WorkerLoop(NamedTuple):
    """The loop of a worker, with everything that it needs passed in."""

    jobs: Jobs
    attempts: Attempts
    schedules: Callable[[Sequence[TimetableEntry]], tuple[Schedule, ...]]
    job_of: Callable[[Schedule], Job]
    project: str
    tell: Tell
    keep_days: float = 30.0
    beat_seconds: float = 1.0
    back_up: Callable[[], None] = lambda: None
    #: The schedules that nobody trusted, and who is told of them.
    untrusted: Callable[[], Sequence[Schedule]] = tuple
    notify: Callable[[Mapping[str, Json]], object] = lambda _: None

    def serve(
        self, queues: Mapping[str, int], ended: threading.Event, on_lost: Callable[[], None], *, drain: bool
    ) -> None:
        """Work until `ended` is set, or with `drain` until nothing is queued or runs."""
        self.jobs.engine.serve(self.attempts, queues, on_lost)
        every = {
            self.watch: 0.0,
            self.tick: 0.0,
            self.tell_waiting: _TRUST_SECONDS,
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
                    try:
                        act()
                    except SkillError as error:  # a database may be away for a while
                        self.tell(Message("{place}: {reason}", place=act.__name__, reason=error))
            with suppress(SkillError):
                if drain and not self.jobs.engine.list(1, live=True):
                    return
            ended.wait(self.beat_seconds)

    def watch(self) -> None:
        """Stop what was cancelled elsewhere."""
        for run_id in self.attempts.underway.list():
            status = self.jobs.engine.find(run_id)
            if status and status.stage is Stage.CANCELLED:
                state = self.jobs.stopped_state(run_id)
                if self.attempts.underway.stop(run_id, state):
                    self.tell(Message("{run_id}: {state}", run_id=run_id, state=state))

    def take_over(self) -> None:
        for dead in self.jobs.engine.take_over():
            self.tell(Message("took over from {dead}, which died", dead=dead))

    def forget(self) -> None:
        self.jobs.engine.forget_before(self.jobs.engine.now() - self.keep_days * _DAY)

    def tell_waiting(self) -> None:
        """Tell once of each schedule that it waits for trust, whichever worker sees it first."""
        timetable = self.jobs.engine.timetable
        lines = {line.name: line for line in timetable.list()}
        fresh = []
        for schedule in self.untrusted():
            line = lines.get(schedule.name)
            if line is None:
                timetable.put(TimetableEntry(schedule.name, when=_WAITS))
            elif line.when == _WAITS or not timetable.swap(line, line._replace(when=_WAITS)):
                continue
            fresh.append(schedule.name)
        if fresh:
            waits = Message("wait for `skillyard trust`: {names}", names=", ".join(fresh))
            told: dict[str, Json] = {"state": "waiting", "schedules": list(fresh), "summary": str(waits)}
            self.notify(told)

    def tick(self) -> None:
        """Fire what is due. Whoever else does the same fires the same ids, and the engine takes each once."""
        timetable = self.jobs.engine.timetable
        lines = {line.name: line for line in timetable.list()}
        for schedule in self.schedules(tuple(lines.values())):
            line = lines.get(schedule.name)
            if line is None or line.when != schedule.mark:  # new, or with another time: it counts from now on
                fresh = line or TimetableEntry(schedule.name)
                fresh = fresh._replace(when=schedule.mark, until=self.jobs.engine.now())
                if line:
                    timetable.swap(line, fresh)
                else:
                    timetable.put(fresh)
            elif schedule.enabled and not line.paused:
                try:
                    self._fire(schedule, line)
                except (InvalidArgs, MultiStep, NotGranted) as error:  # cannot be meant, or must not: the others go on
                    self.tell(Message("{place}: {reason}", place=schedule.name, reason=error))
                    timetable.swap(line, line._replace(until=self.jobs.engine.now()))

    def _fire(self, schedule: Schedule, line: TimetableEntry) -> None:
        now = self.jobs.engine.now()
        if schedule.parsed.after(line.until, schedule.zone) > now and line.until <= now:
            return
        latest, before = line.latest, self.jobs.latest(line.latest)
        is_live = before is not None and before.state in {Stage.QUEUED, Stage.RUNNING}
        found = beat(schedule, line.until, now, busy=is_live)
        if found.tick is not None:
            job = self.job_of(schedule)
            if before and found.replaces:
                job = job._replace(replaces=before.run)
            latest = tick_id(self.project, schedule.name, found.tick)
            self.jobs.enqueue(job, latest, jitter_of(latest, schedule.jitter_seconds))
            if before and found.replaces:  # after the other is known, so that it is told as replaced
                self.jobs.replace(before)
        if (found.until, latest) != (line.until, line.latest):
            self.jobs.engine.timetable.swap(line, line._replace(until=found.until, latest=latest))


def project_key(root: Path, database: str, name: str) -> str:
    """Return what names the project in the engine: its path on one machine, its name on a shared database."""
    named = (name or root.name) if database else str(root.resolve())
    return f"skillyard-{hashlib.blake2b(named.encode(), digest_size=8).hexdigest()}"


class ProjectJobs(NamedTuple):
    """What a face does with jobs. The parts of a project that only some calls need are passed as functions."""

    root: Path
    own_home: Path
    keep_days: float
    logs: Logs
    #: Raises NotGranted if the project names a database and is not trusted.
    engine_config: Callable[[], EngineConfig]
    new_id: Callable[[], str]
    history: Callable[[], Runs]
    #: That of the calling thread.
    #: These two need no settings of the project, so a mistake there does not stop them.
    sandbox: Callable[[], Sandbox]
    knows: Callable[[str], bool]
    runtime: Callable[[], Runtime]
    is_role_trusted: Callable[[Path, str], bool]
    #: Installs what the lock says and is not here. Raises SkillError.
    restore: Callable[[], object]
    #: The project with the settings and the trust of now, not of when the worker started.
    reopened: "Callable[[], AbstractContextManager[ProjectJobs]]"
    worker: "Callable[[Lang], Worker]"
    make_request: "Callable[[str, str | None, Path], DispatchRequest]"
    dispatch: "Callable[[DispatchRequest, CancelToken], Result]"
    back_up: Callable[[], None]
    #: Whom a failure is told to where the job names nobody.
    notify_to: str = ""

    def open_engine(self) -> "DurableEngine":
        config = self.engine_config()
        try:
            from skillyard.jobs.dbos_engine import DurableEngine  # noqa: PLC0415  (an extra, and heavy)
        except ModuleNotFoundError as error:
            raise ExtraMissing(error.name, "jobs") from None
        return DurableEngine(config)

    @contextmanager
    def open(self) -> Iterator[Jobs]:
        with closing(self.open_engine()) as engine:
            yield self.of(engine)

    def of(self, engine: "DurableEngine") -> Jobs:
        return Jobs(engine, self.history(), self.new_id, self.logs.is_held)

    def notifier(self) -> Notifier:
        return Notifier(self.sandbox, self.root, self.own_home)

    @property
    def workflows(self) -> Workflows:
        return Workflows(self.root, self.runtime().resolve)

    # -- what becomes a job

    def prepare(self, job: Job) -> Job:
        """Return the job with the content of its skill as it is now. Raise if it cannot run."""
        if job.skill.startswith(PREFIX):
            return self.workflows.complete(job)
        if job.task:
            return job
        request = job.as_request()
        skill = self.runtime().resolve(request)
        check(skill, request, self.root, "")
        return job._replace(fingerprint=mark_of_skill(skill))

    def for_task(self, job: Job, task: AgentTask) -> Job:
        """Return the job for a task. Raise PermissionDenied if an agent queues a task for an agent."""
        made = with_task(job, task, self.knows)
        refuse_loops(made)
        return made

    def for_schedule(self, schedule: Schedule, lang: Lang = Lang.EN) -> Job:
        """Return a schedule's job as it is now. A missing skill is reported by the run, where it can be seen.

        Raise NotGranted if the role's files are not, to the byte, what a person trusted: an answer from a moment ago
        does not count.
        """
        if schedule.source and not all(self._is_trusted(schedule.source, each) for each in schedule.capabilities):
            raise NotGranted(Message("the schedule {name}", name=schedule.name), "skillyard trust")
        same = {name: value for name, value in schedule._asdict().items() if name in Job._fields and name != "task"}
        job = Job(**same, schedule=schedule.name, lang=str(lang))
        if schedule.task:
            role = Path(schedule.source).parent.name if schedule.source else ""
            task = AgentTask(schedule.task, role=role, to=schedule.to, session=schedule.session, model=schedule.model)
            job = with_task(job, task, self.knows)
        if job.task:
            return job
        is_flow = job.skill.startswith(PREFIX)
        try:
            if is_flow:
                return self.workflows.complete(job)
            return job._replace(fingerprint=mark_of_skill(self.runtime().resolve(Request(name=job.skill))))
        except SkillError as error:
            return job._replace(flow={"broken": error.msg}) if is_flow else job

    def _is_trusted(self, source: str, capability: str) -> bool:
        return self.is_role_trusted((self.root / source).parent, capability)

    def run_task(self, run_id: str, job: Job, task: AgentTask, stop: CancelToken) -> Result:
        """Make one attempt of a job that is a task: for a backend, or scripts of bin/ for the worker agent.

        A backend gets the role's CLAUDE.md, a line `---` and the task, with the active skills before it as every other
        task. It works in the role's folder. Nobody is there to be asked: what it would have to ask for is refused.
        Raise what is known before anything starts.
        """
        if task.scripts:
            agent = self.worker(Lang(job.lang))._replace(stop=stop)
            if job.timeout_seconds is not None:
                agent = agent._replace(limit_seconds=job.timeout_seconds)
            if len(parse_script_calls(task.text)) == 1:  # each of several is a run of its own: the job's row is theirs
                agent = agent._replace(new_id=lambda: run_id, job=job.about())
            return agent.run(task.text)
        text, folder, role = task.text, self.root, None
        if task.role:  # as it is now, unless it has changed since a person trusted it
            folder = self.root / "agents" / task.role
            if not self.is_role_trusted(folder, SCHEDULE):
                raise NotGranted(Message("the schedule of the role {name}", name=task.role), "skillyard trust")
            role = read_role(folder)
            read_bounds(role.bounds)  # a role with a mistake there runs nothing
            text = _with_role(role, text)
        request = self.make_request(text, task.session or None, folder)._replace(
            to=task.to or None,
            model=task.model or (role.model if role else "") or None,
            limit_seconds=job.timeout_seconds,
            lang=Lang(job.lang),
        )
        if role:
            allowed = role.allowed_tools if self.is_role_trusted(folder, ALLOWED_TOOLS) else ()
            request = request._replace(allowed_tools=allowed, max_turns=role.max_turns)
        return self.dispatch(request._replace(task=task.text, run=run_id, job=job.about()), stop)

    # -- schedules

    def schedules(self, tell: Tell = lambda _: None, announce: Lang | None = None) -> ProjectSchedules:
        return ProjectSchedules(self.root, self._is_trusted, tell, announce)

    def find_schedule(self, jobs: Jobs, name: str, tell: Tell = lambda _: None) -> Schedule:
        """Raise NotGranted if it waits for a person's trust, InvalidArgs if there is none."""
        schedules = self.schedules(tell)
        found = {each.name: each for each in schedules(jobs.engine.timetable.list())}
        if name in found:
            return found[name]
        if any(each.name == name for each in schedules.untrusted()):
            raise NotGranted(Message("the schedule {name}", name=name), "skillyard trust")
        if mistake := schedules.mistakes.get(name.partition("/")[0]):
            raise RoleInvalid(mistake)
        advice = Message("`skillyard jobs schedules` lists them")
        raise InvalidArgs(Message("no schedule {name!r} here", name=name), advice=advice)

    def pause(self, jobs: Jobs, schedule: Schedule, *, paused: bool) -> TimetableEntry:
        """Pause a schedule, or let it go on from now."""
        entries = {entry.name: entry for entry in jobs.engine.timetable.list()}
        entry = entries.get(schedule.name) or TimetableEntry(schedule.name)
        entry = entry._replace(paused=paused, when=schedule.mark, until=jobs.engine.now())
        jobs.engine.timetable.put(entry)
        return entry

    # -- who does them

    def attempts(self, tell: Tell = lambda _: None, watch: Watch = lambda _: None) -> Attempts:
        return Attempts(self, tell, watch)

    def worker_loop(self, jobs: Jobs, tell: Tell, lang: Lang, on_progress: OnProgress = None) -> WorkerLoop:
        schedules = self.schedules(tell, announce=lang)

        def notify(told: Mapping[str, Json]) -> None:
            if self.notify_to:
                sent = self.notifier().send(self.notify_to, {"project": str(self.root), **told})
                if not sent["ok"]:
                    tell(Message("the notice failed: {reason}", reason=sent["msg"]))

        return WorkerLoop(
            jobs=jobs,
            attempts=Attempts(self, tell, on_progress=on_progress),
            schedules=schedules,
            untrusted=schedules.untrusted,
            notify=notify,
            job_of=lambda schedule: self.for_schedule(schedule, lang),
            project=self.engine_config().project,
            tell=tell,
            keep_days=self.keep_days,
            back_up=self.back_up,
        )
