"""Which skills go with a task: activated and taken back by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.fts_tokens import fold
from skillyard.catalog.index import Entry
from skillyard.core.errors import InvalidArgs, SkillNotFound
from skillyard.core.messages import Message
from skillyard.dispatch.contents import Contents
from skillyard.store.activations import EVERYWHERE, GLOBAL, Activation, Activations

#: Whose activations they are where nobody says (S4).
DEFAULT_USER = "default"
_LONGEST_CONVERSATION = 200


class Change(NamedTuple):
    """One skill that was named. `changed` is False where it already was as asked."""

    name: str
    folder: str
    changed: bool


class Activator:
    """Changes what is active in one project. All names of a call count, or none."""

    def __init__(self, catalog: Catalog, activations: Activations, contents: Contents, project: str) -> None:
        self._catalog = catalog
        self._activations = activations
        self._contents = contents
        self._project = project

    def activate(
        self, names: Sequence[str], conversation: str | None, moment: float, user: str = DEFAULT_USER
    ) -> tuple[Change, ...]:
        """In the order of the names. What is active already keeps its place."""
        entries = dict.fromkeys(map(self._choose, names))
        rows = {entry: self._row(str(entry.folder), as_conversation(conversation)) for entry in entries}
        added = self._activations.add(user, rows.values(), moment)
        return tuple(Change(entry.name, row.skill, row in added) for entry, row in rows.items())

    def deactivate(
        self, names: Sequence[str], conversation: str | None, user: str = DEFAULT_USER
    ) -> tuple[Change, ...]:
        """Afterwards nothing that answers to one of the names is active there; what was not is told as unchanged."""
        rows = self._rows(conversation, user)
        found = [(name, [row for row in rows if self._answers(row, name)]) for name in map(_bare, names)]
        told = [change for name, matches in found for change in self._taken(name, matches)]
        self._activations.remove(user, [row for _, matches in found for row in matches])
        return tuple(dict.fromkeys(told))

    def deactivate_all(self, conversation: str | None, user: str = DEFAULT_USER) -> tuple[Change, ...]:
        rows = self._rows(conversation, user)
        self._activations.remove(user, rows)
        return tuple(Change(self._name(row), row.skill, changed=True) for row in rows)

    def _choose(self, name: str) -> Entry:
        entry = self._catalog.choose(_bare(name))
        self._catalog.resolve(_bare(name))  # broken ones are refused here, not when a task is waiting
        if entry.role:
            raise InvalidArgs(
                Message(
                    "{role}/{name} is declared in agent.yaml: it has no text for an agent",
                    role=entry.role,
                    name=entry.name,
                )
            )
        if not is_text(str(entry.folder)):
            raise InvalidArgs(
                Message(
                    "the path of {name} cannot be written down: {folder!r}", name=entry.name, folder=str(entry.folder)
                )
            )
        return entry

    def _row(self, folder: str, conversation: str) -> Activation:
        everywhere = conversation == GLOBAL and not (self._project and Path(folder).is_relative_to(self._project))
        return Activation(folder, conversation, EVERYWHERE if everywhere else self._project)

    def _rows(self, conversation: str | None, user: str) -> tuple[Activation, ...]:
        """Exactly of this conversation, or exactly the global ones."""
        wanted = as_conversation(conversation)
        return tuple(row for row in self._activations.list(user, wanted, self._project) if row.conversation == wanted)

    def _answers(self, row: Activation, name: str) -> bool:
        content = self._contents.read(row.skill)
        names = (row.skill, Path(row.skill).name, *((content.name, content.title, content.file) if content else ()))
        return bool(name) and fold(name) in map(fold, names)

    def _taken(self, name: str, matches: Sequence[Activation]) -> list[Change]:
        if not matches and not self._catalog.knows(name):
            raise SkillNotFound(name, self._catalog.nearest(name))
        changes = [Change(self._name(row), row.skill, changed=True) for row in matches]
        return changes or [Change(name, "", changed=False)]

    def _name(self, row: Activation) -> str:
        content = self._contents.read(row.skill)
        return content.name if content else Path(row.skill).name


def as_conversation(asked: str | None) -> str:
    """None is global. A name is a text that a person can read back."""
    if asked is None:
        return GLOBAL
    has_controls = any(character < " " or "\x7f" <= character <= "\x9f" for character in asked)
    if not asked.strip() or has_controls or not is_text(asked) or len(asked) > _LONGEST_CONVERSATION:
        raise InvalidArgs(
            Message(
                "a session is named by 1 to {longest_conversation} characters that can be printed",
                longest_conversation=_LONGEST_CONVERSATION,
            )
        )
    return asked


def is_text(text: str) -> bool:
    """Whether it can be written down: no bytes that were never UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bare(name: str) -> str:
    return name.removeprefix("@")
