"""What the kinds of skill share: the functions of a kind's module, the values it works on, and how a program is run.

A kind is declared in `core/skill.py` and is otherwise one module, with the four functions of `KindModule`.

Of what a program prints, one JSON object is merged, an envelope is adopted, the rest is content. Whatever it prints
are its own words. Facts of the runtime under their names (`FACTS`), and errors that only the runtime can state, are
kept apart under `reported`: nobody who reads a result can take them for ours."""

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

from skillyard.catalog.bounds import Secret
from skillyard.catalog.files import is_repository
from skillyard.core.envelope import from_dict, has_icon, read_envelope
from skillyard.core.errors import (
    InvalidArgs,
    InvalidParam,
    OutputTooLarge,
    ParamMissing,
    PermissionDenied,
    ReportedTimeout,
    RuntimeFailed,
    SkillError,
    Timeout,
    error_classes,
)
from skillyard.core.messages import Message
from skillyard.core.result import Call, Outcome, Result, as_size, meaningful
from skillyard.core.skill import Skill
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json, check_value, lazy_pattern
from skillyard.runners.interpreters import run_path
from skillyard.runners.leftovers import BOX, Snapshot, snapshot_of, stamp_of
from skillyard.sandbox.launch import Exit, Launch, Policy, Sandbox

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial
    from skillyard.runners.requirements import Packages


class Permit(NamedTuple):
    """What a run may touch, and which capabilities it still lacks."""

    policy: Policy = Policy()
    #: Names of our own environment variables to pass on.
    variables: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    #: Outputs outside mybox/: a file must exist before the sandbox can open it alone.
    outputs: tuple[Path, ...] = ()
    #: What a role declares; read when it runs.
    secrets: tuple[Secret, ...] = ()
    #: Folders that must exist for the sandbox to open or to cover.
    folders: tuple[Path, ...] = ()


class Prepared(NamedTuple):
    """A call with everything decided: what is started, what it may touch, which environment it runs in."""

    call: Call
    #: None for a kind that starts nothing.
    launch: Launch | None = None
    permit: Permit = Permit()
    #: None if the standard library is enough.
    packages: "Packages | None" = None
    #: Granted variables and a role's secrets, by name: their values are never shown or kept.
    passed: Mapping[str, str] = {}
    #: Modules of packages that the program may import later.
    optional_modules: tuple[str, ...] = ()

    @property
    def program(self) -> Launch:
        """The launch of a kind that starts a program."""
        assert self.launch is not None  # noqa: S101
        return self.launch


#: Runs a prepared call. Never prints, never looks skills up, never touches the database.
Runner: TypeAlias = Callable[[Prepared, Sandbox], Outcome]


class RanProgram(NamedTuple):
    """What ran and for how long, as an error tells it that the program reports itself."""

    name: str
    seconds: float
    log: str
    noun: str = "skill"


class KindModule(Protocol):
    """The functions of a kind's module. The one for scripts has no `probe`: no skill is of that kind."""

    run: Runner

    def plan(self, call: Call) -> Launch | None:
        """Return what would be started; None if nothing is."""

    def find_program(self, skill: Skill, script: str) -> Path | None:
        """Return the file of the skill that would run, or its folder if only that is known; None if it is another's."""

    def probe(self, skill: Skill, trial: "Trial") -> "Iterator[Probe]":
        """Try the skill out for `skillyard check`."""


def load_kind(skill: Skill, script: str = "") -> KindModule:
    """The module of the skill's kind, or the one for scripts that a skill of any kind ships."""
    return cast("KindModule", import_module("skillyard.runners.script" if script else skill.kind.module))


