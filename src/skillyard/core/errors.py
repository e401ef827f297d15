"""Everything that can go wrong, as one tree.

SkillError
  SkillNotFound       the name resolves to nothing
  AmbiguousName       the name resolves to several, none of them better than the others
  MetadataMissing     a named folder without a usable SKILL.md
  RoleInvalid         an agent.yaml that cannot be read (MetadataMissing on the wire)
  ParamMissing        a required param was not given; pending where someone can answer
  InvalidParam        a param has a value that the skill does not take
  InvalidCommand      the command template cannot be run without a shell
  InvalidRequirements the packages it names cannot be read (InvalidCommand on the wire)
  InvalidArgs         the call itself cannot be read
  WorkflowInvalid     a workflow.yaml that cannot be run (InvalidArgs on the wire)
  SourceRefused       what a source holds is not safe to write down
  MultiStep           one call asks for several steps
  NotGranted          the person has not allowed it
  PermissionDenied    nobody can allow it here
  ScriptNotFound      no such script in bin/
  TextNotFound        the file has no such text, marker or field
  AmbiguousText       the text stands in several places of the file, and nobody said which
  RuntimeFailed       the skill ran and failed
  EnvironmentFailed   its packages could not be installed (RuntimeFailed on the wire)
  SourceFailed        a source could not be fetched (RuntimeFailed on the wire)
  SecretMissing       a declared secret is not there (RuntimeFailed on the wire)
  StoreFailed         our own files cannot be kept: a full disk, most often (RuntimeFailed on the wire)
  StateDamaged        a file of ours is damaged (RuntimeFailed on the wire)
  StateNewer          a file of ours was written by a newer version (RuntimeFailed on the wire)
  StateUnsafe         others could have written a file of ours (RuntimeFailed on the wire)
  StateLocked         another process has held a file of ours for too long (RuntimeFailed on the wire)
  DatabaseFailed      the shared database does not answer (RuntimeFailed on the wire)
  ExtraMissing        a part of us that is installed on its own (RuntimeFailed on the wire)
  Stopped             whoever asked for the run took it back (RuntimeFailed on the wire)
  SkillChanged        the bytes that a job meant are not here (RuntimeFailed on the wire)
  FolderChanging      a folder did not stand still while it was read (RuntimeFailed on the wire)
  WorkflowChanged     the file that a flow was started from is another now (RuntimeFailed on the wire)
  PythonMissing       the Python that it needs is not there (RuntimeFailed on the wire)
  ScriptFailed        the bin/ script ran and failed (RuntimeError on the wire)
  Timeout             the deadline passed and the whole tree was stopped
  Cancelled           somebody took the job back
  AgentSilent         a backend agent told nothing for too long (Timeout on the wire)
  OutputTooLarge      more output than the limit
  SandboxUnavailable  this machine cannot give what the policy demands
  SandboxTooWeak      root without namespaces, and nobody insisted (SandboxUnavailable on the wire)
  AgentNotInstalled   the backend agent's program is not there
  AgentTooOld         it is there, but speaks too old a protocol (AgentNotInstalled on the wire)
  BackendFailed       the backend agent ran and failed, or its model did; carries its own words
  TooDeep             an agent that we started asks for one more

Code, type, whether a caller can recover, whether a job tries again, summary and hint are class data: whoever raises
says only what happened.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from skillyard.core.messages import Lang, Message, render
from skillyard.core.states import State
from skillyard.core.values import Json


class SkillError(Exception):
    """An expected failure.

    `msg` is English, for programs. `values` fill the class's summary and hint; those that are messages are shown in the
    reader's language, and everything else as it is. Whatever a caller needs in order to decide is in `details`.
    """

    #: Stable, and of this class alone.
    code: ClassVar[str] = "skill_error"
    #: The name in results. Several classes share one where only people need the difference.
    type: ClassVar[str] = "SkillError"
    state: ClassVar[State] = State.ERROR
    #: Whether the caller can do something about it; None where that depends on the error.
    recoverable: ClassVar[bool | None] = None
    #: Whether the same call may succeed later without any change: jobs and flows try it again.
    retryable: ClassVar[bool] = False
    summary_template: ClassVar[Message]
    hint_template: ClassVar[Message]

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None, **values: object) -> None:
        super().__init__(msg)
        self.msg = msg
        self.details: Mapping[str, Json] = details or {}
        self.values: Mapping[str, object] = values
        #: What the one who knows more than the class adds to the hint.
        self.extra_hint: Message | None = None

    def __init_subclass__(cls) -> None:
        if "type" not in cls.__dict__:
            cls.type = cls.__name__

    def summary(self, lang: Lang) -> str:
        return f"{self.type}: {self.summary_template.render(lang, **self.values)}"

    def hint(self, lang: Lang) -> str:
        return render(self.hint_message(), lang)

    def hint_message(self) -> Message:
        """Return the hint as a message, for one that is shown as part of something else."""
        own = Message(self.hint_template.template, **self.values)
        if self.extra_hint is None:
            return own
        extra = Message(self.extra_hint.template, **{**self.values, **self.extra_hint.values})
        return Message("{hint}; {more}", hint=own, more=extra)

    def data(self) -> dict[str, Json]:
        details = {name: _plain(value) for name, value in self.details.items()}
        return {"type": self.type, "msg": _plain(self.msg), "recoverable": self.recoverable, **details}


def _plain(value: Json) -> Json:
    """Return the value with every message as a plain str: some libraries take no subclass."""
    match value:
        case str():
            return render(value, Lang.EN)
        case Mapping():
            return {name: _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def error_classes(kind: type[SkillError] = SkillError) -> Iterator[type[SkillError]]:
    """Yield every kind of error, each after the one that it is a kind of."""
    for child in kind.__subclasses__():
        yield child
        yield from error_classes(child)


def retryable_codes() -> frozenset[str]:
    return frozenset(kind.code for kind in error_classes() if kind.retryable)


class SkillNotFound(SkillError):
    code = "skill_not_found"
    recoverable = True
    summary_template = Message("skill not installed: {name}")
    hint_template = Message(
        "install it first; `skillyard search {name}` looks for it, `skillyard list` shows what is installed"
    )

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        near = Message("; nearest: {nearest}", nearest=", ".join(nearest)) if nearest else ""
        super().__init__(
            Message("Skill '{name}' is not installed{near}", name=name, near=near),
            details={"nearest": list(nearest)},
            name=name,
        )


class AmbiguousName(SkillError):
    code = "ambiguous_name"
    recoverable = True
    summary_template = Message("ambiguous name: {name}")
    hint_template = Message("name one of these instead: {candidates}")

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        shown = ", ".join(candidates)
        super().__init__(
            Message("{name!r} could be any of: {candidates}", name=name, candidates=shown),
            details={"candidates": list(candidates)},
            name=name,
            candidates=shown,
        )


class MetadataMissing(SkillError):
    code = "metadata_missing"
    recoverable = False
    summary_template = Message("SKILL.md is broken or missing")
    hint_template = Message("reinstall the skill, or see what is wrong with `skillyard validate`")


class RoleInvalid(MetadataMissing):
    """A role's file says something that cannot be read about what its skills may touch."""

    code = "role_invalid"
    type = "MetadataMissing"
    summary_template = Message("invalid agent.yaml: {reason}")
    hint_template = Message("see and correct it with `skillyard role validate`")

    def __init__(self, msg: str) -> None:
        super().__init__(msg, reason=msg)


