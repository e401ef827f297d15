"""The text that a backend gets: the active skills before the task. Pure. docs/spec/dispatch.md describes it.

The text is the same for all backends. A skill's text is not changed, also if it imitates the structure around it; the
result marks such a skill.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

#: Limit for the sum of the included skills' texts.
LIMIT_CHARACTERS = 30_000

_TITLE = "# Reference Skills"
_OPENING = "The following skills provide context and guidelines for this task:"
_RULE = "---"
_TASK = "# Task"
_EARLIER = "# Earlier Turns"
_EARLIER_OPENING = "This conversation was held with another agent so far:"
_NO_ANSWER = "(no answer)"
_NOTE = "(Some skills were omitted due to size limits)"

_OURS = {line.casefold(): line for line in (_TITLE, _OPENING, _RULE, _TASK, _NOTE, _EARLIER, _EARLIER_OPENING)}
_SPACES = re.compile(r"[ \t]+")
_CLOSING_HASHES = re.compile(r" #+$")


class ActiveSkill(NamedTuple):
    """A skill as a backend gets it: its name, and its text without the frontmatter."""

    name: str
    content: str
    #: The file that it was read from.
    path: str = ""
    #: The only conversation in which it is active; empty if it is active globally.
    conversation: str = ""
    #: Lines of ours that its text imitates.
    imitates: tuple[str, ...] = ()


class EarlierTurn(NamedTuple):
    """A turn that another backend had in the same conversation; no answer if it gave none."""

    backend: str
    task: str
    answer: str


class EnhancedTask(NamedTuple):
    """The text for a backend, and what it was made of."""

    text: str
    skills: tuple[ActiveSkill, ...] = ()
    omitted: tuple[ActiveSkill, ...] = ()
    #: A bare task that starts with `/` got a newline before it: a backend would take it for a command of its own.
    shielded: bool = False
    #: The turns of other backends that are told, the oldest first.
    earlier: tuple[EarlierTurn, ...] = ()

    @property
    def characters(self) -> int:
        """The size that counts against the limit."""
        return sum(len(skill.content) for skill in self.skills)

    @property
    def marked(self) -> tuple[ActiveSkill, ...]:
        return tuple(skill for skill in self.skills if skill.imitates)


def build_enhanced_task(task: str, skills: Sequence[ActiveSkill]) -> str:
    """Return the exact text that a backend gets for the task."""
    return enhance(task, skills).text


def enhance(task: str, skills: Sequence[ActiveSkill], earlier: Sequence[EarlierTurn] = ()) -> EnhancedTask:
    if not skills and not earlier:
        shielded = task.startswith("/")
        return EnhancedTask(f"\n{task}" if shielded else task, shielded=shielded)
    fitting = count_fitting(skills)
    included, omitted = tuple(skills[:fitting]), tuple(skills[fitting:])
    parts = [f"{_TITLE}\n\n{_OPENING}\n\n"] if skills else []
    parts += [f"{_RULE}\n## {skill.name}\n\n{skill.content}\n\n" for skill in included]
    if omitted:
        parts.append(f"{_NOTE}\n\n")
    told = _latest_fitting(earlier)
    if told:
        parts.append(f"{_RULE}\n\n{_EARLIER}\n\n{_EARLIER_OPENING}\n\n")
        parts += [_as_text(turn) for turn in told]
    parts.append(f"{_RULE}\n\n{_TASK}\n\n{task}")
    return EnhancedTask("".join(parts), included, omitted, earlier=told)


def _as_text(turn: EarlierTurn) -> str:
    return f"{_RULE}\n## Asked of {turn.backend}\n\n{turn.task}\n\n## Answer\n\n{turn.answer or _NO_ANSWER}\n\n"


def _latest_fitting(earlier: Sequence[EarlierTurn]) -> tuple[EarlierTurn, ...]:
    """Return the latest turns that fit into the limit, whole, in their order."""
    total, count = 0, 0
    for turn in reversed(earlier):
        total += len(turn.task) + len(turn.answer)
        if total > LIMIT_CHARACTERS:
            break
        count += 1
    return tuple(earlier[len(earlier) - count :])


def count_fitting(skills: Sequence[ActiveSkill]) -> int:
    """Return how many of the first skills fit. None is taken after one that does not fit, so that the order holds."""
    total = 0
    for count, skill in enumerate(skills):
        total += len(skill.content)
        if total > LIMIT_CHARACTERS:
            return count
    return len(skills)


def find_imitations(name: str, content: str) -> tuple[str, ...]:
    """Return which lines of our structure are in a skill's text or name, as a reader of Markdown sees them.

    A rule in a text is usually harmless; it is reported because only a person can tell.
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
    """Normalise a line for the comparison: one space between words, no closing hashes, any case."""
    words = line.strip()
    if not words or words[0] not in "#-(tTrR=":
        return ""
    return _CLOSING_HASHES.sub("", _SPACES.sub(" ", words)).casefold()
