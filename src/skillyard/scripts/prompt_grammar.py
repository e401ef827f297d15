"""The prompt grammar of Task: `执行 @name [args]`, `运行 @name`, `run @name`, `@name`.

Words are split like a shell splits them, and nothing more: no variables, no globs, no substitutions. What is outside
the grammar is InvalidArgs with the usage; it is never guessed.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import exists as path_exists
from skillyard.catalog.files import expand_home, is_folder
from skillyard.core.errors import InvalidArgs, MultiStep
from skillyard.core.messages import Message
from skillyard.core.shell_words import Word, split

USAGE = "执行 @<name> [args…] · run @<name> [args…] · @<name> [args…]"
VERBS = frozenset({"执行", "运行", "run"})
_ARCHIVE = re.compile(r"\.(?:skill|zip|tar|tgz|tar\.gz)(?:[@#:]|$)", re.IGNORECASE)
_FIRST = re.compile("[@#:]")
_SEPARATORS = ("&&", "||", ";", "；", "|", "然后", "then")


class Addressee(StrEnum):
    """Whom a task is for."""

    SKILLS = "skills"
    WORKER = "worker_agent"
    #: No prompt at all: words for an agent that understands them.
    BACKEND = "backend"


def addressee(text: str) -> Addressee:
    """By its first words alone, so that a prompt with a mistake in it is still one, and never handed to an agent."""
    words = text.split(maxsplit=3)
    has_verb = bool(words) and words[0] in VERBS
    first, second = (*words[1 if has_verb else 0 :], "", "")[:2]
    if first.startswith("TaskOutput") or (first.startswith("@") and len(first) > 1):
        return Addressee.SKILLS
    if first in {"python", "python3"} and (has_verb or second.startswith(("bin/", "./bin/"))):
        return Addressee.WORKER
    return Addressee.BACKEND


class SkillPrompt(NamedTuple):
    name: str
    script: str
    args: tuple[str, ...]


def parse_prompt(text: str, exists: Callable[[str], bool]) -> SkillPrompt:
    """The one skill that a prompt calls. `exists` tells whether a name is a skill's: then a second one is a step."""
    if text.lstrip().startswith("TaskOutput"):
        raise InvalidArgs(Message("results carry no task id: the result was in the return value of Task"))
    words = split(text)
    if words and not words[0].quoted and words[0].text in VERBS:
        words = words[1:]
    if not words or words[0].quoted or not words[0].text.startswith("@") or len(words[0].text) < 2:
        raise InvalidArgs(Message("not a prompt for a skill; write: {usage}", usage=USAGE), details={"usage": USAGE})
    _refuse_steps(words, exists)
    name, script = split_name(words[0].text)
    return SkillPrompt(name, script, tuple(word.text for word in words[1:]))


def split_name(text: str) -> tuple[str, str]:
    """`@name:scripts/x.py` names a program that the skill ships."""
    name, _, script = text.removeprefix("@").partition(":")
    return name, script


def may_name_source(text: str, cwd: Path) -> bool:
    """Whether what was typed to `run` may be `SOURCE[@skill][#ref][:program]`; cheap, and no word with `@` first is.

    A folder is none: what is on the disk is run as it is. A path that is not there is none either.
    """
    if text.startswith("@") or not ("/" in text or _ARCHIVE.search(text)):
        return False
    name = split_name(text)[0]
    folder = cwd / expand_home(name)
    if is_folder(folder):
        return (folder / "HEAD").is_file() and is_folder(folder / "objects")
    is_path = text.startswith(("./", "../", "/", "~/"))
    return not is_path or path_exists(cwd / expand_home(_FIRST.split(text)[0]))


def _refuse_steps(words: Sequence[Word], exists: Callable[[str], bool]) -> None:
    for position, word in enumerate(words[1:], 1):
        if word.quoted:
            continue
        if word.text.startswith("@") and len(word.text) > 1 and exists(split_name(word.text)[0]):
            raise _multi_step(words, word.text, exists)
        following = words[position + 1 : position + 2]
        if word.text.endswith(_SEPARATORS) and following and _starts_a_call(following[0]):
            raise _multi_step(words, following[0].text, exists)
        if any(separator + "@" in word.text for separator in _SEPARATORS):
            raise _multi_step(words, word.text, exists)


def _starts_a_call(word: Word) -> bool:
    return not word.quoted and (word.text in VERBS or word.text.startswith("@"))


def _multi_step(words: Sequence[Word], second: str, exists: Callable[[str], bool]) -> MultiStep:
    msg = f"one call, one skill: {second!r} is a second step"
    return MultiStep(msg, details={"workflow": _as_workflow(_calls(words, exists))})


def _calls(words: Sequence[Word], exists: Callable[[str], bool]) -> list[list[str]]:
    """The calls that the words make, each with its skill first; verbs and what stands between two are left out."""
    calls: list[list[str]] = []
    pieces = [piece for word in words for piece in _pieces(word)]
    for position, piece in enumerate(pieces):
        text = piece.text
        opens = not piece.quoted and text.startswith("@") and len(text) > 1
        between = pieces[position - 1].text in {*_SEPARATORS, *VERBS}
        if position == 0 or (opens and (between or exists(split_name(text)[0]))):
            calls.append([text])
        elif piece.quoted or text not in {*_SEPARATORS, *VERBS} or not _leads_to_call(pieces[position + 1 :]):
            calls[-1].append(text)
    return calls


def _pieces(word: Word) -> list[Word]:
    """`x;@b` and `x;` are a value, a separator and a call."""
    if word.quoted or word.text in _SEPARATORS:
        return [word]
    signs = "|".join(re.escape(sign) for sign in _SEPARATORS if not sign.isascii() or not sign.isalpha())
    return [Word(text, quoted=False) for text in re.split(f"({signs})(?=@|$|(?:执行|运行|run)$)", word.text) if text]


def _leads_to_call(rest: Sequence[Word]) -> bool:
    following = next((word for word in rest if word.quoted or word.text not in {*_SEPARATORS, *VERBS}), None)
    return following is not None and _starts_a_call(following)


def _as_workflow(calls: Sequence[Sequence[str]]) -> str:
    """A workflow.yaml that runs as it stands: one line, so that it can be read in a result too."""
    from json import dumps

    steps = []
    for number, (skill, *args) in enumerate(calls, 1):
        words = ", ".join(dumps(word.replace("${", "$${"), ensure_ascii=False) for word in args)
        shown = f"id: step{number}, skill: {dumps(skill, ensure_ascii=False)}"
        steps.append(f"{{{shown}, args: [{words}]}}" if args else f"{{{shown}}}")
    return f"steps: [{', '.join(steps)}]"
