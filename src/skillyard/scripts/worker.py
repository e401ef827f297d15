"""The worker agent: runs the project's own bin/ scripts, with one result for a call. See docs/spec/worker.md."""

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
from skillyard.runners.interpreters import reach_of
from skillyard.runners.leftovers import BOX, cleanup_of
from skillyard.runners.process import PACKAGE, as_printed, base_environment, quoted, usage_of
from skillyard.runtime.prepare import make_box
from skillyard.runtime.record import OnProgress, RecordedSandbox, Recorder
from skillyard.sandbox.cancel_token import CancelToken
from skillyard.sandbox.launch import Exit, Launch, Sandbox, can_mount
from skillyard.sandbox.policy import Mount, Policy
from skillyard.scripts.interrupt import (
    Decider,
    Decision,
    Interrupt,
    Stamp,
    check_decisions,
    find_analysis,
    read_interrupt,
    stamp_of,
)
from skillyard.scripts.prompt_grammar import ScriptCall, parse_script_calls
from skillyard.store.copies import Copies, FolderCopy
from skillyard.store.runs import RUNNING, Run

AGENT = "worker_agent"
LIMIT_SECONDS = 300.0
#: What even our own scripts leave as it is.
_FIXED = (".git", "agents", "bin")


class ScriptTrust(NamedTuple):
    """Whether a script is ours to the byte, or the project's own, trusted or not."""

    ours: bool
    trusted: bool
    #: Paths by what happened to them since bin/ was trusted: added, changed, removed.
    changes: Mapping[str, Sequence[str]]