#: What every program may see of our environment; the rest is ours alone.
_PASSED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SKILL_DEBUG", "SKILLYARD_DEPTH")
QUOTED_CHARACTERS = 200
#: What a program ends with to say that it was called wrongly, and how a usage text begins.
USAGE_CODES = frozenset({2, 64})
USAGE_WORDS = ("usage", "用法")
#: Files that an answer names.
_MOST_OUTPUTS = 100
#: Our own code, which JSON skills may read; of it only `skillyard.skill` stands on their path.
PACKAGE = Path(__file__).parent.parent
REPORTED = "reported"
#: What only the runtime says of a run.
FACTS = {"skill", "output_path", "outputs", "cached", "original_result", "run", "changes", "meta"}
FACTS |= {"grant", "resume_command", "may_need", REPORTED}
#: Of a printed `meta`: what every envelope has, and the advice, which is adopted.
_USUAL_META = frozenset({"agent", "time", "ts", "hint"})
#: A path in a summary: below mybox/, or what an arrow points to.
_SHOWN_PATH = re.compile(
    r"((?:/[\w./-]*)?\bmybox/[^\s,;，。；、）)」\"'`]+)|(?:→|->|=>)\s*([^\s,;，。；、）)」\"'`]*(?:/|\.\w)[^\s,;，。；、）)」\"'`]*)"
)
#: How an error is told: in the details of one these would replace what we say.
ERROR_FIELDS = frozenset({"type", "msg", "recoverable"})
#: The code of a reported error that has none.
INTERNAL = "INTERNAL_ERROR"
_OURS_IN_ERRORS = ERROR_FIELDS | {"exit_code", "stderr", "usage"}
#: The line of a traceback that names the exception, and lines that never say why.
_EXCEPTION = lazy_pattern(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Warning|Expired|Timeout)\b(?!\()(?::|$)")
_AT_MARGIN, _AT_MARGIN_OF_GROUP = lazy_pattern(r"(\S.*)"), lazy_pattern(r"\s*\| (\S.*)")
_NO_MEMORY = lazy_pattern(r"MemoryError|bad_alloc|[Oo]ut of memory|[Cc]annot allocate memory|ENOMEM")
_NO_REASON = lazy_pattern(r"at [\w<]|Node\.js v|[\^~\-=*}{)(\]\[;,.\s]+$")
#: Of our own error types, those that a program may state about itself.
_THEIRS = {"ParamMissing", "InvalidParam", "InvalidArgs", "PermissionDenied", "RuntimeFailed", "RuntimeError"}
#: Commands that allow something, in a summary where they would look like advice of ours.
_COMMAND = lazy_pattern(
    r"skillyard\s(?:.{0,80}\s)?(?:grant|trust|env|review|revoke|add|link|init|service|run|task|mcp)\b", re.IGNORECASE
)
_PLAIN_NAME = lazy_pattern(r"[\w.-]{1,64}")


def base_environment() -> dict[str, str]:
    """Return the environment variables that every program gets."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    ours = {"PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": run_path(), "LANG": "C.UTF-8", **passed, **ours}


def environment(call: Call) -> dict[str, str]:
    """Return the environment of a skill's program, with our helper module for the kinds that import it."""
    helper = {"PYTHONPATH": str(PACKAGE / "for_skills")} if call.skill.kind.imports_helper else {}
    own = {"CLAUDE_SKILL_DIR": str(call.run_folder), "SKILLYARD_RUN": call.run_id}
    return {**base_environment(), **own, **helper}


def is_of_skill(call: Call, name: str) -> bool:
    """Whether a path, its links followed, is inside the skill's folder, and no metadata of a repository."""
    is_inside = (call.files / name).resolve().is_relative_to(call.files.resolve())
    return is_inside and not any(map(is_repository, Path(name).parts))


def start(sandbox: Sandbox, launch: Launch) -> Exit:
    """Start a program and wait for it. Raise PermissionDenied or RuntimeFailed if it cannot start."""
    try:
        return sandbox(launch)
    except PermissionError as error:
        raise PermissionDenied(f"{launch.argv[0]}: {error.strerror}") from None
    except OSError as error:
        raise RuntimeFailed(cannot_start(launch.argv[0], error)) from None


def cannot_start(program: str, error: OSError) -> Message:
    return Message("{argv} cannot be started: {strerror}", argv=program, strerror=error.strerror)


def check_exit(call: Call, ended: Exit) -> None:
    """Raise the error that the exit stands for, if any."""
    if ended.timed_out:
        raise Timeout(call.asked_as, meaningful(ended.seconds), call.limit_seconds)
    if ended.overflowed:
        limit, log = as_size(len(ended.stdout)), f"skillyard runs show {call.run_id}"
        raise OutputTooLarge(Message("more than {count} on stdout", count=limit), limit=limit, log=log)
    if ended.code not in call.success_exit_codes:
        raise failure(call, ended)


def ran_by(call: Call, ended: Exit) -> RanProgram:
    return RanProgram(call.asked_as, meaningful(ended.seconds), f"skillyard runs show {call.run_id}")


def failure(call: Call, ended: Exit) -> SkillError:
    """Return InvalidArgs for a usage text, else RuntimeFailed; with what was printed: a linter's findings count."""
    code, stderr = ended.code, ended.stderr.decode("utf-8", "replace").strip()
    fields, envelope = parse_printed(ended.stdout)
    printed = {REPORTED: _as_reported(envelope)} if envelope else own_words(fields, _OURS_IN_ERRORS)
    said: dict[str, Json] = {"stderr": stderr} if stderr else {}
    log = f"skillyard runs show {call.run_id}"
    if error := reported_error(fields, ran_by(call, ended), {"exit_code": code, **said}):
        return error
    details: dict[str, Json] = {"exit_code": code, **printed, **said}
    if usage := usage_of(ended):
        return InvalidArgs(usage.splitlines()[-1], details={"usage": usage, **details})
    reason = quoted(ended.stderr) or quoted(ended.stdout)
    if names_our_command(reason):
        reason = Message("the program says: {message}", message=reason)
    elif not reason:
        by_signal = Message("ended by signal {value}", value=-code)
        reason = Message("exit code {code}", code=code) if code >= 0 else by_signal
    return RuntimeFailed(reason, details=details, log=log)


def reported_error(
    fields: Mapping[str, Json], ran: RanProgram, more: Mapping[str, Json] = NOTHING
) -> SkillError | None:
    """Return the error that a printed `{"success": false, "error": …}` stands for; None for anything else."""
    if fields.get("success") is not False or "error" not in fields:
        return None
    error = _reported_error(fields["error"], ran, more)
    if flaw := flaw_of_error(fields["error"]):
        error.normalised = (flaw,)
    return error


def flaw_of_error(error: Json) -> str:
    """Return how an `error` differs from one of the protocol, or an empty text."""
    if not isinstance(error, Mapping):
        return Message("`error` is not an object with code and message")
    return "" if isinstance(error.get("code"), str) and error["code"] else Message("`error` has no code")


def _reported_error(error: Json, ran: RanProgram, more: Mapping[str, Json]) -> SkillError:
    words = error if isinstance(error, Mapping) else {"message": error}
    code, message = str(words.get("code") or INTERNAL), str(words.get("message") or Message("no message"))
    theirs = {key: value for key, value in words.items() if key not in {"code", "message"}}
    details: dict[str, Json] = {"code": code, **own_words(theirs, ERROR_FIELDS), **more}
    if names_our_command(message):  # advice that only we give, quoted as what it is
        message = Message("the program says: {message}", message=message)
    match code:
        case "MISSING_PARAM":
            return ParamMissing((), told=message, details=details)
        case "INVALID_PARAM" | "UNKNOWN_ACTION":
            return InvalidParam(message, details=details)
        case "PERMISSION_DENIED":
            return PermissionDenied(message, details=details)
        case "TIMEOUT":
            return ReportedTimeout(message, ran.name, ran.seconds, ran.log, details, ran.noun)
        case _:
            return RuntimeFailed(message, details=details, log=ran.log)


def usage_of(ended: Exit) -> str:
    """Return the usage text of a program that was called wrongly, or an empty text."""
    stderr = ended.stderr.decode("utf-8", "replace").strip()
    return stderr[:4000] if ended.code in USAGE_CODES and any(word in stderr.lower() for word in USAGE_WORDS) else ""


def quoted(stderr: bytes) -> str:
    """Return the last line that says something; of a traceback, the line with the exception."""
    raw = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    lines = [exception] if (exception := _exception_in(raw)) else [" ".join(line.split()) for line in raw]
    if any(line.startswith(("Traceback (most", "at ")) for line in lines):
        lines = [line for line in lines if _EXCEPTION.match(line)] or lines
    told = next((line for line in reversed(lines) if not _NO_REASON.match(line)), "")
    return told if len(told) <= QUOTED_CHARACTERS else told[: QUOTED_CHARACTERS - 1] + "…"


def _exception_in(lines: Sequence[str]) -> str:
    """Return the line of the exception in the last Python traceback, whatever the exception is called."""
    found, end = "", None
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            end = _AT_MARGIN
        elif line.lstrip().startswith("+ Exception Group Traceback"):
            end = _AT_MARGIN_OF_GROUP
        elif end and (match := end.match(line)):
            found, end = match[1], None
    return " ".join(found.split())


def snapshot(call: Call) -> Snapshot:
    """Return the state of the outputs before or after the run: the files below mybox/, or the one that was named."""
    root = call.root.resolve()
    if call.output.endswith("/"):
        return snapshot_of(root / BOX)
    try:
        status = (root / call.output).lstat()
    except OSError:
        return {}
    return {str(root / call.output): stamp_of(status)} if stat.S_ISREG(status.st_mode) else {}


def written(call: Call, before: Snapshot, ended: Exit) -> dict[str, Json]:
    """Return path and size of the file that the run wrote: the named one, else the only new one in mybox/.

    Of several new ones, those in its output folder stand in `outputs`: others may write elsewhere in mybox/ meanwhile.
    """
    root, is_folder = call.root.resolve(), call.output.endswith("/")
    after = snapshot(call) if ended.files is None or not is_folder else dict(ended.files)
    fresh = sorted(path for path, stamp in after.items() if before.get(path) != stamp)
    if len(fresh) > 1:
        fresh = [path for path in fresh if path.startswith(f"{root / call.output}/")]
    sizes = {path.removeprefix(f"{root}/"): after[path][1] for path in fresh[:_MOST_OUTPUTS]}
    shown = [path for path in sizes if path == path.encode("utf-8", "replace").decode()]
    if not shown:
        return {}
    more: dict[str, Json] = {"outputs": [*shown]} if len(shown) > 1 else {}
    return {"output_path": shown[0], "output_size": as_size(sizes[shown[0]]), **more}


def as_printed(stdout: bytes, ran: RanProgram, *, ours: bool = False) -> Outcome:
    """Return the data, and an envelope's summary and state. `ours`: a program of our own knows facts of the runtime.

    Raise the error that a printed response reports.
    """
    fields, envelope = parse_printed(stdout)
    flaws = flaws_of_bytes(stdout)
    if envelope is None:
        if error := reported_error(fields, ran):
            error.normalised += flaws
            raise error
        return Outcome(fields if ours else own_words(fields), normalised=flaws)
    hint = envelope.meta.get("hint")
    if ours:
        advice = hint if isinstance(hint, str) else None
        return Outcome(fields, summary=envelope.summary, state=envelope.state, hint=advice)
    if not _may_state(envelope):
        msg = fields.get("msg")
        told = " ".join((msg if isinstance(msg, str) else envelope.summary).split())[:QUOTED_CHARACTERS]
        says = Message("the program says: {message}", message=told)
        raise RuntimeFailed(says, details={REPORTED: _as_reported(envelope)})
    return _adopted(envelope, ran)._replace(normalised=flaws)


def _adopted(envelope: Result, ran: RanProgram) -> Outcome:
    """Return what a program's own envelope says, with every field that its state must have."""
    data, summary = own_words(envelope.data), summary_of(envelope.summary)
    advice = envelope.meta.get("hint")
    hint = summary_of(advice) if isinstance(advice, str) else None
    kept_apart: dict[str, Json] = {} if summary else {"summary": envelope.summary}
    theirs = {key: value for key, value in envelope.meta.items() if key not in _USUAL_META}
    if advice and not hint:
        theirs["hint"] = advice
    if theirs:
        kept_apart["meta"] = theirs
    match envelope.state:
        case State.TIMEOUT:
            msg = data.get("msg")
            told = msg if isinstance(msg, str) else summary or str(Message("no message"))
            raise ReportedTimeout(told, ran.name, ran.seconds, ran.log, data, ran.noun)
        case State.ERROR:
            kind = next((each for each in error_classes() if each.type == data.get("type")), RuntimeFailed)
            usual: dict[str, Json] = {"type": kind.type, "msg": envelope.summary, "recoverable": kind.recoverable}
            data = _filled(data, usual, {"type": str, "msg": str, "recoverable": bool | None})
        case State.PARTIAL:
            data = _filled(data, {"succeeded": [], "failed": []}, {"succeeded": list, "failed": list})
        case State.PENDING:  # `prompts` would be the text of a question to a person
            optional = data.get("optional")
            named = [name for name in optional if isinstance(name, str)] if isinstance(optional, list) else []
            data = own_words({**data, "optional": named}, frozenset({"prompts"}))
    if kept_apart:
        data = reporting(data, kept_apart)
    return Outcome(data, summary=summary, state=envelope.state, hint=hint)


def _filled(data: Mapping[str, Json], usual: Mapping[str, Json], kinds: Mapping[str, Any]) -> dict[str, Json]:
    """Return the data with each of the usual fields; what a program wrote there of another type is kept apart."""
    wrong = frozenset(key for key in usual if key in data and not isinstance(data[key], kinds[key]))
    return {**usual, **own_words(data, wrong)}


def without_claims(outcome: Outcome, root: Path, seconds: float) -> Outcome:
    """Return it without a summary of the program that shows a path which this run did not write."""
    reported = outcome.data.get(REPORTED)
    facts = reported if isinstance(reported, Mapping) else {}
    listed = facts.get("outputs")
    claimed = {str(path) for path in (facts.get("output_path"), *(listed if isinstance(listed, list) else ())) if path}
    summary, since = outcome.summary or "", time.time() - seconds - 2
    shown = {path for found in _SHOWN_PATH.findall(summary) for path in found if path}
    shown |= {path for path in claimed if path in summary}
    if all(_was_written(root / path.rstrip(".:：!！"), since) for path in shown):
        return outcome
    return outcome._replace(data=reporting(outcome.data, {"summary": summary}), summary=None)


def _was_written(path: Path, since: float) -> bool:
    try:
        return path.lstat().st_mtime >= since
    except (OSError, ValueError):
        return False


def flaws_of_bytes(stdout: bytes) -> tuple[str, ...]:
    """Return how the bytes had to be read, if they are no text as they stand."""
    try:
        stdout.decode("utf-8")
    except UnicodeDecodeError:
        return (Message("stdout is not UTF-8"),)
    return ()


def name_limit(error: RuntimeFailed, ended: Exit, policy: Policy | None) -> None:
    """Name the limit of memory or processes that a run reached, or that its last words are about."""
    if policy is None:
        return
    memory = as_size(policy.memory_bytes)
    if ended.hit:
        limits = {"memory": memory, "processes": str(policy.processes)}
        told = Message("the limit of {limit} for {what} was reached", limit=limits[ended.hit], what=ended.hit)
        error.details = {**error.details, "limit_hit": ended.hit}
        error.msg = Message("{place}: {reason}", place=told, reason=error.msg)
        error.values = {**error.values, "reason": error.msg}
    elif _NO_MEMORY.search(quoted(ended.stderr)):
        error.extra_hint = Message("each of its processes may have {limit} of memory", limit=memory)


def _as_reported(envelope: Result) -> dict[str, Json]:
    """Return a result of a program's own making, to stand beside ours."""
    return {"state": str(envelope.state), "summary": envelope.summary, "data": dict(envelope.data)}


def own_words(fields: Mapping[str, Json], more: frozenset[str] = frozenset()) -> dict[str, Json]:
    """Move what only the runtime can state below `reported`."""
    facts = {key: value for key, value in fields.items() if key in FACTS or key in more}
    if not facts:
        return dict(fields)
    before = facts.pop(REPORTED, {})
    kept = {key: value for key, value in fields.items() if key not in facts and key != REPORTED}
    return reporting({**kept, REPORTED: before}, facts)


def reporting(data: Mapping[str, Json], claims: Mapping[str, Json]) -> dict[str, Json]:
    """Return the data with what a program claims added below `reported`."""
    before = data.get(REPORTED, {})
    return {**data, REPORTED: {**(before if isinstance(before, Mapping) else {REPORTED: before}), **claims}}


def names_our_command(text: str) -> bool:
    """Whether it names a command of ours that allows or starts something."""
    return _COMMAND.search(_as_seen(text)) is not None


def summary_of(text: str | None) -> str | None:
    """A program's own summary; None where it reads like an error or an advice of ours."""
    return None if not text or names_our_command(text) or _is_our_type(text.partition(":")[0]) else text


def _is_our_type(text: str) -> bool:
    """Whether a person would read it as one of the error types that only the runtime may state."""
    found = {kind.type for kind in error_classes()}
    return _as_seen(text).replace(" ", "").casefold() in {name.casefold() for name in found - _THEIRS}


def _as_seen(text: str) -> str:
    """Return the text as a reader sees it: without compatibility forms, invisible characters and extra spaces."""
    import unicodedata  # noqa: PLC0415  (only programs that print an envelope need it)

    plain = unicodedata.normalize("NFKC", text)
    shown = (" " if char == "\\" or char.isspace() else char for char in plain if unicodedata.category(char) != "Cf")
    return " ".join("".join(shown).split())


def _may_state(envelope: Result) -> bool:
    """Whether a program can know it: not that something is not granted, nor how an interrupt goes on."""
    data = envelope.data
    if envelope.state is State.PENDING:
        names = data.get("required")
        named = names if isinstance(names, list) else []
        return bool(named) and all(isinstance(name, str) and _PLAIN_NAME.fullmatch(name) for name in named)
    if envelope.state is State.ERROR:
        like_ours = _is_our_type(str(data.get("type"))) or names_our_command(str(data.get("msg")))
        return not like_ours and summary_of(envelope.summary) is not None
    return envelope.state is not State.INTERRUPTED


def parse_printed(stdout: bytes) -> tuple[dict[str, Json], Result | None]:
    """Return the data, and the envelope where it is one: a JSON object, two lines of text, or else plain content."""
    text = stdout.decode("utf-8", "replace").replace("\r\n", "\n").strip("\n")
    if not text.strip():
        return {}, None
    fields, envelope = _as_object(text), None
    with suppress(ValueError):
        if fields is None:
            envelope = read_envelope(text) if has_icon(text) else None
        elif {"agent", "state", "summary"} <= fields.keys():
            envelope = from_dict(fields)
    if envelope is not None:
        return dict(envelope.data), envelope
    if fields is None:
        return {"content": text}, None
    data = fields.get("data")
    if fields.get("success") is True and isinstance(data, Mapping):
        return {**{name: fields[name] for name in ("message", "metadata") if fields.get(name)}, **data}, None
    return fields, None


def _as_object(text: str) -> dict[str, Json] | None:
    with suppress(ValueError, RecursionError):
        if text.lstrip().startswith("{"):
            fields: dict[str, Json] = json.loads(text)
            check_value(fields)
            return fields
    return None
