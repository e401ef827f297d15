"""Command skills: the `command` of SKILL.md, filled in and started without a shell."""

import os
from pathlib import Path

from skillyard.core.errors import InvalidCommand
from skillyard.core.messages import RAN, RAN_TO
from skillyard.core.request import Call, Outcome
from skillyard.core.skill import SLOT
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.runners.interpreters import find_program, interpreter_of
from skillyard.runners.printed import as_printed
from skillyard.runners.process import check_exit, environment, in_repository, snapshot, written
from skillyard.runners.template import fill, split
from skillyard.sandbox.launch import Launch, Sandbox


def plan(call: Call) -> Launch:
    words = tuple(_in_skill(word, call) for word in split(call.skill.command))
    options = frozenset(param.name for param in call.skill.params if param.option)
    program, *rest = fill(words, _values(call), options)
    return launch_of(call, (*_start(program, call), *rest))


def launch_of(call: Call, argv: tuple[str, ...]) -> Launch:
    """In the project, with what was piped in."""
    return Launch(argv=argv, cwd=call.root, env=environment(call), stdin=call.stdin, limit_seconds=call.limit_seconds)


def run(call: Call, sandbox: Sandbox) -> Outcome:
    return started(call, plan(call), sandbox)


def started(call: Call, launch: Launch, sandbox: Sandbox) -> Outcome:
    """What it printed and wrote, as data."""
    before = snapshot(call)
    ended = sandbox(launch)
    check_exit(call, ended)
    printed = as_printed(ended.stdout)
    data: dict[str, Json] = {"skill": call.asked_as, **written(call, before, ended), **printed.data}
    label = call.skill.title or call.asked_as
    if printed.state is not None and printed.summary is not None:
        return Outcome(data=data, summary=printed.summary, state=printed.state)
    state = printed.state or State.SUCCESS
    path = data.get("output_path")
    if isinstance(path, str):
        return Outcome(data=data, says=RAN_TO, words={"label": label, "path": path}, state=state)
    return Outcome(data=data, says=RAN, words={"label": label}, state=state)


def _start(program: str, call: Call) -> tuple[str, ...]:
    """The skill's own program by its interpreter or as it is, else one of the machine's."""
    told = call.root / program
    own = call.files / told.relative_to(call.run_folder) if told.is_relative_to(call.run_folder) else None
    if own is None or not own.is_file():
        return (find_program(os.path.normpath(told) if "/" in program else program),)
    try:
        return (*interpreter_of(own), program)
    except InvalidCommand:
        return (str(told),)


def _in_skill(word: str, call: Call) -> str:
    """A word of the template that names a file of the skill means that file, wherever we stand."""
    if SLOT.search(word) or word.startswith(("-", "/")):
        return word
    own = call.files / word
    exists = own.exists() if "/" in word else own.is_file()
    if not exists or not own.resolve().is_relative_to(call.files.resolve()) or in_repository(Path(word)):
        return word
    told = call.run_folder / word
    return str(told.relative_to(call.root)) if told.is_relative_to(call.root) else str(told)


def _values(call: Call) -> dict[str, str]:
    values = {name: _as_argument(value) for name, value in call.params.items() if value is not None}
    folder = str(call.run_folder)
    return {**values, "output": call.output, "skill": folder, "baseDir": folder, "CLAUDE_SKILL_DIR": folder}


def _as_argument(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
