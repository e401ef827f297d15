"""The verdict of a scan on one skill: its level, and every hit with file and line."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from skillyard.core.values import Json


class ThreatLevel(IntEnum):
    """How bad a threat is, in order. Results carry its name."""

    SAFE = 0
    INFO = 1
    LOW = 2
    MEDIUM = 3
    #: Something could not be read. It may be anything, so it stands above what an agent may decide.
    UNKNOWN = 4
    HIGH = 5
    CRITICAL = 6

    def __str__(self) -> str:
        return self.name

    def lowered(self, steps: int) -> "ThreatLevel":
        """So many steps milder, at least INFO; UNKNOWN stays UNKNOWN."""
        if self not in _LADDER:
            return self
        return _LADDER[max(_LADDER.index(self) - steps, 0)]


_LADDER = (ThreatLevel.INFO, ThreatLevel.LOW, ThreatLevel.MEDIUM, ThreatLevel.HIGH, ThreatLevel.CRITICAL)

#: From here on an install is held back, and `scan` fails.
HELD = ThreatLevel.MEDIUM


#: The lines that a held-back install shows.
LINES_THAT_MATTER = 3


class ThreatHit(NamedTuple):
    """One rule at one place. `file` is relative to the skill's folder; `excerpt` is safe to print."""

    rule: str
    severity: ThreatLevel
    file: str
    line: int = 1
    column: int = 1
    excerpt: str = ""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def as_dict(self) -> dict[str, Json]:
        return {**self._asdict(), "severity": self.severity.name}

    @classmethod
    def of(cls, data: Mapping[str, Json]) -> "ThreatHit":
        """Read back what `as_dict` wrote. A missing or wrong severity becomes UNKNOWN."""
        name, line, column = data.get("severity"), data.get("line"), data.get("column")
        return cls(
            rule=str(data.get("rule", "")),
            severity=ThreatLevel[name]
            if isinstance(name, str) and name in ThreatLevel.__members__
            else ThreatLevel.UNKNOWN,
            file=str(data.get("file", "")),
            line=line if isinstance(line, int) else 1,
            column=column if isinstance(column, int) else 1,
            excerpt=str(data.get("excerpt", "")),
        )


class ScanVerdict(NamedTuple):
    """All hits, the worst first."""

    hits: tuple[ThreatHit, ...] = ()

    @property
    def severity(self) -> ThreatLevel:
        return max((hit.severity for hit in self.hits), default=ThreatLevel.SAFE)

    @property
    def held(self) -> bool:
        """Whether an install waits for a decision."""
        return self.severity >= HELD

    @property
    def lines_that_matter(self) -> tuple[ThreatHit, ...]:
        """The worst hits, each rule once while there are others to show."""
        firsts: dict[str, ThreatHit] = {}
        for hit in self.hits:
            firsts.setdefault(hit.rule, hit)
        shown = [*firsts.values(), *(hit for hit in self.hits if hit not in firsts.values())]
        return tuple(shown[:LINES_THAT_MATTER])
