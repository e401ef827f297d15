"""Clocks that differ and clocks that jump, with the real engine, the real loop of a worker and the real command."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project, new_run_id
from skillyard.jobs.dbos_engine import DurableEngine
from skillyard.jobs.engine import EngineConfig
from skillyard.jobs.jobs import Job, Jobs
from skillyard.jobs.project_jobs import WorkerLoop
from skillyard.jobs.schedule import Misfire, Schedule
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.databases import postgres
from tests.jobs.test_jobs import env_of, wait_until

SECONDS = 90.0
NOTE = "---\nname: note\ndescription: Notes down its run.\ncommand: sh note.sh\n---\n"
FILES = {"note.sh": "echo $SKILLYARD_RUN >> mybox/ran\n"}
MINUTE, DAY = 60.0, 86_400.0
#: As on a machine whose clock is wrong.
WRONG_CLOCK = """
import os, time
right = time.time
time.time = lambda: right() + float(os.environ["WRONG_BY_SECONDS"])
"""


def moment_of(run_id: str) -> float:
    """The tick that a job was fired for: its id begins with it."""
    return int(run_id[:11], 16) / 1000


def test_workers_whose_clocks_are_an_hour_apart_fire_each_tick_once_by_the_databases_clock(
    places: ProjectPaths, project: Path, skillyard: Skillyard, write_skill: WriteSkill, tmp_path: Path
) -> None:
    database = postgres()
    (places.own_home / "config.toml").write_text(f'[engine]\npoll_seconds = 0.05\ndatabase = "{database}"\n')
    write_skill("note", NOTE, FILES)
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "sitecustomize.py").write_text(WRONG_CLOCK)
    began = clock_of(database)
    assert skillyard("jobs", "add", "every 1s", "@note").returncode == 0
    command = [sys.executable, "-m", "skillyard", "worker"]
    workers = [
        subprocess.Popen(
            command,
            cwd=project,
            env={**env_of(places), "PYTHONPATH": str(tmp_path / "wrong"), "WRONG_BY_SECONDS": wrong_by},
            stderr=subprocess.PIPE,
            text=True,
        )
        for wrong_by in ("-3600", "3600")
    ]
    for worker in workers:
        assert worker.stderr is not None
        assert any("success" in line for line in iter(worker.stderr.readline, "")), "both of them do some"
    ran = project / "mybox" / "ran"
    wait_until(lambda: ran.read_text().count("\n") >= 5, SECONDS)
    for worker in workers:
        worker.kill()
        worker.communicate()
    ids = ran.read_text().split()

    assert len(ids) == len(set(ids))
    ticks = [moment_of(each) for each in ids]
    assert len(ticks) == len(set(ticks)), "one job for one tick"
    assert all(began - 1 <= tick <= clock_of(database) for tick in ticks)


def clock_of(database: str) -> float:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
    assert row is not None
    return float(row[0])


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class AtWork:
    """A worker with a clock of ours, in a thread, and what came of its jobs."""

    def __init__(self, yard: Project, folder: Path, database: str, schedule: Schedule) -> None:
        self.clock = Clock(float(time.time() // DAY * DAY))  # midnight: what is a minute later is the same day
        self.engine = DurableEngine(EngineConfig(folder, "skillyard-clock", database, poll_seconds=0.05), self.clock)
        self.told: list[str] = []
        self._ended = threading.Event()
        self._shift = WorkerLoop(
            jobs=Jobs(self.engine, yard.history, new_run_id),
            attempts=yard.jobs.attempts(),
            schedules=lambda _: (schedule,),
            job_of=lambda schedule: Job(schedule.skill, schedule=schedule.name),
            project="p",
            tell=self.told.append,
            beat_seconds=0.02,
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        wait_until(lambda: bool(self.engine.timetable.list()), SECONDS)

    def _serve(self) -> None:
        self._shift.serve({"default": 1}, self._ended, lambda: None, drain=False)

    def jump(self, seconds: float) -> float:
        """To another time; back when the loop has dealt with it. The tick that is due then."""
        self.clock.now += seconds
        due = self.clock.now // MINUTE * MINUTE
        wait_until(lambda: due <= self.engine.timetable.list()[0].until <= self.clock.now, SECONDS)
        wait_until(lambda: not self.engine.list(1, live=True), SECONDS)
        return due

    def fired(self) -> list[float]:
        return sorted(moment_of(standing.ticket.id) for standing in self.engine.list(100))

    def end(self) -> None:
        self._ended.set()
        self._thread.join(SECONDS)
        self.engine.close()


@pytest.fixture(params=["sqlite", "postgres"])
def at_work(request: pytest.FixtureRequest, yard: Project, write_skill: WriteSkill, tmp_path: Path) -> Iterator[AtWork]:
    write_skill("note", NOTE, FILES)
    schedule = Schedule("m", "* * * * *", "UTC", skill="note", misfire=Misfire.RUN_ONCE)
    database = postgres() if request.param == "postgres" else ""
    made = AtWork(yard, tmp_path / "engine", database, schedule)
    yield made
    made.end()


def test_a_clock_that_jumps_forth_and_back_fires_no_tick_twice(at_work: AtWork, project: Path) -> None:
    first = at_work.jump(MINUTE + 1)
    assert at_work.fired() == [first]
    ahead = at_work.jump(DAY)
    assert at_work.fired() == [first, ahead], "a day that was missed is one run"
    at_work.jump(-DAY)
    assert at_work.fired() == [first, ahead], "what was fired stays fired"
    after = at_work.jump(MINUTE)
    assert at_work.fired() == [first, after, ahead], "it goes on from where the clock is now"
    at_work.jump(DAY)

    ran = (project / "mybox" / "ran").read_text().split()
    assert sorted(map(moment_of, ran)) == at_work.fired()
    assert len(ran) == len(set(ran)) == 4
    assert at_work.told == []
