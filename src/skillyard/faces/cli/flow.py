"""Workflows: several skills, one after the other, that survive a crash.

A workflow is a file of steps: workflows/NAME.yaml, the project's workflow.yaml, or any file of the project by its path.
It is checked as a whole before anything starts. A step that ended is not repeated, whoever dies: a worker takes over
the rest, or `flow resume` does. Ctrl-C cancels.

examples:
  skillyard flow validate
  skillyard flow run weekly-report --input days=14
  skillyard flow run workflows/weekly-report.yaml --detach
  skillyard flow show 1a1e10
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

from skillyard.app.project import Project, open_project
from skillyard.catalog.flowfile import SCHEMA_FILE, WorkflowFile
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Severity
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.cli.findings import finding_lines, verdict_line
from skillyard.faces.cli.job_progress import end_lost
from skillyard.faces.command import (
    Answer,
    Options,
    Parser,
    add_output_options,
    answer_with,
    lang_of,
    show_and_exit,
    style_of,
)
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import Lines, Progress, Table, one_line
from skillyard.jobs.engine import Engine
from skillyard.jobs.flow import FlowProgress
from skillyard.jobs.jobs import Job, Jobs
from skillyard.jobs.schedule import PREFIX
from skillyard.jobs.worker_loop import Attempts
from skillyard.store.runs import Run

_LOOK_SECONDS = 0.2
_FINE, _PROBLEMS = Message("ok"), Message("problems")
_EMPTY = Message("No workflows here. Write one into workflows/NAME.yaml; `skillyard flow schema` says what goes in.")
_BEGUN = Message("flow {id}")
_CANCELLING = Message("cancelling")
_WHOLE = Message("flow {name}")
_INTERRUPTED = 130
_LISTED = Message("`skillyard flow` shows the latest, `skillyard jobs` more")
_OVER = Message(
    "`skillyard flow show <id>` tells how it ended; `skillyard jobs retry <id>` goes on with the step that failed"
)
#: Marks a flow that no worker was asked to do: whoever takes it over does it at once, not from a queue.
_HERE = "here"


def arguments(parser: Parser) -> None:
    parser.set_defaults(answer=partial(answer_with, _list))
    add_output_options(parser)
    commands = parser.add_subparsers(metavar="list | validate | run | show | resume | schema")

    def add(name: str, says: str, answer: Callable[[Options], NoReturn]) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=says, description=says)
        made.set_defaults(answer=answer)
        add_output_options(made)
        return made

    add("list", "the workflows of this project, and how each ended last", partial(answer_with, _list))
    validating = add(
        "validate", "check workflows: what is wrong, where, and what to do", partial(answer_with, _validate)
    )
    validating.add_argument("files", nargs="*", metavar="FILE", help="files, folders or names; all of this project")
    validating.add_argument("--strict", action="store_true", help="warnings fail too")
    running = add("run", "run a workflow and print one result", _run)
    running.add_argument("workflow", metavar="FILE|NAME", help="its file, the folder of a workflow.yaml, or its name")
    running.add_argument("--input", action="append", default=[], metavar="K=V", help="one of its inputs")
    running.add_argument("--detach", action="store_true", help="leave it to a worker, and print its id")
    for name, says, answer in (
        ("show", "each step of a flow: its state, time and run", partial(answer_with, _show)),
        ("resume", "go on with a flow whose process died", _resume),
    ):
        add(name, says, answer).add_argument("flow_id", metavar="ID", help="the id, or how it starts")
    commands.add_parser("schema", help="print the JSON Schema of workflow.yaml").set_defaults(answer=_schema)


def _list(options: Options) -> Answer:
    lang = lang_of(options)
    with open_project(ends_with_process=True) as yard:
        found = yard.jobs.workflows.list()
        latest = {run.skill: run for run in reversed(yard.runs(1000)) if run.kind == "flow"}
        rows = [(each, latest.get(f"{PREFIX}{each.name}")) for each in found]
        root = yard.root
    return Answer(
        summary=Message("{count} workflows"),
        words={"count": len(rows)},
        data={"workflows": [_as_data(each, root, run) for each, run in rows]},
        page=Table(
            columns=("name", "steps", "standing", "last", "description"),
            rows=[
                (
                    each.name,
                    str(len(each.steps)),
                    (_FINE if each.usable else _PROBLEMS).render(lang),
                    f"{run.state} {run.id[:14]}" if run else "",
                    each.description,
                )
                for each, run in rows
            ],
            empty=_EMPTY.render(lang),
        ),
    )


def _as_data(workflow: WorkflowFile, root: Path, run: Run | None = None) -> dict[str, Json]:
    return {
        "name": workflow.name,
        "path": os.path.relpath(workflow.path, root),
        "description": workflow.description,
        "inputs": [each._asdict() for each in workflow.inputs],
        "steps": [step.id for step in workflow.steps],
        "problems": sum(finding.severity is Severity.ERROR for finding in workflow.findings),
        "latest": {"id": run.id, "state": run.state} if run else None,
    }


def _validate(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        workflows = yard.jobs.workflows
        found = [workflows.find(name, Path.cwd()) for name in options.files] or list(workflows.list())
    lang = lang_of(options)
    worst = Severity.WARNING if options.strict else Severity.ERROR
    passed = [all(finding.severity.rank < worst.rank for finding in each.findings) for each in found]
    bad = passed.count(False)
    failed = (
        RuntimeFailed(Message("{bad} of {count} workflows have problems", bad=bad, count=len(passed))) if bad else None
    )
    return Answer(
        summary=Message("{type}{total} workflows checked: {bad} with problems"),
        words={"type": "RuntimeFailed: " if failed else "", "total": len(found), "bad": bad},
        data={
            **(failed.data() if failed else {}),
            "workflows": [
                {
                    "path": os.path.relpath(each.path),
                    "name": each.name,
                    "findings": [finding.as_dict() for finding in each.findings],
                }
                for each in found
            ],
        },
        page=Lines(
            [
                *(
                    line
                    for each, ok in zip(found, passed, strict=True)
                    for line in finding_lines(os.path.relpath(each.path), each.findings, lang, ok=ok)
                ),
                verdict_line(len(found), bad, lang),
            ]
        ),
        state=State.ERROR if failed else State.SUCCESS,
    )


def _run(options: Options) -> NoReturn:
    if options.detach:
        answer_with(_detach, options)
    with open_project() as yard:
        job = _job(yard, options)
        job = job._replace(flow={**job.flow, _HERE: True})
        with yard.jobs.open() as jobs:
            _follow(yard, jobs, options, lambda attempts: jobs.start(job, attempts, partial(end_lost, options)))


def _job(yard: Project, options: Options) -> Job:
    given = dict(map(_pair, options.input))
    workflows = yard.jobs.workflows
    workflow = workflows.find(options.workflow, Path.cwd())
    return workflows.make_job(workflow, given, Job(skill="", lang=str(style_of(options).lang)))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidArgs(Message("--input takes name=value, not {text!r}", text=text))
    return name, value


def _detach(options: Options) -> Answer:
    with open_project() as yard:
        job = _job(yard, options)
        with yard.jobs.open() as jobs:
            flow_id = jobs.enqueue(job)
    return Answer(
        summary=Message("queued: {name} ({id}); a worker runs it"),
        words={"name": job.label, "id": flow_id},
        data={"flows": [{"id": flow_id, "name": job.label, "state": "queued"}]},
    )


def _follow(yard: Project, jobs: Jobs, options: Options, begin: Callable[[Attempts], str]) -> NoReturn:
    """Have it done in this process, tell how far it is, and print what came of it. Ctrl-C cancels it."""
    interrupted = False
    style = style_of(options)
    with _Shown(style.lang) as shown:
        attempts = yard.jobs.attempts(watch=shown)
        flow_id = begin(attempts)
        shown.say(_BEGUN.render(style.lang, id=flow_id))
        known = None
        while known is None:
            try:
                known = jobs.wait(flow_id, _LOOK_SECONDS)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                shown.say(_CANCELLING.render(style.lang))
                jobs.engine.cancel(flow_id)
            if interrupted:
                attempts.underway.stop(flow_id)
    result = from_json(json.dumps(known.result, default=dict))
    if interrupted:
        from skillyard.faces import present

        present.show(result, style, sys.stdout)
        sys.stdout.flush()
        raise SystemExit(_INTERRUPTED)
    show_and_exit(result if style.json else pass_through(result, yard.root), style)


class _Shown:
    """How far it is, on stderr: a line for each step that ended, and on a terminal the items as they end."""

    def __init__(self, lang: Lang) -> None:
        self._bar: Progress | None = None
        self._lang = lang

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def __call__(self, told: FlowProgress) -> None:
        if told.state:
            self.say(told.line(self._lang))
        elif told.items[1]:
            self._bar = self._bar or Progress(f"{told.number}/{told.of} {told.step}")
            self._bar(*told.items)

    def say(self, text: str) -> None:
        self._clear()
        sys.stderr.write(f"{one_line(text)}\n")
        sys.stderr.flush()

    def _clear(self) -> None:
        if self._bar:
            self._bar.__exit__()
            self._bar = None


#: A lock on a database counts as free only after a while: whoever lost it must have ended first.
_TAKE_SECONDS = 6.0


def _taken_over(engine: Engine) -> bool:
    deadline = time.monotonic() + _TAKE_SECONDS
    while not engine.take_over():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _resume(options: Options) -> NoReturn:
    with open_project() as yard:
        run = _found(yard, options.flow_id)
        with yard.jobs.open() as jobs:
            engine = jobs.engine
            standing = engine.find(run.id)
            if standing is None or standing.stage.is_over:
                raise InvalidArgs(Message("{id} is over: {state}", id=run.id, state=run.state), advice=_OVER)

            def take(attempts: Attempts) -> str:
                engine.serve(attempts, {}, partial(end_lost, options))
                if not _taken_over(engine):
                    raise InvalidArgs(
                        Message("{id} is alive: whoever started it, or a worker, goes on with it", id=run.id)
                    )
                if not Job.from_body(standing.ticket.body).flow.get(_HERE):
                    raise InvalidArgs(
                        Message("{id} is queued again: the next `skillyard worker` goes on with it", id=run.id)
                    )
                return run.id

            _follow(yard, jobs, options, take)


def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as yard:
        flow = _found(yard, options.flow_id)
        runs = [yard.find_run(run.id) or run for run in yard.history.list_of(flow.id)]
        log = yard.logs.read(flow.id)
    lang = lang_of(options)
    steps, summary = list(_steps(flow, runs)), str(flow.result.get("summary", ""))
    data: dict[str, Json] = {
        "id": flow.id,
        "name": flow.job,
        "state": flow.state,
        "seconds": flow.seconds,
        "inputs": flow.request.get("params"),
        "steps": steps,
        "result": flow.result,
        "log": log,
    }
    return Answer(
        summary=Message("{name}: {state}"),
        words={"name": flow.job, "state": flow.state},
        data={"flows": [data]},
        page=Table(
            columns=("step", "state", "seconds", "run", "summary"),
            rows=[
                _cells({**data, "step": _WHOLE.render(lang, name=flow.job), "run": flow.id, "summary": summary}),
                *map(_cells, steps),
            ],
        ),
    )


def _steps(flow: Run, runs: Sequence[Run]) -> Iterator[dict[str, Json]]:
    """Every run of each step, and the steps that have not started."""
    told: Any = flow.request.get("job")
    names = told.get("flow", {}).get("steps", []) if isinstance(told, dict) else []
    for number, name in enumerate(names, 1):
        begun = [run for run in runs if _number(run.id.removeprefix(f"{flow.id}.")) == str(number)]
        for run in begun:
            job: Any = run.request.get("job")
            yield {
                "step": job.get("step", name),
                "state": run.state,
                "seconds": run.seconds,
                "run": run.id,
                "summary": run.result.get("summary", ""),
            }
        if not begun:
            yield _without_run(name, flow)


def _without_run(name: str, flow: Run) -> dict[str, Json]:
    """A step that has not started, or whose runs are forgotten already: the flow's own result still tells of it."""
    data: Any = flow.result.get("data") or {}
    ended: Any = next((step for step in data.get("steps", []) if step["id"] == name), {})
    return {
        "step": name,
        "state": ended.get("state", "waiting"),
        "seconds": ended.get("time"),
        "run": ended.get("run", ""),
        "summary": ended.get("summary", ""),
    }


def _cells(step: dict[str, Json]) -> tuple[str, ...]:
    return (str(step["step"]), str(step["state"]), _seconds(step["seconds"]), str(step["run"]), str(step["summary"]))


def _number(rest: str) -> str:
    """`3.17-2` is the second attempt of item 17 of step 3."""
    return rest.partition("-")[0].partition(".")[0]


def _seconds(seconds: Json) -> str:
    return f"{seconds:.3f}" if isinstance(seconds, float) else ""


def _found(yard: Project, flow_id: str) -> Run:
    run = yard.find_run(flow_id)
    if run is None:  # the runs of its steps start like the flow's own
        begun = [each for each in yard.runs(1000) if each.kind == "flow" and each.id.startswith(flow_id)]
        run = begun[0] if len(begun) == 1 and flow_id else None
    if run is None or run.kind != "flow":
        raise InvalidArgs(
            Message("no flow {flow_id!r} here, or more than one starts so", flow_id=flow_id), advice=_LISTED
        )
    return run


def _schema(options: Options) -> NoReturn:
    del options
    sys.stdout.write(SCHEMA_FILE.read_text("utf-8"))
    raise SystemExit(0)
