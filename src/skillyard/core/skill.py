"""A skill as the catalog read it, and what it found on the way."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.core.kinds import Kind as Kind  # noqa: PLC0414  (part of what a skill is)
from skillyard.core.messages import Message
from skillyard.core.values import NOTHING, Json


class Severity(StrEnum):
    """How bad a finding is; `rank` orders them."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Finding(NamedTuple):
    """One thing to know about a file: where, how bad, and what to do about it."""

    code: str
    severity: Severity
    message: str
    advice: str = ""
    line: int = 1
    column: int = 1

    def as_dict(self) -> dict[str, Json]:
        return {
            "code": self.code,
            "severity": str(self.severity),
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "advice": self.advice,
        }


def first_of(findings: Sequence[Finding], file: str) -> Message:
    """Return the first finding with its place, and how many more there are."""
    first = Message("{place}: {reason}", place=f"{file}:{findings[0].line}", reason=findings[0].message)
    more = len(findings) - 1
    return Message("{first} (and {count} more)", first=first, count=more) if more else first


class ParamType(StrEnum):
    STRING = "string"
    INT = "int"
    NUMBER = "number"
    BOOL = "bool"
    ENUM = "enum"
    PATH = "path"


class Param(NamedTuple):
    name: str
    required: bool = False
    type: ParamType = ParamType.STRING
    default: Json = None
    description: str = ""
    prompt: str = ""
    choices: tuple[str, ...] = ()
    validation: str = ""
    #: A value may start with `-`: the author says that the program takes options there.
    option: bool = False


class Skill(NamedTuple):
    """One skill, wherever it came from. The file is the truth; this is a reading of it."""

    name: str
    path: Path
    kind: Kind
    description: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    command: str = ""
    entry: str = ""
    actions: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    #: agents/<role>, for a skill that an agent.yaml declares.
    role: str = ""
    #: The whole frontmatter as written, known and unknown fields alike.
    fields: Mapping[str, Json] = NOTHING
    findings: tuple[Finding, ...] = ()

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def folder_name(self) -> str:
        """What resolves first; the skills of a role share one folder, so theirs is the name itself."""
        return self.name if self.role else self.path.parent.name

    @property
    def severity(self) -> Severity | None:
        """The worst of the findings."""
        return max((finding.severity for finding in self.findings), key=lambda s: s.rank, default=None)
