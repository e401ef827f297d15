"""What each tool does, without the protocol: arguments in, one result out. Synchronous, for a thread of its own."""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from skillyard.app.project import Project
from skillyard.app.task import SKILLS, WORKER, Kernel
from skillyard.core.backend_events import Event
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs, NotGranted, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.request import Request
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.command import AGENT, as_skill_error
from skillyard.faces.mcp.resources import list_files
from skillyard.faces.skill_data import as_full_data, as_run_data, as_skill_data
from skillyard.scripts.prompt_grammar import split_name

if TYPE_CHECKING:
    from skillyard.jobs.jobs import Job, Jobs
    from skillyard.runtime.record import OnProgress
    from skillyard.sandbox.cancel_token import CancelToken

_FOUND = Message("{count} skills match: {query}")
_SKILL = Message("skill: {name}")
_RUNS = Message("{count} runs")
_RUN = Message("run {id}")
_QUEUED = Message("queued, a worker does it: {name} ({id})")
_LOOK_SECONDS = 0.5
_MOST = 100
#: Of a log, which the model reads, the end.
_LOG_CHARACTERS = 20_000
_WORKERS = frozenset({"worker", "worker_agent"})
_Expected: TypeAlias = SkillError | OSError | sqlite3.Error


class SkillRun(NamedTuple):
    """A run that is asked for: what is still missing can be added to it."""

    request: Request

    def __call__(self, yard: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        return yard.runtime.run(self.request, on_progress, stop)

    @property
    def name(self) -> str:
        return self.request.name

    def answered(self, answers: Mapping[str, Json]) -> "SkillRun":
        given = {**self.request.params, **answers}
        action = self.request.action
        if action is None and "action" in answers:
            action = str(given.pop("action"))
        return SkillRun(self.request._replace(params=given, action=action))


class Task(NamedTuple):
    """A Task: docs/spec/task.md."""

    agent: str
    description: str
    prompt: str
    model: str | None
    key: str | None
    lang: Lang
    may_work: bool

    def __call__(self, yard: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        if self.agent in _WORKERS and not self.may_work:
            raise NotGranted(Message("the worker over MCP"), "skillyard mcp --allow worker")
        return Kernel(yard, self.lang).task(
            self.agent,
            self.description,
            self.prompt,
            idempotency_key=self.key,
            model=self.model,
            on_progress=on_progress,
            stop=stop,
        )

    @property
    def name(self) -> str:
        """The skill that is asked for, where it is one."""
        words = [word for word in self.prompt.split() if word.startswith("@")]
        return split_name(words[0])[0] if words and self.agent not in _WORKERS else ""

    def answered(self, answers: Mapping[str, Json]) -> "Task":
        import shlex  # noqa: PLC0415  (only an answer needs it)

        words = " ".join(shlex.quote(f"--{name}={_as_word(value)}") for name, value in answers.items())
        return self._replace(prompt=f"{self.prompt} {words}")


class Dispatch(NamedTuple):
    """A task with the active skills, for another agent. Nobody is there to allow it anything."""

    task: str
    to: str | None
    session: str | None
    model: str | None
    cwd: str | None
    lang: Lang

    def __call__(self, yard: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        from skillyard.app.dispatching import dispatch_task  # noqa: PLC0415
        from skillyard.faces.skill_data import line_of  # noqa: PLC0415  (only who may dispatch needs the agents)

        root = yard.root.resolve()
        folder = (root / (self.cwd or ".")).resolve()
        if not folder.is_relative_to(root):
            raise InvalidArgs(Message("{cwd} is outside the project", cwd=self.cwd))

        def tell(event: Event) -> None:
            line = line_of(event.kind, event.text, event.data, self.lang)
            if on_progress and line:
                on_progress(f"{line}\n".encode())

        return dispatch_task(
            self.task,
            to=self.to,
            session=self.session,
            model=self.model,
            cwd=folder,
            lang=self.lang,
            tell=tell,
            stop=stop,
            project=yard,
        )

    @property
    def name(self) -> str:
        return ""

    def answered(self, answers: Mapping[str, Json]) -> "Dispatch":
        del answers  # it never asks
        return self


class JobRun(NamedTuple):
    """A job of a schedule or a skill, for a worker to do. Whoever stops waiting leaves it as it is."""

    schedule: str
    skill: str
    params: Mapping[str, Json]
    action: str
    wait_seconds: float
    lang: Lang

    def __call__(self, yard: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        if bool(self.schedule) == bool(self.skill):
            raise InvalidArgs(Message("job_run takes name, of a schedule, or skill, and not both"))
        if self.schedule and (self.params or self.action):
            raise InvalidArgs(Message("a schedule has its own params: they go with skill"))
        del on_progress
        started, moment = time.monotonic(), datetime.now(UTC)
        with yard.jobs.open() as jobs:
            job = self._job(yard, jobs)
            yard.jobs.refuse_loops(job)
            job_id = jobs.enqueue(job)
            known, until = None, time.monotonic() + self.wait_seconds
            while known is None and not stop.cancelled and (left := until - time.monotonic()) > 0:
                known = jobs.wait(job_id, min(left, _LOOK_SECONDS))
            known = known or jobs.find(job_id)
        about: dict[str, Json] = {"job": {"id": known.id, "name": known.job.label, "state": known.state}}
        if known.result:
            result = from_json(json.dumps(known.result, default=dict))
            return result._replace(data={**result.data, **about})
        summary = _QUEUED.render(self.lang, name=known.job.label, id=known.id)
        return Result(AGENT, State.SUCCESS, summary, about, make_meta(AGENT, time.monotonic() - started, moment))

    def _job(self, yard: Project, jobs: "Jobs") -> "Job":
        from skillyard.jobs.jobs import Job  # noqa: PLC0415

        if self.schedule:
            return yard.jobs.for_schedule(yard.jobs.find_schedule(jobs, self.schedule), self.lang)
        skill = self.skill.removeprefix("@")
        return yard.jobs.prepare(Job(skill, params=self.params, action=self.action, lang=str(self.lang)))

    @property
    def name(self) -> str:
        return ""

    def answered(self, answers: Mapping[str, Json]) -> "JobRun":
        del answers  # nobody can answer in a job
        return self


Asked: TypeAlias = SkillRun | Task | Dispatch | JobRun


def _as_word(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def search(yard: Project, query: str, limit: int, lang: Lang) -> Result:
    def answer() -> tuple[str, dict[str, Json]]:
        hits = yard.catalog.search(query, min(limit, _MOST))
        if not hits and _has_changed(yard):
            hits = yard.catalog.search(query, min(limit, _MOST))
        skills = [{**as_skill_data(hit.entry, yard.catalog), "snippet": hit.snippet} for hit in hits]
        return _FOUND.render(lang, count=len(hits), query=query), {"skills": skills}

    return told(answer, lang)


def _has_changed(yard: Project) -> bool:
    """The watch keeps the index up to date; who finds nothing may be asking for what came a moment ago."""
    changes = yard.catalog.sync()
    return bool(changes.added or changes.updated or changes.removed)


def show(yard: Project, name: str, lang: Lang) -> Result:
    def answer() -> tuple[str, dict[str, Json]]:
        yard.catalog.sync()
        asked = split_name(name)[0]
        skill = yard.catalog.resolve(asked)
        files: list[Json] = list(list_files(skill, asked))
        return _SKILL.render(lang, name=skill.name), {"skills": [{**as_full_data(skill, yard), "files": files}]}

    return told(answer, lang)


def runs(yard: Project, run_id: str, limit: int, lang: Lang) -> Result:
    def answer() -> tuple[str, dict[str, Json]]:
        if not run_id:
            found = yard.runs(min(limit, _MOST))
            return _RUNS.render(lang, count=len(found)), {"runs": [_in_short(as_run_data(run)) for run in found]}
        run = yard.find_run(run_id)
        if run is None:
            raise InvalidArgs(
                Message(
                    "no run {run_id!r} here, or more than one starts so; without run_id, runs lists them", run_id=run_id
                )
            )
        log = yard.logs.read(run.id)[-_LOG_CHARACTERS:]
        return _RUN.render(lang, id=run.id), {"runs": [{**as_run_data(run), "log": log}]}

    return told(answer, lang)


def _in_short(run: dict[str, Json]) -> dict[str, Json]:
    """A list is for choosing; the rest is one call away."""
    result = run.pop("result")
    run.pop("launch")
    return {**run, "summary": result.get("summary") if isinstance(result, Mapping) else None}


def told(answer: Callable[[], tuple[str, Mapping[str, Json]]], lang: Lang) -> Result:
    """What is asked of us and of no skill, as a result."""
    started, moment = time.monotonic(), datetime.now(UTC)
    try:
        summary, data = answer()
    except (SkillError, OSError, sqlite3.Error) as error:
        return failed(error, AGENT, lang, started, moment)
    return Result(AGENT, State.SUCCESS, summary, data, make_meta(AGENT, time.monotonic() - started, moment))


def run(asked: Asked, yard: Project, on_progress: "OnProgress", stop: "CancelToken", lang: Lang) -> Result:
    """The runtime tells its own failures; what it leaves are ours: a full disk, a worker that nobody allowed."""
    started, moment = time.monotonic(), datetime.now(UTC)
    try:
        return asked(yard, on_progress, stop)
    except (SkillError, OSError, sqlite3.Error) as error:
        return failed(error, _agent_of(asked), lang, started, moment)


def _agent_of(asked: Asked) -> str:
    if isinstance(asked, Dispatch | JobRun):
        return AGENT
    return WORKER if isinstance(asked, Task) and asked.agent in _WORKERS else SKILLS


def failed(error: _Expected, agent: str, lang: Lang, started: float, moment: datetime) -> Result:
    expected = error if isinstance(error, SkillError) else as_skill_error(error)
    return error_result(expected, agent, lang, make_meta(agent, time.monotonic() - started, moment))
