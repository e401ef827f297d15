"""Queue and schedule skills and tasks: list, add, run, cancel and retry their jobs.

A job is a run that a worker does: `skillyard worker` in this project, on this machine or on another one.
WHEN is five cron fields, @daily and the like, or an interval. Paths in params lie inside the project.
--task is a Task prompt (`run @name`, `run python bin/x.py`); other words go to a backend agent, and nobody is there to
allow it anything.

examples:
  skillyard jobs enqueue @report --retries 3
  skillyard jobs add "0 9 * * 1-5" @report --name weekday-report
  skillyard jobs add "every 15m" @check url=https://example.org --overlap replace
  skillyard jobs add "@daily" flow:weekly-report days=7
  skillyard jobs add "0 9 * * 1-5" --task "Summarise yesterday's commits" --to codex --name summary
  skillyard jobs
  skillyard jobs show 1a1e10
  skillyard jobs retry 1a1e10
"""

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from skillyard.app import job_values
from skillyard.app.job_values import (
    QUEUE,
    AgentTask,
    Job,
    JobFilter,
    Misfire,
    Overlap,
    Schedule,
    TimetableEntry,
    parse_since,
)
from skillyard.app.project import Project, open_project
from skillyard.core.child_process import refuse_inside_agents
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Message
from skillyard.core.result import Request, split_name
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json
from skillyard.faces import command
from skillyard.faces.cli.run import take_ours
from skillyard.faces.command import Answer, Options, Parser, ProgramLines, at_least, comma_list, seconds, takes
from skillyard.faces.live_line import bar
from skillyard.faces.present import Record, StatusLine, Style, Table, write_lines
from skillyard.faces.skill_data import as_run_data, fields_of, timestamp

if TYPE_CHECKING:
    from skillyard.jobs.jobs import Jobs, JobStatus

_LOOK_SECONDS = 0.2
_STATES = ("queued", "running", *State, "cancelled", "replaced")
_ID = takes("job_id", "the id, or how it starts", metavar="ID")
_NAME = takes("name", "the schedule's name", metavar="NAME")


def arguments(parser: Parser) -> None:
    add = parser.add_commands("list | show | add | run | enqueue | cancel | retry | …")
    add("list", "the latest jobs, finished ones too", answer)
    add("show", "everything that is known of a job, with its log", _show)
    add("cancel", "take it from the queue, or stop it", _cancel)
    add("retry", "one more attempt of a job that failed, as its skill is now", _retry)
    add("enqueue", "have a worker run a skill or a task", _enqueue)
    add("add", "schedule a skill or a task", _add)
    add("schedules", "what recurs here, and when it comes next", _schedules)
    add("run", "run a schedule's skill now, and print its result", _run)
    add("pause", "let a schedule rest", _pause).set_defaults(paused=True)
    add("resume", "go on with a schedule, from now", _pause).set_defaults(paused=False)
    add("remove", "forget a schedule of `jobs add`", _remove)
    add("history", "the attempts of jobs, the latest first", _history)


def _takes_job(answer: Callable[[Options], Answer]) -> Callable[[Options], Answer]:
    """What a job does and how, for `jobs enqueue` and `jobs add`."""
    for argument in (
        takes("--on-failure", "a command or webhook to tell of the last failure", default="", metavar="TO"),
        takes("--queue", f"which queue ({QUEUE})", default=QUEUE),
        takes("--timeout", "seconds that a run may take", type=seconds, metavar="S"),
        takes("--retries", "more attempts after it failed (0)", type=at_least(0), default=0, metavar="N"),
        takes("--name", "what to call it (the skill's name, or `task`)", default=""),
        takes("--model", "for those words: the agent's model", default="", metavar="M"),
        takes("--session", "for those words: go on with this conversation", default="", metavar="ID"),
        takes("--to", "for those words: which agent", default="", metavar="BACKEND"),
        takes("--task", "a Task prompt, or words for a backend agent", default="", metavar="TEXT"),
        takes("args", "its params: value, --key value or key=value", nargs=argparse.REMAINDER),
        takes("skill", "@name, @role/name, or flow:NAME for a workflow", metavar="@SKILL", nargs="?"),
    ):
        answer = argument(answer)
    return answer


