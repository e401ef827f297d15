"""A worker that lives and has lost the database: its runs end, and one other does them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.jobs.dbos_engine import DatabaseLiveness, _number
from skillyard.jobs.jobs import JobStatus
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.databases import postgres, server
from tests.jobs.test_jobs import env_of, said, wait_until

SECONDS = 90.0
#: Each start has a number and beats in a file of its own for as long as it lives.
BEATS = """#!/bin/sh
echo started >> mybox/starts
n=$(wc -l < mybox/starts | tr -d ' ')
until test -e mybox/go; do echo x >> mybox/beats.$n; sleep 0.05; done
echo done by $n
"""


@pytest.fixture
def database(places: ProjectPaths, write_skill: WriteSkill) -> str:
    made = postgres()
    (places.own_home / "config.toml").write_text(f'[engine]\npoll_seconds = 0.05\ndatabase = "{made}"\n')
    text = "---\nname: beats\ndescription: Beats until it may go.\ncommand: sh beats.sh\n---\n"
    write_skill("beats", text, {"beats.sh": BEATS})
    return made


@contextmanager
def started(places: ProjectPaths, *words: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "skillyard", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(command, cwd=places.project, env=env_of(places), text=True, **pipes)  # type: ignore[call-overload]
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def take_session_away(database: str, executor: str) -> None:
    """What PostgreSQL does when it restarts or gives a client up; nothing else of that client is touched."""
    high, low = divmod(_number(executor) % 2**64, 2**32)
    with psycopg.connect(database, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND classid = %s::oid AND objid = %s::oid "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (str(high), str(low)),
        ).fetchall()
    assert ended == [(True,)]


def executor_of(places: ProjectPaths) -> str:
    """Whoever has the one job in hand."""
    with Project(places) as yard:
        engine = yard.jobs.open_engine()
        (found,) = engine._client.list_workflows(status="PENDING")
        engine.close()
    return str(found.executor_id)


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def demand_only_the_second_beats(box: Path) -> None:
    wait_until(lambda: size(box / "beats.2") > 0, SECONDS)
    first, second = size(box / "beats.1"), size(box / "beats.2")
    wait_until(lambda: size(box / "beats.2") >= second + 20, SECONDS)
    assert size(box / "beats.1") == first, "the first was still running when the second had begun"


def ended(places: ProjectPaths, job_id: str) -> JobStatus:
    with Project(places) as yard:
        engine = yard.jobs.open_engine()
        known = yard.jobs.of(engine).wait(job_id, SECONDS)
        engine.close()
    assert known is not None
    return known


def test_a_run_whose_worker_lost_its_session_is_stopped_and_done_again_by_one(
    places: ProjectPaths, project: Path, database: str, skillyard: Skillyard
) -> None:
    box = project / "mybox"
    with started(places, "worker") as one, started(places, "worker") as two:
        job = said(skillyard("jobs", "enqueue", "@beats", "--json"))["data"]["jobs"][0]
        wait_until(lambda: size(box / "beats.1") > 10, SECONDS)
        lost = executor_of(places)
        take_session_away(database, lost)
        demand_only_the_second_beats(box)
        assert executor_of(places) != lost
        (box / "go").touch()
        known = ended(places, job["id"])
        loser = one if f"-{one.pid}-" in lost else two
        loser.terminate()
        _, stderr = loser.communicate(timeout=SECONDS)

    assert "the database went away" in stderr
    assert stderr.count("working for") == 2, "the same process, as another executor"
    assert (known.state, known.job.attempt, known.run) == ("success", 1, job["id"])
    assert known.result["data"] == {"skill": "beats", "content": "done by 2"}
    assert (box / "starts").read_text() == "started\n" * 2


def test_jobs_run_ends_its_run_when_the_session_is_lost_and_leaves_it_to_a_worker(
    places: ProjectPaths, project: Path, database: str, skillyard: Skillyard
) -> None:
    box = project / "mybox"
    assert skillyard("jobs", "add", "@yearly", "@beats", "--name", "b").returncode == 0
    with started(places, "jobs", "run", "b", "--json") as running:
        wait_until(lambda: size(box / "beats.1") > 10, SECONDS)
        take_session_away(database, executor_of(places))
        stdout, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == 1
    assert "the database went away" in json.loads(stdout)["data"]["msg"]
    (job,) = said(skillyard("jobs", "--json"))["data"]["jobs"]
    assert job["state"] == "running", "nobody said how it ended"
    with started(places, "worker", "--drain"):
        demand_only_the_second_beats(box)
        (box / "go").touch()
        known = ended(places, job["id"])

    assert (known.state, known.job.attempt) == ("success", 1)
    assert (box / "starts").read_text() == "started\n" * 2


class Wire:
    """Between us and PostgreSQL: carries everything, until it goes silent without a word."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._silent = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._open: list[socket.socket] = []
        self._target = str(Path(server().get_uri().rpartition("host=")[2]) / ".s.PGSQL.5432")
        threading.Thread(target=self._accept, daemon=True).start()

    def go_silent(self) -> None:
        self._silent.set()

    def close(self) -> None:
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(self._target)
            self._open += [ours, theirs]
            for source, target in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(65536):
                if not self._silent.is_set():
                    target.sendall(piece)
        except OSError:
            return


def test_a_database_that_says_nothing_any_more_is_lost_too(tmp_path: Path) -> None:
    """As with a cable that was pulled: no error comes, only silence."""
    wire = Wire(tmp_path / "w")
    url, _, _ = postgres().rpartition("host=")
    liveness = DatabaseLiveness(f"{url}host={wire.folder}")
    lost = threading.Event()
    liveness.hold("somebody", lost.set)
    assert not lost.is_set()
    wire.go_silent()

    assert lost.wait(SECONDS)
    wire.close()


def test_the_living_are_not_dead_and_the_dead_are_so_after_a_while() -> None:
    database = postgres()
    holder, other = DatabaseLiveness(database), DatabaseLiveness(database)
    holder.hold("somebody", lambda: None)
    assert not other.is_dead("somebody")
    holder.release()
    assert not other.is_dead("somebody"), "it may have lost its connection alone, and needs a moment to notice"

    wait_until(lambda: other.is_dead("somebody"), SECONDS)


def test_a_process_that_is_killed_lets_go_of_its_lock() -> None:
    database = postgres()
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, database], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    other = DatabaseLiveness(database)
    assert not other.is_dead("somebody")
    child.send_signal(signal.SIGKILL)
    child.communicate()

    wait_until(lambda: other.is_dead("somebody"), SECONDS)


HOLD = """
import sys, threading
from skillyard.jobs.dbos_engine import DatabaseLiveness
DatabaseLiveness(sys.argv[1]).hold("somebody", lambda: None)
print("held", flush=True)
threading.Event().wait()
"""
