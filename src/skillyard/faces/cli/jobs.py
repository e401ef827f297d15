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
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn

from skillyard.app.project import Project, open_project
from skillyard.catalog.cron import parse_when, parse_zone, preview
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message, render
from skillyard.core.request import Request
from skillyard.core.values import NOTHING, Json
from skillyard.faces.cli.job_progress import Looking, end_lost
from skillyard.faces.cli.runs import as_lines
from skillyard.faces.cli.split_options import take_ours
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    add_output_options,
    answer_with,
    asked_lang,
    lang_of,
    not_negative,
    positive,
    seconds,
    show_and_exit,
    style_of,
)
from skillyard.faces.present import Lines, Table, one_line
from skillyard.faces.skill_data import as_run_data
from skillyard.jobs.agent_task import AgentTask
from skillyard.jobs.engine import TimetableEntry
from skillyard.jobs.jobs import QUEUE, Job, Jobs, JobStatus
from skillyard.jobs.schedule import PREFIX, Misfire, Overlap, Schedule, as_choice, checked, local_zone, usual_overlap
from skillyard.scripts.prompt_grammar import split_name
from skillyard.trust.grant_rules import refuse_inside_agents

_FAILED = frozenset({"error", "timeout"})
_NO_JOBS = Message("No jobs here yet. `skillyard jobs enqueue @name` makes one.")
_NO_SCHEDULES = Message('Nothing recurs here. `skillyard jobs add "@daily" @name` makes it so.')
_NO_HISTORY = Message("No job has run here yet.")
_WAITING = Message("{id} waits for a worker: `skillyard worker` in this project")
_WAITS = Message("waits for `skillyard trust`")
_PAUSED = Message("paused")
_ANOTHER_NAME = Message("give another --name, or `skillyard jobs remove` that one first")
_IN_A_FILE = Message("take it out of that file, or `skillyard jobs pause` it")
_LOOK_SECONDS = 0.2


def arguments(parser: Parser) -> None:
    parser.set_defaults(answer=partial(answer_with, _list))
    _add_list_options(parser)
    add_output_options(parser)
    commands = parser.add_subparsers(metavar="list | show | add | run | enqueue | cancel | retry | …")

    def add(name: str, says: str, ask: Callable[[Options], Answer]) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=says, description=says)
        made.set_defaults(answer=partial(answer_with, ask))
        add_output_options(made)
        return made

    _add_list_options(add("list", "the latest jobs, finished ones too", _list))
    for name, says, ask in (
        ("show", "everything that is known of a job, with its log", _show),
        ("cancel", "take it from the queue, or stop it", _cancel),
        ("retry", "one more attempt of a job that failed, as its skill is now", _retry),
    ):
        made = add(name, says, ask)
        made.add_argument("job_id", metavar="ID", help="the id, or how it starts")
        if name == "retry":
            made.add_argument("--from-start", action="store_true", help="a workflow: not from the step that failed")
    _add_enqueue(commands)
    _add_schedule(commands)
    add("schedules", "what recurs here, and when it comes next", _schedules)
    running = add("run", "run a schedule's skill now, and print its result", _list)
    running.set_defaults(answer=_run)
    for made in (
        running,
        add("pause", "let a schedule rest", partial(_pause, paused=True)),
        add("resume", "go on with a schedule, from now", partial(_pause, paused=False)),
        add("remove", "forget a schedule of `jobs add`", _remove),
    ):
        made.add_argument("name", metavar="NAME", help="the schedule's name")
    past = add("history", "the attempts of jobs, the latest first", _history)
    past.add_argument("name", metavar="NAME", nargs="?", default="", help="only those of this name")
    past.add_argument("--limit", type=positive, default=20, help="how many (20)")


def _add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=positive, default=20, help="how many, the latest first (20)")
    parser.add_argument("--failed", action="store_true", help="only those that failed for good")


