"""Which skills are active, by name, and what they say: the skills that go along with a task.

Each call asks the table which skills are active and the file system for the stamp of each file (mtime, ctime, size,
inode), and reads a file only if its stamp is new. So an activation, an edit, an update or a removal counts at once,
whichever process did it, and a call that finds nothing new reads no file.
"""

import os
import shlex
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.files import is_utf8
from skillyard.catalog.index import Stamp
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import is_settled, stamp_of
from skillyard.core.errors import InvalidArgs, SkillNotFound
from skillyard.core.messages import Message
from skillyard.core.skill import fold
from skillyard.dispatch.text import LIMIT_CHARACTERS, ActiveSkill, count_fitting, find_imitations
from skillyard.store.activations import EVERYWHERE, GLOBAL, Activation, Activations

if TYPE_CHECKING:
    from skillyard.catalog.catalog import Catalog
    from skillyard.catalog.index import CatalogEntry

#: The owner of activations if nobody says otherwise.
DEFAULT_USER = "default"
_LONGEST_CONVERSATION = 200
#: How many answers are remembered.
_MOST_ANSWERS = 1_000


class SkillContent(NamedTuple):
    """One file as it was at `stamp`."""

    file: str
    stamp: Stamp
    #: False if the file was so fresh that a further change might not show in its stamp.
    settled: bool
    name: str
    title: str = ""
    content: str = ""
    imitates: tuple[str, ...] = ()
    #: Why it cannot be read, or empty.
    reason: str = ""


class Unreadable(NamedTuple):
    """An active skill whose SKILL.md cannot be read."""

    name: str
    path: str
    reason: str


