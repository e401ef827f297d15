"""Everything that can go wrong, as one tree: docs/reference/errors.md lists it.

Code, type, whether a caller can recover, whether a job tries again, summary and hint are class data: whoever raises
says only what happened.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from skillyard.core.messages import Lang, Message, as_json, of_json
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json


class SkillError(Exception):
    """An expected failure.

    `msg` is English, for programs. `values` fill the class's summary and hint; those that are messages are shown in the
    reader's language, and everything else as it is. Whatever a caller needs in order to decide is in `details`.
    """

    #: Of this class alone, and stable: its name in snake case.
    code: ClassVar[str] = "skill_error"
    #: The name in results. A kind of another error has the type of that one: only people need the difference.
    type: ClassVar[str] = "SkillError"
    state: ClassVar[State] = State.ERROR
    #: Whether the caller can do something about it; None where that depends on the error.
    recoverable: ClassVar[bool | None] = None
    #: Whether the same call may succeed later without any change: jobs and flows try it again.
    retryable: ClassVar[bool] = False
    summary_template: ClassVar[Message]
    #: The next step for whoever called, most often an agent.
    hint_template: ClassVar[Message]
    #: The next step for a person at a terminal where it differs; filled with the data and the meta of the result.
    person_template: ClassVar[Message | None] = None

    def __init__(
        self, msg: str, *, details: Mapping[str, Json] | None = None, advice: Message | None = None, **values: object
    ) -> None:
        super().__init__(msg)
        self.msg = msg
        self.details: Mapping[str, Json] = details or {}
        self.values: Mapping[str, object] = {"reason": msg, "log": "stderr", **values}
        #: What the one who knows more than the class adds to the hint.
        self.extra_hint = advice
        #: How the report of a program had to be read, for `meta.normalised`.
        self.normalised: tuple[str, ...] = ()

    def __init_subclass__(cls, *, recoverable: bool | None = None, retryable: bool | None = None) -> None:
        cls.code = re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()
        if SkillError in cls.__bases__:
            cls.type = cls.__name__
        cls.recoverable = cls.recoverable if recoverable is None else recoverable
        cls.retryable = cls.retryable if retryable is None else retryable

    def summary(self, lang: Lang) -> str:
        return f"{self.type}: {self.summary_template.render(lang, **self.values)}"

    def hint(self, lang: Lang) -> str:
        return self.hint_message().render(lang)

    def hint_message(self) -> Message:
        """Return the hint as a message, for one that is shown as part of something else."""
        own = Message(self.hint_template.template, **self.values)
        if self.extra_hint is None:
            return own
        extra = Message(self.extra_hint.template, **{**self.values, **self.extra_hint.values})
        return Message("{hint}; {more}", hint=own, more=extra)

    @classmethod
    def advise_person(cls, facts: Mapping[str, Json]) -> Message | None:
        """Return the advice for a person about a result with this error; `facts` are its data and meta."""
        template = vars(cls).get("person_template")  # a kind of another error has its own advice, or the hint
        if template is None:
            return None
        known = {key: _as_words(value) for key, value in facts.items()}
        return Message(template.template, **known)

    def data(self) -> dict[str, Json]:
        import json  # noqa: PLC0415  (lists have no errors)

        told = {"type": self.type, "msg": self.msg, "recoverable": self.recoverable, **self.details}
        # Some libraries take no `Message` for a str.
        plain: dict[str, Json] = json.loads(json.dumps(told, default=dict))
        return plain


def _as_words(value: Json) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def advice_for_person(data: Mapping[str, Json], meta: Mapping[str, Json]) -> Message | None:
    """Return what a person reads below a failure instead of its hint; None where the hint says it to anybody."""
    kind = next((each for each in error_classes() if each.code == meta.get("code")), None)
    return kind.advise_person({**data, **meta}) if kind else None


def error_classes(kind: type[SkillError] = SkillError) -> Iterator[type[SkillError]]:
    """Yield every kind of error, each after the one that it is a kind of."""
    for child in kind.__subclasses__():
        yield child
        yield from error_classes(child)


def error_as_json(error: SkillError) -> dict[str, Json]:
    """Everything that its texts are made of, so that another process can show it in any language."""
    return {
        "error": error.code,
        "msg": as_json(error.msg),
        "details": dict(error.details),
        "values": {name: as_json(value) for name, value in error.values.items()},
        "hint": as_json(error.extra_hint),
    }


def error_from(message: Mapping[str, Any]) -> SkillError:
    """Return the error that `error_as_json` described; BackendFailed if another version of ours knows its class."""
    kind = next((each for each in error_classes() if each.code == message["error"]), BackendFailed)
    error = kind.__new__(kind)
    values = {name: of_json(value) for name, value in message["values"].items()}
    SkillError.__init__(error, of_json(message["msg"]), details=message["details"], **values)
    error.extra_hint = of_json(message["hint"])
    return error


def retryable_codes() -> frozenset[str]:
    return frozenset(kind.code for kind in error_classes() if kind.retryable)


class SkillNotFound(SkillError, recoverable=True):
    summary_template = Message("skill not installed: {name}")
    hint_template = Message(
        "{near}install it first: `skillyard add SOURCE` takes a folder, an archive, a git address or "
        "owner/repo@{name}; `skillyard search {name}` looks for it here, `skillyard list` shows what is installed"
    )

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        shown = ", ".join(nearest)
        near = Message("; nearest: {nearest}", nearest=shown) if nearest else ""
        meant = Message("did you mean {nearest}? Else ", nearest=shown) if nearest else ""
        msg = Message("Skill '{name}' is not installed{near}", name=name, near=near)
        super().__init__(msg, details={"nearest": list(nearest)}, name=name, near=meant)

    @classmethod
    def advise_person(cls, facts: Mapping[str, Json]) -> Message | None:
        nearest = facts.get("nearest")
        if not isinstance(nearest, list) or not nearest:
            return Message("`skillyard list` shows the skills here, `skillyard add SOURCE` installs one")
        names = " ".join(f"@{name}" for name in nearest[:_MOST_NAMED])
        return Message("did you mean {names}? `skillyard list` shows the skills here", names=names)


class AmbiguousName(SkillError, recoverable=True):
    summary_template = Message("ambiguous name: {name}")
    hint_template = Message("name one of these instead: {candidates}")

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        shown = ", ".join(candidates)
        msg = Message("{name!r} could be any of: {candidates}", name=name, candidates=shown)
        super().__init__(msg, details={"candidates": list(candidates)}, name=name, candidates=shown)


class MetadataMissing(SkillError, recoverable=False):
    summary_template = Message("SKILL.md is broken or missing")
    hint_template = Message("reinstall the skill, or see what is wrong with `skillyard validate`")


class RoleInvalid(MetadataMissing):
    summary_template = Message("invalid agent.yaml: {reason}")
    hint_template = Message("see and correct it with `skillyard role validate`")


class ParamMissing(SkillError, recoverable=True):
    """Carries what is needed to ask for it; a skill that only says so itself gives nothing to ask for."""

    summary_template = Message("missing params: {names}")
    hint_template = Message("ask the user for: {names}")
    person_template = Message("run it again with a value for each of them")

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


class InvalidParam(SkillError, recoverable=True):
    summary_template = Message("invalid param: {reason}")
    hint_template = Message("correct that param and try again")


class InvalidCommand(SkillError, recoverable=False):
    summary_template = Message("invalid command: {reason}")
    hint_template = Message("the skill's `command` must be one program with its arguments, without a shell")


class ProgramMissing(InvalidCommand, recoverable=True):
    """A program of the machine that the skill needs, and where it can be had."""

    summary_template = Message("program missing: {reason}")
    hint_template = Message("install {program}, {where}, and run it again")

    def __init__(self, msg: str, program: str, where: str) -> None:
        super().__init__(msg, details={"program": program, "where": where}, program=program, where=where)


class InvalidRequirements(InvalidCommand):
    summary_template = Message("invalid requirements: {reason}")
    hint_template = Message(
        "the skill must name its packages plainly: name and versions, without addresses, paths or options"
    )


class InvalidArgs(SkillError, recoverable=True):
    summary_template = Message("invalid arguments: {reason}")
    hint_template = Message("read the usage text and try again")

    @classmethod
    def advise_person(cls, facts: Mapping[str, Json]) -> Message | None:
        """Return only what somebody added to the hint: the usage line itself is shown."""
        hint = str(facts.get("hint", ""))
        if cls is not InvalidArgs:
            return None
        for lang in Lang:
            if hint == cls.hint_template.render(lang):
                return Message.plain("")
            before = Message("{hint}; {more}", hint=cls.hint_template, more="").render(lang)
            if hint.startswith(before):
                return Message.plain(hint.removeprefix(before))
        return None


class WorkflowInvalid(InvalidArgs):
    summary_template = Message("invalid workflow: {reason}")
    hint_template = Message("nothing was started; `skillyard flow validate` shows every problem with its line")


class SourceRefused(SkillError, recoverable=False):
    summary_template = Message("the source is refused: {reason}")
    hint_template = Message("nothing was installed; whoever publishes it must correct it")


class MultiStep(SkillError, recoverable=True):
    summary_template = Message("several steps in one call: make it a workflow")
    hint_template = Message(
        "dispatch one skill at a time, or save data.workflow as workflow.yaml: `skillyard flow run workflow.yaml`"
    )
    person_template = Message("run them one by one, or save the steps: `skillyard flow run workflow.yaml`")


class NotGranted(SkillError, recoverable=True):
    summary_template = Message("not granted: {what}")
    hint_template = Message("the person must run: {command}")
    person_template = Message("look at the skill, then allow it: `{grant}`")

    def __init__(self, what: str, command: str, *, details: Mapping[str, Json] = NOTHING) -> None:
        msg = Message("Not granted: {what}", what=what)
        super().__init__(msg, details={"grant": command, **details}, what=what, command=command)


class PermissionDenied(SkillError, recoverable=False):
    summary_template = Message("permission denied")
    hint_template = Message("check the permissions of the file or folder")


class ScriptNotFound(SkillError, recoverable=False):
    summary_template = Message("no such script: {script}")
    hint_template = Message("check the script's path")

    def __init__(self, script: str, *, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(Message("{script} not found", script=script), details=details, script=script)


class TextNotFound(SkillError, recoverable=True):
    summary_template = Message("not found: {reason}")
    hint_template = Message("read the file and try again with text that stands in it")


class AmbiguousText(SkillError, recoverable=True):
    summary_template = Message("ambiguous text: {text} stands in {count} places")
    hint_template = Message("give more of the text around it, or --nth N, or --all")

    def __init__(self, text: str, count: int, lines: Sequence[int]) -> None:
        shown = ", ".join(map(str, lines))
        msg = Message("{text} stands in {count} places: lines {lines}", text=text, count=count, lines=shown)
        super().__init__(msg, details={"count": count, "lines": list(lines)}, text=text, count=count)


class RuntimeFailed(SkillError, retryable=True):
    summary_template = Message("failed: {reason}")
    hint_template = Message("it depends on the error: see {log}")

    @classmethod
    def advise_person(cls, facts: Mapping[str, Json]) -> Message | None:
        if cls is not RuntimeFailed:
            return super().advise_person(facts)
        run = facts.get("run")
        logs = ("stderr", f"skillyard runs show {run}")
        if facts.get("hint") not in {cls.hint_template.render(lang, log=log) for lang in Lang for log in logs}:
            return None  # somebody knows more than that
        return Message("`skillyard runs show {run}` has everything that it said", run=run) if run else Message.plain("")


class EnvironmentFailed(RuntimeFailed):
    summary_template = Message("the environment could not be built: {reason}")
    hint_template = Message(
        "only binary wheels are installed, so each package needs one for this Python and platform; see {log}"
    )


class RequirementFailed(EnvironmentFailed, retryable=False):
    """One requirement cannot be had; `command` builds the environment without it."""

    summary_template = Message("{place}: {requirement} cannot be installed: {reason}")
    hint_template = Message("the person can go on without it: {command}; see {log}")
    person_template = Message("go on without it: `{grant}`")

    def __init__(self, name: str, requirement: str, place: str, error: EnvironmentFailed, command: str) -> None:
        self.name = name
        told: dict[str, Json] = {"requirement": requirement, "place": place, "grant": command}
        details = {**error.details, **told}
        log = str(error.values["log"])
        super().__init__(error.msg, log=log, details=details, requirement=requirement, place=place, command=command)


class SourceFailed(RuntimeFailed):
    summary_template = Message("the source could not be fetched: {reason}")
    hint_template = Message("check the address, the network and your access, then try again")


class SecretMissing(RuntimeFailed, retryable=False):
    summary_template = Message("secret missing: {reason}")
    hint_template = Message("the person must provide it: {remedy}")

    def __init__(self, msg: str, remedy: str, *, details: Mapping[str, Json]) -> None:
        super().__init__(msg, details=details, remedy=remedy)


class StoreFailed(RuntimeFailed):
    summary_template = Message("what is kept cannot be read or written: {reason}")
    hint_template = Message(
        "look at the space on that disk (`df -h`) or set SKILLYARD_HOME to a place with room, and try again; "
        "what was kept is not lost"
    )


class StateDamaged(StoreFailed, retryable=False):
    """A file in SKILLYARD_HOME cannot be read as what it should be. `remedy` is the next step, or what was done."""

    summary_template = Message("a file of Skillyard is damaged: {reason}")
    hint_template = Message("{remedy}")

    def __init__(
        self, msg: str, remedy: str = Message("`skillyard doctor` shows what is damaged and what to do")
    ) -> None:
        super().__init__(msg, remedy=remedy)


class StateNewer(StoreFailed, retryable=False):
    """A file in SKILLYARD_HOME has a format that this version does not know. Nothing is written to it."""

    summary_template = Message("written by a newer Skillyard: {reason}")
    hint_template = Message(
        "update Skillyard (`pip install -U skillyard`), or set SKILLYARD_HOME to another folder; nothing was changed"
    )


class StateUnsafe(StoreFailed, retryable=False):
    summary_template = Message("other users could have written a file of Skillyard: {reason}")
    hint_template = Message("look at what is in it, then make it yours alone with chown and chmod 600")


class StateLocked(StoreFailed, recoverable=True, retryable=True):
    summary_template = Message("locked by another process: {reason}")
    hint_template = Message(
        "wait for that process or end it, then try again; config.toml [store] lock_seconds sets how long to wait"
    )


class DatabaseFailed(RuntimeFailed):
    summary_template = Message("the shared database cannot be used: {reason}")
    hint_template = Message(
        "see that it runs, and that the address and the password at [engine] database in skillyard.toml are right, "
        "then try again"
    )


class ExtraMissing(RuntimeFailed, retryable=False):
    summary_template = Message("not installed: {reason}")
    hint_template = Message("install it first: {install}")

    def __init__(self, library: str | None, extra: str) -> None:
        install = f"pip install 'skillyard[{extra}]'"
        super().__init__(Message("{library} is missing", library=library or extra), install=install)


class PythonMissing(EnvironmentFailed, retryable=False):
    hint_template = Message("install that Python, on the PATH or with `uv python install`")


class Stopped(RuntimeFailed, retryable=False):
    summary_template = Message("stopped: {reason}")
    hint_template = Message("run it again where it is still wanted")


class SkillChanged(RuntimeFailed):
    """The bytes that were meant are not here; another worker may have them."""

    summary_template = Message("the skill changed: {reason}")
    hint_template = Message("`skillyard jobs retry <id>` runs it as the skill is now")


class FolderChanging(RuntimeFailed):
    summary_template = Message("the folder is changing: {reason}")
    hint_template = Message("stop whatever writes to it, and try again")


class WorkflowChanged(RuntimeFailed, retryable=False):
    summary_template = Message("the workflow changed: {reason}")
    hint_template = Message("put the file back and retry, or start it anew as it is now with `skillyard flow run`")


_MOST_NAMED = 5


class ChangesConflict(RuntimeFailed, retryable=False):
    """Somebody else changed the files since the run started."""

    summary_template = Message("the project changed since the run started: {reason}")
    hint_template = Message("nothing was applied; look at the files, then run the skill again")

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        more = " …" if len(paths) > _MOST_NAMED else ""
        super().__init__(", ".join(paths[:_MOST_NAMED]) + more, details={"conflicts": list(paths)})


class ChangesTooMany(RuntimeFailed, retryable=False):
    """The run changed more of the project than a change set may hold."""

    summary_template = Message("{reason}")
    hint_template = Message("nothing in the project changed; let it write below mybox/, which has no such limit")

    def __init__(self) -> None:
        super().__init__(Message("the run changed more than 1 GiB or 100,000 files of the project"))


class ItemsConflict(RuntimeFailed, retryable=False):
    """Two items of one step of a flow changed the same file."""

    summary_template = Message("two items changed the same file: {reason}")
    hint_template = Message("let each item write files of its own, and a later step what they share")


class EarlierChangesMissing(RuntimeFailed):
    """A step of a flow would not see what the steps before it changed."""

    summary_template = Message("what the earlier steps changed cannot be seen: {reason}")
    hint_template = Message("`skillyard jobs retry <id> --from-start` runs all steps again")


class ScriptFailed(RuntimeFailed):
    """Its name on the wire is RuntimeError; a class of that name would hide Python's own."""

    type = "RuntimeError"