@contextmanager
def _opened() -> "Iterator[tuple[Project, Jobs]]":
    with open_project() as project, project.jobs.open() as jobs:
        yield project, jobs


def _takes_filter(answer: Callable[[Options], Answer]) -> Callable[[Options], Answer]:
    """Which jobs are meant."""
    for argument in (
        takes("--since", "only those made since 2h, 7d or 2026-11-18T09:00", default="", metavar="WHEN"),
        takes("--schedule", "only those of this schedule", default="", metavar="NAME"),
        takes("--queue", "only those of this queue", default=""),
        takes("--role", "only those of this role", default=""),
        takes("--skill", "only those of this skill", default="", metavar="NAME"),
        takes("--state", "only those in these states, with commas: queued, running, error, cancelled, …", default=""),
        takes("--failed", "only those that failed for good"),
    ):
        answer = argument(answer)
    return answer


def _filter(options: Options) -> JobFilter:
    states = comma_list(options.state)
    if unknown := [state for state in states if state not in _STATES]:
        known = ", ".join(_STATES)
        raise InvalidArgs(Message("there is no state {name}; there are {known}", name=unknown[0], known=known))
    return JobFilter(
        states=("error", "timeout") if options.failed else states,
        since=parse_since(options.since, time.time()) if options.since else 0.0,
        **{name: getattr(options, name) for name in ("role", "queue", "schedule")},
        skill=options.skill.removeprefix("@"),
    )


@takes("--offset", "leave out so many of the latest", type=at_least(0), default=0, metavar="N")
@takes("--limit", "how many, the latest first (20)", type=at_least(1), default=20)
@_takes_filter
def answer(options: Options) -> Answer:
    wanted = _filter(options)
    with _opened() as (project, jobs):
        found, more = jobs.select(wanted, options.offset, options.limit)
        changes = {known.id: waiting for known in found if (waiting := _changes_of(project, known))}
        untrusted: list[Json] = [each.name for each in project.jobs.schedules().untrusted()]
    rows, data = list[tuple[str, ...]](), list[Json]()
    for known in found:
        job, waiting = known.job, changes.get(known.id, "")
        attempt = f"{job.attempt}/{max(job.retries + 1, job.attempt)}"
        row = (known.id[:14], timestamp(known.created), known.state, attempt, job.label)
        rows.append((*row, str(known.result.get("summary", "")), *((waiting,) if changes else ())))
        data.append(_as_data(known, waiting))
    columns = ("id", "created", "state", "attempt", "name", "summary", *(("changes",) if changes else ()))
    empty = Message("No jobs here yet. `skillyard jobs enqueue @name` makes one.")
    told: dict[str, Json] = {"jobs": data, "more": more, **({"waiting": untrusted} if untrusted else {})}
    note = Message("wait for `skillyard trust`: {names}", names=", ".join(map(str, untrusted))) if untrusted else ""
    if more and not note:
        note = Message("more follow: --offset {offset}", offset=options.offset + len(found))
    return Answer(Message("{count} jobs", count=len(found)), told, Table(columns, rows, empty, note))


def _changes_of(project: Project, known: "JobStatus") -> str:
    """Return `pending` if what a job changed waits for a person, and the machine where it does, if not this one."""
    meta: Any = known.result.get("meta") or {}
    if meta.get("changes") != "pending":
        return ""
    if meta.get("host", socket.gethostname()) != socket.gethostname():
        return f"pending on {meta['host']}"
    return "pending" if project.changes.find(known.run, project.root) else ""


@_ID
def _show(options: Options) -> Answer:
    with _opened() as (project, jobs):
        known = jobs.find(options.job_id)
        run, log = project.find_run(known.run), project.logs.read(known.run)
        changes = _changes_of(project, known)
    data = {**_as_data(known, changes), "result": known.result, "log": log}
    if changes:
        data["apply"] = f"skillyard changes {known.run} apply"
    told = {key: value for key, value in data.items() if value not in ("", None, [], {})}
    every: dict[str, Json] = {"jobs": [data], "runs": [as_run_data(run)] if run else []}
    return Answer(Message("job {id}", id=known.id), every, Record(told))


@_ID
def _cancel(options: Options) -> Answer:
    with _opened() as (_, jobs):
        known = jobs.cancel(options.job_id)
    return Answer(Message("cancelled: {name} ({id})", name=known.job.label, id=known.id), {"jobs": [_as_data(known)]})


