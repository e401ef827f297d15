"""Where skills are installed: a folder and its lock file, which change together, whole or not at all.

A change is written to a journal first, then done: who finds a journal finishes it. So a kill at any point leaves the
old state or the new one.

Covered: kill -9, two processes at once, links in the project that lead elsewhere.
Not covered: a power cut before the disk has written its cache; `verify` tells.
"""

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import uuid4

from skillyard.catalog.files import read_whole, refuse_links
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillNotFound, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.lock import InstalledSkill, Lock, as_text, read_lock
from skillyard.install.names import as_slug
from skillyard.install.tree import Drift, copy_checked, copy_file, digests_of, drift_between

_JOURNAL = "journal.json"
_MOST_BYTES = 64 * 1024 * 1024
_HEX = re.compile(r"[0-9a-f]{32}")
_AT_FDCWD = -100
_LINUX_EXCHANGE = _MACOS_SWAP = 2
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})

#: Swaps two folders in one step; False if it cannot, and then nothing has happened.
FolderSwap: TypeAlias = Callable[[Path, Path], bool]


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step. Return False, with nothing changed, if the system cannot."""
    first, second = os.fsencode(one), os.fsencode(other)
    library = ctypes.CDLL(None, use_errno=True)
    try:
        if sys.platform == "linux":
            failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _LINUX_EXCHANGE)
        elif sys.platform == "darwin":
            failed = library.renamex_np(first, second, _MACOS_SWAP)
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


class Target(NamedTuple):
    """One folder of installed skills, its lock file and our state. They change only in `open_target`."""

    skills: Path
    lock_file: Path
    #: Ours: staging, trash, journal. On the same file system as `skills`.
    state: Path
    #: Nothing is written outside of it, whatever links say.
    bounds: Path

    @property
    def is_project(self) -> bool:
        """Whether it belongs to a project, not to the user."""
        return self.state.parent != self.bounds

    @property
    def staging(self) -> Path:
        return self.state / "staging"

    @property
    def trash(self) -> Path:
        return self.state / "trash"


def project_target(root: Path) -> Target:
    return Target(root / ".claude" / "skills", root / "skillyard.lock", root / ".skillyard" / "install", root)


def global_target(own_home: Path) -> Target:
    return Target(own_home / "skills", own_home / "skillyard.lock", own_home / "install", own_home)


@contextmanager
def open_target(target: Target, swap: FolderSwap = exchange) -> Iterator[None]:
    """Lock the target; finish and clean up what an earlier process left behind first."""
    ignore = target.state.parent / ".gitignore"
    # A link in a cloned project must not make us write or clean up elsewhere.
    for path in (target.skills, target.state):
        refuse_links(target.bounds, path)
    for path in (target.staging, target.trash, target.state / "lock", ignore):
        if path.is_symlink():
            raise PermissionDenied(Message("{path} is a link, and we never made it: delete it", path=path))
    target.state.mkdir(parents=True, exist_ok=True)
    if target.is_project and not ignore.exists():
        ignore.write_text("*\n", "utf-8")
    with (target.state / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if is_unfinished(target):
            _finish(target, swap)
        for leftovers in (target.staging, target.trash):
            delete_tree(leftovers)
        for path in (target.state / _JOURNAL, target.lock_file):
            for temporary in path.parent.glob(f"{path.name}.tmp-*"):
                temporary.unlink(missing_ok=True)
        yield


def is_unfinished(target: Target) -> bool:
    return (target.state / _JOURNAL).exists()


def new_staging(target: Target) -> Path:
    folder = target.staging / uuid4().hex
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def apply(
    target: Target, moves: Sequence[tuple[str, Path | None]], lock_text: str, swap: FolderSwap = exchange
) -> None:
    """Replace each named folder by the staged one, or remove it; then write the lock file. Call in `open_target`."""
    target.skills.mkdir(parents=True, exist_ok=True)
    # Do not begin what cannot be finished.
    if target.skills.stat().st_dev != target.state.stat().st_dev:
        said = Message("{skills} and {state} must be on one file system", skills=target.skills, state=target.state)
        raise PermissionDenied(said)
    changed = [folder for name, _ in moves if (folder := target.skills / name).is_dir()]
    for folder in (target.skills, target.lock_file.parent, *changed):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionDenied(Message("{existing} cannot be written to", existing=folder))
    planned = [[name, staged.name, staged.stat().st_ino] if staged else [name, "", 0] for name, staged in moves]
    journal = {"moves": planned, "lock": lock_text, "id": uuid4().hex}
    write_whole(target.state / _JOURNAL, json.dumps(journal, ensure_ascii=False))
    _finish(target, swap)


def _finish(target: Target, swap: FolderSwap) -> None:
    change, moves, lock_text = _read_journal(target.state / _JOURNAL)
    target.trash.mkdir(parents=True, exist_ok=True)
    target.skills.mkdir(parents=True, exist_ok=True)
    for name, staged, inode in moves:
        trash = target.trash / f"{change}-{name}"
        _move(target.skills / name, target.staging / staged if staged else None, inode, trash, swap)
    _sync(target.skills)
    write_whole(target.lock_file, lock_text)
    (target.state / _JOURNAL).unlink()
    _sync(target.state)
    delete_tree(target.trash)


def _read_journal(file: Path) -> tuple[str, list[tuple[str, str, int]], str]:
    """The change's id, for each folder its name, staged folder and inode, and the lock's text.

    A project can come with a journal that we never wrote: no name in it may be a path.
    """
    try:
        fields = json.loads(read_whole(file, _MOST_BYTES))
        moves = [(str(name), str(staged), int(inode)) for name, staged, inode in fields["moves"]]
        change, lock_text = str(fields["id"]), str(fields["lock"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgs(Message("{file} is broken, and not by us: delete it", file=file)) from None
    known = all(as_slug(name) == name and _HEX.fullmatch(staged or change) for name, staged, _ in moves)
    if not known or not _HEX.fullmatch(change):
        raise InvalidArgs(Message("{file} was not written by us: delete it", file=file))
    return change, moves, lock_text


def _move(path: Path, staged: Path | None, inode: int, trash: Path, swap: FolderSwap) -> None:
    """Put the staged folder, if any, in its place and what was there into the trash. Can be repeated after any stop.

    A plain rename cannot replace a folder that holds something, so without `swap` there is a moment with neither.
    """
    if staged is None:
        if os.path.lexists(path) and not os.path.lexists(trash):
            path.rename(trash)
        return
    if os.path.lexists(path):
        if path.lstat().st_ino == inode:
            return  # done before a crash
        if swap(staged, path):
            staged.rename(trash)
            return
        path.rename(trash)
    staged.rename(path)


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """Write a file so that there is the old one or the new one, never half of it."""
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
    """Delete a folder, also if modes in it forbid that."""
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
    """A skill to install, and where its files are now."""

    skill: InstalledSkill
    at: Path
    #: Its files are ours and hold what was scanned: they can be moved instead of copied.
    is_ours: bool = False


def install(target: Target, additions: Sequence[Addition], *, keep: bool = False, theirs: bool = False) -> None:
    """Install all of them, or none. Local edits are never overwritten: InvalidArgs, unless `keep` or `theirs` says how.

    Files that the user added stay in any case. `keep` leaves edited files as they are, `theirs` replaces them.
    """
    with open_target(target):
        lock = read_lock(target.lock_file)
        moves: list[tuple[str, Path | None]] = []
        for addition in additions:
            folder = addition.skill.folder
            known = lock.skills.get(folder)
            staged = _staged(target, known, addition)
            _take_over(addition.skill, known, target.skills / folder, staged, keep=keep, theirs=theirs)
            moves.append((folder, staged))
        apply(target, moves, as_text(lock.with_changes(addition.skill for addition in additions)))


def _staged(target: Target, known: InstalledSkill | None, addition: Addition) -> Path:
    """Stage the new folder. InvalidArgs if another skill has its name."""
    skill, path, staged = addition.skill, target.skills / addition.skill.folder, new_staging(target)
    if known is None and os.path.lexists(path):
        raise InvalidArgs(Message("{path} exists, and we did not install it: use --as NAME, or remove it", path=path))
    if known and (known.source, known.path) != (skill.source, skill.path):
        name, source = skill.folder, known.source
        raise InvalidArgs(Message("{name} comes from {source}: use --as NAME, or remove it", name=name, source=source))
    if addition.is_ours and addition.at.stat().st_dev == staged.parent.stat().st_dev:
        addition.at.rename(staged)
    else:
        copy_checked(addition.at, staged)
        if digests_of(staged) != skill.files:
            raise SourceRefused(Message("{name} changed while it was being installed", name=skill.name))
    return staged


def _take_over(
    skill: InstalledSkill, known: InstalledSkill | None, here: Path, staged: Path, *, keep: bool, theirs: bool
) -> None:
    """Copy the files of the user that stay to the staged folder."""
    if known is None or not here.is_dir():
        return
    found = digests_of(here)
    drift = drift_between(known.files, found)
    edited = [path for path in drift.changed if found[path] != skill.files.get(path)]
    if edited and not keep and not theirs:
        raise InvalidArgs(
            Message(
                "{folder} was changed here: {edited}; `skillyard update {folder}` shows the difference, "
                "--keep keeps yours, --theirs takes the source's",
                folder=skill.folder,
                edited=", ".join(edited[:5]),
            ),
            details={"edited": list(edited)},
        )
    for path in [path for path in drift.added if path not in skill.files] + (edited if keep else []):
        (staged / path).unlink(missing_ok=True)
        copy_file(here / path, staged / path)


def compare(target: Target) -> Mapping[str, Drift]:
    """How each installed skill differs from the lock. Waits for a change that is going on."""
    with open_target(target):
        lock = read_lock(target.lock_file)
        return {folder: drift_of(target, skill) for folder, skill in sorted(lock.skills.items())}


def drift_of(target: Target, skill: InstalledSkill) -> Drift:
    path = target.skills / skill.folder
    return drift_between(skill.files, digests_of(path) if path.is_dir() else {})


def find_installed(lock: Lock, names: Sequence[str], source: str = "") -> tuple[InstalledSkill, ...]:
    """Installed skills by folder or name, and all of one source. SkillNotFound if none has the name."""
    found: dict[str, InstalledSkill] = {}
    for name in names:
        matches = [skill for skill in lock.skills.values() if name in {skill.folder, skill.name}]
        if not matches:
            raise SkillNotFound(name, tuple(lock.skills))
        found.update((skill.folder, skill) for skill in matches)
    if source:
        matches = [skill for skill in lock.skills.values() if skill.source == source]
        if not matches:
            raise InvalidArgs(Message("nothing was installed from {source}", source=source))
        found.update((skill.folder, skill) for skill in matches)
    return tuple(found.values())


def remove(target: Target, folders: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Remove installed skills. Files that the user made or edited stay; return them by folder."""
    kept: dict[str, tuple[str, ...]] = {}
    with open_target(target):
        lock = read_lock(target.lock_file)
        moves: list[tuple[str, Path | None]] = []
        for folder in folders:
            skill = lock.skills.get(folder)
            if skill is None:
                raise SkillNotFound(folder, tuple(lock.skills))
            drift = drift_of(target, skill)
            staged = None
            if files := tuple(sorted((*drift.changed, *drift.added))):
                kept[folder], staged = files, new_staging(target)
                for path in files:
                    copy_file(target.skills / folder / path, staged / path)
            moves.append((folder, staged))
        apply(target, moves, as_text(lock.with_changes(removed=folders)))
    return kept
