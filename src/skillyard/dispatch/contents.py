"""What the active skills say (S4's getActiveSkillContents), read once for as long as nothing changes.

Nothing is ever invalidated by hand. Each call asks the table which skills are active and the file system for the stamp
of each file (mtime, ctime, size, inode); a file is read only where its stamp is new. So an activation, an edit, an
update or a removal counts at once, whichever process did it, and a hit reads no file.
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.index import Stamp
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import is_settled, stamp_of
from skillyard.dispatch.text import ActiveSkill, find_imitations
from skillyard.store.activations import GLOBAL, Activation, Activations

#: Conversations that are remembered; the oldest goes first.
_MOST_CONVERSATIONS = 1_000


class Content(NamedTuple):
    """One file as it was at `stamp`."""

    file: str
    stamp: Stamp
    #: False where the file was so fresh that a further change might not show in its stamp.
    settled: bool
    name: str
    title: str = ""
    content: str = ""
    imitates: tuple[str, ...] = ()
    #: Why it cannot be read, or nothing.
    reason: str = ""


class Unreadable(NamedTuple):
    """An active skill whose SKILL.md says nothing that can be handed over."""

    name: str
    path: str
    reason: str


class Active(NamedTuple):
    """The active skills in the order of activation, each once."""

    skills: tuple[ActiveSkill, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


class Known(NamedTuple):
    """What a conversation's answer was made of."""

    rows: tuple[Activation, ...]
    contents: tuple[Content | None, ...]
    active: Active


class Memo:
    """What was read: files by folder, and whole answers by `user:conversation`. Shared by all threads of a process."""

    def __init__(self) -> None:
        self._contents: dict[str, Content] = {}
        self.conversations: dict[str, Known] = {}

    def read(self, folder: str) -> Content | None:
        """None where there is no skill file (any more)."""
        file, stamp = _skill_file(folder)
        if stamp is None:
            self._contents.pop(folder, None)
            return None
        known = self._contents.get(folder)
        if known and known.settled and (known.stamp, known.file) == (stamp, file):
            return known
        content = _read(file, stamp)
        self._contents[folder] = content
        return content

    def keep(self, key: str, known: Known) -> None:
        self.conversations.pop(key, None)
        self.conversations[key] = known
        while len(self.conversations) > _MOST_CONVERSATIONS:
            self.conversations.pop(next(iter(self.conversations)), None)


class Contents:
    """What the active skills of one project say."""

    def __init__(self, activations: Activations, project: str, memo: Memo) -> None:
        self._activations = activations
        self._project = project
        self._memo = memo

    def active(self, user: str, conversation: str | None = None) -> Active:
        """Global ∪ this conversation's; without a conversation the global ones."""
        rows = self._activations.list(user, conversation or GLOBAL, self._project)
        contents = tuple(self._memo.read(row.skill) for row in rows)
        key = f"{user}:{conversation or GLOBAL}"
        known = self._memo.conversations.get(key)
        if known and known.rows == rows and known.contents == contents:
            return known.active
        self._forget_gone(rows, contents)
        active = _as_active(rows, contents)
        self._memo.keep(key, Known(rows, contents, active))
        return active

    def read(self, folder: str) -> Content | None:
        return self._memo.read(folder)

    def _forget_gone(self, rows: tuple[Activation, ...], contents: tuple[Content | None, ...]) -> None:
        """A skill's activations go with it. A file that an editor is just replacing, or a disk that is not mounted, is
        not taken for that: the folder must be gone, and what is around it must be there."""
        gone = [row.skill for row, content in zip(rows, contents, strict=True) if content is None and _is_gone(row)]
        if gone:
            self._activations.forget(gone)


def _is_gone(row: Activation) -> bool:
    folder = Path(row.skill)
    around = Path(row.project) if row.project else folder.parent
    return not folder.is_dir() and around.is_dir()


def _skill_file(folder: str) -> tuple[str, Stamp | None]:
    """SKILL.md, else in whatever case somebody wrote it; a listing is asked only where the plain name fails."""
    file = f"{folder}/{SKILL_FILE}"
    stamp = stamp_of(file)
    if stamp is not None:
        return file, stamp
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  (names are all that is wanted)
    except OSError:
        return file, None
    other = next((name for name in names if name.lower() == SKILL_FILE.lower()), "")
    file = f"{folder}/{other}"
    return file, stamp_of(file) if other else None


def _read(file: str, stamp: Stamp) -> Content:
    """The stamp was taken before: a change while it is read shows in the next one."""
    from skillyard.catalog.manifest import read_skill

    settled = is_settled(stamp, time.time_ns())
    reading = read_skill(Path(file))
    if reading.skill is None:
        reason = reading.findings[0].message if reading.findings else "it cannot be read"
        return Content(file, stamp, settled, Path(file).parent.name, reason=reason)
    content = _without_outer_blank_lines(reading.body)
    skill = reading.skill
    imitates = find_imitations(skill.name, content)
    return Content(file, stamp, settled, skill.name, skill.title, content, imitates)


def _without_outer_blank_lines(body: str) -> str:
    """Whole lines only: an indent of the first line means something in Markdown."""
    start = body.rfind("\n", 0, len(body) - len(body.lstrip())) + 1
    end = body.find("\n", len(body.rstrip()))
    return (body[start:end] if end >= 0 else body[start:]) if body.strip() else ""


def _as_active(rows: tuple[Activation, ...], contents: tuple[Content | None, ...]) -> Active:
    """The same file counts once: active globally and here, or reached through a link."""
    once: dict[Stamp, tuple[Activation, Content]] = {}
    for row, content in zip(rows, contents, strict=True):
        if content is not None:
            once.setdefault(content.stamp, (row, content))
    return Active(
        skills=tuple(
            ActiveSkill(content.name, content.content, content.file, row.conversation, content.imitates)
            for row, content in once.values()
            if not content.reason
        ),
        unreadable=tuple(
            Unreadable(content.name, content.file, content.reason) for _, content in once.values() if content.reason
        ),
    )
