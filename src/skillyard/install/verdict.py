"""What a scan says of a folder, and the seam to whoever scans: ours goes by the threat rules."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeAlias

from skillyard.catalog.discover import SKILL_FILE
from skillyard.catalog.manifest import read_skill
from skillyard.core.values import Json
from skillyard.install.threats.scan import scan_skill
from skillyard.install.tree import find_skill_file


class Severity(StrEnum):
    """How bad it is; `rank` orders them. What could not be looked at stands above what is merely doubtful."""

    NONE = "NONE"
    LOW = "LOW"
    MEDIUM = "MEDIUM"
    UNKNOWN = "UNKNOWN"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)

    @property
    def is_held_back(self) -> bool:
        return self.rank >= Severity.MEDIUM.rank


class Hit(NamedTuple):
    """One thing that a scan found."""

    rule: str
    severity: Severity
    #: The file, with its line.
    where: str
    says: str

    def as_dict(self) -> dict[str, Json]:
        return {"rule": self.rule, "severity": str(self.severity), "where": self.where, "says": self.says}


class Verdict(NamedTuple):
    severity: Severity
    hits: tuple[Hit, ...] = ()

    def worst(self, count: int) -> tuple[Hit, ...]:
        return tuple(sorted(self.hits, key=lambda hit: -hit.severity.rank)[:count])


#: Looks at a staged folder and never runs anything of it.
Scan: TypeAlias = Callable[[Path], Verdict]


def threat_scan(folder: Path) -> Verdict:
    """By the threat rules; a folder without a SKILL.md that can be read as one is unknown."""
    hits = tuple(
        Hit(hit.rule, Severity[_NAMES.get(hit.severity.name, hit.severity.name)], f"{hit.file}:{hit.line}", hit.excerpt)
        for hit in scan_skill(folder).hits
    )
    reading = read_skill(find_skill_file(folder) or folder / SKILL_FILE)
    if reading.skill is None:
        says = reading.findings[0].message if reading.findings else "it cannot be read"
        hits = (Hit("skill-unreadable", Severity.UNKNOWN, SKILL_FILE, says), *hits)
    worst = max((hit.severity for hit in hits), key=lambda severity: severity.rank, default=Severity.NONE)
    return Verdict(worst, hits)


#: What the rules call otherwise.
_NAMES = {"SAFE": "NONE", "INFO": "LOW"}


def scanned(scan: Scan, folder: Path) -> Verdict:
    """A scan that fails says nothing, and nothing is never good news."""
    try:
        return scan(folder)
    except (OSError, ValueError, RecursionError) as error:
        return Verdict(Severity.UNKNOWN, (Hit("scan-failed", Severity.UNKNOWN, "", f"the scan failed: {error}"),))
