"""The worker agent: runs the project's own bin/ scripts, with one result for a call. See docs/spec/worker.md."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.fingerprint import hash_folder
from skillyard.core.cancel_token import CancelToken
from skillyard.core.child_process import IN_TASK
from skillyard.core.envelope import read_envelope
from skillyard.core.errors import (
    InvalidArgs,
    NotGranted,
    OutputTooLarge,
    PermissionDenied,
    RuntimeFailed,
    ScriptFailed,
    ScriptNotFound,
    SkillError,
    Timeout,
)
from skillyard.core.messages import PARTLY, PAUSED, RAN_ALL, Lang, Message
from skillyard.core.result import Clock, Outcome, Result, as_size, error_result, meaningful
from skillyard.core.states import MARKS, State
from skillyard.core.values import NOTHING, Json
from skillyard.runners.interpreters import find_program, reach_of
from skillyard.runners.kind import (
    PACKAGE,
    RanProgram,
    as_printed,
    base_environment,
    name_limit,
    parse_printed,
    quoted,
    reported_error,
    usage_of,
    without_claims,
)
from skillyard.runners.leftovers import BOX, Cleanup
from skillyard.runtime.pipeline import make_box
from skillyard.runtime.record import OnProgress, Recorder
from skillyard.sandbox.launch import Exit, Launch, Mount, Policy, Sandbox, can_mount
from skillyard.scripts.interrupt import Decider, Interrupt, check_decisions, read_interrupt, stamp_of
from skillyard.scripts.prompt_grammar import ScriptCall, parse_script_calls
from skillyard.store.copies import Copies, FolderCopy
from skillyard.store.grants import Grants
from skillyard.store.runs import RUNNING, Run
from skillyard.trust.consent import bin_changes, trusted_before
from skillyard.trust.own_files import is_ours

AGENT = "worker_agent"
LIMIT_SECONDS = 300.0
#: Exit codes of a script that asks for a decision; with any other it failed before.
_ASKING = frozenset({0, MARKS[State.INTERRUPTED].exit_code})
_ANALYSIS = "【LLM 二次分析任务】"
#: What even our own scripts leave as it is.
_FIXED = (".git", "agents", "bin")


class Worker(NamedTuple):
    """Runs scripts with everything that it needs passed in."""

    sandbox: Sandbox
    recorder: Recorder
    root: Path
    own_home: Path
    new_id: Callable[[], str]
    grants: Grants
    decide: Decider | None = None
    lang: Lang = Lang.EN
    limit_seconds: float = LIMIT_SECONDS
    stop: CancelToken | None = None
    #: The job that the runs belong to, as `Job.about` tells it.
    job: Mapping[str, Json] = NOTHING
    #: What the Task said about itself, kept with the runs.
    task: Mapping[str, Json] = NOTHING

    def run(self, prompt: str, on_progress: OnProgress = None) -> Result:
        """Run every script of the prompt. Expected failures come back as results; bugs still raise."""
        clock = Clock()
        try:
            calls = parse_script_calls(prompt)
            for call in calls:
                self._check(call)
            copy = self._copy()
            for call in calls:
                self._demand(call, copy)
        except SkillError as error:
            return error_result(error, AGENT, self.lang, clock.meta(AGENT))
        results = [self._run(call, copy, on_progress) for call in calls]
        return results[0] if len(results) == 1 else _join(calls, results, self.lang, clock.meta(AGENT))

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
        folder, copies = self.root / "bin", Copies(self.own_home)
        return copies.find(hash_folder(folder)) or copies.make(folder)

    def _demand(self, call: ScriptCall, copy: FolderCopy) -> bool:
        """Return whether the script is ours to the byte. Raise NotGranted unless it is, or a person trusted bin/."""
        file = copy.files / call.script.removeprefix("bin/")
        if not file.is_file():
            raise ScriptNotFound(call.script, details={"exception": "FileNotFoundError"})
        ours = is_ours(file, stands_for=self.root / call.script)
        if not ours and trusted_before(self.grants).bin != copy.marks.approved:
            changes: dict[str, Json] = {
                change: [*paths] for change, paths in bin_changes(self.root, self.grants).items()
            }
            raise NotGranted(
                Message("running {script}", script=call.script), "skillyard trust", details={"bin": changes}
            )
        return ours

    def _run(self, call: ScriptCall, copy: FolderCopy, on_progress: OnProgress) -> Result:
        """Run the script. Any run can replace the file of its interrupt, so that is read once, here."""
        clock, run_id, interrupt = Clock(), self.new_id(), None
        run = Run(
            id=run_id,
            agent=AGENT,
            skill=call.script,
            kind="bin",
            state=RUNNING,
            started=clock.moment.timestamp(),
            job=str(self.job.get("label", "")),
            request={
                "script": call.script,
                "args": list(call.args),
                **({"job": self.job} if self.job else {}),
                **self.task,
            },
        )
        try:
            ours = self._demand(call, copy)
            make_box(self.root)
            launch, before = self._launch(call, copy, ours=ours), stamp_of(self.root)
            with self.recorder.recording(run) as record:
                shown = None if call.drop_stderr else on_progress
                sandbox = record.wrap(self.sandbox, Cleanup(self.root), shown, self.stop)
                try:
                    ended = sandbox(launch)
                    if not ended.timed_out:
                        text = ended.stdout.decode("utf-8", "replace")
                        interrupt = read_interrupt(self.root, before, text, ours=ours, ok=ended.code in _ASKING)
                    if interrupt:
                        skills, command = list(interrupt.skills), interrupt.resume_command
                        data: dict[str, Json] = {"interrupted_skills": skills, "resume_command": command}
                        outcome = Outcome(data, PAUSED, {"count": len(skills)}, state=State.INTERRUPTED)
                    else:
                        ended = call.redirected(ended)
                        outcome = _as_outcome(call, ended, self.limit_seconds, None if ours else self.root)
                    result = outcome.as_result(AGENT, self.lang, clock.seconds, clock.moment, **record.facts)
                except SkillError as error:
                    if isinstance(error, RuntimeFailed) and record.exit:
                        name_limit(error, record.exit, launch.policy)
                    result = error_result(error, AGENT, self.lang, clock.meta(AGENT, record.facts))
                result = record.settle(result)
        except SkillError as error:
            return error_result(error, AGENT, self.lang, clock.meta(AGENT, {"run": run_id}))
        return self._decided(call, result, interrupt, on_progress) if interrupt else result

    def _launch(self, call: ScriptCall, copy: FolderCopy, *, ours: bool) -> Launch:
        """Let the project's scripts read the project and write mybox/; ours may also install skills."""
        root, home, files = self.root.resolve(), self.own_home.resolve(), copy.files.resolve()
        script, env = str(copy.files / call.script.removeprefix("bin/")), base_environment()
        if ours:
            # -I: nothing that lies beside a script of ours can be imported in place of what it means.
            argv: tuple[str, ...] = (sys.executable, "-I", script)
            env |= {"SKILLYARD_HOME": str(self.own_home), "SKILLYARD_LANG": str(self.lang), IN_TASK: "1"}
            home.mkdir(parents=True, exist_ok=True)
            fixed = [path for name in _FIXED if (path := root / name).exists() and not path.is_symlink()]
            # A skill is swapped in by renames between .skillyard/, .claude/skills/ and the root: that needs one mount.
            policy = Policy(read=(PACKAGE, files, *fixed), write=(root, home))
        elif can_mount(self.sandbox):
            argv = (find_program("python3"), call.script)
            mounts = (Mount(files, root / "bin"),)
            policy = Policy(write=(root / BOX,), hide=(home, Copies(self.own_home).home), mounts=mounts)
        else:  # started from the copy, and bin/ itself, which nobody may have seen, is out of reach
            argv = (find_program("python3"), script)
            policy = Policy(read=(files,), write=(root / BOX,), hide=(home, root / "bin"))
        policy = policy._replace(read=(root, *reach_of(Path(argv[0])).known, *policy.read))
        argv = (*argv, *call.args)
        return Launch(argv=argv, cwd=self.root, env=env, limit_seconds=self.limit_seconds, policy=policy)

    def _decided(self, asked: ScriptCall, result: Result, interrupt: Interrupt, on_progress: OnProgress) -> Result:
        """Run the interrupt's own command, which must call the same script, with the decisions as one argument.

        Without a decider, or if it leaves one skill out, return the interrupted state to the caller.
        """
        if self.decide is None or not interrupt.resume_command.startswith("python"):
            return result
        (resume,) = parse_script_calls(interrupt.resume_command)
        if resume.script != asked.script:  # any run can write the interrupt's file
            return result
        decisions = check_decisions(interrupt, dict(self.decide(interrupt)))
        if set(decisions) != set(interrupt.skills):
            return result
        words: dict[str, Json] = {name: str(decision) for name, decision in decisions.items()}
        args = (word for word in resume.args if word not in {"--decisions", "{decisions}"})
        call = resume._replace(args=(*args, "--decisions", json.dumps(words, ensure_ascii=False)))
        self._check(call)
        resumed = self._run(call, self._copy(), on_progress)
        if not resumed.ok:
            return resumed
        return resumed._replace(data={**resumed.data, "llm_decisions": words, "resumed": True})


