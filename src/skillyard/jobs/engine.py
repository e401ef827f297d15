"""What jobs and the durable engine exchange. `dbos_engine.py` is the engine; the tests have another in memory.

The engine knows the state of a ticket; what came of the work is kept by whoever did it.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from skillyard.core.values import NOTHING, Json

if TYPE_CHECKING:
    from skillyard.jobs.dbos_engine import DurableSteps


class EngineConfig(NamedTuple):
    """Where the tickets of a project are kept: `EngineSettings` of the user and the project, put together."""

    folder: Path
    #: What names the project there: lower-case letters, digits and dashes.
    project: str
    database: str = ""
    full_sync: bool = False
    #: Less than a second costs an idle worker dearly.
    poll_seconds: float = 1.0
    limits: Mapping[str, int] = {}


class Ticket(NamedTuple):
    """Work to do, in plain JSON: another version of us, on another machine, reads it."""

    id: str
    queue: str
    body: Mapping[str, Json]
    delay_seconds: float = 0.0


class Stage(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    #: The work raised, or whoever did it died too often.
    BROKEN = "broken"

    @property
    def is_over(self) -> bool:
        return self not in {Stage.QUEUED, Stage.RUNNING}


class TicketStatus(NamedTuple):
    ticket: Ticket
    stage: Stage
    created: float
    answer: Mapping[str, Json] | None = None
    trouble: str = ""


#: Does the work of a ticket. What it raises breaks the ticket; expected failures are answers.
Work: TypeAlias = "Callable[[Ticket, DurableSteps], Mapping[str, Json]]"


class TimetableEntry(NamedTuple):
    name: str
    #: The schedule itself, if no file holds it.
    says: Mapping[str, Json] = NOTHING
    paused: bool = False
    #: Ticks up to this moment are dealt with.
    until: float = 0.0
    #: The mark of the schedule that this is for: another one starts anew.
    when: str = ""
    latest: str = ""
