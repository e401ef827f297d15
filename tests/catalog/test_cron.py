"""When something recurs: the fields, the days the clocks change, and agreement with croniter where it has no change."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.cron import parse_when, parse_zone, preview
from skillyard.core.errors import InvalidArgs


def ticks(when: str, zone: str, start: str, count: int = 3) -> list[str]:
    where = parse_zone(zone)
    moment = datetime.fromisoformat(start).replace(tzinfo=where).timestamp()
    found = preview(parse_when(when), where, moment, count)
    return [datetime.fromtimestamp(tick, UTC).astimezone(where).strftime("%d %H:%M%z") for tick in found]


def test_a_run_in_the_hour_that_spring_skips_happens_once_at_the_first_valid_moment() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00") == [
        "28 02:30+0100",
        "29 03:00+0200",
        "30 02:30+0200",
    ]


def test_a_run_in_the_hour_that_autumn_repeats_happens_once() -> None:
    assert ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00") == [
        "25 02:30+0200",
        "26 02:30+0100",
        "27 02:30+0100",
    ]


def test_every_hour_means_every_hour_on_those_days_too() -> None:
    assert ticks("0 * * * *", "Europe/Berlin", "2026-10-25T01:00", 4) == [
        "25 02:00+0200",
        "25 02:00+0100",
        "25 03:00+0100",
        "25 04:00+0100",
    ]
    assert ticks("*/30 * * * *", "Europe/Berlin", "2026-03-29T01:00", 3) == [
        "29 01:30+0100",
        "29 03:00+0200",
        "29 03:30+0200",
    ]


def test_half_an_hour_of_daylight_saving_and_a_midnight_that_is_skipped() -> None:
    assert ticks("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", 2) == ["04 02:30+1100", "05 02:15+1100"]
    assert ticks("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00", 2) == ["04 01:00-0200", "05 00:00-0200"]


def test_a_day_that_an_island_skipped_comes_at_its_end() -> None:
    assert ticks("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00", 1) == ["31 00:00+1400"]


def test_names_ranges_steps_and_short_words() -> None:
    assert ticks("0 9 * jan-mar mon,wed", "UTC", "2026-01-04T00:00") == [
        "05 09:00+0000",
        "07 09:00+0000",
        "12 09:00+0000",
    ]
    assert ticks("@weekly", "UTC", "2026-01-05T00:00", 1) == ["11 00:00+0000"]
    assert ticks("0 0 * * 7", "UTC", "2026-01-05T00:00", 1) == ["11 00:00+0000"]
    assert ticks("5/20 1 * * *", "UTC", "2026-01-05T00:00") == ["05 01:05+0000", "05 01:25+0000", "05 01:45+0000"]


def test_a_span_of_one_is_one() -> None:
    assert ticks("0 0 * * 0-0", "UTC", "2026-01-05T00:00", 1) == ["11 00:00+0000"]


def test_either_of_two_day_fields_counts_as_cron_has_always_done_it() -> None:
    assert ticks("0 0 13 * fri", "UTC", "2026-02-06T12:00") == ["13 00:00+0000", "20 00:00+0000", "27 00:00+0000"]
    assert ticks("0 0 14 * fri", "UTC", "2026-02-13T12:00", 2) == ["14 00:00+0000", "20 00:00+0000"]


def test_a_leap_day_is_found_however_far() -> None:
    assert datetime.fromtimestamp(
        preview(parse_when("0 0 29 2 *"), UTC, datetime(2096, 3, 1, tzinfo=UTC).timestamp(), 1)[0], UTC
    ) == datetime(2104, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    "bad",
    [
        "", "* * * *", "* * * * * *", "61 * * * *", "* 24 * * *", "0 0 0 * *", "@reboot", "0 0 31 2 *", "0 0 30 feb *",
        "5-1 * * * *", "*/0 * * * *", "a * * * *", "1,,2 * * * *", "٣ * * * *", "-1 * * * *", "every", "every 0s",
        "every 5x", "every 5m!", "every 900d", "* * * * mon-", "1e3 * * * *",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_told_with_the_text(bad: str) -> None:
    with pytest.raises(InvalidArgs):
        parse_when(bad)


@given(st.text(max_size=30))
def test_no_text_does_more_than_parse_or_be_refused(text: str) -> None:
    try:
        when = parse_when(text)
    except InvalidArgs:
        return
    assert when.after(0.0, UTC) > 0


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # croniter takes `0-0` for every day: a span of one is left to the example below
    span = st.lists(number, min_size=2, max_size=2, unique=True).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}")
    stepped = st.tuples(span, st.integers(1, 7)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.one_of(
        st.just("*"), st.lists(st.one_of(number.map(str), span, stepped), min_size=1, max_size=3).map(",".join)
    )


#: Days up to 28, so that every combination comes.
CRONS = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)).map(" ".join)
MOMENTS = st.integers(0, 4_000_000_000)


@given(CRONS, MOMENTS)
def test_without_a_change_of_the_clocks_croniter_says_the_same(text: str, moment: int) -> None:
    start = datetime.fromtimestamp(moment, UTC)
    theirs = croniter(text, start, max_years_between_matches=50).get_next(datetime)

    assert datetime.fromtimestamp(parse_when(text).after(moment, UTC), UTC) == theirs


@given(CRONS, MOMENTS, st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai"]))
def test_a_tick_is_later_on_its_minute_and_none_is_left_out(text: str, moment: int, zone: str) -> None:
    where, when = ZoneInfo(zone), parse_when(text)
    tick = when.after(moment, where)

    assert tick > moment
    assert tick % 60 == 0
    assert when.after(tick - 1, where) == tick, "nothing lies between"
    assert when.after(moment + (tick - moment) / 2, where) == tick


@given(st.integers(1, 100_000), st.floats(0, 4e9))
def test_an_interval_has_the_same_moments_for_everybody(seconds: int, moment: float) -> None:
    when = parse_when(f"every {seconds}s")
    tick = when.after(moment, UTC)

    assert tick % seconds == 0
    assert moment < tick <= moment + seconds


def test_a_year_of_daily_runs_has_as_many_as_days() -> None:
    zone = ZoneInfo("Europe/Berlin")
    start = datetime(2026, 1, 1, tzinfo=zone)
    found = preview(parse_when("30 2 * * *"), zone, start.timestamp(), 365)

    assert len({datetime.fromtimestamp(tick, UTC).astimezone(zone).date() for tick in found}) == 365
    assert datetime.fromtimestamp(found[-1], UTC) < start + timedelta(days=365)
