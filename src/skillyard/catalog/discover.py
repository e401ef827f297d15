"""Finds skill folders below a root: by listing where a folder changed, by stat alone where it did not."""

import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from skillyard.catalog.plainfile import is_utf8

#: (mtime, ctime, size, inode): a file or folder with the same stamp was not touched.
Stamp: TypeAlias = tuple[int, int, int, int]

MAX_DEPTH = 6
MAX_SKILLS = 100_000
IGNORED = frozenset({"PaxHeader", "__MACOSX", ".git", "node_modules", "__pycache__", ".venv"})
SKILL_FILE = "SKILL.md"
#: A larger SKILL.md is refused, and read no further than to see that.
MAX_FILE_BYTES = 2 * 1024 * 1024
#: A stamp this fresh could hide a second change within the same tick of the clock.
_RACY_NANOSECONDS = 100_000_000


class Folder(NamedTuple):
    """What is known of a folder on the way down: its skill file, or the names of the folders inside it."""

    stamp: Stamp
    skill_file: str = ""
    children: tuple[str, ...] = ()


class Survey:
    """What a walk found: skill files with their stamps, the folders between, and what it left out."""

    def __init__(self) -> None:
        self.skills: dict[str, Stamp] = {}
        self.folders: dict[str, Folder] = {}
        self.left_out: list[str] = []


def stamp_of(path: str) -> Stamp | None:
    """None where there is nothing to read."""
    try:
        found = os.stat(path)  # noqa: PTH116  (ten thousand times a scan: no Path objects)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def is_settled(stamp: Stamp, now_ns: int) -> bool:
    """Whether a later change is sure to show in the stamp."""
    return now_ns - max(stamp[0], stamp[1]) > _RACY_NANOSECONDS


def survey(root: Path, folders: Mapping[str, Folder], files: Container[str], now_ns: int) -> Survey:
    """Walk below `root`. A folder whose stamp is known and settled is not listed again, and neither is that of a
    known skill file: whatever else changed in it, the file itself is looked at."""
    found = Survey()
    queue: list[tuple[str, tuple[int, ...]]] = [(str(root), ())]
    while queue:
        path, above = queue.pop()
        skill_file = f"{path}/{SKILL_FILE}"
        if skill_file in files and (stamp := stamp_of(skill_file)):
            found.skills[skill_file] = stamp
            continue
        folder = _look(path, above, folders.get(path), now_ns)
        if folder is None:
            continue
        if len(found.skills) >= MAX_SKILLS or (len(above) >= MAX_DEPTH and folder.children):
            found.left_out.append(path)
        elif folder.skill_file and (stamp := stamp_of(folder.skill_file)):
            found.skills[folder.skill_file] = stamp
        else:
            found.folders[path] = folder
            inside = (*above, folder.stamp[3])
            queue += [(f"{path}/{child}", inside) for child in folder.children]
    return found


def _look(path: str, above: tuple[int, ...], known: Folder | None, now_ns: int) -> Folder | None:
    stamp = stamp_of(path)
    if stamp is None or stamp[3] in above:
        return None  # gone, or a link that leads back up
    if known and known.stamp == stamp and is_settled(stamp, now_ns):
        return known
    return _listed(path, stamp, is_root=not above)


def _listed(path: str, stamp: Stamp, *, is_root: bool) -> Folder | None:
    try:
        entries = list(os.scandir(path))
    except OSError:
        return None
    skill_file = "" if is_root else _skill_file(entries)
    if skill_file:
        return Folder(stamp=stamp, skill_file=skill_file)
    return Folder(stamp=stamp, children=tuple(sorted(_child_folders(entries), reverse=True)))


def _skill_file(entries: list[os.DirEntry[str]]) -> str:
    """SKILL.md as the standard spells it, else in whatever case somebody wrote it."""
    exact = next((entry.path for entry in entries if entry.name == SKILL_FILE), "")
    return exact or next((entry.path for entry in entries if entry.name.lower() == SKILL_FILE.lower()), "")


def _child_folders(entries: list[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        if entry.name in IGNORED or entry.name.startswith("._") or not is_utf8(entry.name):
            continue
        try:
            if entry.is_dir():
                yield entry.name
        except OSError:
            continue  # a link that leads nowhere, or in a circle