def _as_outcome(call: ScriptCall, ended: Exit, limit: float, root: Path | None) -> Outcome:
    """Return what the script printed. `root` is None for a script of ours, which knows facts of the runtime."""
    stdout, stderr = ended.stdout, ended.stderr
    text, ran = stdout.decode("utf-8", "replace"), RanProgram(call.script, ended.seconds, "skillyard runs", "script")
    if ended.timed_out:
        raise Timeout(call.script, meaningful(ended.seconds), limit, noun="script")
    if ended.overflowed:
        size = as_size(len(ended.stdout))
        raise OutputTooLarge(Message("more than {count} on stdout", count=size), limit=size, log="skillyard runs")
    if ended.code != 0 and not _is_envelope(text):  # which tells itself what went wrong
        details: dict[str, Json] = {"exit_code": ended.code}
        if error := reported_error(parse_printed(stdout)[0], ran, {"script": call.script, **details}):
            raise error
        if usage := usage_of(ended):
            raise InvalidArgs(usage.splitlines()[-1], details={"usage": usage, **details})
        reason = quoted(stderr) or quoted(stdout) or Message("exit code {code}", code=ended.code)
        raise ScriptFailed(reason, details={"script": call.script, **details}, log="skillyard runs")
    printed = as_printed(stdout, ran, ours=root is None)
    if root:
        printed = without_claims(printed, root, ended.seconds)
    # The block that asks for a second analysis, from its mark to the end.
    _, mark, block = text.partition(_ANALYSIS)
    more: dict[str, Json] = {"analysis_prompt": (mark + block).rstrip("\n")} if mark else {}
    return printed._replace(data={**printed.data, **more}, words={"label": call.script})


