"""Command skills: the `command` of SKILL.md, filled in and started without a shell.

The template is split first and filled second, so a param can never add an argument or reach a shell.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.core.errors import InvalidCommand, InvalidParam
from skillyard.core.messages import RAN, RAN_TO, Message
from skillyard.core.result import Call, Outcome
from skillyard.core.skill import NAME, OWN_SLOTS, SLOT, Skill
from skillyard.core.states import State
from skillyard.core.values import Json
from skillyard.runners.interpreters import find_program as find_installed
from skillyard.runners.interpreters import interpreter_of, runs_python
from skillyard.runners.kind import Prepared, as_printed, check_exit, environment, in_repository, snapshot, written
from skillyard.sandbox.launch import Launch, Sandbox

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial

_QUOTED = re.compile(r"'[^']*'|\\.")
_IN_DOUBLE_QUOTES = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHELL = re.compile(rf"[|&;<>()`\n]|\$(?!\{{{NAME}\}})")
_SHELL_IN_DOUBLE_QUOTES = re.compile(rf"`|\$(?!\{{{NAME}\}})")
#: Programs, and options of any program, whose operand is code: a value there would be run.
_CODE_PROGRAMS = frozenset({"awk", "gawk", "mawk", "sed", "ssh", "xargs", "eval"})
_CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "--command", "-p", "--print", "-E"})
#: Slots that stand for the skill's own folder.
_OWN_FOLDER = ("skill", "baseDir", "CLAUDE_SKILL_DIR")


def plan(call: Call) -> Launch:
    words = tuple(_in_skill(word, call) for word in split(call.skill.command))
    options = frozenset(param.name for param in call.skill.params if param.option)
    program, *rest = fill(words, _values(call), options)
    return launch_in_project(call, (*_start(program, call), *rest))


def launch_in_project(call: Call, argv: tuple[str, ...]) -> Launch:
    """Return the launch of a program in the project root, with what was piped in."""
    return Launch(argv=argv, cwd=call.root, env=environment(call), stdin=call.stdin, limit_seconds=call.limit_seconds)


def run(prepared: Prepared, sandbox: Sandbox) -> Outcome:
    """Return what the program printed and wrote, as data."""
    call = prepared.call
    before = snapshot(call)
    ended = sandbox(prepared.program)
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


def find_program(skill: Skill, script: str) -> Path | None:
    del script
    try:
        words = [_with_folder(word, skill.folder) for word in split(skill.command)]
    except InvalidCommand:
        return None  # the run itself says why
    if not runs_python(words[0]):
        return skill.folder / words[0]
    for word in words[1:]:
        if word in {"-m", "-c"}:
            return skill.folder
        if not word.startswith("-"):
            return skill.folder / word
    return None


def probe(skill: Skill, trial: "Trial") -> "Iterator[Probe]":
    from skillyard.runners.command_probes import command_probes  # noqa: PLC0415  (only `check` needs it)

    return command_probes(skill, trial)


def _with_folder(word: str, folder: Path) -> str:
    return SLOT.sub(lambda slot: str(folder) if slot[1] in _OWN_FOLDER else slot[0], word)


def _start(program: str, call: Call) -> tuple[str, ...]:
    """Return how to start a program: the skill's own by its interpreter or directly, else one of the machine."""
    told = call.root / program
    own = call.files / told.relative_to(call.run_folder) if told.is_relative_to(call.run_folder) else None
    if own is None or not own.is_file():
        return (find_installed(os.path.normpath(told) if "/" in program else program),)
    try:
        return (*interpreter_of(own), program)
    except InvalidCommand:
        return (str(told),)


def _in_skill(word: str, call: Call) -> str:
    """Return the path of the skill's file that a word names, or the word if it names none."""
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
    return {**values, "output": call.output, **dict.fromkeys(_OWN_FOLDER, str(call.run_folder))}


def _as_argument(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def split(template: str) -> tuple[str, ...]:
    """Return the words of a template. Raise InvalidCommand if it needs a shell."""
    plain = _QUOTED.sub("", template)
    for quoted in _IN_DOUBLE_QUOTES.findall(plain):
        if _SHELL_IN_DOUBLE_QUOTES.search(quoted):
            raise InvalidCommand(Message("the command needs a shell: {quoted}", quoted=quoted))
    if found := _SHELL.search(_IN_DOUBLE_QUOTES.sub("", plain)):
        raise InvalidCommand(Message("the command needs a shell for {found!r}", found=found[0]))
    try:
        words = tuple(shlex.split(template))
    except ValueError as error:
        raise InvalidCommand(Message("the command cannot be split: {error}", error=error)) from None
    if not words:
        raise InvalidCommand(Message("the command is empty"))
    _refuse_slots_in_code(words)
    return words


def _refuse_slots_in_code(words: tuple[str, ...]) -> None:
    program = words[0].rsplit("/", 1)[-1]
    for before, word in pairwise(words):
        names = [name for name in SLOT.findall(word) if name not in OWN_SLOTS]
        if names and (before in _CODE_OPTIONS or program in _CODE_PROGRAMS):
            told = Message("{{{names}}} would be run as code by {program}", names=names[0], program=program)
            raise InvalidCommand(told)
    if any(name not in OWN_SLOTS for name in SLOT.findall(words[0])):
        raise InvalidCommand(Message("the program itself cannot be a param"))


def fill(words: tuple[str, ...], values: Mapping[str, str], options: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the arguments. A slot without a value drops its argument and the flag before it."""
    return tuple(_filled(words, values, options))


def _filled(words: tuple[str, ...], values: Mapping[str, str], options: frozenset[str]) -> Iterator[str]:
    ended = False  # whether `--` stood before
    for position, word in enumerate(words):
        names = SLOT.findall(word)
        following = words[position + 1 : position + 2]
        if _is_flag(word) and following and not following[0].startswith("-") and _is_empty(following[0], values):
            continue
        if names and _is_empty(word, values):
            continue
        filled = SLOT.sub(lambda slot: values[slot[1]], word)
        if names and filled.startswith("-") and not word.startswith("-") and not ended and names[0] not in options:
            raise InvalidParam(
                Message(
                    "the value of '{names}' starts with '-': the program would take it for an option", names=names[0]
                )
            )
        ended = ended or word == "--"
        yield filled


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and word != "--" and not SLOT.search(word)


def _is_empty(word: str, values: Mapping[str, str]) -> bool:
    return any(name not in values for name in SLOT.findall(word))
