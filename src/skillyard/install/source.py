"""What a source is: something that fetches a folder of skills, and the seam to all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

#: Tells a person how far a fetch has come.
Tell: TypeAlias = Callable[[str], None]


class Fetched(NamedTuple):
    """What came: a folder to look for skills in, and what its source calls this state of it."""

    folder: Path
    commit: str = ""
    #: Every file was written by us, below the staging folder, and is one that a skill may have: it can be moved.
    is_ours: bool = False


class Source(Protocol):
    """Where skills come from. Writes only below the staging folder; never runs anything that it fetched."""

    @property
    def text(self) -> str: ...

    @property
    def ref(self) -> str: ...

    def fetch(self, staging: Path, tell: Tell) -> Fetched: ...
