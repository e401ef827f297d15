"""Workflows: finds them, checks them against the skills that exist, makes jobs of them, and runs those: flows.

Each step of a flow, and each item of one with `for_each`, is a run of its own through the one pipeline. A step that
ended is never repeated, whoever dies; one that was under way is run again, under the same run id. A failed flow that is
retried resumes with its first failed step: what came before it, and its items that succeeded, are kept.

The steps see what the steps before them changed in the project; the project itself changes once, at the end, or when a
person applies the flow's change set. See `store/changes.py`.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.catalog.flowfile import FOLDER, WorkflowFile, WorkflowStep, is_of_type, list_workflows, read_workflow
from skillyard.catalog.references import Reference, as_text, fill, nearest, references, walk
from skillyard.catalog.schema_check import SchemaProblem, expected
from skillyard.core.errors import (
    ChangesConflict,
    ChangesTooMany,
    EarlierChangesMissing,
    InvalidArgs,
    InvalidParam,
    ItemsConflict,
    ParamMissing,
    RuntimeFailed,
    SkillError,
    WorkflowChanged,
    WorkflowInvalid,
)
from skillyard.core.messages import Lang, Message, as_json, of_json
from skillyard.core.result import Clock, Request, Result, error_result
from skillyard.core.skill import Severity, Skill, first_of
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json
from skillyard.editor.change_set import TooManyChangesError, shown
from skillyard.jobs.jobs import AFTER, CANCELLED, Job, may_pass, pause_seconds
from skillyard.jobs.schedule import PREFIX
from skillyard.runtime.changes import as_listed
from skillyard.runtime.check import OUTPUT, as_typed, bind
from skillyard.store.changes import ChangeState, FlowChanges, StepChanges
from skillyard.store.runs import RUNNING, Log
from skillyard.trust.run_policy import is_closed, mark_of_skill

if TYPE_CHECKING:
    from skillyard.jobs.dbos_engine import DurableSteps
    from skillyard.jobs.project_jobs import Attempts

_LISTED = Message("`skillyard flow` lists them")
_WRITE_ONE = Message("write one into workflows/NAME.yaml; `skillyard flow schema` says what goes in")


class Workflows(NamedTuple):
    """The workflows of one project. `resolve` finds the skill of a request."""

    root: Path
    resolve: Callable[[Request], Skill]

    def list(self) -> tuple[WorkflowFile, ...]:
        """Return the workflows that have a name here, each checked against the skills."""
        return tuple(map(self._checked, list_workflows(self.root)))

    def find(self, text: str, cwd: Path) -> WorkflowFile:
        """Return the workflow by the path of its file or folder, or by its name. Raise InvalidArgs if there is none."""
        path = cwd / text
        if "/" in text or text.endswith((".yaml", ".yml")) or text in {".", ".."}:
            if not path.resolve().is_relative_to(root := self.root.resolve()):
                msg = Message("{text} is outside {root}: a workflow runs where its skills are", text=text, root=root)
                raise InvalidArgs(msg)
            if not path.exists():
                raise InvalidArgs(Message("there is no {path}", path=text))
            return self._checked(read_workflow(path.resolve()))
        known = list_workflows(self.root)
        found = [workflow for workflow in known if workflow.name == text]
        if len(found) == 1:
            return self._checked(found[0])
        if found:
            files = ", ".join(self._shown(workflow.path) for workflow in found)
            msg = Message("several workflows are called {text!r}: {files}; name the file", text=text, files=files)
            raise InvalidArgs(msg)
        told = nearest(text, [workflow.name for workflow in known])
        msg = Message("no workflow {text!r} in {folder}/; {told}", text=text, folder=FOLDER, told=told)
        raise InvalidArgs(msg, advice=_LISTED if known else _WRITE_ONE)

    def complete(self, job: Job) -> Job:
        """Return the job of `flow:NAME` with what it means now."""
        workflow = self.find(job.skill.removeprefix(PREFIX), self.root)
        given: dict[str, Json] = {}
        for word in job.args:
            name, equals, value = word.removeprefix("--").partition("=")
            if not equals or not name:
                raise InvalidArgs(Message("{word!r} is no input; write name=value", word=word))
            given[name] = value
        return self.make_job(workflow, {**given, **job.params}, job)

    def make_job(self, workflow: WorkflowFile, given: Mapping[str, Json], job: Job) -> Job:
        """Return the job that runs the workflow. Raise unless it can run as a whole."""
        file = self._shown(workflow.path)
        if wrong := [finding for finding in workflow.findings if finding.severity is Severity.ERROR]:
            findings: list[Json] = [finding.as_dict() for finding in workflow.findings]
            raise WorkflowInvalid(first_of(wrong, file), details={"file": file, "findings": findings})
        skills = self._skills(workflow)
        inputs = inputs_of(workflow, given)
        for step in workflow.steps:  # now with what was given
            for problem in _step_problems(skills[step.skill], step, inputs):
                shown, message = problem.shown, problem.message
                raise InvalidParam(Message("step {id}: `{shown}` {message}", id=step.id, shown=shown, message=message))
        found = {name: skill for name, skill in skills.items() if isinstance(skill, Skill)}
        return job._replace(
            skill=f"{PREFIX}{workflow.name}",
            name=job.name or workflow.name,
            args=(),
            params=inputs,
            flow={
                "file": file,
                "digest": workflow.digest,
                "skills": {name: mark_of_skill(skill) for name, skill in found.items()},
                "commands": [name for name, skill in found.items() if skill.kind.takes_text],
                "steps": [step.id for step in workflow.steps],
            },
        )

    def _checked(self, workflow: WorkflowFile) -> WorkflowFile:
        """Add everything that can be known before it starts: skills, actions, params and their types."""
        inputs: Mapping[str, Json] = {each.name: each.default for each in workflow.inputs if not each.required}
        skills = self._skills(workflow)
        wrong = [problem for step in workflow.steps for problem in _step_problems(skills[step.skill], step, inputs)]
        return workflow.with_problems(wrong)

    def _skills(self, workflow: WorkflowFile) -> dict[str, Skill | SkillError]:
        """Return each skill that a step names, or why there is none."""
        found: dict[str, Skill | SkillError] = {}
        for name in dict.fromkeys(step.skill for step in workflow.steps):
            try:
                found[name] = self.resolve(Request(name=name))
            except SkillError as error:
                found[name] = error
        return found

    def _shown(self, path: Path) -> str:
        root, resolved = self.root.resolve(), path.resolve()
        return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else str(path)


#: The keys below the step, what is wrong there, and what to do.
_Problem = tuple[tuple[str, ...], str, str]


def _step_problems(
    skill: Skill | SkillError, step: WorkflowStep, inputs: Mapping[str, Json]
) -> Iterator[SchemaProblem]:
    found: list[_Problem]
    if isinstance(skill, SkillError):
        missing = Message("is {skill!r}: {msg}", skill=step.skill, msg=skill.msg)
        found = [(("skill",), missing, skill.hint_message())]
    else:
        found = [*_action_problems(skill, step), *_param_problems(skill, step, inputs)]
    for keys, message, advice in found:
        yield SchemaProblem(("steps", step.at, *keys), message, advice)


def _action_problems(skill: Skill, step: WorkflowStep) -> Iterator[_Problem]:
    keys, name, action = ("action",), step.skill, step.action
    if not skill.kind.has_actions:
        if action:
            msg = Message("is given, but {skill} is a {kind} skill and has none", skill=name, kind=skill.kind)
            yield keys, msg, ""
    elif action and skill.actions and action not in skill.actions:
        msg = Message("is {action!r}, which {skill} has not", action=action, skill=name)
        yield keys, msg, nearest(action, list(skill.actions))
    elif not action and not step.args and len(skill.actions) != 1:
        known = ", ".join(skill.actions)
        advice = Message("one of {enum}", enum=known) if known else ""
        yield keys, Message("is missing: {skill} needs one", skill=name), advice


def _param_problems(skill: Skill, step: WorkflowStep, inputs: Mapping[str, Json]) -> Iterator[_Problem]:
    declared = {param.name: param for param in skill.params}
    given: dict[str, Json] = dict(step.params)
    if step.args and not skill.kind.takes_words:
        words = tuple(map(as_text, step.args))
        try:
            given = {**bind(skill, words[1:] if skill.kind.has_actions and not step.action else words), **given}
        except InvalidParam as error:
            takes = f"it takes {', '.join(declared) or 'nothing'}"
            yield ("args",), Message("do not fit: {msg}", msg=error.msg), takes
            return
    for name, value in given.items():
        keys = ("params" if name in step.params else "args", name)
        if name in declared:
            try:
                as_typed(declared[name], _known(value, inputs, skill))
            except InvalidParam as error:
                yield keys, Message("is wrong: {msg}", msg=error.msg), declared[name].description
            except LookupError:
                pass  # only a run will tell
        elif skill.kind.takes_only_declared and name != OUTPUT:
            yield keys, Message("is no param of {skill}", skill=step.skill), nearest(name, list(declared))
    for name, param in declared.items() if not skill.kind.takes_words else ():
        if param.required and param.default is None and given.get(name) is None:
            msg = Message("lacks `{name}`, which {skill} needs", name=name, skill=step.skill)
            yield ("params",), msg, param.description


def _known(value: Json, inputs: Mapping[str, Json], skill: Skill) -> Json:
    """Return the value if the file alone decides it. Raise LookupError if an earlier step or a person does."""
    for _, found in references(value):
        if isinstance(found, ValueError) or found.name != "inputs" or found.path[0] not in inputs:
            raise LookupError
    filled = fill(value, lambda reference: walk(inputs, reference.path))
    return as_text(filled) if skill.kind.takes_text and isinstance(filled, list | Mapping) else filled


def inputs_of(workflow: WorkflowFile, given: Mapping[str, Json]) -> dict[str, Json]:
    """Return every input with its value, typed. Raise ParamMissing or InvalidParam if one is missing or wrong."""
    declared = {each.name: each for each in workflow.inputs}
    for name in given:
        if name not in declared:
            told = nearest(name, list(declared))
            msg = Message("{workflow} has no input '{name}'; {told}", workflow=workflow.name, name=name, told=told)
            raise InvalidParam(msg)
    values: dict[str, Json] = {}
    for name, each in declared.items():
        value = _typed(given[name], each.type) if name in given else each.default
        if value is None:
            continue
        if not is_of_type(value, each.type):
            wanted, value = expected({"type": each.type}), str(value)[:80]
            msg = Message("the input '{name}' takes {wanted}, not {value!r}", name=name, wanted=wanted, value=value)
            raise InvalidParam(msg)
        values[name] = value
    if missing := tuple(name for name in declared if name not in values):
        raise ParamMissing(missing, tuple(values), {name: declared[name].description for name in missing})
    return values


def _typed(value: Json, kind: str) -> Json:
    """Return what was typed as words, as the input wants it."""
    if isinstance(value, str) and kind != "string":
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return value


MAX_ITEMS = 10_000
_MOST_NAMED = 5
_AGENT = "skills"
_OK = frozenset({"success", "partial"})
Outcome = dict[str, Any]


class FlowProgress(NamedTuple):
    flow: str
    step: str
    number: int
    of: int
    #: Items that ended, and how many there are; 0 of 0 for a step without any.
    items: tuple[int, int] = (0, 0)
    #: Empty while the step runs.
    state: str = ""
    seconds: float = 0.0
    summary: str = ""
    #: Whether an earlier attempt did all of it.
    kept: bool = False

    def line(self, lang: Lang) -> str:
        done, total = self.items
        items = Message(" {done}/{total} items", done=done, total=total).render(lang) if total else ""
        failed = f": {self.summary}" if self.state not in {*_OK, ""} else ""
        took = Message("kept").render(lang) if self.kept else f"{self.seconds:.2f}s"
        state = self.state or Message("runs").render(lang)
        return f"{self.number}/{self.of} {self.step}:{items} {state} ({took}){failed}"


Watch = Callable[[FlowProgress], None]


class StepResult(NamedTuple):
    """The outcome of one step: of its only run, or of all its items."""

    step: WorkflowStep
    runs: tuple[tuple[int, Outcome], ...]
    #: For all items the time in this process: several run at a time, some may have ended before a crash.
    seconds: float
    #: How many items there were; None for a step that runs once, or whose list was invalid.
    items: int | None = None

    @property
    def failed(self) -> tuple[tuple[int, Outcome], ...]:
        return tuple((at, each) for at, each in self.runs if each["state"] not in _OK)

    @property
    def state(self) -> str:
        if not self.failed:
            return "success"
        if self.items is None:
            return str(self.runs[0][1]["state"])
        return "partial" if len(self.failed) < len(self.runs) else "error"

    @property
    def summary(self) -> str:
        shown = self.failed or self.runs
        return str(shown[0][1]["summary"]) if shown else ""

    def named(self, position: int) -> str:
        return self.step.id if self.items is None else f"{self.step.id}[{position}]"

    def offer(self) -> dict[str, Json]:
        """Return what later steps can refer to: for items a list of those that succeeded."""
        good = [each for _, each in self.runs if each["state"] in _OK]
        if self.items is not None:
            return {**{name: [each[name] for each in good] for name in ("data", "summary", "run")}, "state": self.state}
        names = ("state", "summary", "run", "data") if good else ("state", "summary", "run")
        return {name: self.runs[0][1][name] for name in names}

    def as_data(self) -> dict[str, Json]:
        about: dict[str, Json] = {"id": self.step.id, "state": self.state, "time": round(self.seconds, 3)}
        if self.items is not None:
            return {**about, "items": self.items, "failed": len(self.failed), "summary": self.summary}
        return {**about, "run": self.runs[0][1]["run"], "summary": self.summary}


class FlowRun:
    def __init__(self, attempts: "Attempts", flow_id: str, job: Job, steps: "DurableSteps") -> None:
        self.attempts, self.id, self.job, self.steps = attempts, flow_id, job, steps
        self.project, self.lang, self.halt = attempts.project, Lang(job.lang), threading.Event()
        root = self.project.root.resolve()
        self.changes = FlowChanges(self.project.runtime().changes, flow_id, root, job.skill)
        #: What an earlier attempt gave, by the names of steps and items.
        self.kept: dict[str, Outcome] = {}
        #: The last step that changed something, and the layers of all that did.
        self.after, self.layers = 0, list[str]()

    def run(self) -> dict[str, Json]:
        """Run the steps, and keep a row of the flow whatever comes of it."""
        runs, underway, clock = self.project.history(), self.attempts.underway, Clock()
        row = self.job.as_row(self.id, clock.moment.timestamp(), NOTHING)
        row = row._replace(kind="flow", state=RUNNING, seconds=None)
        resumes = str(self.job.flow.get(AFTER) or "")

        def cancel() -> None:
            self.halt.set()
            for run_id in underway.list():
                if run_id.startswith(f"{self.id}."):
                    underway.stop(run_id, underway.stopped.get(self.id, CANCELLED))

        def close(result: Result) -> dict[str, Json]:
            meta = {**clock.meta(_AGENT, {"run": self.id, "host": self.attempts.host}), **result.meta}
            told, state = result._replace(meta=meta).as_dict(), str(result.state)
            if self.halt.is_set():
                state = underway.stopped.get(self.id, CANCELLED)
                told = self.job.cancelled_result(state)
            runs.put(row._replace(state=state, seconds=clock.seconds, result=told))
            return told

        with self.project.logs.open(self.id) as log, underway.running(self.id) as stop, self.changes.open(resumes):
            runs.put(row)
            if resumes:
                self._keep_earlier(resumes)
            try:
                with stop.on_cancel(cancel):
                    return close(self._finish(self._run_steps(log)))
            except BaseException as error:  # the engine's way to say that it was cancelled, or a bug
                if self.after:  # to look at; whoever goes on with the flow still finds its layers
                    with suppress(SkillError, OSError):
                        self.changes.finish(self.after, self.layers, is_closed)
                self.changes.keep(ChangeState.FAILED, resumable=True)
                failed = RuntimeFailed(Message("ended in the middle: {error}", error=error))
                close(error_result(failed, _AGENT, self.lang, NOTHING))
                raise

    def _keep_earlier(self, resumes: str) -> None:
        """Keep what succeeded in the attempt that this one resumes, unless what it changed is not there any more."""
        given: Mapping[str, Any] = self.steps.ended_of(resumes)
        found = {
            name: outcome
            for name, outcome in given.items()
            if isinstance(outcome, dict) and outcome.get("state") in _OK and "run" in outcome
        }
        if self.changes.has_earlier or not any(outcome.get("changed") for outcome in found.values()):
            self.kept = found

    def _finish(self, result: Result) -> Result:
        """Apply what the steps changed where a grant covers it, or keep it for a person to decide."""
        ok = result.ok and not self.halt.is_set()
        if not self.after:
            self.changes.keep(ChangeState.FAILED, resumable=not ok)
            return result
        told = self.steps.run("flow changes", self._list_changes)
        if "missing" in told:
            return error_result(EarlierChangesMissing(str(told["missing"])), _AGENT, self.lang, result.meta)
        state = ChangeState.PENDING if ok else ChangeState.FAILED
        if result.state is State.SUCCESS and not told["listed"]:
            state = ChangeState.APPLIED  # there is nothing to apply
        elif ok and told["granted"]:
            refused = self.steps.run("apply changes", self._apply)
            state = ChangeState.PENDING if refused else ChangeState.APPLIED
            if refused:
                result = error_result(ChangesConflict(tuple(refused)), _AGENT, self.lang, result.meta)
        self.changes.keep(state, resumable=result.state is not State.SUCCESS)
        if not told["listed"]:
            return result
        return result._replace(data={**result.data, **told["listed"]}, meta={**result.meta, "changes": str(state)})

    def _list_changes(self) -> dict[str, Any]:
        try:
            found, granted = self.changes.finish(self.after, self.layers, is_closed)
        except EarlierChangesMissing as missing:
            return {"missing": missing.msg}
        return {"listed": as_listed(found.changes) if found.changes else {}, "granted": granted}

    def _apply(self) -> list[str]:
        try:
            self.changes.apply(is_closed)
        except ChangesConflict as error:
            return [str(path) for path in error.paths]
        return []

    def _run_steps(self, log: Log) -> Result:
        try:
            workflow = self._read_workflow()
        except SkillError as error:
            return error_result(error, _AGENT, self.lang, NOTHING)
        ended: list[StepResult] = []
        for number, step in enumerate(workflow.steps, 1):
            if self.halt.is_set():
                break
            progress = FlowProgress(self.id, step.id, number, len(workflow.steps))
            self.attempts.watch(progress)
            last = self._step(step, progress, ended)
            ended.append(last)
            kept = bool(self.kept) and not any(each["run"].startswith(f"{self.id}.") for _, each in last.runs)
            if not kept:
                self.kept.clear()  # what comes after a step that runs anew may see something new
            progress = progress._replace(state=last.state, seconds=last.seconds, summary=last.summary, kept=kept)
            if last.items is not None:
                progress = progress._replace(items=(len(last.runs), last.items))
            log.write(f"{progress.line(self.lang)}\n".encode())
            self.attempts.watch(progress)
            if last.failed and not step.goes_on:
                break
        return _as_result(workflow.name, ended, self.lang, self.id)

    def _read_workflow(self) -> WorkflowFile:
        """Return the workflow that was started. Raise if its file has changed."""
        if broken := self.job.flow.get("broken"):
            raise WorkflowInvalid(str(broken))
        file = str(self.job.flow["file"])
        workflow = read_workflow(self.project.root / file)
        if workflow.digest != self.job.flow["digest"]:
            raise WorkflowChanged(Message("{file} is not as it was when the flow was started", file=file))
        return workflow

    def _step(self, step: WorkflowStep, progress: FlowProgress, before: Sequence[StepResult]) -> StepResult:
        run_id = f"{self.id}.{progress.number}"
        offered: dict[str, Json] = {each.step.id: each.offer() for each in before}
        offered["inputs"] = self.job.params
        if step.for_each is None:
            only = self.steps.run(step.id, lambda: self._act(step, run_id, step.id, offered))
            return self._collected(StepResult(step, ((0, only),), float(only["time"])), progress.number, run_id)
        try:
            items = _items(step, offered)
        except SkillError as error:
            return StepResult(step, ((0, self._refused(step, run_id, error)),), 0.0)
        began = time.monotonic()
        ended: list[Outcome] = []

        def act(position: int, item: Json) -> Outcome:
            named = f"{step.id}[{position}]"
            return self._act(step, f"{run_id}.{position}", named, {**offered, "item": item, "index": position})

        def go_on(outcome: Outcome) -> bool:
            ended.append(outcome)
            self.attempts.watch(progress._replace(items=(len(ended), len(items)), seconds=time.monotonic() - began))
            return (outcome["state"] in _OK or step.goes_on) and not self.halt.is_set()

        acts = [partial(act, position, item) for position, item in enumerate(items)]
        runs = tuple(self.steps.run_each(step.id, acts, step.at_once, go_on))
        ran = StepResult(step, runs, time.monotonic() - began, len(items))
        return self._collected(ran, progress.number, run_id)

    def _collected(self, ended: StepResult, number: int, run_id: str) -> StepResult:
        """Let the later steps see what the runs of this one changed. Items that changed the same file fail the step."""
        changed = [at for at, each in ended.runs if each.get("changed") and each["state"] in _OK]
        if not changed:
            return ended
        keys = [str(number) if ended.items is None else f"{number}.{at}" for at in changed]

        def collect() -> dict[str, Any]:
            try:
                found = self.changes.collect(number, keys, self.after)
            except TooManyChangesError:
                return {"too_many": True}
            except EarlierChangesMissing as missing:
                return {"missing": missing.msg}
            return {"conflicts": [[shown(each.path), *(ended.named(changed[at]) for at in each[1:])] for each in found]}

        told = self.steps.run(f"{ended.step.id} changes", collect)
        error: SkillError
        if conflicts := told.get("conflicts"):
            named = ", ".join(f"{path} ({one}, {other})" for path, one, other in conflicts[:_MOST_NAMED])
            error = ItemsConflict(named, details={"conflicts": conflicts})
        elif "conflicts" in told:
            self.after = number
            self.layers += keys
            return ended
        else:
            error = ChangesTooMany() if told.get("too_many") else EarlierChangesMissing(str(told["missing"]))
        return StepResult(ended.step, ((0, self._refused(ended.step, run_id, error)),), ended.seconds)

    def _act(self, step: WorkflowStep, run_id: str, named: str, offered: Mapping[str, Json]) -> Outcome:
        """Make one run with its retries. They are one step of the engine: half of a step is none."""
        if kept := self.kept.get(named):
            return kept
        try:
            job = self._job(step, named, offered)
        except SkillError as error:
            return self._refused(step, run_id, error)
        changes = partial(StepChanges, self.changes, run_id.removeprefix(f"{self.id}."), self.after)
        attempt = 1
        while True:
            run = run_id if attempt == 1 else f"{run_id}-{attempt}"
            result = self.attempts.run(run, job._replace(attempt=attempt), changes)
            if not may_pass(result) or attempt > step.retries or self.halt.wait(pause_seconds(run_id, attempt)):
                return _outcome(result, run)
            attempt += 1

    def _job(self, step: WorkflowStep, named: str, offered: Mapping[str, Json]) -> Job:
        """Return the step as a job, with its references filled in. Raise InvalidParam if one leads nowhere."""
        look, meant = partial(_look, offered), dict[str, Any](self.job.flow)
        filled: Any = fill(step.params, look)
        params = {name: value for name, value in filled.items() if value is not None}
        if step.skill in meant["commands"]:  # they take only strings
            nested = (list, tuple, Mapping)
            params = {name: as_text(value) if isinstance(value, nested) else value for name, value in params.items()}
        return Job(
            skill=step.skill,
            name=self.id,
            args=tuple(as_text(fill(word, look)) for word in step.args),
            params=params,
            action=step.action,
            timeout_seconds=step.timeout_seconds,
            retries=step.retries,
            fingerprint=meant["skills"].get(step.skill, ""),
            lang=self.job.lang,
            first=self.id,
            step=named,
        )

    def _refused(self, step: WorkflowStep, run_id: str, error: SkillError) -> Outcome:
        """Keep a row for a run that never started."""
        clock = Clock()
        result = error_result(error, _AGENT, self.lang, clock.meta(_AGENT, {"run": run_id})).as_dict()
        job = Job(skill=step.skill, name=self.id, first=self.id, step=step.id, lang=self.job.lang)
        self.project.history().put(job.as_row(run_id, clock.moment.timestamp(), result))
        return _outcome(result, run_id)


def _look(offered: Mapping[str, Json], reference: Reference) -> Json:
    try:
        return walk(offered[reference.name], reference.path)
    except LookupError as error:
        msg = Message("{shown} leads nowhere: {args}", shown=reference.shown, args=error.args[0])
        raise InvalidParam(msg) from None


def _items(step: WorkflowStep, offered: Mapping[str, Json]) -> list[Json]:
    items = fill(step.for_each, partial(_look, offered))
    if not isinstance(items, list | tuple):
        raise InvalidParam(Message("for_each takes a list, not {items!r}", items=str(items)[:80]))
    if len(items) > MAX_ITEMS:
        msg = Message("for_each takes at most {max_items} items, not {count}", max_items=MAX_ITEMS, count=len(items))
        raise InvalidParam(msg)
    return list(items)


def _outcome(result: Mapping[str, Any], run_id: str) -> Outcome:
    meta, data = result.get("meta") or {}, result["data"]
    said = data.get("msg") if isinstance(data, Mapping) else None
    return {
        "state": result["state"],
        "summary": result["summary"],
        "data": data,
        "run": run_id,
        "time": meta.get("time", 0.0),
        "code": meta.get("code", ""),
        "hint": meta.get("hint", ""),
        "said": as_json(said) if said else "",
        "changed": meta.get("changes") == "flow",
    }


def _as_result(name: str, ended: Sequence[StepResult], lang: Lang, flow_id: str) -> Result:
    data: dict[str, Json] = {"flow": name, "steps": [each.as_data() for each in ended]}
    succeeded = [each.named(at) for each in ended for at, run in each.runs if run["state"] in _OK]
    bad = [(each.named(at), run) for each in ended for at, run in each.failed]
    if not bad:
        summary = Message("workflow done: {name}, {count} steps", name=name, count=len(ended)).render(lang)
        data["result"] = ended[-1].offer().get("data") if ended else None
        return Result(_AGENT, State.SUCCESS, summary, data)
    failed = [_failure(named, run) for named, run in bad]
    goes_on = Message("`skillyard jobs retry {id}` goes on with {step}", id=flow_id, step=bad[0][0]).render(lang)
    stopped = any(each.failed and not each.step.goes_on for each in ended)
    if succeeded and not stopped:
        count = {"done": len(succeeded), "total": len(succeeded) + len(failed)}
        summary = Message("partly done: {name}, {done} of {total} succeeded", name=name, **count).render(lang)
        data = {"succeeded": succeeded, "failed": failed, **data}
        return Result(_AGENT, State.PARTIAL, summary, data, {"hint": goes_on})
    worst, run = (failed[-1], bad[-1][1]) if stopped else (failed[0], bad[0][1])
    said = of_json(run.get("said") or worst["msg"])
    summary = Message("{type}: step {step}: {msg}", type=worst["type"], step=worst["step"], msg=said).render(lang)
    meta = {"code": run.get("code", ""), "hint": "; ".join(filter(None, (run.get("hint"), goes_on)))}
    told = {key: worst[key] for key in ("type", "msg", "recoverable", "step", "run")}
    return Result(_AGENT, State.ERROR, summary, {**told, **data, "succeeded": succeeded, "failed": failed}, meta)


def _failure(named: str, run: Outcome) -> dict[str, Json]:
    """Describe a failure by its type; a time limit and a state that nobody can answer get one too."""
    data: Mapping[str, Json] = run["data"] if isinstance(run["data"], Mapping) else NOTHING
    return {
        "step": named,
        "type": data.get("type") or ("Timeout" if run["state"] == "timeout" else "RuntimeFailed"),
        "msg": data.get("msg") or run["summary"],
        "recoverable": data.get("recoverable"),
        "run": run["run"],
    }
