"""What each tool does, without the protocol: arguments in, one result out. Synchronous, for a thread of its own."""

import json
import shlex
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.app.project import Project
from skillyard.app.task import SKILLS, WORKER, Kernel
from skillyard.core.backend_events import Event
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs, NotGranted, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Clock, Request, Result, error_result, split_name
from skillyard.core.states import State
from skillyard.core.values import Json, check_value
from skillyard.faces.command import AGENT, as_skill_error
from skillyard.faces.mcp import listing
from skillyard.faces.mcp.resources import list_files
from skillyard.faces.skill_data import as_full_data, as_run_data, as_skill_data, line_of

if TYPE_CHECKING:
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


class Arguments(NamedTuple):
    """The arguments of a tool, with a method for each type of value. A wrong one raises InvalidArgs."""

    tool: str
    values: Mapping[str, Any]

    def check(self, known: Mapping[str, Any]) -> None:
        """Nothing that nobody reads, and nothing that cannot be written down."""
        if unknown := ", ".join(sorted(set(self.values) - set(known))):
            takes = {"tool": self.tool, "unknown": unknown, "known": ", ".join(known)}
            raise InvalidArgs(Message("{tool} takes no {unknown}; it takes {known}", **takes))
        try:
            check_value(self.values)
        except ValueError as error:
            raise InvalidArgs(str(error)) from None

    def text(self, name: str) -> str:
        value = self.find_text(name)
        if value is None or not value.strip():
            raise InvalidArgs(Message("{tool} needs {name}, a text", tool=self.tool, name=name))
        return value

    def find_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidArgs(Message("{name} must be a text", name=name))
        return value

    def whole(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidArgs(Message("{name} must be a whole number above zero", name=name))
        return value

    def mapping(self, name: str) -> Mapping[str, Json]:
        value = self.values.get(name) or {}
        if not isinstance(value, dict):
            raise InvalidArgs(Message("{name} must be an object", name=name))
        return value

    def words(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InvalidArgs(Message("{name} must be a list of texts", name=name))
        return tuple(value)


class Asked(NamedTuple):
    """A run that a client asked for."""

    agent: str
    run: "Callable[[Project, OnProgress, CancelToken], Result]"
    #: The skill that it runs, if it is one that the client can be asked about.
    name: str = ""
    #: Returns the same run with what was missing.
    answered: "Callable[[Mapping[str, Json]], Asked] | None" = None


def run_skill(request: Request) -> Asked:
    def answered(answers: Mapping[str, Json]) -> Asked:
        params, action = {**request.params, **answers}, request.action
        if action is None and "action" in answers:
            action = str(params.pop("action"))
        return run_skill(request._replace(params=params, action=action))

    def run(project: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        return project.runtime.run(request, on_progress, stop)

    return Asked(SKILLS, run, request.name, answered)


def _skill_run(given: Arguments, options: listing.Options) -> Asked:
    name, script = split_name(given.text("name"))
    action, args, params = given.find_text("action"), given.words("args"), given.mapping("params")
    return run_skill(Request(name, script=script, args=args, params=params, action=action, lang=options.lang))


def _task(given: Arguments, options: listing.Options) -> Asked:
    """A Task: docs/spec/task.md."""
    agent, prompt, about = given.text("subagent_type"), given.text("prompt"), given.find_text("description") or ""
    model, key = given.find_text("model"), given.find_text("idempotency_key")
    is_worker = agent in _WORKERS

    def run(project: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        if is_worker and listing.WORKER not in options.allowed:
            raise NotGranted(Message("the worker over MCP"), "skillyard mcp --allow worker")
        kernel = Kernel(project, options.lang)
        return kernel.task(agent, about, prompt, idempotency_key=key, model=model, on_progress=on_progress, stop=stop)

    def answered(answers: Mapping[str, Json]) -> Asked:
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in answers.items()}
        words = " ".join(shlex.quote(f"--{name}={text}") for name, text in texts.items())
        return _task(given._replace(values={**given.values, "prompt": f"{prompt} {words}"}), options)

    if is_worker:
        return Asked(WORKER, run, answered=answered)
    named = next((word for word in prompt.split() if word.startswith("@")), "")
    return Asked(SKILLS, run, split_name(named)[0], answered)


def _dispatch(given: Arguments, options: listing.Options) -> Asked:
    """A task with the active skills, for another agent. Nobody is there to allow it anything."""
    task, cwd = given.text("task"), given.find_text("cwd")
    to, session, model = (given.find_text(name) for name in ("to", "session", "model"))

    def run(project: Project, on_progress: "OnProgress", stop: "CancelToken") -> Result:
        from skillyard.app.dispatching import dispatch_task  # noqa: PLC0415  (only who may dispatch needs the agents)

        root = project.root.resolve()
        folder = (root / (cwd or ".")).resolve()
        if not folder.is_relative_to(root):
            raise InvalidArgs(Message("{cwd} is outside the project", cwd=cwd))

        def tell(event: Event) -> None:
            line = line_of(event.kind, event.text, event.data, options.lang)
            if on_progress and line:
                on_progress(f"{line}\n".encode())

        return dispatch_task(
            task,
            to=to,
            session=session,
            model=model,
            cwd=folder,
            lang=options.lang,
            tell=tell,
            stop=stop,
            project=project,
        )

    return Asked(AGENT, run)


def _job_run(given: Arguments, options: listing.Options) -> Asked:
    """A job of a schedule or a skill, for a worker to do. Whoever stops waiting leaves it as it is."""
    schedule, skill = given.find_text("name") or "", (given.find_text("skill") or "").removeprefix("@")
    params, action, lang = given.mapping("params"), given.find_text("action") or "", options.lang
    wait_seconds = given.whole("wait", 1) if "wait" in given.values else 0
    if bool(schedule) == bool(skill):
        raise InvalidArgs(Message("job_run takes name, of a schedule, or skill, and not both"))
    if schedule and (params or action):
        raise InvalidArgs(Message("a schedule has its own params: they go with skill"))

    def run(project: Project, _: "OnProgress", stop: "CancelToken") -> Result:
        from skillyard.jobs.jobs import Job  # noqa: PLC0415  (only who may queue jobs needs them)

        clock = Clock()
        with project.jobs.open() as jobs:
            if schedule:
                job = project.jobs.for_schedule(project.jobs.find_schedule(jobs, schedule), lang)
            else:
                job = project.jobs.prepare(Job(skill, params=params, action=action, lang=str(lang)))
            project.jobs.refuse_loops(job)
            job_id = jobs.enqueue(job)
            known, until = None, time.monotonic() + wait_seconds
            while known is None and not stop.cancelled and (left := until - time.monotonic()) > 0:
                known = jobs.wait(job_id, min(left, _LOOK_SECONDS))
            known = known or jobs.find(job_id)
        about: dict[str, Json] = {"job": {"id": known.id, "name": known.job.label, "state": known.state}}
        if known.result:
            result = from_json(json.dumps(known.result, default=dict))
            return result._replace(data={**result.data, **about})
        summary = _QUEUED.render(lang, name=known.job.label, id=known.id)
        return Result(AGENT, State.SUCCESS, summary, about, clock.meta(AGENT))

    return Asked(AGENT, run)


#: The tools that run something, with progress, questions and cancellation.
RUNS: Mapping[str, Callable[[Arguments, listing.Options], Asked]] = {
    "skill_run": _skill_run,
    "Task": _task,
    "agent_dispatch": _dispatch,
    "job_run": _job_run,
}


def _search(project: Project, given: Arguments, lang: Lang) -> tuple[str, dict[str, Json]]:
    query, limit = given.text("query"), min(given.whole("limit", 20), _MOST)
    hits = project.catalog.search(query, limit)
    if not hits and any(project.catalog.sync()[:3]):
        hits = project.catalog.search(query, limit)
    skills = [{**as_skill_data(hit.entry, project.catalog), "snippet": hit.snippet} for hit in hits]
    return _FOUND.render(lang, count=len(hits), query=query), {"skills": skills}


def _show(project: Project, given: Arguments, lang: Lang) -> tuple[str, dict[str, Json]]:
    asked = split_name(given.text("name"))[0]
    project.catalog.sync()
    skill = project.catalog.resolve(asked)
    files: list[Json] = list(list_files(skill, asked))
    return _SKILL.render(lang, name=skill.name), {"skills": [{**as_full_data(skill, project), "files": files}]}


def _runs(project: Project, given: Arguments, lang: Lang) -> tuple[str, dict[str, Json]]:
    run_id, limit = given.find_text("run_id") or "", given.whole("limit", 20)
    if run_id:
        run = project.find_run(run_id)
        if run is None:
            text = Message("no run {run_id!r} here, or more than one starts so; runs alone lists them", run_id=run_id)
            raise InvalidArgs(text)
        log = project.logs.read(run.id)[-_LOG_CHARACTERS:]
        return _RUN.render(lang, id=run.id), {"runs": [{**as_run_data(run), "log": log}]}
    shown: list[Json] = []
    for run in project.runs(min(limit, _MOST)):  # a list is for choosing; the rest is one call away
        fields = as_run_data(run)
        result = fields.pop("result")
        del fields["launch"]
        shown.append({**fields, "summary": result.get("summary") if isinstance(result, Mapping) else None})
    return _RUNS.render(lang, count=len(shown)), {"runs": shown}


_LOOKS = {"skill_search": _search, "skill_show": _show, "runs": _runs}


def look(project: Project, given: Arguments, lang: Lang) -> Result:
    """Answer what is asked of us and of no skill."""

    def answer(clock: Clock) -> Result:
        summary, data = _LOOKS[given.tool](project, given, lang)
        return Result(AGENT, State.SUCCESS, summary, data, clock.meta(AGENT))

    return attempt(AGENT, lang, answer)


def attempt(agent: str, lang: Lang, work: Callable[[Clock], Result]) -> Result:
    """The runtime tells its own failures; what it leaves are ours: a full disk, a worker that nobody allowed."""
    clock = Clock()
    try:
        return work(clock)
    except (SkillError, OSError, sqlite3.Error) as error:
        expected = error if isinstance(error, SkillError) else as_skill_error(error)
        return error_result(expected, agent, lang, clock.meta(agent))
