"""What a person allowed: kept in the user's home, for one project, one skill and exactly its bytes."""

import sqlite3
from typing import NamedTuple


class Grant(NamedTuple):
    skill: str
    fingerprint: str
    capability: str
    granted: float


class Grants:
    """The grants of one project. A changed skill has none."""

    def __init__(self, connection: sqlite3.Connection, project: str) -> None:
        self._connection = connection
        self._project = project

    def add(self, grant: Grant) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO grants (project, skill, fingerprint, capability, granted) VALUES (?,?,?,?,?)",
            (self._project, *grant),
        )

    def has_any(self, skill: str) -> bool:
        """Cheap, and asked before the skill's folder is hashed."""
        row = self._connection.execute(
            "SELECT 1 FROM grants WHERE project = ? AND skill = ? LIMIT 1", (self._project, skill)
        ).fetchone()
        return row is not None

    def of(self, skill: str, fingerprint: str) -> frozenset[str]:
        rows = self._connection.execute(
            "SELECT capability FROM grants WHERE project = ? AND skill = ? AND fingerprint = ?",
            (self._project, skill, fingerprint),
        )
        return frozenset(capability for (capability,) in rows)

    def list(self) -> tuple[Grant, ...]:
        rows = self._connection.execute(
            "SELECT skill, fingerprint, capability, granted FROM grants WHERE project = ? ORDER BY skill, capability",
            (self._project,),
        )
        return tuple(Grant(*row) for row in rows)

    def revoke(self, skill: str, capability: str | None = None) -> int:
        """How many were taken back."""
        cursor = self._connection.execute(
            "DELETE FROM grants WHERE project = ? AND skill = ? AND (? IS NULL OR capability = ?)",
            (self._project, skill, capability, capability),
        )
        return cursor.rowcount

    def trust(self, fingerprint: str, moment: float) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO trusts (project, fingerprint, granted) VALUES (?, ?, ?)",
            (self._project, fingerprint, moment),
        )

    def trusted(self) -> str:
        """The fingerprint of what was trusted, or nothing."""
        row = self._connection.execute("SELECT fingerprint FROM trusts WHERE project = ?", (self._project,)).fetchone()
        return str(row[0]) if row else ""

    def distrust(self) -> None:
        self._connection.execute("DELETE FROM trusts WHERE project = ?", (self._project,))
