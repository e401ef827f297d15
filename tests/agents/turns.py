"""What the stub model does next: one turn for one request of an agent."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

Json = Any


class Break(StrEnum):
    """How a stream breaks after its text."""

    #: Nothing at all is streamed, not even the text.
    EMPTY = "empty"
    #: The connection is closed, as if that were the end; or reset.
    CLOSED = "closed"
    RESET = "reset"
    #: It is closed in the middle of a line of JSON.
    IN_A_LINE = "in a line"
    #: All is there but the event that ends it.
    NO_END = "no end"
    #: The provider reports an error in the stream.
    ERROR = "error"
    #: It does not break: the events that end it come twice.
    TWO_ENDS = "two ends"


class Turn(NamedTuple):
    """Some text, then perhaps a call of a tool; or an error instead. `holds` waits after the text for the release."""

    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Json] = {}
    status: int = 200
    message: str = ""
    times: int | None = None
    holds: bool = False
    then: str = ""
    #: How the stream ends if it does not end well: a `Break`.
    breaks: str = ""
    #: The id of the message, else a new one each time.
    message_id: str = ""


def answer(text: str) -> Turn:
    """The model says this, in several pieces, and is done."""
    return Turn(text=text)


def call(tool: str, arguments: Mapping[str, Json] | None = None, text: str = "") -> Turn:
    """The model calls a tool, by its own name or by the end of it: `skill_run` finds `mcp__skillyard__skill_run`.

    The result comes with the agent's next request, which takes the next turn.
    """
    return Turn(text=text, tool=tool, arguments=arguments or {})


def error(status: int, message: str, times: int | None = None) -> Turn:
    """The model fails. The agent's retries of the same request fail too: always, or until it failed `times` times."""
    return Turn(status=status, message=message, times=times)


def hang(text: str = "", then: str = "Released.") -> Turn:
    """The model begins, says `text`, and then nothing until `Stub.release()`; then it says `then` and is done."""
    return Turn(text=text, holds=True, then=then)


def broken(text: str, how: Break) -> Turn:
    """The model says `text`, and then its stream breaks. A retry of the agent takes the next turn."""
    return Turn(text=text, breaks=how)


def with_one_id(*turns: Turn) -> list[Turn]:
    """Give the messages of the turns one id, as a provider that answers a retry with the same one."""
    return [turn._replace(message_id="msg_00000000000000000001") for turn in turns]


def pieces(text: str) -> list[str]:
    """Always several, so that nobody gets by who reads only one; a character is never cut."""
    size = max(1, -(-len(text) // 4))
    return [text[start : start + size] for start in range(0, len(text), size)]
