"""Skills, runs, readings and events as the data and lines that several faces show."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Severity, Skill
from skillyard.core.values import Json

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.catalog.catalog import Catalog
    from skillyard.catalog.index import CatalogEntry
    from skillyard.catalog.manifest import Reading
    from skillyard.store.runs import Run

_MOST_SHOWN = 160
_STARTED = Message("started: {session}")
WAITING = Message("waiting: {why}")
_RETRYING = Message("trying again: {why}")
READING = Message("reading skills")


def as_skill_data(entry: "CatalogEntry", catalog: "Catalog") -> dict[str, Json]:
    return {
        "name": entry.name,
        "folder_name": entry.folder_name,
        "kind": str(entry.kind) if entry.usable else "broken",
        "description": entry.description,
        "title": entry.title,
        "tags": list(entry.tags),
        "role": entry.role,
        "where": _label(entry, catalog),
        "path": entry.file,
        "worst_finding": entry.severity,
    }


def as_row(entry: "CatalogEntry", catalog: "Catalog") -> tuple[str, ...]:
    return (
        display_name(entry),
        str(entry.kind) if entry.usable else "broken",
        _label(entry, catalog),
        entry.description,
    )


def display_name(entry: "CatalogEntry") -> str:
    return f"{entry.role}/{entry.name}" if entry.role else entry.name


def _label(entry: "CatalogEntry", catalog: "Catalog") -> str:
    return catalog.labels.get(entry.root, entry.root)


def as_full_data(skill: Skill, yard: "Project") -> dict[str, Json]:
    return {
        "name": skill.name,
        "title": skill.title,
        "kind": str(skill.kind),
        "description": skill.description,
        "path": str(skill.path),
        "role": skill.role,
        "command": skill.command,
        "entry": skill.entry,
        "actions": list(skill.actions),
        "params": [_param(skill, position) for position in range(len(skill.params))],
        "timeout": skill.timeout_seconds,
        "tags": list(skill.tags),
        "uses": yard.catalog.uses().get(skill.name, 0),
        "fields": skill.fields,
        "findings": [finding.as_dict() for finding in skill.findings],
    }


def _param(skill: Skill, position: int) -> dict[str, Json]:
    param = skill.params[position]
    return {
        "name": param.name,
        "type": str(param.type),
        "required": param.required,
        "default": param.default,
        "description": param.description,
        "choices": list(param.choices),
    }


def as_run_data(run: "Run") -> dict[str, Json]:
    return {
        "id": run.id,
        "agent": run.agent,
        "skill": run.skill,
        "kind": run.kind,
        "state": run.state,
        "started": started_of(run),
        "seconds": run.seconds,
        "request": run.request,
        "launch": run.launch,
        "result": run.result,
    }


def started_of(run: "Run") -> str:
    return datetime.fromtimestamp(run.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def line_of(kind: str, text: str, data: object, lang: Lang) -> str:
    """One event on one line; nothing for what says nothing to a person."""
    from skillyard.core.backend_events import EventKind  # noqa: PLC0415  (lists do not need it)

    facts: dict[str, Json] = dict(data) if isinstance(data, dict) else {}
    match kind:
        case EventKind.STARTED:
            return _STARTED.render(lang, session=facts.get("session"))
        case EventKind.TEXT:
            return _short(text)
        case EventKind.TOOL_CALL:
            given = facts.get("input")
            return _short(f"{text} {_as_words(given)}")
        case EventKind.TOOL_RESULT if facts.get("ok") is False:
            return _short(f"✗ {text}")
        case EventKind.WAITING:
            return WAITING.render(lang, why=text)
        case EventKind.ERROR:
            return _RETRYING.render(lang, why=_short(text)) if facts.get("retrying") else _short(text)
        case _:
            return ""


def _as_words(value: Json) -> str:
    """What a tool is given: the value where it is only one."""
    if isinstance(value, dict):
        return " ".join(str(item) if len(value) == 1 else f"{key}={item}" for key, item in value.items())
    return "" if value is None else str(value)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN else line[: _MOST_SHOWN - 1] + "…"


def find_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif (path / SKILL_FILE).is_file():
        yield path / SKILL_FILE
    elif path.is_dir():
        from skillyard.catalog.scan import find_skill_files  # noqa: PLC0415  (lists do not need it)

        found = sorted(find_skill_files(path, {}, (), time_ns()).skills)
        if not found:
            raise InvalidArgs(Message("{path}: no {skill_file} in it or below it", path=path, skill_file=SKILL_FILE))
        yield from map(Path, found)
    else:
        raise InvalidArgs(Message("{path}: there is no such file or folder", path=path))


def passes(reading: "Reading", *, strict: bool) -> bool:
    worst = Severity.WARNING if strict else Severity.ERROR
    return reading.skill is not None and all(finding.severity.rank < worst.rank for finding in reading.findings)


def as_reading_data(path: str, reading: "Reading") -> dict[str, Json]:
    skill = reading.skill
    return {
        "path": path,
        "name": skill.name if skill else None,
        "description": skill.description if skill else None,
        "kind": str(skill.kind) if skill else None,
        "findings": [finding.as_dict() for finding in reading.findings],
    }
