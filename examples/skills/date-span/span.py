#!/usr/bin/env python3
"""The time between two dates, as one JSON object.

usage: span.py START END
"""

import argparse
import calendar
import json
import re
import sys
from datetime import date, timedelta

FORMS = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})|(\d{4})/(\d{1,2})/(\d{1,2})"
    r"|(\d{4})(\d{2})(\d{2})|(\d{4})年(\d{1,2})月(\d{1,2})[日号]"
)


def as_date(text: str) -> date:
    found = FORMS.fullmatch(text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no date: write 2026-01-31")
    year, month, day = (int(part) for part in found.groups() if part)
    try:
        return date(year, month, day)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no date: {error}") from None


def weekdays(first: date, last: date) -> int:
    """Mondays to Fridays from first to last, both counted."""
    weeks, rest = divmod((last - first).days + 1, 7)
    return weeks * 5 + sum((first + timedelta(days)).weekday() < 5 for days in range(rest))


def in_calendar_units(first: date, last: date) -> dict[str, int]:
    """Whole months first, then the days that remain; 31 January plus a month is the last of February."""
    months = (last.year - first.year) * 12 + last.month - first.month
    if after(first, months) > last:
        months -= 1
    return {"years": months // 12, "months": months % 12, "days": (last - after(first, months)).days}


def after(first: date, months: int) -> date:
    year, month = divmod(first.year * 12 + first.month - 1 + months, 12)
    return date(year, month + 1, min(first.day, calendar.monthrange(year, month + 1)[1]))


def describe(day: date) -> dict[str, object]:
    year, week, _ = day.isocalendar()
    return {"date": day.isoformat(), "weekday": calendar.day_name[day.weekday()], "iso_week": f"{year}-W{week:02}"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="span.py", description="The time between two dates.")
    parser.add_argument("start", type=as_date)
    parser.add_argument("end", type=as_date)
    options = parser.parse_args()
    first, last = sorted((options.start, options.end))
    days = (last - first).days
    facts = {
        "days": (options.end - options.start).days,
        "days_inclusive": days + 1,
        "weeks": {"weeks": days // 7, "days": days % 7},
        "weekdays_inclusive": weekdays(first, last),
        "calendar": in_calendar_units(first, last),
        "start": describe(options.start),
        "end": describe(options.end),
    }
    json.dump(facts, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
