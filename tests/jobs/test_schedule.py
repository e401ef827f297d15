"""What is due: missed ticks, overlaps, clocks that jump, and workers that do not agree on the time."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.jobs.dbos_engine import DurableEngine
from skillyard.jobs.engine import TimetableEntry
from skillyard.jobs.jobs import Job, Jobs, jitter_of, tick_id
from skillyard.jobs.project_jobs import WorkerLoop
from skillyard.jobs.schedule import Misfire, Overlap, ProjectSchedules, Schedule, beat, checked, from_agent, local_zone
from skillyard.store.database import open_database
from skillyard.store.runs import Runs
from tests.jobs.memory_engine import MemoryEngine

EVERY_MINUTE = Schedule("m", "* * * * *", skill="report")
HOUR = 3600.0


def test_on_time_it_fires_once_and_is_dealt_with() -> None:
    found = beat(EVERY_MINUTE, until=0.0, now=60.5, busy=False)

    assert (found.tick, found.until) == (60.0, 60.0)
    assert beat(EVERY_MINUTE, found.until, now=61.0, busy=False).tick is None


def fired(schedule: Schedule, until: float, now: float) -> list[float]:
    """Everything that one look after the other fires."""
    ticks: list[float] = []
    while (found := beat(schedule, until, now, busy=False)).until != until:
        ticks += [found.tick] if found.tick is not None else []
        until = found.until
    return ticks


def test_ticks_that_nobody_was_there_for_are_covered_by_the_one_that_is_on_time() -> None:
    until, now = HOUR - 121, HOUR + 61

    assert fired(EVERY_MINUTE, until, now) == [HOUR + 60]
    assert fired(EVERY_MINUTE._replace(misfire=Misfire.SKIP), until, now) == [HOUR + 60]
    every = EVERY_MINUTE._replace(misfire=Misfire.RUN_ALL, overlap=Overlap.QUEUE)
    assert fired(every, until, now) == [HOUR - 120, HOUR - 60, HOUR, HOUR + 60]


def test_a_missed_tick_alone_runs_once_or_not_at_all() -> None:
    hourly = EVERY_MINUTE._replace(when="0 * * * *")

    late = beat(hourly, until=HOUR - 1, now=5 * HOUR + 600, busy=False)
    skipped = beat(hourly._replace(misfire=Misfire.SKIP), until=HOUR - 1, now=5 * HOUR + 600, busy=False)

    assert (late.tick, late.until) == (5 * HOUR, 5 * HOUR)
    assert (skipped.tick, skipped.until) == (None, 5 * HOUR)


def test_while_the_run_before_goes_on() -> None:
    def look(overlap: Overlap) -> tuple[float, float | None, bool]:
        return beat(EVERY_MINUTE._replace(overlap=overlap), until=0.0, now=61.0, busy=True)

    assert look(Overlap.SKIP) == (60.0, None, False)
    assert look(Overlap.QUEUE) == (0.0, None, False), "it waits"
    assert look(Overlap.REPLACE) == (60.0, 60.0, True)


def test_a_clock_that_was_far_ahead_for_a_while_stops_nothing() -> None:
    found = beat(EVERY_MINUTE, until=10 * 365 * 86_400.0, now=1000.0, busy=False)

    assert (found.tick, found.until) == (None, 1000.0)
    assert beat(EVERY_MINUTE, found.until, now=1025.0, busy=False).tick == 1020.0


SCHEDULES = st.builds(
    lambda when, misfire, overlap: EVERY_MINUTE._replace(
        when=when, misfire=misfire, overlap=Overlap.QUEUE if misfire is Misfire.RUN_ALL else overlap
    ),
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 * * * *", "every 10s", "every 1s", "30 2 * * *"]),
    st.sampled_from(list(Misfire)),
    st.sampled_from(list(Overlap)),
)


@given(SCHEDULES, st.floats(0, 1e6), st.lists(st.tuples(st.floats(-9000, 9000), st.booleans()), max_size=20))
def test_whatever_the_clock_does_no_tick_comes_early_or_twice(
    schedule: Schedule, now: float, jumps: list[tuple[float, bool]]
) -> None:
    until, fired = now, []
    for jump, busy in jumps:
        now = max(0.0, now + jump)
        found = beat(schedule, until, now, busy=busy)
        if found.tick is not None:
            assert until < found.tick <= now
            fired.append(found.tick)
        assert found.until >= until or found.until == now
        if found.until < until:
            fired.clear()  # the clock was put right: ids keep what was fired from being fired again
        until = found.until
    assert fired == sorted(set(fired))


class Clock:
    def __init__(self) -> None:
        self.now = 100_000.0

    def __call__(self) -> float:
        return self.now


def make_worker_loop(folder: Path, engine: DurableEngine, schedules: list[Schedule], told: list[str]) -> WorkerLoop:
    from skillyard.jobs.project_jobs import Attempts

    return WorkerLoop(
        jobs=Jobs(engine, Runs(open_database(folder / "state.db"), "p"), lambda: "unused"),
        attempts=Attempts(None),  # type: ignore[arg-type]  # (nothing is run here)
        schedules=lambda _: tuple(schedules),
        job_of=lambda schedule: Job(schedule.skill, schedule.name, schedule=schedule.name),
        project="p",
        tell=told.append,
    )


class Skewed:
    """The same engine, seen by a worker whose clock is wrong."""

    def __init__(self, engine: MemoryEngine, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds

    def now(self) -> float:
        return self._engine.now() + self._seconds

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)


def test_workers_with_different_clocks_fire_each_tick_once(tmp_path: Path) -> None:
    clock = Clock()
    engine = MemoryEngine(clock)
    schedules = [EVERY_MINUTE._replace(overlap=Overlap.REPLACE)]
    engines: list[Any] = [engine, Skewed(engine, 30.0), Skewed(engine, -30.0)]
    workers = [make_worker_loop(tmp_path, each, schedules, []) for each in engines]
    for _ in range(600):
        for worker in workers:
            worker.tick()
        clock.now += 1.0

    ids = [standing.ticket.id for standing in engine.list(1000)]

    minutes = {tick_id("p", schedules[0].name, float(tick)) for tick in range(99_960, 100_680, 60)}
    assert len(ids) == len(set(ids))
    assert set(ids) <= minutes
    assert 9 <= len(ids) <= 11


def test_a_new_time_counts_from_now_on_and_a_paused_one_rests(tmp_path: Path) -> None:
    clock = Clock()
    engine = MemoryEngine(clock)
    schedules = [EVERY_MINUTE._replace(when="0 0 1 1 *")]
    shift = make_worker_loop(tmp_path, engine, schedules, [])
    shift.tick()
    clock.now += 86_400.0
    schedules[0] = EVERY_MINUTE
    shift.tick()
    shift.tick()
    assert engine.list(10) == ()

    clock.now += 61
    shift.tick()
    assert len(engine.list(10)) == 1
    (line,) = engine.timetable.list()
    engine.timetable.put(line._replace(paused=True))
    clock.now += 600
    shift.tick()

    assert len(engine.list(10)) == 1
    assert line.latest == engine.list(1)[0].ticket.id


def test_a_crash_between_firing_and_writing_it_down_fires_nothing_twice(tmp_path: Path) -> None:
    clock = Clock()
    engine = MemoryEngine(clock)
    shift = make_worker_loop(tmp_path, engine, [EVERY_MINUTE], [])
    shift.tick()
    (before,) = engine.timetable.list()
    clock.now += 61
    shift.tick()
    engine.timetable.put(before)  # as if the worker had died before it could say so
    shift.tick()

    assert len(engine.list(10)) == 1


def test_a_run_of_replace_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    clock = Clock()
    engine = MemoryEngine(clock)
    told: list[str] = []
    shift = make_worker_loop(tmp_path, engine, [EVERY_MINUTE._replace(overlap=Overlap.REPLACE)], told)
    for _ in range(3):
        shift.tick()
        clock.now += 60

    stages = [str(standing.stage) for standing in engine.list(10)]

    assert stages == ["queued", "cancelled"]
    assert told == []


def test_jitter_is_the_same_for_all_who_ask_and_within_its_bounds() -> None:
    delays = [jitter_of(f"id-{number}", 30.0) for number in range(50)]

    assert delays == [jitter_of(f"id-{number}", 30.0) for number in range(50)]
    assert all(0 <= delay < 30 for delay in delays)
    assert len(set(delays)) > 10


def test_the_entries_of_an_agent_file_become_schedules() -> None:
    entries: list[dict[str, Any]] = [
        {
            "cron": "0 9 * * 1-5",
            "skill": "build",
            "action": "daily",
            "params": {"days": 7},
            "timezone": "Asia/Shanghai",
        },
        {"interval": "15m", "skill": "build", "retries": 2, "misfire": "run_all", "overlap": "queue", "jitter": 5},
        {"interval": 90, "task": "执行 @report", "enabled": False, "on_failure": {"webhook": "https://example.org/x"}},
    ]

    first, second, third = from_agent(entries, "dev", "UTC")

    assert (first.name, first.skill, first.when, first.timezone) == (
        "dev/build",
        "dev/build",
        "0 9 * * 1-5",
        "Asia/Shanghai",
    )
    assert (first.action, first.params, first.source) == ("daily", {"days": 7}, "agents/dev/agent.yaml")
    assert (second.name, second.when, second.retries, second.misfire) == (
        "dev/build-2",
        "every 15m",
        2,
        Misfire.RUN_ALL,
    )
    assert (third.task, third.enabled, third.on_failure) == ("执行 @report", False, "https://example.org/x")


def test_a_workflow_is_scheduled_by_its_name_with_its_inputs() -> None:
    (only,) = from_agent([{"cron": "@daily", "flow": "weekly", "params": {"days": 7}}], "dev", "UTC")

    assert (only.name, only.skill, only.params) == ("dev/weekly", "flow:weekly", {"days": 7})


def test_a_key_that_is_not_known_does_nothing_as_validate_says() -> None:
    (only,) = from_agent([{"cron": "@daily", "skill": "a", "crom": 1}], "dev", "UTC")

    assert only.skill == "dev/a"


def test_missed_runs_that_are_all_to_be_done_follow_each_other_where_nobody_says_otherwise() -> None:
    (only,) = from_agent([{"cron": "@daily", "skill": "a", "misfire": "run_all"}], "dev", "UTC")

    assert only.overlap is Overlap.QUEUE


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"skill": "a"}, "none of `cron`, `interval`"),
        ({"cron": "@daily", "interval": "5m", "skill": "a"}, "both `cron`, `interval`"),
        ({"cron": "@daily"}, "none of `task`, `skill`, `flow`"),
        ({"cron": "bad", "skill": "a"}, "five"),
        ({"cron": "@daily", "skill": "a", "timezone": "Mars/Base"}, "no time zone"),
        ({"cron": "@daily", "skill": "a", "misfire": "never"}, "one of"),
        ({"cron": "@daily", "skill": "a", "misfire": "run-all", "overlap": "skip"}, "beside misfire run-all"),
        ({"cron": "@daily", "skill": "a", "retries": -1}, "from 0"),
        ({"cron": "@daily", "skill": "a", "on_failure": {"command": "x", "webhook": "http://y"}}, "on_failure"),
        ({"cron": "@daily", "skill": "a", "flow": "b"}, "both `skill`, `flow`"),
        ({"cron": "@daily", "task": "run @a", "flow": "b"}, "both `task`, `flow`"),
        ("@daily", "a mapping"),
    ],
)
def test_an_entry_that_cannot_be_meant_is_told_with_its_place(entry: object, said: str, tmp_path: Path) -> None:
    file = tmp_path / "agents" / "dev" / "agent.yaml"
    file.parent.mkdir(parents=True)
    good = {"cron": "@hourly", "skill": "a"}
    file.write_text(json.dumps({"skills": [{"name": "a", "entry": "a.py"}], "schedule": [entry, good]}))
    told: list[str] = []
    schedules = ProjectSchedules(tmp_path, lambda *_: True, told.append)

    assert [(each.when, each.skill) for each in schedules(())] == [("@hourly", "dev/a")]
    assert "agents/dev/agent.yaml" in told[0]
    assert "schedule[0]" in told[0]
    assert said in told[0]


def test_a_schedule_reads_back_as_it_was() -> None:
    schedule = checked(
        Schedule("n", "every 5m", "Asia/Tokyo", skill="s", args=("a", "😀"), params={"x": [1]}, overlap=Overlap.REPLACE)
    )

    assert Schedule.from_mapping(schedule.as_mapping()) == schedule
    assert TimetableEntry("n", schedule.as_mapping()).says["skill"] == "s"


def test_the_zone_of_this_machine_is_one_that_is_known() -> None:
    assert local_zone({"TZ": "Asia/Shanghai"}) == "Asia/Shanghai"
    assert checked(Schedule("a", "@daily", local_zone({"TZ": "EST5EDT,M3.2.0"}), skill="s"))