def _add_enqueue(commands: "argparse._SubParsersAction[Parser]") -> None:
    says = "have a worker run a skill or a task"
    parser = commands.add_parser("enqueue", help=says, description=f"{says.capitalize()}.")
    _add_what(parser)
    _add_job_options(parser)
    parser.add_argument("--wait", action="store_true", help="until it is done, and print its result")
    parser.add_argument("--delay", type=seconds, default=0.0, metavar="S", help="seconds before it may start")
    add_output_options(parser)
    parser.set_defaults(answer=lambda options: _enqueue(options, parser))


def _add_schedule(commands: "argparse._SubParsersAction[Parser]") -> None:
    says = "schedule a skill or a task"
    parser = commands.add_parser("add", help=says, description=f"{says.capitalize()}, from now on.")
    parser.add_argument("when", metavar="WHEN", help='"0 9 * * 1-5", @daily, "every 15m"')
    _add_what(parser)
    _add_job_options(parser)
    parser.add_argument("--timezone", metavar="TZ", default="", help="such as Europe/Berlin (this machine's)")
    parser.add_argument("--misfire", choices=[*map(str, Misfire)], help="ticks that nobody was there for (run-once)")
    parser.add_argument("--overlap", choices=[*map(str, Overlap)], help="a tick while the last run goes on (skip)")
    parser.add_argument("--jitter", type=seconds, default=0.0, metavar="S", help="start up to so many seconds later")
    add_output_options(parser)
    parser.set_defaults(answer=lambda options: _add(options, parser))


def _add_what(parser: Parser) -> None:
    parser.add_argument("skill", metavar="@SKILL", nargs="?", help="@name, @role/name, or flow:NAME for a workflow")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its params: value, --key value or key=value")
    parser.add_argument("--task", default="", metavar="TEXT", help="a Task prompt, or words for a backend agent")
    parser.add_argument("--to", default="", metavar="BACKEND", help="for those words: which agent")
    parser.add_argument("--session", default="", metavar="ID", help="for those words: go on with this conversation")
    parser.add_argument("--model", default="", metavar="M", help="for those words: the agent's model")


def _add_job_options(parser: Parser) -> None:
    parser.add_argument("--name", default="", help="what to call it (the skill's name, or `task`)")
    parser.add_argument(
        "--retries", type=not_negative, default=0, metavar="N", help="more attempts after it failed (0)"
    )
    parser.add_argument("--timeout", type=seconds, metavar="S", help="seconds that a run may take")
    parser.add_argument("--queue", default=QUEUE, help=f"which queue ({QUEUE})")
    parser.add_argument(
        "--on-failure", default="", metavar="TO", help="a command or webhook to tell of the last failure"
    )


@contextmanager
def _opened() -> Iterator[tuple[Project, Jobs]]:
    with open_project() as project, project.jobs.open() as jobs:
        yield project, jobs


def _list(options: Options) -> Answer:
    lang = style_of(options).lang
    with _opened() as (_, jobs):
        found = jobs.list(1000 if options.failed else options.limit)
    if options.failed:
        found = tuple(known for known in found if known.state in _FAILED)[: options.limit]
    return Answer(
        summary=Message("{count} jobs"),
        words={"count": len(found)},
        data={"jobs": [_as_data(known) for known in found]},
        page=Table(
            columns=("id", "created", "state", "attempt", "name", "summary"),
            rows=[
                (
                    known.id[:14],
                    _stamp(known.created),
                    known.state,
                    f"{known.job.attempt}/{max(known.job.retries + 1, known.job.attempt)}",
                    known.job.label,
                    str(known.result.get("summary", "")),
                )
                for known in found
            ],
            empty=_NO_JOBS.render(lang),
        ),
    )


def _show(options: Options) -> Answer:
    with _opened() as (yard, jobs):
        known = jobs.find(options.job_id)
        run, log = yard.find_run(known.run), yard.logs.read(known.run)
    lang = lang_of(options)
    data = {**_as_data(known), "result": known.result, "log": log}
    told = {key: value for key, value in data.items() if value not in ("", None, [], {})}
    return Answer(
        summary=Message("job {id}"),
        words={"id": known.id},
        data={"jobs": [data], "runs": [as_run_data(run)] if run else []},
        page=Lines(list(as_lines(told, lang))),
    )


