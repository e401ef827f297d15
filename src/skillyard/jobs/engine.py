"""What jobs need of a durable engine: it keeps tickets and has each one worked off, whoever dies.

The engine knows the state of a ticket; what came of the work is kept by whoever did it. `dbos_engine.py` is the one
implementation; the tests have another in memory.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from skillyard.core.values import NOTHING, Json

T = TypeVar("T", bound=Json)
Acts: TypeAlias = Sequence[Callable[[], T]]


class EngineConfig(NamedTuple):
    """Where the tickets of a project are kept."""

    folder: Path
    #: What names the project there: lower-case letters, digits and dashes.
    project: str
    #: `postgresql://…`; nothing for SQLite in the folder.
    database: str = ""
    #: SQLite: whether each commit waits for the disk.
    full_sync: bool = False
    #: How often a worker looks for tickets; less than a second costs an idle one dearly.
    poll_seconds: float = 1.0
    #: How many of a queue all workers together may do at a time, where somebody said so.
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
    """The state of a ticket."""

    ticket: Ticket
    stage: Stage
    created: float
    #: What the work returned, once it is done.
    answer: Mapping[str, Json] | None = None
    trouble: str = ""


class DurableSteps(Protocol):
    """The steps of one ticket's work. A step that ended is never repeated; one under way may be."""

    def run(self, name: str, act: Callable[[], T]) -> T: ...

    def run_each(self, name: str, acts: Acts[T], at_once: int, go_on: Callable[[T], bool]) -> list[tuple[int, T]]:
        """Run a step for each act, `at_once` at a time, until `go_on` is false for a result. Return the results of
        those that started, with their positions; each is remembered by itself."""

    def follow(self, ticket: Ticket) -> None:
        """Enqueue what follows; only once, also if this work is done a second time."""

    def ended_of(self, ticket_id: str) -> Mapping[str, Json]:
        """Return the results of another ticket's steps by name; empty if it is forgotten."""


def in_order(do: Callable[[int], T], count: int, at_once: int, go_on: Callable[[T], bool]) -> list[tuple[int, T]]:
    """`run_each` for engines: with threads only if more than one may run at a time."""
    ended: list[tuple[int, T]] = []
    if at_once == 1 or count < 2:
        for position in range(count):
            ended.append((position, do(position)))
            if not go_on(ended[-1][1]):
                break
        return ended
    over = threading.Event()

    def one(position: int) -> None:
        if over.is_set():
            return
        try:
            result = do(position)
        except BaseException:
            over.set()
            raise
        ended.append((position, result))
        if not go_on(result):
            over.set()

    with ThreadPoolExecutor(min(at_once, count)) as pool:
        for _ in pool.map(one, range(count)):
            pass  # what one raised is raised here
    return sorted(ended, key=lambda each: each[0])


#: Does the work of a ticket. What it raises breaks the ticket; expected failures are answers.
Work: TypeAlias = Callable[[Ticket, DurableSteps], Mapping[str, Json]]


class TimetableEntry(NamedTuple):
    """The state of a schedule in the timetable."""

    name: str
    #: The schedule itself, if no file holds it.
    says: Mapping[str, Json] = NOTHING
    paused: bool = False
    #: Ticks up to this moment are dealt with.
    until: float = 0.0
    #: The mark of the schedule that this is for: another one starts anew.
    when: str = ""
    #: The job of the latest tick.
    latest: str = ""


class Timetable(Protocol):
    """The schedules of one project, seen by all its workers."""

    def list(self) -> tuple[TimetableEntry, ...]: ...

    def put(self, line: TimetableEntry) -> None: ...

    def drop(self, name: str) -> bool: ...

    def swap(self, before: TimetableEntry, after: TimetableEntry) -> bool:
        """Replace the entry if it is still `before`: of several workers one succeeds."""


class Engine(Protocol):
    """The tickets of one project. Any thread may call it."""

    @property
    def timetable(self) -> Timetable: ...

    def enqueue(self, ticket: Ticket) -> bool:
        """Return False if the id is known already."""

    def start(self, ticket: Ticket, work: Work, on_lost: Callable[[], None] = lambda: None) -> None:
        """Start in this process; if it dies, a worker takes over. `on_lost` as for `serve`."""

    def wait(self, ticket_id: str, seconds: float | None = None) -> TicketStatus | None:
        """Return it once it is over; None if there is none, or the time is up."""

    def cancel(self, ticket_id: str) -> bool:
        """Return False if it is over already. Whoever runs it stops the run."""

    def find(self, ticket_id: str) -> TicketStatus | None: ...

    def list(self, limit: int, *, live: bool = False) -> tuple[TicketStatus, ...]:
        """Return the latest first; `live`: only those that are not over."""

    def forget_before(self, moment: float) -> None:
        """Delete what was over by then."""

    def serve(self, work: Work, queues: Mapping[str, int], on_lost: Callable[[], None]) -> None:
        """Work off the queues until `close`, each with its limit. `on_lost`: others may think that we are dead."""

    def take_over(self) -> Sequence[str]:
        """Give the tickets of dead processes back to their queues, and return those processes."""

    def now(self) -> float:
        """The one clock of all workers."""

    def close(self, grace_seconds: float = 0.0) -> None:
        """Take nothing more, wait so long for what runs, and leave the rest to be taken over."""
