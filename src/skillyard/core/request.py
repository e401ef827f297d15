"""Request → Call → Outcome: what was asked, what was checked, what came of it.

Three types, so that the type checker keeps an unchecked request away from a runner.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from skillyard.core.phrases import RAN, Lang, Text
from skillyard.core.result import Result, make_meta
from skillyard.core.skill import Skill
from skillyard.core.states import State
from skillyard.core.values import NOTHING, Json


class Request(NamedTuple):
    """What somebody asked for. Nothing in it is checked yet."""

    name: str
    args: tuple[str, ...] = ()
    params: Mapping[str, Json] = NOTHING
    action: str | None = None
    context: Mapping[str, Json] = NOTHING
    timeout_seconds: float | None = None
    #: Someone can answer: a missing param is a question, not an error.
    interactive: bool = True
    #: Refuse the usual variants of S3 instead of reading them.
    strict: bool = False
    lang: Lang = Lang.EN
    agent: str = "skills"


class Call(NamedTuple):
    """A request that passed every check: the only thing a runner takes."""

    skill: Skill
    asked_as: str
    run_id: str
    root: Path
    limit_seconds: float
    params: Mapping[str, Json] = NOTHING
    args: tuple[str, ...] = ()
    action: str | None = None
    context: Mapping[str, Json] = NOTHING
    output: Path | None = None
    strict: bool = False


class Outcome(NamedTuple):
    """What a runner brings back from a call that worked."""

    data: Mapping[str, Json]
    says: Text = RAN
    words: Mapping[str, Json] = NOTHING
    summary: str | None = None
    normalised: tuple[str, ...] = ()
    state: State = State.SUCCESS

    def as_result(self, agent: str, lang: Lang, seconds: float, moment: datetime, **meta: Json) -> Result:
        return Result(
            agent=agent,
            state=self.state,
            summary=self.summary if self.summary is not None else self.says.fill(lang, **self.words),
            data=self.data,
            meta=make_meta(agent, seconds, moment, normalised=list(self.normalised) or None, **meta),
        )