@_ID
@takes("--from-start", "a workflow: not from the step that failed")
def _retry(options: Options) -> Answer:
    with _opened() as (_, jobs):
        job_values.refuse_loops(jobs.find(options.job_id).job)
        known = jobs.retry(options.job_id, from_start=options.from_start)
    summary = Message("queued again: {name} ({id})", name=known.job.label, id=known.id)
    return Answer(summary, {"jobs": [_as_data(known)]})


@takes("--wait", "until it is done, and print its result")
@takes("--delay", "seconds before it may start", type=seconds, default=0.0, metavar="S")
@_takes_job
def _enqueue(options: Options) -> Answer:
    _settle(options)
    with _opened() as (project, jobs):
        job = _job(project, options)
        job_id = jobs.enqueue(job, delay_seconds=options.delay)
        if options.wait:
            with Looking(job.label, options.style) as looking:
                looking.tell(Message("{id} waits for a worker: `skillyard worker` in this project", id=job_id))
                ended = _look_on(project, jobs, job_id, looking)
            _show_result(ended, options)
        known = jobs.find(job_id)
    return Answer(Message("queued: {name} ({id})", name=known.job.label, id=known.id), {"jobs": [_as_data(known)]})


def _look_on(project: Project, jobs: "Jobs", job_id: str, looking: "Looking") -> "JobStatus | None":
    """Until it is over. What its run says is seen where it runs on this machine."""
    heard: dict[str, int] = {}
    while True:
        known = jobs.wait(job_id, _LOOK_SECONDS)
        latest = known or jobs.latest(job_id)
        if latest is None:
            return None
        piece = project.logs.read_from(latest.run, heard.get(latest.run, 0))
        heard[latest.run] = heard.get(latest.run, 0) + len(piece)
        looking.hear(piece)
        if known:
            return known
        looking.look(latest.state)


def _settle(options: Options) -> None:
    """Put options of ours that stand after the skill where the others are, before anything looks at them."""
    parser: Parser = options.parser
    with open_project() as project:
        target = Request(name=split_name(options.skill or "")[0])
        options.args = take_ours(project, target, options, options.args)
    if bool(options.skill) == bool(options.task):
        parser.error(Message("either @SKILL or --task"))
    if not options.skill and options.args:
        parser.error(Message("{args!r} goes with no skill; quote the task as one word", args=options.args[0]))
    if options.skill and (options.to or options.session or options.model):
        parser.error(Message("--to, --session and --model go with --task"))


def _job(project: Project, options: Options) -> Job:
    asked = options.skill or ""
    skill, script = (asked, "") if asked.startswith(job_values.PREFIX) else split_name(asked)
    if script:
        raise InvalidArgs(Message("a job runs a skill, not one of its scripts"))
    if options.on_failure:
        refuse_inside_agents()  # a webhook leaves the sandbox, so only a person names one
    job = Job(
        skill=skill,
        name=options.name,
        args=tuple(options.args),
        timeout_seconds=options.timeout,
        retries=options.retries,
        queue=options.queue,
        on_failure=options.on_failure,
        lang=str(options.lang),
    )
    if options.task:
        task = AgentTask(options.task, to=options.to, session=options.session, model=options.model)
        job = project.jobs.for_task(job, task)
    if options.to:
        project.backend(options.to)  # a name that nobody has is told now
    return project.jobs.prepare(job)


def _show_result(known: "JobStatus | None", options: Options) -> NoReturn:
    """The result of the run itself, as `skillyard run` shows it."""
    if known is None:
        raise InvalidArgs(Message("the job is gone"))
    command.show_and_exit(from_json(json.dumps(known.result, default=dict)), options.style)


