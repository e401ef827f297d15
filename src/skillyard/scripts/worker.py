"""The worker agent (S1): runs the project's own bin/ scripts, one result for a call."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.fingerprint import hash_folder
from skillyard.core.envelope import read_envelope
from skillyard.core.errors import (
    InvalidArgs,
    NotGranted,
    OutputTooLarge,
    PermissionDenied,
    ScriptFailed,
    ScriptNotFound,
    SkillError,
    Timeout,
)
from skillyard.core.messages import PARTLY, PAUSED, RAN, RAN_ALL, Lang, Message
from skillyard.core.request import Outcome
from skillyard.core.result import Result, as_size, error_result, make_meta, meaningful
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json
from skillyard.runners.printed import as_printed
from skillyard.runners.process import PACKAGE, base_environment, quoted, usage_of
from skillyard.runners.toolchains import reach_of
from skillyard.runtime.cleanup import cleanup_of
from skillyard.runtime.guard import OnProgress, guard
from skillyard.runtime.paths import BOX
from skillyard.runtime.record import Recorder
from skillyard.sandbox.cancel_token import CancelToken
from skillyard.sandbox.launch import Exit, Launch, Mount, Sandbox, can_mount
from skillyard.sandbox.policy import Policy
from skillyard.scripts.deciders import Decider, Decision, checked
from skillyard.scripts.interrupt import Interrupt, Stamp, find_analysis, read_interrupt, stamp_of
from skillyard.scripts.worker_prompt import Order, parse_orders
from skillyard.store.copies import Copies, FolderCopy
from skillyard.store.runs import RUNNING, Run
from skillyard.trust.permit import Permit, make_box

AGENT = "worker_agent"
LIMIT_SECONDS = 300.0
#: What even our own scripts leave as it is.
_FIXED = (".git", "agents", "bin")


NO_CHANGES: Mapping[str, Sequence[str]] = {}


class Standing(NamedTuple):
    """How a script stands: ours to the byte, or the project's own, trusted or not."""

    ours: bool
    trusted: bool
    #: Paths by what happened to them since bin/ was trusted: added, changed, removed.
    changes: Mapping[str, Sequence[str]] = NO_CHANGES


