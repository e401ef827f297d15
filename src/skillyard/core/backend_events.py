"""What a backend reports while it works on a task, what it asks before it does something, and its settings."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from skillyard.core.values import NOTHING, Json


class EventKind(StrEnum):
    """The same kinds for every backend."""

    #: `data.session` is the backend's own session, `data.model` its model if it reports one.
    STARTED = "started"
    #: A piece of the answer, as it arrives.
    TEXT = "text"
    #: `text` is the tool's name; `data` has `id` and the shortened `input`.
    TOOL_CALL = "tool_call"
    #: `text` is the shortened output; `data` has the call's `id`, and `ok`.
    TOOL_RESULT = "tool_result"
    #: Tokens of this turn so far: `data` has `input`, `output` and, for some backends, `cost`.
    USAGE = "usage"
    #: Something failed and the backend tries again. An error that ends the turn is raised instead.
    ERROR = "error"
    #: Reported by us before a backend is started: what the task waits for.
    WAITING = "waiting"
    #: Reported by us: something about the task that a person should know.
    NOTE = "note"
    #: `text` is the answer: the text after the last tool call. `data` has `session`, and `stop`: a `TurnEnd`.
    DONE = "done"


class TurnEnd(StrEnum):
    """Why a turn is over."""

    END = "end"
    #: `cancel` was called. The backend has ended; its session can be resumed.
    CANCELLED = "cancelled"
    #: The backend gave up: out of tokens, out of steps, a refusal. `data.reason` is its own word.
    CUT = "cut"


class Event(NamedTuple):
    """One thing that a backend reported. `data` is small JSON; longer text is in `text`."""

    kind: EventKind
    text: str = ""
    data: Mapping[str, Json] = NOTHING


class Permission(NamedTuple):
    """What a backend asks to be allowed."""

    tool: str
    says: str


Ask = Callable[[Permission], bool]
Tell = Callable[[Event], None]


def refuse(_: Permission) -> bool:
    """The answer if nobody can be asked."""
    return False


def ignore(_: Event) -> None:
    """The listener if nobody follows the task."""