def _is_envelope(text: str) -> bool:
    try:
        read_envelope(text)
    except ValueError:
        return False
    return True


def _join(calls: tuple[ScriptCall, ...], results: list[Result], lang: Lang, meta: Mapping[str, Json]) -> Result:
    """Return one result for several scripts: their states decide as the table in docs/spec/worker.md says.

    Of several that wait for a decision the last one speaks for all: the interrupt's file is its.
    """
    ended = [(Path(call.script).name, result) for call, result in zip(calls, results, strict=True)]
    own = [_own_result(call, result) for call, result in zip(calls, results, strict=True)]
    names = {
        "succeeded": [name for name, result in ended if result.state is State.SUCCESS],
        "failed": [name for name, result in ended if not result.ok and result.state not in _WAITING],
        "partial": [name for name, result in ended if result.state is State.PARTIAL],
        "waiting": [name for name, result in ended if result.state in _WAITING],
    }
    data: dict[str, Json] = {key: [*each] for key, each in names.items() if each or key in {"succeeded", "failed"}}
    data["results"] = [*own]
    if spokesman := _spokesman(results):
        hint = {"hint": spokesman.meta["hint"]} if "hint" in spokesman.meta else {}
        return spokesman._replace(data={**spokesman.data, **data}, meta={**meta, **hint})
    done = len(names["succeeded"])
    says, state = (RAN_ALL, State.SUCCESS) if done == len(ended) else (PARTLY, State.PARTIAL)
    return Result(AGENT, state, says.render(lang, done=done, total=len(ended)), data, meta)


_WAITING = (State.INTERRUPTED, State.PENDING)


def _spokesman(results: Sequence[Result]) -> Result | None:
    """Return the result whose state and data are those of the whole; None if some or all succeeded and none waits."""
    for state in _WAITING:
        if waiting := [result for result in results if result.state is state]:
            return waiting[-1]
    if any(result.ok for result in results):
        return None
    return next((result for result in results if result.state is State.ERROR), results[0])


def _own_result(call: ScriptCall, result: Result) -> dict[str, Json]:
    """Return what `data.results` says of one script."""
    data = dict(result.data)
    told: dict[str, Json] = {
        "script": call.script,
        "state": str(result.state),
        "run": result.meta.get("run"),
        "reason": result.summary if result.state is not State.SUCCESS else None,
        "analysis_prompt": data.pop("analysis_prompt", None),
    }
    return {**{key: value for key, value in told.items() if value is not None}, "data": data}
