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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from skillyard.app.project import Project, open_project
from skillyard.catalog.cron import preview
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.result import Request, split_name
from skillyard.core.values import NOTHING, Json
from skillyard.faces.cli.job_progress import Looking, end_lost
from skillyard.faces.cli.run import take_ours
from skillyard.faces.cli.runs import as_lines
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    add_commands,
    asked_lang,
    at_least,
    lang_of,
    seconds,
    show_and_exit,
    style_of,
)
from skillyard.faces.present import Lines, Table, write_lines
from skillyard.faces.skill_data import as_run_data, timestamp
from skillyard.jobs.agent_task import AgentTask
from skillyard.jobs.engine import TimetableEntry
from skillyard.jobs.jobs import QUEUE, Job
from skillyard.jobs.schedule import PREFIX, Misfire, Overlap, Schedule, as_choice, checked, local_zone, usual_overlap
from skillyard.trust.grant_rules import refuse_inside_agents

if TYPE_CHECKING:
    from skillyard.jobs.jobs import Jobs, JobStatus

_LOOK_SECONDS = 0.2


def arguments(parser: Parser) -> None:
    add = add_commands(parser, "list | show | add | run | enqueue | cancel | retry | …")
    for each in (parser, add("list", "the latest jobs, finished ones too", answer)):
        each.add_argument("--limit", type=at_least(1), default=20, help="how many, the latest first (20)")
        each.add_argument("--failed", action="store_true", help="only those that failed for good")
    showing = add("show", "everything that is known of a job, with its log", _show)
    cancelling = add("cancel", "take it from the queue, or stop it", _cancel)
    retrying = add("retry", "one more attempt of a job that failed, as its skill is now", _retry)
    for each in (showing, cancelling, retrying):
        each.add_argument("job_id", metavar="ID", help="the id, or how it starts")
    retrying.add_argument("--from-start", action="store_true", help="a workflow: not from the step that failed")
    queueing = add("enqueue", "have a worker run a skill or a task", _enqueue)
    queueing.add_argument("--wait", action="store_true", help="until it is done, and print its result")
    queueing.add_argument("--delay", type=seconds, default=0.0, metavar="S", help="seconds before it may start")
    _add_job_options(queueing)
    scheduling = add("add", "schedule a skill or a task", _add)
    scheduling.add_argument("when", metavar="WHEN", help='"0 9 * * 1-5", @daily, "every 15m"')
    scheduling.add_argument("--timezone", metavar="TZ", default="", help="such as Europe/Berlin (this machine's)")
    scheduling.add_argument(
        "--misfire", choices=[*map(str, Misfire)], help="ticks that nobody was there for (run-once)"
    )
    scheduling.add_argument("--overlap", choices=[*map(str, Overlap)], help="a tick while the last run goes on (skip)")
    scheduling.add_argument(
        "--jitter", type=seconds, default=0.0, metavar="S", help="start up to so many seconds later"
    )
    _add_job_options(scheduling)
    add("schedules", "what recurs here, and when it comes next", _schedules)
    for each in (
        add("run", "run a schedule's skill now, and print its result", _run),
        add("pause", "let a schedule rest", partial(_pause, paused=True)),
        add("resume", "go on with a schedule, from now", partial(_pause, paused=False)),
        add("remove", "forget a schedule of `jobs add`", _remove),
    ):
        each.add_argument("name", metavar="NAME", help="the schedule's name")
    past = add("history", "the attempts of jobs, the latest first", _history)
    past.add_argument("name", metavar="NAME", nargs="?", default="", help="only those of this name")
    past.add_argument("--limit", type=at_least(1), default=20, help="how many (20)")


def _add_job_options(parser: Parser) -> None:
    parser.add_argument("skill", metavar="@SKILL", nargs="?", help="@name, @role/name, or flow:NAME for a workflow")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its params: value, --key value or key=value")
    parser.add_argument("--task", default="", metavar="TEXT", help="a Task prompt, or words for a backend agent")
    parser.add_argument("--to", default="", metavar="BACKEND", help="for those words: which agent")
    parser.add_argument("--session", default="", metavar="ID", help="for those words: go on with this conversation")
    parser.add_argument("--model", default="", metavar="M", help="for those words: the agent's model")
    parser.add_argument("--name", default="", help="what to call it (the skill's name, or `task`)")
    parser.add_argument("--retries", type=at_least(0), default=0, metavar="N", help="more attempts after it failed (0)")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="seconds that a run may take")
    parser.add_argument("--queue", default=QUEUE, help=f"which queue ({QUEUE})")
    parser.add_argument(
        "--on-failure", default="", metavar="TO", help="a command or webhook to tell of the last failure"
    )