class InterruptRefused(ScriptFailed, retryable=False):
    """A script asks for a decision in a way that cannot be followed."""

    summary_template = Message("the interrupt is refused: {reason}")
    hint_template = Message(
        "the script must write mybox/temp/langgraph_interrupt.json in this run, with interrupted_skills and a "
        "resume_command that starts with `python bin/` or `skillyard review resume`"
    )


class Timeout(SkillError, recoverable=True, retryable=True):
    state = State.TIMEOUT
    summary_template = Message("timed out (>{limit:g}s)")
    hint_template = Message("split the task, or allow more with --timeout")
    person_template = Message("give it less to do, or more time: `--timeout 600`")

    def __init__(self, name: str, elapsed: float, limit: float, noun: str = "skill", heard: str = "") -> None:
        msg = Message("{name} ran longer than {limit:g} s", name=name, limit=limit)
        details: dict[str, Json] = {noun: name, "elapsed": elapsed, "limit": limit}
        if heard:
            details["heard"] = heard
        advice = Message("the last heard of it: {heard}", heard=heard) if heard else None
        super().__init__(msg, details=details, limit=limit, advice=advice)

    def data(self) -> dict[str, Json]:
        return dict(self.details)


class ReportedTimeout(Timeout):
    """The program itself gave up waiting: it knows for what, and no limit of ours was reached."""

    summary_template = Message("the program gave up waiting: {reason}")
    hint_template = Message("the program reports it itself, no limit of Skillyard was reached; try again, or see {log}")

    def __init__(self, msg: str, name: str, elapsed: float, log: str, details: Mapping[str, Json], noun: str) -> None:
        figures: dict[str, Json] = {noun: name, "elapsed": elapsed, "limit": None, "msg": msg}
        SkillError.__init__(self, msg, details={**details, **figures}, log=log)


