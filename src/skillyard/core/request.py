"""Request → Call → Outcome: the steps of a run.

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
    #: Refuse responses of JSON skills that only nearly follow the specification.
    strict: bool = False
    #: False if the person asked for no sandbox on the command line.
    sandboxed: bool = True
    stdin: bytes = b""
    lang: Lang = Lang.EN
    agent: str = "skills"
    #: The row of the job that this is an attempt of, with the name of the job under `label`.
    job: Mapping[str, Json] = NOTHING


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

    def as_result(self, agent: str, lang: Lang, seconds: float, moment: datetime, **meta: Json) -> Result:
        summary = self.summary if self.summary is not None else self.says.render(lang, **self.words)
        about = make_meta(agent, seconds, moment, normalised=list(self.normalised) or None, **meta)
        return Result(agent, self.state, summary, self.data, about)
