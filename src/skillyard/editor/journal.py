"""All or nothing over several files, also if the power fails in the middle.

    stage all, old and new  →  write the journal  →  swap all  →  drop the journal

The journal is the moment of decision. Dead before it: nothing has changed, and the next edit in the folder sweeps
what was staged. Dead after it: the next edit completes the swaps before it does anything else. A swap that fails turns
the journal round, and what was swapped is put back, by us or by the next edit. The journal is locked while its writer
lives and lies in SKILLYARD_HOME, where no project can forge one.

A file that somebody else changed between the crash and the next edit stays as they left it, and is named.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from skillyard.core.errors import RuntimeFailed
from skillyard.core.messages import Message
from skillyard.editor.dirfd import FileContent, FileLocation, OpenFolder, open_folders, try_lock


class FileChange(NamedTuple):
    """A file, what it held, and what it shall hold."""

    folder: OpenFolder
    location: FileLocation
    found: FileContent | None
    content: bytes


class JournalEntry(NamedTuple):
    """The names of what is staged for a file; no old version if the file is new."""

    location: FileLocation
    new: str
    old: str | None

    def as_dict(self) -> dict[str, object]:
        anchor, folders, name = self.location
        return {"anchor": str(anchor), "folders": folders, "name": name, "new": self.new, "old": self.old}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "JournalEntry":
        location = FileLocation(Path(fields["anchor"]), tuple(fields["folders"]), fields["name"])
        return cls(location, fields["new"], fields["old"])


class Recovered(NamedTuple):
    """What an earlier edit left unfinished: files that are settled now, and files that others changed since."""

    settled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.settled or self.kept)


class _JournalFile(NamedTuple):
    """A journal on the disk, locked as long as its file is open."""

    path: Path
    file: TextIO


_Staged = Sequence[tuple[FileChange, JournalEntry]]


class Journal:
    """The batches that are under way, one file for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        mark = hashlib.blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        self._staged = f".skillyard-edit-{mark}-"

    def commit(self, changes: Sequence[FileChange]) -> None:
        """Make all the changes, or none. The folders are locked."""
        is_batch = len(changes) > 1
        staged = [(change, self._entry(change, with_old=is_batch)) for change in changes]
        try:
            for change, entry in staged:
                change.folder.stage(entry.new, change.content, change.found)
                if change.found and entry.old:
                    change.folder.stage(entry.old, change.found.content, change.found)
                change.folder.sync()
            if is_batch:
                journal = self._write(os.urandom(8).hex(), staged, back=False)
        except OSError:
            _drop(staged)
            raise
        if not is_batch:
            _swap(staged)
            return
        with journal.file:
            self._swap_all(staged, journal)

    def recover(self) -> Recovered:
        """Settle what dead processes left behind."""
        settled: list[str] = []
        kept: list[str] = []
        for journal in self._dead():
            try:
                written = json.load(journal.file)
                entries = [JournalEntry.from_dict(fields) for fields in written["entries"]]
            except (ValueError, KeyError, TypeError):
                wrong = Message("{path} is no journal of ours: look at it, and remove it", path=journal.path)
                raise RuntimeFailed(wrong) from None
            with contextlib.ExitStack() as stack:
                folders = open_folders([entry.location for entry in entries], stack, create=(), lock=True)
                for entry, folder in zip(entries, folders, strict=True):
                    if folder is not None:
                        fine = _settle(folder, entry, back=written["back"])
                        (settled if fine else kept).append(str(entry.location.path))
                        folder.sync()
                self._forget(journal)
        return Recovered(tuple(settled), tuple(kept))

    def has_dead(self) -> bool:
        return any(True for _ in self._dead())

    def sweep(self, folder: OpenFolder) -> None:
        """Remove what dead processes staged in a locked folder. None of their journals is left that wants it."""
        for name in folder.list():
            if name.startswith(self._staged):
                folder.remove(name)

    def _swap_all(self, staged: _Staged, journal: _JournalFile) -> None:
        try:
            _swap(staged)
        except OSError:
            with self._write(journal.path.stem, staged, back=True).file:
                for change, entry in staged:
                    _settle(change.folder, entry, back=True)
                    change.folder.sync()
                self._forget(journal)
            raise
        self._forget(journal)
        _drop(staged)

    def _entry(self, change: FileChange, *, with_old: bool) -> JournalEntry:
        name = self._staged + os.urandom(8).hex()
        return JournalEntry(change.location, f"{name}.new", f"{name}.old" if with_old and change.found else None)

    def _write(self, name: str, staged: _Staged, *, back: bool) -> _JournalFile:
        """Write the journal under its name: complete, and locked from its first moment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        target, draft = self._folder / f"{name}.json", self._folder / f"{name}.draft"
        file = draft.open("w+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            json.dump({"back": back, "entries": [entry.as_dict() for _, entry in staged]}, file)
            file.flush()
            os.fsync(file.fileno())
            draft.replace(target)
        except OSError:
            file.close()
            draft.unlink(missing_ok=True)
            raise
        self._sync()
        return _JournalFile(target, file)

    def _forget(self, journal: _JournalFile) -> None:
        journal.path.unlink()
        self._sync()

    def _sync(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _dead(self) -> Iterator[_JournalFile]:
        """Journals whose writers are dead, each locked while it is looked at."""
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
                if try_lock(file.fileno()) and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                    yield _JournalFile(path, file)


def _swap(staged: _Staged) -> None:
    for change, entry in staged:
        change.folder.swap(entry.new, entry.location.name)
    for change, _ in staged:
        change.folder.sync()


def _drop(staged: _Staged) -> None:
    for change, entry in staged:
        _remove_staged(change.folder, entry)


def _remove_staged(folder: OpenFolder, entry: JournalEntry) -> None:
    folder.remove(entry.new)
    if entry.old:
        folder.remove(entry.old)


def _settle(folder: OpenFolder, entry: JournalEntry, *, back: bool) -> bool:
    """Go forward or back, however far it had come. Return False if others have changed the file since."""
    waiting = folder.find(entry.new) is not None
    old = folder.find(entry.old) if entry.old else None
    fine = True
    if waiting:
        now = folder.find(entry.location.name)
        fine = (now and now.content) == (old and old.content)
        if fine and not back:
            folder.swap(entry.new, entry.location.name)
    elif back and entry.old is None:
        folder.remove(entry.location.name)
    elif back and entry.old and old is not None:
        folder.swap(entry.old, entry.location.name)
    _remove_staged(folder, entry)
    return fine
