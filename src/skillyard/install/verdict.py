"""What a scan says of a folder, and the seam to whoever scans. Ours knows only the standard's errors."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeAlias

from skillyard.catalog.discover import SKILL_FILE
from skillyard.catalog.lint import lint
from skillyard.catalog.manifest import read_skill
from skillyard.core import skill as core
from skillyard.core.values import Json
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


def lint_scan(folder: Path) -> Verdict:
    """By the rules of `validate`: what is broken is doubtful, what cannot be read is unknown."""
    reading = lint(read_skill(find_skill_file(folder) or folder / SKILL_FILE))
    hits = tuple(
        Hit(finding.code, Severity.MEDIUM, f"{SKILL_FILE}:{finding.line}", finding.message)
        for finding in reading.findings
        if finding.severity is core.Severity.ERROR
    )
    if reading.skill is None:
        return Verdict(Severity.UNKNOWN, hits)
    return Verdict(Severity.MEDIUM if hits else Severity.NONE, hits)


def scanned(scan: Scan, folder: Path) -> Verdict:
    """A scan that fails says nothing, and nothing is never good news."""
    try:
        return scan(folder)
    except (OSError, ValueError, RecursionError) as error:
        return Verdict(Severity.UNKNOWN, (Hit("scan-failed", Severity.UNKNOWN, "", f"the scan failed: {error}"),))