class ParamMissing(SkillError):
    """Carries what is needed to ask for it; a skill that only says so itself gives nothing to ask for."""

    code = "param_missing"
    recoverable = True
    summary_template = Message("missing params: {names}")
    hint_template = Message("ask the user for: {names}")

    def __init__(
        self,
        required: tuple[str, ...],
        optional: tuple[str, ...] = (),
        prompts: Mapping[str, str] | None = None,
        *,
        told: str = "",
        details: Mapping[str, Json] | None = None,
    ) -> None:
        quoted = ", ".join(f"'{name}'" for name in required)
        plural = "s" if len(required) > 1 else ""
        msg = told or Message("Required parameter{plural} {quoted} not provided", plural=plural, quoted=quoted)
        super().__init__(msg, details=details, names=", ".join(required) or told)
        self.required = required
        self.optional = optional
        self.prompts = prompts or {}

    def as_question(self) -> dict[str, Json]:
        """The data of a pending result."""
        asked: dict[str, Json] = {"required": list(self.required), "optional": list(self.optional)}
        if self.prompts:
            asked["prompts"] = dict(self.prompts)
        return asked


class InvalidParam(SkillError):
    code = "invalid_param"
    recoverable = True
    summary_template = Message("invalid param: {reason}")
    hint_template = Message("correct that param and try again")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(msg, details=details, reason=msg)


