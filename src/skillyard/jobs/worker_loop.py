"""A worker at work: fires what is due, stops what was cancelled, takes over from the dead, until it is told to end."""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import NamedTuple, Protocol

from skillyard.core.errors import InvalidArgs, MultiStep, NotGranted, SkillError
from skillyard.core.messages import Message
from skillyard.jobs.attempt import Attempts
from skillyard.jobs.engine import Engine, Line, Stage
from skillyard.jobs.jobs import Job, Jobs, jitter_of, tick_id
from skillyard.jobs.schedule import Schedule, beat

_TAKE_OVER_SECONDS = 3.0
_FORGET_SECONDS = 3600.0
_BACK_UP_SECONDS = 60.0
_DAY = 86_400.0


class Schedules(Protocol):
    """Everything that recurs in the project now, from files and from the timetable."""

    def __call__(self, lines: Sequence[Line]) -> tuple[Schedule, ...]: ...


class Shift(NamedTuple):
    """Everything that a worker needs, passed in."""

    engine: Engine
    jobs: Jobs
    attempts: Attempts
    schedules: Schedules
    #: A schedule's job as the skill is now.
    job_of: Callable[[Schedule], Job]
    project: str
    tell: Callable[[str], None]
    keep_days: float = 30.0
    #: How often it looks what is due.
    beat_seconds: float = 1.0
    #: Makes the hourly backup of our database, if it is due.
    back_up: Callable[[], None] = lambda: None

    def serve(self, queues: Mapping[str, int], ended: Event, on_lost: Callable[[], None], *, drain: bool) -> None:
        """Until `ended` is set, or with `drain` until nothing is queued or runs."""
        self.engine.serve(self.attempts, queues, on_lost)
        due = {self.take_over: 0.0, self.forget: 0.0, self.back_up: 0.0}
        every = {self.take_over: _TAKE_OVER_SECONDS, self.forget: _FORGET_SECONDS, self.back_up: _BACK_UP_SECONDS}
        while not ended.is_set():
            now = time.monotonic()
            acts: list[Callable[[], None]] = [self.watch, self.tick]
            for act, at in due.items():
                if now >= at:
                    acts.append(act)
                    due[act] = now + every[act]
            for act in acts:
                self._try(act)
            if drain and self._is_drained():
                return
            ended.wait(self.beat_seconds)

    def _try(self, act: Callable[[], None]) -> None:
        """A database that is away for a while is no reason to go."""
        try:
            act()
        except SkillError as error:
            self.tell(Message("{place}: {reason}", place=act.__name__, reason=error))

    def _is_drained(self) -> bool:
        try:
            return not self.engine.list(1, live=True)
        except SkillError:
            return False

    def watch(self) -> None:
        """Stop what was cancelled elsewhere."""
        for run_id in self.attempts.underway.list():
            standing = self.engine.find(run_id)
            if standing and standing.stage is Stage.CANCELLED and self.attempts.underway.stop(run_id):
                self.tell(Message("{run_id}: cancelled", run_id=run_id))

    def take_over(self) -> None:
        for dead in self.engine.take_over():
            self.tell(Message("took over from {dead}, which died", dead=dead))

    def forget(self) -> None:
        self.engine.forget_before(self.engine.now() - self.keep_days * _DAY)

    def tick(self) -> None:
        """Fire what is due. Whoever else does the same fires the same ids, and the engine takes each once."""
        lines = {line.name: line for line in self.engine.timetable.list()}
        for schedule in self.schedules(tuple(lines.values())):
            line = lines.get(schedule.name)
            if line is None or line.when != schedule.mark:
                self._begin(schedule, line)
            elif schedule.enabled and not line.paused:
                try:
                    self._fire(schedule, line)
                except (InvalidArgs, MultiStep, NotGranted) as error:  # cannot be meant, or must not: the others go on
                    self.tell(Message("{place}: {reason}", place=schedule.name, reason=error))
                    self.engine.timetable.swap(line, line._replace(until=self.engine.now()))

    def _begin(self, schedule: Schedule, line: Line | None) -> None:
        """A schedule that is new, or says another time, counts from now on."""
        fresh = (line or Line(schedule.name))._replace(when=schedule.mark, until=self.engine.now())
        if line is None:
            self.engine.timetable.put(fresh)
        else:
            self.engine.timetable.swap(line, fresh)

    def _fire(self, schedule: Schedule, line: Line) -> None:
        now = self.engine.now()
        if schedule.parsed.after(line.until, schedule.zone) > now and line.until <= now:
            return
        found = beat(schedule, line.until, now, busy=self.jobs.is_live(line.latest))
        latest = line.latest
        if found.tick is not None:
            job = self.job_of(schedule)
            if found.replaces:
                self._make_way(line.latest)
            latest = tick_id(self.project, schedule, found.tick)
            self.jobs.enqueue(job, latest, jitter_of(latest, schedule.jitter_seconds))
        if (found.until, latest) != (line.until, line.latest):
            self.engine.timetable.swap(line, line._replace(until=found.until, latest=latest))

    def _make_way(self, job_id: str) -> None:
        try:
            self.jobs.cancel(job_id)
        except SkillError as error:
            self.tell(Message("{place}: {reason}", place=job_id, reason=error))  # it ended while we looked
