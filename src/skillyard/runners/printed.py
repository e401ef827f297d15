"""What a program printed, as data: one JSON object is merged, an envelope adopted, the rest is content."""

import json
from collections.abc import Mapping

from skillyard.core.envelope import from_dict, has_icon, parse
from skillyard.core.result import Result
from skillyard.core.values import Json, check_value


def as_printed(stdout: bytes) -> tuple[dict[str, Json], Result | None]:
    """The data, and the envelope where the program printed one."""
    text = stdout.decode("utf-8", "replace").replace("\r\n", "\n").strip("\n")
    if not text.strip():
        return {}, None
    if (fields := _as_object(text)) is not None:
        return _adopted(fields)
    if not has_icon(text):
        return {"content": text}, None
    try:
        envelope = parse(text)
    except ValueError:
        return {"content": text}, None
    return dict(envelope.data), envelope


def _as_object(text: str) -> dict[str, Json] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        fields = json.loads(text)
        check_value(fields)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _adopted(fields: dict[str, Json]) -> tuple[dict[str, Json], Result | None]:
    if {"agent", "state", "summary"} <= fields.keys():
        try:
            envelope = from_dict(fields)
        except ValueError:
            return fields, None
        return dict(envelope.data), envelope
    data = fields.get("data")
    if isinstance(fields.get("success"), bool) and isinstance(data, Mapping):
        return dict(data), None
    return fields, None