class Worker(NamedTuple):
    """Everything that the worker needs, passed in."""

    sandbox: Sandbox
    recorder: Recorder
    root: Path
    own_home: Path
    new_id: Callable[[], str]
    #: The interpreter for the project's scripts, and the one for those that `init` wrote.
    python: Callable[[], str]
    own_python: str
    standing: Callable[[str, FolderCopy], Standing]
    copies: Copies
    decide: Decider | None = None
    lang: Lang = Lang.EN
    limit_seconds: float = LIMIT_SECONDS
    #: Whoever holds it can end the scripts.
    stop: CancelToken | None = None
    #: The job that the runs belong to, as `jobs.about` tells it.
    job: Mapping[str, Json] = NOTHING

    def run(self, prompt: str, on_progress: OnProgress = None) -> Result:
        """Every script of the prompt. Expected failures come back as results; bugs still raise."""
        started, moment = time.monotonic(), datetime.now(UTC)
        try:
            orders = parse_orders(prompt)
            for order in orders:
                self._check(order)
            copy = self._copy()
            for order in orders:
                self._demand(order, copy)
        except SkillError as error:
            return error_result(error, AGENT, self.lang, make_meta(AGENT, time.monotonic() - started, moment))
        results = [self._run(order, copy, on_progress) for order in orders]
        if len(results) == 1:
            return results[0]
        return _together(orders, results, self.lang, make_meta(AGENT, time.monotonic() - started, moment))

    def _check(self, order: Order) -> None:
        """The script is there, and really inside bin/."""
        path = self.root / order.script
        if ".." in Path(order.script).parts:
            raise PermissionDenied(Message("{script} leads out of bin/", script=order.script))
        if not path.exists() and not path.is_symlink():
            raise ScriptNotFound(order.script, details={"exception": "FileNotFoundError"})
        folder = (self.root / "bin").resolve()
        if path.is_symlink() or not path.resolve().is_relative_to(folder) or folder != self.root.resolve() / "bin":
            raise PermissionDenied(Message("{script} is a link out of bin/", script=order.script))
        if not path.is_file():
            raise ScriptNotFound(order.script, details={"exception": "IsADirectoryError"})

    def _copy(self) -> FolderCopy:
        """The private copy of bin/ as it is now: what is allowed on the strength of its bytes runs from it."""
        folder = self.root / "bin"
        return self.copies.find(hash_folder(folder)) or self.copies.make(folder)

    def _demand(self, order: Order, copy: FolderCopy) -> Standing:
        """Somebody allowed it: we ourselves, where it is ours, or a person who saw these bytes."""
        if not (copy.files / order.script.removeprefix("bin/")).is_file():
            raise ScriptNotFound(order.script, details={"exception": "FileNotFoundError"})
        standing = self.standing(order.script, copy)
        if not standing.ours and not standing.trusted:
            changes: dict[str, Json] = {change: list(paths) for change, paths in standing.changes.items()}
            raise NotGranted(
                Message("running {script}", script=order.script), "skillyard trust", details={"bin": changes}
            )
        return standing

    def _run(self, order: Order, copy: FolderCopy, on_progress: OnProgress) -> Result:
        started, moment, run_id = time.monotonic(), datetime.now(UTC), self.new_id()
        facts: dict[str, Json] = {"run": run_id}
        interrupts: list[Interrupt] = []
        try:
            outcome = self._start(order, copy, run_id, moment, facts, on_progress, interrupts)
        except SkillError as error:
            meta = make_meta(AGENT, time.monotonic() - started, moment, **facts)
            return error_result(error, AGENT, self.lang, meta)
        result = outcome.as_result(AGENT, self.lang, time.monotonic() - started, moment, **facts)
        return self._decided(result, interrupts[0], on_progress) if interrupts else result

    def _start(
        self,
        order: Order,
        copy: FolderCopy,
        run_id: str,
        moment: datetime,
        facts: dict[str, Json],
        on_progress: OnProgress,
        interrupts: list[Interrupt],
    ) -> Outcome:
        """An interrupt of the script is added to `interrupts`: its file is read once, since any run can replace it."""
        standing = self._demand(order, copy)
        make_box(self.root)
        launch = self._launch(order, standing, copy)
        run = Run(
            id=run_id,
            agent=AGENT,
            skill=order.script,
            kind="bin",
            state=RUNNING,
            started=moment.timestamp(),
            job=str(self.job.get("label", "")),
            request={"script": order.script, "args": list(order.args), **({"job": self.job} if self.job else {})},
        )
        before = stamp_of(self.root)
        with self.recorder.recording(run, self.lang) as record:
            permit, cleanup = self._permit(launch, standing, copy), cleanup_of(self.root, ())
            guarded = guard(self.sandbox, permit, record, on_progress, stop=self.stop, cleanup=cleanup)
            try:
                return record.keep(
                    lambda: self._outcome(order, guarded(launch), before, interrupts, ours=standing.ours)
                )
            finally:
                facts |= record.facts

    def _launch(self, order: Order, standing: Standing, copy: FolderCopy) -> Launch:
        python = self.own_python if standing.ours else self.python()
        env = base_environment()
        if standing.ours:
            env |= {"SKILLYARD_HOME": str(self.own_home), "SKILLYARD_LANG": str(self.lang)}
        # -I: nothing that lies beside a script of ours can be imported in place of what it means.
        is_at_its_path = not standing.ours and can_mount(self.sandbox)
        script = order.script if is_at_its_path else str(copy.files / order.script.removeprefix("bin/"))
        argv = (python, *(("-I",) if standing.ours else ()), script, *order.args)
        return Launch(argv=argv, cwd=self.root, env=env, limit_seconds=self.limit_seconds)

    def _permit(self, launch: Launch, standing: Standing, copy: FolderCopy) -> Permit:
        """The project's scripts read the project and write mybox/; ours may also install skills."""
        root = self.root.resolve()
        read = (root, *reach_of(Path(launch.argv[0])).known)
        home, files = self.own_home.resolve(), copy.files.resolve()
        if not standing.ours and can_mount(self.sandbox):
            mounts = (Mount(files, root / "bin"),)
            return Permit(Policy(read=read, write=(root / BOX,), hide=(home, self.copies.home), mounts=mounts))
        if not standing.ours:  # started from the copy, and bin/ itself, which nobody may have seen, is out of reach
            return Permit(Policy(read=(*read, files), write=(root / BOX,), hide=(home, root / "bin")))
        # A skill is swapped in by renames between .skillyard/, .claude/skills/ and the root: that needs one mount.
        home.mkdir(parents=True, exist_ok=True)
        fixed = [path for name in _FIXED if (path := root / name).exists() and not path.is_symlink()]
        return Permit(Policy(read=(*read, PACKAGE, files, *fixed), write=(root, home)))

    def _outcome(self, order: Order, ended: Exit, before: Stamp, interrupts: list[Interrupt], *, ours: bool) -> Outcome:
        stdout, stderr = (b"" if order.drop_stdout else ended.stdout), (b"" if order.drop_stderr else ended.stderr)
        text = ended.stdout.decode("utf-8", "replace")
        if not ended.timed_out and (interrupt := read_interrupt(self.root, before, text, ours=ours)):
            interrupts.append(interrupt)
            return Outcome(
                data=interrupt.as_data(),
                says=PAUSED,
                words={"count": len(interrupt.skills)},
                state=State.INTERRUPTED,
            )
        _check_exit(order, ended, stdout, stderr, self.limit_seconds)
        printed = as_printed(stdout + stderr if order.join_stderr else stdout, ours=ours)
        data = printed.data
        if analysis := find_analysis(text):
            data["analysis_prompt"] = analysis
        state = printed.state or State.SUCCESS
        return Outcome(data=data, says=RAN, words={"label": order.script}, summary=printed.summary, state=state)

    def _decided(self, result: Result, interrupt: Interrupt, on_progress: OnProgress) -> Result:
        """Decide by ourselves where somebody can, and go on; else the raw state goes to the caller."""
        if self.decide is None or not interrupt.resume_command.startswith("python"):
            return result
        decisions = checked(interrupt, dict(self.decide(interrupt)))
        if set(decisions) != set(interrupt.skills):
            return result
        resumed = self._resume(interrupt, decisions, on_progress)
        if not resumed.ok:
            return resumed
        told: dict[str, Json] = {name: str(decision) for name, decision in decisions.items()}
        return resumed._replace(data={**resumed.data, "llm_decisions": told, "resumed": True})

    def _resume(self, interrupt: Interrupt, decisions: Mapping[str, Decision], on_progress: OnProgress) -> Result:
        """The interrupt's own command, which can only be one of ours, with the decisions as one argument."""
        (order,) = parse_orders(interrupt.resume_command)
        words = {name: str(decision) for name, decision in decisions.items()}
        args = tuple(word for word in order.args if word not in {"--decisions", "{decisions}"})
        self._check(order)
        told = json.dumps(words, ensure_ascii=False)
        return self._run(order._replace(args=(*args, "--decisions", told)), self._copy(), on_progress)