class InvalidCommand(SkillError):
    code = "invalid_command"
    recoverable = False
    summary_template = Message("invalid command: {reason}")
    hint_template = Message("the skill's `command` must be one program with its arguments, without a shell")

    def __init__(self, msg: str) -> None:
        super().__init__(msg, reason=msg)


class InvalidRequirements(InvalidCommand):
    """What a skill says of its packages is not plain names and versions."""

    code = "invalid_requirements"
    type = "InvalidCommand"
    summary_template = Message("invalid requirements: {reason}")
    hint_template = Message(
        "the skill must name its packages plainly: name and versions, without addresses, paths or options"
    )


class InvalidArgs(SkillError):
    code = "invalid_args"
    recoverable = True
    summary_template = Message("invalid arguments: {reason}")
    hint_template = Message("read the usage text and try again")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None, advice: Message | None = None) -> None:
        """`advice`: the next step, where whoever raises knows more than "read the usage"."""
        super().__init__(msg, details=details, reason=msg)
        self.extra_hint = advice


class WorkflowInvalid(InvalidArgs):
    """Found before anything of it was started."""

    code = "workflow_invalid"
    type = "InvalidArgs"
    summary_template = Message("invalid workflow: {reason}")
    hint_template = Message("nothing was started; `skillyard flow validate` shows every problem with its line")


class SourceRefused(SkillError):
    """Nothing of it was written."""

    code = "source_refused"
    recoverable = False
    summary_template = Message("the source is refused: {reason}")
    hint_template = Message("nothing was installed; whoever publishes it must correct it")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(msg, details=details, reason=msg)


class MultiStep(SkillError):
    code = "multi_step"
    recoverable = True
    summary_template = Message("several steps in one call: make it a workflow")
    hint_template = Message(
        "dispatch one skill at a time, or save data.workflow as workflow.yaml: `skillyard flow run workflow.yaml`"
    )


class NotGranted(SkillError):
    code = "not_granted"
    recoverable = True
    summary_template = Message("not granted: {what}")
    hint_template = Message("the person must run: {command}")

    def __init__(self, what: str, command: str, *, details: Mapping[str, Json] | None = None) -> None:
        told = {"grant": command, **(details or {})}
        super().__init__(Message("Not granted: {what}", what=what), details=told, what=what, command=command)


class PermissionDenied(SkillError):
    code = "permission_denied"
    recoverable = False
    summary_template = Message("permission denied")
    hint_template = Message("check the permissions of the file or folder")


