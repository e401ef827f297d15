"""A skill as the catalog read it, and what it found on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from skillyard.core.values import Json


class Kind(StrEnum):
    COMMAND = "command"
    PROMPT = "prompt"
    JSON = "json"


class Severity(StrEnum):
    """How bad a finding is; `rank` orders them."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
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


class ParamType(StrEnum):
    STRING = "string"
    INT = "int"
    NUMBER = "number"
    BOOL = "bool"
    ENUM = "enum"
    PATH = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
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
    fields: Mapping[str, Json] = field(default_factory=dict)
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
