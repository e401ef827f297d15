"""Request → Call → Outcome → Result: the steps of a run, and how errors become results.

Each step has its own type, so that the type checker keeps an unchecked request away from a runner."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import ParamMissing, SkillError
from skillyard.core.messages import RAN, WAITING, Lang, Message
from skillyard.core.skill import Skill
from skillyard.core.states import CACHED, MARKS, Mark, State
from skillyard.core.values import NOTHING, Json


class Result(NamedTuple):
    """Outcome of a run, whichever runner ran it and whichever face asked."""

    agent: str
    state: State
    summary: str
    data: Mapping[str, Json] = NOTHING
    meta: Mapping[str, Json] = NOTHING

    @property
    def ok(self) -> bool:
        return self.state in {State.SUCCESS, State.PARTIAL}

    @property
    def cached(self) -> bool:
        """Whether it repeats an earlier run because of an idempotency key."""
        return self.state is State.SUCCESS and self.data.get("cached") is True and "original_result" in self.data

    @property
    def mark(self) -> Mark:
        return CACHED if self.cached else MARKS[self.state]

    @property
    def exit_code(self) -> int:
        return self.mark.exit_code

    def as_text(self) -> str:
        """Return the two lines of docs/spec/result.md; `parse` reads them back."""
        from skillyard.core.envelope import as_text  # noqa: PLC0415  (it imports this module)

        return as_text(self)

    def as_json(self) -> str:
        """Return one JSON object on one line."""
        from skillyard.core.envelope import as_json  # noqa: PLC0415  (it imports this module)

        return as_json(self)

    def as_dict(self) -> dict[str, Json]:
        """Return the JSON object of `--json` and MCP."""
        return {**self._asdict(), "state": str(self.state)}


class Clock:
    """When something began, for the `meta` of its result."""

    def __init__(self, moment: datetime | None = None) -> None:
        self.moment, self._started = moment or datetime.now(UTC), time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def meta(self, agent: str, facts: Mapping[str, Json] = NOTHING) -> dict[str, Json]:
        return make_meta(agent, self.seconds, self.moment, **facts)


def make_meta(agent: str, seconds: float, moment: datetime, **more: Json) -> dict[str, Json]:
    """Return `agent`, `time` and `ts`, then the other values that are not None."""
    stamp = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    known = {key: value for key, value in more.items() if value is not None}
    return {"agent": agent, "time": meaningful(seconds), "ts": stamp, **known}


def meaningful(seconds: float) -> float:
    """Round to milliseconds below ten seconds, to tenths above."""
    digits = 3 if seconds < 10 else 1
    return round(seconds, digits)


def as_size(output_bytes: int) -> str:
    """Return a size for people, 1024-based with one decimal: 12.5KB."""
    size = float(output_bytes)
    for unit in ("B", "KB", "MB"):
        if round(size, 1) < 1024:
            return f"{size:g}B" if unit == "B" else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}GB"


def error_result(error: SkillError, agent: str, lang: Lang, meta: Mapping[str, Json]) -> Result:
    """Return an expected failure as a result; its code and hint are in `meta`."""
    normalised: dict[str, Json] = {"normalised": list(error.normalised)} if error.normalised else {}
    meta = {**meta, **normalised, "code": error.code, "hint": error.hint(lang)}
    return Result(agent, error.state, error.summary(lang), error.data(), meta)


def pending_result(error: ParamMissing, agent: str, lang: Lang, meta: Mapping[str, Json]) -> Result:
    """Return the question for a missing param, where someone can answer it."""
    summary = WAITING.render(lang, names=", ".join(error.required))
    return Result(agent, State.PENDING, summary, error.as_question(), {**meta, "hint": error.hint(lang)})


class Request(NamedTuple):
    """A run as it was asked for, unchecked."""

    name: str
    #: The words after the name, as given.
    args: tuple[str, ...] = ()
    #: Params by name, from callers that name them.
    params: Mapping[str, Json] = NOTHING
    #: A program of the skill to run instead of its command.
    script: str = ""
    #: Use only a skill of agents/<role>; `name` is role/skill.
    role: str = ""
    action: str | None = None
    context: Mapping[str, Json] = NOTHING
    timeout_seconds: float | None = None
    #: Time limit over everything if the caller set none, such as the 90 seconds of a Task.
    deadline_seconds: float | None = None
    #: Somebody can answer: a missing param becomes a question instead of an error.
    interactive: bool = True
    #: The folder in which a person typed it: the paths they name may lie outside the project.
    typed_in: Path | None = None
    #: Folder of a skill that is staged for this run and not in the catalog.
    staged: Path | None = None
    #: Exit codes that count as success in this run; empty for those that the skill declares.
    success_exit_codes: tuple[int, ...] = ()
    #: Refuse responses of JSON skills that only nearly follow the specification.
    strict: bool = False
    #: A person at a terminal sees the result with its keys and tokens; what is kept is masked all the same.
    show_secrets: bool = False
    #: False if the person asked for no sandbox on the command line.
    sandboxed: bool = True
    #: The person said beforehand that the changes of a run that succeeds are applied.
    apply: bool = False
    stdin: bytes = b""
    lang: Lang = Lang.EN
    agent: str = "skills"
    #: The row of the job that this is an attempt of, with the name of the job under `label`.
    job: Mapping[str, Json] = NOTHING
    #: What the Task said about itself, kept with the run: its description and model.
    task: Mapping[str, Json] = NOTHING
    #: Those of the words that a shell would take as a redirection or a pipe; only a prompt has any.
    shell_words: tuple[str, ...] = ()


class Call(NamedTuple):
    """A request that passed every check: the only thing that a runner takes."""

    skill: Skill
    asked_as: str
    run_id: str
    root: Path
    limit_seconds: float
    #: The name for `grant` and `env`: that of the skill, or the folder where it is staged.
    known_as: str = ""
    params: Mapping[str, Json] = NOTHING
    args: tuple[str, ...] = ()
    script: str = ""
    action: str | None = None
    context: Mapping[str, Json] = NOTHING
    #: Value of `{output}`, relative to the root; a folder if it ends in a slash.
    output: str = ""
    #: Paths that the caller named, which may therefore be read.
    named_paths: tuple[Path, ...] = ()
    #: Paths outside the project that a link in the project leads to; readable only with a grant.
    led_out: tuple[Path, ...] = ()
    stdin: bytes = b""
    strict: bool = False
    success_exit_codes: tuple[int, ...] = (0,)
    #: Private copy of the skill's folder, if a grant covers it: only these bytes are used.
    copy: Path | None = None
    #: The program sees the copy at the path of the skill's own folder, not where the copy is.
    copy_is_mounted: bool = False

    @property
    def files(self) -> Path:
        """The folder to read the skill's files from."""
        return self.copy or self.skill.folder

    @property
    def run_folder(self) -> Path:
        """The folder where the program finds the skill's files."""
        return self.copy if self.copy and not self.copy_is_mounted else self.skill.folder


class Outcome(NamedTuple):
    """What a runner returns for a call that worked."""

    data: Mapping[str, Json]
    says: Message = RAN
    words: Mapping[str, Json] = NOTHING
    #: The program's own summary, which replaces ours.
    summary: str | None = None
    normalised: tuple[str, ...] = ()
    state: State = State.SUCCESS
    #: The program's own advice.
    hint: str | None = None

    def as_result(self, agent: str, lang: Lang, seconds: float, moment: datetime, **meta: Json) -> Result:
        summary = self.summary if self.summary is not None else self.says.render(lang, **self.words)
        about = make_meta(agent, seconds, moment, normalised=list(self.normalised) or None, hint=self.hint, **meta)
        return Result(agent, self.state, summary, self.data, about)


def split_name(text: str) -> tuple[str, str]:
    """`@name:scripts/x.py` names a program that the skill ships."""
    name, _, script = text.removeprefix("@").partition(":")
    return name, script
