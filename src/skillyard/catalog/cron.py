"""Recurring times: five cron fields in a time zone, or an interval.

Daylight saving: a time in the hour that a spring day skips happens once, at the first moment after it. A time in the
hour that an autumn day repeats happens once, in the first of the two, unless every hour is meant.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Field("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_PART = re.compile(r"(?:(?P<all>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: A leap day on a given weekday comes at the latest after 40 years (1900 and 2100 are none).
_MOST_DAYS = 366 * 40 + 10
_LONGEST_SECONDS = 366 * 86_400
#: More than any schedule has: files that nobody trusts yet are read too.
_MOST_CHARACTERS = 500


class Cron(NamedTuple):
    """The minutes of a schedule. If both day fields are given, either may match, as in every cron."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    #: Whether only one of the two day fields must match.
    either: bool

    def after(self, moment: float, zone: tzinfo) -> float:
        """Return the first tick after the moment."""
        start = datetime.fromtimestamp(moment, UTC).astimezone(zone).replace(tzinfo=None) - timedelta(hours=3)
        for day in (start.date() + timedelta(days=number) for number in range(_MOST_DAYS)):
            if not self._is_on(day):
                continue
            for hour in self.hours:
                if day == start.date() and hour < start.hour:
                    continue
                later = [tick for tick in self._ticks(day, hour, zone) if tick > moment]
                if later:
                    return min(later)
        raise InvalidArgs(Message("{text!r} never comes", text=self.text))  # checked when it was parsed

    def _is_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        on_day, on_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (on_day or on_weekday) if self.either else (on_day and on_weekday)

    def _ticks(self, day: date, hour: int, zone: tzinfo) -> Iterator[float]:
        for minute in self.minutes:
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            first = local.timestamp()
            second = local.replace(fold=1).timestamp()
            if first == second:
                yield first
            elif first < second:  # the hour comes twice
                yield first
                if len(self.hours) == 24:
                    yield second
            else:
                yield _change_between(second, first, zone)


class Interval(NamedTuple):
    """Every so many seconds since 1970, so that all machines have the same ticks."""

    text: str
    seconds: float

    def after(self, moment: float, zone: tzinfo) -> float:  # noqa: ARG002  (an hour is an hour everywhere)
        tick = (moment // self.seconds + 1) * self.seconds
        return tick if tick > moment else tick + self.seconds


When: TypeAlias = Cron | Interval


def parse_when(text: str) -> When:
    """Parse `0 9 * * 1-5`, `@daily`, `every 15m` or `1h30m`. Raise InvalidArgs with the part that is wrong."""
    if len(text) > _MOST_CHARACTERS:
        raise InvalidArgs(
            Message(
                "a schedule has at most {most_characters} characters, not {count}",
                most_characters=_MOST_CHARACTERS,
                count=len(text),
            )
        )
    words = text.split()
    if words[:1] == ["every"] or (len(words) == 1 and words[0][:1].isdigit()):
        return _parse_interval(text)
    return _parse_cron(text)


def parse_zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name != "UTC" else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgs(Message("{name!r} is no time zone; they are named like Europe/Berlin", name=name)) from None


def preview(when: When, zone: tzinfo, moment: float, count: int = 3) -> tuple[float, ...]:
    ticks: list[float] = []
    for _ in range(count):
        moment = when.after(moment, zone)
        ticks.append(moment)
    return tuple(ticks)


def _parse_interval(text: str) -> Interval:
    said = text.strip().removeprefix("every").strip().lower()
    if not said or _SPAN.sub("", said).strip():
        raise InvalidArgs(
            Message("{text!r} is no interval; write every 90s, every 15m, every 2h or every 1d", text=text)
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(said))
    if not 1 <= seconds <= _LONGEST_SECONDS:
        raise InvalidArgs(Message("{text!r}: an interval is between a second and a year", text=text))
    return Interval(text, seconds)


def _parse_cron(text: str) -> Cron:
    said = text.strip().lower()
    if said.startswith("@") and said not in _SHORT:
        raise InvalidArgs(Message("{text!r}: there are {short}", text=text, short=", ".join(_SHORT)))
    parts = _SHORT.get(said, said).split()
    if len(parts) != len(_FIELDS):
        raise InvalidArgs(
            Message(
                "{text!r} has {count} fields: cron has five, minute hour day month weekday", text=text, count=len(parts)
            )
        )
    minutes, hours, days, months, weekdays = (
        _values(part, field, text) for part, field in zip(parts, _FIELDS, strict=True)
    )
    cron = Cron(
        text=text,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        either=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )
    if not cron.either and not _ever_comes(cron):
        raise InvalidArgs(Message("{text!r} never comes: no such day in these months", text=text))
    return cron


def _ever_comes(cron: Cron) -> bool:
    """Whether some year has such a day; every day of a month falls on each weekday in some year."""
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    return any(min(cron.days) <= longest.get(month, 31) for month in cron.months)


def _values(text: str, field: _Field, whole: str) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if not found:
            raise InvalidArgs(Message("{whole!r}: {part!r} is no {name}", whole=whole, part=part, name=field.name))
        step = int(found["step"]) if found["step"] else 1
        if found["all"]:
            low, high = field.low, field.high
        else:
            low = _number(found["first"], field, whole)
            high = _number(found["last"], field, whole) if found["last"] else field.high if found["step"] else low
        if step < 1 or low > high:
            raise InvalidArgs(
                Message("{whole!r}: {part!r} is no {name}: the range is empty", whole=whole, part=part, name=field.name)
            )
        values.update(range(low, high + 1, step))
    return values


def _number(word: str, field: _Field, whole: str) -> int:
    if word in field.words:
        return field.words.index(word) + field.low
    if not word.isdecimal() or not field.low <= int(word) <= field.high:
        raise InvalidArgs(
            Message(
                "{whole!r}: {word!r} is no {name} ({low}-{high})",
                whole=whole,
                word=word,
                name=field.name,
                low=field.low,
                high=field.high,
            )
        )
    return int(word)


def _change_between(early: float, late: float, zone: tzinfo) -> float:
    """Return the first moment after the clock was put forward, between a moment before and one after it."""
    before = datetime.fromtimestamp(early, UTC).astimezone(zone).utcoffset()
    low, high = int(early), int(late)
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return float(high)
