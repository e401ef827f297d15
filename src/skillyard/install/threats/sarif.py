"""Verdicts as SARIF 2.1.0, which code hosts show beside the lines."""

from collections.abc import Iterable
from urllib.parse import quote

from skillyard.core.values import Json
from skillyard.install.threats.rule import ThreatRule, all_rules
from skillyard.install.threats.verdict import ScanVerdict, ThreatHit, ThreatLevel

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: SARIF knows three words; the number is what GitHub sorts security results by.
_LEVELS = {
    ThreatLevel.SAFE: ("none", "0.0"),
    ThreatLevel.INFO: ("note", "1.0"),
    ThreatLevel.LOW: ("note", "3.0"),
    ThreatLevel.MEDIUM: ("warning", "5.0"),
    ThreatLevel.UNKNOWN: ("warning", "6.0"),
    ThreatLevel.HIGH: ("error", "8.0"),
    ThreatLevel.CRITICAL: ("error", "9.5"),
}


def as_sarif(verdicts: Iterable[tuple[str, ScanVerdict]], version: str) -> dict[str, Json]:
    """One run over all skills; each comes with the path of its folder."""
    rules = list(all_rules().values())
    positions = {rule.id: position for position, rule in enumerate(rules)}
    results = [_result(folder, hit, positions[hit.rule]) for folder, verdict in verdicts for hit in verdict.hits]
    driver: dict[str, Json] = {"name": "skillyard", "version": version, "rules": [_rule(rule) for rule in rules]}
    run: dict[str, Json] = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: ThreatRule) -> dict[str, Json]:
    level, number = _LEVELS[rule.severity]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.advice},
        "defaultConfiguration": {"level": level},
        "properties": {"security-severity": number, "tags": ["security", rule.category]},
    }


def _result(folder: str, hit: ThreatHit, position: int) -> dict[str, Json]:
    path = f"{folder.rstrip('/')}/{hit.file}" if folder not in {"", "."} else hit.file
    place: dict[str, Json] = {
        "artifactLocation": {"uri": quote(path)},
        "region": {"startLine": hit.line, "startColumn": hit.column},
    }
    return {
        "ruleId": hit.rule,
        "ruleIndex": position,
        "level": _LEVELS[hit.severity][0],
        "message": {"text": f"{all_rules()[hit.rule].title}: {hit.excerpt}"},
        "locations": [{"physicalLocation": place}],
        "properties": {"severity": hit.severity.name},
    }
