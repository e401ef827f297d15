"""What a run left in a folder that it could write: its files, links that lead out of the folder, setuid bits.

One walk through descriptors, which follows no link and has no limit in depth or number: whoever writes ten thousand
files does not hide the next one. Links that lead out are removed and the bits are cleared, because whoever works in the
folder later (the person, another run, we) would follow the one and could start the other.

A link that leads to a file of the system stays: a virtual environment needs its interpreter. Not covered: hard links,
which the sandbox refuses to make across its mounts.

`Cleanup` does it after every run, without a sandbox too: later runs, and the person, rely on mybox/.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from skillyard.editor.change_set import leads_out

#: The project's folder that every run may write.
BOX = "mybox"
#: By path: time of change, size, inode.
Snapshot: TypeAlias = dict[str, tuple[int, int, int]]
#: Links that lead out, with their targets, and files with the bits that were there before the run: a person's own.
PriorState: TypeAlias = frozenset[tuple[str, str]]
#: Files whose state before and after is compared; a folder with more is not compared at all.
MOST_FILES = 10_000
#: Of each kind, told in a result, and characters of each.
MOST_TOLD, _MOST_CHARACTERS = 20, 400
#: Files further down are no outputs that anybody wants to be told of.
_MOST_DEPTH = 64
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/nix/store/")
_SETUID = stat.S_ISUID | stat.S_ISGID
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: macOS has none.
_O_PATH: Final[int] = getattr(os, "O_PATH", 0)
_MOST_OPEN, _MOST_TRIES = 64, 3


class Leftovers(NamedTuple):
    """`removed_links` and `cleared_setuid` are paths for a result, `files` the plain files by their full path."""

    files: Snapshot
    removed_links: tuple[str, ...] = ()
    cleared_setuid: tuple[str, ...] = ()


class WalkEntry(NamedTuple):
    """Something that is no folder, in a folder that is open."""

    handle: int
    name: str
    status: os.stat_result
    #: The folders on the way from where the walk began.
    folders: Sequence[str] = ()

    @property
    def path(self) -> str:
        """Only where it is needed: a run can nest folders so deep that the paths of all would fill the memory."""
        return "/".join((*self.folders, self.name))

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_output(self) -> bool:
        return stat.S_ISREG(self.status.st_mode) and len(self.folders) <= _MOST_DEPTH

    @property
    def has_bits(self) -> bool:
        return stat.S_ISREG(self.status.st_mode) and bool(self.status.st_mode & _SETUID)


class MovedError(Exception):
    """A folder was moved by somebody else during the walk."""


def snapshot_of(folder: Path) -> Snapshot:
    """Every plain file with its stamp; none at all if there are too many."""
    found: Snapshot = {}
    with suppress(OSError, MovedError):
        for entry in _entries(folder):
            if entry.is_output:
                found[f"{folder}/{entry.path}"] = stamp_of(entry.status)
            if len(found) > MOST_FILES:
                return {}
    return found


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def clean(folder: Path, shown_as: str, known: PriorState = frozenset()) -> Leftovers:
    """Remove the links that lead out of the folder and clear setuid bits. `known` are left alone."""
    links, cleared = _ToldPaths(shown_as), _ToldPaths(shown_as)
    files: Snapshot = {}
    for _ in range(_MOST_TRIES):
        files = {}
        try:
            for entry in _entries(folder):
                if entry.is_link:
                    if target := _without_link(entry, folder, known):
                        links.add(f"{entry.path} -> {target}")
                elif entry.has_bits and (entry.path, "") not in known and _clear(entry):
                    cleared.add(entry.path)
                if entry.is_output and len(files) <= MOST_FILES:
                    files[f"{folder}/{entry.path}"] = stamp_of(entry.status)
            break
        except MovedError:
            continue  # another run works in here; its own end cleans what it leaves
        except OSError:
            break  # the folder is gone, or is itself a link: the next run refuses it
    return Leftovers(files if len(files) <= MOST_FILES else {}, links.paths(), cleared.paths())


def _without_link(entry: WalkEntry, folder: Path, known: PriorState) -> str:
    """Remove the link if it leads out, and return its target; an empty text if it stays."""
    try:
        target = os.readlink(entry.name, dir_fd=entry.handle)
        is_known = bool(known) and (entry.path, target) in known
        if is_known or not leads_out(len(entry.folders), target, folder) or _is_system(target):
            return ""
        try:
            os.unlink(entry.name, dir_fd=entry.handle)
        except PermissionError:  # the run made the folder read-only around it
            _make_usable(entry.handle)
            os.unlink(entry.name, dir_fd=entry.handle)
    except OSError:
        return ""  # gone, or in somebody else's folder
    return target


def _make_usable(folder: int) -> None:
    os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)


def _is_system(target: str) -> bool:
    """Whether a link leads to a file of the system, such as an interpreter."""
    if not target.startswith(_SYSTEM) or ".." in target.split("/"):
        return False
    try:
        real = Path(target).resolve(strict=True)
        return str(real).startswith(_SYSTEM) and real.is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def _clear(entry: WalkEntry) -> bool:
    mode = stat.S_IMODE(entry.status.st_mode) & ~_SETUID
    try:
        if not _O_PATH:
            os.chmod(entry.name, mode, dir_fd=entry.handle, follow_symlinks=False)
        else:
            with _pinned(entry.handle, entry.name, entry.status) as place:
                place.chmod(mode)
    except (OSError, NotImplementedError):
        return False  # somebody else's file, which the run could not have changed, or another one by now
    return True


@contextmanager
def _pinned(parent: int, name: str, status: os.stat_result) -> Iterator[Path]:
    """A path to exactly the file or folder that was looked at. OSError if another one has its name now."""
    handle = os.open(name, _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(handle).st_ino != status.st_ino:
            raise FileNotFoundError(name)
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


class _Level:
    """A folder on the way from the top to where the walk is. Its descriptor may be closed and opened again."""

    def __init__(self, handle: int) -> None:
        self.handle, self.identity = handle, _identity(handle)
        self.is_open = True
        self.folders: list[str] = []

    def close(self) -> None:
        if self.is_open:
            os.close(self.handle)
            self.is_open = False

    def reopen(self, child: int) -> None:
        """Open the folder again through its child, so that no path is ever too long."""
        if not self.is_open:
            self.handle, self.is_open = os.open("..", _FOLDER, dir_fd=child), True
            if _identity(self.handle) != self.identity:
                raise MovedError


def _identity(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino


def _entries(top: Path) -> Iterator[WalkEntry]:
    """Everything below the folder that is no folder itself, in no order that matters. OSError if the top is none."""
    levels = [_Level(os.open(top, _FOLDER))]
    names: list[str] = []
    try:
        yield from _scan(levels[0], names)
        while levels:
            here = levels[-1]
            if here.folders:
                name = here.folders.pop()
                handle = _open_inner(here.handle, name)
                if handle is not None:
                    levels.append(_Level(handle))
                    names.append(name)
                    if len(levels) > _MOST_OPEN:
                        levels[-_MOST_OPEN].close()
                    yield from _scan(levels[-1], names)
                continue
            if names:
                levels[-2].reopen(here.handle)
                names.pop()
            levels.pop().close()
    finally:
        for level in levels:
            level.close()


def _open_inner(parent: int, name: str) -> int | None:
    """Open a folder, also one whose permissions exclude even its owner; None if it is gone or another user's."""
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        pass
    except OSError:
        return None
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or not _O_PATH:
            return None
        with _pinned(parent, name, status) as place:
            place.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
            return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _scan(level: _Level, names: list[str]) -> Iterator[WalkEntry]:
    """The entries of one folder; the folders among them are noted for later."""
    handle = level.handle
    if not os.fstat(handle).st_mode & stat.S_IXUSR:
        with suppress(OSError):  # listed, but closed: without this no entry could be looked at
            _make_usable(handle)
    with os.scandir(handle) as found:
        inside = [entry.name for entry in found]
    for name in inside:
        try:
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            level.folders.append(name)
        else:
            yield WalkEntry(handle, name, status, names)


