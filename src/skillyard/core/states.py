"""The six states of a result, with the icon, the ASCII icon and the exit code of each."""

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
    """How a state appears on a terminal, on one without emoji, and to a shell."""

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

#: A success that repeats an earlier run because of an idempotency key.
CACHED = Mark("⏭️", "[skip]", 0)