class ActiveSkills(NamedTuple):
    """The active skills in the order of activation, each once."""

    skills: tuple[ActiveSkill, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    #: How many of the skills fit into the limit, and the limit in characters.
    fitting: int = 0
    limit: int = LIMIT_CHARACTERS


def _skill_file(folder: str) -> tuple[str, Stamp | None]:
    """Return SKILL.md, else the same name in another case; the folder is listed only if the plain name fails."""
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


def _read(file: str, stamp: Stamp) -> SkillContent:
    """The stamp was taken before: a change during the read shows in the next one."""
    from skillyard.catalog.manifest import read_skill  # noqa: PLC0415  (a call that finds nothing new reads no file)

    settled = is_settled(stamp, time.time_ns())
    reading = read_skill(Path(file))
    skill, body = reading.skill, reading.body
    if skill is None:
        reason = reading.findings[0].message if reading.findings else "it cannot be read"
        return SkillContent(file, stamp, settled, Path(file).parent.name, reason=reason)
    content = ""
    if body.strip():  # without blank lines around it; the indent of the first line has a meaning in Markdown
        start = body.rfind("\n", 0, len(body) - len(body.lstrip())) + 1
        end = body.find("\n", len(body.rstrip()))
        content = body[start:end] if end >= 0 else body[start:]
    return SkillContent(file, stamp, settled, skill.name, skill.title, content, find_imitations(skill.name, content))


class Contents:
    """What the active skills of one project say. `activations` returns None if there never were any.

    `cache` has the files that were read, by folder; all threads of a process may share it.
    """

    def __init__(
        self, activations: Callable[[], Activations | None], project: str, cache: dict[str, SkillContent]
    ) -> None:
        self._activations, self._project, self._cache = activations, project, cache

    def active(self, conversation: str | None = None, user: str = DEFAULT_USER) -> ActiveSkills:
        """Return the global ones and those of the conversation. Raise InvalidArgs for a name that is none."""
        name = as_conversation(conversation)
        activations = self._activations()
        if activations is None:
            return ActiveSkills()
        rows = activations.list(user, name, self._project)
        return _as_active(rows, tuple(self.read(row.skill) or _missing(row) for row in rows))

    def forget(self, folders: Sequence[Path]) -> None:
        """Skills that were removed are active nowhere, for nobody."""
        if activations := self._activations():
            activations.forget([str(folder) for folder in folders])

    def read(self, folder: str) -> SkillContent | None:
        """Return None if there is no skill file (any more)."""
        file, stamp = _skill_file(folder)
        if stamp is None:
            self._cache.pop(folder, None)
            return None
        known = self._cache.get(folder)
        if known is None or not known.settled or (known.stamp, known.file) != (stamp, file):
            known = self._cache[folder] = _read(file, stamp)
        return known


def _missing(row: Activation) -> SkillContent:
    """Return what is told of a skill that is away: another branch or disk may bring it back, so it stays active."""
    folder = Path(row.skill)
    reason = Message("there is no SKILL.md") if folder.is_dir() else Message("the folder is not there")
    told = Message(
        "{reason}; `skillyard deactivate {name}` if it is gone for good", reason=reason, name=shlex.quote(folder.name)
    )
    return SkillContent(f"{row.skill}/{SKILL_FILE}", (0, 0, 0, 0), settled=False, name=folder.name, reason=told)


@lru_cache(_MOST_ANSWERS)
def _as_active(rows: tuple[Activation, ...], contents: tuple[SkillContent, ...]) -> ActiveSkills:
    """A file counts once if it is active globally and here, or reached through a link."""
    once: dict[object, tuple[Activation, SkillContent]] = {}
    for row, content in zip(rows, contents, strict=True):
        once.setdefault(content.stamp if any(content.stamp) else content.file, (row, content))
    skills = tuple(
        ActiveSkill(content.name, content.content, content.file, row.conversation, content.imitates)
        for row, content in once.values()
        if not content.reason
    )
    unreadable = (Unreadable(each.name, each.file, each.reason) for _, each in once.values() if each.reason)
    return ActiveSkills(skills, tuple(unreadable), count_fitting(skills))


class ActivationChange(NamedTuple):
    """One skill that was named. `changed` is False if it was already as asked."""

    name: str
    folder: str
    changed: bool


class Place(NamedTuple):
    """Where skills come in the order of activation: last, unless it says otherwise."""

    first: bool = False
    #: An active skill, by any of its names.
    before: str | None = None


LAST = Place()


class Activator:
    """Change what is active in one project. All names of a call count, or none."""

    def __init__(self, catalog: "Catalog", activations: Activations, contents: Contents, project: str) -> None:
        self._catalog, self._activations = catalog, activations
        self._contents, self._project = contents, project

    def activate(
        self,
        names: Sequence[str],
        conversation: str | None,
        moment: float,
        user: str = DEFAULT_USER,
        *,
        here: bool = False,
        place: Place = LAST,
    ) -> tuple[ActivationChange, ...]:
        """Activate them in the order of the names. What is active already keeps its place, unless one is named.

        `here`: a skill of the user counts only in this project.
        """
        wanted = as_conversation(conversation)
        if place.first and place.before is not None:
            raise InvalidArgs(Message("first, or before another one: not both"))
        rows: dict[CatalogEntry, Activation] = {}
        for entry in map(self._choose, names):
            is_ours = self._project and entry.folder.is_relative_to(self._project)
            project = EVERYWHERE if wanted == GLOBAL and not is_ours and not here else self._project
            rows[entry] = Activation(str(entry.folder), wanted, project)
        anchor = None if place.before is None else self._anchor(place.before, wanted, user, frozenset(rows.values()))
        added = self._activations.add(user, rows.values(), moment)
        changed = set(added)
        if place.first or anchor:
            changed |= self._activations.move(user, wanted, self._project, tuple(rows.values()), anchor)
        return tuple(ActivationChange(entry.name, row.skill, row in changed) for entry, row in rows.items())

    def _anchor(self, name: str, wanted: str, user: str, moved: frozenset[Activation]) -> Activation:
        """Return the active skill of this name that others are put before."""
        name = name.removeprefix("@")
        rows = [row for row in self._activations.list(user, wanted, self._project) if row not in moved]
        found = next((row for row in rows if self._answers(row, name)), None)
        if found is None:
            raise InvalidArgs(Message("{name} is not active there, so nothing comes before it", name=name))
        return found

    def deactivate(
        self, names: Sequence[str], conversation: str | None, user: str = DEFAULT_USER
    ) -> tuple[ActivationChange, ...]:
        """Deactivate everything that has one of the names. A name that was not active is returned as unchanged."""
        rows, found, changes = self._rows(conversation, user), list[Activation](), list[ActivationChange]()
        for name in (name.removeprefix("@") for name in names):
            matches = [row for row in rows if self._answers(row, name)]
            if not matches and not self._catalog.knows(name):
                raise SkillNotFound(name, self._catalog.nearest(name))
            found += matches
            changes += map(self._removed, matches) if matches else [ActivationChange(name, "", changed=False)]
        self._activations.remove(user, found)
        return tuple(dict.fromkeys(changes))

    def deactivate_all(self, conversation: str | None, user: str = DEFAULT_USER) -> tuple[ActivationChange, ...]:
        rows = self._rows(conversation, user)
        self._activations.remove(user, rows)
        return tuple(map(self._removed, rows))

    def _choose(self, name: str) -> "CatalogEntry":
        name = name.removeprefix("@")
        entry = self._catalog.choose(name)
        self._catalog.resolve(name)  # a broken one is refused now, not when a task waits
        role, folder, name = entry.role, str(entry.folder), entry.name
        if role:
            msg = Message("{role}/{name} is declared in agent.yaml: it has no text for an agent", role=role, name=name)
            raise InvalidArgs(msg)
        if not is_utf8(folder):
            msg = Message("the path of {name} cannot be written down: {folder!r}", name=name, folder=folder)
            raise InvalidArgs(msg)
        return entry

    def _rows(self, conversation: str | None, user: str) -> tuple[Activation, ...]:
        """Return exactly those of the conversation, or exactly the global ones."""
        wanted = as_conversation(conversation)
        return tuple(row for row in self._activations.list(user, wanted, self._project) if row.conversation == wanted)

    def _answers(self, row: Activation, name: str) -> bool:
        content = self._contents.read(row.skill)
        names = (row.skill, Path(row.skill).name, *((content.name, content.title, content.file) if content else ()))
        return bool(name) and fold(name) in map(fold, names)

    def _removed(self, row: Activation) -> ActivationChange:
        content = self._contents.read(row.skill)
        return ActivationChange(content.name if content else Path(row.skill).name, row.skill, changed=True)


def as_conversation(asked: str | None) -> str:
    """Return the name, GLOBAL for None. Raise InvalidArgs for one that cannot be printed."""
    if asked is None:
        return GLOBAL
    has_controls = any(character < " " or "\x7f" <= character <= "\x9f" for character in asked)
    if not asked.strip() or has_controls or not is_utf8(asked) or len(asked) > _LONGEST_CONVERSATION:
        most = _LONGEST_CONVERSATION
        raise InvalidArgs(Message("a session is named by 1 to {most} characters that can be printed", most=most))
    return asked
