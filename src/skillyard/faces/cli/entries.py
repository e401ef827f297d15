"""A catalog entry as data and as a row."""

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import CatalogEntry
from skillyard.core.messages import Message
from skillyard.core.values import Json

READING = Message("reading skills")


def as_skill_data(entry: CatalogEntry, catalog: Catalog) -> dict[str, Json]:
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


def as_row(entry: CatalogEntry, catalog: Catalog) -> tuple[str, ...]:
    return (
        display_name(entry),
        str(entry.kind) if entry.usable else "broken",
        _label(entry, catalog),
        entry.description,
    )


def display_name(entry: CatalogEntry) -> str:
    return f"{entry.role}/{entry.name}" if entry.role else entry.name


def _label(entry: CatalogEntry, catalog: Catalog) -> str:
    return catalog.labels.get(entry.root, entry.root)
