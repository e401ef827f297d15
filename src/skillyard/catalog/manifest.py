"""Reads SKILL.md: bytes → text → fence → fields → skill.

Strict first, repairs only where that fails. Whatever the bytes are, there is an answer and never a traceback.
What only `validate` wants to know stands in `lint`, so that a scan of ten thousand files does not pay for it.
"""

from collections.abc import Mapping
from pathlib import Path

from skillyard.catalog.command_field import Program, read_program
from skillyard.catalog.discover import MAX_FILE_BYTES
from skillyard.catalog.encoding import decode
from skillyard.catalog.fence import Fence, earlier_close, find_fence, plain_fence
from skillyard.catalog.findings import Rule
from skillyard.catalog.frontmatter import Block, Place, read_block
from skillyard.catalog.naming import read_description, read_name
from skillyard.catalog.params import PARAM_FIELDS, Params, read_params
from skillyard.catalog.plainfile import read_plain
from skillyard.catalog.reading import Reading
from skillyard.catalog.repair import repair
from skillyard.catalog.run_settings import read_actions, read_tags, read_timeout
from skillyard.core.skill import Finding, Skill
from skillyard.core.values import Json

MAX_FRONTMATTER_BYTES = 64 * 1024

_NO_PARAMS = Params((), ())


def read_skill(path: Path) -> Reading:
    """Read one SKILL.md from the disk; a file that cannot be read is a finding too."""
    try:
        content = read_plain(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
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
        return Reading(path=path, skill=None, findings=(*findings, said), source=text, body_start=fence.body_start)
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
    name = read_name(fields, places, path, findings)
    description = read_description(fields, places, fence, findings)
    program = read_program(fields, places)
    params = _params(fields, places, program)
    timeout = read_timeout(fields, places, findings)
    found = (*findings, *program.findings, *params.findings)
    title = fields.get("title")
    skill = Skill(
        name=name,
        path=path,
        kind=program.kind,
        description=description,
        title=title if isinstance(title, str) else "",
        tags=read_tags(fields),
        params=params.params,
        command=program.command,
        entry=program.entry,
        actions=read_actions(fields.get("actions")),
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
