"""The six states a result can be in, with the icon, the ASCII icon and the exit code of each."""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    SUCCESS = "success"
    PARTIAL = "partial"
    PENDING = "pending"
    INTERRUPTED = "interrupted"
    ERROR = "error"
    TIMEOUT = "timeout"


class Mark(NamedTuple):
    """How a state looks on a terminal, on one that knows no emoji, and to a shell."""

    icon: str
    ascii: str
    exit_code: int


MARKS = {
    State.SUCCESS: Mark("✅", "[ok]", 0),
    State.PARTIAL: Mark("⚠️", "[part]", 3),
    State.PENDING: Mark("⏸️", "[wait]", 4),
    State.INTERRUPTED: Mark("⏸️", "[wait]", 5),
    State.ERROR: Mark("❌", "[fail]", 1),
    State.TIMEOUT: Mark("⏱️", "[time]", 124),
}

#: A success that came from an idempotency key, not from a run of its own.
CACHED = Mark("⏭️", "[skip]", 0)