class Worker(NamedTuple):
    """Runs scripts with everything that it needs passed in."""

    sandbox: Sandbox
    recorder: Recorder
    root: Path
    own_home: Path
    new_id: Callable[[], str]
    #: The interpreter for the project's scripts, and the one for those that `init` wrote.
    python: Callable[[], str]
    own_python: str
    trust_of: Callable[[str, FolderCopy], ScriptTrust]
    copies: Copies
    decide: Decider | None = None
    lang: Lang = Lang.EN
    limit_seconds: float = LIMIT_SECONDS
    #: Ends the scripts when it is cancelled.
    stop: CancelToken | None = None
    #: The job that the runs belong to, as `Job.about` tells it.
    job: Mapping[str, Json] = NOTHING

    def run(self, prompt: str, on_progress: OnProgress = None) -> Result:
        """Run every script of the prompt. Expected failures come back as results; bugs still raise."""
        started, moment = time.monotonic(), datetime.now(UTC)
        try:
            calls = parse_script_calls(prompt)
            for call in calls:
                self._check(call)
            copy = self._copy()
            for call in calls:
                self._demand(call, copy)
        except SkillError as error:
            return error_result(error, AGENT, self.lang, make_meta(AGENT, time.monotonic() - started, moment))
        results = [self._run(call, copy, on_progress) for call in calls]
        if len(results) == 1:
            return results[0]
        return _together(calls, results, self.lang, make_meta(AGENT, time.monotonic() - started, moment))

    def _check(self, call: ScriptCall) -> None:
        """Raise unless the script exists, and really inside bin/."""
        path = self.root / call.script
        if ".." in Path(call.script).parts:
            raise PermissionDenied(Message("{script} leads out of bin/", script=call.script))
        if not path.exists() and not path.is_symlink():
            raise ScriptNotFound(call.script, details={"exception": "FileNotFoundError"})
        folder = (self.root / "bin").resolve()
        if path.is_symlink() or not path.resolve().is_relative_to(folder) or folder != self.root.resolve() / "bin":
            raise PermissionDenied(Message("{script} is a link out of bin/", script=call.script))
        if not path.is_file():
            raise ScriptNotFound(call.script, details={"exception": "IsADirectoryError"})

    def _copy(self) -> FolderCopy:
        """Return the private copy of bin/ as it is now: a script runs from the very bytes that were trusted."""
        folder = self.root / "bin"
        return self.copies.find(hash_folder(folder)) or self.copies.make(folder)

    def _demand(self, call: ScriptCall, copy: FolderCopy) -> ScriptTrust:
        """Raise NotGranted unless the script is ours, or a person trusted these bytes."""
        if not (copy.files / call.script.removeprefix("bin/")).is_file():
            raise ScriptNotFound(call.script, details={"exception": "FileNotFoundError"})
        trust = self.trust_of(call.script, copy)
        if not trust.ours and not trust.trusted:
            changes: dict[str, Json] = {change: list(paths) for change, paths in trust.changes.items()}
            raise NotGranted(
                Message("running {script}", script=call.script), "skillyard trust", details={"bin": changes}
            )
        return trust

    def _run(self, call: ScriptCall, copy: FolderCopy, on_progress: OnProgress) -> Result:
        started, moment, run_id = time.monotonic(), datetime.now(UTC), self.new_id()
        interrupts: list[Interrupt] = []
        try:
            result = self._start(call, copy, run_id, moment, on_progress, interrupts)
        except SkillError as error:
            meta = make_meta(AGENT, time.monotonic() - started, moment, run=run_id)
            return error_result(error, AGENT, self.lang, meta)
        return self._decided(result, interrupts[0], on_progress) if interrupts else result

    def _start(
        self,
        call: ScriptCall,
        copy: FolderCopy,
        run_id: str,
        moment: datetime,
        on_progress: OnProgress,
        interrupts: list[Interrupt],
    ) -> Result:
        """Run the script. Its interrupt goes to `interrupts`: any run can replace its file, so it is read once."""
        trust = self._demand(call, copy)
        make_box(self.root)
        launch = self._launch(call, trust, copy)
        run = Run(
            id=run_id,
            agent=AGENT,
            skill=call.script,
            kind="bin",
            state=RUNNING,
            started=moment.timestamp(),
            job=str(self.job.get("label", "")),
            request={"script": call.script, "args": list(call.args), **({"job": self.job} if self.job else {})},
        )
        before = stamp_of(self.root)
        started = time.monotonic()
        with self.recorder.recording(run) as record:
            sandbox = RecordedSandbox(self.sandbox, record, cleanup_of(self.root, ()), on_progress, self.stop)
            try:
                ended = sandbox(launch._replace(policy=self._policy(launch, trust, copy)))
                outcome = self._outcome(call, ended, before, interrupts, ours=trust.ours)
                result = outcome.as_result(AGENT, self.lang, time.monotonic() - started, moment, **record.facts)
            except SkillError as error:
                meta = make_meta(AGENT, time.monotonic() - started, moment, **record.facts)
                result = error_result(error, AGENT, self.lang, meta)
            record.settle(result)
        return result

    def _launch(self, call: ScriptCall, trust: ScriptTrust, copy: FolderCopy) -> Launch:
        python = self.own_python if trust.ours else self.python()
        env = base_environment()
        if trust.ours:
            env |= {"SKILLYARD_HOME": str(self.own_home), "SKILLYARD_LANG": str(self.lang)}
        # -I: nothing that lies beside a script of ours can be imported in place of what it means.
        is_at_its_path = not trust.ours and can_mount(self.sandbox)
        script = call.script if is_at_its_path else str(copy.files / call.script.removeprefix("bin/"))
        argv = (python, *(("-I",) if trust.ours else ()), script, *call.args)
        return Launch(argv=argv, cwd=self.root, env=env, limit_seconds=self.limit_seconds)

    def _policy(self, launch: Launch, trust: ScriptTrust, copy: FolderCopy) -> Policy:
        """Let the project's scripts read the project and write mybox/; ours may also install skills."""
        root = self.root.resolve()
        read = (root, *reach_of(Path(launch.argv[0])).known)
        home, files = self.own_home.resolve(), copy.files.resolve()
        if not trust.ours and can_mount(self.sandbox):
            mounts = (Mount(files, root / "bin"),)
            return Policy(read=read, write=(root / BOX,), hide=(home, self.copies.home), mounts=mounts)
        if not trust.ours:  # started from the copy, and bin/ itself, which nobody may have seen, is out of reach
            return Policy(read=(*read, files), write=(root / BOX,), hide=(home, root / "bin"))
        # A skill is swapped in by renames between .skillyard/, .claude/skills/ and the root: that needs one mount.
        home.mkdir(parents=True, exist_ok=True)
        fixed = [path for name in _FIXED if (path := root / name).exists() and not path.is_symlink()]
        return Policy(read=(*read, PACKAGE, files, *fixed), write=(root, home))

    def _outcome(
        self, call: ScriptCall, ended: Exit, before: Stamp, interrupts: list[Interrupt], *, ours: bool
    ) -> Outcome:
        stdout, stderr = (b"" if call.drop_stdout else ended.stdout), (b"" if call.drop_stderr else ended.stderr)
        text = ended.stdout.decode("utf-8", "replace")
        if not ended.timed_out and (interrupt := read_interrupt(self.root, before, text, ours=ours)):
            interrupts.append(interrupt)
            words = {"count": len(interrupt.skills)}
            return Outcome(data=interrupt.as_data(), says=PAUSED, words=words, state=State.INTERRUPTED)
        _check_exit(call, ended, stdout, stderr, self.limit_seconds)
        printed = as_printed(stdout + stderr if call.join_stderr else stdout, ours=ours)
        data = printed.data
        if analysis := find_analysis(text):
            data["analysis_prompt"] = analysis
        state = printed.state or State.SUCCESS
        return Outcome(data=data, says=RAN, words={"label": call.script}, summary=printed.summary, state=state)

    def _decided(self, result: Result, interrupt: Interrupt, on_progress: OnProgress) -> Result:
        """Decide and resume if there is a decider; otherwise return the interrupted state to the caller."""
        if self.decide is None or not interrupt.resume_command.startswith("python"):
            return result
        decisions = check_decisions(interrupt, dict(self.decide(interrupt)))
        if set(decisions) != set(interrupt.skills):
            return result
        resumed = self._resume(interrupt, decisions, on_progress)
        if not resumed.ok:
            return resumed
        return resumed._replace(data={**resumed.data, "llm_decisions": _as_words(decisions), "resumed": True})

    def _resume(self, interrupt: Interrupt, decisions: Mapping[str, Decision], on_progress: OnProgress) -> Result:
        """Run the interrupt's own command, a script of bin/, with the decisions as one argument."""
        (call,) = parse_script_calls(interrupt.resume_command)
        self._check(call)
        args = tuple(word for word in call.args if word not in {"--decisions", "{decisions}"})
        words = json.dumps(_as_words(decisions), ensure_ascii=False)
        return self._run(call._replace(args=(*args, "--decisions", words)), self._copy(), on_progress)


