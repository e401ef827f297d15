"""One key, one execution: across threads and processes, through kill -9, and for five seconds only."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from skillyard.core.errors import InvalidArgs
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.scripts.idempotency import Idempotency, Key, LocalIdempotency, boot_id, now
from skillyard.store.database import open_database
from skillyard.store.runs import Keys
from tests.jobs.databases import postgres

KEY = Key("project\0worker_agent", "skill-list", "执行 python bin/x.py")
GOOD = Result(agent="worker_agent", state=State.SUCCESS, summary="好", data={"total": 5})
BAD = Result(agent="worker_agent", state=State.ERROR, summary="坏", data={"type": "RuntimeError"})


def make_once(folder: Path, window_seconds: float = 5.0) -> LocalIdempotency:
    return LocalIdempotency(Keys(open_database(folder / "state.db")), folder / "once", window_seconds)


def make_shared(database: str, window_seconds: float = 5.0) -> Idempotency:
    from skillyard.scripts.postgres_idempotency import PostgresIdempotency

    return PostgresIdempotency(database, window_seconds)


MakeIdempotency = Callable[..., Idempotency]


@pytest.fixture(params=["files", "postgres"])
def open_once(request: pytest.FixtureRequest, tmp_path: Path) -> MakeIdempotency:
    """The same promises for one machine and for many."""
    if request.param == "files":
        return partial(make_once, tmp_path)
    return partial(make_shared, postgres())


class Counter:
    """Counts executions, and gives what it is told to give."""

    def __init__(self, *results: Result) -> None:
        self.results = list(results)
        self.count = 0

    def __call__(self) -> Result:
        self.count += 1
        return self.results[min(self.count, len(self.results)) - 1]


def test_a_second_call_within_the_window_gets_the_first_ones_result(open_once: MakeIdempotency) -> None:
    once, execute = open_once(), Counter(GOOD)

    first, second = once(KEY, execute), once(KEY, execute)

    assert (first.shared, second.shared) == (False, True)
    assert first.result == second.result == GOOD
    assert execute.count == 1


def test_after_the_window_it_runs_again(open_once: MakeIdempotency) -> None:
    once, execute = open_once(window_seconds=0.0), Counter(GOOD)

    once(KEY, execute)
    again = once(KEY, execute)

    assert (again.shared, execute.count) == (False, 2)


def test_a_failure_is_not_kept(open_once: MakeIdempotency) -> None:
    once, execute = open_once(), Counter(BAD, GOOD)

    assert once(KEY, execute).result == BAD
    assert once(KEY, execute).result == GOOD
    assert execute.count == 2


def test_one_key_means_one_prompt(open_once: MakeIdempotency) -> None:
    once = open_once()
    once(KEY, Counter(GOOD))

    with pytest.raises(InvalidArgs, match="another prompt"):
        once(KEY._replace(prompt="执行 python bin/y.py"), Counter(GOOD))


def test_other_scopes_and_other_names_are_other_keys(open_once: MakeIdempotency) -> None:
    once, execute = open_once(), Counter(GOOD)

    for key in (KEY, KEY._replace(scope="other"), KEY._replace(name="scan-skills")):
        once(key, execute)

    assert execute.count == 3


def test_a_result_of_another_boot_or_of_the_future_does_not_count(tmp_path: Path) -> None:
    once, execute = make_once(tmp_path), Counter(GOOD)
    keys = Keys(open_database(tmp_path / "state.db"))
    for boot, at in (("another boot", now()), (boot_id(), now() + 1000)):
        keys.begin(KEY.digest, KEY.prompt, boot, at)
        keys.finish(KEY.digest, GOOD, boot, at)
        assert not once(KEY, execute).shared
        keys.forget_before(boot_id(), now() + 1)

    assert execute.count == 2


def test_threads_that_come_together_share_one_run_and_its_failure(tmp_path: Path) -> None:
    executions: list[int] = []
    gate = threading.Barrier(8)
    go = threading.Event()

    def execute() -> Result:
        executions.append(1)
        go.wait(30)
        return BAD

    shared: list[bool] = []

    def call() -> None:
        once = make_once(tmp_path)
        gate.wait(30)
        shared.append(once(KEY, execute).shared)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: waiting_on_lock(tmp_path / "once") == 7)
    go.set()
    for thread in threads:
        thread.join(60)

    assert len(executions) == 1
    assert sorted(shared) == [False] + [True] * 7


def waiting_on_lock(folder: Path) -> int:
    """How many the kernel says are waiting for the one lock file there."""
    files = list(folder.glob("*"))
    inodes = {str(file.stat().st_ino) for file in files}
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(words[1] == "->" and words[2] == "FLOCK" and words[6].split(":")[-1] in inodes for words in lines)


def wait_until(claim: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(3000):
        if claim():
            return
        done.wait(0.01)
    pytest.fail("it never came true")


CALL = """
import sys, pathlib
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.store.database import open_database
from skillyard.store.runs import Keys
from skillyard.scripts.idempotency import Key, LocalIdempotency

