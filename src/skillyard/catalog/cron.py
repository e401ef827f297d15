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

#: The name, the lowest and the highest value of each field, and words for its values.
_Field: TypeAlias = tuple[str, int, int, tuple[str, ...]]
_FIELDS: tuple[_Field, ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
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
        start = datetime.fromtimestamp(moment, UTC).astimezone(zone).replace(tzinfo=None) - timedelta(hours=3)
        for day in filter(self._is_on, (start.date() + timedelta(days=number) for number in range(_MOST_DAYS))):
            for hour in self.hours:
                if day == start.date() and hour < start.hour:
                    continue
                if later := [tick for tick in self._ticks(day, hour, zone) if tick > moment]:
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
            first, second = local.timestamp(), local.replace(fold=1).timestamp()
            if first <= second:
                yield first
                if len(self.hours) == 24:
                    yield second  # the hour may come twice
            else:  # the hour is skipped: the first minute after the change
                minutes = [datetime.fromtimestamp(at, zone) for at in range(int(second), int(first) + 60, 60)]
                yield next(at.timestamp() for at in minutes if at.utcoffset() != minutes[0].utcoffset())


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
        most, count = _MOST_CHARACTERS, len(text)
        raise InvalidArgs(Message("a schedule has at most {most} characters, not {count}", most=most, count=count))
    words = text.split()
    if words[:1] != ["every"] and not (len(words) == 1 and words[0][:1].isdigit()):
        return _parse_cron(text)
    interval = text.strip().removeprefix("every").strip().lower()
    if not interval or _SPAN.sub("", interval).strip():
        wrong = Message("{text!r} is no interval; write every 90s, every 15m, every 2h or every 1d", text=text)
        raise InvalidArgs(wrong)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(interval))
    if not 1 <= seconds <= 366 * 86_400:
        raise InvalidArgs(Message("{text!r}: an interval is between a second and a year", text=text))
    return Interval(text, seconds)


def parse_zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name != "UTC" else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgs(Message("{name!r} is no time zone; they are named like Europe/Berlin", name=name)) from None


def preview(when: When, zone: tzinfo, moment: float, count: int = 3) -> tuple[float, ...]:
    return tuple(moment := when.after(moment, zone) for _ in range(count))


def _parse_cron(text: str) -> Cron:
    lowered = text.strip().lower()
    if lowered.startswith("@") and lowered not in _SHORT:
        raise InvalidArgs(Message("{text!r}: there are {short}", text=text, short=", ".join(_SHORT)))
    parts = _SHORT.get(lowered, lowered).split()
    if len(parts) != len(_FIELDS):
        about = {"text": text, "count": len(parts)}
        raise InvalidArgs(Message("{text!r} has {count} fields: cron has five, minute hour day month weekday", **about))
    minutes, hours, days, months, weekdays = (
        sorted(_values(part, field, text)) for part, field in zip(parts, _FIELDS, strict=True)
    )
    on_days = frozenset(day % 7 for day in weekdays)  # 7 is Sunday too
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    # Every day of a month falls on each weekday in some year.
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    if not either and all(days[0] > longest.get(month, 31) for month in months):
        raise InvalidArgs(Message("{text!r} never comes: no such day in these months", text=text))
    return Cron(text, tuple(minutes), tuple(hours), frozenset(days), frozenset(months), on_days, either)


def _values(text: str, field: _Field, whole: str) -> set[int]:
    name, lowest, highest, words = field

    def number(word: str) -> int:
        if word in words:
            return words.index(word) + lowest
        if not word.isdecimal() or not lowest <= int(word) <= highest:
            about = {"whole": whole, "word": word, "name": name, "low": lowest, "high": highest}
            raise InvalidArgs(Message("{whole!r}: {word!r} is no {name} ({low}-{high})", **about))
        return int(word)

    values: set[int] = set()
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if not found:
            raise InvalidArgs(Message("{whole!r}: {part!r} is no {name}", whole=whole, part=part, name=name))
        step, low, high = int(found["step"] or 1), lowest, highest
        if not found["all"]:
            low = number(found["first"])
            high = number(found["last"]) if found["last"] else highest if found["step"] else low
        if step < 1 or low > high:
            empty = Message("{whole!r}: {part!r} is no {name}: the range is empty", whole=whole, part=part, name=name)
            raise InvalidArgs(empty)
        values.update(range(low, high + 1, step))
    return values
