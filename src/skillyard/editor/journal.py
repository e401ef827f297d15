"""All or nothing over several files, also if the power fails in the middle.

    stage all, old and new  →  write the journal  →  swap all  →  drop the journal

The journal is the moment of decision. Dead before it: nothing has changed, and the next edit in the folder sweeps
what was staged. Dead after it: the next edit completes the swaps before it does anything else. A swap that fails turns
the journal round, and what was swapped is put back, by us or by the next edit. The journal is locked while its writer
lives and lies in SKILLYARD_HOME, where no project can forge one.

A file that somebody else changed between the crash and the next edit stays as they left it, and is named.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple, TextIO

from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message
from skillyard.editor.dirfd import FOLDER, FileContent, FileLocation, OpenFolder, open_fd, open_folders, try_lock

#: A file in its folder, what it held, and what it shall hold.
FileChange = tuple[OpenFolder, FileLocation, FileContent | None, bytes]


class JournalEntry(NamedTuple):
    """The names of what is staged for a file; no old version if the file is new."""

    location: FileLocation
    new: str
    old: str | None


class Recovered(NamedTuple):
    """What an earlier edit left unfinished: files that are settled now, and files that others changed since."""

    settled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.settled or self.kept)


_Staged = Sequence[tuple[OpenFolder, JournalEntry]]


class Journal:
    """The batches that are under way, one file for each, which is locked as long as it is open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        mark = hashlib.blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        self._staged = f".skillyard-edit-{mark}-"

    def commit(self, changes: Sequence[FileChange]) -> None:
        """Make all the changes, or none. The folders are locked."""
        is_batch = len(changes) > 1
        staged: list[tuple[OpenFolder, JournalEntry]] = []
        target = self._folder / f"{os.urandom(8).hex()}.json"
        try:
            for folder, location, found, content in changes:
                name = self._staged + os.urandom(8).hex()
                entry = JournalEntry(location, f"{name}.new", f"{name}.old" if is_batch and found else None)
                staged.append((folder, entry))
                folder.stage(entry.new, content, found)
                if found and entry.old:
                    folder.stage(entry.old, found.content, found)
                folder.sync()
            journal = self._write(target, staged, back=False) if is_batch else nullcontext()
        except OSError:
            _drop(staged)
            raise
        with journal:
            try:
                for folder, entry in staged:
                    folder.swap(entry.new, entry.location.name)
                for folder, _ in staged:
                    folder.sync()
            except OSError:
                if is_batch:
                    self._put_back(target, staged)
                raise
            if is_batch:
                self._forget(target)
                _drop(staged)

    def _put_back(self, target: Path, staged: _Staged) -> None:
        with self._write(target, staged, back=True):
            for folder, entry in staged:
                _settle(folder, entry, back=True)
                folder.sync()
            self._forget(target)

    def recover(self) -> Recovered:
        """Settle what dead processes left behind."""
        settled: list[str] = []
        kept: list[str] = []
        for path, file in self._dead():
            try:
                written = json.load(file)
                entries = [
                    JournalEntry(FileLocation(Path(anchor), tuple(folders), name), new, old)
                    for (anchor, folders, name), new, old in written["entries"]
                ]
            except (ValueError, KeyError, TypeError):
                wrong = Message("{path} is no journal of ours: look at it, and remove it", path=path)
                raise RuntimeFailed(wrong) from None
            with ExitStack() as stack:
                folders = open_folders([entry.location for entry in entries], stack, create=(), lock=True)
                for entry, folder in zip(entries, folders, strict=True):
                    if folder is not None:
                        fine = _settle(folder, entry, back=written["back"])
                        (settled if fine else kept).append(str(entry.location.path))
                        folder.sync()
                self._forget(path)
        return Recovered(tuple(settled), tuple(kept))

    def has_dead(self) -> bool:
        return any(True for _ in self._dead())

    def sweep(self, folder: OpenFolder) -> None:
        """Remove what dead processes staged in a locked folder. None of their journals is left that wants it."""
        for name in folder.list():
            if name.startswith(self._staged):
                folder.remove(name)

    def _write(self, target: Path, staged: _Staged, *, back: bool) -> TextIO:
        """Write the journal under its name: complete, and locked from its first moment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = target.with_suffix(".draft")
        file = draft.open("w+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            json.dump({"back": back, "entries": [entry for _, entry in staged]}, file, default=str)
            file.flush()
            os.fsync(file.fileno())
            draft.replace(target)
        except OSError:
            file.close()
            draft.unlink(missing_ok=True)
            raise
        self._sync()
        return file

    def _forget(self, target: Path) -> None:
        target.unlink()
        self._sync()

    def _sync(self) -> None:
        with open_fd(self._folder, FOLDER) as handle:
            os.fsync(handle)

    def _dead(self) -> Iterator[tuple[Path, TextIO]]:
        """Journals whose writers are dead, each locked while it is looked at."""
        for path in sorted(self._folder.glob("*.json")):
            with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
                if try_lock(file.fileno()) and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                    yield path, file


def _drop(staged: _Staged) -> None:
    for folder, entry in staged:
        for name in filter(None, (entry.new, entry.old)):
            folder.remove(name)


def _settle(folder: OpenFolder, entry: JournalEntry, *, back: bool) -> bool:
    """Go forward or back, however far it had come. Return False if others have changed the file since."""
    old = folder.find(entry.old) if entry.old else None
    fine = True
    if folder.find(entry.new) is not None:  # not swapped yet
        now = folder.find(entry.location.name)
        fine = (now and now.content) == (old and old.content)
        if fine and not back:
            folder.swap(entry.new, entry.location.name)
    elif back and entry.old is None:
        folder.remove(entry.location.name)
    elif back and entry.old and old is not None:
        folder.swap(entry.old, entry.location.name)
    _drop([(folder, entry)])
    return fine
