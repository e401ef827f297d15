"""What the skills of a project publish over MCP: files with digests, also of a skill inside another, and folders."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.file_digests import (
    FileDigest,
    PublishedFiles,
    check_skill,
    is_published,
    published_files,
    read_frontmatter,
)
from skillyard.catalog.files import read_plain
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

if TYPE_CHECKING:
    from skillyard.app.project import Project

_MOST_BYTES = 1 << 20


class FolderEntry(NamedTuple):
    """A direct child of a folder inside a skill."""

    name: str
    is_folder: bool


def published(project: "Project", skill_files: Sequence[str]) -> dict[str, PublishedFiles]:
    """Return what each SKILL.md that is there publishes, by its path."""
    return published_files(project.catalog.index, skill_files)


def nested_skill(folder: Path, outer: PublishedFiles, inner: str) -> PublishedFiles | None:
    """Return what a skill inside another publishes: its part of the files. None if there is no skill."""
    files = tuple(
        FileDigest(file.path.removeprefix(f"{inner}/"), file.digest, file.size)
        for file in outer.files
        if file.path.startswith(f"{inner}/")
    )
    if not any(file.path == SKILL_FILE for file in files):
        return None
    skill_file = folder / inner / SKILL_FILE
    frontmatter = read_frontmatter(read_plain(skill_file, _MOST_BYTES))
    return PublishedFiles(frontmatter, files, check_skill(skill_file, frontmatter, files))


def list_folder(folder: Path, inner: str) -> tuple[FolderEntry, ...]:
    """Return what is in a folder of a skill now, by name. InvalidArgs if it is none, or leads elsewhere."""
    names = inner.split("/") if inner else []
    top = os.path.realpath(folder)
    place = os.path.join(top, *names)  # noqa: PTH118  (a path of a client: compared before it is used)
    is_plain = not any(name in {"", ".", ".."} or name.startswith((".", "/")) or "\0" in name for name in names)
    if not is_plain or os.path.realpath(place) != place or not os.path.isdir(place):  # noqa: PTH112
        raise InvalidArgs(Message("{path!r} is no folder of the skill", path=inner[:200]))
    with os.scandir(place) as entries:
        found = [
            FolderEntry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if is_published(entry)
        ]
    return tuple(sorted(found))
