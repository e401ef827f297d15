"""A task on its way to an agent, and the seam to whoever brings it there."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from skillyard.backends.driver import Ask, Event, refuse
from skillyard.core.messages import Lang
from skillyard.core.result import Result
from skillyard.core.values import NOTHING, Json
from skillyard.dispatch.contents import Unreadable
from skillyard.dispatch.text import Enhanced
from skillyard.sandbox.cancel_token import Stop

Tell = Callable[[Event], None]


def tell_nobody(_: Event) -> None:
    """Where nobody looks."""


class Prompt(NamedTuple):
    """The prompt skill whose text the task is: the run counts as a run of it."""

    #: By its frontmatter, as the caller named it, and what a person calls it.
    name: str
    asked_as: str
    label: str


class Order(NamedTuple):
    """Everything that is decided before an agent is looked for."""

    #: As the caller wrote it; `enhanced.text` is what the agent gets.
    task: str
    enhanced: Enhanced
    #: The agent's working directory.
    folder: Path
    #: Ours, never the agent's own session; None for a task that nothing follows.
    conversation: str | None = None
    #: A backend's name; None for the first healthy one in the configured order.
    to: str | None = None
    model: str | None = None
    limit_seconds: float | None = None
    lang: Lang = Lang.EN
    #: Active skills that could not be read, and so do not go along.
    unreadable: tuple[Unreadable, ...] = ()
    prompt: Prompt | None = None
    #: No tools at all: nothing is allowed, and an agent that uses one all the same is stopped.
    alone: bool = False
    #: What needs no asking, beside what the user allows this backend.
    allowed_tools: tuple[str, ...] = ()
    #: How often the agent may go back to its model, where it can be told so.
    max_turns: int | None = None
    #: The run's id, where whoever asks has one already; and the job that it is an attempt of.
    run: str = ""
    job: Mapping[str, Json] = NOTHING

    def as_data(self) -> dict[str, Json]:
        """What is known of it before it is handed over; the same in a dry run and in a result."""
        enhanced = self.enhanced
        skills: list[Json] = [
            {
                "name": skill.name,
                "path": skill.path,
                "session": skill.conversation or None,
                "characters": len(skill.content),
            }
            for skill in enhanced.skills
        ]
        marked: list[Json] = [
            {"name": skill.name, "path": skill.path, "imitates": list(skill.imitates)} for skill in enhanced.marked
        ]
        return {
            "text": enhanced.text,
            "skills": skills,
            "omitted": [skill.name for skill in enhanced.omitted],
            "marked": marked,
            "unreadable": [skill._asdict() for skill in self.unreadable],
            "characters": enhanced.characters,
            "newline_added": enhanced.shielded,
            "to": self.to,
            "session": self.conversation,
            "model": self.model,
            "cwd": str(self.folder),
        }


class Dispatcher(Protocol):
    """Finds or starts the agent, gives it the text, and waits. Expected failures come back as results.

    `tell` hears what the agent does while it does it, `ask` answers what it wants to be allowed, `stop` ends it from
    another thread.
    """

    def __call__(
        self, order: Order, tell: Tell = tell_nobody, ask: Ask = refuse, stop: Stop | None = None
    ) -> Result: ...
