"""What an engine promises, the same for all three: in memory, on SQLite, on a real PostgreSQL."""

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skillyard.core.errors import DatabaseFailed
from skillyard.core.values import Json
from skillyard.jobs.dbos_engine import DurableEngine, DurableSteps, open_database
from skillyard.jobs.engine import EngineConfig, Stage, Ticket, TimetableEntry
from tests.jobs.databases import postgres, server
from tests.jobs.memory_engine import MemoryEngine

SECONDS = 60.0
QUEUE = "default"


def make_engine(kind: str, folder: Path) -> DurableEngine:
    return MemoryEngine() if kind == "memory" else open_durable(folder, postgres() if kind == "postgres" else "")


def open_durable(folder: Path, database: str) -> DurableEngine:
    """A project of its own, in a database that others may use too."""
    return DurableEngine(EngineConfig(folder, f"skillyard-{uuid.uuid4().hex[:12]}", database, poll_seconds=0.05))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableEngine]:
    made = make_engine(request.param, tmp_path)
    yield made
    made.close()


def ticket(number: int = 1, **body: Json) -> Ticket:
    return Ticket(f"ticket-{number}", QUEUE, body)


def nothing() -> None:
    pass


def echo(found: Ticket, steps: DurableSteps) -> Mapping[str, Json]:
    return {"said": steps.run("say", lambda: found.body.get("say"))}


def test_what_is_enqueued_is_done_by_whoever_serves_and_its_answer_is_kept(engine: DurableEngine) -> None:
    assert engine.enqueue(ticket(say="你好 😀 \u2028"))
    engine.serve(echo, {QUEUE: 2}, nothing)

    standing = engine.wait("ticket-1", SECONDS)

    assert standing is not None
    assert (standing.stage, standing.answer) == (Stage.DONE, {"said": "你好 😀 \u2028"})
    assert engine.find("ticket-1") == standing


def test_the_second_of_two_with_one_id_is_no_second(engine: DurableEngine) -> None:
    assert engine.enqueue(ticket(say="first"))
    assert not engine.enqueue(ticket(say="second"))
    engine.serve(echo, {QUEUE: 2}, nothing)

    done = engine.wait("ticket-1", SECONDS)

    assert done is not None
    assert done.answer == {"said": "first"}
    assert not engine.enqueue(ticket(say="third")), "also after it is done"


def test_until_somebody_serves_it_stays_queued_and_can_be_cancelled(engine: DurableEngine) -> None:
    engine.enqueue(ticket())
    found = engine.find("ticket-1")
    assert found is not None
    assert found.stage is Stage.QUEUED
    assert [each.ticket.id for each in engine.list(10, live=True)] == ["ticket-1"]

    assert engine.cancel("ticket-1")

    engine.serve(echo, {QUEUE: 1}, nothing)
    engine.enqueue(ticket(2, say="after"))
    assert engine.wait("ticket-2", SECONDS) is not None
    cancelled = engine.wait("ticket-1", SECONDS)
    assert cancelled is not None
    assert cancelled.stage is Stage.CANCELLED
    assert not engine.cancel("ticket-1"), "twice is once"
    assert not engine.cancel("ticket-2"), "what is done stays done"


def test_one_under_way_that_is_cancelled_stays_so_whatever_it_answers(engine: DurableEngine) -> None:
    begun, go = threading.Event(), threading.Event()

    def work(found: Ticket, steps: DurableSteps) -> Mapping[str, Json]:
        begun.set()
        assert go.wait(SECONDS)
        return {"done": found.id}

    engine.serve(work, {QUEUE: 1}, nothing)
    engine.enqueue(ticket())
    assert begun.wait(SECONDS)
    assert engine.cancel("ticket-1")
    go.set()
    engine.enqueue(ticket(2))
    assert engine.wait("ticket-2", SECONDS) is not None

    standing = engine.find("ticket-1")

    assert standing is not None
    assert (standing.stage, standing.answer) == (Stage.CANCELLED, None)


