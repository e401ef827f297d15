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


class PermissionProfile(StrEnum):
    """What a backend may do in its folder unasked, the narrowest first. For anything more it asks."""

    #: What only reads.
    READ = "read"
    #: Changing files, too.
    EDIT = "edit"
    #: Everything.
    FULL = "full"

    @property
    def rank(self) -> int:
        return list(PermissionProfile).index(self)


Ask = Callable[[Permission], bool]
Tell = Callable[[Event], None]


def refuse(_: Permission) -> bool:
    """The answer if nobody can be asked."""
    return False


def ignore(_: Event) -> None:
    """The listener if nobody follows the task."""


class DispatchSettings(NamedTuple):
    """`[dispatch]` and `[backends.NAME]`: which agents there are, and what holds for every task for one."""

    #: Which one is taken where nobody says; the rest of them never. Empty: all that we know, in our order.
    order: tuple[str, ...] = ()
    limit_seconds: float = 3600.0
    silent_seconds: float = 300.0
    at_once: int = 4
    #: Agents beside those that we know, by name: the command line of each, which must speak ACP.
    commands: Mapping[str, tuple[str, ...]] = {}
    #: What an agent may do unasked, by its name.
    allowed_tools: Mapping[str, tuple[str, ...]] = {}
    #: What an agent may do where nobody says; None where the file does not.
    profile: PermissionProfile | None = None
    #: The backend that decides on interrupts where no person can.
    decider: str = ""

    def over(self, other: "DispatchSettings") -> "DispatchSettings":
        """Return ours where they are set, else the other's; an agent that both name is ours."""
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        given.pop("profile", None)
        given["commands"] = {**other.commands, **self.commands}
        given["allowed_tools"] = {**other.allowed_tools, **self.allowed_tools}
        return other._replace(**given, profile=self.profile)

    def narrowed(self, profile: PermissionProfile | None) -> "DispatchSettings":
        """Return them with this profile if it is narrower: a project's file can take away, and never give."""
        return self._replace(profile=min(self.own_profile, profile or self.own_profile, key=lambda each: each.rank))

    @property
    def own_profile(self) -> PermissionProfile:
        return self.profile or PermissionProfile.READ
