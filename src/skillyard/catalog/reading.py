"""A reading of one SKILL.md: the skill as far as it can be used, and what is wrong with the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillyard.catalog.encoding import as_text
from skillyard.catalog.frontmatter import Place
from skillyard.core.skill import Finding, Severity, Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One parse, two answers: `skill` is the tolerant reading, `ok` the strict verdict."""

    path: Path
    skill: Skill | None
    findings: tuple[Finding, ...] = ()
    #: The whole file, decoded only where that was needed, and where the text below the frontmatter starts.
    source: str | bytes = ""
    body_start: int = 0
    body_line: int = 1
    #: Where each field stands: line and column in the file.
    places: Mapping[str, Place] = field(default_factory=dict)
    #: Broken fields that decide what may run or who may call, and were not used for that reason.
    refused: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        """The text below the frontmatter, exactly, with LF line ends. A scan never looks at it."""
        return as_text(self.source[self.body_start :])

    @property
    def text(self) -> str:
        """The whole file with LF line ends."""
        return as_text(self.source)

    @property
    def ok(self) -> bool:
        """No errors: other agents will read the file as we do."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def strictly_ok(self) -> bool:
        """What `--strict` asks for: the standard to the letter, and nothing that looks like a mistake."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)
