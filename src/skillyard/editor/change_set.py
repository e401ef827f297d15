"""What a run changed in a project that it saw copy-on-write, read from the upper layer of its overlay; merged layers.

In an upper layer a 0/0 character device marks a deletion, and a folder with the attribute `user.overlay.opaque`
replaces the one below. Everything else is what the run wrote. Nothing there tells of renames: a new file with the
bytes of a deleted one is taken for a renamed one.

Covered: files, folders and symbolic links, with their modes. Set-user-id bits are dropped.
Not covered: sockets, pipes and devices, which are named in `ChangeSet.skipped`; owners, extended attributes and hard
links.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

#: Bounds of one set; a run that changes more has failed.
MAX_BYTES, MAX_FILES = 1 << 30, 100_000
OPAQUE = "user.overlay.opaque"
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
    #: What cannot be applied: special files, links that lead out of the project, what nobody may read, and what
    #: lies at or above a closed path.
    skipped: tuple[str, ...] = ()


class LayerConflict(NamedTuple):
    """A path that two of the layers changed, by their positions."""

    path: str
    one: int
    other: int


class TooManyChangesError(Exception):
    """The run changed more than a change set may hold."""


def shown(path: str) -> str:
    """Return a path that can be printed."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def leads_out(depth: int, target: str, folder: Path) -> bool:
    """Whether a link so many folders below this one leads out of it, for all that its text tells.

    Upward steps stand first or not at all: after a name they start from wherever another link leads."""
    if target.startswith("/"):
        return not f"{target}/".startswith(f"{folder}/") or ".." in target.split("/")
    parts = [part for part in target.split("/") if part not in {"", "."}]
    ups = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    return ups > depth or ".." in parts[ups:]


def read_changes(upper: Path, project: Path, closed: Callable[[str], bool]) -> ChangeSet:
    """Return what the upper layer changes in the project as it is now.

    `closed` tells whether a relative path may not be changed, nor a folder that contains it be deleted."""
    reader = _Reader(upper, project, closed)
    changes = sorted(reader.read(), key=lambda change: change.path)
    return ChangeSet(tuple(_with_renames(changes, upper, project)), tuple(reader.skipped))


def is_too_large(upper: Path) -> bool:
    """Whether an upper layer already holds more than a change set may, while a run still writes it."""
    files = size = 0
    for folder, folders, names in os.walk(upper):
        files += len(folders) + len(names)
        for name in names:
            with suppress(OSError):  # removed since it was listed
                size += os.lstat(f"{folder}/{name}").st_size
        if files > MAX_FILES or size > MAX_BYTES:
            return True
    return False


class _Counter:
    """Counts the entries of a set. Raises TooManyChangesError beyond its bounds."""

    files = size = 0

    def count(self, size: int) -> None:
        self.files += 1
        self.size += size
        if self.files > MAX_FILES or self.size > MAX_BYTES:
            raise TooManyChangesError


