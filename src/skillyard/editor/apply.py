"""Applies a change set to a project: all of it or nothing, also after kill -9 or a power cut.

    check  →  stage every new file in the project  →  journal  →  rename each into place  →  done

Every step that changes the project is one rename, or a chmod whose old mode the journal holds, and the journal has the
inode of what was staged. So whoever finds a journal of a dead process can tell which steps were made, and takes them
back in reverse. The journal lies outside the project, where nobody can forge one.

Covered: links are never followed, on the way or at the end; a file that changed since the run started stops
everything before the first step, or takes all steps back. Set-user-id bits are not applied.
Not covered: readers see the files change one by one. Owners are those of the person who applies.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from skillyard.core.errors import ChangesConflict, RuntimeFailed
from skillyard.core.messages import Message
from skillyard.editor.change_set import Change, ChangeKind, EntryType, shown

_JOURNAL, _DONE = "journal.json", "journal.done"
_NOREPLACE, _EXCHANGE = 1, 2
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


class Step(NamedTuple):
    """One step. `verb` is place, exchange, remove or chmod; `staged` the name in the staging folder."""

    verb: str
    path: str
    staged: str
    #: Inode of what is put in place, or of what is taken away.
    inode: int = 0
    mode: int = 0
    old_mode: int = 0


class Applier:
    """Applies the change set of one run. `state` is the run's own folder, outside the project."""

    def __init__(self, state: Path, project: Path) -> None:
        self._state, self._project = state, project
        self._stage = project / ".skillyard" / f"apply-{state.name}"

    def apply(self, upper: Path, changes: Sequence[Change], started_ns: int) -> None:
        """Make all the changes. Raise ChangesConflict where the project changed at `started_ns` or later."""
        with self._locked():
            self._take_back()
            if conflicts := find_conflicts(self._project, changes, started_ns):
                raise ChangesConflict(tuple(map(shown, conflicts)))
            try:
                steps = self._staged(upper, changes)
                self._write_journal(steps)
                self._make(steps, started_ns)
            except (OSError, ChangesConflict):
                self._take_back()
                raise
            (self._state / _JOURNAL).rename(self._state / _DONE)
            _sync(self._state)
            self._clean()

    def recover(self) -> bool:
        """Take back what a dead process left half done. Return whether there was anything."""
        with self._locked():
            return self._take_back()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._state / "apply.lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _staged(self, upper: Path, changes: Sequence[Change]) -> list[Step]:
        """Copy what the changes bring into the staging folder, and return the steps in their order."""
        folder = self._project / ".skillyard"
        folder.mkdir(exist_ok=True)
        os.close(os.open(folder, _FOLDER))  # never a link
        self._stage.mkdir(0o700)
        removals, arrivals, modes = [], [], []
        added = {each.path for each in changes if each.kind is ChangeKind.ADDED and each.entry is EntryType.FOLDER}
        copier = _Copier(upper, changes)
        for number, change in enumerate(changes):
            name = str(number)
            if change.kind is ChangeKind.MODE:
                old = stat.S_IMODE(_status(self._project, change.path).st_mode)
                modes.append(Step("chmod", change.path, "", 0, change.mode, old))
                continue
            if change.kind in {ChangeKind.DELETED, ChangeKind.RENAMED}:
                gone = change.old_path or change.path
                removals.append(Step("remove", gone, f"{name}.old", _status(self._project, gone).st_ino))
            if change.kind is not ChangeKind.DELETED and _folder_of(change.path) not in added:
                copier.copy(change, self._stage / name)
                inode = (self._stage / name).lstat().st_ino
                verb = "exchange" if change.kind is ChangeKind.MODIFIED else "place"
                arrivals.append(Step(verb, change.path, name, inode))
        _sync(self._stage)
        return [*removals, *arrivals, *modes]

    def _write_journal(self, steps: Sequence[Step]) -> None:
        draft = self._state / f"{_JOURNAL}.new"
        with draft.open("w", encoding="utf-8") as file:
            json.dump([step._asdict() for step in steps], file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._state / _JOURNAL)
        _sync(self._state)

    def _make(self, steps: Sequence[Step], started_ns: int) -> None:
        with _opened(self._stage) as stage:
            for step in steps:
                with _parent(self._project, step.path) as (folder, name):
                    if step.verb == "chmod":
                        _chmod(folder, name, step.mode)
                    elif step.verb == "remove":
                        _rename(folder, name, stage, step.staged, _NOREPLACE)
                        self._check(stage, step.staged, step, started_ns, inode=step.inode)
                    else:
                        flag = _EXCHANGE if step.verb == "exchange" else _NOREPLACE
                        _rename(stage, step.staged, folder, name, flag)
                        if step.verb == "exchange":
                            self._check(stage, step.staged, step, started_ns)
        _sync(self._project)

    def _check(self, stage: int, name: str, step: Step, started_ns: int, inode: int = 0) -> None:
        """Raise ChangesConflict if what was just taken away is not what the run saw."""
        status = os.stat(name, dir_fd=stage, follow_symlinks=False)
        is_other = bool(inode) and status.st_ino != inode
        if is_other or (not stat.S_ISDIR(status.st_mode) and status.st_mtime_ns >= started_ns):
            raise ChangesConflict((shown(step.path),))

    def _take_back(self) -> bool:
        """Undo the steps of a journal, the last one first, and drop what was staged."""
        try:
            with (self._state / _JOURNAL).open(encoding="utf-8") as file:
                steps = _read_journal(file)
        except FileNotFoundError:
            steps = []
        if steps:
            with _opened(self._stage) as stage:
                for step in reversed(steps):
                    with suppress(FileNotFoundError), _parent(self._project, step.path) as (folder, name):
                        _undo(step, stage, folder, name)
            _sync(self._project)
            (self._state / _JOURNAL).unlink()
            _sync(self._state)
        left = self._stage.exists()
        self._clean()
        return bool(steps) or left

    def _clean(self) -> None:
        if self._stage.is_dir() and not self._stage.is_symlink():
            for folder, _, _ in os.walk(self._stage):
                Path(folder).chmod(0o700)
            shutil.rmtree(self._stage)


