"""Skills, runs, readings and events as the data and lines that several faces show."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillyard.core.messages import Lang, Message, render
from skillyard.core.skill import Severity, Skill
from skillyard.core.values import Json

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.catalog.catalog import Catalog, SearchHit
    from skillyard.catalog.index import CatalogEntry
    from skillyard.catalog.manifest import Reading
    from skillyard.store.runs import Run

_MOST_SHOWN = 160
_READ = ("name", "description", "kind")


def fields_of(value: object, *names: str) -> dict[str, Json]:
    """Return these attributes by their names: a tuple as a list, an enum or a path as its text."""
    return {name: _as_json(getattr(value, name)) for name in names}


def _as_json(value: Any) -> Json:
    if isinstance(value, str | Path):
        return str(value)
    return list(value) if type(value) is tuple else value


def as_skill_data(entry: "CatalogEntry", catalog: "Catalog") -> dict[str, Json]:
    return {
        **fields_of(entry, "name", "folder_name"),
        "kind": _kind(entry),
        **fields_of(entry, "description", "title", "tags", "role"),
        "where": catalog.labels.get(entry.root, entry.root),
        "path": entry.file,
        "worst_finding": entry.severity,
    }


def _kind(entry: "CatalogEntry") -> str:
    return str(entry.kind) if entry.usable else "broken"


def as_search_data(hits: "Sequence[SearchHit]", query: str, catalog: "Catalog") -> dict[str, Json]:
    """Return the found skills, or the nearest names if there are none."""
    found: list[Json] = [{**as_skill_data(hit.entry, catalog), "snippet": hit.snippet} for hit in hits]
    nearest = () if found else catalog.nearest(query)
    return {"skills": found, **({"nearest": list(nearest)} if nearest else {})}


def as_row(entry: "CatalogEntry", catalog: "Catalog") -> tuple[str, ...]:
    return (display_name(entry), _kind(entry), catalog.labels.get(entry.root, entry.root), entry.description)


def display_name(entry: "CatalogEntry") -> str:
    return f"{entry.role}/{entry.name}" if entry.role else entry.name


def as_full_data(skill: Skill, project: "Project") -> dict[str, Json]:
    names = ("name", "type", "required", "default", "description", "choices")
    uses, loads = project.usage()
    return {
        **fields_of(skill, "name", "title", "kind", "description", "path", "role", "command", "entry", "actions"),
        "params": [fields_of(param, *names) for param in skill.params],
        "timeout": skill.timeout_seconds,
        **fields_of(skill, "success_exit_codes", "tags"),
        "uses": uses.get(skill.name, 0),
        "loads": loads.get(skill.name, 0),
        "fields": skill.fields,
        "findings": [finding.as_dict() for finding in skill.findings],
    }


def as_run_data(run: "Run") -> dict[str, Json]:
    data = fields_of(run, "id", "agent", "skill", "kind", "state", "started", "seconds", "request", "launch", "result")
    return {**data, "started": timestamp(run.started)}


def timestamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def line_of(kind: str, text: str, data: object, lang: Lang) -> str:
    """One event on one line; nothing for what says nothing to a person."""
    from skillyard.core.backend_events import EventKind  # noqa: PLC0415  (lists do not need it)

    facts = data if isinstance(data, dict) else {}
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
        case EventKind.NOTE:
            return render(text, lang)
        case EventKind.ERROR:
            why = _short(text)
            return Message("trying again: {why}", why=why).render(lang) if facts.get("retrying") else why
        case _:
            return ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN else line[: _MOST_SHOWN - 1] + "…"


def passes(reading: "Reading", *, strict: bool) -> bool:
    worst = Severity.WARNING if strict else Severity.ERROR
    return reading.skill is not None and all(finding.severity.rank < worst.rank for finding in reading.findings)


def as_reading_data(path: str, reading: "Reading") -> dict[str, Json]:
    findings: list[Json] = [finding.as_dict() for finding in reading.findings]
    known = fields_of(reading.skill, *_READ) if reading.skill else dict.fromkeys(_READ)
    return {"path": path, **known, "findings": findings}
