"""All or nothing over several files, also where the power goes in the middle.

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
from skillyard.editor.allowed_roots import Spot
from skillyard.editor.dirfd import Folder, Found, open_folders
from skillyard.store import locks


class Change(NamedTuple):
    """A file, what it held, and what it shall hold."""

    folder: Folder
    spot: Spot
    found: Found | None
    content: bytes


class Entry(NamedTuple):
    """A change with the names of what is staged for it; no old version where the file is new."""

    spot: Spot
    new: str
    old: str | None

    def as_dict(self) -> dict[str, object]:
        return {
            "anchor": str(self.spot.anchor),
            "folders": self.spot.folders,
            "name": self.spot.name,
            "new": self.new,
            "old": self.old,
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Entry":
        spot = Spot(Path(fields["anchor"]), tuple(fields["folders"]), fields["name"])
        return cls(spot, fields["new"], fields["old"])


class Recovered(NamedTuple):
    """What an earlier edit left unfinished: files that are settled now, and files that others changed since."""

    settled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.settled or self.kept)


class Record(NamedTuple):
    """A journal on the disk, locked as long as its file is open."""

    path: Path
    file: TextIO


class Journal:
    """The batches that are under way, one file for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        mark = hashlib.blake2b(str(folder).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
        self._staged = f".skillyard-edit-{mark}-"

    def commit(self, changes: Sequence[Change]) -> None:
        """Make all the changes, or none. The folders are locked."""
        entries = [self._entry(change, with_old=len(changes) > 1) for change in changes]
        try:
            for change, entry in zip(changes, entries, strict=True):
                _stage(change, entry)
            if len(changes) > 1:
                record = self._write(os.urandom(8).hex(), entries, back=False)
        except OSError:
            _drop(changes, entries)
            raise
        if len(changes) == 1:
            _swap(changes, entries)
        else:
            with record.file:
                self._swap_all(changes, entries, record)

    def recover(self) -> Recovered:
        """Settle what the dead left behind."""
        settled: list[str] = []
        kept: list[str] = []
        for record in self._dead():
            try:
                written = json.load(record.file)
                entries = [Entry.from_dict(fields) for fields in written["entries"]]
            except (ValueError, KeyError, TypeError):
                raise RuntimeFailed(
                    Message("{path} is no journal of ours: look at it, and remove it", path=record.path)
                ) from None
            with contextlib.ExitStack() as stack:
                folders = open_folders([entry.spot for entry in entries], stack, create=(), lock=True)
                for entry, folder in zip(entries, folders, strict=True):
                    if folder is not None:
                        fine = _settle(folder, entry, back=written["back"])
                        (settled if fine else kept).append(str(entry.spot.path))
                        folder.sync()
                self._forget(record)
        return Recovered(tuple(settled), tuple(kept))

    def has_dead(self) -> bool:
        return any(True for _ in self._dead())

    def sweep(self, folder: Folder) -> None:
        """Drop what the dead staged in a locked folder. No journal of theirs is left that wants it."""
        for name in folder.list():
            if name.startswith(self._staged):
                folder.remove(name)

    def _swap_all(self, changes: Sequence[Change], entries: Sequence[Entry], record: Record) -> None:
        try:
            _swap(changes, entries)
        except OSError:
            with self._write(record.path.stem, entries, back=True).file:
                for change, entry in zip(changes, entries, strict=True):
                    _settle(change.folder, entry, back=True)
                    change.folder.sync()
                self._forget(record)
            raise
        self._forget(record)
        _drop(changes, entries)

    def _entry(self, change: Change, *, with_old: bool) -> Entry:
        name = self._staged + os.urandom(8).hex()
        return Entry(change.spot, f"{name}.new", f"{name}.old" if with_old and change.found else None)

    def _write(self, name: str, entries: Sequence[Entry], *, back: bool) -> Record:
        """The journal under its name: complete, and locked from its first moment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        target, draft = self._folder / f"{name}.json", self._folder / f"{name}.draft"
        file = draft.open("w+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            json.dump({"back": back, "entries": [entry.as_dict() for entry in entries]}, file)
            file.flush()
            os.fsync(file.fileno())
            draft.replace(target)
        except OSError:
            file.close()
            draft.unlink(missing_ok=True)
            raise
        self._sync()
        return Record(target, file)

    def _forget(self, record: Record) -> None:
        record.path.unlink()
        self._sync()

    def _sync(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _dead(self) -> Iterator[Record]:
        """Journals whose writers are gone, each locked while it is looked at."""
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
                if _takes(file, path):
                    yield Record(path, file)


def _takes(file: TextIO, path: Path) -> bool:
    """Whether the lock was free, and the file is still the one of that name."""
    return locks.take(file.fileno()) and path.stat().st_ino == os.fstat(file.fileno()).st_ino


def _stage(change: Change, entry: Entry) -> None:
    change.folder.stage(entry.new, change.content, change.found)
    if change.found and entry.old:
        change.folder.stage(entry.old, change.found.content, change.found)
    change.folder.sync()


def _swap(changes: Sequence[Change], entries: Sequence[Entry]) -> None:
    for change, entry in zip(changes, entries, strict=True):
        change.folder.swap(entry.new, entry.spot.name)
    for change in changes:
        change.folder.sync()


def _drop(changes: Sequence[Change], entries: Sequence[Entry]) -> None:
    for change, entry in zip(changes, entries, strict=True):
        _remove_staged(change.folder, entry)


def _remove_staged(folder: Folder, entry: Entry) -> None:
    folder.remove(entry.new)
    if entry.old:
        folder.remove(entry.old)


def _settle(folder: Folder, entry: Entry, *, back: bool) -> bool:
    """Forward or back, however far it had come; False where others have changed the file since."""
    waiting = folder.find(entry.new) is not None
    old = folder.find(entry.old) if entry.old else None
    if waiting:
        now = folder.find(entry.spot.name)
        fine = (now and now.content) == (old and old.content)
        if fine and not back:
            folder.swap(entry.new, entry.spot.name)
    else:
        fine = True
        if back and entry.old is None:
            folder.remove(entry.spot.name)
        elif back and entry.old and old is not None:
            folder.swap(entry.old, entry.spot.name)
    _remove_staged(folder, entry)
    return fine