class _Reader(_Counter):
    def __init__(self, upper: Path, project: Path, closed: Callable[[str], bool]) -> None:
        self._upper, self._project, self._closed = upper, project, closed
        self.skipped: list[str] = []

    def read(self, folder: str = "", *, merged: bool = True) -> Iterator[Change]:
        """Yield the changes in a folder; `merged` if the project has that folder and it shows through."""
        above = _list_names(self._upper / folder)
        if merged and folder and is_opaque(self._upper / folder):
            for name in sorted(set(_list_names(self._project / folder)).difference(above)):
                yield from self._deleted(f"{folder}/{name}")
        for name in above:
            path = f"{folder}/{name}" if folder else name
            if self._closed(path):
                self.skipped.append(path)
            else:
                yield from self._entry(path, merged=merged)

    def _entry(self, path: str, *, merged: bool) -> Iterator[Change]:
        new, old = os.lstat(self._upper / path), None
        if merged:
            with suppress(FileNotFoundError, NotADirectoryError):
                old = os.lstat(self._project / path)
        if stat.S_ISCHR(new.st_mode) and new.st_rdev == 0:
            yield from self._deleted(path) if old else ()
            return
        entry = _type_of(new)
        if entry is None or not self._is_usable(path, entry):
            self.skipped.append(path)
            return
        self.count(new.st_size if entry is EntryType.FILE else 0)
        if old and _type_of(old) is not entry:
            yield from self._deleted(path)
            old = None
        size, mode = 0 if entry is EntryType.FOLDER else new.st_size, new.st_mode & _MODE_BITS
        if old is None:
            yield Change(ChangeKind.ADDED, path, entry, size, mode)
        elif entry is not EntryType.FOLDER and not self._is_same(path, entry, new, old):
            yield Change(ChangeKind.MODIFIED, path, entry, size, mode)
        elif entry is not EntryType.LINK and mode != old.st_mode & _MODE_BITS:
            yield Change(ChangeKind.MODE, path, entry, size, mode)
        if entry is EntryType.FOLDER:
            yield from self.read(path, merged=old is not None)

    def _deleted(self, path: str) -> Iterator[Change]:
        place = self._project / path
        entry = _type_of(os.lstat(place))
        inside = os.walk(place) if entry is EntryType.FOLDER else ()
        start = len(str(place)) - len(path)
        names = (f"{folder}/{name}"[start:] for folder, folders, files in inside for name in (*folders, *files))
        if entry is None or self._closed(path) or any(map(self._closed, names)):
            self.skipped.append(path)
            return
        self.count(0)
        yield Change(ChangeKind.DELETED, path, entry)

    def _is_usable(self, path: str, entry: EntryType) -> bool:
        """Whether it can be copied: a link may lead out, and a run may take even its owner's rights away."""
        place = self._upper / path
        if entry is EntryType.LINK:
            return not leads_out(path.count("/"), str(place.readlink()), self._project)
        return os.access(place, os.R_OK | (os.X_OK if entry is EntryType.FOLDER else 0))

    def _is_same(self, path: str, entry: EntryType, new: os.stat_result, old: os.stat_result) -> bool:
        if entry is EntryType.LINK:
            return (self._upper / path).readlink() == (self._project / path).readlink()
        return new.st_size == old.st_size and _are_equal(self._upper / path, self._project / path)


def _list_names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208  (names alone)


def _type_of(status: os.stat_result) -> EntryType | None:
    types = {stat.S_IFREG: EntryType.FILE, stat.S_IFDIR: EntryType.FOLDER, stat.S_IFLNK: EntryType.LINK}
    return types.get(stat.S_IFMT(status.st_mode))


def is_opaque(folder: Path) -> bool:
    with suppress(OSError):
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) == b"y"
    return False


def _with_renames(changes: Sequence[Change], upper: Path, project: Path) -> Iterator[Change]:
    """Join a deleted file with an added one of the same bytes."""
    gone: dict[int, list[str]] = {}
    for change in changes:
        if change.kind is ChangeKind.DELETED and change.entry is EntryType.FILE:
            gone.setdefault((project / change.path).lstat().st_size, []).append(change.path)
    joined, sources = list[Change](), set[str]()
    for change in changes:
        is_new_file = change.kind is ChangeKind.ADDED and change.entry is EntryType.FILE and change.size
        candidates = gone.get(change.size, []) if is_new_file else []
        same = (old for old in candidates if _are_equal(upper / change.path, project / old))
        if old := next(same, ""):
            candidates.remove(old)
            sources.add(old)
        joined.append(change._replace(kind=ChangeKind.RENAMED, old_path=old) if old else change)
    return (each for each in joined if each.kind is not ChangeKind.DELETED or each.path not in sources)


# -- the differences as text


def diff(change: Change, upper: Path, project: Path) -> str:
    """Return a unified diff of one change; for what is no text, a line that says so."""
    name, is_new, is_gone = shown(change.path), change.kind is ChangeKind.ADDED, change.kind is ChangeKind.DELETED
    if change.kind is ChangeKind.MODE:
        return f"mode of {name} → {change.mode:o}\n"
    if change.entry is not EntryType.FILE:
        return f"{change.kind} {change.entry} {name}\n"
    if change.kind is ChangeKind.RENAMED:
        return f"renamed {shown(change.old_path)} → {name}\n"
    old = b"" if is_new else _bytes_of(project / change.path)
    new = b"" if is_gone else _bytes_of(upper / change.path)
    if old is None or new is None or b"\0" in old or b"\0" in new:
        return f"binary file {name} {change.kind} ({change.size} bytes)\n"
    old_lines, new_lines = (text.decode("utf-8", "replace").splitlines(keepends=True) for text in (old, new))
    return unified(old_lines, new_lines, "" if is_new else name, "" if is_gone else name)


