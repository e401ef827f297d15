"""What `run` says of a skill that is not installed: where it came from, and the three lines before one key decides."""

import os
from datetime import UTC, datetime

from skillyard.app.project import Project
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import PermissionDenied
from skillyard.core.messages import Lang, Message
from skillyard.core.result import Result, make_meta
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import ask_key
from skillyard.faces.cli.review_prompt import all_lines, tell_lines, three_lines
from skillyard.faces.present import Steps
from skillyard.install.source_run import SkillAddress, SourceRun

_NOT_RUN = Message("not run: a person must decide on {name} first")
_QUESTION = Message("  r run it this once · s show · q do not run ")
_FETCHING = Message("fetching")
_REUSED = Message("using the copy of {state} that was fetched before")
_DECIDE = Message("look at it and decide: {command}")


def fetch(yard: Project, asked: SkillAddress, lang: Lang) -> SourceRun:
    if os.environ.get(DEPTH):
        raise PermissionDenied(
            Message("an agent runs only what is installed: a person runs other things, or installs them")
        )
    with Steps(_FETCHING.render(lang), lang=lang) as steps:
        ready = yard.installer().prepare_run(asked, steps)
    if ready.reused:
        tell_lines([_REUSED.render(lang, state=_state(ready))])
    return ready


def may_run(ready: SourceRun, lang: Lang, *, on_terminal: bool) -> bool:
    """What is not held back may; else one key of a person decides, for this run alone."""
    if not ready.is_held:
        return True
    if not on_terminal:
        return False
    tell_lines(three_lines(ready.held, lang))
    key = ask_key(_QUESTION.render(lang), "rsq")
    while key == "s":
        tell_lines(all_lines(ready.held, lang))
        key = ask_key(_QUESTION.render(lang), "rsq")
    return key == "r"


def not_run(ready: SourceRun, agent: str, lang: Lang) -> Result:
    """Interrupted, with what a person does next. Nothing was started, and nothing is installed."""
    name, verdict = ready.held.skill.folder, ready.held.verdict
    data: dict[str, Json] = {
        "interrupted_skills": [name],
        "resume_command": ready.asked.add_command(ready.held.skill.name),
        "severities": {name: str(verdict.severity)},
        "findings": {name: [hit.as_dict() for hit in verdict.hits[:20]]},
    }
    summary = _NOT_RUN.render(lang, name=ready.asked.name)
    hint = _DECIDE.render(lang, command=data["resume_command"])
    meta = make_meta(agent, 0.0, datetime.now(UTC), **about(ready), hint=hint)
    return Result(agent=agent, state=State.INTERRUPTED, summary=summary, data=data, meta=meta)


def about(ready: SourceRun) -> dict[str, Json]:
    """For a result's meta: exactly what ran."""
    return {"source": ready.staged.skill.source, "commit": _state(ready), "reused": ready.reused}


def _state(ready: SourceRun) -> str:
    return ready.staged.skill.commit or ready.staged.skill.hash