def _cancel(options: Options) -> Answer:
    with _opened() as (_, jobs):
        known = jobs.cancel(options.job_id)
    return _about(known, Message("cancelled: {name} ({id})"))


def _retry(options: Options) -> Answer:
    with _opened() as (yard, jobs):
        yard.jobs.refuse_loops(jobs.find(options.job_id).job)
        known = jobs.retry(options.job_id, from_start=options.from_start)
    return _about(known, Message("queued again: {name} ({id})"))


def _about(known: JobStatus, says: Message) -> Answer:
    return Answer(says, {"name": known.job.label, "id": known.id}, {"jobs": [_as_data(known)]})


def _enqueue(options: Options, parser: Parser) -> NoReturn:
    _settle(options, parser)
    if not options.wait:
        answer_with(_queued, options)
    with _opened() as (yard, jobs):
        job = _job(yard, options)
        job_id = jobs.enqueue(job, delay_seconds=options.delay)
        with Looking(job.label, style_of(options)) as looking:
            looking.tell(_WAITING.render(lang_of(options), id=job_id))
            known = _look_on(yard, jobs, job_id, looking)
    _show_result(known, options)


def _look_on(yard: Project, jobs: Jobs, job_id: str, looking: Looking) -> JobStatus | None:
    """Until it is over. What its run says is seen where it runs on this machine."""
    heard: dict[str, int] = {}
    while True:
        known = jobs.wait(job_id, _LOOK_SECONDS)
        latest = known or jobs.latest(job_id)
        if latest is None:
            return None
        piece = yard.logs.read_from(latest.run, heard.get(latest.run, 0))
        heard[latest.run] = heard.get(latest.run, 0) + len(piece)
        looking.hear(piece)
        if known:
            return known
        looking.look(latest.state)


def _settle(options: Options, parser: Parser) -> None:
    """Put options of ours that stand after the skill where the others are, before anything looks at them."""
    with open_project() as yard:
        target = Request(name=split_name(options.skill or "")[0])
        options.args = take_ours(yard, target, options, parser, options.args)
    if bool(options.skill) == bool(options.task):
        parser.error(Message("either @SKILL or --task"))
    if not options.skill and options.args:
        parser.error(Message("{args!r} goes with no skill; quote the task as one word", args=options.args[0]))
    if options.skill and (options.to or options.session or options.model):
        parser.error(Message("--to, --session and --model go with --task"))


def _queued(options: Options) -> Answer:
    with _opened() as (yard, jobs):
        known = jobs.find(jobs.enqueue(_job(yard, options), delay_seconds=options.delay))
    return _about(known, Message("queued: {name} ({id})"))


def _job(yard: Project, options: Options) -> Job:
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
        lang=str(style_of(options).lang),
    )
    if options.task:
        task = AgentTask(options.task, to=options.to, session=options.session, model=options.model)
        job = yard.jobs.for_task(job, task)
    if options.to:
        yard.backend(options.to)  # a name that nobody has is told now
    return yard.jobs.prepare(job)


def _show_result(known: JobStatus | None, options: Options) -> NoReturn:
    """The result of the run itself, as `skillyard run` shows it."""
    if known is None:
        raise InvalidArgs(Message("the job is gone"))
    show_and_exit(from_json(json.dumps(known.result, default=dict)), style_of(options))


def _add(options: Options, parser: Parser) -> NoReturn:
    _settle(options, parser)
    answer_with(_added, options)


def _added(options: Options) -> Answer:
    misfire = as_choice(Misfire, options.misfire, Misfire.RUN_ONCE)
    with _opened() as (yard, jobs):
        job = _job(yard, options)
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
        lines = jobs.timetable.list()
        if any(found.name == schedule.name for found in _recurring(yard, lines)):
            raise InvalidArgs(Message("there is a schedule {name!r} already", name=schedule.name), advice=_ANOTHER_NAME)
        line = TimetableEntry(schedule.name, schedule.as_mapping(), until=jobs.engine.now(), when=schedule.mark)
        jobs.timetable.put(line)
    told = _as_schedule(schedule, line)
    return Answer(
        summary=Message("scheduled: {name}, next: {next}"),
        words={"name": schedule.name, "next": ", ".join(_next_of(schedule, line))},
        data={"schedules": [told]},
    )


