"""The jobs of a project: opens the engine, makes jobs of skills, tasks and schedules, and builds the worker."""

import hashlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.errors import ExtraMissing, InvalidArgs, NotGranted, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Request
from skillyard.core.skill import Skill
from skillyard.jobs.agent_task import AgentTask, refuse_loops, with_task
from skillyard.jobs.engine import Engine, EngineConfig, TimetableEntry
from skillyard.jobs.flow import Flows, Watch
from skillyard.jobs.flow_plan import Workflows
from skillyard.jobs.jobs import Job, Jobs
from skillyard.jobs.notify import Notifier
from skillyard.jobs.schedule import PREFIX, ProjectSchedules, Schedule
from skillyard.jobs.worker_loop import AttemptContext, Attempts, WorkerLoop
from skillyard.runtime.check import check
from skillyard.runtime.record import OnProgress
from skillyard.sandbox.launch import Sandbox
from skillyard.store.runs import Logs, Runs

_LISTED = Message("`skillyard jobs schedules` lists them")
Tell = Callable[[str], None]


def _ignore(_: object) -> None:
    return


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
    sandbox: Callable[[], Sandbox]
    resolve: Callable[[Request], Skill]
    #: Whether a name is a skill's.
    knows: Callable[[str], bool]
    #: Whether a role's folder is trusted with a capability.
    is_role_trusted: Callable[[Path, str], bool]
    #: What the attempts of the calling thread need.
    attempt_context: Callable[[], AttemptContext]
    back_up: Callable[[], None]

    def open_engine(self) -> Engine:
        config = self.engine_config()
        try:
            from skillyard.jobs.dbos_engine import DurableEngine  # noqa: PLC0415  (an extra, and heavy)
        except ModuleNotFoundError as error:
            raise ExtraMissing(error.name, "jobs") from None
        return DurableEngine(config)

    @contextmanager
    def open(self) -> Iterator[Jobs]:
        engine = self.open_engine()
        try:
            yield self.of(engine)
        finally:
            engine.close()

    def of(self, engine: Engine) -> Jobs:
        return Jobs(engine, self.history(), self.new_id)

    @property
    def workflows(self) -> Workflows:
        return Workflows(self.root, self.resolve)

    # -- what becomes a job

    def prepare(self, job: Job) -> Job:
        """Return the job with the content of its skill as it is now. Raise if it cannot run."""
        if job.skill.startswith(PREFIX):
            return self.workflows.complete(job)
        if job.task:
            return job
        request = job.as_request()
        skill = self.resolve(request)
        check(skill, request, self.root, "")
        return job._replace(fingerprint=fingerprint(skill.folder))

    def for_task(self, job: Job, task: AgentTask) -> Job:
        """Return the job for a task. Raise PermissionDenied if an agent queues a task for an agent."""
        made = with_task(job, task, self.knows)
        refuse_loops(made)
        return made

    def refuse_loops(self, job: Job) -> None:
        refuse_loops(job)

    def for_schedule(self, schedule: Schedule, lang: Lang = Lang.EN) -> Job:
        """Return a schedule's job as it is now. A missing skill is reported by the run, where it can be seen.

        Raise NotGranted if the role's files are not, to the byte, what a person trusted: an answer from a moment ago
        does not count.
        """
        if schedule.source and not all(self._is_trusted(schedule.source, each) for each in schedule.capabilities):
            raise NotGranted(Message("the schedule {name}", name=schedule.name), "skillyard trust")
        job = Job(
            skill=schedule.skill,
            name=schedule.name,
            args=schedule.args,
            params=schedule.params,
            action=schedule.action,
            timeout_seconds=schedule.timeout_seconds,
            retries=schedule.retries,
            queue=schedule.queue,
            on_failure=schedule.on_failure,
            schedule=schedule.name,
            lang=str(lang),
        )
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
            return job._replace(fingerprint=fingerprint(self.resolve(Request(name=job.skill)).folder))
        except SkillError as error:
            return job._replace(flow={"broken": error.msg}) if is_flow else job

    def _is_trusted(self, source: str, capability: str) -> bool:
        return self.is_role_trusted((self.root / source).parent, capability)

    # -- schedules

    def schedules(self, tell: Tell = _ignore, announce: Lang | None = None) -> ProjectSchedules:
        return ProjectSchedules(self.root, self._is_trusted, tell, announce)

    def find_schedule(self, jobs: Jobs, name: str, tell: Tell = _ignore) -> Schedule:
        """Raise NotGranted if it waits for a person's trust, InvalidArgs if there is none."""
        schedules = self.schedules(tell)
        found = {each.name: each for each in schedules(jobs.timetable.list())}
        if name in found:
            return found[name]
        if any(each.name == name for each in schedules.untrusted()):
            raise NotGranted(Message("the schedule {name}", name=name), "skillyard trust")
        raise InvalidArgs(Message("no schedule {name!r} here", name=name), advice=_LISTED)

    def pause(self, jobs: Jobs, schedule: Schedule, *, paused: bool) -> TimetableEntry:
        """Pause a schedule, or let it go on from now."""
        entries = {entry.name: entry for entry in jobs.timetable.list()}
        entry = entries.get(schedule.name) or TimetableEntry(schedule.name)
        entry = entry._replace(paused=paused, when=schedule.mark, until=jobs.engine.now())
        jobs.timetable.put(entry)
        return entry

    # -- who does them

    def attempts(self, tell: Tell = _ignore, watch: Watch = _ignore, on_progress: OnProgress = None) -> Attempts:
        notify = Notifier(self.sandbox, self.root, self.own_home).notify
        attempts = Attempts(self.attempt_context, socket.gethostname(), notify, tell, on_progress)
        attempts.run_flow = Flows(attempts, self.attempt_context, self.logs, self.root, watch).run
        return attempts

    def worker_loop(self, jobs: Jobs, tell: Tell, lang: Lang, on_progress: OnProgress = None) -> WorkerLoop:
        return WorkerLoop(
            engine=jobs.engine,
            jobs=jobs,
            attempts=self.attempts(tell, on_progress=on_progress),
            schedules=self.schedules(tell, announce=lang),
            job_of=lambda schedule: self.for_schedule(schedule, lang),
            project=self.engine_config().project,
            tell=tell,
            keep_days=self.keep_days,
            back_up=self.back_up,
        )
