"""Command skills: the `command` of SKILL.md, filled in and started without a shell.

The template is split first and filled second, so a param can never add an argument or reach a shell.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from skillyard.core.errors import InvalidCommand, InvalidParam, ProgramMissing
from skillyard.core.messages import RAN, RAN_TO, Message
from skillyard.core.result import Call, Outcome
from skillyard.core.skill import NAME, OWN_SLOTS, SLOT, ParamType, Skill
from skillyard.core.values import Json, lazy_pattern
from skillyard.runners.interpreters import find_program as find_installed
from skillyard.runners.interpreters import interpreter_of, runs_python
from skillyard.runners.kind import (
    Prepared,
    as_printed,
    check_exit,
    environment,
    is_of_skill,
    ran_by,
    snapshot,
    without_claims,
    written,
)
from skillyard.runners.requirements import Imports, find_module
from skillyard.sandbox.launch import Launch, Sandbox

if TYPE_CHECKING:
    from skillyard.runners.probes import Probe, Trial

_QUOTED = lazy_pattern(r"'[^']*'|\\.")
_IN_DOUBLE_QUOTES = lazy_pattern(r'"(?:[^"\\]|\\.)*"')
_SHELL = lazy_pattern(rf"[|&;<>()`\n]|\$(?!\{{{NAME}\}})")
_SHELL_IN_DOUBLE_QUOTES = lazy_pattern(rf"`|\$(?!\{{{NAME}\}})")
#: Programs, and options of any program, whose operand is code: a value there would be run.
_CODE_PROGRAMS = frozenset({"awk", "gawk", "mawk", "sed", "ssh", "xargs", "eval"})
_CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "--command", "-p", "--print", "-E"})
#: Slots that stand for the skill's own folder.
_OWN_FOLDER = ("skill", "baseDir", "CLAUDE_SKILL_DIR")


def plan(call: Call) -> Launch:
    words = tuple(_in_skill(word, call) for word in split(call.skill.command))
    given = {name: value for name, value in call.params.items() if value is not None}
    values = {name: _as_word(value) for name, value in given.items()}
    values |= {"output": call.output, **dict.fromkeys(_OWN_FOLDER, str(call.run_folder))}
    # A value of these was checked to be a number, so `-5` is a value and no option.
    numbers = {ParamType.INT, ParamType.NUMBER}
    options = frozenset(param.name for param in call.skill.params if param.option or param.type in numbers)
    program, *rest = fill(words, values, options)
    launch = launch_in_project(call, (*_start(program, call), *rest))
    has_module = "-m" in rest[:-1] and runs_python(program)
    own = find_module(rest[rest.index("-m") + 1], call.files) if has_module else None
    return Imports(roots=(own[0],)).applied(launch, call.run_folder) if own else launch


def _as_word(value: Json) -> str:
    if isinstance(value, str):
        return value
    return (
        json.dumps(value, ensure_ascii=False, default=dict) if isinstance(value, bool | list | Mapping) else str(value)
    )


def launch_in_project(call: Call, argv: tuple[str, ...]) -> Launch:
    """Return the launch of a program in the project root, with what was piped in."""
    return Launch(argv=argv, cwd=call.root, env=environment(call), stdin=call.stdin, limit_seconds=call.limit_seconds)


def run(prepared: Prepared, sandbox: Sandbox) -> Outcome:
    """Return what the program printed and wrote, as data."""
    call = prepared.call
    before = snapshot(call)
    ended = sandbox(prepared.program)
    check_exit(call, ended)
    printed = without_claims(as_printed(ended.stdout, ran_by(call, ended)), call.root, ended.seconds)
    data: dict[str, Json] = {"skill": call.asked_as, **written(call, before, ended), **printed.data}
    if len(call.success_exit_codes) > 1:
        data["exit_code"] = ended.code
    if ended.code != 0 and (stderr := ended.stderr.decode("utf-8", "replace").strip()):
        data["stderr"] = stderr
    path = data.get("output_path")
    words = {"label": call.skill.title or call.asked_as, "path": path}
    return printed._replace(data=data, says=RAN_TO if path else RAN, words=words)


def find_program(skill: Skill, script: str) -> Path | None:
    del script
    folder = str(skill.folder)
    try:
        words = split(skill.command)
    except InvalidCommand:
        return None  # the run itself says why
    program, *rest = (SLOT.sub(lambda slot: folder if slot[1] in _OWN_FOLDER else slot[0], word) for word in words)
    is_python = runs_python(program)
    if not is_python and Path(program).name not in {"node", "bun"}:
        return skill.folder / program
    for at, word in enumerate(rest):
        if is_python and word in {"-m", "-c"}:
            own = find_module(rest[at + 1], skill.folder) if word == "-m" and rest[at + 1 :] else None
            return own[1] if own else skill.folder
        if not word.startswith("-"):
            return skill.folder / word
    return None


def probe(skill: Skill, trial: "Trial") -> "Iterator[Probe]":
    from skillyard.runners.probes import command_probes  # noqa: PLC0415  (only `check` needs it)

    return command_probes(skill, trial)


def _start(program: str, call: Call) -> tuple[str, ...]:
    """Return how to start a program: the skill's own by its interpreter or directly, else one of the machine."""
    told = call.root / program
    own = call.files / told.relative_to(call.run_folder) if told.is_relative_to(call.run_folder) else None
    if own is None or not own.is_file():
        return (find_installed(os.path.normpath(told) if "/" in program else program),)
    try:
        return (*interpreter_of(own), program)
    except ProgramMissing:
        raise
    except InvalidCommand:
        return (str(told),)


def _in_skill(word: str, call: Call) -> str:
    """Return the path of the skill's file that a word names, or the word if it names none."""
    if SLOT.search(word) or word.startswith(("-", "/")):
        return word
    own = call.files / word
    if not (own.exists() if "/" in word else own.is_file()) or not is_of_skill(call, word):
        return word
    told = call.run_folder / word
    return str(told.relative_to(call.root)) if told.is_relative_to(call.root) else str(told)


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
    program = words[0].rsplit("/", 1)[-1]
    for before, word in pairwise(words):
        names = [name for name in SLOT.findall(word) if name not in OWN_SLOTS]
        if names and (before in _CODE_OPTIONS or program in _CODE_PROGRAMS):
            told = Message("{{{names}}} would be run as code by {program}", names=names[0], program=program)
            raise InvalidCommand(told)
    if any(name not in OWN_SLOTS for name in SLOT.findall(words[0])):
        raise InvalidCommand(Message("the program itself cannot be a param"))
    return words


def fill(words: tuple[str, ...], values: Mapping[str, str], options: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the arguments. A slot without a value drops its argument and the flag before it."""

    def is_empty(word: str) -> bool:
        return any(name not in values for name in SLOT.findall(word))

    filled: list[str] = []
    for word, following in zip(words, (*words[1:], "-"), strict=True):
        names = SLOT.findall(word)
        is_flag = word.startswith("-") and word not in {"-", "--"} and not names
        if is_empty(word) or (is_flag and not following.startswith("-") and is_empty(following)):
            continue
        argument = SLOT.sub(lambda slot: values[slot[1]], word)
        is_option = argument.startswith("-") and not word.startswith("-") and "--" not in filled
        if names and is_option and names[0] not in options:
            raise InvalidParam(
                Message(
                    "the value of '{names}' starts with '-': the program would take it for an option", names=names[0]
                )
            )
        filled.append(argument)
    return tuple(filled)
