"""Reads agents/<role>/agent.yaml: the JSON skills of a role (S3)."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from skillyard.core.skill import Finding, Kind, Severity, Skill
from skillyard.core.values import Json

AGENT_FILE = "agent.yaml"
MAX_BYTES = 1_000_000


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
    try:
        fields = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        return _unusable(path, f"not YAML: {getattr(error, 'problem', None) or error}", line)
    if not isinstance(fields, Mapping):
        return _unusable(path, "a mapping is expected")
    declared = fields.get("skills") or []
    if not isinstance(declared, list):
        return _unusable(path, "`skills` must be a list")
    readings = [_read_entry(item, path) for item in declared]
    return Role(
        name=path.parent.name,
        path=path,
        skills=tuple(item for item in readings if isinstance(item, Skill)),
        findings=tuple(item for item in readings if isinstance(item, Finding)),
    )


def _read_entry(item: object, path: Path) -> Skill | Finding:
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
        return _finding("skill-entry-invalid", "each of `skills` needs a name and an entry")
    name, entry = item["name"], item.get("entry")
    if not isinstance(entry, str) or not is_inside(path.parent, entry):
        return _finding("entry-invalid", f"the entry of {name} must be a path inside {path.parent.name}/")
    timeout = item.get("timeout")
    return Skill(
        name=name,
        path=path,
        kind=Kind.JSON,
        description=str(item.get("description") or ""),
        entry=entry,
        actions=tuple(str(action) for action in item.get("actions") or ()),
        timeout_seconds=float(timeout) if isinstance(timeout, int | float) else None,
        role=path.parent.name,
        fields={str(key): _as_json(value) for key, value in item.items()},
    )


def is_inside(folder: Path, entry: str) -> bool:
    """Whether the path stays in the folder, links followed."""
    if not entry or "\0" in entry or Path(entry).is_absolute():
        return False
    return (folder / entry).resolve().is_relative_to(folder.resolve())


def _as_json(value: object) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _unusable(path: Path, message: str, line: int = 1) -> Role:
    return Role(name=path.parent.name, path=path, findings=(_finding("agent-file-invalid", message, line),))


def _finding(code: str, message: str, line: int = 1) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, message=message, line=line, advice="correct agent.yaml")
