"""Install skills from a folder. The doubtful ones wait: decide keep or uninstall for each, all at once or a few.

Where something waits, mybox/temp/langgraph_interrupt.json tells what and why, and the exit code is 5.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from skillyard.core.errors import PermissionDenied, ScriptFailed
from skillyard.core.phrases import PARTLY, PAUSED, Text
from skillyard.core.skill import Severity
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.bin import script
from skillyard.faces.cli.command import Answer, Options
from skillyard.kernel.assembly import Yard, new_run_id, open_yard

if TYPE_CHECKING:
    from skillyard.work.graph import Findings, Stand, Workflow
    from skillyard.work.staging import Staging

#: Stands in the resume command where the decisions go, one JSON object; taken literally it is refused.
SLOT = "{decisions}"
_DONE = Text("安装完成: 保留 {kept} 个, 卸载 {dropped} 个", "installed: {kept} kept, {dropped} uninstalled")
_FILE = "langgraph_interrupt.json"


def main(words: Sequence[str]) -> NoReturn:
    script.run(sys.modules[__name__], words)


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="start | resume")
    start = commands.add_parser("start", help="fetch, scan, and keep what is clean")
    start.add_argument("source", type=Path, help="a skill's folder, or a folder of skills")
    start.add_argument("--thread", type=_thread, metavar="ID", help="a name for this installation (made up)")
    start.set_defaults(answer=_start)
    resume = commands.add_parser("resume", help="go on with decisions, or after a crash")
    resume.add_argument("thread", type=_thread, metavar="ID")
    resume.add_argument("--decisions", type=_decisions, default={}, metavar="JSON", help='{"skill": "keep"}')
    resume.set_defaults(answer=_resume)


def _thread(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", text):
        raise argparse.ArgumentTypeError("letters, digits, - and _ only")
    return text


def _decisions(text: str) -> dict[str, str]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise argparse.ArgumentTypeError('one JSON object of texts: {"skill": "keep"}')
    return given


def _start(options: Options) -> Answer:
    thread = options.thread or new_run_id()
    with open_yard() as yard, _opened(yard, thread) as (workflow, staging):
        return _told(yard, thread, workflow.start(thread, options.source.resolve()), staging)


def _resume(options: Options) -> Answer:
    with open_yard() as yard, _opened(yard, options.thread) as (workflow, staging):
        return _told(yard, options.thread, workflow.resume(options.thread, options.decisions), staging)


@contextmanager
def _opened(yard: Yard, thread: str) -> "Iterator[tuple[Workflow, Staging]]":
    try:
        from skillyard.work.graph import open_workflow
    except ModuleNotFoundError as error:
        raise ScriptFailed(f"{error.name} is missing; install it: pip install 'skillyard[langgraph]'") from None
    from skillyard.work.staging import make_staging

    _inside(yard.root, ".claude/skills").mkdir(parents=True, exist_ok=True)
    staging = make_staging(yard.places.own_home, yard.root, thread)
    with open_workflow(staging, yard.places.own_home / "workflows.db", yard.root) as workflow:
        yield workflow, staging


def _told(yard: Yard, thread: str, stand: "Stand", staging: "Staging") -> Answer:
    file = _inside(yard.root, "mybox/temp") / _FILE
    if stand.waiting:
        return _paused(file, thread, stand.waiting)
    _forget(file, thread)
    staging.clear()
    return _done(thread, stand.outcomes)


def _paused(file: Path, thread: str, waiting: "Mapping[str, Findings]") -> Answer:
    command = f"python bin/skill_install_workflow.py resume {thread} --decisions {SLOT}"
    data: dict[str, Json] = {"interrupted_skills": sorted(waiting), "resume_command": command}
    questions: list[Json] = [{"skill": skill, "findings": [*findings]} for skill, findings in sorted(waiting.items())]
    severities: dict[str, Json] = {skill: _worst(findings) for skill, findings in sorted(waiting.items())}
    _write(file, {**data, "thread": thread, "severities": severities, "questions": questions})
    return Answer(summary=PAUSED, words={"count": len(waiting)}, data=data, state=State.INTERRUPTED)


def _worst(findings: "Findings") -> str:
    return str(max((Severity(str(finding["severity"])) for finding in findings), key=lambda severity: severity.rank))


def _done(thread: str, outcomes: Mapping[str, str]) -> Answer:
    from skillyard.work.staging import DROPPED, KEPT

    kept = sorted(skill for skill, outcome in outcomes.items() if outcome == KEPT)
    dropped = sorted(skill for skill, outcome in outcomes.items() if outcome == DROPPED)
    failed = {skill: why for skill, why in sorted(outcomes.items()) if why not in {KEPT, DROPPED}}
    data: dict[str, Json] = {"kept": list(kept), "uninstalled": list(dropped), "thread": thread}
    if not failed:
        return Answer(summary=_DONE, words={"kept": len(kept), "dropped": len(dropped)}, data=data)
    if not kept and not dropped:
        raise ScriptFailed("; ".join(failed.values()), details={"failed": list(failed)})
    return Answer(
        summary=PARTLY,
        words={"done": len(outcomes) - len(failed), "total": len(outcomes)},
        data={**data, "succeeded": [*kept, *dropped], "failed": list(failed), "reasons": dict(failed)},
        state=State.PARTIAL,
    )


def _inside(root: Path, name: str) -> Path:
    """A folder of the project. A link that came with a clone, or that a skill left, is not followed out of it."""
    folder = root / name
    if not folder.resolve().is_relative_to(root.resolve()):
        raise PermissionDenied(f"{folder} leads out of the project: {folder.resolve()}")
    return folder


def _write(file: Path, content: Mapping[str, Json]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.urandom(4).hex()}")
    with fresh.open("x", encoding="utf-8") as stream:
        json.dump(content, stream, ensure_ascii=False, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)


def _forget(file: Path, thread: str) -> None:
    """The file of this thread goes when nothing waits any more; another thread's stays."""
    try:
        told = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return
    if isinstance(told, dict) and told.get("thread") == thread:
        file.unlink(missing_ok=True)
