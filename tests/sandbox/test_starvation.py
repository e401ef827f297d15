"""A program that starves its supervisor still ends: at the limit, when asked to stop, when the runtime is killed."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillyard.sandbox import bubblewrap
from tests.sandbox.conftest import HERE, PYTHON, SOURCE, give, users
from tests.sandbox.test_trees import until

#: Whatever an unprivileged program can try against the process that would end it, then forty busy loops.
STARVE = """
import os, signal
boss = os.getppid()
def attempt(act):
    try:
        act()
    except (OSError, ValueError):
        pass
for act in (
    lambda: os.sched_setaffinity(boss, {0}),
    lambda: os.sched_setscheduler(boss, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.setpriority(os.PRIO_PROCESS, boss, 19),
    lambda: os.kill(boss, signal.SIGSTOP),
    lambda: open(f"/proc/{boss}/autogroup", "w").write("19"),
):
    attempt(act)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in range(40):
    if os.fork() == 0:
        attempt(lambda: os.sched_setaffinity(0, {number % os.cpu_count()}))
        while True:
            pass
print("started", flush=True)
while True:
    pass
"""
#: The supervisor's children end faster than it can take them in, for as long as it lets them.
ZOMBIES = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(8):
    if os.fork() == 0:
        while True:
            try:
                if os.fork() == 0:
                    if os.fork() == 0:
                        os._exit(0)
                    os._exit(0)
                os.wait()
            except OSError:
                pass
print("started", flush=True)
while True:
    signal.pause()
"""
#: A storm of the one signal that the supervisor has a handler for.
SIGNALS = """
import os, signal
boss = os.getppid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(8):
    if os.fork() == 0:
        while True:
            try:
                os.kill(boss, signal.SIGCHLD)
            except OSError:
                pass
print("started", flush=True)
while True:
    signal.pause()
"""
CEILING_SECONDS = 60.0

pytestmark = pytest.mark.alone  # forty busy loops starve whoever runs beside them

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def marker() -> Iterator[str]:
    name = f"marked-{os.urandom(8).hex()}"
    yield name
    for pid in alive(name):
        os.kill(pid, signal.SIGKILL)


def alive(marker: str) -> list[int]:
    """The processes that carry the marker in their environment: every one that the run started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


OTHER_WAYS = ("landlock+seccomp", "subreaper", "bubblewrap")


@pytest.fixture(
    params=["full", *(pytest.param(way, marks=pytest.mark.ci("every way into the sandbox")) for way in OTHER_WAYS)]
)
def way(request: pytest.FixtureRequest) -> str:
    if request.param == "bubblewrap" and not bubblewrap.find()[0]:
        pytest.skip("no bubblewrap here")
    return str(request.param)


@pytest.fixture
def cpu_group() -> Iterator[str]:
    """A cpu cgroup, as every container has: in the root one, autogroups would share out the time by session."""
    folder = Path("/sys/fs/cgroup/cpu", f"test-{os.urandom(8).hex()}")
    try:
        folder.mkdir()
    except OSError:
        yield ""
        return
    yield str(folder)
    assert until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


@pytest.fixture(params=users())
def start(request: pytest.FixtureRequest, way: str, cpu_group: str, marker: str, ground: Path) -> Iterator[Start]:
    """Start a runtime of its own, and wait until what it launched is up."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str, **more: Any) -> "subprocess.Popen[bytes]":
        give(ground, request.param)
        given = {"way": way, "marker": marker, "cwd": str(ground), "code": code, "uid": request.param}
        given |= {"cpu_group": cpu_group, **more}
        runtime = subprocess.Popen(
            (PYTHON, str(HERE / "doomed.py"), json.dumps(given)),
            env={"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(runtime)
        assert runtime.stderr
        assert runtime.stderr.readline() == b"started\n"
        return runtime

    yield begin
    for runtime in started:
        runtime.kill()
        for stream in (runtime.stdout, runtime.stderr):
            if stream:
                stream.close()
        runtime.wait()


def ended(runtime: "subprocess.Popen[bytes]") -> dict[str, Any]:
    out, err = runtime.communicate(timeout=CEILING_SECONDS)
    assert runtime.returncode == 0, err.decode()
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.mark.parametrize("code", [STARVE, ZOMBIES, SIGNALS], ids=["starve", "zombies", "signals"])
def test_it_ends_at_the_limit(start: Start, marker: str, code: str) -> None:
    done = ended(start(code, limit_seconds=2))

    assert done["timed_out"]
    assert until(lambda: not alive(marker)), alive(marker)


def test_it_ends_when_asked_to_stop(start: Start, marker: str) -> None:
    runtime = start(STARVE)
    runtime.send_signal(signal.SIGINT)

    assert not ended(runtime)["timed_out"]
    assert until(lambda: not alive(marker)), alive(marker)


def test_it_ends_when_the_runtime_is_killed(start: Start, marker: str) -> None:
    runtime = start(STARVE)
    runtime.kill()

    assert until(lambda: not alive(marker)), alive(marker)


# -- the second clock alone: a supervisor that does nothing at all

STAY = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        while True:
            signal.pause()
print("started", flush=True)
while True:
    signal.pause()
"""


def stop_the_supervisor(marker: str, which: signal.Signals = signal.SIGSTOP) -> int:
    """From outside, as nothing inside could: send it to whoever started the first of the marked processes."""
    pids = alive(marker)
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]) for pid in pids}
    supervisor = parents[next(pid for pid in pids if parents[pid] not in pids)]
    os.kill(supervisor, which)
    return supervisor


def test_a_supervisor_that_hangs_is_not_waited_for_at_the_limit(start: Start, marker: str) -> None:
    runtime = start(STAY, limit_seconds=2)
    stop_the_supervisor(marker)

    assert ended(runtime)["timed_out"]
    assert until(lambda: not alive(marker)), alive(marker)


def test_a_supervisor_that_hangs_is_not_waited_for_when_asked_to_stop(start: Start, marker: str) -> None:
    runtime = start(STAY)
    stop_the_supervisor(marker)
    runtime.send_signal(signal.SIGINT)

    done = ended(runtime)
    assert (done["timed_out"], done["code"] != 0) == (False, True)
    assert until(lambda: not alive(marker)), alive(marker)


def test_a_supervisor_that_hangs_is_not_waited_for_when_the_runtime_is_killed(start: Start, marker: str) -> None:
    runtime = start(STAY)
    stop_the_supervisor(marker)
    runtime.kill()

    assert until(lambda: not alive(marker)), alive(marker)


def test_whoever_kills_the_supervisor_ends_the_run(start: Start, marker: str) -> None:
    runtime = start(STAY)
    stop_the_supervisor(marker, signal.SIGKILL)

    assert ended(runtime)["code"] == -signal.SIGKILL
    assert until(lambda: not alive(marker)), alive(marker)
