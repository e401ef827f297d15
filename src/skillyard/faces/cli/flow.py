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

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from skillyard.app.project import Project, open_project
from skillyard.catalog.flowfile import SCHEMA_FILE
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Severity
from skillyard.core.values import Json
from skillyard.faces import present
from skillyard.faces.cli.job_progress import end_lost
from skillyard.faces.cli.validate import check_findings
from skillyard.faces.command import Answer, Options, Parser, add_commands, lang_of, show_and_exit, split_pairs, style_of
from skillyard.faces.passthrough import pass_through
from skillyard.faces.present import Exact, Lines, Progress, Table, write_lines
from skillyard.jobs.jobs import Job
from skillyard.jobs.schedule import PREFIX

if TYPE_CHECKING:
    from skillyard.jobs.flow import FlowProgress
    from skillyard.jobs.jobs import Jobs
    from skillyard.jobs.worker_loop import Attempts
    from skillyard.store.runs import Run

_LOOK_SECONDS = 0.2
#: A lock on a database counts as free only after a while: whoever lost it must have ended first.
_TAKE_SECONDS = 6.0
_INTERRUPTED = 130
#: Marks a flow that no worker was asked to do: whoever takes it over does it at once, not from a queue.
_HERE = "here"


def arguments(parser: Parser) -> None:
    add = add_commands(parser, "list | validate | run | show | resume | schema")
    add("list", "the workflows of this project, and how each ended last", answer)
    validating = add("validate", "check workflows: what is wrong, where, and what to do", _validate)
    validating.add_argument("files", nargs="*", metavar="FILE", help="files, folders or names; all of this project")
    validating.add_argument("--strict", action="store_true", help="warnings fail too")
    running = add("run", "run a workflow and print one result", _run)
    running.add_argument("workflow", metavar="FILE|NAME", help="its file, the folder of a workflow.yaml, or its name")
    running.add_argument("--input", action="append", default=[], metavar="K=V", help="one of its inputs")
    running.add_argument("--detach", action="store_true", help="leave it to a worker, and print its id")
    showing = add("show", "each step of a flow: its state, time and run", _show)
    resuming = add("resume", "go on with a flow whose process died", _resume)
    for each in (showing, resuming):
        each.add_argument("flow_id", metavar="ID", help="the id, or how it starts")
    add("schema", "print the JSON Schema of workflow.yaml", _schema)


def answer(options: Options) -> Answer:
    del options
    with open_project(ends_with_process=True) as project:
        found = project.jobs.workflows.list()
        latest = {run.skill: run for run in reversed(project.runs(1000)) if run.kind == "flow"}
        root = project.root
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for workflow in found:
        run = latest.get(f"{PREFIX}{workflow.name}")
        data.append(
            {
                "name": workflow.name,
                "path": os.path.relpath(workflow.path, root),
                "description": workflow.description,
                "inputs": [each._asdict() for each in workflow.inputs],
                "steps": [step.id for step in workflow.steps],
                "problems": sum(finding.severity is Severity.ERROR for finding in workflow.findings),
                "latest": {"id": run.id, "state": run.state} if run else None,
            }
        )
        standing = Message("ok") if workflow.usable else Message("problems")
        last = f"{run.state} {run.id[:14]}" if run else ""
        rows.append((workflow.name, str(len(workflow.steps)), standing, last, workflow.description))
    empty = Message("No workflows here. Write one into workflows/NAME.yaml; `skillyard flow schema` says what goes in.")
    columns = ("name", "steps", "standing", "last", "description")
    return Answer(Message("{count} workflows", count=len(rows)), {"workflows": data}, Table(columns, rows, empty))


