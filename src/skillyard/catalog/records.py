"""A skill as one JSON text and back: how the index keeps it."""

import json
from pathlib import Path
from typing import Any

from skillyard.core.messages import as_json, of_json
from skillyard.core.skill import Finding, Kind, Param, ParamType, Severity, Skill


def as_record(skill: Skill) -> str:
    fields = skill._asdict()
    fields["path"] = str(skill.path)
    fields["params"] = [param._asdict() for param in skill.params]
    fields["fields"] = dict(skill.fields)
    fields["findings"] = [
        {**finding._asdict(), "message": as_json(finding.message), "advice": as_json(finding.advice)}
        for finding in skill.findings
    ]
    return json.dumps(fields, ensure_ascii=False)


def from_record(record: str) -> Skill:
    fields: dict[str, Any] = json.loads(record)
    fields["path"] = Path(fields["path"])
    fields["kind"] = Kind(fields["kind"])
    fields["params"] = tuple(_param(param) for param in fields["params"])
    fields["findings"] = tuple(_finding(finding) for finding in fields["findings"])
    fields["tags"], fields["actions"] = tuple(fields["tags"]), tuple(fields["actions"])
    return Skill(**fields)


def _param(fields: dict[str, Any]) -> Param:
    return Param(**{**fields, "type": ParamType(fields["type"]), "choices": tuple(fields["choices"])})


def _finding(fields: dict[str, Any]) -> Finding:
    said = {"message": of_json(fields["message"]), "advice": of_json(fields["advice"])}
    return Finding(**{**fields, **said, "severity": Severity(fields["severity"])})
