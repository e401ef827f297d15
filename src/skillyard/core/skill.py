"""A skill as the catalog reads it, its params, and the findings about its file."""

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from skillyard.core.kinds import Kind as Kind  # noqa: PLC0414  (part of what a skill is)
from skillyard.core.messages import Message, as_json, of_json
from skillyard.core.values import NOTHING, Json

#: A slot of a command, `{name}` or `${name}`: one pattern for those who read and those who fill.
NAME: Final = r"[^\W\d][\w-]*"
SLOT: Final = re.compile(rf"\$?\{{({NAME})\}}")
#: The slots that we fill; all others are params.
OWN_SLOTS: Final = frozenset({"output", "skill", "baseDir", "CLAUDE_SKILL_DIR"})


class Severity(StrEnum):
    """How bad a finding is; `rank` orders them."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Finding(NamedTuple):
    """A problem or note about a file: where, how bad, and what to do about it."""

    code: str
    severity: Severity
    message: str
    advice: str = ""
    line: int = 1
    column: int = 1

    def as_dict(self) -> dict[str, Json]:
        place = {"line": self.line, "column": self.column}
        said = {"message": self.message, "advice": self.advice}
        return {"code": self.code, "severity": str(self.severity), **place, **said}


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
    """One skill, wherever it came from: what we read from its file."""

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
        """The name that resolves first. The skills of a role share one folder, so theirs is the skill's name."""
        return self.name if self.role else self.path.parent.name

    @property
    def severity(self) -> Severity | None:
        """The worst severity of the findings."""
        return max((finding.severity for finding in self.findings), key=lambda s: s.rank, default=None)

    def as_record(self) -> str:
        """Return the skill as one JSON text, as the index keeps it."""
        findings = [{name: as_json(value) for name, value in each._asdict().items()} for each in self.findings]
        params = [param._asdict() for param in self.params]
        changed = {"path": str(self.path), "params": params, "fields": dict(self.fields), "findings": findings}
        return json.dumps({**self._asdict(), **changed}, ensure_ascii=False)

    @classmethod
    def from_record(cls, record: str) -> "Skill":
        """Return the skill that `as_record` gave."""
        fields: dict[str, Any] = json.loads(record)
        params = [
            Param(**{**param, "type": ParamType(param["type"]), "choices": tuple(param["choices"])})
            for param in fields["params"]
        ]
        read = ({name: of_json(value) for name, value in each.items()} for each in fields["findings"])
        findings = [Finding(**{**each, "severity": Severity(each["severity"])}) for each in read]
        fields |= {"path": Path(fields["path"]), "kind": Kind(fields["kind"]), "params": params, "findings": findings}
        return cls(**{**fields, **{key: tuple(fields[key]) for key in ("tags", "actions", "params", "findings")}})