def test_what_follows_comes_after_its_pause_and_once(engine: DurableEngine) -> None:
    def work(found: Ticket, steps: DurableSteps) -> Mapping[str, Json]:
        if found.id == "ticket-1":
            for _ in range(2):
                steps.follow(Ticket("ticket-1-2", QUEUE, {}, 0.2))
        return {"id": found.id}

    engine.serve(work, {QUEUE: 1}, nothing)
    engine.enqueue(ticket())

    standing = None
    while standing is None:
        standing = engine.wait("ticket-1-2", SECONDS)

    assert standing.answer == {"id": "ticket-1-2"}
    assert len(engine.list(10)) == 2


def test_started_directly_it_needs_nobody_who_serves(engine: DurableEngine) -> None:
    engine.start(ticket(say="now"), echo)

    standing = engine.wait("ticket-1", SECONDS)

    assert standing is not None
    assert standing.answer == {"said": "now"}


def test_work_that_raises_breaks_its_ticket_and_nothing_else(engine: DurableEngine) -> None:
    def work(found: Ticket, steps: DurableSteps) -> Mapping[str, Json]:
        if found.body.get("bad"):
            raise ZeroDivisionError("a bug")
        return {}

    engine.serve(work, {QUEUE: 1}, nothing)
    engine.enqueue(ticket(1, bad=True))
    engine.enqueue(ticket(2))

    broken, fine = engine.wait("ticket-1", SECONDS), engine.wait("ticket-2", SECONDS)

    assert broken is not None
    assert fine is not None
    assert (broken.stage, fine.stage) == (Stage.BROKEN, Stage.DONE)
    assert "a bug" in broken.trouble


def test_no_more_at_a_time_than_was_said(engine: DurableEngine) -> None:
    lock = threading.Lock()
    now, most = [0], [0]

    def work(found: Ticket, steps: DurableSteps) -> Mapping[str, Json]:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.02)  # long enough for another to come too soon
        with lock:
            now[0] -= 1
        return {}

    engine.serve(work, {QUEUE: 2}, nothing)
    for number in range(12):
        engine.enqueue(ticket(number))
    for number in range(12):
        assert engine.wait(f"ticket-{number}", SECONDS) is not None

    assert most[0] <= 2


def test_a_queue_that_nobody_serves_waits(engine: DurableEngine) -> None:
    engine.enqueue(Ticket("slow-1", "slow", {}))
    engine.serve(echo, {QUEUE: 1}, nothing)
    engine.enqueue(ticket())
    assert engine.wait("ticket-1", SECONDS) is not None

    standing = engine.find("slow-1")

    assert standing is not None
    assert standing.stage is Stage.QUEUED


def test_what_is_over_is_forgotten_and_what_is_not_is_kept(engine: DurableEngine) -> None:
    engine.enqueue(Ticket("later", "slow", {}))
    engine.serve(echo, {QUEUE: 1}, nothing)
    engine.enqueue(ticket())
    assert engine.wait("ticket-1", SECONDS) is not None

    engine.forget_before(engine.now() + 60)

    assert [each.ticket.id for each in engine.list(10)] == ["later"]
    assert engine.wait("ticket-1", 0.0) is None


def test_a_line_of_the_timetable_is_swapped_by_one_of_many(engine: DurableEngine) -> None:
    line = TimetableEntry("报告", {"when": "@daily", "args": ["a\nb"]}, until=1.5, when="@daily UTC")
    engine.timetable.put(line)
    assert engine.timetable.list() == (line,)
    gate = threading.Barrier(6)
    won: list[bool] = []

    def swap(number: int) -> None:
        gate.wait(SECONDS)
        won.append(engine.timetable.swap(line, line._replace(until=2.0 + number)))

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)

    assert sorted(won) == [False] * 5 + [True]
    assert engine.timetable.drop("报告")
    assert not engine.timetable.drop("报告")
    assert engine.timetable.list() == ()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_projects_in_one_database_do_not_see_each_other(kind: str, tmp_path: Path) -> None:
    database = postgres() if kind == "postgres" else ""
    mine, theirs = open_durable(tmp_path, database), open_durable(tmp_path, database)
    theirs.enqueue(ticket(say="theirs"))
    theirs.timetable.put(TimetableEntry("a"))
    mine.serve(echo, {QUEUE: 1}, nothing)
    mine.enqueue(ticket(2, say="mine"))
    assert mine.wait("ticket-2", SECONDS) is not None

    assert [each.ticket.id for each in mine.list(10)] == ["ticket-2"]
    assert mine.timetable.list() == ()
    assert mine.find("ticket-1") is None
    found = theirs.find("ticket-1")
    assert found is not None
    assert found.stage is Stage.QUEUED
    mine.close()
    theirs.close()