def _validate(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        workflows = project.jobs.workflows
        found = [workflows.find(name, Path.cwd()) for name in options.files] or list(workflows.list())
    bad, lines = check_findings({each.path: each.findings for each in found}, strict=options.strict)
    data: list[Json] = [
        {
            "path": os.path.relpath(each.path),
            "name": each.name,
            "findings": [finding.as_dict() for finding in each.findings],
        }
        for each in found
    ]
    why = Message("{bad} of {count} workflows have problems", bad=bad, count=len(found))
    return Answer(
        Message("{total} workflows checked: {bad} with problems", total=len(found), bad=bad),
        {"workflows": data},
        Lines(lines),
        failure=RuntimeFailed(why) if bad else None,
    )


def _run(options: Options) -> Answer:
    with open_project() as project:
        workflows = project.jobs.workflows
        given = split_pairs(options.input, "--input")
        workflow = workflows.find(options.workflow, Path.cwd())
        job = workflows.make_job(workflow, given, Job(skill="", lang=str(lang_of(options))))
        with project.jobs.open() as jobs:
            if not options.detach:
                here = job._replace(flow={**job.flow, _HERE: True})
                _follow(project, jobs, options, lambda attempts: jobs.start(here, attempts, partial(end_lost, options)))
            flow_id = jobs.enqueue(job)
    return Answer(
        Message("queued: {name} ({id}); a worker runs it", name=job.label, id=flow_id),
        {"flows": [{"id": flow_id, "name": job.label, "state": "queued"}]},
    )


def _follow(project: Project, jobs: "Jobs", options: Options, begin: "Callable[[Attempts], str]") -> NoReturn:
    """Have it done in this process, tell how far it is, and print what came of it. Ctrl-C cancels it."""
    interrupted = False
    style = style_of(options)
    with _Shown(style.lang) as shown:
        attempts = project.jobs.attempts(watch=shown)
        flow_id = begin(attempts)
        shown.say(Message("flow {id}", id=flow_id))
        known = None
        while known is None:
            try:
                known = jobs.wait(flow_id, _LOOK_SECONDS)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                shown.say(Message("cancelling"))
                jobs.engine.cancel(flow_id)
            if interrupted:
                attempts.underway.stop(flow_id)
    result = from_json(json.dumps(known.result, default=dict))
    if interrupted:
        present.show(result, style, sys.stdout)
        sys.stdout.flush()
        raise SystemExit(_INTERRUPTED)
    show_and_exit(result if style.json else pass_through(result, project.root), style)


class _Shown:
    """How far it is, on stderr: a line for each step that ended, and on a terminal the items as they end."""

    def __init__(self, lang: Lang) -> None:
        self._bar: Progress | None = None
        self._lang = lang

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.clear()
            self._bar = None

    def __call__(self, told: "FlowProgress") -> None:
        if told.state:
            self.say(told.line(self._lang))
        elif told.items[1]:
            self._bar = self._bar or Progress(f"{told.number}/{told.of} {told.step}")
            self._bar(*told.items)

    def say(self, text: str) -> None:
        self.__exit__()
        write_lines([text], self._lang)


def _resume(options: Options) -> NoReturn:
    with open_project() as project:
        run = _found(project, options.flow_id)
        with project.jobs.open() as jobs:
            standing = jobs.engine.find(run.id)
            if standing is None or standing.stage.is_over:
                over = Message(
                    "`skillyard flow show <id>` tells how it ended; "
                    "`skillyard jobs retry <id>` goes on with the step that failed"
                )
                raise InvalidArgs(Message("{id} is over: {state}", id=run.id, state=run.state), advice=over)
            is_queued = not Job.from_body(standing.ticket.body).flow.get(_HERE)

            def take(attempts: "Attempts") -> str:
                jobs.engine.serve(attempts, {}, partial(end_lost, options))
                deadline = time.monotonic() + _TAKE_SECONDS
                while not jobs.engine.take_over():
                    if time.monotonic() > deadline:
                        why = Message("{id} is alive: whoever started it, or a worker, goes on with it", id=run.id)
                        raise InvalidArgs(why)
                    time.sleep(_LOOK_SECONDS)
                if is_queued:
                    why = Message("{id} is queued again: the next `skillyard worker` goes on with it", id=run.id)
                    raise InvalidArgs(why)
                return run.id

            _follow(project, jobs, options, take)


def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        flow = _found(project, options.flow_id)
        runs = [project.find_run(run.id) or run for run in project.history.list_of(flow.id)]
        log = project.logs.read(flow.id)
    steps = list(_steps(flow, runs))
    data: dict[str, Json] = {
        "id": flow.id,
        "name": flow.job,
        "state": flow.state,
        "seconds": flow.seconds,
        "inputs": flow.request.get("params"),
        "steps": [*steps],
        "result": flow.result,
        "log": log,
    }
    name = Message("flow {name}", name=flow.job).render(lang_of(options))
    whole = _step(name, flow.state, flow.seconds, flow.id, flow.result.get("summary", ""))
    rows = [
        [f"{cell:.3f}" if isinstance(cell, float) else "" if cell is None else str(cell) for cell in step.values()]
        for step in (whole, *steps)
    ]
    return Answer(
        Message("{name}: {state}", name=flow.job, state=flow.state),
        {"flows": [data]},
        Table(("step", "state", "seconds", "run", "summary"), rows),
    )


def _steps(flow: "Run", runs: "Sequence[Run]") -> Iterator[dict[str, Json]]:
    """Every run of each step, and the steps that have not started.

    The run of the second attempt of item 17 of step 3 is called `<flow>.3.17-2`.
    """
    told: Any = flow.request.get("job")
    names = told.get("flow", {}).get("steps", []) if isinstance(told, dict) else []
    data: Any = flow.result.get("data") or {}
    ended: Any = {step["id"]: step for step in data.get("steps", [])}
    for number, name in enumerate(names, 1):
        begun = False
        for run in runs:
            if run.id.removeprefix(f"{flow.id}.").partition("-")[0].partition(".")[0] == str(number):
                job: Any = run.request.get("job")
                yield _step(job.get("step", name), run.state, run.seconds, run.id, run.result.get("summary", ""))
                begun = True
        if not begun:  # or its runs are forgotten already: the flow's own result still tells of it
            end = ended.get(name, {})
            yield _step(name, end.get("state", "waiting"), end.get("time"), end.get("run", ""), end.get("summary", ""))


def _step(step: str, state: str, seconds: Json, run: str, summary: Json) -> dict[str, Json]:
    return {"step": step, "state": state, "seconds": seconds, "run": run, "summary": summary}


def _found(project: Project, flow_id: str) -> "Run":
    run = project.find_run(flow_id)
    if run is None:  # the runs of its steps start like the flow's own
        begun = [each for each in project.runs(1000) if each.kind == "flow" and each.id.startswith(flow_id)]
        run = begun[0] if len(begun) == 1 and flow_id else None
    if run is None or run.kind != "flow":
        why = Message("no flow {flow_id!r} here, or more than one starts so", flow_id=flow_id)
        raise InvalidArgs(why, advice=Message("`skillyard flow` shows the latest, `skillyard jobs` more"))
    return run


def _schema(options: Options) -> Answer:
    del options
    text = SCHEMA_FILE.read_text("utf-8")
    return Answer(Message("JSON Schema of {file}", file="workflow.yaml"), {"schema": json.loads(text)}, Exact(text))
