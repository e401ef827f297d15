"""Jobs of a project: builds the engine, the jobs in it, and the worker that does them."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.app.project import Project, new_run_id
from skillyard.app.settings import EngineSettings, project_engine
from skillyard.catalog.fingerprint import fingerprint
from skillyard.catalog.flowfile import read_workflow
from skillyard.core.capability import ON_FAILURE, SCHEDULE
from skillyard.core.errors import ExtraMissing, InvalidArgs, NotGranted, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.request import Request
from skillyard.jobs.agent_job import Errand
from skillyard.jobs.agent_task import do_errand, with_task
from skillyard.jobs.attempt import Attempts, Bench
from skillyard.jobs.flow import Flows, Watch
from skillyard.jobs.jobs import Job, Jobs
from skillyard.jobs.notify import Notifier
from skillyard.jobs.role_schedules import RoleSchedules
from skillyard.jobs.schedule import PREFIX, Schedule, local_zone
from skillyard.jobs.worker_loop import Shift
from skillyard.runtime.guard import OnProgress
from skillyard.trust.consent import are_settings_trusted, is_role_trusted

if TYPE_CHECKING:
    from skillyard.jobs.engine import Engine, Line

#: How often a worker asks whether the project is still trusted.
_TRUST_SECONDS = 5.0


def engine_settings(yard: Project) -> EngineSettings:
    """The user's word first; the project's database where a person trusted it."""
    asked = project_engine(yard.root)
    mine = yard.settings.engine
    if asked.database and not mine.database and not are_settings_trusted(yard.grants, yard.root):
        raise NotGranted(Message("the database of jobs that skillyard.toml names"), "skillyard trust")
    return EngineSettings(
        database=mine.database or asked.database,
        project=asked.project or mine.project,
        full_sync=mine.full_sync or asked.full_sync,
        poll_seconds=mine.poll_seconds,
        limits={**asked.limits, **mine.limits},
    )


def project_key(yard: Project, settings: EngineSettings) -> str:
    """On one machine the path names the project; on many its name does, because paths differ."""
    named = (settings.project or yard.root.name) if settings.database else str(yard.root.resolve())
    return f"skillyard-{hashlib.blake2b(named.encode(), digest_size=8).hexdigest()}"


def open_engine(yard: Project) -> "Engine":
    settings = engine_settings(yard)
    try:
        from skillyard.jobs.dbos_engine import DurableEngine, Place
    except ModuleNotFoundError as error:
        raise ExtraMissing(error.name, "jobs") from None
    return DurableEngine(
        Place(
            folder=yard.places.own_home / "engine",
            project=project_key(yard, settings),
            database=settings.database,
            full_sync=settings.full_sync,
            poll_seconds=settings.poll_seconds,
            limits=settings.limits,
        )
    )


def make_job(yard: Project, job: Job) -> Job:
    """The job with the content of the skill as it is now; SkillNotFound and InvalidParam before anything is queued."""
    from skillyard.jobs.attempt import as_request
    from skillyard.runtime.check import check

    if job.skill.startswith(PREFIX):
        from skillyard.jobs.flow_plan import as_flow

        return as_flow(yard, job)
    if job.errand:
        return job
    request = as_request(job)
    skill = yard.runtime.resolve(request)
    check(skill, request, yard.root, "")
    return job._replace(fingerprint=fingerprint(skill.folder))


def job_of(yard: Project, schedule: Schedule, lang: Lang = Lang.EN) -> Job:
    """A schedule's job now. A skill that is not there is told by the run, where it can be seen; NotGranted where the
    role's files are not, to the byte, what a person trusted: what was true a moment ago does not count."""
    if schedule.source and not all(_is_granted(yard, schedule.source, each) for each in _wanted(schedule)):
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
        errand = Errand(schedule.task, role=role, to=schedule.to, session=schedule.session, model=schedule.model)
        job = with_task(yard, job, errand)
    if job.errand:
        return job
    if job.skill.startswith(PREFIX):
        try:
            return make_job(yard, job)
        except SkillError as error:
            return job._replace(flow={"broken": error.msg})
    try:
        return job._replace(fingerprint=fingerprint(yard.runtime.resolve(Request(name=job.skill)).folder))
    except SkillError:
        return job


def _wanted(schedule: Schedule) -> tuple[str, ...]:
    return (SCHEDULE, ON_FAILURE) if schedule.on_failure else (SCHEDULE,)


def _is_granted(yard: Project, source: str, capability: str) -> bool:
    return is_role_trusted(yard.grants, (yard.root / source).parent, capability)


