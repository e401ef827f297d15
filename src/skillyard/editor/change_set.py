"""What a run changed in a project that it saw copy-on-write, read from the upper layer of its overlay.

In an upper layer a 0/0 character device marks a deletion, and a folder with the attribute `user.overlay.opaque`
replaces the one below. Everything else is what the run wrote. Nothing there tells of renames: a new file with the
bytes of a deleted one is taken for a renamed one.

Covered: files, folders and symbolic links, with their modes. Set-user-id bits are dropped.
Not covered: sockets, pipes and devices, which are named in `ChangeSet.skipped`; owners, extended attributes and hard
links.
"""

import difflib
import filecmp
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

#: Bounds of one set; a run that changes more has failed.
MAX_BYTES, MAX_FILES = 1 << 30, 100_000
_OPAQUE = "user.overlay.opaque"
_MODE_BITS = 0o777
_DIFF_BYTES = 1 << 20


class ChangeKind(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    MODE = "mode"


class EntryType(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


class Change(NamedTuple):
    """One change, at a path relative to the project. `size` and `mode` are the new ones, 0 for a deletion."""

    kind: ChangeKind
    path: str
    entry: EntryType = EntryType.FILE
    size: int = 0
    mode: int = 0
    #: Where a renamed file was.
    old_path: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that mean something; names that are not UTF-8 are escaped."""
        fields: dict[str, Any] = {"kind": str(self.kind), "path": shown(self.path)}
        if self.old_path:
            fields["old_path"] = shown(self.old_path)
        if self.entry is not EntryType.FILE:
            fields["type"] = str(self.entry)
        if self.kind is not ChangeKind.DELETED:
            fields |= {"size": self.size, "mode": f"{self.mode:o}"}
        return fields


class ChangeSet(NamedTuple):
    changes: tuple[Change, ...] = ()
    #: Paths of what cannot be applied: special files, and what lies at or above a closed path.
    skipped: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(change.size for change in self.changes)


class TooManyChangesError(Exception):
    """The run changed more than a change set may hold."""


def shown(path: str) -> str:
    """Return a path that can be printed."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_changes(upper: Path, project: Path, closed: Callable[[str], bool]) -> ChangeSet:
    """Return what the upper layer changes in the project as it is now.

    `closed` tells whether a relative path may not be changed, nor a folder that contains it be deleted.
    """
    reader = _Reader(upper, project, closed)
    changes = reader.read()
    return ChangeSet(tuple(_with_renames(changes, upper, project)), tuple(reader.skipped))


class _Reader:
    def __init__(self, upper: Path, project: Path, closed: Callable[[str], bool]) -> None:
        self._upper, self._project, self._closed = upper, project, closed
        self.skipped: list[str] = []
        self._files = self._bytes = 0

    def read(self) -> list[Change]:
        return sorted(self._folder("", merged=True), key=lambda change: change.path)

    def _folder(self, folder: str, *, merged: bool) -> Iterator[Change]:
        """Yield the changes in a folder; `merged` if the project has that folder and it shows through."""
        above = _names(self._upper / folder)
        if merged and folder and _is_opaque(self._upper / folder):
            names = set(above)
            for name in _names(self._project / folder):
                if name not in names:
                    yield from self._deleted(f"{folder}/{name}", self._project / folder / name)
        for name in above:
            path = f"{folder}/{name}" if folder else name
            if self._closed(path):
                self.skipped.append(path)
            else:
                yield from self._entry(path, merged=merged)

    def _entry(self, path: str, *, merged: bool) -> Iterator[Change]:
        new = os.lstat(self._upper / path)
        old = _lstat(self._project / path) if merged else None
        if stat.S_ISCHR(new.st_mode) and new.st_rdev == 0:
            yield from self._deleted(path, self._project / path) if old else ()
            return
        entry = _type_of(new)
        if entry is None:
            self.skipped.append(path)
            return
        self._count(new.st_size if entry is EntryType.FILE else 0)
        mode = stat.S_IMODE(new.st_mode) & _MODE_BITS
        if old and _type_of(old) is not entry:
            yield from self._deleted(path, self._project / path)
            old = None
        if entry is EntryType.FOLDER:
            if old is None:
                yield Change(ChangeKind.ADDED, path, entry, 0, mode)
            elif mode != stat.S_IMODE(old.st_mode) & _MODE_BITS:
                yield Change(ChangeKind.MODE, path, entry, 0, mode)
            yield from self._folder(path, merged=old is not None)
        elif old is None:
            yield Change(ChangeKind.ADDED, path, entry, new.st_size, mode)
        elif not self._same(path, entry, new, old):
            yield Change(ChangeKind.MODIFIED, path, entry, new.st_size, mode)
        elif entry is EntryType.FILE and mode != stat.S_IMODE(old.st_mode) & _MODE_BITS:
            yield Change(ChangeKind.MODE, path, entry, new.st_size, mode)

    def _deleted(self, path: str, place: Path) -> Iterator[Change]:
        entry = _type_of(os.lstat(place))
        if entry is None or self._closed(path) or (entry is EntryType.FOLDER and self._holds_closed(path, place)):
            self.skipped.append(path)
            return
        self._count(0)
        yield Change(ChangeKind.DELETED, path, entry)

    def _holds_closed(self, path: str, place: Path) -> bool:
        start = len(str(place)) - len(path)
        return any(
            self._closed(f"{folder}/{name}"[start:])
            for folder, folders, files in os.walk(place)
            for name in (*folders, *files)
        )

    def _same(self, path: str, entry: EntryType, new: os.stat_result, old: os.stat_result) -> bool:
        if entry is EntryType.LINK:
            return (self._upper / path).readlink() == (self._project / path).readlink()
        return new.st_size == old.st_size and filecmp.cmp(self._upper / path, self._project / path, shallow=False)

    def _count(self, size: int) -> None:
        self._files += 1
        self._bytes += size
        if self._files > MAX_FILES or self._bytes > MAX_BYTES:
            raise TooManyChangesError


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _type_of(status: os.stat_result) -> EntryType | None:
    if stat.S_ISREG(status.st_mode):
        return EntryType.FILE
    if stat.S_ISDIR(status.st_mode):
        return EntryType.FOLDER
    return EntryType.LINK if stat.S_ISLNK(status.st_mode) else None


def _is_opaque(folder: Path) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _with_renames(changes: Sequence[Change], upper: Path, project: Path) -> Iterator[Change]:
    """Join a deleted file with an added one of the same bytes."""
    gone: dict[int, list[str]] = {}
    for change in changes:
        if change.kind is ChangeKind.DELETED and change.entry is EntryType.FILE:
            gone.setdefault((project / change.path).lstat().st_size, []).append(change.path)
    renamed: dict[str, str] = {}
    for change in changes:
        if change.kind is ChangeKind.ADDED and change.entry is EntryType.FILE and change.size:
            for path in gone.get(change.size, ()):
                if filecmp.cmp(upper / change.path, project / path, shallow=False):
                    renamed[change.path] = path
                    gone[change.size].remove(path)
                    break
    sources = set(renamed.values())
    for change in changes:
        if change.path in renamed:
            yield change._replace(kind=ChangeKind.RENAMED, old_path=renamed[change.path])
        elif change.kind is not ChangeKind.DELETED or change.path not in sources:
            yield change


def diff(change: Change, upper: Path, project: Path) -> str:
    """Return a unified diff of one change; for what is no text, a line that says so."""
    old_name, new_name = shown(change.old_path or change.path), shown(change.path)
    if change.kind is ChangeKind.MODE:
        return f"mode of {new_name} → {change.mode:o}\n"
    if change.entry is not EntryType.FILE:
        return f"{change.kind} {change.entry} {new_name}\n"
    if change.kind is ChangeKind.RENAMED:
        return f"renamed {old_name} → {new_name}\n"
    old = b"" if change.kind is ChangeKind.ADDED else _bytes_of(project / change.path)
    new = b"" if change.kind is ChangeKind.DELETED else _bytes_of(upper / change.path)
    if old is None or new is None or b"\0" in old or b"\0" in new:
        return f"binary file {new_name} {change.kind} ({change.size} bytes)\n"
    lines = difflib.unified_diff(
        _lines(old),
        _lines(new),
        "/dev/null" if change.kind is ChangeKind.ADDED else f"a/{old_name}",
        "/dev/null" if change.kind is ChangeKind.DELETED else f"b/{new_name}",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _bytes_of(path: Path) -> bytes | None:
    """Return the content of a regular file, None if it is too long to compare by lines."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        content = file.read(_DIFF_BYTES + 1)
    return None if len(content) > _DIFF_BYTES else content


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").splitlines(keepends=True)
