"""A schedule: what recurs, when, and what to do when a tick was missed or the run before has not ended.

From `skillyard jobs add`, kept in the engine's timetable, or from the `schedule` entries of an agent.yaml, kept there.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from skillyard.catalog.agentfile import as_interval
from skillyard.catalog.cron import When, parse_when, parse_zone
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import NOTHING, Json

#: A tick that is later than this was missed.
GRACE_SECONDS = 60.0
#: `until` further ahead than this was written by a clock that has been put right since.
_MOST_AHEAD_SECONDS = 3600.0
_MOST_TICKS = 1000

#: What a job or a schedule of a workflow has before its name, in place of a skill's.
PREFIX = "flow:"
Choice = TypeVar("Choice", bound=StrEnum)


class Misfire(StrEnum):
    """What becomes of ticks that nobody was there for."""

    RUN_ONCE = "run-once"
    RUN_ALL = "run-all"
    SKIP = "skip"


class Overlap(StrEnum):
    """What becomes of a tick while the run before it has not ended."""

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
    #: For a task that goes to an agent: which backend, and the conversation that it goes on with.
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
    #: The file that says so, relative to the project; nothing for `jobs add`.
    source: str = ""

    @property
    def parsed(self) -> When:
        return parse_when(self.when)

    @property
    def zone(self) -> tzinfo:
        return parse_zone(self.timezone)

    @property
    def mark(self) -> str:
        """What the ticks depend on: another one starts anew."""
        return f"{self.when} {self.timezone}"

    def as_mapping(self) -> dict[str, Json]:
        fields: dict[str, Any] = self._asdict()
        fields.update(args=list(self.args), params=dict(self.params))
        return {name: value for name, value in fields.items() if value != getattr(_DEFAULT, name)}

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> "Schedule":
        known = {name: value for name, value in fields.items() if name in cls._fields}
        schedule = cls(**{"name": "", "when": "", **known})
        return checked(
            schedule._replace(
                args=tuple(schedule.args), misfire=Misfire(schedule.misfire), overlap=Overlap(schedule.overlap)
            )
        )


_DEFAULT = Schedule("", "")


def checked(schedule: Schedule) -> Schedule:
    """InvalidArgs for what cannot be meant."""
    _ = schedule.parsed, schedule.zone
    if bool(schedule.skill) == bool(schedule.task):
        raise InvalidArgs(Message("schedule {name!r} needs a skill or a task, and not both", name=schedule.name))
    if schedule.skill and (schedule.to or schedule.session or schedule.model):
        raise InvalidArgs(
            Message(
                "schedule {name!r}: a backend, session or model goes with a task, not with a skill", name=schedule.name
            )
        )
    if schedule.misfire is Misfire.RUN_ALL and schedule.overlap is not Overlap.QUEUE:
        raise InvalidArgs(Message("misfire run-all needs overlap queue: missed runs follow each other"))
    if schedule.retries < 0 or schedule.jitter_seconds < 0:
        raise InvalidArgs(Message("schedule {name!r}: retries and jitter are not negative", name=schedule.name))
    return schedule


class Beat(NamedTuple):
    """What one look at the clock gives: the tick to run, whether it replaces the run before, and what is dealt with."""

    tick: float | None
    replaces: bool
    until: float


def beat(schedule: Schedule, until: float, now: float, *, busy: bool) -> Beat:
    """At most one tick at a time: the next look takes the next."""
    if until > now + _MOST_AHEAD_SECONDS:
        return Beat(None, replaces=False, until=now)
    due = tuple(_due(schedule, until, now))
    if not due:
        return Beat(None, replaces=False, until=until)
    chosen = _chosen(schedule, due, now)
    if not chosen or (busy and schedule.overlap is Overlap.SKIP):
        return Beat(None, replaces=False, until=due[-1])
    if schedule.overlap is Overlap.QUEUE:
        if busy:
            return Beat(None, replaces=False, until=until)
        return Beat(chosen[0], replaces=False, until=chosen[0] if len(chosen) > 1 else due[-1])
    return Beat(chosen[-1], replaces=busy, until=due[-1])


def _due(schedule: Schedule, until: float, now: float) -> Iterator[float]:
    """Ticks after `until` up to now; where there are very many, those of the grace time count alone."""
    when, zone = schedule.parsed, schedule.zone
    tick = when.after(until, zone)
    for _ in range(_MOST_TICKS):
        if tick > now:
            return
        yield tick
        tick = when.after(tick, zone)
    tick = when.after(max(tick, now - GRACE_SECONDS), zone)
    while tick <= now:
        yield tick
        tick = when.after(tick, zone)


def _chosen(schedule: Schedule, due: Sequence[float], now: float) -> Sequence[float]:
    missed = [tick for tick in due if tick < now - GRACE_SECONDS]
    on_time = due[len(missed) :]
    if schedule.misfire is Misfire.RUN_ALL:
        return due
    if schedule.misfire is Misfire.RUN_ONCE and not on_time:
        return missed[-1:]
    return on_time


def from_agent(entries: Sequence[Mapping[str, Any]], role: str, zone: str) -> tuple[Schedule, ...]:
    """The `schedule` entries of agents/<role>/agent.yaml. InvalidArgs, with the place, where one cannot be meant."""
    found: dict[str, Schedule] = {}
    for number, entry in enumerate(entries):
        where = f"agents/{role}/agent.yaml schedule[{number}]"
        try:
            schedule = _from_entry(entry, role, zone)
        except InvalidArgs as error:
            raise InvalidArgs(Message("{place}: {reason}", place=where, reason=error)) from None
        name, count = schedule.name, 2
        while schedule.name in found:
            schedule, count = schedule._replace(name=f"{name}-{count}"), count + 1
        found[schedule.name] = schedule
    return tuple(found.values())


def _from_entry(entry: Mapping[str, Any], role: str, zone: str) -> Schedule:
    if not isinstance(entry, Mapping):
        raise InvalidArgs(Message("an entry is a mapping with cron or interval, and skill or task"))
    cron, interval = entry.get("cron"), entry.get("interval")
    if (cron is None) == (interval is None):
        raise InvalidArgs(Message("either cron or interval"))
    skill, flow, task = (str(entry.get(key) or "") for key in ("skill", "flow", "task"))
    if skill and flow:
        raise InvalidArgs(Message("a skill or a flow, and not both"))
    said = str(entry.get("name") or skill or flow or "task")
    misfire = as_choice(Misfire, entry.get("misfire"), Misfire.RUN_ONCE)
    params = entry.get("params") or {}
    if not isinstance(params, Mapping):
        raise InvalidArgs(Message("params must be a mapping"))
    return checked(
        Schedule(
            name=f"{role}/{said}",
            when=str(cron) if cron is not None else as_interval(interval),
            timezone=str(entry.get("timezone") or zone),
            enabled=entry.get("enabled", True) is True,
            skill=f"{PREFIX}{flow}" if flow else skill if not skill or "/" in skill else f"{role}/{skill}",
            action=str(entry.get("action") or ""),
            params=dict(params),
            task=task,
            to=str(entry.get("to") or ""),
            session=str(entry.get("session") or ""),
            retries=int(_as_number(entry, "retries")),
            timeout_seconds=_as_number(entry, "timeout") or None,
            misfire=misfire,
            overlap=as_choice(Overlap, entry.get("overlap"), usual_overlap(misfire)),
            jitter_seconds=_as_number(entry, "jitter"),
            on_failure=_as_address(entry.get("on_failure")),
            queue=str(entry.get("queue") or "default"),
            source=f"agents/{role}/agent.yaml",
        )
    )


def _as_number(entry: Mapping[str, Any], key: str) -> float:
    value = entry.get(key) or 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InvalidArgs(Message("{key} must be a number that is not negative", key=key))
    return float(value)


def _as_address(value: object) -> str:
    """`on_failure: {command: …}`, `{webhook: …}`, or either as a text."""
    if isinstance(value, Mapping):
        said = [str(value[key]) for key in ("command", "webhook") if value.get(key)]
        if len(said) != 1 or set(value) - {"command", "webhook"}:
            raise InvalidArgs(Message("on_failure has a command or a webhook"))
        return said[0]
    return str(value or "")


def usual_overlap(misfire: Misfire) -> Overlap:
    """Where nobody says: missed runs that are all to be done follow each other."""
    return Overlap.QUEUE if misfire is Misfire.RUN_ALL else Overlap.SKIP


def as_choice(kind: type[Choice], value: object, default: Choice) -> Choice:
    """One of the words, with `_` for `-` too."""
    said = str(value or default).replace("_", "-")
    if said not in set(kind):
        raise InvalidArgs(Message("{said!r} is none of {kind}", said=said, kind=", ".join(kind)))
    return kind(said)


def local_zone(env: Mapping[str, str] = os.environ) -> str:
    """This machine's time zone by name; UTC where it does not say."""
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