@takes("when", '"0 9 * * 1-5", @daily, "every 15m"', metavar="WHEN")
@takes("--timezone", "such as Europe/Berlin (this machine's)", metavar="TZ", default="")
@takes("--misfire", "ticks that nobody was there for (run-once)", choices=[*map(str, Misfire)])
@takes("--overlap", "a tick while the last run goes on (skip)", choices=[*map(str, Overlap)])
@takes("--jitter", "start up to so many seconds later", type=seconds, default=0.0, metavar="S")
@_takes_job
def _add(options: Options) -> Answer:
    _settle(options)
    misfire, overlap = job_values.policies(options.misfire, options.overlap)
    with _opened() as (project, jobs):
        job = _job(project, options)
        schedule = job_values.checked(
            Schedule(
                name=options.name or job.skill or "task",
                when=options.when,
                timezone=options.timezone or job_values.local_zone(),
                skill="" if options.task else job.skill,
                args=() if options.task else job.args,
                params=NOTHING if options.task else job.params,
                task=options.task,
                misfire=misfire,
                overlap=overlap,
                jitter_seconds=options.jitter,
                **{name: getattr(options, name) for name in ("to", "session", "model")},
                **{name: getattr(job, name) for name in ("retries", "timeout_seconds", "on_failure", "queue")},
            )
        )
        found, waiting, *_ = _recurring(project, jobs)
        if any(each.name == schedule.name for each in (*found, *waiting)):
            advice = Message("give another --name, or `skillyard jobs remove` that one first")
            raise InvalidArgs(Message("there is a schedule {name!r} already", name=schedule.name), advice=advice)
        line = TimetableEntry(schedule.name, schedule.as_mapping(), until=jobs.engine.now(), when=schedule.mark)
        jobs.engine.timetable.put(line)
    ticks = ", ".join(_next_of(schedule, line))
    summary = Message("scheduled: {name}, next: {next}", name=schedule.name, next=ticks)
    return Answer(summary, {"schedules": [_as_schedule(schedule, line)]})


def _recurring(
    project: Project, jobs: "Jobs"
) -> tuple[tuple[Schedule, ...], tuple[Schedule, ...], dict[str, TimetableEntry], dict[str, str]]:
    """Return the schedules that count, those that wait for trust, what is kept of them by name, and by role the
    first mistake of its file."""
    lines = {line.name: line for line in jobs.engine.timetable.list()}
    schedules = project.jobs.schedules(_tell)
    return schedules(tuple(lines.values())), schedules.untrusted(), lines, schedules.mistakes


def _schedules(_options: Options) -> Answer:
    with _opened() as (project, jobs):
        found, waiting, lines, mistakes = _recurring(project, jobs)
    data, rows = list[Json](), list[tuple[str, ...]]()
    for each in (*found, *waiting):
        line, waits = lines.get(each.name) or TimetableEntry(each.name), each in waiting
        ticks = _next_of(each, line)
        data.append({**_as_schedule(each, line), "trusted": not waits})
        shown = Message("waits for `skillyard trust`") if waits else ticks[0] if ticks else Message("paused")
        rows.append((each.name, f"{each.when} {each.timezone}", shown, each.source or "jobs add"))
    problems: list[Json] = [{"role": role, "msg": mistake} for role, mistake in mistakes.items()]
    count = len(rows)
    rows += ((role, Message("not read"), mistake, "") for role, mistake in mistakes.items())
    empty = Message('Nothing recurs here. `skillyard jobs add "@daily" @name` makes it so.')
    told: dict[str, Json] = {"schedules": data, **({"problems": problems} if problems else {})}
    summary = Message("{count} schedules", count=count)
    return Answer(summary, told, Table(("name", "when", "next", "from"), rows, empty))


@_NAME
def _run(options: Options) -> NoReturn:
    """Here and now; a worker takes over if we die."""
    with _opened() as (project, jobs):
        schedule = project.jobs.find_schedule(jobs, options.name, _tell)
        with Looking(schedule.name, options.style) as looking:
            worker = project.jobs.worker_loop(jobs, looking.tell, options.lang, looking.hear)
            job_id = jobs.start(worker.job_of(schedule), worker.attempts, partial(end_lost, options))
            while (known := jobs.wait(job_id, _LOOK_SECONDS)) is None:
                worker.watch()
                if latest := jobs.latest(job_id):
                    looking.look(latest.state)
    _show_result(known, options)


@_NAME
def _pause(options: Options) -> Answer:
    with _opened() as (project, jobs):
        schedule = project.jobs.find_schedule(jobs, options.name, _tell)
        line = project.jobs.pause(jobs, schedule, paused=options.paused)
    summary = Message("resumed: {name}", name=schedule.name)
    if options.paused:
        summary = Message("paused: {name}", name=schedule.name)
    return Answer(summary, {"schedules": [_as_schedule(schedule, line)]})


