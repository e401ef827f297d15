"""Where skills are installed: the folder, its lock file, and the changes to both, whole or not at all.

A change is written down first (the journal), then done: whoever finds a journal ends it. Before the journal is there
nothing has happened; after it, the change will be. So a kill at any point leaves the old state or the new one.

Covered: kill -9, two processes at once, links in the project that lead elsewhere.
Not covered: a power cut within the seconds that a disk keeps things to itself; `verify` tells.
"""

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import uuid4

from skillyard.catalog.dirfd import refuse_links
from skillyard.catalog.plainfile import read_whole
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillNotFound, SourceRefused
from skillyard.install.lock import InstalledSkill, Lock, as_text, read_lock
from skillyard.install.names import as_slug
from skillyard.install.tree import Drift, copy_checked, copy_file, digests_of, drift_between

_AT_FDCWD = -100
_LINUX_EXCHANGE = 2
_MACOS_SWAP = 2
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


class FolderSwap(Protocol):
    """Swaps two folders in one step; False where it cannot, and then nothing has happened."""

    def __call__(self, one: Path, other: Path) -> bool: ...


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def exchange(one: Path, other: Path) -> bool:
    """By the system call of the platform."""
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "linux":
            failed = _library().renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _LINUX_EXCHANGE)
        elif sys.platform == "darwin":
            failed = _library().renamex_np(first, second, _MACOS_SWAP)
        else:
            return False
    except AttributeError:  # an older C library
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))


def never_exchange(one: Path, other: Path) -> bool:
    """For systems without such a call, and to test what happens there."""
    del one, other
    return False


def swap_in(staged: Path, target: Path, trash: Path, swap: FolderSwap = exchange) -> None:
    """The staged folder stands at the target, what stood there lies in the trash. Can be repeated after any stop.

    Whoever repeats it must know from elsewhere that the staged folder is not at the target yet.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        if swap(staged, target):
            staged.rename(trash)
            return
        target.rename(trash)
    staged.rename(target)


_JOURNAL = "journal.json"
_MOST_BYTES = 64 * 1024 * 1024
_HEX = re.compile(r"[0-9a-f]{32}")


class Target(NamedTuple):
    """One folder of installed skills. Everything in it changes only through `Change`, under the lock."""

    skills: Path
    lock_file: Path
    #: Ours: staging, trash, journal. On the same file system as `skills`.
    state: Path
    #: Nothing is written outside of it, whatever links say.
    bounds: Path

    @property
    def staging(self) -> Path:
        return self.state / "staging"

    @property
    def trash(self) -> Path:
        return self.state / "trash"


class FolderMove(NamedTuple):
    """One folder's change. Without `staged` it is taken away; without `inode` nothing of ours stands there yet."""

    name: str
    staged: str
    inode: int


def project_target(root: Path) -> Target:
    return Target(root / ".claude" / "skills", root / "skillyard.lock", root / ".skillyard" / "install", root)


def global_target(own_home: Path) -> Target:
    return Target(own_home / "skills", own_home / "skillyard.lock", own_home / "install", own_home)


