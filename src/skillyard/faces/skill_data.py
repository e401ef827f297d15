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
    kind = str(entry.kind) if entry.usable else "broken"
    return (display_name(entry), kind, _label(entry, catalog), entry.description)


def display_name(entry: "CatalogEntry") -> str:
    return f"{entry.role}/{entry.name}" if entry.role else entry.name


def _label(entry: "CatalogEntry", catalog: "Catalog") -> str:
    return catalog.labels.get(entry.root, entry.root)


def as_full_data(skill: Skill, project: "Project") -> dict[str, Json]:
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
        "params": [
            {
                "name": param.name,
                "type": str(param.type),
                "required": param.required,
                "default": param.default,
                "description": param.description,
                "choices": list(param.choices),
            }
            for param in skill.params
        ],
        "timeout": skill.timeout_seconds,
        "tags": list(skill.tags),
        "uses": project.catalog.uses().get(skill.name, 0),
        "fields": skill.fields,
        "findings": [finding.as_dict() for finding in skill.findings],
    }


def as_run_data(run: "Run") -> dict[str, Json]:
    return {
        "id": run.id,
        "agent": run.agent,
        "skill": run.skill,
        "kind": run.kind,
        "state": run.state,
        "started": timestamp(run.started),
        "seconds": run.seconds,
        "request": run.request,
        "launch": run.launch,
        "result": run.result,
    }


def timestamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def line_of(kind: str, text: str, data: object, lang: Lang) -> str:
    """One event on one line; nothing for what says nothing to a person."""
    from skillyard.core.backend_events import EventKind  # noqa: PLC0415  (lists do not need it)

    facts: dict[str, Json] = dict(data) if isinstance(data, dict) else {}
    match kind:
        case EventKind.STARTED:
            return Message("started: {session}", session=facts.get("session")).render(lang)
        case EventKind.TEXT:
            return _short(text)
        case EventKind.TOOL_CALL:
            given = facts.get("input")
            if isinstance(given, dict):  # the value alone where it is only one
                given = " ".join(str(item) if len(given) == 1 else f"{key}={item}" for key, item in given.items())
            return _short(f"{text} {'' if given is None else given}")
        case EventKind.TOOL_RESULT if facts.get("ok") is False:
            return _short(f"✗ {text}")
        case EventKind.WAITING:
            return Message("waiting: {why}", why=text).render(lang)
        case EventKind.ERROR:
            return (
                Message("trying again: {why}", why=_short(text)).render(lang) if facts.get("retrying") else _short(text)
            )
        case _:
            return ""


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
