"""An engine that forgets: for tests, and to show what the others must do.

Covered: everything but death. Nothing is kept when the process ends.
"""

import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from skillyard.core.values import Json
from skillyard.jobs.dbos_engine import DatabaseTimetable, DurableEngine, DurableSteps, T, in_order
from skillyard.jobs.engine import Stage, Ticket, TicketStatus, TimetableEntry, Work


class MemoryEngine(DurableEngine):
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.timetable = MemoryTimetable()
        self._now = now
        self._changed = threading.Condition()
        self._known: dict[str, TicketStatus] = {}
        #: What the steps of each ticket gave.
        self.ended: dict[str, dict[str, Json]] = {}
        self._waiting: dict[str, list[tuple[float, int, str]]] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False

    def enqueue(self, ticket: Ticket) -> bool:
        with self._changed:
            if ticket.id in self._known:
                return False
            self._known[ticket.id] = TicketStatus(ticket, Stage.QUEUED, self._now())
            waiting = self._waiting.setdefault(ticket.queue, [])
            heapq.heappush(waiting, (time.monotonic() + ticket.delay_seconds, len(self._known), ticket.id))
            self._changed.notify_all()
        return True

    def start(self, ticket: Ticket, work: Work, on_lost: Callable[[], None] = lambda: None) -> None:  # noqa: ARG002
        with self._changed:
            if ticket.id in self._known:
                return
            self._known[ticket.id] = TicketStatus(ticket, Stage.RUNNING, self._now())
        thread = threading.Thread(target=self._do, args=(ticket, work), daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self, ticket_id: str, seconds: float | None = None) -> TicketStatus | None:
        with self._changed:
            if ticket_id not in self._known:
                return None
            over = self._changed.wait_for(lambda: self._known[ticket_id].stage.is_over, seconds)
            return self._known[ticket_id] if over else None

    def cancel(self, ticket_id: str) -> bool:
        with self._changed:
            standing = self._known.get(ticket_id)
            if standing is None or standing.stage.is_over:
                return False
            self._put(standing._replace(stage=Stage.CANCELLED))
        return True

    def find(self, ticket_id: str) -> TicketStatus | None:
        with self._changed:
            return self._known.get(ticket_id)

    def list(self, limit: int, *, live: bool = False) -> tuple[TicketStatus, ...]:
        with self._changed:
            found = [each for each in self._known.values() if not (live and each.stage.is_over)]
        return tuple(reversed(found))[:limit]

    def forget_before(self, moment: float) -> None:
        with self._changed:
            self._known = {
                name: each for name, each in self._known.items() if not each.stage.is_over or each.created >= moment
            }

    def serve(self, work: Work, queues: Mapping[str, int], on_lost: Callable[[], None]) -> None:  # noqa: ARG002
        for queue, count in queues.items():
            for _ in range(count):
                thread = threading.Thread(target=self._serve, args=(queue, work), daemon=True)
                self._threads.append(thread)
                thread.start()

    def take_over(self) -> Sequence[str]:
        return ()

    def now(self) -> float:
        return self._now()

    def close(self, grace_seconds: float = 0.0) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(grace_seconds)

    def _serve(self, queue: str, work: Work) -> None:
        while ticket := self._claim(queue):
            self._do(ticket, work)

    def _claim(self, queue: str) -> Ticket | None:
        with self._changed:
            while not self._closed:
                waiting = self._waiting.get(queue)
                left = waiting[0][0] - time.monotonic() if waiting else None
                if not waiting or (left is not None and left > 0):
                    self._changed.wait(left)
                    continue
                standing = self._known.get(heapq.heappop(waiting)[2])
                if standing and standing.stage is Stage.QUEUED:
                    self._put(standing._replace(stage=Stage.RUNNING))
                    return standing.ticket
        return None

    def _do(self, ticket: Ticket, work: Work) -> None:
        stage, answer, trouble = Stage.DONE, None, ""
        try:
            answer = work(ticket, _MemorySteps(self, ticket.id))
        except Exception as error:  # noqa: BLE001  (a bug in the work must not take the engine down)
            stage, trouble = Stage.BROKEN, f"{type(error).__name__}: {error}"
        with self._changed:
            standing = self._known[ticket.id]
            if not standing.stage.is_over:
                self._put(standing._replace(stage=stage, answer=answer, trouble=trouble))

    def _put(self, standing: TicketStatus) -> None:
        self._known[standing.ticket.id] = standing
        self._changed.notify_all()


class _MemorySteps(DurableSteps):
    def __init__(self, engine: MemoryEngine, ticket_id: str) -> None:
        self._engine = engine
        self._ended = engine.ended.setdefault(ticket_id, {})

    def run(self, name: str, act: Callable[[], T]) -> T:
        result = act()
        self._ended.setdefault(name, result)
        return result

    def run_each(
        self, name: str, acts: Sequence[Callable[[], T]], at_once: int, go_on: Callable[[T], bool]
    ) -> list[tuple[int, T]]:
        return in_order(lambda position: self.run(f"{name}[{position}]", acts[position]), len(acts), at_once, go_on)

    def ended_of(self, ticket_id: str) -> Mapping[str, Json]:
        return dict(self._engine.ended.get(ticket_id, {}))

    def follow(self, ticket: Ticket) -> None:
        self._engine.enqueue(ticket)


class MemoryTimetable(DatabaseTimetable):
    def __init__(self) -> None:
        self._lines: dict[str, TimetableEntry] = {}
        self._lock = threading.Lock()

    def list(self) -> tuple[TimetableEntry, ...]:
        with self._lock:
            return tuple(sorted(self._lines.values()))

    def put(self, line: TimetableEntry) -> None:
        with self._lock:
            self._lines[line.name] = line

    def drop(self, name: str) -> bool:
        with self._lock:
            return self._lines.pop(name, None) is not None

    def swap(self, before: TimetableEntry, after: TimetableEntry) -> bool:
        with self._lock:
            if self._lines.get(before.name) != before:
                return False
            self._lines[before.name] = after
            return True
