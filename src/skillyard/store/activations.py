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
        with writing(self._connection):
            return tuple(each for each in activations if self._insert(user, each, moment))

    def list(self, user: str, conversation: str, project: str) -> tuple[Activation, ...]:
        """What is active globally and in this conversation of this project, in the order of activation."""
        rows = self._connection.execute(
            "SELECT skill, conversation, project, id FROM activations WHERE user = ?1 AND conversation = ?2 "
            "AND project = ?3 UNION "
            "SELECT skill, conversation, project, id FROM activations WHERE user = ?1 AND conversation = '' "
            "AND project IN ('', ?3) ORDER BY id",
            (user, conversation, project),
        )
        return tuple(Activation._make(row[:3]) for row in rows)

    def remove(self, user: str, activations: Iterable[Activation]) -> None:
        self._connection.executemany(
            "DELETE FROM activations WHERE user = ? AND skill = ? AND conversation = ? AND project = ?",
            [(user, *each) for each in activations],
        )

    def forget(self, skills: Sequence[str]) -> None:
        """Remove the activations of skills that are gone, for all users."""
        self._connection.executemany("DELETE FROM activations WHERE skill = ?", [(skill,) for skill in skills])

    def _insert(self, user: str, each: Activation, moment: float) -> bool:
        cursor = self._connection.execute(
            "INSERT INTO activations (user, skill, conversation, project, activated) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            (user, *each, moment),
        )
        return cursor.rowcount == 1
