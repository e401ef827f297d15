"""The worker agent: runs the project's own bin/ scripts, with one result for a call. See docs/spec/worker.md."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.fingerprint import hash_folder
from skillyard.core.cancel_token import CancelToken
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
from skillyard.core.states import State
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
            request={"script": call.script, "args": list(call.args), **({"job": self.job} if self.job else {})},
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
                        interrupt = read_interrupt(self.root, before, text, ours=ours, ok=ended.code == 0)
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
                record.settle(result)
        except SkillError as error:
            return error_result(error, AGENT, self.lang, clock.meta(AGENT, {"run": run_id}))
        return self._decided(result, interrupt, on_progress) if interrupt else result

    def _launch(self, call: ScriptCall, copy: FolderCopy, *, ours: bool) -> Launch:
        """Let the project's scripts read the project and write mybox/; ours may also install skills."""
        root, home, files = self.root.resolve(), self.own_home.resolve(), copy.files.resolve()
        script, env = str(copy.files / call.script.removeprefix("bin/")), base_environment()
        if ours:
            # -I: nothing that lies beside a script of ours can be imported in place of what it means.
            argv: tuple[str, ...] = (sys.executable, "-I", script)
            env |= {"SKILLYARD_HOME": str(self.own_home), "SKILLYARD_LANG": str(self.lang)}
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

    def _decided(self, result: Result, interrupt: Interrupt, on_progress: OnProgress) -> Result:
        """Run the interrupt's own command, a script of bin/, with the decisions as one argument.

        Without a decider, or if it leaves one skill out, return the interrupted state to the caller.
        """
        if self.decide is None or not interrupt.resume_command.startswith("python"):
            return result
        decisions = check_decisions(interrupt, dict(self.decide(interrupt)))
        if set(decisions) != set(interrupt.skills):
            return result
        words: dict[str, Json] = {name: str(decision) for name, decision in decisions.items()}
        (call,) = parse_script_calls(interrupt.resume_command)
        self._check(call)
        args = (word for word in call.args if word not in {"--decisions", "{decisions}"})
        call = call._replace(args=(*args, "--decisions", json.dumps(words, ensure_ascii=False)))
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
    """Return one result for several scripts: partial if some failed, an error if all did."""
    ended = [(Path(call.script).name, result.ok) for call, result in zip(calls, results, strict=True)]
    done, failed = ([name for name, ok in ended if ok is wanted] for wanted in (True, False))
    data: dict[str, Json] = {"succeeded": done, "failed": failed}
    if not done:
        first = results[0]
        hint = {"hint": first.meta["hint"]} if "hint" in first.meta else {}
        return Result(AGENT, State.ERROR, first.summary, {**first.data, **data}, {**meta, **hint})
    says, state = (PARTLY, State.PARTIAL) if failed else (RAN_ALL, State.SUCCESS)
    return Result(AGENT, state, says.render(lang, done=len(done), total=len(ended)), data, meta)
