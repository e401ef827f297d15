"""A task on its way to an agent, and the seam to whoever brings it there."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from skillyard.backends.driver import Event, Permission
from skillyard.core.phrases import Lang
from skillyard.core.result import Result
from skillyard.dispatch.text import Enhanced


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


class Dispatcher(Protocol):
    """Finds or starts the agent, gives it the text, and waits. Expected failures come back as results."""

    def __call__(self, order: Order, tell: Callable[[Event], None], ask: Callable[[Permission], bool]) -> Result: ...
