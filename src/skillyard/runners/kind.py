"""What the kinds of skill share: the functions of a kind's module, the values it works on, and how a program is run.

A kind is declared in `core/skill.py` and is otherwise one module, with the four functions of `KindModule`.

Of what a program prints, one JSON object is merged, an envelope is adopted, the rest is content. Whatever it prints
are its own words. Facts of the runtime under their names (`FACTS`), and errors that only the runtime can state, are
kept apart under `reported`: nobody who reads a result can take them for ours."""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from skillyard.catalog.bounds import Secret
from skillyard.catalog.files import is_repository
from skillyard.core.envelope import from_dict, has_icon, read_envelope
from skillyard.core.errors import InvalidArgs, OutputTooLarge, PermissionDenied, RuntimeFailed, SkillError, Timeout
from skillyard.core.messages import Message
from skillyard.core.result import Call, Outcome, Result, as_size, meaningful
from skillyard.core.skill import Skill
from skillyard.core.states import State
from skillyard.core.values import Json, check_value
from skillyard.runners.leftovers import BOX, Snapshot, snapshot_of, stamp_of
from skillyard.sandbox.launch import Exit, Launch, Policy, Sandbox

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial
    from skillyard.runners.requirements import Packages

_SCRIPT = "skillyard.runners.script"
_NOTHING_PASSED: Mapping[str, str] = {}


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
    passed: Mapping[str, str] = _NOTHING_PASSED

    @property
    def program(self) -> Launch:
        """The launch of a kind that starts a program."""
        assert self.launch is not None  # noqa: S101
        return self.launch


class Runner(Protocol):
    """Run a prepared call. Never prints, never looks skills up, never touches the database."""

    def __call__(self, prepared: Prepared, sandbox: Sandbox) -> Outcome: ...


class KindModule(Protocol):
    """The functions of a kind's module."""

    run: Runner

    def plan(self, call: Call) -> Launch | None:
        """Return what would be started; None if nothing is."""

    def find_program(self, skill: Skill, script: str) -> Path | None:
        """Return the file of the skill that would run, or its folder if only that is known; None if it is another's."""

    def probe(self, skill: Skill, trial: "Trial") -> "Iterator[Probe]":
        """Try the skill out for `skillyard check`."""


def load_kind(skill: Skill, script: str = "") -> KindModule:
    """The module of the skill's kind, or the one for scripts that a skill of any kind ships."""
    return cast("KindModule", import_module(_SCRIPT if script else skill.kind.module))