def _as_words(decisions: Mapping[str, Decision]) -> dict[str, Json]:
    return {name: str(decision) for name, decision in decisions.items()}


def _check_exit(call: ScriptCall, ended: Exit, stdout: bytes, stderr: bytes, limit: float) -> None:
    if ended.timed_out:
        raise Timeout(call.script, meaningful(ended.seconds), limit, noun="script")
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
    raise ScriptFailed(reason, details={"script": call.script, "exit_code": ended.code}, log="skillyard runs")


def _is_envelope(stdout: bytes) -> bool:
    try:
        read_envelope(stdout.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


def _together(calls: tuple[ScriptCall, ...], results: list[Result], lang: Lang, meta: Mapping[str, Json]) -> Result:
    """Return one result for several scripts: partial if some failed, an error if all did."""
    names = [Path(call.script).name for call in calls]
    done = [name for name, result in zip(names, results, strict=True) if result.ok]
    failed = [name for name, result in zip(names, results, strict=True) if not result.ok]
    if not done:
        first = next(result for result in results if not result.ok)
        hint = {"hint": first.meta["hint"]} if "hint" in first.meta else {}
        data = {**first.data, "succeeded": [], "failed": list(failed)}
        return Result(agent=AGENT, state=State.ERROR, summary=first.summary, data=data, meta={**meta, **hint})
    words = {"done": len(done), "total": len(names)}
    says, state = (PARTLY, State.PARTIAL) if failed else (RAN_ALL, State.SUCCESS)
    data = {"succeeded": list(done), "failed": list(failed)}
    return Result(agent=AGENT, state=state, summary=says.render(lang, **words), data=data, meta=meta)
