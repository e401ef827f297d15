"""Reads SKILL.md: bytes → text → fence → fields → skill.

Strictly first, with repairs only if that fails. Whatever the bytes are, there is an answer and never a traceback.
Findings that only `validate` shows are made in `lint`, so that a scan of ten thousand files does not pay for them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog import skill_fields
from skillyard.catalog.files import read_plain
from skillyard.catalog.findings import Position, Rule
from skillyard.catalog.frontmatter import Block, read_block
from skillyard.catalog.repair import repair
from skillyard.catalog.skill_text import Fence, as_text, decode, earlier_close, find_fence, plain_fence
from skillyard.core.skill import Finding, Severity, Skill

#: A larger SKILL.md is refused, and read no further than to see that.
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_FRONTMATTER_BYTES = 64 * 1024


#: Bytes or characters of the body that the index takes.
_SEARCHED = 12_000


class Reading(NamedTuple):
    """One parse with two answers: `skill` is the tolerant reading, `ok` the strict verdict."""

    path: Path
    skill: Skill | None
    findings: tuple[Finding, ...] = ()
    #: The whole file, decoded only if that was needed, and where the text below the frontmatter starts.
    source: str | bytes = ""
    body_start: int = 0
    body_line: int = 1
    #: Line and column of each field in the file.
    positions: Mapping[str, Position] = {}
    #: Broken fields that decide what may run or who may call, which were therefore not used.
    refused: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        """The text below the frontmatter, exactly, with LF line ends."""
        return as_text(self.source[self.body_start :])

    @property
    def beginning(self) -> str:
        """Enough of the body to be searched; a scan decodes no more."""
        start = self.source[self.body_start : self.body_start + _SEARCHED]
        return start.decode("utf-8", "ignore") if isinstance(start, bytes) else start

    @property
    def text(self) -> str:
        """The whole file with LF line ends."""
        return as_text(self.source)

    @property
    def ok(self) -> bool:
        """Whether there are no errors: other agents read the file as we do."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def strictly_ok(self) -> bool:
        """Whether `--strict` accepts it: it follows the standard to the letter, and nothing looks like a mistake."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)


def read_skill(path: Path) -> Reading:
    """Read one SKILL.md from the disk. A file that cannot be read gives a finding."""
    try:
        content = read_plain(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Reading(path, None, (Rule.FILE_UNREADABLE.at(reason=reason),))
    return parse_skill(content, path)


def parse_skill(content: bytes, path: Path) -> Reading:
    """Return the skill in these bytes, and the findings about them. Pure: nothing is read or written."""
    if len(content) > MAX_FILE_BYTES:
        return Reading(path, None, (Rule.FILE_TOO_LARGE.at(limit=MAX_FILE_BYTES),))
    plain = plain_fence(content)
    if plain and len(plain.block) * 4 <= MAX_FRONTMATTER_BYTES:
        block = read_block(plain.block, plain.block_line)
        if not block.failed:
            return _as_reading(path, plain, block)
    return _parse_tolerantly(content, path)


def _parse_tolerantly(content: bytes, path: Path) -> Reading:
    """Read a file that is not quite as the standard wants it: decode all of it, search it, repair it."""
    text, findings = decode(content)
    fence = find_fence(text)
    if len(fence.block) * 4 > MAX_FRONTMATTER_BYTES and len(fence.block.encode()) > MAX_FRONTMATTER_BYTES:
        too_large = Rule.FRONTMATTER_TOO_LARGE.at(fence.block_line, limit=MAX_FRONTMATTER_BYTES)
        return Reading(path, None, (*findings, too_large), source=text, body_start=fence.body_start)
    if not fence.found and not fence.body:
        return Reading(path, None, (*findings, *fence.findings))
    fence, block = _read_fields(fence)
    return _as_reading(path, fence, block._replace(findings=[*findings, *fence.findings, *block.findings]))


def _read_fields(fence: Fence) -> tuple[Fence, Block]:
    """Read the fields strictly, else with an earlier closing fence, else repaired."""
    if not fence.found:
        return fence, Block({}, {}, [])
    block = read_block(fence.block, fence.block_line)
    if block.failed and (shorter := earlier_close(fence)):
        again = read_block(shorter.block, shorter.block_line)
        fence, block = (shorter, again) if not again.failed else (fence, block)
    if not block.failed and fence.sure:
        return fence, block
    repaired = repair(fence.block, fence.block_line, sure=fence.sure)
    return fence, repaired._replace(findings=list(dict.fromkeys((*block.findings, *repaired.findings))))


def _as_reading(path: Path, fence: Fence, block: Block) -> Reading:
    fields = block.fields
    name, description = skill_fields.read_name(block, path), skill_fields.read_description(block)
    timeout = skill_fields.read_timeout(block)
    kind, command, entry = skill_fields.read_run_fields(block)
    has_params = command or not fields.keys().isdisjoint(skill_fields.PARAM_FIELDS)
    title = fields.get("title")
    skill = Skill(
        name=name,
        path=path,
        kind=kind,
        description=skill_fields.first_paragraph(fence.body) if description is None else description,
        title=title if isinstance(title, str) else "",
        tags=skill_fields.read_tags(fields),
        params=skill_fields.read_params(block, command) if has_params else (),
        command=command,
        entry=entry,
        actions=skill_fields.read_actions(fields.get("actions")),
        timeout_seconds=timeout,
        fields=fields,
    )
    findings = tuple(block.findings)
    skill = skill._replace(findings=findings)
    extent = (fence.source, fence.body_start, fence.body_line)
    return Reading(path, skill, findings, *extent, block.positions, block.refused)