@contextmanager
def _opened() -> "Iterator[tuple[Project, Jobs]]":
    with open_project() as project, project.jobs.open() as jobs:
        yield project, jobs


def answer(options: Options) -> Answer:
    with _opened() as (_, jobs):
        found = jobs.list(1000 if options.failed else options.limit)
    if options.failed:
        found = tuple(known for known in found if known.state in {"error", "timeout"})[: options.limit]
    rows = [
        (
            known.id[:14],
            timestamp(known.created),
            known.state,
            f"{known.job.attempt}/{max(known.job.retries + 1, known.job.attempt)}",
            known.job.label,
            str(known.result.get("summary", "")),
        )
        for known in found
    ]
    columns = ("id", "created", "state", "attempt", "name", "summary")
    empty = Message("No jobs here yet. `skillyard jobs enqueue @name` makes one.")
    data: dict[str, Json] = {"jobs": [_as_data(known) for known in found]}
    return Answer(Message("{count} jobs", count=len(found)), data, Table(columns, rows, empty))


def _show(options: Options) -> Answer:
    with _opened() as (project, jobs):
        known = jobs.find(options.job_id)
        run, log = project.find_run(known.run), project.logs.read(known.run)
    data = {**_as_data(known), "result": known.result, "log": log}
    told = {key: value for key, value in data.items() if value not in ("", None, [], {})}
    return Answer(
        Message("job {id}", id=known.id),
        {"jobs": [data], "runs": [as_run_data(run)] if run else []},
        Lines(list(as_lines(told, lang_of(options)))),
    )


def _cancel(options: Options) -> Answer:
    with _opened() as (_, jobs):
        known = jobs.cancel(options.job_id)
    return _told(known, Message("cancelled: {name} ({id})", name=known.job.label, id=known.id))


def _retry(options: Options) -> Answer:
    with _opened() as (project, jobs):
        project.jobs.refuse_loops(jobs.find(options.job_id).job)
        known = jobs.retry(options.job_id, from_start=options.from_start)
    return _told(known, Message("queued again: {name} ({id})", name=known.job.label, id=known.id))


def _told(known: "JobStatus", summary: Message) -> Answer:
    return Answer(summary, {"jobs": [_as_data(known)]})


def _enqueue(options: Options) -> Answer:
    _settle(options)
    with _opened() as (project, jobs):
        job = _job(project, options)
        job_id = jobs.enqueue(job, delay_seconds=options.delay)
        if options.wait:
            with Looking(job.label, style_of(options)) as looking:
                waiting = Message("{id} waits for a worker: `skillyard worker` in this project", id=job_id)
                looking.tell(waiting.render(lang_of(options)))
                ended = _look_on(project, jobs, job_id, looking)
            _show_result(ended, options)
        known = jobs.find(job_id)
    return _told(known, Message("queued: {name} ({id})", name=known.job.label, id=known.id))


def _look_on(project: Project, jobs: "Jobs", job_id: str, looking: Looking) -> "JobStatus | None":
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
    skill, script = (asked, "") if asked.startswith(PREFIX) else split_name(asked)
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
        lang=str(lang_of(options)),
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
    show_and_exit(from_json(json.dumps(known.result, default=dict)), style_of(options))


def _add(options: Options) -> Answer:
    _settle(options)
    misfire = as_choice(Misfire, options.misfire, Misfire.RUN_ONCE)
    with _opened() as (project, jobs):
        job = _job(project, options)
        schedule = checked(
            Schedule(
                name=options.name or job.skill or "task",
                when=options.when,
                timezone=options.timezone or local_zone(),
                skill="" if options.task else job.skill,
                args=() if options.task else job.args,
                params=NOTHING if options.task else job.params,
                task=options.task,
                to=options.to,
                session=options.session,
                model=options.model,
                retries=options.retries,
                timeout_seconds=options.timeout,
                misfire=misfire,
                overlap=as_choice(Overlap, options.overlap, usual_overlap(misfire)),
                jitter_seconds=options.jitter,
                on_failure=options.on_failure,
                queue=options.queue,
            )
        )
        found, waiting, _ = _recurring(project, jobs)
        if any(each.name == schedule.name for each in (*found, *waiting)):
            advice = Message("give another --name, or `skillyard jobs remove` that one first")
            raise InvalidArgs(Message("there is a schedule {name!r} already", name=schedule.name), advice=advice)
        line = TimetableEntry(schedule.name, schedule.as_mapping(), until=jobs.engine.now(), when=schedule.mark)
        jobs.timetable.put(line)
    ticks = ", ".join(_next_of(schedule, line))
    summary = Message("scheduled: {name}, next: {next}", name=schedule.name, next=ticks)
    return Answer(summary, {"schedules": [_as_schedule(schedule, line)]})


