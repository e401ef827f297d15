"""A flow: the steps of a workflow, one after the other, each remembered by the engine once it ended.

Each step, and each item of one with `for_each`, is a run of its own through the one pipeline. Promised: a step that
ended is never repeated, whoever dies; one that was under way is run again, under the same run id. A flow that failed
and is tried again goes on with its first step that failed: what came before it, and its items that succeeded, are kept.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from skillyard.catalog.flowfile import WorkflowFile, WorkflowStep
from skillyard.catalog.references import Reference, as_text, fill, walk
from skillyard.core.errors import InvalidParam, RuntimeFailed, SkillError, WorkflowChanged, WorkflowInvalid
from skillyard.core.messages import Lang, Message, as_json, of_json
from skillyard.core.result import Result, error_result, make_meta
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json
from skillyard.jobs.attempt import Attempts, Bench
from skillyard.jobs.engine import Steps
from skillyard.jobs.jobs import AFTER, Job, about, as_row, cancelled_result, may_pass, pause_seconds
from skillyard.store.runs import RUNNING, Log, Logs, Run

#: A list for `for_each` may have so many items.
MAX_ITEMS = 10_000
_AGENT = "skills"
_NESTED = (list, tuple, Mapping)
_OK = frozenset({"success", "partial"})
_DONE = Message("workflow done: {name}, {count} steps")
_PARTLY = Message("partly done: {name}, {done} of {total} succeeded")
_GOES_ON = Message("`skillyard jobs retry {id}` goes on with {step}")
_ITEMS = Message(" {done}/{total} items")
_KEPT, _RUNS = Message("kept"), Message("runs")
_FAILED = Message("{type}: step {step}: {msg}")


class Meant(NamedTuple):
    """What a flow was started from: it runs that, or nothing."""

    file: str
    digest: str
    #: The content of each skill, by the name that the steps call it by.
    skills: Mapping[str, str]
    #: Those of them that are commands, and so take nothing but texts.
    commands: tuple[str, ...] = ()
    #: The ids of the steps, for those who look on.
    steps: tuple[str, ...] = ()

    def as_mapping(self) -> dict[str, Json]:
        fields: dict[str, Json] = self._asdict()
        return {**fields, "commands": list(self.commands), "steps": list(self.steps)}

    @classmethod
    def from_mapping(cls, said: Mapping[str, Any]) -> "Meant":
        known = {name: value for name, value in said.items() if name in cls._fields}
        return cls(**{**known, "commands": tuple(said["commands"]), "steps": tuple(said["steps"])})


class Told(NamedTuple):
    """How far a flow has come."""

    flow: str
    step: str
    number: int
    of: int
    #: Items that ended, and how many there are; 0 of 0 for a step without any.
    items: tuple[int, int] = (0, 0)
    #: Nothing while the step goes on.
    state: str = ""
    seconds: float = 0.0
    summary: str = ""
    #: Nothing of it ran: an earlier attempt did it.
    kept: bool = False

    def line(self, lang: Lang) -> str:
        items = _ITEMS.render(lang, done=self.items[0], total=self.items[1]) if self.items[1] else ""
        failed = f": {self.summary}" if self.state not in {*_OK, ""} else ""
        took = _KEPT.render(lang) if self.kept else f"{self.seconds:.2f}s"
        state = self.state or _RUNS.render(lang)
        return f"{self.number}/{self.of} {self.step}:{items} {state} ({took}){failed}"


Watch = Callable[[Told], None]
Outcome = dict[str, Any]


class Ended(NamedTuple):
    """What came of one step: of its only run, or of all its items."""

    step: WorkflowStep
    number: int
    runs: tuple[tuple[int, Outcome], ...]
    #: How many items there were; None for a step that runs once, or whose list was none.
    items: int | None = None
    #: What the items took together, here: several run at a time, and some may have ended before a crash.
    took: float = 0.0

    @property
    def has_items(self) -> bool:
        return self.items is not None

    @property
    def failed(self) -> tuple[tuple[int, Outcome], ...]:
        return tuple((at, each) for at, each in self.runs if each["state"] not in _OK)

    @property
    def state(self) -> str:
        if not self.failed:
            return "success"
        if not self.has_items:
            return str(self.runs[0][1]["state"])
        return "partial" if len(self.failed) < len(self.runs) else "error"

    @property
    def seconds(self) -> float:
        return self.took if self.has_items else float(self.runs[0][1]["time"])

    def is_kept(self, flow_id: str) -> bool:
        """Whether an earlier attempt did all of it."""
        return not any(each["run"].startswith(f"{flow_id}.") for _, each in self.runs)

    def named(self, position: int) -> str:
        return f"{self.step.id}[{position}]" if self.has_items else self.step.id

    def offer(self) -> dict[str, Json]:
        """What later steps can refer to: for items a list of those that succeeded."""
        good = [each for _, each in self.runs if each["state"] in _OK]
        if self.has_items:
            told: dict[str, Json] = {name: [each[name] for each in good] for name in ("data", "summary", "run")}
            return {**told, "state": self.state}
        only = self.runs[0][1]
        told = {name: only[name] for name in ("state", "summary", "run")}
        return {**told, "data": only["data"]} if good else told

    def as_data(self) -> dict[str, Json]:
        summary = self.failed[0][1]["summary"] if self.failed else self.runs[0][1]["summary"] if self.runs else ""
        told: dict[str, Json] = {"id": self.step.id, "state": self.state, "time": round(self.seconds, 3)}
        if self.has_items:
            return {**told, "items": self.items, "failed": len(self.failed), "summary": summary}
        return {**told, "run": self.runs[0][1]["run"], "summary": summary}


class Flows:
    """Does the jobs that are flows. Any number of threads may call it at once."""

    def __init__(
        self,
        attempts: Attempts,
        bench: Callable[[], Bench],
        logs: Logs,
        read: Callable[[str], WorkflowFile],
        watch: Watch = lambda _: None,
    ) -> None:
        self._attempts, self._bench, self._logs, self._read, self._watch = attempts, bench, logs, read, watch

    def __call__(self, flow_id: str, job: Job, steps: Steps) -> dict[str, Json]:
        runs = self._bench().runs
        started, moment = time.monotonic(), datetime.now(UTC)
        row = _row(flow_id, job, moment.timestamp())
        halt = threading.Event()

        def close(result: Result) -> dict[str, Json]:
            seconds = time.monotonic() - started
            meta = make_meta(_AGENT, seconds, moment, run=flow_id)
            told = cancelled_result(job) if halt.is_set() else result._replace(meta={**meta, **result.meta}).as_dict()
            runs.put(row._replace(state=str(told["state"]), seconds=seconds, result=told))
            return told

        with self._logs.open(flow_id) as log, self._attempts.underway.running(flow_id) as stop:
            runs.put(row)
            try:
                with stop.on_cancel(lambda: self._halt(flow_id, halt)):
                    return close(self._done(_Flow(flow_id, job, steps, halt, log, _kept(job, steps))))
            except BaseException as error:  # the engine's way to say that it was cancelled, or a bug
                close(
                    error_result(
                        RuntimeFailed(Message("ended in the middle: {error}", error=error)),
                        _AGENT,
                        Lang(job.lang),
                        NOTHING,
                    )
                )
                raise

    def _halt(self, flow_id: str, halt: threading.Event) -> None:
        halt.set()
        for run_id in self._attempts.underway.list():
            if run_id.startswith(f"{flow_id}."):
                self._attempts.underway.stop(run_id)

    def _done(self, flow: "_Flow") -> Result:
        try:
            workflow = self._meant(flow.job)
        except SkillError as error:
            return error_result(error, _AGENT, Lang(flow.job.lang), NOTHING)
        ended: list[Ended] = []
        for number, step in enumerate(workflow.steps, 1):
            if flow.halt.is_set():
                break
            self._tell(flow, Told(flow.id, step.id, number, len(workflow.steps)))
            ended.append(self._step(flow, step, number, len(workflow.steps), ended))
            last = ended[-1]
            kept = bool(flow.kept) and last.is_kept(flow.id)
            if not kept:
                flow.kept.clear()  # what comes after a step that runs anew may see something new
            items = (len(last.runs), last.items or 0) if last.has_items else (0, 0)
            summary = str(last.as_data()["summary"])
            self._tell(
                flow,
                Told(flow.id, step.id, number, len(workflow.steps), items, last.state, last.seconds, summary, kept),
            )
            if last.failed and not step.goes_on:
                break
        return _result(workflow, ended, Lang(flow.job.lang), flow.id)

    def _meant(self, job: Job) -> WorkflowFile:
        """The very file that was started, or why not."""
        if broken := job.flow.get("broken"):
            raise WorkflowInvalid(str(broken))
        meant = Meant.from_mapping(job.flow)
        workflow = self._read(meant.file)
        if workflow.digest != meant.digest:
            raise WorkflowChanged(Message("{file} is not as it was when the flow was started", file=meant.file))
        return workflow

    def _tell(self, flow: "_Flow", told: Told) -> None:
        if told.state:
            flow.log.write(f"{told.line(Lang(flow.job.lang))}\n".encode())
        self._watch(told)

    def _step(self, flow: "_Flow", step: WorkflowStep, number: int, of: int, before: Sequence[Ended]) -> Ended:
        offered: dict[str, Json] = {each.step.id: each.offer() for each in before}
        offered["inputs"] = flow.job.params
        if step.for_each is None:
            only = flow.steps.once(step.id, lambda: self._act(flow, step, f"{flow.id}.{number}", step.id, offered))
            return Ended(step, number, ((0, only),))
        try:
            items = _items(step, offered)
        except SkillError as error:
            return Ended(step, number, ((0, self._refused(flow, step, f"{flow.id}.{number}", error)),))
        began = time.monotonic()
        ended: list[Outcome] = []

        def act(position: int, item: Json) -> Outcome:
            run_id, named = f"{flow.id}.{number}.{position}", f"{step.id}[{position}]"
            return self._act(flow, step, run_id, named, {**offered, "item": item, "index": position})

        def go_on(outcome: Outcome) -> bool:
            ended.append(outcome)
            seconds = time.monotonic() - began
            self._watch(Told(flow.id, step.id, number, of, (len(ended), len(items)), "", seconds))
            return (outcome["state"] in _OK or step.goes_on) and not flow.halt.is_set()

        acts = [lambda position=position, item=item: act(position, item) for position, item in enumerate(items)]
        runs = tuple(flow.steps.each(step.id, acts, step.at_once, go_on))
        return Ended(step, number, runs, len(items), time.monotonic() - began)

    def _act(self, flow: "_Flow", step: WorkflowStep, run_id: str, named: str, offered: Mapping[str, Json]) -> Outcome:
        """One run with its retries. The attempts share what is remembered: half of a step is none."""
        if kept := flow.kept.get(named):
            return kept
        try:
            job = self._job(flow, step, named, offered)
        except SkillError as error:
            return self._refused(flow, step, run_id, error)
        attempt = 1
        while True:
            run = run_id if attempt == 1 else f"{run_id}-{attempt}"
            result = self._attempts.run(run, job._replace(attempt=attempt))
            if not may_pass(result) or attempt > step.retries or flow.halt.wait(pause_seconds(run_id, attempt)):
                return _outcome(result, run)
            attempt += 1

    def _job(self, flow: "_Flow", step: WorkflowStep, named: str, offered: Mapping[str, Json]) -> Job:
        """The step as a job: what it refers to is filled in. InvalidParam where that is not there."""
        look = _look(offered)
        meant = Meant.from_mapping(flow.job.flow)
        filled: Any = fill(step.params, look)
        given = {name: value for name, value in filled.items() if value is not None}
        if step.skill in meant.commands:
            given = {name: as_text(value) if isinstance(value, _NESTED) else value for name, value in given.items()}
        return Job(
            skill=step.skill,
            name=flow.id,
            args=tuple(as_text(fill(word, look)) for word in step.args),
            params=given,
            action=step.action,
            timeout_seconds=step.timeout_seconds,
            retries=step.retries,
            fingerprint=meant.skills.get(step.skill, ""),
            lang=flow.job.lang,
            first=flow.id,
            step=named,
        )

    def _refused(self, flow: "_Flow", step: WorkflowStep, run_id: str, error: SkillError) -> Outcome:
        """A run that never started has its row too."""
        lang, moment = Lang(flow.job.lang), datetime.now(UTC)
        result = error_result(error, _AGENT, lang, make_meta(_AGENT, 0.0, moment, run=run_id)).as_dict()
        job = Job(skill=step.skill, name=flow.id, first=flow.id, step=step.id, lang=flow.job.lang)
        self._bench().runs.put(as_row(run_id, job, moment.timestamp(), result))
        return _outcome(result, run_id)


class _Flow(NamedTuple):
    """One flow while it runs."""

    id: str
    job: Job
    steps: Steps
    halt: threading.Event
    log: Log
    #: What an earlier attempt gave, by the names of steps and items.
    kept: dict[str, Outcome]


def _kept(job: Job, steps: Steps) -> dict[str, Outcome]:
    """What succeeded in the attempt that this one goes on with."""
    before = str(job.flow.get(AFTER) or "")
    given: Mapping[str, Any] = steps.ended_of(before) if before else {}
    return {
        name: outcome
        for name, outcome in given.items()
        if isinstance(outcome, dict) and outcome.get("state") in _OK and "run" in outcome
    }


def _look(offered: Mapping[str, Json]) -> Callable[[Reference], Json]:
    def look(reference: Reference) -> Json:
        try:
            return walk(offered[reference.name], reference.path)
        except LookupError as error:
            raise InvalidParam(
                Message("{shown} leads nowhere: {args}", shown=reference.shown, args=error.args[0])
            ) from None

    return look


def _items(step: WorkflowStep, offered: Mapping[str, Json]) -> list[Json]:
    items = fill(step.for_each, _look(offered))
    if not isinstance(items, list | tuple):
        raise InvalidParam(Message("for_each takes a list, not {items!r}", items=str(items)[:80]))
    if len(items) > MAX_ITEMS:
        raise InvalidParam(
            Message("for_each takes at most {max_items} items, not {count}", max_items=MAX_ITEMS, count=len(items))
        )
    return list(items)


def _outcome(result: Mapping[str, Any], run_id: str) -> Outcome:
    """What is remembered of a run."""
    kept: Outcome = {key: result[key] for key in ("state", "summary", "data")}
    meta = result.get("meta") or {}
    told = {name: meta.get(name, "") for name in ("code", "hint")}
    said = result["data"].get("msg") if isinstance(result["data"], Mapping) else None
    return {**kept, "run": run_id, "time": meta.get("time", 0.0), **told, "said": as_json(said) if said else ""}


def _result(workflow: WorkflowFile, ended: Sequence[Ended], lang: Lang, flow_id: str) -> Result:
    """One envelope for all of them."""
    succeeded: list[str] = []
    failed: list[dict[str, Json]] = []
    for each in ended:
        succeeded += [each.named(at) for at, run in each.runs if run["state"] in _OK]
        failed += [_failure(each.named(at), run) for at, run in each.failed]
    data: dict[str, Json] = {"flow": workflow.name, "steps": [each.as_data() for each in ended]}
    if not failed:
        result = ended[-1].offer().get("data") if ended else None
        summary = _DONE.render(lang, name=workflow.name, count=len(ended))
        return Result(_AGENT, State.SUCCESS, summary, {**data, "result": result})
    stopped = any(each.failed and not each.step.goes_on for each in ended)
    if succeeded and not stopped:
        total = len(succeeded) + len(failed)
        summary = _PARTLY.render(lang, name=workflow.name, done=len(succeeded), total=total)
        meta: dict[str, Json] = {"hint": _GOES_ON.render(lang, id=flow_id, step=failed[0]["step"])}
        return Result(_AGENT, State.PARTIAL, summary, {"succeeded": succeeded, "failed": failed, **data}, meta)
    worst = failed[-1] if stopped else failed[0]
    run = next((run for each in ended for _, run in each.failed if run["run"] == worst["run"]), {})
    said = of_json(run.get("said") or worst["msg"])
    summary = _FAILED.render(lang, type=worst["type"], step=worst["step"], msg=said)
    told = {key: worst[key] for key in ("type", "msg", "recoverable", "step", "run")}
    goes_on = _GOES_ON.render(lang, id=flow_id, step=failed[0]["step"])
    meta = {"code": run.get("code", ""), "hint": "; ".join(filter(None, (run.get("hint"), goes_on)))}
    return Result(_AGENT, State.ERROR, summary, {**told, **data, "succeeded": succeeded, "failed": failed}, meta)


def _failure(named: str, run: Outcome) -> dict[str, Json]:
    """A failure by its type; a time limit, whose data is figures, and a state that nobody can answer get one too."""
    data: Mapping[str, Json] = run["data"] if isinstance(run["data"], Mapping) else NOTHING
    return {
        "step": named,
        "type": data.get("type") or ("Timeout" if run["state"] == "timeout" else "RuntimeFailed"),
        "msg": data.get("msg") or run["summary"],
        "recoverable": data.get("recoverable"),
        "run": run["run"],
    }


def _row(flow_id: str, job: Job, started: float) -> Run:
    return Run(
        id=flow_id,
        agent=_AGENT,
        skill=job.skill,
        kind="flow",
        state=RUNNING,
        started=started,
        job=job.label,
        request={"name": job.skill, "params": dict(job.params), "job": about(job)},
    )