folder, database = pathlib.Path(sys.argv[1]), sys.argv[2]

def execute():
    with (folder / "executions").open("a") as stream:
        stream.write("x\\n")
    print("executing", flush=True)
    sys.stdin.readline()  # until the test says so
    return Result(agent="worker_agent", state=State.SUCCESS, summary="好", data={"pid": "first"})

if database:
    from skillyard.scripts.postgres_idempotency import PostgresIdempotency
    once = PostgresIdempotency(database)
else:
    once = LocalIdempotency(Keys(open_database(folder / "state.db")), folder / "once")
print("ready", flush=True)
sys.stdin.readline()
answer = once(Key("p", "k", "prompt"), execute)
print(answer.shared, answer.result.data["pid"], flush=True)
"""


def start(folder: Path, database: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CALL, str(folder), database]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def tell(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def hear(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.mark.slow
@pytest.mark.alone  # whom the database does not answer for five seconds counts as gone
@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_fifty_processes_with_one_key_run_it_exactly_once(kind: str, tmp_path: Path) -> None:
    database = postgres() if kind == "postgres" else ""
    open_database(tmp_path / "state.db").close()
    children = [start(tmp_path, database) for _ in range(50)]
    for child in children:
        tell(child)
    wait_until((tmp_path / "executions").exists)
    for child in children:
        tell(child)  # whichever owns it goes on; the others never ask

    answers = sorted(reply for child in children for reply in [child.communicate(timeout=120)[0].split("\n")[-2]])

    assert answers == ["False first", *["True first"] * 49]
    assert (tmp_path / "executions").read_text() == "x\n"
    assert list((tmp_path / "once").glob("*")) == []


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_when_the_owner_is_killed_another_takes_over_and_nobody_hangs(kind: str, tmp_path: Path) -> None:
    database = postgres() if kind == "postgres" else ""
    owner = start(tmp_path, database)
    tell(owner)
    assert hear(owner) == "executing"
    others = [start(tmp_path, database) for _ in range(4)]
    for child in others:
        tell(child)

    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    wait_until(lambda: (tmp_path / "executions").read_text().count("x") == 2)
    for child in others:
        tell(child)
    answers = sorted(child.communicate(timeout=60)[0].split("\n")[-2] for child in others)

    assert answers == ["False first", *["True first"] * 3]
    assert (tmp_path / "executions").read_text() == "x\nx\n"


def test_a_different_prompt_does_not_wait_for_a_run_that_is_not_its_own(tmp_path: Path) -> None:
    owner = start(tmp_path)
    tell(owner)
    assert hear(owner) == "executing"

    with pytest.raises(InvalidArgs, match="another prompt"):
        make_once(tmp_path)(Key("p", "k", "something else"), Counter(GOOD))

    tell(owner)
    owner.communicate(timeout=60)


def test_after_an_execution_that_raises_the_next_one_runs(open_once: MakeIdempotency) -> None:
    once = open_once()

    def explode() -> Result:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        once(KEY, explode)
    assert once(KEY, Counter(GOOD)).result == GOOD


def test_an_execution_that_raises_leaves_the_key_free(tmp_path: Path) -> None:
    once = make_once(tmp_path)

    def explode() -> Result:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        once(KEY, explode)
    assert once(KEY, Counter(GOOD)).result == GOOD
    assert list((tmp_path / "once").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    once = LocalIdempotency(Keys(open_database(tmp_path / "state.db")), Path("/proc/nowhere"))

    with pytest.raises(FileNotFoundError):
        once(KEY, Counter(GOOD))
