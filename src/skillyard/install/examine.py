"""The seam to whoever scans what comes from outside: ours goes by the threat rules."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.install.threats.scan import scan_skill
from skillyard.install.threats.severity import Severity
from skillyard.install.threats.verdict import Hit, Verdict
from skillyard.install.tree import find_skill_file

#: Looks at a staged folder and never runs anything of it.
Scan: TypeAlias = Callable[[Path], Verdict]


def threat_scan(folder: Path) -> Verdict:
    """By the threat rules; a folder without a SKILL.md that can be read as one is unknown."""
    verdict = scan_skill(folder)
    reading = read_skill(find_skill_file(folder) or folder / SKILL_FILE)
    if reading.skill is not None:
        return verdict
    return verdict.with_hit(_unreadable(reading.findings[0].message if reading.findings else "it is no skill"))


def scanned(scan: Scan, folder: Path) -> Verdict:
    """A scan that fails says nothing, and nothing is never good news."""
    try:
        return scan(folder)
    except (OSError, ValueError, RecursionError) as error:
        return Verdict((_unreadable(f"the scan failed: {error}"),))


def _unreadable(reason: str) -> Hit:
    return Hit("unreadable", Severity.UNKNOWN, SKILL_FILE, excerpt=reason)
