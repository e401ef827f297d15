"""A flow: the steps of a workflow, one after the other, each remembered by the engine once it ended.

Each step, and each item of one with `for_each`, is a run of its own through the one pipeline. A step that ended is
never repeated, whoever dies; one that was under way is run again, under the same run id. A failed flow that is retried
resumes with its first failed step: what came before it, and its items that succeeded, are kept.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.catalog.flowfile import WorkflowFile, WorkflowStep, read_workflow
from skillyard.catalog.references import Reference, as_text, fill, walk
from skillyard.core.errors import InvalidParam, RuntimeFailed, SkillError, WorkflowChanged, WorkflowInvalid
from skillyard.core.messages import Lang, Message, as_json, of_json
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json
from skillyard.jobs.engine import DurableSteps
from skillyard.jobs.jobs import AFTER, Job, may_pass, pause_seconds
from skillyard.jobs.worker_loop import AttemptContext, Attempts
from skillyard.store.runs import RUNNING, Log, Logs, Run

#: A list for `for_each` may have so many items.
MAX_ITEMS = 10_000
_AGENT = "skills"
_OK = frozenset({"success", "partial"})
_DONE = Message("workflow done: {name}, {count} steps")
_PARTLY = Message("partly done: {name}, {done} of {total} succeeded")
_GOES_ON = Message("`skillyard jobs retry {id}` goes on with {step}")
_ITEMS = Message(" {done}/{total} items")
_KEPT, _RUNS = Message("kept"), Message("runs")
_FAILED = Message("{type}: step {step}: {msg}")


class FlowProgress(NamedTuple):
    """The progress of a flow."""

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
        items = _ITEMS.render(lang, done=self.items[0], total=self.items[1]) if self.items[1] else ""
        failed = f": {self.summary}" if self.state not in {*_OK, ""} else ""
        took = _KEPT.render(lang) if self.kept else f"{self.seconds:.2f}s"
        state = self.state or _RUNS.render(lang)
        return f"{self.number}/{self.of} {self.step}:{items} {state} ({took}){failed}"


Watch = Callable[[FlowProgress], None]
#: What is remembered of a run.
Outcome = dict[str, Any]


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


class Flows(NamedTuple):
    """Runs the jobs that are flows. Any number of threads may call it at once."""

    attempts: Attempts
    open_context: Callable[[], AttemptContext]
    logs: Logs
    root: Path
    watch: Watch

    def run(self, flow_id: str, job: Job, steps: DurableSteps) -> dict[str, Json]:
        runs, underway = self.open_context().runs, self.attempts.underway
        started, moment = time.monotonic(), datetime.now(UTC)
        row = Run(
            id=flow_id,
            agent=_AGENT,
            skill=job.skill,
            kind="flow",
            state=RUNNING,
            started=moment.timestamp(),
            job=job.label,
            request={"name": job.skill, "params": dict(job.params), "job": job.about()},
        )
        halt = threading.Event()

        def cancel() -> None:
            halt.set()
            for run_id in underway.list():
                if run_id.startswith(f"{flow_id}."):
                    underway.stop(run_id)

        def close(result: Result) -> dict[str, Json]:
            seconds = time.monotonic() - started
            meta = make_meta(_AGENT, seconds, moment, run=flow_id)
            told = job.cancelled_result() if halt.is_set() else result._replace(meta={**meta, **result.meta}).as_dict()
            runs.put(row._replace(state=str(told["state"]), seconds=seconds, result=told))
            return told

        with self.logs.open(flow_id) as log, underway.running(flow_id) as stop:
            runs.put(row)
            try:
                with stop.on_cancel(cancel):
                    return close(_FlowRun(self, flow_id, job, steps, halt, log, _kept(job, steps)).run())
            except BaseException as error:  # the engine's way to say that it was cancelled, or a bug
                failed = RuntimeFailed(Message("ended in the middle: {error}", error=error))
                close(error_result(failed, _AGENT, Lang(job.lang), NOTHING))
                raise


def _kept(job: Job, steps: DurableSteps) -> dict[str, Outcome]:
    """Return what succeeded in the attempt that this one resumes."""
    before = str(job.flow.get(AFTER) or "")
    given: Mapping[str, Any] = steps.ended_of(before) if before else {}
    return {
        name: outcome
        for name, outcome in given.items()
        if isinstance(outcome, dict) and outcome.get("state") in _OK and "run" in outcome
    }


class _FlowRun(NamedTuple):
    """One flow while it runs."""

    flows: Flows
    id: str
    job: Job
    steps: DurableSteps
    halt: threading.Event
    log: Log
    #: What an earlier attempt gave, by the names of steps and items.
    kept: dict[str, Outcome]

    def run(self) -> Result:
        lang = Lang(self.job.lang)
        try:
            workflow = self._read_workflow()
        except SkillError as error:
            return error_result(error, _AGENT, lang, NOTHING)
        ended: list[StepResult] = []
        for number, step in enumerate(workflow.steps, 1):
            if self.halt.is_set():
                break
            progress = FlowProgress(self.id, step.id, number, len(workflow.steps))
            self.flows.watch(progress)
            last = self._step(step, progress, ended)
            ended.append(last)
            kept = bool(self.kept) and not any(each["run"].startswith(f"{self.id}.") for _, each in last.runs)
            if not kept:
                self.kept.clear()  # what comes after a step that runs anew may see something new
            progress = progress._replace(state=last.state, seconds=last.seconds, summary=last.summary, kept=kept)
            if last.items is not None:
                progress = progress._replace(items=(len(last.runs), last.items))
            self.log.write(f"{progress.line(lang)}\n".encode())
            self.flows.watch(progress)
            if last.failed and not step.goes_on:
                break
        return _as_result(workflow.name, ended, lang, self.id)

    def _read_workflow(self) -> WorkflowFile:
        """Return the workflow that was started. Raise if its file has changed."""
        if broken := self.job.flow.get("broken"):
            raise WorkflowInvalid(str(broken))
        file = str(self.job.flow["file"])
        workflow = read_workflow(self.flows.root / file)
        if workflow.digest != self.job.flow["digest"]:
            raise WorkflowChanged(Message("{file} is not as it was when the flow was started", file=file))
        return workflow

    def _step(self, step: WorkflowStep, progress: FlowProgress, before: Sequence[StepResult]) -> StepResult:
        run_id = f"{self.id}.{progress.number}"
        offered: dict[str, Json] = {each.step.id: each.offer() for each in before}
        offered["inputs"] = self.job.params
        if step.for_each is None:
            only = self.steps.run(step.id, lambda: self._act(step, run_id, step.id, offered))
            return StepResult(step, ((0, only),), float(only["time"]))
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
            self.flows.watch(progress._replace(items=(len(ended), len(items)), seconds=time.monotonic() - began))
            return (outcome["state"] in _OK or step.goes_on) and not self.halt.is_set()

        acts = [lambda position=position, item=item: act(position, item) for position, item in enumerate(items)]
        runs = tuple(self.steps.run_each(step.id, acts, step.at_once, go_on))
        return StepResult(step, runs, time.monotonic() - began, len(items))

    def _act(self, step: WorkflowStep, run_id: str, named: str, offered: Mapping[str, Json]) -> Outcome:
        """Make one run with its retries. They are one step of the engine: half of a step is none."""
        if kept := self.kept.get(named):
            return kept
        try:
            job = self._job(step, named, offered)
        except SkillError as error:
            return self._refused(step, run_id, error)
        attempt = 1
        while True:
            run = run_id if attempt == 1 else f"{run_id}-{attempt}"
            result = self.flows.attempts.run(run, job._replace(attempt=attempt))
            if not may_pass(result) or attempt > step.retries or self.halt.wait(pause_seconds(run_id, attempt)):
                return _outcome(result, run)
            attempt += 1

    def _job(self, step: WorkflowStep, named: str, offered: Mapping[str, Json]) -> Job:
        """Return the step as a job, with its references filled in. Raise InvalidParam if one leads nowhere."""
        look, meant = _look(offered), dict[str, Any](self.job.flow)
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
        moment = datetime.now(UTC)
        meta = make_meta(_AGENT, 0.0, moment, run=run_id)
        result = error_result(error, _AGENT, Lang(self.job.lang), meta).as_dict()
        job = Job(skill=step.skill, name=self.id, first=self.id, step=step.id, lang=self.job.lang)
        self.flows.open_context().runs.put(job.as_row(run_id, moment.timestamp(), result))
        return _outcome(result, run_id)


def _look(offered: Mapping[str, Json]) -> Callable[[Reference], Json]:
    def look(reference: Reference) -> Json:
        try:
            return walk(offered[reference.name], reference.path)
        except LookupError as error:
            msg = Message("{shown} leads nowhere: {args}", shown=reference.shown, args=error.args[0])
            raise InvalidParam(msg) from None

    return look


def _items(step: WorkflowStep, offered: Mapping[str, Json]) -> list[Json]:
    items = fill(step.for_each, _look(offered))
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
    }


def _as_result(name: str, ended: Sequence[StepResult], lang: Lang, flow_id: str) -> Result:
    """Return one result for all steps."""
    data: dict[str, Json] = {"flow": name, "steps": [each.as_data() for each in ended]}
    succeeded = [each.named(at) for each in ended for at, run in each.runs if run["state"] in _OK]
    bad = [(each.named(at), run) for each in ended for at, run in each.failed]
    if not bad:
        result = ended[-1].offer().get("data") if ended else None
        return Result(
            _AGENT, State.SUCCESS, _DONE.render(lang, name=name, count=len(ended)), {**data, "result": result}
        )
    failed = [_failure(named, run) for named, run in bad]
    goes_on = _GOES_ON.render(lang, id=flow_id, step=bad[0][0])
    stopped = any(each.failed and not each.step.goes_on for each in ended)
    if succeeded and not stopped:
        summary = _PARTLY.render(lang, name=name, done=len(succeeded), total=len(succeeded) + len(failed))
        data = {"succeeded": succeeded, "failed": failed, **data}
        return Result(_AGENT, State.PARTIAL, summary, data, {"hint": goes_on})
    worst, run = (failed[-1], bad[-1][1]) if stopped else (failed[0], bad[0][1])
    summary = _FAILED.render(lang, type=worst["type"], step=worst["step"], msg=of_json(run.get("said") or worst["msg"]))
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
