"""Install skills from any source. What the scan holds back waits: decide keep or uninstall, all at once or a few.

Where something waits, mybox/temp/langgraph_interrupt.json tells what and why, and the exit code is 5.
"""

import argparse
import re
from functools import partial
from typing import TYPE_CHECKING

from skillyard.app.project import Project, new_run_id, open_project
from skillyard.core.messages import PAUSED, Message
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.faces.bin import script
from skillyard.faces.command import Answer, Options, on_terminal

if TYPE_CHECKING:
    from skillyard.scripts.install_graph import InstallStatus


main = partial(script.run, "skill_install_workflow")


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="start | resume")
    start = commands.add_parser("start", help="fetch, scan, and install what is clean")
    start.add_argument("source", help="whatever `skillyard add` takes: a folder, an archive, git, owner/repo[@skill]")
    start.add_argument("--skill", action="append", default=[], metavar="NAME", help="only this one; can be repeated")
    start.add_argument("--thread", type=_thread, metavar="ID", help="a name for this installation (made up)")
    start.set_defaults(answer=_start)
    resume = commands.add_parser("resume", help="go on with decisions, or after a crash")
    resume.add_argument("thread", type=_thread, metavar="ID")
    script.add_decisions(resume)
    resume.set_defaults(answer=_resume)


def _thread(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", text):
        raise argparse.ArgumentTypeError("letters, digits, - and _ only")
    return text


def _start(options: Options) -> Answer:
    thread = options.thread or new_run_id()
    with open_project() as project, project.install_workflow(script.tell, on_terminal=on_terminal()) as flow:
        return _told(project, thread, flow.start(thread, options.source, options.skill))


def _resume(options: Options) -> Answer:
    with open_project() as project, project.install_workflow(script.tell, on_terminal=on_terminal()) as flow:
        return _told(project, options.thread, flow.resume(options.thread, options.decisions))


def _told(project: Project, thread: str, stand: "InstallStatus") -> Answer:
    outcomes = sorted(stand.outcomes.items())
    kept, dropped = ([name for name, word in outcomes if word == said] for said in ("keep", "uninstall"))
    done: dict[str, Json] = {"kept": [*kept], "uninstalled": [*dropped], "thread": thread}
    review = project.reviews.find(stand.review)
    if review is None or not stand.waiting:
        project.reviews.forget(stand.review)
        counts = {"kept": len(kept), "dropped": len(dropped)}
        return Answer(Message("installed: {kept} kept, {dropped} uninstalled", **counts), done)
    command = f"python bin/skill_install_workflow.py resume {thread} --decisions {script.SLOT}"
    told = script.paused(project, review, command)
    if stand.changed:
        told["changed"] = [*stand.changed]
    if stand.refused:
        told["refused"] = stand.refused
    return Answer(Message(PAUSED.template, count=len(stand.waiting)), told, state=State.INTERRUPTED)
