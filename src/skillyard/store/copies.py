"""Private copies of folders that a person approved: what runs with a grant runs from here.

A folder can change between the moment when its hash is compared with the grant and the moment when its program
starts, or later, when the program imports a module. A copy cannot: it is named by the hash of its content, nothing
that runs can write to it, and it is hashed again before each use.

The copies lie beside our own home, which is hidden from every run. They are only a cache: a missing or damaged copy is
made again from the folder. Copies that were not used for a month are removed, and the oldest where there are too many.

Covered: a skill, a project or an agent that changes the folder at any moment.
Not covered: a process of the same user that changes a copy after it was checked.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.fingerprint import FolderHashes, hash_folder
from skillyard.core.errors import SkillError, StoreFailed

#: The folder of all copies is named like our home, with this at its end.
COPIES_SUFFIX = "-approved"
_FILES, _NOTES = "files", "notes.json"
_DAY = 86_400
_KEPT_DAYS = 30
_MOST_COPIES, _MOST_BYTES = 300, 4 << 30


class FolderCopy(NamedTuple):
    """A folder as it was approved."""

    marks: FolderHashes
    #: The copied files.
    files: Path

    @property
    def notes(self) -> Path:
        """A file beside them that caches what was read from them."""
        return self.files.parent / _NOTES


class Copies:
    def __init__(self, own_home: Path) -> None:
        real = own_home.resolve()
        self.home = real.with_name(f"{real.name}{COPIES_SUFFIX}")

    def find(self, marks: FolderHashes) -> FolderCopy | None:
        """Return the copy of this content, if it exists and is undamaged."""
        files = self.home / marks.content / _FILES
        try:
            if hash_folder(files).content != marks.content:
                return None
        except (OSError, SkillError):
            return None
        with contextlib.suppress(OSError):
            os.utime(files.parent)
        return FolderCopy(marks, files)

    def make(self, folder: Path, *, in_role: bool = False) -> FolderCopy:
        """Copy a folder while hashing it. The caller must compare the marks of the copy with the grant."""
        from shutil import rmtree  # noqa: PLC0415  (only the first run of a version copies)

        fresh = self.home / f".{os.urandom(8).hex()}"
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._prune()
            fresh.mkdir(mode=0o700)
            marks = hash_folder(folder, fresh / _FILES, in_role=in_role)
            place = self.home / marks.content
            try:
                fresh.rename(place)
            except OSError:  # somebody else was first, with the same bytes; or what is there is damaged
                if found := self.find(marks):
                    return found
                place.rename(self.home / f".{os.urandom(8).hex()}")
                fresh.rename(place)
            return FolderCopy(marks, place / _FILES)
        except OSError as error:
            raise StoreFailed(f"{self.home}: {error.strerror}") from None
        finally:
            rmtree(fresh, ignore_errors=True)

    def _prune(self) -> None:
        """Remove old copies, never one that was used within the last day."""
        from shutil import rmtree  # noqa: PLC0415

        now, total, listed = time.time(), 0, []
        for entry in os.scandir(self.home):
            with contextlib.suppress(FileNotFoundError):
                listed.append((entry.stat().st_mtime, Path(entry.path)))
        for count, (used, place) in enumerate(sorted(listed, reverse=True)):
            for folder, _, names in os.walk(place):
                total += sum(os.lstat(f"{folder}/{name}").st_size for name in names)
            is_too_much = count >= _MOST_COPIES or total > _MOST_BYTES
            if now - used > _KEPT_DAYS * _DAY or (is_too_much and now - used > _DAY):
                rmtree(place, ignore_errors=True)