class ScriptNotFound(SkillError):
    code = "script_not_found"
    recoverable = False
    summary_template = Message("no such script: {script}")
    hint_template = Message("check the script's path")

    def __init__(self, script: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(Message("{script} not found", script=script), details=details, script=script)


class TextNotFound(SkillError):
    code = "text_not_found"
    recoverable = True
    summary_template = Message("not found: {reason}")
    hint_template = Message("read the file and try again with text that stands in it")

    def __init__(self, msg: str) -> None:
        super().__init__(msg, reason=msg)


class AmbiguousText(SkillError):
    code = "ambiguous_text"
    recoverable = True
    summary_template = Message("ambiguous text: {text} stands in {count} places")
    hint_template = Message("give more of the text around it, or --nth N, or --all")

    def __init__(self, text: str, count: int, lines: Sequence[int]) -> None:
        shown = ", ".join(map(str, lines))
        super().__init__(
            Message("{text} stands in {count} places: lines {lines}", text=text, count=count, lines=shown),
            details={"count": count, "lines": list(lines)},
            text=text,
            count=count,
        )


class RuntimeFailed(SkillError):
    code = "runtime_failed"
    retryable = True
    summary_template = Message("failed: {reason}")
    hint_template = Message("it depends on the error: see {log}")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None, log: str = "stderr") -> None:
        super().__init__(msg, details=details, reason=msg, log=log)


class EnvironmentFailed(RuntimeFailed):
    """The packages of a skill could not be installed."""

    code = "environment_failed"
    type = "RuntimeFailed"
    summary_template = Message("the environment could not be built: {reason}")
    hint_template = Message(
        "only binary wheels are installed, so each package needs one for this Python and platform; see {log}"
    )


class SourceFailed(RuntimeFailed):
    """A source is not there, or did not answer in time."""

    code = "source_failed"
    type = "RuntimeFailed"
    summary_template = Message("the source could not be fetched: {reason}")
    hint_template = Message("check the address, the network and your access, then try again")


class SecretMissing(RuntimeFailed):
    """A secret that a role declares is not where it says."""

    code = "secret_missing"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("secret missing: {reason}")
    hint_template = Message("the person must provide it: {remedy}")

    def __init__(self, msg: str, remedy: str, *, details: Mapping[str, Json]) -> None:
        super().__init__(msg, details=details)
        self.values = {**self.values, "remedy": remedy}


class StoreFailed(RuntimeFailed):
    """What we keep cannot be written or read: a full disk, most often."""

    code = "store_failed"
    type = "RuntimeFailed"
    summary_template = Message("what is kept cannot be read or written: {reason}")
    hint_template = Message(
        "look at the space on that disk (`df -h`) or set SKILLYARD_HOME to a place with room, and try again; "
        "what was kept is not lost"
    )


class StateDamaged(StoreFailed):
    """A file in SKILLYARD_HOME cannot be read as what it should be. `remedy` is the next step, or what was done."""

    code = "state_damaged"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("a file of Skillyard is damaged: {reason}")
    hint_template = Message("{remedy}")

    def __init__(
        self, msg: str, remedy: str = Message("`skillyard doctor` shows what is damaged and what to do")
    ) -> None:
        super().__init__(msg)
        self.values = {**self.values, "remedy": remedy}


class StateNewer(StoreFailed):
    """A file in SKILLYARD_HOME has a format that this version does not know. Nothing is written to it."""

    code = "state_newer"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("written by a newer Skillyard: {reason}")
    hint_template = Message(
        "update Skillyard (`pip install -U skillyard`), or set SKILLYARD_HOME to another folder; nothing was changed"
    )


class StateUnsafe(StoreFailed):
    """Other users could have written the file. It stays where it is, and nothing in it counts."""

    code = "state_unsafe"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("other users could have written a file of Skillyard: {reason}")
    hint_template = Message("look at what is in it, then make it yours alone with chown and chmod 600")


class StateLocked(StoreFailed):
    """Another process has held a file in SKILLYARD_HOME for longer than `[store] lock_seconds`."""

    code = "state_locked"
    type = "RuntimeFailed"
    retryable = True
    recoverable = True
    summary_template = Message("locked by another process: {reason}")
    hint_template = Message(
        "wait for that process or end it, then try again; config.toml [store] lock_seconds sets how long to wait"
    )