def _check_exit(order: Order, ended: Exit, stdout: bytes, stderr: bytes, limit: float) -> None:
    if ended.timed_out:
        raise Timeout(order.script, meaningful(ended.seconds), limit, noun="script")
    if ended.overflowed:
        raise OutputTooLarge(
            Message("more than {count} on stdout", count=as_size(len(ended.stdout))),
            limit=as_size(len(ended.stdout)),
            log="skillyard runs",
        )
    if ended.code == 0 or _is_envelope(stdout):
        return
    if usage := usage_of(ended):
        raise InvalidArgs(usage.splitlines()[-1], details={"usage": usage, "exit_code": ended.code})
    reason = quoted(stderr) or quoted(stdout) or Message("exit code {code}", code=ended.code)
    raise ScriptFailed(reason, details={"script": order.script, "exit_code": ended.code}, log="skillyard runs")


def _is_envelope(stdout: bytes) -> bool:
    try:
        read_envelope(stdout.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


def _together(orders: tuple[Order, ...], results: list[Result], lang: Lang, meta: Mapping[str, Json]) -> Result:
    """Several scripts, one result: partial where some failed, an error where all did."""
    names = [Path(order.script).name for order in orders]
    done = [name for name, result in zip(names, results, strict=True) if result.ok]
    failed = [name for name, result in zip(names, results, strict=True) if not result.ok]
    if not done:
        first = next(result for result in results if not result.ok)
        data = {**first.data, "succeeded": [], "failed": list(failed)}
        return Result(agent=AGENT, state=State.ERROR, summary=first.summary, data=data, meta={**meta, **_hint(first)})
    words = {"done": len(done), "total": len(names)}
    says, state = (PARTLY, State.PARTIAL) if failed else (RAN_ALL, State.SUCCESS)
    data = {"succeeded": list(done), "failed": list(failed)}
    return Result(agent=AGENT, state=state, summary=says.render(lang, **words), data=data, meta=meta)


def _hint(result: Result) -> dict[str, Json]:
    return {"hint": result.meta["hint"]} if "hint" in result.meta else {}
