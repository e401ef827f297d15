"""What a person allowed: kept in the user's home, for one project, one skill and exactly its bytes."""

from typing import NamedTuple

from skillyard.store.grants import GrantContent, GrantFile, GrantRow, TrustRow


class Grant(NamedTuple):
    skill: str
    fingerprint: str
    capability: str
    granted: float


class Grants:
    """The grants of one project. A changed skill has none."""

    def __init__(self, file: GrantFile, project: str) -> None:
        self._file = file
        self._project = project

    def add(self, grant: Grant) -> None:
        """Given again, it counts from the later time."""
        row = GrantRow(self._project, *grant)

        def put(content: GrantContent) -> GrantContent:
            kept = (each for each in content.grants if each[:-1] != row[:-1])
            return content._replace(grants=(*kept, row))

        self._file.change(put)

    def has_any(self, skill: str) -> bool:
        """Cheap, and asked before the skill's folder is hashed."""
        return any(row.skill == skill for row in self._rows())

    def of(self, skill: str, fingerprint: str) -> frozenset[str]:
        wanted = (skill, fingerprint)
        return frozenset(row.capability for row in self._rows() if (row.skill, row.fingerprint) == wanted)

    def list(self) -> tuple[Grant, ...]:
        rows = sorted(self._rows(), key=lambda row: (row.skill, row.capability))
        return tuple(Grant(*row[1:]) for row in rows)

    def revoke(self, skill: str, capability: str | None = None) -> int:
        """How many were taken back."""
        revoked: list[GrantRow] = []

        def is_meant(row: GrantRow) -> bool:
            return (row.project, row.skill) == (self._project, skill) and capability in {None, row.capability}

        def take(content: GrantContent) -> GrantContent:
            revoked[:] = filter(is_meant, content.grants)
            return content._replace(grants=tuple(row for row in content.grants if not is_meant(row)))

        self._file.change(take)
        return len(revoked)

    def trust(self, fingerprint: str, moment: float) -> None:
        row = TrustRow(self._project, fingerprint, moment)
        self._file.change(lambda content: content._replace(trusts=(*self._other_trusts(content), row)))

    def trusted(self) -> str:
        """The fingerprint of what was trusted, or nothing."""
        trusts = self._file.read().trusts
        return next((row.fingerprint for row in trusts if row.project == self._project), "")

    def distrust(self) -> None:
        self._file.change(lambda content: content._replace(trusts=self._other_trusts(content)))

    def _rows(self) -> tuple[GrantRow, ...]:
        return tuple(row for row in self._file.read().grants if row.project == self._project)

    def _other_trusts(self, content: GrantContent) -> tuple[TrustRow, ...]:
        return tuple(row for row in content.trusts if row.project != self._project)
