"""Which skills are active, for which user, conversation and project.

An activation names a skill by its folder, not by its name. An update puts new files into the same folder, so the skill
stays active with its new text; a skill of the same name that comes with a clone never replaces the one that the user
meant; a project's and a user's skill of one name can both be active. `project` is where it counts: a project's own
skill and every conversation belong to their project, a user's skill that is active globally counts everywhere.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skillyard.store.database import writing

#: The conversation of an activation that holds in all of them.
GLOBAL = ""
#: The project of an activation that holds in all of them.
EVERYWHERE = ""


class Activation(NamedTuple):
    #: The skill's folder.
    skill: str
    conversation: str
    project: str


class Activations:
    """All users and projects. To activate again changes nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, user: str, activations: Iterable[Activation], moment: float) -> tuple[Activation, ...]:
        """Add all or none. Return those that were not active before."""
        query = (
            "INSERT INTO activations (user, skill, conversation, project, activated) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING"
        )
        with writing(self._connection):
            rows = [(each, self._connection.execute(query, (user, *each, moment))) for each in activations]
        return tuple(each for each, cursor in rows if cursor.rowcount == 1)

    def list(self, user: str, conversation: str, project: str) -> tuple[Activation, ...]:
        """What is active globally and in this conversation of this project, in the order of activation."""
        rows = self._connection.execute(
            "SELECT skill, conversation, project FROM activations WHERE user = ?1 AND "
            "((conversation = ?2 AND project = ?3) OR (conversation = '' AND project IN ('', ?3))) ORDER BY id",
            (user, conversation, project),
        )
        return tuple(map(Activation._make, rows))

    def move(
        self, user: str, conversation: str, project: str, moved: Sequence[Activation], before: Activation | None
    ) -> set[Activation]:
        """Put these before another one, or first, in what is active there; return those whose place is another now."""
        with writing(self._connection):
            rows = self.list(user, conversation, project)
            rest = [row for row in rows if row not in moved]
            at = rest.index(before) if before in rest else 0
            order = [*rest[:at], *(row for row in moved if row in rows), *rest[at:]]
            find = "SELECT id FROM activations WHERE user = ? AND skill = ? AND conversation = ? AND project = ?"
            ids = {row: self._connection.execute(find, (user, *row)).fetchone()[0] for row in rows}
            places = sorted(ids.values())
            change = "UPDATE activations SET id = ? WHERE user = ? AND skill = ? AND conversation = ? AND project = ?"
            for sign in (-1, 1):  # first out of the way, because each id is another row's
                for number, row in zip(places, order, strict=True):
                    self._connection.execute(change, (sign * number, user, *row))
        return {row for number, row in zip(places, order, strict=True) if ids[row] != number and row in moved}

    def remove(self, user: str, activations: Iterable[Activation]) -> None:
        query = "DELETE FROM activations WHERE user = ? AND skill = ? AND conversation = ? AND project = ?"
        for each in activations:
            self._connection.execute(query, (user, *each))

    def forget(self, skills: Sequence[str]) -> None:
        """Remove the activations of skills that are gone, for all users."""
        for skill in skills:
            self._connection.execute("DELETE FROM activations WHERE skill = ?", (skill,))
