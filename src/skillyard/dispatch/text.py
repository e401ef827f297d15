"""The text that an agent gets: the active skills before the task (S4 §3.3). Pure.

One text for all agents. What a skill says is delivered as it is, also where it imitates the structure around it; such a
skill is marked, so that whoever looks at the result knows.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

#: S4 §5.1: the sum of the included skills' contents, in characters.
LIMIT_CHARACTERS = 30_000

_TITLE = "# Reference Skills"
_OPENING = "The following skills provide context and guidelines for this task:"
_RULE = "---"
_TASK = "# Task"
_NOTE = "(Some skills were omitted due to size limits)"

_OURS = {line.casefold(): line for line in (_TITLE, _OPENING, _RULE, _TASK, _NOTE)}
_SPACES = re.compile(r"[ \t]+")
_CLOSING_HASHES = re.compile(r" #+$")


class ActiveSkill(NamedTuple):
    """A skill as it is handed over: its name, and its text without the frontmatter."""

    name: str
    content: str
    #: The file that it was read from.
    path: str = ""
    #: Active in this conversation only; empty where it is active globally.
    conversation: str = ""
    #: Lines of ours that its text imitates.
    imitates: tuple[str, ...] = ()


class Enhanced(NamedTuple):
    """The text, and how it came about."""

    text: str
    skills: tuple[ActiveSkill, ...] = ()
    omitted: tuple[ActiveSkill, ...] = ()
    #: A bare task that starts with `/` got a newline before it: agents take it for a command of their own.
    shielded: bool = False

    @property
    def characters(self) -> int:
        """What counts against the limit."""
        return sum(len(skill.content) for skill in self.skills)

    @property
    def marked(self) -> tuple[ActiveSkill, ...]:
        return tuple(skill for skill in self.skills if skill.imitates)


def build_enhanced_task(task: str, skills: Sequence[ActiveSkill]) -> str:
    """S4's buildEnhancedTask: the exact text that is sent."""
    return enhance(task, skills).text


def enhance(task: str, skills: Sequence[ActiveSkill]) -> Enhanced:
    if not skills:
        shielded = task.startswith("/")
        return Enhanced(f"\n{task}" if shielded else task, shielded=shielded)
    fitting = _fitting(skills)
    included, omitted = tuple(skills[:fitting]), tuple(skills[fitting:])
    parts = [f"{_TITLE}\n\n{_OPENING}\n\n"]
    parts += [f"{_RULE}\n## {skill.name}\n\n{skill.content}\n\n" for skill in included]
    if omitted:
        parts.append(f"{_NOTE}\n\n")
    parts.append(f"{_RULE}\n\n{_TASK}\n\n{task}")
    return Enhanced("".join(parts), included, omitted)


def _fitting(skills: Sequence[ActiveSkill]) -> int:
    """How many of the first fit, whole; after one that does not fit none is taken, so that the order holds."""
    total = 0
    for count, skill in enumerate(skills):
        total += len(skill.content)
        if total > LIMIT_CHARACTERS:
            return count
    return len(skills)


def find_imitations(name: str, content: str) -> tuple[str, ...]:
    """Which lines of ours stand in a skill's text, as a reader of Markdown sees them, each once.

    A name of several lines is looked through too. A rule in a text is harmless most of the time; it is told all the
    same, because only a person can tell the difference.
    """
    found: dict[str, None] = {}
    before = ""
    for line in [*name.splitlines()[1:], "", *content.splitlines()]:
        words = _plain(line)
        if ours := _OURS.get(words) or (_OURS.get(f"# {before}") if words and not words.strip("=") else None):
            found[ours] = None
        before = words
    return tuple(found)


def _plain(line: str) -> str:
    """As it is compared: one space between words, no closing hashes, any case."""
    words = line.strip()
    if not words or words[0] not in "#-(tTrR=":
        return ""
    return _CLOSING_HASHES.sub("", _SPACES.sub(" ", words)).casefold()