class DatabaseFailed(RuntimeFailed):
    """The database that several machines share does not answer, or not to us."""

    code = "database_failed"
    type = "RuntimeFailed"
    summary_template = Message("the shared database cannot be used: {reason}")
    hint_template = Message(
        "see that it runs, and that the address and the password at [engine] database in skillyard.toml are right, "
        "then try again"
    )


class ExtraMissing(RuntimeFailed):
    """A library that only some of us need."""

    code = "extra_missing"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("not installed: {reason}")
    hint_template = Message("install it first: {install}")

    def __init__(self, library: str | None, extra: str) -> None:
        super().__init__(Message("{library} is missing", library=library or extra))
        self.values = {**self.values, "install": f"pip install 'skillyard[{extra}]'"}


class PythonMissing(EnvironmentFailed):
    """No Python of this machine is one that the skill takes."""

    code = "python_missing"
    type = "RuntimeFailed"
    retryable = False
    hint_template = Message("install that Python, on the PATH or with `uv python install`")


class Stopped(RuntimeFailed):
    """Whoever asked for the run did not want it any more."""

    code = "stopped"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("stopped: {reason}")
    hint_template = Message("run it again where it is still wanted")


class SkillChanged(RuntimeFailed):
    """The bytes that were meant are not here; another worker may have them."""

    code = "skill_changed"
    type = "RuntimeFailed"
    summary_template = Message("the skill changed: {reason}")
    hint_template = Message("`skillyard jobs retry <id>` runs it as the skill is now")


class FolderChanging(RuntimeFailed):
    """Something writes to a folder while we read it."""

    code = "folder_changing"
    type = "RuntimeFailed"
    summary_template = Message("the folder is changing: {reason}")
    hint_template = Message("stop whatever writes to it, and try again")


class WorkflowChanged(RuntimeFailed):
    """What was started is not what lies there now; half of each would be neither."""

    code = "workflow_changed"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("the workflow changed: {reason}")
    hint_template = Message("put the file back and retry, or start it anew as it is now with `skillyard flow run`")


_MOST_NAMED = 5


class ChangesConflict(RuntimeFailed):
    """Somebody else changed the files since the run started."""

    code = "changes_conflict"
    type = "RuntimeFailed"
    retryable = False
    summary_template = Message("the project changed since the run started: {reason}")
    hint_template = Message("nothing was applied; look at the files, then run the skill again")

    def __init__(self, paths: tuple[str, ...]) -> None:
        more = " …" if len(paths) > _MOST_NAMED else ""
        super().__init__(", ".join(paths[:_MOST_NAMED]) + more, details={"conflicts": list(paths)})


class ScriptFailed(RuntimeFailed):
    """Its name on the wire is RuntimeError; a class of that name would hide Python's own."""

    code = "script_failed"
    type = "RuntimeError"


class Timeout(SkillError):
    code = "timeout"
    retryable = True
    state = State.TIMEOUT
    recoverable = True
    summary_template = Message("timed out (>{limit:g}s)")
    hint_template = Message("split the task, or allow more with --timeout")

    def __init__(self, name: str, elapsed: float, limit: float, noun: str = "skill") -> None:
        super().__init__(Message("{name} ran longer than {limit:g} s", name=name, limit=limit), limit=limit)
        self.figures: dict[str, Json] = {noun: name, "elapsed": elapsed, "limit": limit}

    def data(self) -> dict[str, Json]:
        return self.figures


class Cancelled(SkillError):
    """Somebody took the job back. Never tried again by itself."""

    code = "cancelled"
    recoverable = True
    summary_template = Message("the job was cancelled: {name}")
    hint_template = Message("`skillyard jobs retry <id>` runs it after all")

    def __init__(self, name: str) -> None:
        super().__init__(Message("the job {name} was cancelled", name=name), name=name)


