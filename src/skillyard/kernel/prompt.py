"""The prompt grammar of Task: `执行 @name [args]`, `运行 @name`, `run @name`, `@name`.

Words are split like a shell splits them, and nothing more: no variables, no globs, no substitutions. What is outside
the grammar is InvalidArgs with the usage; it is never guessed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, MultiStep

USAGE = "执行 @<name> [args…] · run @<name> [args…] · @<name> [args…]"
VERBS = frozenset({"执行", "运行", "run"})
_SEPARATORS = ("&&", "||", ";", "；", "|", "然后", "then")


class Word(NamedTuple):
    text: str
    #: Some of it stood in quotes or behind a backslash.
    quoted: bool = False


class SkillPrompt(NamedTuple):
    name: str
    script: str
    args: tuple[str, ...]


def parse_prompt(text: str, exists: Callable[[str], bool]) -> SkillPrompt:
    """The one skill that a prompt calls. `exists` tells whether a name is a skill's: then a second one is a step."""
    if text.lstrip().startswith("TaskOutput"):
        raise InvalidArgs("results carry no task id: the result was in the return value of Task")
    words = split(text)
    if words and not words[0].quoted and words[0].text in VERBS:
        words = words[1:]
    if not words or words[0].quoted or not words[0].text.startswith("@") or len(words[0].text) < 2:
        raise InvalidArgs(f"not a prompt for a skill; write: {USAGE}", details={"usage": USAGE})
    _refuse_steps(words, exists)
    name, script = split_name(words[0].text)
    return SkillPrompt(name, script, tuple(word.text for word in words[1:]))


def split_name(text: str) -> tuple[str, str]:
    """`@name:scripts/x.py` names a program that the skill ships."""
    name, _, script = text.removeprefix("@").partition(":")
    return name, script


def _refuse_steps(words: Sequence[Word], exists: Callable[[str], bool]) -> None:
    for position, word in enumerate(words[1:], 1):
        if word.quoted:
            continue
        if word.text.startswith("@") and len(word.text) > 1 and exists(split_name(word.text)[0]):
            raise _multi_step(word.text)
        following = words[position + 1 : position + 2]
        if word.text.endswith(_SEPARATORS) and following and _starts_a_call(following[0]):
            raise _multi_step(following[0].text)
        if any(separator + "@" in word.text for separator in _SEPARATORS):
            raise _multi_step(word.text)


def _starts_a_call(word: Word) -> bool:
    return not word.quoted and (word.text in VERBS or word.text.startswith("@"))


def _multi_step(second: str) -> MultiStep:
    workflow = "steps: [{skill: first}, {skill: second, needs: first}]"
    msg = f"one call, one skill: {second!r} is a second step"
    return MultiStep(msg, details={"workflow": workflow})


def split(text: str) -> list[Word]:
    """Words like a shell's, each with whether it was quoted."""
    if "\0" in text:
        raise InvalidArgs("a prompt holds no NUL characters")
    return list(_words(text))


def _words(text: str) -> Iterator[Word]:
    characters = iter(text)
    current: list[str] = []
    started = quoted = False
    for character in characters:
        if character.isspace():
            if started:
                yield Word("".join(current), quoted)
            current, started, quoted = [], False, False
            continue
        started = True
        if character == "\\":
            quoted = True
            current.append(_next(characters))
        elif character in {"'", '"'}:
            quoted = True
            current.extend(_quoted(characters, character))
        else:
            current.append(character)
    if started:
        yield Word("".join(current), quoted)


def _quoted(characters: Iterator[str], end: str) -> Iterator[str]:
    while (character := _next(characters)) != end:
        if character == "\\" and end == '"':
            following = _next(characters)
            yield following if following in {'"', "\\"} else f"\\{following}"
        else:
            yield character


def _next(characters: Iterator[str]) -> str:
    character = next(characters, None)
    if character is None:
        raise InvalidArgs("a quote is opened and never closed")
    return character
