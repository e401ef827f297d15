"""A skill's folder as files with their digests; copied only if all of them may come from outside."""

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias

from skillyard.catalog.files import is_repository, is_utf8
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import SourceRefused
from skillyard.core.messages import Message
from skillyard.install.names import as_safe_path, check_apart, check_link, shown
from skillyard.install.source import LIMITS, Limits

#: Never installed: they come and go without the skill being another.
IGNORED = frozenset({"__pycache__", ".git", ".DS_Store"})

#: What each file holds, by its path: "sha256:…", "program:sha256:…" or "link:target".
FileDigests: TypeAlias = Mapping[str, str]


class _File(NamedTuple):
    path: PurePosixPath
    status: os.stat_result


def find_skill_file(folder: Path) -> Path | None:
    """SKILL.md, in the standard's spelling if it is there, else in any case; never a link."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    found = [name for name in names if name.lower() == SKILL_FILE.lower()]
    return folder / (SKILL_FILE if SKILL_FILE in found else found[0]) if found else None


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of every file below the folder, in the order of their paths."""
    return {str(file.path): _mark(folder / file.path, file.status) for file in _files(folder)}


def tree_hash(marks: FileDigests) -> str:
    """One hash over all paths and digests."""
    digest = hashlib.sha256()
    for path, mark in sorted(marks.items()):
        for part in (path, mark):
            content = part.encode("utf-8", "surrogateescape")
            digest.update(len(content).to_bytes(8, "big") + content)
    return f"sha256:{digest.hexdigest()}"


def check_tree(source: Path, limits: Limits = LIMITS) -> None:
    """SourceRefused if a folder holds links that leave it, devices, odd names, or too much."""
    files = _files(source)
    limits.check(len(files), sum(file.status.st_size for file in files))
    for file in files:
        if not is_utf8(str(file.path)):
            raise SourceRefused(Message("{path} is not UTF-8", path=shown(str(file.path))))
    check_apart([as_safe_path(str(file.path)) for file in files])
    for file in files:
        if stat.S_ISLNK(file.status.st_mode):
            check_link(file.path, str((source / file.path).readlink()))
        elif not stat.S_ISREG(file.status.st_mode):
            raise SourceRefused(Message("{path} is a device or a pipe", path=shown(str(file.path))))


def copy_checked(source: Path, target: Path) -> None:
    """Check a folder, then copy it. Modes become 644 and 755: no setuid, no folder that cannot be deleted."""
    check_tree(source)
    target.mkdir(parents=True)
    for file in _files(source):
        copy_file(source / file.path, target / file.path)


def copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(source, flags), "rb") as content, target.open("xb") as file:
        shutil.copyfileobj(content, file)
        mode = os.fstat(content.fileno()).st_mode
    target.chmod(0o755 if mode & 0o111 else 0o644)


def _files(folder: Path) -> list[_File]:
    """Files and links, sorted; folders count only by what is in them."""
    found: list[_File] = []
    queue = [""]
    while queue:
        inner = queue.pop()
        with os.scandir(folder / inner) as entries:
            for entry in entries:
                if entry.name in IGNORED or is_repository(entry.name):
                    continue
                path = f"{inner}/{entry.name}" if inner else entry.name
                if entry.is_dir(follow_symlinks=False):
                    queue.append(path)
                else:
                    found.append(_File(PurePosixPath(path), entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda file: str(file.path))


def _mark(path: Path, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return f"link:{path.readlink()}"
    if not stat.S_ISREG(status.st_mode):
        return "other:"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{'program:' if status.st_mode & 0o111 else ''}sha256:{digest}"


class Drift(NamedTuple):
    """How a folder differs from its digests."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.changed or self.missing or self.added)


def drift_between(wanted: FileDigests, found: FileDigests) -> Drift:
    return Drift(
        changed=tuple(sorted(path for path in wanted.keys() & found.keys() if wanted[path] != found[path])),
        missing=tuple(sorted(wanted.keys() - found.keys())),
        added=tuple(sorted(found.keys() - wanted.keys())),
    )
