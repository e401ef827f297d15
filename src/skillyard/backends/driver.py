"""What every driver of a backend agent offers, whichever way the agent speaks."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from skillyard.backends.programs import Installed
from skillyard.core.values import NOTHING, Json


class Told(StrEnum):
    """What an event tells: the same words for every agent."""

    #: `data.session` is the agent's own session, `data.model` its model where it says so.
    STARTED = "started"
    #: A piece of what the agent says, as it comes.
    TEXT = "text"
    #: `text` is the tool's name; `data` has `id`, and `input`, shortened.
    TOOL_CALL = "tool_call"
    #: `text` is what came of it, shortened; `data` has the call's `id`, and `ok`.
    TOOL_RESULT = "tool_result"
    #: Tokens so far in this turn, as far as the agent tells: `data` has `input`, `output`, some agents `cost`.
    USAGE = "usage"
    #: Something failed and the agent tries again. What ends a turn is raised instead.
    ERROR = "error"
    #: Ours, before any agent is started: what has to be waited for.
    WAITING = "waiting"
    #: `text` is the answer: what was said after the last tool. `data` has `session`, and `stop`: a `Stop`.
    DONE = "done"


class Stop(StrEnum):
    """Why a turn is over."""

    END = "end"
    #: Somebody called `cancel`. The agent is gone; its session can be gone on with.
    CANCELLED = "cancelled"
    #: The agent gave up in its own way: out of tokens, out of steps, a refusal. `data.reason` is its word.
    CUT = "cut"


class Event(NamedTuple):
    """One thing that an agent told while it worked. `data` is small and JSON; what is said stands in `text`."""

    told: Told
    text: str = ""
    data: Mapping[str, Json] = NOTHING


class Permission(NamedTuple):
    """What an agent asks before it does something: shown to a person, or refused."""

    tool: str
    says: str


Ask = Callable[[Permission], bool]


def refuse(_: Permission) -> bool:
    """The answer where nobody can be asked."""
    return False


class Start(NamedTuple):
    """What holds for as long as an agent runs. `session` is the agent's own to go on with, None for a new one.

    `allowed_tools` need no asking: names as the agent's permission requests have them; claude also takes its patterns.
    """

    folder: Path
    session: str | None = None
    model: str | None = None
    allowed_tools: tuple[str, ...] = ()
    #: How often it may go back to its model; only for a driver that `bounds_turns`.
    max_turns: int | None = None


class Turn(NamedTuple):
    """One task. An agent that says nothing for `silent_seconds`, while no tool of it runs, hangs."""

    text: str
    silent_seconds: float = 300.0
    limit_seconds: float = 3600.0


class Running(Protocol):
    """An agent that is running in one folder, in one session: one turn at a time."""

    #: The agent's own session, once it is known.
    session: str | None

    def turn(self, turn: Turn, ask: Ask = refuse) -> Iterator[Event]:
        """Starts with STARTED and ends with DONE, or raises: BackendFailed, Timeout, AgentTooOld.

        `ask` is called between two events, by the thread that iterates. Whoever stops iterating before the end, and
        whatever raises, ends the agent.
        """
        ...

    def hello(self, limit_seconds: float) -> None:
        """Only the handshake, which no model has a part in. Raises as a turn does."""
        ...

    def alive(self) -> bool:
        """Whether another turn can come: it runs, and nobody closed it. From any thread."""
        ...

    def cancel(self) -> None:
        """From any thread: the turn ends with DONE (`cancelled`), and the agent with it. Returns at once."""
        ...

    def close(self) -> None:
        """The whole process tree is gone afterwards. From any thread, more than once."""
        ...


class Driver(Protocol):
    """Knows one agent: where its program is, how it is started and what its words mean. Never prints."""

    name: str
    #: Whether the agent can be told how many turns it has.
    bounds_turns: bool

    def locate(self) -> Path:
        """Cheap. Raises AgentNotInstalled, with the command that installs it."""
        ...

    def find(self) -> Installed:
        """With its version, which takes a program start. Raises AgentNotInstalled, AgentTooOld."""
        ...

    def start(self, start: Start) -> Running:
        """Raises AgentNotInstalled, TooDeep, BackendFailed."""
        ...