def _recurring(
    project: Project, jobs: "Jobs"
) -> tuple[tuple[Schedule, ...], tuple[Schedule, ...], dict[str, TimetableEntry]]:
    """Return the schedules that count, those that wait for trust, and what is kept of them by name."""
    lines = {line.name: line for line in jobs.timetable.list()}
    schedules = project.jobs.schedules(_tell)
    return schedules(tuple(lines.values())), schedules.untrusted(), lines


def _schedules(options: Options) -> Answer:
    del options
    with _opened() as (project, jobs):
        found, waiting, lines = _recurring(project, jobs)
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for each in (*found, *waiting):
        line, waits = lines.get(each.name) or TimetableEntry(each.name), each in waiting
        ticks = _next_of(each, line)
        data.append({**_as_schedule(each, line), "trusted": not waits})
        shown = Message("waits for `skillyard trust`") if waits else ticks[0] if ticks else Message("paused")
        rows.append((each.name, f"{each.when} {each.timezone}", shown, each.source or "jobs add"))
    empty = Message('Nothing recurs here. `skillyard jobs add "@daily" @name` makes it so.')
    summary = Message("{count} schedules", count=len(rows))
    return Answer(summary, {"schedules": data}, Table(("name", "when", "next", "from"), rows, empty))


def _run(options: Options) -> NoReturn:
    """Here and now; a worker takes over if we die."""
    with _opened() as (project, jobs):
        schedule = project.jobs.find_schedule(jobs, options.name, _tell)
        style = style_of(options)
        with Looking(schedule.name, style) as looking:
            worker = project.jobs.worker_loop(jobs, looking.tell, style.lang, looking.hear)
            job_id = jobs.start(worker.job_of(schedule), worker.attempts, partial(end_lost, options))
            while (known := jobs.wait(job_id, _LOOK_SECONDS)) is None:
                worker.watch()
                if latest := jobs.latest(job_id):
                    looking.look(latest.state)
    _show_result(known, options)


def _pause(options: Options, *, paused: bool) -> Answer:
    with _opened() as (project, jobs):
        schedule = project.jobs.find_schedule(jobs, options.name, _tell)
        line = project.jobs.pause(jobs, schedule, paused=paused)
    name = schedule.name
    summary = Message("paused: {name}", name=name) if paused else Message("resumed: {name}", name=name)
    return Answer(summary, {"schedules": [_as_schedule(schedule, line)]})


def _remove(options: Options) -> Answer:
    with _opened() as (project, jobs):
        schedule = project.jobs.find_schedule(jobs, options.name, _tell)
        if schedule.source:
            advice = Message("take it out of that file, or `skillyard jobs pause` it")
            why = Message("{name} stands in {source}", name=schedule.name, source=schedule.source)
            raise InvalidArgs(why, advice=advice)
        jobs.timetable.drop(schedule.name)
    return Answer(Message("removed: {name}", name=schedule.name), {"schedules": []})


def _history(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        found = project.history.list_jobs(1000 if options.name else options.limit)
    runs = [run for run in found if not options.name or run.job == options.name][: options.limit]
    rows = [(run.id, timestamp(run.started), run.state, run.job) for run in runs]
    table = Table(("id", "started", "state", "job"), rows, empty=Message("No job has run here yet."))
    return Answer(Message("{count} runs", count=len(runs)), {"runs": [as_run_data(run) for run in runs]}, table)


def _as_data(known: "JobStatus") -> dict[str, Json]:
    job = known.job
    return {
        "id": known.id,
        "name": job.label,
        "state": known.state,
        "skill": job.skill,
        "task": AgentTask.from_mapping(job.task).text,
        "args": list(job.args),
        "params": dict(job.params),
        "queue": job.queue,
        "attempt": job.attempt,
        "retries": job.retries,
        "schedule": job.schedule,
        "created": timestamp(known.created),
        "run": known.run,
        "summary": known.result.get("summary"),
        "told": known.told or None,
    }


def _as_schedule(schedule: Schedule, line: TimetableEntry) -> dict[str, Json]:
    return {
        **schedule.as_mapping(),
        "timezone": schedule.timezone,
        "paused": line.paused,
        "enabled": schedule.enabled,
        "next": list(_next_of(schedule, line)),
    }


def _next_of(schedule: Schedule, line: TimetableEntry) -> tuple[str, ...]:
    if line.paused or not schedule.enabled:
        return ()
    ticks = preview(schedule.parsed, schedule.zone, max(time.time(), line.until))
    digits = "seconds" if any(tick % 60 for tick in ticks) else "minutes"
    moments = (datetime.fromtimestamp(tick, UTC).astimezone(schedule.zone) for tick in ticks)
    return tuple(moment.isoformat(timespec=digits) for moment in moments)


def _tell(text: str) -> None:
    write_lines([text], asked_lang())
