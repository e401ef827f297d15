"""Command templates: split first, fill second, so a param can never add an argument or reach a shell."""

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise

from skillyard.core.errors import InvalidCommand, InvalidParam
from skillyard.core.messages import Message
from skillyard.core.skill import NAME, OWN_SLOTS, SLOT

_QUOTED = re.compile(r"'[^']*'|\\.")
_IN_DOUBLE_QUOTES = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHELL = re.compile(rf"[|&;<>()`\n]|\$(?!\{{{NAME}\}})")
_SHELL_IN_DOUBLE_QUOTES = re.compile(rf"`|\$(?!\{{{NAME}\}})")
#: Programs, and options of any program, whose operand is code: a value there would be run.
_CODE_PROGRAMS = frozenset({"awk", "gawk", "mawk", "sed", "ssh", "xargs", "eval"})
_CODE_OPTIONS = frozenset({"-c", "-e", "--eval", "--command", "-p", "--print", "-E"})


def split(template: str) -> tuple[str, ...]:
    """The words of a template; InvalidCommand where only a shell could make sense of it."""
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
            raise InvalidCommand(
                Message("{{{names}}} would be run as code by {program}", names=names[0], program=program)
            )
    if any(name not in OWN_SLOTS for name in SLOT.findall(words[0])):
        raise InvalidCommand(Message("the program itself cannot be a param"))


def fill(words: tuple[str, ...], values: Mapping[str, str], options: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The arguments. A slot without a value drops its argument and the flag before it."""
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
