"""Request → Call → Outcome: what was asked, what was checked, what came of it.

Three types, so that the type checker keeps an unchecked request away from a runner.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from skillyard.core.messages import RAN, Lang, Message
from skillyard.core.result import Result, make_meta
from skillyard.core.skill import Skill
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json


class Request(NamedTuple):
    """What somebody asked for. Nothing in it is checked yet."""

    name: str
    #: The words after the name, as they came.
    args: tuple[str, ...] = ()
    #: The same by name, from callers that have them so.
    params: Mapping[str, Json] = NOTHING
    #: A program that the skill ships, instead of its command.
    script: str = ""
    #: Only a skill of agents/<role> answers, and `name` is role/skill.
    role: str = ""
    action: str | None = None
    context: Mapping[str, Json] = NOTHING
    timeout_seconds: float | None = None
    #: The limit over everything, where the caller set none: S0's 90 seconds for a Task.
    deadline_seconds: float | None = None
    #: Someone can answer: a missing param is a question, not an error.
    interactive: bool = True
    #: A person typed it, in this folder: the paths they name may lie outside the project.
    typed_in: Path | None = None
    #: The skill's own folder, where it is none of the catalog: staged for this run, and installed nowhere.
    staged: Path | None = None
    #: Refuse the usual variants of S3 instead of reading them.
    strict: bool = False
    #: The person asked for no sandbox, on the command line.
    sandboxed: bool = True
    stdin: bytes = b""
    lang: Lang = Lang.EN
    agent: str = "skills"
    #: For an attempt of a job: what its row says of it, with the job's name under `label`.
    job: Mapping[str, Json] = NOTHING


class Call(NamedTuple):
    """A request that passed every check: the only thing a runner takes."""

    skill: Skill
    asked_as: str
    run_id: str
    root: Path
    limit_seconds: float
    #: What `grant` and `env` call it: its name, or the folder where it is staged.
    known_as: str = ""
    params: Mapping[str, Json] = NOTHING
    args: tuple[str, ...] = ()
    script: str = ""
    action: str | None = None
    context: Mapping[str, Json] = NOTHING
    #: What `{output}` stands for, relative to the root; a folder where it ends in a slash.
    output: str = ""
    #: Paths that the caller named, and so may be read.
    named_paths: tuple[Path, ...] = ()
    #: Paths outside the project that a link in the project leads to: readable only after a grant.
    led_out: tuple[Path, ...] = ()
    stdin: bytes = b""
    strict: bool = False
    #: The private copy of the skill's folder, where a grant counts: only its bytes are used.
    copy: Path | None = None
    #: The program sees the copy at the path of the skill's own folder; else it sees it where the copy lies.
    copy_is_mounted: bool = False

    @property
    def files(self) -> Path:
        """Where to read the skill's files."""
        return self.copy or self.skill.folder

    @property
    def run_folder(self) -> Path:
        """Where the program finds the skill's files."""
        return self.copy if self.copy and not self.copy_is_mounted else self.skill.folder


class Outcome(NamedTuple):
    """What a runner brings back from a call that worked."""

    data: Mapping[str, Json]
    says: Message = RAN
    words: Mapping[str, Json] = NOTHING
    #: The program's own words, which win over ours.
    summary: str | None = None
    normalised: tuple[str, ...] = ()
    state: State = State.SUCCESS

    def as_result(self, agent: str, lang: Lang, seconds: float, moment: datetime, **meta: Json) -> Result:
        return Result(
            agent=agent,
            state=self.state,
            summary=self.summary if self.summary is not None else self.says.render(lang, **self.words),
            data=self.data,
            meta=make_meta(agent, seconds, moment, normalised=list(self.normalised) or None, **meta),
        )
