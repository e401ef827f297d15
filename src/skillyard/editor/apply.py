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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import ChangesConflict, RuntimeFailed
from skillyard.core.messages import Message
from skillyard.editor.change_set import Change, ChangeKind, EntryType, shown
from skillyard.editor.dirfd import FOLDER, READ, descend, open_fd

DONE = "journal.done"
_NOREPLACE, _EXCHANGE = 1, 2
_NO_LINK = FOLDER | os.O_NOFOLLOW
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
        self._journal = state / "journal.json"
        self._stage = project / ".skillyard" / f"apply-{state.name}"

    def apply(self, upper: Path, changes: Sequence[Change], started_ns: int) -> None:
        """Make all the changes. Raise ChangesConflict where the project changed at `started_ns` or later."""
        with self._locked():
            self._take_back()
            if (self._state / DONE).exists() or not upper.is_dir():
                raise FileNotFoundError(errno.ENOENT, "it was applied or discarded meanwhile", str(self._state))
            if conflicts := _find_conflicts(self._project, changes, started_ns):
                raise ChangesConflict(tuple(map(shown, conflicts)))
            try:
                steps = self._staged(upper, changes)
                self._write_journal(steps)
                self._make(steps, started_ns)
            except (OSError, ChangesConflict):
                self._take_back()
                raise
            self._journal.rename(self._state / DONE)
            _sync(self._state)
            self._clean()

    def recover(self) -> None:
        """Take back what a dead process left half done."""
        with self._locked():
            self._take_back()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._state / "apply.lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _staged(self, upper: Path, changes: Sequence[Change]) -> list[Step]:
        """Copy what the changes bring into the staging folder, and return the steps in their order."""
        self._stage.parent.mkdir(exist_ok=True)
        os.close(os.open(self._stage.parent, _NO_LINK))  # never a link
        self._stage.mkdir(0o700)
        removals, arrivals, modes, folders = [], [], [], []
        #: The folders that are new, and where they are staged. What lies in one arrives with it.
        added: dict[str, Path] = {}
        for number, change in enumerate(changes):
            if change.kind is ChangeKind.MODE:
                old = stat.S_IMODE(_status(self._project, change.path).st_mode)
                modes.append(Step("chmod", change.path, "", 0, change.mode, old))
                continue
            if change.kind in {ChangeKind.DELETED, ChangeKind.RENAMED}:
                gone = change.old_path or change.path
                removals.append(Step("remove", gone, f"{number}.old", _status(self._project, gone).st_ino))
            if change.kind is ChangeKind.DELETED:
                continue
            folder, _, name = change.path.rpartition("/")
            target = added[folder] / name if folder in added else self._stage / str(number)
            _copy(change, upper / change.path, target)
            if change.entry is EntryType.FOLDER:
                added[change.path] = target
                folders.append((target, change.mode))
            if folder not in added:
                verb = "exchange" if change.kind is ChangeKind.MODIFIED else "place"
                arrivals.append(Step(verb, change.path, target.name, target.lstat().st_ino))
        for target, mode in reversed(folders):  # only now: nothing may be written into some of them afterwards
            target.chmod(mode)
        _sync(self._stage)
        return [*removals, *arrivals, *modes]

    def _write_journal(self, steps: Sequence[Step]) -> None:
        draft = self._state / f"{self._journal.name}.new"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(steps, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._journal)
        _sync(self._state)

    def _make(self, steps: Sequence[Step], started_ns: int) -> None:
        with open_fd(self._stage, _NO_LINK) as stage:
            for step in steps:
                _carry_out(step, stage, self._project)
                if step.verb in {"remove", "exchange"}:  # what was taken away must be what the run saw
                    taken = os.stat(step.staged, dir_fd=stage, follow_symlinks=False)
                    is_other = step.verb == "remove" and taken.st_ino != step.inode
                    if is_other or (not stat.S_ISDIR(taken.st_mode) and taken.st_mtime_ns >= started_ns):
                        raise ChangesConflict((shown(step.path),))
        _sync(self._project)

    def _take_back(self) -> None:
        """Undo the steps of a journal that were made, the last one first, and drop what was staged."""
        try:
            steps = [Step(*fields) for fields in json.loads(self._journal.read_bytes())]
        except FileNotFoundError:
            steps = []
        if steps:
            with open_fd(self._stage, _NO_LINK) as stage:
                for step in reversed(steps):
                    with suppress(FileNotFoundError):
                        _carry_out(step, stage, self._project, back=True)
            _sync(self._project)
            self._journal.unlink()
            _sync(self._state)
        self._clean()

    def _clean(self) -> None:
        if self._stage.is_dir() and not self._stage.is_symlink():
            for folder, _, _ in os.walk(self._stage):
                Path(folder).chmod(0o700)
            shutil.rmtree(self._stage)


def _find_conflicts(project: Path, changes: Sequence[Change], started_ns: int) -> list[str]:
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
    if not stat.S_ISDIR(status.st_mode):
        if status.st_ctime_ns >= started_ns:
            yield path
    elif change.kind is ChangeKind.DELETED:
        for folder, folders, files in os.walk(project / path):
            for place in (Path(folder), *(Path(folder, name) for name in (*folders, *files))):
                if place.lstat().st_ctime_ns >= started_ns:
                    yield place.relative_to(project).as_posix()


def _carry_out(step: Step, stage: int, project: Path, *, back: bool = False) -> None:
    """Make one step, or take it `back` if it was made."""
    with _parent(project, step.path) as (folder, name):
        if step.verb == "chmod":
            with open_fd(name, READ, folder) as handle:
                os.fchmod(handle, step.old_mode if back else step.mode)
            return
        source, target = (folder, name), (stage, step.staged)
        if (step.verb == "remove") == back:
            source, target = target, source
        if not back or _inode(*source) == step.inode:
            _rename(*source, *target, _EXCHANGE if step.verb == "exchange" else _NOREPLACE)


def _copy(change: Change, source: Path, target: Path) -> None:
    """Copy one entry of the upper layer, without the kernel's marks; of a folder not what is in it, nor its mode."""
    if change.entry is EntryType.LINK:
        target.symlink_to(source.readlink())
    elif change.entry is EntryType.FOLDER:
        target.mkdir(0o700)
    else:
        with os.fdopen(os.open(source, READ), "rb") as read, target.open("xb") as write:
            shutil.copyfileobj(read, write, _CHUNK)
            os.fchmod(write.fileno(), change.mode)


def _status(project: Path, path: str) -> os.stat_result:
    with _parent(project, path) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


@contextmanager
def _parent(project: Path, path: str) -> Iterator[tuple[int, str]]:
    """Give the open folder of a path and the name in it, following no link below the project."""
    *folders, name = path.split("/")
    handle = descend(os.open(project, FOLDER), folders)
    try:
        yield handle, name
    finally:
        os.close(handle)


def _inode(folder: int, name: str) -> int:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    return 0


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _rename(from_folder: int, name: str, to_folder: int, target: str, flag: int) -> None:
    """Call renameat2, which never replaces anything by itself."""
    if _libc().renameat2(from_folder, os.fsencode(name), to_folder, os.fsencode(target), flag) != 0:
        code = ctypes.get_errno()
        if code == errno.EXDEV:
            raise RuntimeFailed(Message("{path} lies on another file system", path=shown(target)))
        raise OSError(code, os.strerror(code), shown(target))


def _sync(folder: Path) -> None:
    """Bring everything on the folder's file system to the disk."""
    with open_fd(folder, _NO_LINK) as handle:
        if _libc().syncfs(handle) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
