"""The smaller fields: tags, actions and the time limit."""

import re
from collections.abc import Mapping

from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Place
from skillyard.core.skill import Finding
from skillyard.core.values import Json

_DURATION = re.compile(r"(\d+(?:\.\d+)?)[ \t]*(ms|s|sec|seconds?|m|min|minutes?|h|hours?)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_COMMAS = re.compile(r"[,，、]")
_TAG_FIELDS = ("tags", "triggers", "keywords")


def read_tags(fields: Mapping[str, Json]) -> tuple[str, ...]:
    """What people file the skill under; triggers and keywords find it just as well."""
    metadata = fields.get("metadata")
    found: dict[str, None] = {}
    for source in (fields, metadata) if isinstance(metadata, Mapping) else (fields,):
        for field in _TAG_FIELDS:
            if field in source:
                found.update(dict.fromkeys(_words(source[field])))
    return tuple(found)


def _words(value: Json) -> list[str]:
    """A list of texts, or one text with commas."""
    listed = _COMMAS.split(value) if isinstance(value, str) else value
    if not isinstance(listed, list):
        return []
    words = (str(item).strip() for item in listed if isinstance(item, str | int) and not isinstance(item, bool))
    return [word for word in words if word]


def read_actions(value: Json) -> tuple[str, ...]:
    """Names alone, or a mapping or list of descriptions by name."""
    if isinstance(value, Mapping):
        return tuple(value)
    if not isinstance(value, list):
        return ()
    names = (item.get("name") if isinstance(item, Mapping) else item for item in value)
    return tuple(name for name in names if isinstance(name, str) and name)


def read_timeout(fields: Mapping[str, Json], places: Mapping[str, Place], findings: list[Finding]) -> float | None:
    """Seconds, as a number or as `90s` or `2m`."""
    field = "timeout" if "timeout" in fields else "timeout_seconds"
    value = fields.get(field)
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None or not 0 < seconds < float("inf"):
        findings.append(Rule.TIMEOUT_INVALID.at(*places.get(field, (1, 1)), name=value))
        return None
    return seconds


def _seconds(value: Json) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        return None
    unit = (found[2] or "s").lower()
    return float(found[1]) * _SECONDS["ms" if unit == "ms" else unit[0]]