class Cancelled(SkillError, recoverable=True):
    """Somebody took the job back. Never tried again by itself."""

    summary_template = Message("the job was cancelled: {name}")
    hint_template = Message("`skillyard jobs retry <id>` runs it after all")

    def __init__(self, name: str) -> None:
        super().__init__(Message("the job {name} was cancelled", name=name), name=name)


class Replaced(Cancelled):
    """Its schedule's next run took its place, as `overlap: replace` says."""

    summary_template = Message("replaced by the next run: {name}")


class TurnCancelled(Cancelled):
    """A person ended the task of an agent, or took it back before it began."""

    summary_template = Message("cancelled: {reason}")
    hint_template = Message("run it again where it is still wanted")

    def __init__(self, msg: str, *, details: Mapping[str, Json] | None = None, advice: Message | None = None) -> None:
        SkillError.__init__(self, msg, details=details, advice=advice)


class AgentSilent(Timeout):
    """It runs, but nothing comes any more; `words` is the last that it said on the side."""

    summary_template = Message("the agent says nothing (>{limit:g}s)")
    hint_template = Message("look whether its model answers; the last heard of it: {heard}")

    def __init__(self, name: str, elapsed: float, limit: float, heard: str = "") -> None:
        msg = Message("{name} said nothing for {limit:g} s", name=name, limit=limit)
        figures: dict[str, Json] = {"backend": name, "elapsed": elapsed, "limit": limit}
        details = {**figures, "heard": heard} if heard else figures
        SkillError.__init__(self, msg, details=details, limit=limit, heard=heard or "-")