def _recurring(yard: Project, lines: Sequence[TimetableEntry]) -> tuple[Schedule, ...]:
    found = yard.jobs.schedules(_tell)
    return (*found(lines), *found.untrusted())


def _schedules(options: Options) -> Answer:
    lang = style_of(options).lang
    with _opened() as (yard, jobs):
        lines = {line.name: line for line in jobs.timetable.list()}
        schedules = yard.jobs.schedules(_tell)
        found = schedules(tuple(lines.values()))
        waiting = schedules.untrusted()
    rows = [(each, lines.get(each.name) or TimetableEntry(each.name), each in waiting) for each in (*found, *waiting)]
    data = [{**_as_schedule(each, line), "trusted": not waits} for each, line, waits in rows]
    return Answer(
        summary=Message("{count} schedules"),
        words={"count": len(rows)},
        data={"schedules": data},
        page=Table(
            columns=("name", "when", "next", "from"),
            rows=[
                (
                    each.name,
                    f"{each.when} {each.timezone}",
                    _WAITS.render(lang) if waits else ", ".join(_next_of(each, line)[:1]) or _PAUSED.render(lang),
                    each.source or "jobs add",
                )
                for each, line, waits in rows
            ],
            empty=_NO_SCHEDULES.render(lang),
        ),
    )


def _run(options: Options) -> NoReturn:
    """Here and now; a worker takes over if we die."""
    with _opened() as (yard, jobs):
        schedule = yard.jobs.find_schedule(jobs, options.name, _tell)
        style = style_of(options)
        with Looking(schedule.name, style) as looking:
            worker = yard.jobs.worker_loop(jobs, looking.tell, style.lang, looking.hear)
            job_id = jobs.start(worker.job_of(schedule), worker.attempts, partial(end_lost, options))
            while (known := jobs.wait(job_id, _LOOK_SECONDS)) is None:
                worker.watch()
                if latest := jobs.latest(job_id):
                    looking.look(latest.state)
    _show_result(known, options)


def _pause(options: Options, *, paused: bool) -> Answer:
    with _opened() as (yard, jobs):
        schedule = yard.jobs.find_schedule(jobs, options.name, _tell)
        line = yard.jobs.pause(jobs, schedule, paused=paused)
    says = Message("paused: {name}") if paused else Message("resumed: {name}")
    return Answer(says, {"name": schedule.name}, {"schedules": [_as_schedule(schedule, line)]})


def _remove(options: Options) -> Answer:
    with _opened() as (yard, jobs):
        schedule = yard.jobs.find_schedule(jobs, options.name, _tell)
        if schedule.source:
            raise InvalidArgs(
                Message("{name} stands in {source}", name=schedule.name, source=schedule.source), advice=_IN_A_FILE
            )
        jobs.timetable.drop(schedule.name)
    return Answer(Message("removed: {name}"), {"name": schedule.name}, {"schedules": []})


def _history(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        found = yard.history.list_jobs(1000 if options.name else options.limit)
    runs = [run for run in found if not options.name or run.job == options.name][: options.limit]
    return Answer(
        summary=Message("{count} runs"),
        words={"count": len(runs)},
        data={"runs": [as_run_data(run) for run in runs]},
        page=Table(
            columns=("id", "started", "state", "job"),
            rows=[(run.id, _stamp(run.started), run.state, run.job) for run in runs],
            empty=_NO_HISTORY.render(lang_of(options)),
        ),
    )


def _as_data(known: JobStatus) -> dict[str, Json]:
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
        "created": _stamp(known.created),
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
    zone = parse_zone(schedule.timezone)
    moment = max(time.time(), line.until)
    ticks = preview(parse_when(schedule.when), zone, moment)
    digits = "seconds" if any(tick % 60 for tick in ticks) else "minutes"
    return tuple(datetime.fromtimestamp(tick, UTC).astimezone(zone).isoformat(timespec=digits) for tick in ticks)


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _tell(text: str) -> None:
    sys.stderr.write(f"{one_line(render(text, asked_lang()))}\n")
