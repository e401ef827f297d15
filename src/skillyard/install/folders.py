"""Sources on this machine: a folder as it is, and an archive file."""

from pathlib import Path
from typing import NamedTuple

from skillyard.core.messages import Message
from skillyard.install.archive import extract
from skillyard.install.source import Fetched, Tell


class FolderSource(NamedTuple):
    """Nothing is copied to look at it; what is installed is checked against what was looked at."""

    text: str
    folder: Path
    ref: str = ""

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        del staging, tell
        return Fetched(self.folder)


class ArchiveSource(NamedTuple):
    text: str
    file: Path
    ref: str = ""

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        tell(Message("unpacking {name}", name=self.file.name))
        extract(self.file, staging / "files")
        return Fetched(staging / "files")