#: What every program may see of our environment; the rest is ours alone.
_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SKILL_DEBUG", "SKILLYARD_DEPTH")
QUOTED_CHARACTERS = 200
#: What a program ends with to say that it was called wrongly.
USAGE_CODES = frozenset({2, 64})
#: How a usage text begins, in the languages that programs here speak.
USAGE_WORDS = ("usage", "用法")
#: Our own code, which JSON skills may read; of it only `skillyard.skill` stands on their path.
PACKAGE = Path(__file__).parent.parent
_FOR_SKILLS = PACKAGE / "for_skills"
REPORTED = "reported"
#: What only the runtime says of a run.
FACTS = frozenset(
    {
        *("skill", "output_path", "outputs", "cached", "original_result", "changes"),
        *("grant", "resume_command", "may_need", REPORTED),
    }
)
#: How an error is told: in the details of one these would replace what we say.
ERROR_FIELDS = frozenset({"type", "msg", "recoverable"})
_OURS_IN_ERRORS = ERROR_FIELDS | {"exit_code", "stderr", "usage"}
#: The line of a traceback that names the exception, and lines that never say why.
_EXCEPTION = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Warning|Expired|Timeout)\b(?!\()(?::|$)")
_NO_REASON = re.compile(r"at [\w<]|Node\.js v|[\^~\-=*}{)(\]\[;,.\s]+$")
#: Of our own error types, those that a program may state about itself.
_THEIRS = frozenset(
    {"ParamMissing", "InvalidParam", "InvalidArgs", "PermissionDenied", "RuntimeFailed", "RuntimeError"}
)
#: Commands that allow something, in a summary where they would look like advice of ours.
_COMMAND = re.compile(
    r"skillyard\s(?:.{0,80}\s)?(?:grant|trust|env|review|revoke|add|link|init|service|run|task|mcp)\b", re.IGNORECASE
)
_PLAIN_NAME = re.compile(r"[\w.-]{1,64}")
_LONGEST_REASON = 200


def base_environment() -> dict[str, str]:
    """Return the environment variables that every program gets."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    ours = {"PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **passed, **ours}


def environment(call: Call) -> dict[str, str]:
    """Return the environment of a skill's program, with our helper module for the kinds that import it."""
    helper = {"PYTHONPATH": str(_FOR_SKILLS)} if call.skill.kind.imports_helper else {}
    own = {"CLAUDE_SKILL_DIR": str(call.run_folder), "SKILLYARD_RUN": call.run_id}
    return {**base_environment(), **own, **helper}


def in_repository(path: Path) -> bool:
    """Whether a path is inside a repository's metadata, which is not part of the skill."""
    return any(map(is_repository, path.parts))


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
        limit = as_size(len(ended.stdout))
        log = f"skillyard runs show {call.run_id}"
        raise OutputTooLarge(Message("more than {count} on stdout", count=limit), limit=limit, log=log)
    if ended.code != 0:
        raise failure(call, ended)


def failure(call: Call, ended: Exit) -> SkillError:
    """Return InvalidArgs if the program printed its usage, else RuntimeFailed; with all that the program said."""
    details: dict[str, Json] = {"exit_code": ended.code, **_said(ended)}
    if usage := usage_of(ended):
        return InvalidArgs(usage.splitlines()[-1], details={"usage": usage, **details})
    reason = quoted(ended.stderr) or quoted(ended.stdout)
    if names_our_command(reason):
        reason = Message("the program says: {message}", message=reason)
    elif not reason:
        code = ended.code
        reason = (
            Message("exit code {code}", code=code) if code >= 0 else Message("ended by signal {value}", value=-code)
        )
    return RuntimeFailed(reason, details=details, log=f"skillyard runs show {call.run_id}")


def _said(ended: Exit) -> dict[str, Json]:
    """Return what a failed program printed: a linter's findings are its result."""
    stderr = ended.stderr.decode("utf-8", "replace").strip()
    fields, envelope = _parse_printed(ended.stdout)
    printed = own_words(fields, _OURS_IN_ERRORS)
    if envelope is not None:  # a result of its own making, beside ours
        printed = {REPORTED: {"state": str(envelope.state), "summary": envelope.summary, "data": dict(fields)}}
    return {**printed, **({"stderr": stderr} if stderr else {})}


def usage_of(ended: Exit) -> str:
    """Return the usage text of a program that was called wrongly, or an empty text."""
    stderr = ended.stderr.decode("utf-8", "replace").strip()
    return stderr[:4000] if ended.code in USAGE_CODES and any(word in stderr.lower() for word in USAGE_WORDS) else ""


def quoted(stderr: bytes) -> str:
    """Return the last line that says something; of a traceback, the line with the exception."""
    lines = [" ".join(line.split()) for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if any(line.startswith(("Traceback (most", "at ")) for line in lines):
        lines = [line for line in lines if _EXCEPTION.match(line)] or lines
    told = next((line for line in reversed(lines) if not _NO_REASON.match(line)), "")
    return told if len(told) <= QUOTED_CHARACTERS else told[: QUOTED_CHARACTERS - 1] + "…"


def snapshot(call: Call) -> Snapshot:
    """Return the state of the outputs before the run: the files below mybox/, or the one that was named."""
    return snapshot_of(_box(call)) if call.output.endswith("/") else _stamped(call.root.resolve() / call.output)


def written(call: Call, before: Snapshot, ended: Exit) -> dict[str, Json]:
    """Return the path and size of the file that the run wrote: the named one, else the only new one in mybox/."""
    if not call.output.endswith("/"):
        target = call.root.resolve() / call.output
        after = _stamped(target)
        return _told(target, call) if after and after != before else {}
    after = snapshot_of(_box(call)) if ended.files is None else dict(ended.files)
    fresh = [path for path, stamp in after.items() if before.get(path) != stamp]
    return _told(Path(fresh[0]), call) if len(fresh) == 1 else {}


def _box(call: Call) -> Path:
    return call.root.resolve() / BOX


def _stamped(path: Path) -> Snapshot:
    """Return one regular file with its stamp; nothing if there is none."""
    try:
        status = path.lstat()
    except OSError:
        return {}
    return {str(path): stamp_of(status)} if stat.S_ISREG(status.st_mode) else {}


def _told(path: Path, call: Call) -> dict[str, Json]:
    """Return the fields of a result for one file; none if its name is not UTF-8 or it is gone."""
    root = call.root.resolve()
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    try:
        shown.encode()
        size = path.lstat().st_size
    except (OSError, UnicodeEncodeError):
        return {}
    return {"output_path": shown, "output_size": as_size(size)}


class Printed(NamedTuple):
    """The data, and the envelope's summary and state where the program printed one."""

    data: dict[str, Json]
    summary: str | None = None
    state: State | None = None


def as_printed(stdout: bytes, *, ours: bool = False) -> Printed:
    """`ours`: it was printed by a program of our own, whose facts are the runtime's."""
    fields, envelope = _parse_printed(stdout)
    if ours:
        return Printed(fields, envelope.summary, envelope.state) if envelope else Printed(fields)
    data = own_words(fields)
    if envelope is None:
        return Printed(data)
    if not _may_state(envelope):
        raise _reported(envelope)
    if envelope.state is State.PENDING:  # the text of a question to a person
        data = own_words(data, frozenset({"prompts"}))
    summary = summary_of(envelope.summary)
    if summary is None:
        data = own_words({**data, "summary": envelope.summary}, frozenset({"summary"}))
    return Printed(data, summary, envelope.state)


def own_words(fields: Mapping[str, Json], more: frozenset[str] = frozenset()) -> dict[str, Json]:
    """Move what only the runtime can state below `reported`."""
    facts = {key: value for key, value in fields.items() if key in FACTS or key in more}
    if not facts:
        return dict(fields)
    before = facts.pop(REPORTED, {})
    kept = {key: value for key, value in fields.items() if key not in facts and key != REPORTED}
    return {**kept, REPORTED: {**(before if isinstance(before, Mapping) else {REPORTED: before}), **facts}}


def names_our_command(text: str) -> bool:
    """Whether it names a command of ours that allows or starts something."""
    return _COMMAND.search(_as_seen(text)) is not None


def summary_of(text: str | None) -> str | None:
    """A program's own summary; None where it reads like an error or an advice of ours."""
    if not text or names_our_command(text) or _is_our_type(text.partition(":")[0]):
        return None
    return text


def _is_our_type(text: str) -> bool:
    """Whether a person would read it as one of our error types."""
    return _as_seen(text).replace(" ", "").casefold() in {name.casefold() for name in _our_types()}


def _as_seen(text: str) -> str:
    """Return the text as a reader sees it: without compatibility forms, invisible characters and extra spaces."""
    import unicodedata  # noqa: PLC0415  (only programs that print an envelope need it)

    plain = unicodedata.normalize("NFKC", text)
    shown = (" " if char == "\\" or char.isspace() else char for char in plain if unicodedata.category(char) != "Cf")
    return " ".join("".join(shown).split())


def _may_state(envelope: Result) -> bool:
    """Whether a program can know it: not that something is not granted, nor how an interrupt goes on."""
    data = envelope.data
    match envelope.state:
        case State.INTERRUPTED:
            return False
        case State.PENDING:
            names = data.get("required")
            return (
                isinstance(names, list)
                and bool(names)
                and all(isinstance(name, str) and _PLAIN_NAME.fullmatch(name) for name in names)
            )
        case State.ERROR:
            like_ours = _is_our_type(str(data.get("type"))) or names_our_command(str(data.get("msg")))
            return not like_ours and summary_of(envelope.summary) is not None
        case _:
            return True


def _reported(envelope: Result) -> RuntimeFailed:
    data = envelope.data
    reason = data.get("msg") if isinstance(data.get("msg"), str) else envelope.summary
    told = " ".join(str(reason).split())[:_LONGEST_REASON]
    reported: dict[str, Json] = {"state": str(envelope.state), "summary": envelope.summary, "data": dict(data)}
    return RuntimeFailed(Message("the program says: {message}", message=told), details={REPORTED: reported})


def _our_types() -> frozenset[str]:
    """Return the error types that only the runtime may state."""
    found, queue = set[str](), [SkillError]
    while queue:
        kind = queue.pop()
        found.add(kind.type)
        queue += kind.__subclasses__()
    return frozenset(found - _THEIRS)


def _parse_printed(stdout: bytes) -> tuple[dict[str, Json], Result | None]:
    text = stdout.decode("utf-8", "replace").replace("\r\n", "\n").strip("\n")
    if not text.strip():
        return {}, None
    if (fields := _as_object(text)) is not None:
        return _adopted(fields)
    if not has_icon(text):
        return {"content": text}, None
    try:
        envelope = read_envelope(text)
    except ValueError:
        return {"content": text}, None
    return dict(envelope.data), envelope


def _as_object(text: str) -> dict[str, Json] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        fields = json.loads(text)
        check_value(fields)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _adopted(fields: dict[str, Json]) -> tuple[dict[str, Json], Result | None]:
    if {"agent", "state", "summary"} <= fields.keys():
        try:
            envelope = from_dict(fields)
        except ValueError:
            return fields, None
        return dict(envelope.data), envelope
    data = fields.get("data")
    if isinstance(fields.get("success"), bool) and isinstance(data, Mapping):
        return dict(data), None
    return fields, None