@_NAME
def _remove(options: Options) -> Answer:
    with _opened() as (project, jobs):
        schedule = project.jobs.find_schedule(jobs, options.name, _tell)
        if schedule.source:
            advice = Message("take it out of that file, or `skillyard jobs pause` it")
            why = Message("{name} stands in {source}", name=schedule.name, source=schedule.source)
            raise InvalidArgs(why, advice=advice)
        jobs.engine.timetable.drop(schedule.name)
    return Answer(Message("removed: {name}", name=schedule.name), {"schedules": []})


@takes("name", "only those of this name", metavar="NAME", nargs="?", default="")
@takes("--limit", "how many (20)", type=at_least(1), default=20)
def _history(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        found = project.history.list_jobs(1000 if options.name else options.limit)
    runs = [run for run in found if not options.name or run.job == options.name][: options.limit]
    rows = [(run.id, timestamp(run.started), run.state, run.job) for run in runs]
    table = Table(("id", "started", "state", "job"), rows, empty=Message("No job has run here yet."))
    return Answer(Message("{count} runs", count=len(runs)), {"runs": [as_run_data(run) for run in runs]}, table)


def _as_data(known: "JobStatus", changes: str = "") -> dict[str, Json]:
    job = known.job
    return {
        **({"changes": changes} if changes else {}),
        "id": known.id,
        "name": job.label,
        "state": known.state,
        "skill": job.skill,
        "task": job.task.text if job.task else "",
        **fields_of(job, "args", "params", "queue", "attempt", "retries", "schedule"),
        "created": timestamp(known.created),
        "run": known.run,
        "summary": known.result.get("summary"),
        "told": known.told or None,
    }


def _as_schedule(schedule: Schedule, line: TimetableEntry) -> dict[str, Json]:
    told = {**fields_of(schedule, "timezone", "enabled"), "paused": line.paused}
    return {**schedule.as_mapping(), **told, "next": list(_next_of(schedule, line))}


def _next_of(schedule: Schedule, line: TimetableEntry) -> tuple[str, ...]:
    if line.paused or not schedule.enabled:
        return ()
    ticks = job_values.preview(schedule.parsed, schedule.zone, max(time.time(), line.until))
    digits = "seconds" if any(tick % 60 for tick in ticks) else "minutes"
    moments = (datetime.fromtimestamp(tick, UTC).astimezone(schedule.zone) for tick in ticks)
    return tuple(moment.isoformat(timespec=digits) for moment in moments)


def _tell(text: str) -> None:
    write_lines([text], command.asked_lang())


class Looking(StatusLine):
    """What a job says and where it stands. `hear` may come from another thread; only `look` draws."""

    ticks = False

    def __init__(self, label: str, style: Style) -> None:
        super().__init__(label, style.lang)
        self._label, self._style, self._started = label, style, time.monotonic()
        self._rest, self._note, self._state = b"", "", ""
        self._said = ProgramLines()

    @property
    def _moves(self) -> bool:
        return not self._style.json and self._err.isatty()

    def tell(self, text: str) -> None:
        if not self._style.json:
            self.say(text)

    def hear(self, piece: bytes) -> None:
        """What the run says on stderr: its latest line on a terminal, every line elsewhere."""
        if self._moves:
            *lines, self._rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
            if said := [line for line in lines if line.strip()]:
                self._note = said[-1].decode("utf-8", "replace").strip()
        elif not self._style.json:
            self._said(piece)

    def look(self, state: str) -> None:
        if self._moves:
            seconds = time.monotonic() - self._started
            parts = (state, f"{seconds:.0f} s", bar(self._note, is_ascii=self._style.ascii), self._note)
            self("  ".join(filter(None, parts)))
        elif state != self._state and state in {"queued", "running"}:  # how it ended is the result's to say
            self.tell(f"{self._label}: {state}")
        self._state = state


def end_lost(options: Options) -> NoReturn:
    """Others may think that we are dead and do our job: it must end here, at once, and with nothing said of how."""
    lost = Message(
        "the database went away: the run here was stopped, and a worker does it again (`skillyard jobs` lists it)"
    )
    command.show_failure(RuntimeFailed(lost), options.style)
    sys.stdout.flush()
    os._exit(1)
