"""What a source of skills is: the protocol, what it fetches, and how much may come."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from skillyard.core.errors import SourceRefused
from skillyard.core.messages import Message

#: Tells a person how far a fetch has come.
Tell: TypeAlias = Callable[[str], None]


class Fetched(NamedTuple):
    """A folder to look for skills in, and what the source calls this state of it."""

    folder: Path
    commit: str = ""
    #: Every file was written by us, below the staging folder, and is one that a skill may have: it can be moved.
    is_ours: bool = False


class SkillSource(Protocol):
    """Where skills come from. Writes only below the staging folder; never runs anything that it fetched."""

    @property
    def text(self) -> str: ...

    @property
    def ref(self) -> str: ...

    def fetch(self, staging: Path, tell: Tell) -> Fetched: ...


class Limits(NamedTuple):
    total_bytes: int = 512 * 1024 * 1024
    files: int = 20_000
    #: Unpacked over packed; only asked where more than `free_bytes` come out.
    ratio: int = 100
    free_bytes: int = 16 * 1024 * 1024
    path_bytes: int = 1024
    #: For a fetch from another place, whole.
    seconds: float = 300.0

    def check(self, files: int = 0, total_bytes: int = 0) -> None:
        """SourceRefused if these are too many."""
        if files > self.files:
            raise SourceRefused(Message("more than {files} files", files=self.files))
        if total_bytes > self.total_bytes:
            raise SourceRefused(Message("more than {total_bytes} bytes", total_bytes=self.total_bytes))


LIMITS = Limits()
