"""Reads SKILL.md: bytes → text → fence → fields → skill.

Strict first, repairs only where that fails. Whatever the bytes are, there is an answer and never a traceback.
What only `validate` wants to know stands in `lint`, so that a scan of ten thousand files does not pay for it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from skillyard.catalog.encoding import decode
from skillyard.catalog.fence import Fence, earlier_close, find_fence, plain_fence
from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Block, Place, read_block
from skillyard.catalog.params import PARAM_FIELDS, Params, read_params
from skillyard.catalog.program import Program, read_program
from skillyard.catalog.reading import Reading
from skillyard.catalog.repair import repair
from skillyard.core.skill import Finding, Skill
from skillyard.core.values import Json

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_FRONTMATTER_BYTES = 64 * 1024
MAX_NAME = 64
MAX_DESCRIPTION = 1024

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_HEADING = re.compile(r"#{1,6}[ \t]+(.+?)[ \t#]*$")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)[ \t]*(ms|s|sec|seconds?|m|min|minutes?|h|hours?)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TAG_FIELDS = ("tags", "triggers", "keywords")
_NO_PARAMS = Params((), ())


def read_skill(path: Path) -> Reading:
    """Read one SKILL.md from the disk; a file that cannot be read is a finding too."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Reading(path=path, skill=None, findings=(Rule.FILE_UNREADABLE.at(reason=reason),))
    return parse_skill(content, path)


def parse_skill(content: bytes, path: Path) -> Reading:
    """The skill in these bytes, and the verdict on them. Pure: nothing is read or written."""
    if len(content) > MAX_FILE_BYTES:
        said = Rule.FILE_TOO_LARGE.at(limit=MAX_FILE_BYTES)
        return Reading(path=path, skill=None, findings=(said,))
    plain = plain_fence(content)
    if plain and len(plain.block) * 4 <= MAX_FRONTMATTER_BYTES:
        block = read_block(plain.block, plain.block_line)
        if not block.failed:
            return _as_reading(path, plain, block, block.findings)
    return _parse_closely(content, path)


def _parse_closely(content: bytes, path: Path) -> Reading:
    """The file is not quite as the standard wants it: decode all of it, look everywhere, mend."""
    text, findings = decode(content)
    fence = find_fence(text)
    if len(fence.block) * 4 > MAX_FRONTMATTER_BYTES and len(fence.block.encode()) > MAX_FRONTMATTER_BYTES:
        said = Rule.FRONTMATTER_TOO_LARGE.at(fence.block_line, limit=MAX_FRONTMATTER_BYTES)
        return Reading(
            path=path, skill=None, findings=(*findings, said), source=text, body_start=fence.body_start
        )
    if not fence.found and not fence.body:
        return Reading(path=path, skill=None, findings=(*findings, *fence.findings))
    fence, block = _read_fields(fence)
    return _as_reading(path, fence, block, [*findings, *fence.findings, *block.findings])


def _read_fields(fence: Fence) -> tuple[Fence, Block]:
    """Strictly; then with an earlier closing fence; then repaired."""
    if not fence.found:
        return fence, Block({}, {}, [])
    block = read_block(fence.block, fence.block_line)
    if not block.failed and fence.sure:
        return fence, block
    if block.failed and (shorter := earlier_close(fence)):
        again = read_block(shorter.block, shorter.block_line)
        fence, block = (shorter, again) if not again.failed else (fence, block)
    if not block.failed and fence.sure:
        return fence, block
    mended = repair(fence.block, fence.block_line, sure=fence.sure)
    return fence, mended._replace(findings=list(dict.fromkeys((*block.findings, *mended.findings))))


def _as_reading(path: Path, fence: Fence, block: Block, findings: list[Finding]) -> Reading:
    fields, places = block.fields, block.places
    name = _name(fields, places, path, findings)
    description = _description(fields, places, fence, findings)
    program = read_program(fields, places)
    params = _params(fields, places, program)
    timeout = _timeout(fields, places, findings)
    found = (*findings, *program.findings, *params.findings)
    title = fields.get("title")
    skill = Skill(
        name=name,
        path=path,
        kind=program.kind,
        description=description,
        title=title if isinstance(title, str) else "",
        tags=_tags(fields),
        params=params.params,
        command=program.command,
        entry=program.entry,
        actions=_actions(fields.get("actions")),
        timeout_seconds=timeout,
        fields=fields,
        findings=found,
    )
    return Reading(
        path=path,
        skill=skill,
        findings=found,
        source=fence.source,
        body_start=fence.body_start,
        body_line=fence.body_line,
        places=places,
        refused=block.refused,
    )


def _params(fields: Mapping[str, Json], places: Mapping[str, Place], program: Program) -> Params:
    if not program.command and fields.keys().isdisjoint(PARAM_FIELDS):
        return _NO_PARAMS
    return read_params(fields, places, program.command)


def _name(
    fields: Mapping[str, Json], places: Mapping[str, Place], path: Path, findings: list[Finding]
) -> str:
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
            Rule.NAME_INVALID.at(*place, name=name, better=better or "a name in a-z, 0-9 and hyphens")
        )
    if len(name) > MAX_NAME:
        found.append(Rule.NAME_TOO_LONG.at(*place, count=len(name), limit=MAX_NAME))
    if folder and name != folder:
        found.append(Rule.NAME_NOT_FOLDER.at(*place, name=name, folder=folder))
    return found


def _description(
    fields: Mapping[str, Json], places: Mapping[str, Place], fence: Fence, findings: list[Finding]
) -> str:
    """As written, outer blanks included; where there is none, what the text starts with."""
    said = fields.get("description")
    place = places.get("description", (1, 1))
    if isinstance(said, str) and said.strip():
        if len(said.strip()) > MAX_DESCRIPTION:
            findings.append(
                Rule.DESCRIPTION_TOO_LONG.at(*place, count=len(said.strip()), limit=MAX_DESCRIPTION)
            )
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
            heading = heading or found[1]
        elif words and words.strip("-=*_`"):
            lines.append(words)
            continue
        if lines:
            break
    return " ".join(lines)[:MAX_DESCRIPTION] or heading[:MAX_DESCRIPTION]


def _tags(fields: Mapping[str, Json]) -> tuple[str, ...]:
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
    listed = re.split(r"[,，、]", value) if isinstance(value, str) else value
    if not isinstance(listed, list):
        return []
    words = (
        str(item).strip() for item in listed if isinstance(item, str | int) and not isinstance(item, bool)
    )
    return [word for word in words if word]


def _actions(value: Json) -> tuple[str, ...]:
    """Names alone, or a mapping or list of descriptions by name."""
    if isinstance(value, Mapping):
        return tuple(value)
    if not isinstance(value, list):
        return ()
    names = (item.get("name") if isinstance(item, Mapping) else item for item in value)
    return tuple(name for name in names if isinstance(name, str) and name)


def _timeout(
    fields: Mapping[str, Json], places: Mapping[str, Place], findings: list[Finding]
) -> float | None:
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