class _ToldPaths:
    """Paths for a result: the first ones as text, the rest only counted, because a run can make any number of them."""

    def __init__(self, shown_as: str) -> None:
        self._shown_as, self._first, self._more = shown_as, list[str](), 0

    def add(self, path: str) -> None:
        if len(self._first) < MOST_TOLD:
            self._first.append(_as_text(f"{self._shown_as}/{path}"))
        else:
            self._more += 1

    def paths(self) -> tuple[str, ...]:
        return (*sorted(self._first), *((f"… {self._more} more",) if self._more else ()))


def _as_text(path: str) -> str:
    """Return a path for a result: escaped if it is not UTF-8, cut if it is long."""
    text = path.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


class Cleanup:
    """Cleans up after one run. mybox/ belongs to the runs; in other places what was there before stays."""

    def __init__(self, root: Path, write: Sequence[Path] = ()) -> None:
        """`write`: the resolved paths that the run may write."""
        self._root = root.resolve()
        self._elsewhere = [path for path in write if not path.is_relative_to(self._root / BOX)]
        self._known: dict[Path, PriorState] = {}

    def before(self) -> None:
        self._known = {place: _find_known(place) for place in self._elsewhere if place.is_dir()}

    def after(self) -> Leftovers:
        box = clean(self._root / BOX, BOX)
        for place in self._elsewhere:
            shown = place.relative_to(self._root).as_posix() if place.is_relative_to(self._root) else str(place)
            is_folder = place in self._known
            more = clean(place, shown, self._known[place]) if is_folder else _clean_file(place, shown)
            links, cleared = box.removed_links + more.removed_links, box.cleared_setuid + more.cleared_setuid
            box = Leftovers(box.files, links, cleared)
        return box


def _find_known(folder: Path) -> PriorState:
    """Return what in a person's own folder is not the run's doing."""
    known = set[tuple[str, str]]()
    with suppress(OSError, MovedError):
        for entry in _entries(folder):
            if entry.is_link or entry.has_bits:
                target = os.readlink(entry.name, dir_fd=entry.handle) if entry.is_link else ""
                known.add((entry.path, target))
    return frozenset(known)


def _clean_file(file: Path, shown_as: str) -> Leftovers:
    """Clear the setuid bits of one file that a run was given as its output."""
    with suppress(OSError):
        handle = os.open(file.parent, _FOLDER)
        try:
            entry = WalkEntry(handle, file.name, os.stat(file.name, dir_fd=handle, follow_symlinks=False))
            if entry.has_bits and _clear(entry):
                return Leftovers({}, (), (_as_text(shown_as),))
        finally:
            os.close(handle)
    return Leftovers({})