class Schedules:
    """Those of the timetable, and those of the roles' files where a person trusts them."""

    def __init__(self, yard: Project, tell: Callable[[str], None]) -> None:
        self._yard, self._tell = yard, tell
        self._roles = RoleSchedules(yard.root, local_zone(), tell)
        self._asked = 0.0
        self._trusted: dict[tuple[str, str], bool] = {}
        self._unread: set[str] = set()

    def __call__(self, lines: "Sequence[Line]") -> tuple[Schedule, ...]:
        own = tuple(read for line in lines if line.says and (read := self._read(line)))
        return (*own, *(each for each in self._roles.list() if self._is_allowed(each)))

    def _read(self, line: "Line") -> Schedule | None:
        """One that cannot be read, perhaps of a newer version, holds up no other."""
        try:
            return Schedule.from_mapping(line.says)
        except (SkillError, ValueError, TypeError) as error:
            if line.name not in self._unread:
                self._unread.add(line.name)
                self._tell(Message("the schedule {name} cannot be read: {error}", name=line.name, error=error))
        return None

    def untrusted(self) -> tuple[Schedule, ...]:
        """What the files ask for and nobody allowed."""
        return tuple(each for each in self._roles.list() if not self._is_allowed(each))

    def _is_allowed(self, schedule: Schedule) -> bool:
        return all(self._is_trusted(schedule.source, capability) for capability in _wanted(schedule))

    def _is_trusted(self, source: str, capability: str) -> bool:
        """Asked again every few seconds, because a grant is for the bytes of the role's whole folder; and once more
        when a tick fires."""
        if time.monotonic() - self._asked > _TRUST_SECONDS:
            self._asked, self._trusted = time.monotonic(), {}
        key = (source, capability)
        if key not in self._trusted:
            self._trusted[key] = _is_granted(self._yard, source, capability)
        return self._trusted[key]


class Announced:
    """`Schedules` for a worker: says what it serves and what waits for a person, at first and whenever that changes."""

    def __init__(self, schedules: Schedules, tell: Callable[[str], None], lang: Lang) -> None:
        self._schedules, self._tell, self._lang = schedules, tell, lang
        self._served: object = None
        self._waiting: tuple[str, ...] = ()

    def __call__(self, lines: "Sequence[Line]") -> tuple[Schedule, ...]:
        found = self._schedules(lines)
        paused = {line.name for line in lines if line.paused}
        served = [each for each in found if each.enabled and each.name not in paused]
        mark = [(each.name, each.mark) for each in served]
        if mark != self._served:
            self._served = mark
            self._tell(_serving(served, self._lang))
        waiting = tuple(each.name for each in self._schedules.untrusted())
        if waiting != self._waiting:
            self._waiting = waiting
            if waiting:
                self._tell(_WAITING.render(self._lang, names=", ".join(waiting)))
        return found


_LISTED = Message("`skillyard jobs schedules` lists them")
_SERVING = Message("{count} scheduled, next: {name} at {when}")
_NONE = Message("nothing is scheduled")
_WAITING = Message("wait for `skillyard trust`: {names}")


def _serving(served: Sequence[Schedule], lang: Lang) -> str:
    if not served:
        return _NONE.render(lang)
    now = time.time()
    tick, first = min(((each.parsed.after(now, each.zone), each) for each in served), key=lambda pair: pair[0])
    when = datetime.fromtimestamp(tick, first.zone).isoformat(timespec="seconds")
    return _SERVING.render(lang, count=len(served), name=first.name, when=when)


def find_schedule(yard: Project, engine: "Engine", name: str, tell: Callable[[str], None] = lambda _: None) -> Schedule:
    """By its name; NotGranted where it waits for a person's trust."""
    schedules = Schedules(yard, tell)
    found = {each.name: each for each in schedules(engine.timetable.list())}
    if name in found:
        return found[name]
    if any(each.name == name for each in schedules.untrusted()):
        raise NotGranted(Message("the schedule {name}", name=name), "skillyard trust")
    raise InvalidArgs(Message("no schedule {name!r} here", name=name), advice=_LISTED)


def make_jobs(yard: Project, engine: "Engine") -> Jobs:
    return Jobs(engine, yard.history, new_run_id)


def make_attempts(
    yard: Project,
    tell: Callable[[str], None] = lambda _: None,
    watch: Watch = lambda _: None,
    on_progress: OnProgress = None,
) -> Attempts:
    """Each thread opens the project for itself; the sandbox is one for all."""
    threads = threading.local()
    sandbox = yard.sandbox

    def bench() -> Bench:
        found: Bench | None = getattr(threads, "bench", None)
        if found is None:
            own = yard.reopen()
            errands = partial(do_errand, own)
            found = threads.bench = Bench(own.runtime, own.history, lambda: _restore(own), errands)
        return found

    notify = Notifier(lambda: sandbox, yard.root, yard.places.own_home)
    attempts = Attempts(bench, socket.gethostname(), notify, tell, on_progress)
    attempts.flows = Flows(attempts, bench, yard.logs, lambda file: read_workflow(yard.root / file), watch)
    return attempts


def make_shift(
    yard: Project, engine: "Engine", tell: Callable[[str], None], lang: Lang, on_progress: OnProgress = None
) -> Shift:
    return Shift(
        engine=engine,
        jobs=make_jobs(yard, engine),
        attempts=make_attempts(yard, tell, on_progress=on_progress),
        schedules=Announced(Schedules(yard, tell), tell, lang),
        job_of=lambda schedule: job_of(yard, schedule, lang),
        project=project_key(yard, engine_settings(yard)),
        tell=tell,
        keep_days=yard.settings.keep_days,
        back_up=yard.back_up_if_due,
    )


def _restore(yard: Project) -> None:
    yard.installer().restore(lambda _: None)
