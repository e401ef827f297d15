"""What a skill is called and what it says of itself, by the standard's rules.

A skill always gets both: where the frontmatter has none, the folder names it and its text describes it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from skillyard.catalog.fence import Fence
from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Place
from skillyard.core.messages import Message
from skillyard.core.skill import Finding
from skillyard.core.values import Json

MAX_NAME = 64
MAX_DESCRIPTION = 1024

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_HEADING = re.compile(r"#{1,6}[ \t]+(.+)")


def read_name(fields: Mapping[str, Json], places: Mapping[str, Place], path: Path, findings: list[Finding]) -> str:
    """The frontmatter's, else the folder's: a skill always has a name to be called by."""
    folder = path.parts[-2] if len(path.parts) > 1 else ""
    said = fields.get("name")
    name = said.strip() if isinstance(said, str) else ""
    if not name:
        rule = Rule.NAME_MISSING if said is None or said == name else Rule.NAME_NOT_TEXT
        findings.append(rule.at(*places.get("name", (1, 1)), name=folder))
        return folder or path.stem
    if name != folder or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        findings += _check_name(name, folder, places.get("name", (1, 1)))
    return name


def _check_name(name: str, folder: str, place: Place) -> list[Finding]:
    found = []
    if not _NAME.fullmatch(name):
        better = _NOT_NAME.sub("-", name.lower()).strip("-")[:MAX_NAME].rstrip("-")
        found.append(
            Rule.NAME_INVALID.at(*place, name=name, better=better or Message("a name in a-z, 0-9 and hyphens"))
        )
    if len(name) > MAX_NAME:
        found.append(Rule.NAME_TOO_LONG.at(*place, count=len(name), limit=MAX_NAME))
    if folder and name != folder:
        found.append(Rule.NAME_NOT_FOLDER.at(*place, name=name, folder=folder))
    return found


def read_description(
    fields: Mapping[str, Json], places: Mapping[str, Place], fence: Fence, findings: list[Finding]
) -> str:
    """As written, outer blanks included; where there is none, what the text starts with."""
    said = fields.get("description")
    place = places.get("description", (1, 1))
    if isinstance(said, str) and said.strip():
        if len(said.strip()) > MAX_DESCRIPTION:
            findings.append(Rule.DESCRIPTION_TOO_LONG.at(*place, count=len(said.strip()), limit=MAX_DESCRIPTION))
        return said
    rule = Rule.DESCRIPTION_MISSING if said is None or isinstance(said, str) else Rule.DESCRIPTION_NOT_TEXT
    findings.append(rule.at(*place))
    return _first_paragraph(fence.body)


def _first_paragraph(body: str) -> str:
    """The first text that is no heading, else the first heading: one line, no longer than a description."""
    heading = ""
    lines: list[str] = []
    for line in body.split("\n"):
        words = line.strip()
        if found := _HEADING.match(words):
            heading = heading or found[1].rstrip(" \t#")
        elif words and words.strip("-=*_`"):
            lines.append(words)
            continue
        if lines:
            break
    return " ".join(lines)[:MAX_DESCRIPTION] or heading[:MAX_DESCRIPTION]