@contextmanager
def open_target(place: Target, swap: FolderSwap = exchange) -> Iterator[None]:
    """Alone in the place; what an earlier process left behind is ended and cleaned first."""
    _check_bounds(place)
    place.state.mkdir(parents=True, exist_ok=True)
    _hide(place)
    with (place.state / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        recover(place, swap)
        yield


def _check_bounds(place: Target) -> None:
    """A link in a cloned project must not make us write or clean up elsewhere."""
    for path in (place.skills, place.state):
        refuse_links(place.bounds, path)
    for path in (place.staging, place.trash, place.state / "lock", place.state.parent / ".gitignore"):
        if path.is_symlink():
            raise PermissionDenied(f"{path} is a link, and we never made it: delete it")


def _hide(place: Target) -> None:
    """What is ours in a project is nobody's commit."""
    ignore = place.state.parent / ".gitignore"
    if place.state.parent.name == ".skillyard" and not ignore.exists():
        ignore.write_text("*\n", "utf-8")


def is_unfinished(place: Target) -> bool:
    return (place.state / _JOURNAL).exists()


def new_staging(place: Target) -> Path:
    folder = place.staging / uuid4().hex
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def apply(place: Target, moves: Sequence[tuple[str, Path | None]], lock_text: str, swap: FolderSwap = exchange) -> None:
    """Each named folder becomes the staged one, or goes; then the lock file says so. To be called in `open_target`."""
    planned = [
        FolderMove(name, staged.name if staged else "", staged.stat().st_ino if staged else 0) for name, staged in moves
    ]
    _check_writable(place, [name for name, _ in moves])
    journal = {"moves": [list(move) for move in planned], "lock": lock_text, "id": uuid4().hex}
    write_whole(place.state / _JOURNAL, json.dumps(journal, ensure_ascii=False))
    _finish(place, swap)


def _check_writable(place: Target, names: Sequence[str]) -> None:
    """What cannot be ended must not be begun."""
    place.skills.mkdir(parents=True, exist_ok=True)
    if place.skills.stat().st_dev != place.state.stat().st_dev:
        raise PermissionDenied(f"{place.skills} and {place.state} must be on one file system")
    targets = [place.skills / name for name in names]
    for folder in (place.skills, place.lock_file.parent, *(target for target in targets if target.is_dir())):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionDenied(f"{folder} cannot be written to")


def recover(place: Target, swap: FolderSwap = exchange) -> None:
    """End what was begun, then throw away what nobody will ever need."""
    if is_unfinished(place):
        _finish(place, swap)
    for leftovers in (place.staging, place.trash):
        delete_tree(leftovers)
    for folder, name in ((place.state, _JOURNAL), (place.lock_file.parent, place.lock_file.name)):
        for temporary in folder.glob(f"{name}.tmp-*"):
            temporary.unlink(missing_ok=True)


def _finish(place: Target, swap: FolderSwap) -> None:
    change, moves, lock_text = _read_journal(place.state / _JOURNAL)
    place.trash.mkdir(parents=True, exist_ok=True)
    place.skills.mkdir(parents=True, exist_ok=True)
    for move in moves:
        _do(place, move, change, swap)
    _sync(place.skills)
    write_whole(place.lock_file, lock_text)
    (place.state / _JOURNAL).unlink()
    _sync(place.state)
    delete_tree(place.trash)


def _read_journal(file: Path) -> tuple[str, list[FolderMove], str]:
    """A project can come with one that we never wrote: no name in it may be more than a name."""
    try:
        fields = json.loads(read_whole(file, _MOST_BYTES))
        moves = [FolderMove(str(name), str(staged), int(inode)) for name, staged, inode in fields["moves"]]
        change, lock_text = str(fields["id"]), str(fields["lock"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgs(f"{file} is broken, and not by us: delete it") from None
    known = all(as_slug(move.name) == move.name and _HEX.fullmatch(move.staged or change) for move in moves)
    if not known or not _HEX.fullmatch(change):
        raise InvalidArgs(f"{file} was not written by us: delete it")
    return change, moves, lock_text


def _do(place: Target, move: FolderMove, change: str, swap: FolderSwap) -> None:
    target, trash = place.skills / move.name, place.trash / f"{change}-{move.name}"
    if not move.staged:
        if os.path.lexists(target) and not os.path.lexists(trash):
            target.rename(trash)
        return
    staged = place.staging / move.staged
    if not (os.path.lexists(target) and target.lstat().st_ino == move.inode):
        swap_in(staged, target, trash, swap)


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """There is the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp-{uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def delete_tree(folder: Path) -> None:
    """What strangers made may forbid its own deletion."""
    if not folder.exists():
        return
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            inner = Path(parent, name)
            if not inner.is_symlink():
                with suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(folder)


class Addition(NamedTuple):
    """A skill to be put in, and where its files are now."""

    skill: InstalledSkill
    at: Path
    #: Its files are ours and hold what was scanned: they can be moved instead of copied.
    is_ours: bool = False


def install(
    place: Target,
    additions: Sequence[Addition],
    *,
    swap: FolderSwap = exchange,
    keep: bool = False,
    theirs: bool = False,
) -> None:
    """All of them, or none. Local edits are never overwritten: InvalidArgs, unless `keep` or `theirs` says how.

    Files that the user added stay in any case. `keep` leaves edited files as they are, `theirs` replaces them.
    """
    with open_target(place, swap):
        lock = read_lock(place.lock_file)
        moves: list[tuple[str, Path | None]] = []
        for addition in additions:
            _check_free(place, lock, addition.skill)
            moves.append((addition.skill.folder, _staged(place, lock, addition, keep=keep, theirs=theirs)))
        changed = lock.with_changes(addition.skill for addition in additions)
        apply(place, moves, as_text(changed), swap)


def _check_free(place: Target, lock: Lock, skill: InstalledSkill) -> None:
    known, target = lock.skills.get(skill.folder), place.skills / skill.folder
    if known is None and (target.exists() or target.is_symlink()):
        raise InvalidArgs(f"{target} is there already and was not installed by us: use --as NAME, or remove it first")
    if known and (known.source, known.path) != (skill.source, skill.path):
        raise InvalidArgs(f"{skill.folder} was installed from {known.source}: use --as NAME, or remove it first")


def _staged(place: Target, lock: Lock, addition: Addition, *, keep: bool, theirs: bool) -> Path:
    """The new folder, complete: what comes, and what of the user's stays."""
    skill, staged = addition.skill, new_staging(place)
    if addition.is_ours and addition.at.stat().st_dev == staged.parent.stat().st_dev:
        addition.at.rename(staged)
    else:
        copy_checked(addition.at, staged)
        if digests_of(staged) != skill.files:
            raise SourceRefused(f"{skill.name} changed while it was being installed")
    target, known = place.skills / skill.folder, lock.skills.get(skill.folder)
    if known is None or not target.is_dir():
        return staged
    found = digests_of(target)
    drift = drift_between(known.files, found)
    edited = [path for path in drift.changed if found[path] != skill.files.get(path)]
    if edited and not keep and not theirs:
        raise edits_error(skill.folder, edited)
    stay = [path for path in drift.added if path not in skill.files] + (edited if keep else [])
    for path in stay:
        (staged / path).unlink(missing_ok=True)
        copy_file(target / path, staged / path)
    return staged


def edits_error(folder: str, edited: Sequence[str]) -> InvalidArgs:
    return InvalidArgs(
        f"{folder} was changed here: {', '.join(edited[:5])}; `skillyard update {folder}` shows the difference, "
        "--keep keeps yours, --theirs takes the source's",
        details={"edited": list(edited)},
    )


def compare(place: Target) -> Mapping[str, Drift]:
    """How each installed skill differs from the lock. Waits for whoever is changing the place."""
    with open_target(place):
        lock = read_lock(place.lock_file)
        return {folder: drift_of(place, skill) for folder, skill in sorted(lock.skills.items())}


def drift_of(place: Target, skill: InstalledSkill) -> Drift:
    target = place.skills / skill.folder
    return drift_between(skill.files, digests_of(target) if target.is_dir() else {})


def find_installed(lock: Lock, names: Sequence[str], source: str = "") -> tuple[InstalledSkill, ...]:
    """By folder or by name, or all of one source; SkillNotFound where nothing of ours is called so."""
    found: dict[str, InstalledSkill] = {}
    for name in names:
        matches = [skill for skill in lock.skills.values() if name in {skill.folder, skill.name}]
        if not matches:
            raise SkillNotFound(name, tuple(lock.skills))
        found.update((skill.folder, skill) for skill in matches)
    if source:
        matches = [skill for skill in lock.skills.values() if skill.source == source]
        if not matches:
            raise InvalidArgs(f"nothing was installed from {source}")
        found.update((skill.folder, skill) for skill in matches)
    return tuple(found.values())


def remove(place: Target, folders: Sequence[str], swap: FolderSwap = exchange) -> Mapping[str, tuple[str, ...]]:
    """Takes away what was installed. Files that the user made or edited stay; they are returned, by folder."""
    kept: dict[str, tuple[str, ...]] = {}
    with open_target(place, swap):
        lock = read_lock(place.lock_file)
        moves: list[tuple[str, Path | None]] = []
        for folder in folders:
            skill = lock.skills.get(folder)
            if skill is None:
                raise SkillNotFound(folder, tuple(lock.skills))
            drift = drift_of(place, skill)
            kept[folder] = tuple(sorted((*drift.changed, *drift.added)))
            moves.append((folder, _remains(place, folder, kept[folder])))
        apply(place, moves, as_text(lock.with_changes(removed=folders)), swap)
    return {folder: files for folder, files in kept.items() if files}


def _remains(place: Target, folder: str, files: Sequence[str]) -> Path | None:
    if not files:
        return None
    staged = new_staging(place)
    staged.mkdir()
    for path in files:
        copy_file(place.skills / folder / path, staged / path)
    return staged