def unified(old: list[str], new: list[str], old_name: str, new_name: str) -> str:
    """Return a unified diff of lines; an empty name means that there is no such file."""
    import difflib  # noqa: PLC0415  (every run imports this module, and hardly one shows a diff)

    names = (f"a/{old_name}" if old_name else "/dev/null", f"b/{new_name}" if new_name else "/dev/null")
    lines = difflib.unified_diff(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _bytes_of(path: Path) -> bytes | None:
    """Return the content of a regular file, None if it is too long to compare by lines."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        content = file.read(_DIFF_BYTES + 1)
    return None if len(content) > _DIFF_BYTES else content


# -- several layers


def merge_layers(uppers: Sequence[Path], before: Path | None, project: Path, target: Path) -> list[LayerConflict]:
    """Fill `target`, an empty folder, with the layers `uppers`, which do not see each other, over the layer `before`.

    The uppers are of runs that started side by side from `before`, so two of them may not touch the same path. Return
    the paths that two of them changed; `target` is of no use then. Raise TooManyChangesError for too much."""
    merger = _Merger(uppers, project, target)
    merger.merge("", tuple(range(len(uppers))), before, below=True)
    return merger.conflicts


class _Merger(_Counter):
    """A folder may be filled by several layers; overlayfs marks every new folder as opaque, so the mark counts only
    where there is a folder below that it hides. Files are linked: nobody writes a layer once its run has ended."""

    def __init__(self, uppers: Sequence[Path], project: Path, target: Path) -> None:
        self._uppers, self._project, self._target = uppers, project, target
        self.conflicts: list[LayerConflict] = []

    def merge(self, folder: str, numbers: Sequence[int], before: Path | None, *, below: bool) -> None:
        """Merge a folder that these uppers have. `before` is the earlier layer where it shows through, `below` tells
        whether the project does."""
        layers = [*(self._uppers[number] for number in numbers), *([before] if before else [])]
        for name in sorted({name for layer in layers for name in _list_names(layer / folder)}):
            path = f"{folder}/{name}" if folder else name
            having = [number for number in numbers if os.path.lexists(self._uppers[number] / path)]
            tops = [self._uppers[number] / path for number in having] or [layers[-1] / path]
            if all(map(_is_folder, tops)):
                self._folder(path, tops[0], having, before, below=below)
            elif all(_are_same(tops[0], top) for top in tops[1:]):
                self.count(tops[0].lstat().st_size)
                os.link(tops[0], self._target / path, follow_symlinks=False)
            else:
                self.conflicts.append(LayerConflict(path, *having[:2]))

    def _folder(self, path: str, top: Path, having: Sequence[int], before: Path | None, *, below: bool) -> None:
        old = before / path if before and os.path.lexists(before / path) else None
        merges = old is not None and _is_folder(old)
        hides = old is not None and (not merges or is_opaque(old))
        shows = below and not hides and _is_folder(self._project / path)
        replaced = (merges or shows) and any(is_opaque(self._uppers[number] / path) for number in having)
        if replaced and len(having) > 1:
            self.conflicts.append(LayerConflict(path, *having[:2]))
            return
        target = self._target / path
        target.mkdir(0o700)
        self.count(0)
        self.merge(path, having, before if merges and not replaced else None, below=shows and not replaced)
        if replaced or hides:
            os.setxattr(target, OPAQUE, b"y")
        target.chmod(stat.S_IMODE(top.lstat().st_mode))


def _are_equal(one: Path, other: Path) -> bool:
    import filecmp  # noqa: PLC0415  (most runs change nothing)

    return filecmp.cmp(one, other, shallow=False)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _are_same(one: Path, other: Path) -> bool:
    """Whether two layers say the same of a path: a deletion, or a file with the same mode and bytes."""
    old, new = one.lstat(), other.lstat()
    if (old.st_mode, old.st_rdev) != (new.st_mode, new.st_rdev):
        return False
    return stat.S_ISCHR(old.st_mode) or (stat.S_ISREG(old.st_mode) and _are_equal(one, other))
