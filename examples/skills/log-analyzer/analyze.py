#!/usr/bin/env python3
"""
Log analyzer
Counts levels and groups errors of an application log.

Input (stdin JSON):
{
    "action": "analyze" | "report",
    "params": {"path": "app.log", "top": 5}
}

Output (stdout JSON):
{
    "success": true,
    "action": "analyze",
    "data": {"lines": 40, "levels": {"ERROR": 6}, "errors": [...]}
}
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LEVEL = re.compile(r"\b(TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|ERR|CRITICAL|FATAL)\b")
SAME_LEVEL = {"WARNING": "WARN", "ERR": "ERROR"}
SEVERITY = ("FATAL", "CRITICAL", "ERROR", "WARN", "NOTICE", "INFO", "DEBUG", "TRACE")
ERRORS = {"ERROR", "CRITICAL", "FATAL"}
TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}")
#: What differs between two occurrences of one error.
VARIABLE = re.compile(r"\"[^\"]*\"|'[^']*'|\b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b|\d+(?:\.\d+)*")


class Refused(Exception):
    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **details}


def analyze(params: dict[str, Any]) -> dict[str, Any]:
    text = read_log(params)
    levels: Counter[str] = Counter()
    hours: Counter[str] = Counter()
    groups: dict[str, dict[str, Any]] = {}
    times: list[str] = []
    continuation, lines = 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        lines += 1
        found = LEVEL.search(line)
        if not found:
            continuation += 1
            continue
        level = SAME_LEVEL.get(found[1], found[1])
        levels[level] += 1
        if stamp := TIME.search(line):
            times.append(stamp[0].replace(" ", "T"))
        if level in ERRORS:
            message = line[found.end() :].lstrip(" ]:-\t")
            group = groups.setdefault(
                VARIABLE.sub("*", message), {"level": level, "count": 0, "first_line": number, "example": message[:200]}
            )
            group["count"] += 1
            if stamp:
                hours[times[-1][:13] + ":00"] += 1
    ranked = sorted(groups.values(), key=lambda group: (-group["count"], group["first_line"]))
    return {
        "lines": lines,
        "levels": {level: levels[level] for level in SEVERITY if levels[level]},
        "continuation_lines": continuation,
        "first": min(times, default=None),
        "last": max(times, default=None),
        "busiest_hour": busiest(hours),
        "error_groups": len(groups),
        "errors": ranked[: top_of(params)],
    }


def busiest(hours: Counter[str]) -> dict[str, Any] | None:
    """The hour with the most errors, the earliest of equals."""
    if not hours:
        return None
    hour = min(hours, key=lambda name: (-hours[name], name))
    return {"hour": hour, "errors": hours[hour]}


def report(params: dict[str, Any]) -> dict[str, Any]:
    facts = analyze(params)
    counts = ", ".join(f"{level} {count}" for level, count in facts["levels"].items()) or "none recognised"
    rows = [f"# Log report: {params['path']}", "", f"- {facts['lines']} lines; levels: {counts}"]
    if facts["first"]:
        rows.append(f"- from {facts['first']} to {facts['last']}")
    if facts["busiest_hour"]:
        rows.append("- most errors in the hour from {hour}: {errors}".format(**facts["busiest_hour"]))
    rows += ["", "## Errors", ""]
    for group in facts["errors"]:
        rows.append(f"- {group['count']}× {group['level']}, first on line {group['first_line']}: {group['example']}")
    if not facts["errors"]:
        rows.append("None.")
    return {"report": "\n".join(rows), "error_groups": facts["error_groups"]}


def read_log(params: dict[str, Any]) -> str:
    name = params.get("path")
    if name is None or name == "":
        raise Refused("MISSING_PARAM", "Missing required parameters: ['path']")
    if not isinstance(name, str) or "\0" in name:
        raise Refused("INVALID_PARAM", "path must be the name of a file")
    project = Path.cwd().resolve()
    path = (project / name).resolve()
    if not path.is_relative_to(project):
        raise Refused("PERMISSION_DENIED", f"{name} is outside the project")
    if not path.is_file():
        raise Refused("DATA_NOT_FOUND", f"no such file: {name}")
    return path.read_text("utf-8", "replace")


def top_of(params: dict[str, Any]) -> int:
    given = params.get("top", 5)
    try:
        top = int(given)
    except (TypeError, ValueError):
        top = 0
    if isinstance(given, bool) or not 1 <= top <= 100:
        raise Refused("INVALID_PARAM", f"top must be a number from 1 to 100, not {given!r}")
    return top


ACTIONS = {"analyze": analyze, "report": report}


def answer(request: Any) -> dict[str, Any]:
    """One request in, one response out; what is refused is a response too."""
    if not isinstance(request, dict) or not isinstance(request.get("params") or {}, dict):
        refusal = Refused("INVALID_PARAM", "the request must be an object, and so must its params")
        return {"success": False, "action": None, "error": refusal.error}
    action = request.get("action")
    try:
        if not isinstance(action, str) or action not in ACTIONS:
            raise Refused("UNKNOWN_ACTION", f"Unknown action: {action}", supported_actions=list(ACTIONS))
        return {"success": True, "action": action, "data": ACTIONS[action](request.get("params") or {})}
    except Refused as refusal:
        return {"success": False, "action": action, "error": refusal.error}


def main() -> None:
    try:
        request = json.loads(sys.stdin.buffer.read())
    except ValueError as error:
        refusal = Refused("INVALID_JSON", f"Failed to parse input JSON: {error}")
        response = {"success": False, "action": None, "error": refusal.error}
    else:
        response = answer(request)
    print(json.dumps(response, ensure_ascii=False, indent=2))
    sys.exit(0 if response["success"] else 1)


if __name__ == "__main__":
    main()
