"""Schedules: what recurs, when, and what to do if a tick was missed or the run before has not ended.

A schedule comes from `skillyard jobs add`, and is kept in the engine's timetable, or from the `schedule` entries of an
agents/<role>/agent.yaml, and counts if a person trusts that role.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from skillyard.catalog.agentfile import as_interval, read_role
from skillyard.catalog.cron import When, parse_when, parse_zone
from skillyard.catalog.roots import AGENT_FILE
from skillyard.core.capability import ON_FAILURE, SCHEDULE
from skillyard.core.errors import InvalidArgs, SkillError
from skillyard.core.messages import Lang, Message
from skillyard.core.skill import Severity, first_of
from skillyard.core.values import NOTHING, Json
from skillyard.jobs.engine import TimetableEntry

#: A later tick was missed.
GRACE_SECONDS = 60.0
#: An `until` further ahead was written by a clock that was wrong.
_MOST_AHEAD_SECONDS = 3600.0
_MOST_TICKS = 1000
#: How often a worker asks whether a role is still trusted.
_TRUST_SECONDS = 5.0
_SERVING = Message("{count} scheduled, next: {name} at {when}")
_NONE = Message("nothing is scheduled")
_WAITING = Message("wait for `skillyard trust`: {names}")
#: What a job or a schedule of a workflow has before its name, in place of a skill's.
PREFIX = "flow:"
Choice = TypeVar("Choice", bound=StrEnum)


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


class Beat(NamedTuple):
    """The tick to run now, whether it replaces the run before, and until when ticks are dealt with."""

    tick: float | None
    replaces: bool
    until: float


def beat(schedule: Schedule, until: float, now: float, *, busy: bool) -> Beat:
    """Return at most one tick; the next call takes the next."""
    if until > now + _MOST_AHEAD_SECONDS:
        return Beat(None, replaces=False, until=now)
    due = tuple(_due(schedule, until, now))
    if not due:
        return Beat(None, replaces=False, until=until)
    on_time = tuple(tick for tick in due if tick >= now - GRACE_SECONDS)
    chosen = due if schedule.misfire is Misfire.RUN_ALL else on_time
    if schedule.misfire is Misfire.RUN_ONCE and not on_time:
        chosen = due[-1:]
    if not chosen or (busy and schedule.overlap is Overlap.SKIP):
        return Beat(None, replaces=False, until=due[-1])
    if schedule.overlap is Overlap.QUEUE:
        if busy:
            return Beat(None, replaces=False, until=until)
        return Beat(chosen[0], replaces=False, until=chosen[0] if len(chosen) > 1 else due[-1])
    return Beat(chosen[-1], replaces=busy, until=due[-1])


def _due(schedule: Schedule, until: float, now: float) -> Iterator[float]:
    """Ticks after `until` up to now; if there are very many, only those of the grace time count."""
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


def from_agent(entries: Sequence[Mapping[str, Any]], role: str, zone: str) -> tuple[Schedule, ...]:
    """Return the `schedule` entries of agents/<role>/agent.yaml. Raise InvalidArgs, with the place, if one is wrong."""
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
    """Read `on_failure: {command: …}`, `{webhook: …}`, or either as a string."""
    if isinstance(value, Mapping):
        said = [str(value[key]) for key in ("command", "webhook") if value.get(key)]
        if len(said) != 1 or set(value) - {"command", "webhook"}:
            raise InvalidArgs(Message("on_failure has a command or a webhook"))
        return said[0]
    return str(value or "")


def usual_overlap(misfire: Misfire) -> Overlap:
    """Return the default: missed runs that are all to be done follow each other."""
    return Overlap.QUEUE if misfire is Misfire.RUN_ALL else Overlap.SKIP


def as_choice(kind: type[Choice], value: object, default: Choice) -> Choice:
    """Return one of the words, with `_` for `-` too. Raise InvalidArgs if it is none."""
    said = str(value or default).replace("_", "-")
    if said not in set(kind):
        raise InvalidArgs(Message("{said!r} is none of {kind}", said=said, kind=", ".join(kind)))
    return kind(said)


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
        self._root, self._ask, self._tell, self._announce = root, is_trusted, tell, announce
        self._zone = local_zone()
        self._read: dict[Path, tuple[object, tuple[Schedule, ...]]] = {}
        self._asked = 0.0
        self._trusted: dict[tuple[str, str], bool] = {}
        self._unread: set[str] = set()
        self._served: object = None
        self._waiting = ""

    def __call__(self, lines: Sequence[TimetableEntry]) -> tuple[Schedule, ...]:
        own = tuple(read for line in lines if line.says and (read := self._read_line(line)))
        found = (*own, *(each for each in self._list_roles() if self._is_allowed(each)))
        if self._announce:
            self._report(found, {line.name for line in lines if line.paused}, self._announce)
        return found

    def untrusted(self) -> tuple[Schedule, ...]:
        """Return what the files ask for and nobody trusted."""
        return tuple(each for each in self._list_roles() if not self._is_allowed(each))

    def _read_line(self, line: TimetableEntry) -> Schedule | None:
        """Return None if it cannot be read, perhaps because a newer version wrote it."""
        try:
            return Schedule.from_mapping(line.says)
        except (SkillError, ValueError, TypeError) as error:
            if line.name not in self._unread:
                self._unread.add(line.name)
                self._tell(Message("the schedule {name} cannot be read: {error}", name=line.name, error=error))
        return None

    def _list_roles(self) -> tuple[Schedule, ...]:
        files = sorted((self._root / "agents").glob(f"*/{AGENT_FILE}"))
        for gone in set(self._read) - set(files):
            del self._read[gone]
        for file in files:
            self._read_role(file)
        return tuple(schedule for _, found in self._read.values() for schedule in found)

    def _read_role(self, file: Path) -> None:
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            stamp = (0, 0, 1)
        known, before = self._read.get(file, (None, ()))
        if stamp == known:
            return
        role = read_role(file)
        try:
            found = from_agent(role.schedule, role.name, self._zone)
        except SkillError as error:
            self._tell(error.msg)
            found = before
        if wrong := [finding for finding in role.findings if finding.severity is Severity.ERROR]:
            name, first = role.name, first_of(wrong, f"agents/{role.name}/{AGENT_FILE}")
            self._tell(Message("{first}; `skillyard role validate {role}` tells what to do", first=first, role=name))
            found = found or before
        self._read[file] = (stamp, found)

    def _is_allowed(self, schedule: Schedule) -> bool:
        """Ask again every few seconds: a grant is for the bytes of the role's whole folder. It is checked once more
        when a tick fires."""
        if time.monotonic() - self._asked > _TRUST_SECONDS:
            self._asked, self._trusted = time.monotonic(), {}
        for key in ((schedule.source, capability) for capability in schedule.capabilities):
            if key not in self._trusted:
                self._trusted[key] = self._ask(*key)
            if not self._trusted[key]:
                return False
        return True

    def _report(self, found: Sequence[Schedule], paused: set[str], lang: Lang) -> None:
        served = [each for each in found if each.enabled and each.name not in paused]
        mark = [(each.name, each.mark) for each in served]
        if mark != self._served:
            self._served = mark
            ticks = [(each.parsed.after(time.time(), each.zone), each.name, each.zone) for each in served]
            text = _NONE.render(lang)
            if ticks:
                tick, name, zone = min(ticks, key=lambda each: each[0])
                when = datetime.fromtimestamp(tick, zone).isoformat(timespec="seconds")
                text = _SERVING.render(lang, count=len(served), name=name, when=when)
            self._tell(text)
        waiting = ", ".join(each.name for each in self.untrusted())
        if waiting != self._waiting:
            self._waiting = waiting
            if waiting:
                self._tell(_WAITING.render(lang, names=waiting))