def test_a_database_that_is_not_there_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(DatabaseFailed) as caught:
        DurableEngine(EngineConfig(tmp_path, "skillyard-x", "postgresql://me:hunter2@127.0.0.1:1/none"))

    assert "hunter2" not in str(caught.value)


def test_the_engines_file_is_the_users_alone_and_full_sync_is_an_option(tmp_path: Path) -> None:
    for full, expected in ((False, 1), (True, 2)):
        made = DurableEngine(EngineConfig(tmp_path, "skillyard-x", full_sync=full))
        with made._engine.connect() as connection:
            pragma: Callable[[str], Any] = lambda name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()  # noqa: E731
            assert (pragma("journal_mode"), pragma("synchronous")) == ("wal", expected)
        made.close()
    assert (tmp_path / "engine.db").stat().st_mode & 0o077 == 0


def test_thousands_of_tickets_drain_each_with_its_own_answer() -> None:
    engine = MemoryEngine()
    for number in range(10_000):
        engine.enqueue(ticket(number, say=number))
    engine.serve(echo, {QUEUE: 4}, nothing)
    answers = [engine.wait(f"ticket-{number}", SECONDS) for number in range(10_000)]
    engine.close(SECONDS)

    assert [each.answer for each in answers if each] == [{"said": number} for number in range(10_000)]


#: A worker of the project that is named: it says when it is ready, starts when it is told to, and does one ticket.
def test_a_new_file_is_opened_by_several_at_once(tmp_path: Path) -> None:
    """SQLite answers "database is locked" at once, without waiting, where two change a new file to WAL."""
    threads = 4
    together = threading.Barrier(threads)

    def open_all(_: int) -> None:
        for name in range(50):
            together.wait(SECONDS)
            open_database(EngineConfig(tmp_path / str(name), "one")).dispose()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(open_all, range(threads)))


SERVES = """
import sys
from pathlib import Path
from skillyard.jobs.engine import Ticket
from skillyard.jobs.dbos_engine import DurableEngine
from skillyard.jobs.engine import EngineConfig
_, folder, database, project = sys.argv
print("ready", flush=True)
sys.stdin.readline()
engine = DurableEngine(EngineConfig(Path(folder), project, database, poll_seconds=0.05))
engine.serve(lambda ticket, steps: {"did": ticket.id}, {"default": 1}, lambda: None)
engine.enqueue(Ticket(project, "default", {}))
assert engine.wait(project, 60).answer == {"did": project}
engine.close()
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "no database yet"])
@pytest.mark.parametrize(
    "projects",
    [pytest.param(("one", "one", "one"), marks=pytest.mark.ci("crash and escape rounds")), ("one", "two", "three")],
)
def test_several_may_be_the_first_on_a_new_database_at_once(
    tmp_path: Path, kind: str, projects: tuple[str, ...]
) -> None:
    """Workers of one project, and of several that share a home or a server."""
    database = "" if kind == "sqlite" else postgres()
    if kind == "no database yet":
        database = server().get_uri(database=f"new_{uuid.uuid4().hex[:12]}")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SERVES, str(tmp_path / "new"), database, f"skillyard-{project}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for project in projects
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    assert [process.communicate(timeout=SECONDS)[1] for process in started] == [""] * 3
