"""Interim reader: the real one is being built beside this."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from skillyard.core.skill import Finding, Kind, Param, Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    skill: Skill | None
    findings: tuple[Finding, ...] = ()
    body: str = ""


def parse_skill(content: bytes, path: Path) -> Reading:
    _, block, body = content.decode().split("---\n", 2)
    fields = yaml.safe_load(block)
    kind = Kind.COMMAND if fields.get("command") else Kind.JSON if fields.get("protocol") == "json" else Kind.PROMPT
    params = tuple(
        Param(name=n, required=bool((v or {}).get("required"))) for n, v in (fields.get("params") or {}).items()
    )
    skill = Skill(
        name=fields["name"],
        path=path,
        kind=kind,
        description=fields.get("description", ""),
        params=params,
        title=fields.get("title", ""),
        command=fields.get("command", ""),
        entry=fields.get("entry", ""),
        fields=fields,
        tags=tuple(fields.get("tags") or ()),
    )
    return Reading(skill=skill, body=body)


def read_skill(path: Path) -> Reading:
    return parse_skill(path.read_bytes(), path)
