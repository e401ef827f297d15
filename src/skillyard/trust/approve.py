"""What a person allowed a skill, with the private copy of exactly the bytes that this was for.

Where a grant counts, the run uses nothing but the copy: the command or the entry is read from it, the program and its
modules are started from it. Without a grant the folder is used as it is: it gets no more than any skill does.
"""

import json
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.fingerprint import hash_folder
from skillyard.core.errors import MetadataMissing, SkillNotFound
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.store.copies import Copies, FolderCopy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skillyard.store.grants import Grants


class Approved(NamedTuple):
    """A skill, what was granted to it, and the copy to use if anything was."""

    skill: Skill
    granted: frozenset[str] = frozenset()
    copy: FolderCopy | None = None


def approve(skill: Skill, grants: "Grants", own_home: "Path") -> Approved:
    """Look up the grants for the folder's bytes as they are now; the skill as those bytes describe it."""
    key = str(skill.folder)
    if not grants.has_any(key) or not skill.folder.is_dir():
        return Approved(skill)
    in_role = bool(skill.role)
    marks = hash_folder(skill.folder, in_role=in_role)
    if not grants.of(key, marks.approved):
        return Approved(skill)
    copies = Copies(own_home)
    copy = copies.find(marks) or copies.make(skill.folder, in_role=in_role)
    granted = grants.of(key, copy.marks.approved)
    return Approved(_described(skill, copy), granted, copy) if granted else Approved(skill)


def _described(skill: Skill, copy: FolderCopy) -> Skill:
    """The skill as the copy's own file describes it: the folder's may be another one by now."""
    if not (copy.files / skill.path.name).is_file():
        return skill  # a folder without SKILL.md: only its scripts can be run
    found = [known for known in _readings(skill, copy) if not skill.role or known.name == skill.name]
    if not found:
        raise SkillNotFound(skill.name)
    return found[0]


def _readings(skill: Skill, copy: FolderCopy) -> "Sequence[Skill]":
    """Parsed once for each copy: parsing YAML takes longer than everything else here."""
    key = str(skill.path)
    try:
        notes = json.loads(copy.notes.read_bytes())
        return [Skill.from_record(record) for record in notes[key]]
    except (OSError, ValueError, KeyError, TypeError):
        readings = _parsed(skill, copy)
    copy.notes.write_text(json.dumps({key: [reading.as_record() for reading in readings]}), "utf-8")
    return readings


def _parsed(skill: Skill, copy: FolderCopy) -> "Sequence[Skill]":
    from skillyard.catalog.files import read_plain
    from skillyard.catalog.manifest import MAX_FILE_BYTES

    content = read_plain(copy.files / skill.path.name, MAX_FILE_BYTES)
    if skill.role:
        from skillyard.catalog.agentfile import parse_role

        return parse_role(content, skill.path).skills
    from skillyard.catalog.manifest import parse_skill

    reading = parse_skill(content, skill.path)
    if reading.skill is None:
        reason = reading.findings[0].message if reading.findings else "it cannot be read"
        raise MetadataMissing(Message("{place}: {reason}", place=skill.path, reason=reason))
    return (reading.skill,)
