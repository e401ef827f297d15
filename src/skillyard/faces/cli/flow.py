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
from typing import TYPE_CHECKING, Any, NoReturn

from skillyard.app.job_values import PREFIX, Job
from skillyard.app.project import Project, open_project
from skillyard.core.child_process import refuse_inside_agents
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.skill import Severity
from skillyard.core.values import Json
from skillyard.faces import present
from skillyard.faces.cli.check import answer_findings, answer_schema
from skillyard.faces.cli.jobs import end_lost
from skillyard.faces.cli.runs import ask_about_changes
from skillyard.faces.command import Answer, Options, Parser, finish_run, on_terminal, split_pairs, takes
from skillyard.faces.present import StatusLine, Table

if TYPE_CHECKING:
    from skillyard.jobs.flow import FlowProgress
    from skillyard.jobs.jobs import Jobs
    from skillyard.jobs.project_jobs import Attempts
    from skillyard.store.runs import Run

_LOOK_SECONDS = 0.2
#: A lock on a database counts as free only after a while: whoever lost it must have ended first.
_TAKE_SECONDS = 6.0
_INTERRUPTED = 130
#: Marks a flow that no worker was asked to do: whoever takes it over does it at once, not from a queue.
_HERE = "here"
_ID = takes("flow_id", "the id, or how it starts", metavar="ID")


def arguments(parser: Parser) -> None:
    add = parser.add_commands("list | validate | run | show | resume | schema")
    add("list", "the workflows of this project, and how each ended last", answer)
    add("validate", "check workflows: what is wrong, where, and what to do", _validate)
    add("run", "run a workflow and print one result", _run)
    add("show", "each step of a flow: its state, time and run", _show)
    add("resume", "go on with a flow whose process died", _resume)
    add("schema", "print the JSON Schema of workflow.yaml", lambda _: answer_schema("workflow"))


def answer(_options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        found = project.jobs.workflows.list()
        latest = {run.skill: run for run in reversed(project.runs(1000)) if run.kind == "flow"}
        root = project.root
    data, rows = list[Json](), list[tuple[str, ...]]()
    for workflow in found:
        run = latest.get(f"{PREFIX}{workflow.name}")
        told: dict[str, Json] = {"name": workflow.name, "path": os.path.relpath(workflow.path, root)}
        told |= {"description": workflow.description, "inputs": [each._asdict() for each in workflow.inputs]}
        problems = sum(finding.severity is Severity.ERROR for finding in workflow.findings)
        told |= {"steps": [step.id for step in workflow.steps], "problems": problems}
        data.append({**told, "latest": {"id": run.id, "state": run.state} if run else None})
        standing = Message("ok") if workflow.usable else Message("problems")
        last = f"{run.state} {run.id[:14]}" if run else ""
        rows.append((workflow.name, str(len(workflow.steps)), standing, last, workflow.description))
    empty = Message("No workflows here. Write one into workflows/NAME.yaml; `skillyard flow schema` says what goes in.")
    table = Table(("name", "steps", "standing", "last", "description"), rows, empty)
    return Answer(Message("{count} workflows", count=len(rows)), {"workflows": data}, table)


@takes("files", "files, folders or names; all of this project", nargs="*", metavar="FILE")
@takes("--strict", "warnings fail too")
def _validate(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        workflows = project.jobs.workflows
        found = [workflows.find(name, Path.cwd()) for name in options.files] or list(workflows.list())
    files = [(each.path, {"path": os.path.relpath(each.path), "name": each.name}, each.findings) for each in found]
    summary = Message("{total} workflows checked: {bad} with problems")
    return answer_findings("workflows", files, options, summary, Message("{bad} of {count} workflows have problems"))


@takes("workflow", "its file, the folder of a workflow.yaml, or its name", metavar="FILE|NAME")
@takes("--input", "one of its inputs", action="append", default=[], metavar="K=V")
@takes("--detach", "leave it to a worker, and print its id")
@takes("--apply", "apply what it changes in the project, if it succeeds")
def _run(options: Options) -> Answer:
    if options.apply and options.detach:
        raise InvalidArgs(Message("--apply goes with a flow that runs here: a job applies only what a grant covers"))
    with open_project() as project:
        if options.apply:
            refuse_inside_agents()
        workflows = project.jobs.workflows
        workflow = workflows.find(options.workflow, Path.cwd())
        job = workflows.make_job(workflow, split_pairs(options.input, "--input"), Job(skill="", lang=str(options.lang)))
        with project.jobs.open() as jobs:
            if not options.detach:
                here = job._replace(flow={**job.flow, _HERE: True})
                _follow(project, jobs, options, lambda attempts: jobs.start(here, attempts, partial(end_lost, options)))
            flow_id = jobs.enqueue(job)
    summary = Message("queued: {name} ({id}); a worker runs it", name=job.label, id=flow_id)
    return Answer(summary, {"flows": [{"id": flow_id, "name": job.label, "state": "queued"}]})


def _follow(project: Project, jobs: "Jobs", options: Options, begin: "Callable[[Attempts], str]") -> NoReturn:
    """Have it done in this process, tell how far it is, and print what came of it. Ctrl-C cancels it."""
    interrupted = False
    with _Shown("", options.lang) as shown:
        attempts = project.jobs.attempts(watch=shown.watch)
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
        present.show(result, options.style, sys.stdout)
        sys.stdout.flush()
        raise SystemExit(_INTERRUPTED)
    if result.meta.get("changes") == "pending":
        kept = project.changes.find(str(result.meta["run"]), project.root)
        if kept and getattr(options, "apply", False):
            project.changes.apply(kept, project.read_changes(kept).changes)
            result = result._replace(meta={**result.meta, "changes": "applied"})
        elif on_terminal():
            result = ask_about_changes(project, result, options.lang)
    finish_run(result, options.style, project.write_file)


class _Shown(StatusLine):
    """How far it is, on stderr: a line for each step that ended, and on a terminal the items as they end."""

    def watch(self, told: "FlowProgress") -> None:
        if told.state:
            self.say(told.line(self._lang))
        elif told.items[1]:
            self._doing = f"{told.number}/{told.of} {told.step}"
            self.count(*told.items)


@_ID
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


@_ID
def _show(options: Options) -> Answer:
    with open_project(ends_with_process=True) as project:
        flow = _found(project, options.flow_id)
        runs = [project.find_run(run.id) or run for run in project.history.list_of(flow.id)]
        log = project.logs.read(flow.id)
    steps = list(_steps(flow, runs))
    data: dict[str, Json] = {"id": flow.id, "name": flow.job, "state": flow.state, "seconds": flow.seconds}
    data |= {"inputs": flow.request.get("params"), "steps": [*steps], "result": flow.result, "log": log}
    name = Message("flow {name}", name=flow.job).render(options.lang)
    whole = _step(name, flow.state, flow.seconds, flow.id, flow.result.get("summary", ""))
    rows = [
        [f"{cell:.3f}" if isinstance(cell, float) else "" if cell is None else str(cell) for cell in step.values()]
        for step in (whole, *steps)
    ]
    table = Table(("step", "state", "seconds", "run", "summary"), rows)
    return Answer(Message("{name}: {state}", name=flow.job, state=flow.state), {"flows": [data]}, table)


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
