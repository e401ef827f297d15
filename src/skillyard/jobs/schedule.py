"""Schedules: what recurs, when, and what to do if a tick was missed or the run before has not ended.

A schedule comes from `skillyard jobs add`, and is kept in the engine's timetable, or from the `schedule` entries of an
agents/<role>/agent.yaml, and counts if a person trusts that role.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.catalog.agentfile import as_interval, read_role
from skillyard.catalog.cron import When, parse_when, parse_zone
from skillyard.catalog.roots import AGENT_FILE
from skillyard.catalog.scan import stamp_of
from skillyard.core.capability import ON_FAILURE, SCHEDULE
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.values import NOTHING, Json
from skillyard.jobs.engine import TimetableEntry

#: A later tick was missed.
GRACE_SECONDS = 60.0
#: An `until` further ahead was written by a clock that was wrong.
_MOST_AHEAD_SECONDS = 3600.0
_MOST_TICKS = 1000
#: How often a worker asks whether a role is still trusted.
_TRUST_SECONDS = 5.0
#: What a job or a schedule of a workflow has before its name, in place of a skill's.
PREFIX = "flow:"
#: The keys of an entry that mean the same in a schedule.
_AS_THEY_ARE = ("enabled", "action", "params", "task", "to", "session", "retries", "queue")


class Misfire(StrEnum):
    """What happens to ticks while no worker ran."""

    RUN_ONCE = "run-once"
    RUN_ALL = "run-all"
    SKIP = "skip"


class Overlap(StrEnum):
    """What happens to a tick while the run before it has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class Schedule(NamedTuple):
    name: str
    when: str
    timezone: str = "UTC"
    enabled: bool = True
    skill: str = ""
    args: tuple[str, ...] = ()
    action: str = ""
    params: Mapping[str, Json] = NOTHING
    #: A Task prompt instead of a skill.
    task: str = ""
    #: For a task that goes to a backend: which one, and the conversation that it resumes.
    to: str = ""
    session: str = ""
    model: str = ""
    retries: int = 0
    timeout_seconds: float | None = None
    misfire: Misfire = Misfire.RUN_ONCE
    overlap: Overlap = Overlap.SKIP
    jitter_seconds: float = 0.0
    #: A command, or the address of a webhook.
    on_failure: str = ""
    queue: str = "default"
    #: The file that it comes from, relative to the project; empty for `jobs add`.
    source: str = ""

    @property
    def parsed(self) -> When:
        return parse_when(self.when)

    @property
    def zone(self) -> tzinfo:
        return parse_zone(self.timezone)

    @property
    def mark(self) -> str:
        """What the ticks depend on: a schedule with another mark starts anew."""
        return f"{self.when} {self.timezone}"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What its role must be trusted with."""
        return (SCHEDULE, ON_FAILURE) if self.on_failure else (SCHEDULE,)

    def as_mapping(self) -> dict[str, Json]:
        fields: dict[str, Any] = self._asdict()
        fields.update(args=list(self.args), params=dict(self.params))
        return {name: value for name, value in fields.items() if value != self._field_defaults.get(name)}

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> "Schedule":
        known = {name: value for name, value in fields.items() if name in cls._fields}
        schedule = cls(**{"name": "", "when": "", **known})
        misfire, overlap = Misfire(schedule.misfire), Overlap(schedule.overlap)
        return checked(schedule._replace(args=tuple(schedule.args), misfire=misfire, overlap=overlap))


def checked(schedule: Schedule) -> Schedule:
    """Return the schedule. Raise InvalidArgs if it contradicts itself."""
    _ = schedule.parsed, schedule.zone
    name = schedule.name
    if bool(schedule.skill) == bool(schedule.task):
        raise InvalidArgs(Message("schedule {name!r} needs a skill or a task, and not both", name=name))
    if schedule.skill and (schedule.to or schedule.session or schedule.model):
        raise InvalidArgs(Message("schedule {name!r}: a backend, session or model goes with a task", name=name))
    if schedule.misfire is Misfire.RUN_ALL and schedule.overlap is not Overlap.QUEUE:
        raise InvalidArgs(Message("misfire run-all needs overlap queue: missed runs follow each other"))
    if schedule.retries < 0 or schedule.jitter_seconds < 0:
        raise InvalidArgs(Message("schedule {name!r}: retries and jitter are not negative", name=name))
    return schedule


#: A stamp of a role's file, and its schedules.
_Read = tuple[object, tuple[Schedule, ...]]


class Beat(NamedTuple):
    """Until when ticks are dealt with, the tick to run now, and whether it replaces the run before."""

    until: float
    tick: float | None = None
    replaces: bool = False


def beat(schedule: Schedule, until: float, now: float, *, busy: bool) -> Beat:
    """Return at most one tick; the next call takes the next."""
    if until > now + _MOST_AHEAD_SECONDS:
        return Beat(now)
    due = _due(schedule, until, now)
    if not due:
        return Beat(until)
    on_time = [tick for tick in due if tick >= now - GRACE_SECONDS]
    chosen = due if schedule.misfire is Misfire.RUN_ALL else on_time
    if schedule.misfire is Misfire.RUN_ONCE and not on_time:
        chosen = due[-1:]
    if not chosen or (busy and schedule.overlap is Overlap.SKIP):
        return Beat(due[-1])
    if schedule.overlap is not Overlap.QUEUE:
        return Beat(due[-1], chosen[-1], replaces=busy)
    if busy:
        return Beat(until)
    return Beat(chosen[0] if len(chosen) > 1 else due[-1], chosen[0])


def _due(schedule: Schedule, until: float, now: float) -> list[float]:
    """Ticks after `until` up to now; if there are very many, only those of the grace time count."""
    due = list(islice(_ticks(schedule, until, now), _MOST_TICKS))
    if len(due) == _MOST_TICKS:
        due += _ticks(schedule, max(due[-1], now - GRACE_SECONDS), now)
    return due


def _ticks(schedule: Schedule, since: float, now: float) -> Iterator[float]:
    when, zone = schedule.parsed, schedule.zone
    tick = when.after(since, zone)
    while tick <= now:
        yield tick
        tick = when.after(tick, zone)


def from_agent(entries: Sequence[Mapping[str, Any]], role: str, zone: str) -> tuple[Schedule, ...]:
    """Return the `schedule` entries of agents/<role>/agent.yaml, of which `read_role` left out those with mistakes."""
    found: dict[str, Schedule] = {}
    for entry in entries:
        cron, skill, flow, told = (entry.get(key) for key in ("cron", "skill", "flow", "on_failure"))
        name = base = f"{role}/{entry.get('name') or skill or flow or 'task'}"
        count = 2
        while name in found:
            name, count = f"{base}-{count}", count + 1
        misfire, overlap = policies(entry.get("misfire"), entry.get("overlap"))
        found[name] = Schedule(
            name=name,
            when=cron or as_interval(entry["interval"]),
            timezone=entry.get("timezone") or zone,
            skill=f"{PREFIX}{flow}" if flow else f"{role}/{skill}" if skill else "",
            timeout_seconds=entry.get("timeout"),
            misfire=misfire,
            overlap=overlap,
            jitter_seconds=entry.get("jitter", 0.0),
            on_failure=told.get("command") or told["webhook"] if told else "",
            source=f"agents/{role}/agent.yaml",
            **{key: entry[key] for key in _AS_THEY_ARE if key in entry},
        )
    return tuple(found.values())


def policies(misfire: str | None, overlap: str | None) -> tuple[Misfire, Overlap]:
    """Return both with their defaults: missed runs that are all to be done follow each other."""
    missed = Misfire((misfire or Misfire.RUN_ONCE).replace("_", "-"))
    return missed, Overlap(overlap or (Overlap.QUEUE if missed is Misfire.RUN_ALL else Overlap.SKIP))


def local_zone(env: Mapping[str, str] = os.environ) -> str:
    """Return this machine's time zone by name; UTC if it is unknown."""
    said = env.get("TZ", "").removeprefix(":")
    link = Path("/etc/localtime")
    names = [said, str(link.resolve()).partition("zoneinfo/")[2] if link.is_symlink() else ""]
    for name in filter(None, names):
        try:
            parse_zone(name)
        except InvalidArgs:
            continue
        return name
    return "UTC"


