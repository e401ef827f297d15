"""A reading of one SKILL.md: the skill as far as it can be used, and what is wrong with the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillyard.catalog.frontmatter import Place
from skillyard.core.skill import Finding, Severity, Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One parse, two answers: `skill` is the tolerant reading, `ok` the strict verdict."""

    path: Path
    skill: Skill | None
    findings: tuple[Finding, ...] = ()
    #: The whole file with LF line ends, and where the text below the frontmatter starts in it.
    text: str = ""
    body_start: int = 0
    body_line: int = 1
    #: Where each field stands: line and column in the file.
    places: Mapping[str, Place] = field(default_factory=dict)
    #: Broken fields that decide what may run or who may call, and were not used for that reason.
    refused: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        """The text below the frontmatter, exactly. Cut on demand: a scan never looks at it."""
        return self.text[self.body_start :]

    @property
    def ok(self) -> bool:
        """No errors: other agents will read the file as we do."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def strictly_ok(self) -> bool:
        """What `--strict` asks for: the standard to the letter, and nothing that looks like a mistake."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)
