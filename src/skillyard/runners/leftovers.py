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
from typing import NamedTuple, TypeAlias

#: The project's folder that every run may write.
BOX = "mybox"
Snapshot: TypeAlias = dict[str, tuple[int, int, int]]
#: Files whose state before and after is compared; a folder with more is not compared at all.
MOST_FILES = 10_000
#: Of each kind, told in a result, and characters of each.
MOST_TOLD, _MOST_CHARACTERS = 20, 400
#: Files further down are no outputs that anybody wants to be told of.
_MOST_DEPTH = 64
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/nix/store/")
_SETUID = stat.S_ISUID | stat.S_ISGID
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PLACE = getattr(os, "O_PATH", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_MOST_OPEN = 64
_MOST_TRIES = 3


class PriorState(NamedTuple):
    """Links that lead out and files with the bits that were there before the run: a person's own."""

    links: frozenset[tuple[str, str]] = frozenset()
    files: frozenset[str] = frozenset()


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


class MovedError(Exception):
    """A folder was moved by somebody else during the walk."""


def snapshot_of(folder: Path) -> Snapshot:
    """Every plain file with its stamp; none at all if there are too many."""
    found: Snapshot = {}
    with suppress(OSError, MovedError):
        for entry in _entries(folder):
            if stat.S_ISREG(entry.status.st_mode) and len(entry.folders) <= _MOST_DEPTH:
                found[f"{folder}/{entry.path}"] = stamp_of(entry.status)
                if len(found) > MOST_FILES:
                    return {}
    return found


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def find_known(folder: Path) -> PriorState:
    """What in a person's own folder is not the run's doing."""
    links: set[tuple[str, str]] = set()
    files: set[str] = set()
    with suppress(OSError, MovedError):
        for entry in _entries(folder):
            if stat.S_ISLNK(entry.status.st_mode):
                links.add((entry.path, os.readlink(entry.name, dir_fd=entry.handle)))
            elif _has_bits(entry.status):
                files.add(entry.path)
    return PriorState(frozenset(links), frozenset(files))


def clean(folder: Path, shown_as: str, known: PriorState | None = None) -> Leftovers:
    """Remove the links that lead out of the folder and clear setuid bits. `known` are left alone."""
    known = known or PriorState()
    links, cleared = _ToldPaths(shown_as), _ToldPaths(shown_as)
    files: Snapshot = {}
    for _ in range(_MOST_TRIES):
        files = {}
        try:
            for entry in _entries(folder):
                if stat.S_ISLNK(entry.status.st_mode):
                    if target := _without_link(entry, folder, known):
                        links.add(f"{entry.path} -> {target}")
                elif _has_bits(entry.status) and entry.path not in known.files and _clear(entry):
                    cleared.add(entry.path)
                is_file = stat.S_ISREG(entry.status.st_mode) and len(entry.folders) <= _MOST_DEPTH
                if is_file and len(files) <= MOST_FILES:
                    files[f"{folder}/{entry.path}"] = stamp_of(entry.status)
            break
        except MovedError:
            continue  # another run works in here; its own end cleans what it leaves
        except OSError:
            break  # the folder is gone, or is itself a link: the next run refuses it
    return Leftovers(files if len(files) <= MOST_FILES else {}, links.paths(), cleared.paths())


def _clean_file(file: Path, shown_as: str) -> tuple[str, ...]:
    """Clear the setuid bits of one file that a run was given as its output."""
    with suppress(OSError):
        handle = os.open(file.parent, _FOLDER)
        try:
            entry = WalkEntry(handle, file.name, os.stat(file.name, dir_fd=handle, follow_symlinks=False))
            if _has_bits(entry.status) and _clear(entry):
                return (_as_text(shown_as),)
        finally:
            os.close(handle)
    return ()


def leads_out(depth: int, target: str, folder: Path) -> bool:
    """Whether a link so many folders below this one leads out of it, for all that its text tells.

    Upward steps stand first or not at all: after a name they start from wherever another link leads.
    """
    if target.startswith("/"):
        return not f"{target}/".startswith(f"{folder}/") or ".." in target.split("/")
    parts = [part for part in target.split("/") if part not in {"", "."}]
    ups = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    return ups > depth or ".." in parts[ups:]


def _without_link(entry: WalkEntry, folder: Path, known: PriorState) -> str:
    """Remove the link if it leads out, and return its target; an empty text if it stays."""
    try:
        target = os.readlink(entry.name, dir_fd=entry.handle)
        if not leads_out(len(entry.folders), target, folder) or _is_system(target):
            return ""
        if known.links and (entry.path, target) in known.links:
            return ""
        try:
            os.unlink(entry.name, dir_fd=entry.handle)
        except PermissionError:  # the run made the folder read-only around it
            os.fchmod(entry.handle, stat.S_IMODE(os.fstat(entry.handle).st_mode) | stat.S_IRWXU)
            os.unlink(entry.name, dir_fd=entry.handle)
    except OSError:
        return ""  # gone, or in somebody else's folder
    return target


def _is_system(target: str) -> bool:
    """Whether a link leads to a file of the system, such as an interpreter."""
    if not target.startswith(_SYSTEM) or ".." in target.split("/"):
        return False
    try:
        real = Path(target).resolve(strict=True)
        return str(real).startswith(_SYSTEM) and real.is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def _has_bits(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & _SETUID)


def _clear(entry: WalkEntry) -> bool:
    mode = stat.S_IMODE(entry.status.st_mode) & ~_SETUID
    try:
        if not hasattr(os, "O_PATH"):
            os.chmod(entry.name, mode, dir_fd=entry.handle, follow_symlinks=False)
            return True
        with _pinned(entry.handle, entry.name, entry.status) as place:
            place.chmod(mode)
            return True
    except (OSError, NotImplementedError):
        return False  # somebody else's file, which the run could not have changed, or another one by now


@contextmanager
def _pinned(parent: int, name: str, status: os.stat_result) -> Iterator[Path]:
    """A path to exactly the file or folder that was looked at. OSError if another one has its name now."""
    handle = os.open(name, _PLACE, dir_fd=parent)
    try:
        if os.fstat(handle).st_ino != status.st_ino:
            raise FileNotFoundError(name)
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


class _Level:
    """A folder on the way from the top to where the walk is. Its descriptor may be closed and opened again."""

    def __init__(self, handle: int) -> None:
        self.handle: int | None = handle
        status = os.fstat(handle)
        self.identity = (status.st_dev, status.st_ino)
        self.folders: list[str] = []

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def reopen(self, child: int) -> None:
        """Open the folder again through its child, so that no path is ever too long."""
        if self.handle is None:
            self.handle = os.open("..", _FOLDER, dir_fd=child)
            status = os.fstat(self.handle)
            if (status.st_dev, status.st_ino) != self.identity:
                raise MovedError


def _entries(top: Path) -> Iterator[WalkEntry]:
    """Everything below the folder that is no folder itself, in no order that matters. OSError if the top is none."""
    levels = [_Level(os.open(top, _FOLDER))]
    names: list[str] = []
    try:
        yield from _scan(levels[0], names)
        while levels:
            here = levels[-1]
            if here.handle is None:
                raise MovedError
            if not here.folders:
                if len(levels) > 1:
                    levels[-2].reopen(here.handle)
                    names.pop()
                here.close()
                levels.pop()
                continue
            name = here.folders.pop()
            handle = _open_inner(here.handle, name)
            if handle is None:
                continue
            levels.append(_Level(handle))
            names.append(name)
            if len(levels) > _MOST_OPEN:
                levels[-_MOST_OPEN].close()
            yield from _scan(levels[-1], names)
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
        if not stat.S_ISDIR(status.st_mode) or not hasattr(os, "O_PATH"):
            return None
        with _pinned(parent, name, status) as place:
            place.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
            return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _scan(level: _Level, names: list[str]) -> Iterator[WalkEntry]:
    """The entries of one folder; the folders among them are noted for later."""
    handle = level.handle
    if handle is None:
        return
    if not os.fstat(handle).st_mode & stat.S_IXUSR:
        with suppress(OSError):  # listed, but closed: without this no entry could be looked at
            os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) | stat.S_IRWXU)
    with os.scandir(handle) as found:
        entries = list(found)
    for entry in entries:
        try:
            status = os.stat(entry.name, dir_fd=handle, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            level.folders.append(entry.name)
        else:
            yield WalkEntry(handle, entry.name, status, names)


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


class Cleanup(NamedTuple):
    """All paths are resolved. mybox/ belongs to the runs; in other places what was there before stays."""

    root: Path
    elsewhere: tuple[Path, ...] = ()

    def before(self) -> dict[Path, PriorState]:
        return {place: find_known(place) for place in self.elsewhere if place.is_dir()}

    def after(self, looked: dict[Path, PriorState]) -> Leftovers:
        box = clean(self.root / BOX, BOX)
        links, cleared = [*box.removed_links], [*box.cleared_setuid]
        for place in self.elsewhere:
            shown = place.relative_to(self.root).as_posix() if place.is_relative_to(self.root) else str(place)
            if place in looked:
                more = clean(place, shown, looked[place])
                links += more.removed_links
                cleared += more.cleared_setuid
            else:
                cleared += _clean_file(place, shown)
        return Leftovers(box.files, tuple(links), tuple(cleared))


def cleanup_of(root: Path, write: Sequence[Path]) -> Cleanup:
    """For a run in this project that may write these places."""
    real = root.resolve()
    return Cleanup(real, tuple(path for path in write if not path.is_relative_to(real / BOX)))