class ProjectSchedules:
    """The schedules of the timetable, and those of roles that `is_trusted` with a capability.

    A role's file is read again when it changes. An entry with a mistake is left out; a file without any valid entry
    keeps what it said before. Both are reported, and so is, for a worker's language, whatever changes in what is served
    and in what waits for trust.
    """

    def __init__(
        self,
        root: Path,
        is_trusted: Callable[[str, str], bool],
        tell: Callable[[str], None],
        announce: Lang | None = None,
    ) -> None:
        self._root, self._is_trusted, self._tell, self._announce = root, cache(is_trusted), tell, announce
        self._zone = local_zone()
        self._read: dict[Path, _Read] = {}
        self._asked = 0.0
        self._unread: set[str] = set()
        self._served: object = None
        self._waiting = ""
        #: By role: the first mistake of its file, with its line.
        self.mistakes: dict[str, str] = {}

    def __call__(self, lines: Sequence[TimetableEntry]) -> tuple[Schedule, ...]:
        found: list[Schedule] = []
        for line in lines:
            try:
                found += [Schedule.from_mapping(line.says)] if line.says else []
            except (SkillError, ValueError, TypeError) as error:  # perhaps a newer version wrote it
                if line.name not in self._unread:
                    self._unread.add(line.name)
                    self._tell(Message("the schedule {name} cannot be read: {error}", name=line.name, error=error))
        found += [each for each in self._list_roles() if self._is_allowed(each)]
        if self._announce:
            self._report(found, {line.name for line in lines if line.paused}, self._announce)
        return tuple(found)

    def untrusted(self) -> tuple[Schedule, ...]:
        """Return what the files ask for and nobody trusted."""
        return tuple(each for each in self._list_roles() if not self._is_allowed(each))

    def _list_roles(self) -> Iterator[Schedule]:
        files = sorted((self._root / "agents").glob(f"*/{AGENT_FILE}"))
        self._read = {file: self._read_role(file, self._read.get(file, ("", ()))) for file in files}
        return (schedule for _, found in self._read.values() for schedule in found)

    def _read_role(self, file: Path, before: _Read) -> _Read:
        """Return the stamp of the file and its schedules: those from `before` if nothing has changed."""
        stamp = stamp_of(str(file))
        if stamp == before[0]:
            return before
        role = read_role(file)
        self.mistakes.pop(role.name, None)
        found = from_agent(role.schedule, role.name, self._zone)
        if mistake := role.unscheduled:
            self.mistakes[role.name] = mistake
            hint = Message("{first}; `skillyard role validate {role}` tells what to do", first=mistake, role=role.name)
            self._tell(hint)
            found = found or before[1]
        return stamp, found

    def _is_allowed(self, schedule: Schedule) -> bool:
        """Ask again every few seconds: a grant is for the bytes of the role's whole folder. It is checked once more
        when a tick fires."""
        if time.monotonic() - self._asked > _TRUST_SECONDS:
            self._asked = time.monotonic()
            self._is_trusted.cache_clear()
        return all(self._is_trusted(schedule.source, capability) for capability in schedule.capabilities)

    def _report(self, found: Sequence[Schedule], paused: set[str], lang: Lang) -> None:
        served = [each for each in found if each.enabled and each.name not in paused]
        mark = [(each.name, each.mark) for each in served]
        if mark != self._served:
            self._served = mark
            ticks = [(each.parsed.after(time.time(), each.zone), each.name, each.zone) for each in served]
            text = Message("nothing is scheduled")
            if ticks:
                tick, name, zone = min(ticks, key=lambda each: each[0])
                when = datetime.fromtimestamp(tick, zone).isoformat(timespec="seconds")
                text = Message("{count} scheduled, next: {name} at {when}", count=len(served), name=name, when=when)
            self._tell(text.render(lang))
        waiting = ", ".join(each.name for each in self.untrusted())
        if waiting != self._waiting:
            self._waiting = waiting
            if waiting:
                self._tell(Message("wait for `skillyard trust`: {names}", names=waiting).render(lang))