class OutputTooLarge(SkillError, recoverable=False):
    summary_template = Message("too much output: over {limit}")
    hint_template = Message("let the skill write a file instead of stdout; head and tail are kept in {log}")


class SandboxUnavailable(SkillError, recoverable=False):
    summary_template = Message("sandbox unavailable: {missing}")
    hint_template = Message("`skillyard doctor` shows what this machine lacks")


class SandboxTooWeak(SandboxUnavailable):
    """Root, on a machine without namespaces: what the other layers leave open is the whole machine."""

    summary_template = Message("the sandbox is too weak for root: {level}")
    hint_template = Message(
        "run as an ordinary user, or allow namespaces; to run nevertheless: `skillyard run --weak-sandbox` "
        "(not covered: {missing})"
    )

    def __init__(self, level: str, not_covered: tuple[str, ...]) -> None:
        names = ", ".join(not_covered) or "files"
        msg = Message("As root, {level} does not cover {names}", level=level, names=names)
        super().__init__(msg, details={"missing": list(not_covered), "sandbox": level}, level=level, missing=names)


class AgentNotInstalled(SkillError, recoverable=True):
    summary_template = Message("agent not installed: {agent}")
    hint_template = Message("install it: {command}")


class AgentTooOld(AgentNotInstalled):
    summary_template = Message("{agent} {version} is too old: {minimum} is needed")
    hint_template = Message("update it: {command}")

    def __init__(self, agent: str, version: str, minimum: str, command: str) -> None:
        told = {"version": version, "minimum": minimum}
        msg = Message("{agent} {version} is older than {minimum}", agent=agent, **told)
        super().__init__(msg, details=told, agent=agent, version=version, minimum=minimum, command=command)


class BackendFailed(SkillError, retryable=True):
    summary_template = Message("{agent} failed: {reason}")
    hint_template = Message("it depends on the error: the agent, started by hand, says the same")

    def __init__(
        self, agent: str, reason: str, *, details: Mapping[str, Json] = NOTHING, advice: Message | None = None
    ) -> None:
        msg = Message("{place}: {reason}", place=agent, reason=reason)
        super().__init__(msg, details={"backend": agent, **details}, advice=advice, agent=agent, reason=reason)


class TooDeep(SkillError, recoverable=False):
    summary_template = Message("agents inside agents: {depth} deep (at most {deepest})")
    hint_template = Message("the agent that is running must do the task itself")

    def __init__(self, depth: int, deepest: int) -> None:
        figures = {"depth": depth, "deepest": deepest}
        msg = Message("An agent {depth} deep may not start another one (at most {deepest})", **figures)
        super().__init__(msg, details=figures, depth=depth, deepest=deepest)
