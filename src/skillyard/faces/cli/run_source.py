"""What `run` says of a skill that is not installed: where it came from, and the three lines before one key decides."""

import os
from datetime import UTC, datetime

from skillyard.app.project import Project
from skillyard.core.depth import DEPTH
from skillyard.core.errors import PermissionDenied
from skillyard.core.phrases import Lang, Text
from skillyard.core.result import Result, make_meta
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.ask import ask_key
from skillyard.faces.cli.review_prompt import all_lines, tell_lines, three_lines
from skillyard.faces.present import Steps
from skillyard.install.source_run import SkillAddress, SourceRun

_NOT_RUN = Text("未运行: {name} 须由用户决定", "not run: a person must decide on {name} first")
_QUESTION = Text("  r 只运行这一次 · s 查看 · q 不运行 ", "  r run it this once · s show · q do not run ")
_FETCHING = Text("正在获取", "fetching")
_REUSED = Text("使用之前获取的副本 {state}", "using the copy of {state} that was fetched before")
_DECIDE = Text("查看后由你决定: {command}", "look at it and decide: {command}")


def fetch(yard: Project, asked: SkillAddress, lang: Lang) -> SourceRun:
    if os.environ.get(DEPTH):
        raise PermissionDenied("an agent runs only what is installed: a person runs other things, or installs them")
    with Steps(_FETCHING.fill(lang), lang=lang) as steps:
        ready = yard.installer().prepare_run(asked, steps)
    if ready.reused:
        tell_lines([_REUSED.fill(lang, state=_state(ready))])
    return ready


def may_run(ready: SourceRun, lang: Lang, *, on_terminal: bool) -> bool:
    """What is not held back may; else one key of a person decides, for this run alone."""
    if not ready.is_held:
        return True
    if not on_terminal:
        return False
    tell_lines(three_lines(ready.held, lang))
    key = ask_key(_QUESTION.fill(lang), "rsq")
    while key == "s":
        tell_lines(all_lines(ready.held, lang))
        key = ask_key(_QUESTION.fill(lang), "rsq")
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
    summary = _NOT_RUN.fill(lang, name=ready.asked.name)
    hint = _DECIDE.fill(lang, command=data["resume_command"])
    meta = make_meta(agent, 0.0, datetime.now(UTC), **about(ready), hint=hint)
    return Result(agent=agent, state=State.INTERRUPTED, summary=summary, data=data, meta=meta)


def about(ready: SourceRun) -> dict[str, Json]:
    """For a result's meta: exactly what ran."""
    return {"source": ready.staged.skill.source, "commit": _state(ready), "reused": ready.reused}


def _state(ready: SourceRun) -> str:
    return ready.staged.skill.commit or ready.staged.skill.hash
