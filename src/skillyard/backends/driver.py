"""What every driver of a backend agent offers, whichever way the agent speaks."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from skillyard.core.values import Json


class Told(StrEnum):
    """What an event tells: the same words for every agent."""

    STARTED = "started"
    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    USAGE = "usage"
    ERROR = "error"
    DONE = "done"


class Event(NamedTuple):
    """One thing that an agent told while it worked. `data` is small and JSON; what is said stands in `text`."""

    told: Told
    text: str = ""
    data: Mapping[str, Json] = {}


class Permission(NamedTuple):
    """What an agent asks before it does something: shown to a person, or refused."""

    tool: str
    says: str


class Turn(NamedTuple):
    """One task for an agent. `session` is the agent's own session to go on with, None for a new one."""

    text: str
    folder: Path
    session: str | None = None
    model: str | None = None
    allowed_tools: tuple[str, ...] = ()


class Installed(NamedTuple):
    """A backend's program as it was found on this machine."""

    program: Path
    version: str


class Running(Protocol):
    """An agent that is running in one folder. One turn at a time; `cancel` may come from another thread."""

    def turn(self, turn: Turn, ask: Callable[[Permission], bool]) -> Iterator[Event]:
        """Starts with STARTED (with the agent's session in its data) and ends with DONE, or raises a SkillError."""
        ...

    def cancel(self) -> None: ...

    def close(self) -> None:
        """The whole process tree is gone afterwards."""
        ...


class Driver(Protocol):
    """Knows one agent: where its program is, how it is started and what its words mean. Never prints."""

    name: str

    def find(self) -> Installed:
        """Raises AgentNotInstalled, with the command that installs it."""
        ...

    def start(self, folder: Path) -> Running: ...
