"""Reads agents/<role>/agent.yaml: the JSON skills of a role (S3)."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.encoding import decode
from skillyard.catalog.frontmatter import read_block
from skillyard.core.skill import Finding, Kind, Severity, Skill
from skillyard.core.values import Json

AGENT_FILE = "agent.yaml"
MAX_BYTES = 1_000_000
#: Where a role's skill keeps the uuid of its agent, for S3's context.
AGENT_ID = "agent_id"


class Role(NamedTuple):
    """One agents/<role> folder, as far as its file can be read."""

    name: str
    path: Path
    skills: tuple[Skill, ...] = ()
    findings: tuple[Finding, ...] = ()


def read_role(path: Path) -> Role:
    try:
        content = path.read_bytes()
    except OSError as error:
        return _unusable(path, f"{path} cannot be read: {error.strerror}")
    return parse_role(content, path)


def parse_role(content: bytes, path: Path) -> Role:
    if len(content) > MAX_BYTES:
        return _unusable(path, f"larger than {MAX_BYTES} bytes")
    block = read_block(decode(content).text)
    if block.failed:
        worst = block.findings[-1] if block.findings else None
        return _unusable(path, worst.message if worst else "not YAML", worst.line if worst else 1)
    declared = block.fields.get("skills") or []
    if not isinstance(declared, list):
        return _unusable(path, "`skills` must be a list")
    about = block.fields.get("metadata")
    uuid = str(about.get("uuid") or "") if isinstance(about, Mapping) else ""
    readings = [_read_entry(item, path, uuid) for item in declared]
    return Role(
        name=path.parent.name,
        path=path,
        skills=tuple(item for item in readings if isinstance(item, Skill)),
        findings=(*block.findings, *(item for item in readings if isinstance(item, Finding))),
    )


def _read_entry(item: Json, path: Path, uuid: str) -> Skill | Finding:
    name, entry = (item.get("name"), item.get("entry")) if isinstance(item, Mapping) else (None, None)
    if not isinstance(item, Mapping) or not isinstance(name, str):
        return _finding("skill-entry-invalid", "each of `skills` needs a name and an entry")
    if not isinstance(entry, str) or not is_inside(path.parent, entry):
        return _finding("entry-invalid", f"the entry of {name} must be a path inside {path.parent.name}/")
    timeout = item.get("timeout")
    return Skill(
        name=name,
        path=path,
        kind=Kind.JSON,
        description=str(item.get("description") or ""),
        entry=entry,
        actions=_texts(item.get("actions")),
        timeout_seconds=float(timeout) if isinstance(timeout, int | float) else None,
        role=path.parent.name,
        fields={**item, AGENT_ID: uuid},
    )


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def is_inside(folder: Path, entry: str) -> bool:
    """Whether the path stays in the folder, links followed."""
    if not entry or "\0" in entry or Path(entry).is_absolute():
        return False
    return (folder / entry).resolve().is_relative_to(folder.resolve())


def _unusable(path: Path, message: str, line: int = 1) -> Role:
    return Role(name=path.parent.name, path=path, findings=(_finding("agent-file-invalid", message, line),))


def _finding(code: str, message: str, line: int = 1) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, message=message, line=line, advice="correct agent.yaml")