class AgentSilent(Timeout):
    """It runs, but nothing comes any more; `words` is the last that it said on the side."""

    code = "agent_silent"
    type = "Timeout"
    summary_template = Message("the agent says nothing (>{limit:g}s)")
    hint_template = Message("look whether its model answers; the last heard of it: {heard}")

    def __init__(self, name: str, elapsed: float, limit: float, heard: str = "") -> None:
        super().__init__(name, elapsed, limit, "backend")
        self.msg = Message("{name} said nothing for {limit:g} s", name=name, limit=limit)
        self.args = (self.msg,)
        self.values = {**self.values, "heard": heard or "-"}
        if heard:
            self.figures["heard"] = heard


class OutputTooLarge(SkillError):
    code = "output_too_large"
    recoverable = False
    summary_template = Message("too much output: over {limit}")
    hint_template = Message("let the skill write a file instead of stdout; head and tail are kept in {log}")


class SandboxUnavailable(SkillError):
    code = "sandbox_unavailable"
    recoverable = False
    summary_template = Message("sandbox unavailable: {missing}")
    hint_template = Message("`skillyard doctor` shows what this machine lacks")


class SandboxTooWeak(SandboxUnavailable):
    """Root, on a machine without namespaces: what the other layers leave open is the whole machine."""

    code = "sandbox_too_weak"
    type = "SandboxUnavailable"
    summary_template = Message("the sandbox is too weak for root: {level}")
    hint_template = Message(
        "run as an ordinary user, or allow namespaces; to run nevertheless: `skillyard run --weak-sandbox` "
        "(not covered: {missing})"
    )

    def __init__(self, level: str, not_covered: tuple[str, ...]) -> None:
        names = ", ".join(not_covered) or "files"
        super().__init__(
            Message("As root, {level} does not cover {names}", level=level, names=names),
            details={"missing": list(not_covered), "sandbox": level},
            level=level,
            missing=names,
        )


class AgentNotInstalled(SkillError):
    code = "agent_not_installed"
    recoverable = True
    summary_template = Message("agent not installed: {agent}")
    hint_template = Message("install it: {command}")


class AgentTooOld(AgentNotInstalled):
    """It would not understand us."""

    code = "agent_too_old"
    type = "AgentNotInstalled"
    summary_template = Message("{agent} {version} is too old: {minimum} is needed")
    hint_template = Message("update it: {command}")

    def __init__(self, agent: str, version: str, minimum: str, command: str) -> None:
        super().__init__(
            Message("{agent} {version} is older than {minimum}", agent=agent, version=version, minimum=minimum),
            details={"version": version, "minimum": minimum},
            agent=agent,
            version=version,
            minimum=minimum,
            command=command,
        )


class BackendFailed(SkillError):
    """`reason` is in the agent's own words."""

    code = "backend_failed"
    retryable = True
    summary_template = Message("{agent} failed: {reason}")
    hint_template = Message("it depends on the error: the agent, started by hand, says the same")

    def __init__(self, agent: str, reason: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(
            Message("{place}: {reason}", place=agent, reason=reason),
            details={"backend": agent, **(details or {})},
            agent=agent,
            reason=reason,
        )


class TooDeep(SkillError):
    """The loop agent → skillyard → agent ends here."""

    code = "too_deep"
    recoverable = False
    summary_template = Message("agents inside agents: {depth} deep (at most {deepest})")
    hint_template = Message("the agent that is running must do the task itself")

    def __init__(self, depth: int, deepest: int) -> None:
        super().__init__(
            Message(
                "An agent {depth} deep may not start another one (at most {deepest})", depth=depth, deepest=deepest
            ),
            details={"depth": depth, "deepest": deepest},
            depth=depth,
            deepest=deepest,
        )