def find_conflicts(project: Path, changes: Sequence[Change], started_ns: int) -> list[str]:
    """Return the paths where the project changed at `started_ns` or later, or is not as the changes expect."""
    freed = {change.path for change in changes if change.kind is ChangeKind.DELETED}
    freed |= {change.old_path for change in changes if change.kind is ChangeKind.RENAMED}
    arrivals = (change.path for change in changes if change.kind in {ChangeKind.ADDED, ChangeKind.RENAMED})
    taken = {path for path in arrivals if path not in freed and os.path.lexists(project / path)}
    return sorted(taken.union(*(_changed_since(project, change, started_ns) for change in changes)))


def _changed_since(project: Path, change: Change, started_ns: int) -> Iterator[str]:
    if change.kind is ChangeKind.ADDED:
        return
    path = change.old_path or change.path
    try:
        status = _status(project, path)
    except (FileNotFoundError, NotADirectoryError):
        yield path
        return
    if stat.S_ISDIR(status.st_mode):
        if change.kind is ChangeKind.DELETED:
            yield from _changed_below(project, path, started_ns)
    elif status.st_ctime_ns >= started_ns:
        yield path


def _changed_below(project: Path, path: str, started_ns: int) -> Iterator[str]:
    for folder, folders, files in os.walk(project / path):
        for place in (Path(folder), *(Path(folder, name) for name in (*folders, *files))):
            if place.lstat().st_ctime_ns >= started_ns:
                yield place.relative_to(project).as_posix()


def _undo(step: Step, stage: int, folder: int, name: str) -> None:
    """Take one step back if it was made."""
    if step.verb == "chmod":
        _chmod(folder, name, step.old_mode)
    elif step.verb == "remove":
        if _inode(stage, step.staged) == step.inode:
            _rename(stage, step.staged, folder, name, _NOREPLACE)
    elif _inode(folder, name) == step.inode:
        _rename(folder, name, stage, step.staged, _EXCHANGE if step.verb == "exchange" else _NOREPLACE)


def _read_journal(file: TextIO) -> list[Step]:
    fields: list[dict[str, Any]] = json.load(file)
    return [Step(**each) for each in fields]


class _Copier:
    """Copies entries of the upper layer, without the kernel's marks; of a folder only what is in the changes."""

    def __init__(self, upper: Path, changes: Iterable[Change]) -> None:
        self._upper = upper
        self._inside: dict[str, list[Change]] = {}
        for change in changes:
            if change.kind is not ChangeKind.DELETED:
                self._inside.setdefault(_folder_of(change.path), []).append(change)

    def copy(self, change: Change, target: Path) -> None:
        source = self._upper / change.path
        if change.entry is EntryType.LINK:
            target.symlink_to(source.readlink())
        elif change.entry is EntryType.FILE:
            handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as read, target.open("xb") as write:
                shutil.copyfileobj(read, write, _CHUNK)
                os.fchmod(write.fileno(), change.mode)
        else:
            target.mkdir(0o700)
            for inner in self._inside.get(change.path, ()):
                self.copy(inner, target / inner.path.rpartition("/")[2])
            target.chmod(change.mode)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _status(project: Path, path: str) -> os.stat_result:
    with _parent(project, path) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


@contextmanager
def _parent(project: Path, path: str) -> Iterator[tuple[int, str]]:
    """Give the open folder of a path and the name in it, following no link below the project."""
    *folders, name = path.split("/")
    handle = os.open(project, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for each in folders:
            below = os.open(each, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle, name
    finally:
        os.close(handle)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, _FOLDER)
    try:
        yield handle
    finally:
        os.close(handle)


def _chmod(folder: int, name: str, mode: int) -> None:
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _inode(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return 0


def _rename(from_folder: int, name: str, to_folder: int, target: str, flag: int) -> None:
    """Call renameat2, which never replaces anything by itself."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(from_folder, os.fsencode(name), to_folder, os.fsencode(target), flag) != 0:
        code = ctypes.get_errno()
        if code == errno.EXDEV:
            raise RuntimeFailed(Message("{path} lies on another file system", path=shown(target)))
        raise OSError(code, os.strerror(code), shown(target))


def _sync(folder: Path) -> None:
    """Bring everything on the folder's file system to the disk."""
    with _opened(folder) as handle:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
