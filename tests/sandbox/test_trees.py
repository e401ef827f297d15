"""Nothing of a run is left: at its end, at the limit, when the runtime is killed. By the process list."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillyard.sandbox.launch import Launch, Policy, python_paths
from skillyard.sandbox.launcher import Launcher
from skillyard.sandbox.layers import Layers
from tests.sandbox.conftest import HERE, SOURCE

#: A daemon, a double fork, one that ignores SIGTERM, and all of them hold stdout open.
HOSTILE = """
import os, signal, sys, time
def stay():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    stay()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay()
        os._exit(0)
    os._exit(0)
if os.fork() == 0:
    stay()
print("started", flush=True)
"""
STAY = HOSTILE + "stay()\n"
CEILING_SECONDS = 30.0


@pytest.fixture
def marker() -> str:
    return f"marked-{os.urandom(8).hex()}"


def marked(marker: str) -> list[str]:
    """The processes that carry the marker in their environment: every one that the run started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return found


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + CEILING_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


WAYS = ["none", "full", "landlock+seccomp", "subreaper"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def launcher(way: str) -> Iterator[Launcher]:
    with Launcher() as probing:
        layers = probing.layers
    if way != "full":
        layers = layers._replace(namespaces=False, bubblewrap="")
    if way == "subreaper":  # no cgroup.kill either
        layers = layers._replace(cgroup=Layers().cgroup)
    with Launcher(layers, weak=True) as launcher:
        yield launcher


@pytest.fixture
def hostile(way: str, marker: str, tmp_path: Path) -> Launch:
    policy = None if way == "none" else Policy(read=(*python_paths(), tmp_path))
    return Launch(
        argv=(sys.executable, "-I", "-S", "-c", HOSTILE),
        cwd=tmp_path,
        env={"MARKER": marker},
        policy=policy,
        limit_seconds=CEILING_SECONDS,
    )


def test_whoever_a_program_leaves_behind_dies_with_it(launcher: Launcher, hostile: Launch, marker: str) -> None:
    done = launcher(hostile)

    assert marked(marker) == []
    assert (done.code, done.stdout, done.timed_out) == (0, b"started\n", False)
    assert done.seconds < CEILING_SECONDS


@pytest.mark.alone  # it must start within the limit that it is ended at
def test_at_the_limit_the_whole_tree_dies(launcher: Launcher, hostile: Launch, marker: str) -> None:
    argv = (*hostile.argv[:-1], STAY)
    done = launcher(hostile._replace(argv=argv, limit_seconds=2.0))

    assert marked(marker) == []
    assert done.timed_out
    assert done.code == -signal.SIGKILL
    assert done.stdout == b"started\n"
    assert 2.0 <= done.seconds < CEILING_SECONDS


@pytest.mark.alone  # it must start within the limit that it is ended at
def test_a_program_that_heeds_sigterm_may_say_goodbye(launcher: Launcher, hostile: Launch) -> None:
    code = "trap 'echo bye; exit 7' TERM; echo up; sleep 600 & wait"
    done = launcher(hostile._replace(argv=("/bin/sh", "-c", code), limit_seconds=1.0))

    assert (done.code, done.stdout, done.timed_out) == (7, b"up\nbye\n", True)


def test_a_background_sleep_does_not_hold_the_result_up(launcher: Launcher, hostile: Launch, marker: str) -> None:
    done = launcher(hostile._replace(argv=("/bin/sh", "-c", "sleep 47 & echo done")))

    assert done.stdout == b"done\n"
    assert done.seconds < 40
    assert marked(marker) == []


def test_a_killed_runtime_leaves_nothing(way: str, marker: str, ground: Path) -> None:
    given = {"way": way, "marker": marker, "cwd": str(ground), "code": STAY}
    runtime = subprocess.Popen(
        (sys.executable, str(HERE / "doomed.py"), json.dumps(given)),
        env={"PYTHONPATH": str(SOURCE)},
        stderr=subprocess.PIPE,
    )
    assert runtime.stderr
    assert runtime.stderr.readline() == b"started\n"
    assert until(lambda: len(marked(marker)) >= 4)

    runtime.kill()
    runtime.communicate()

    assert until(lambda: marked(marker) == []), marked(marker)


def test_a_killed_starter_is_replaced(launcher: Launcher, hostile: Launch) -> None:
    launcher(hostile)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    starters = [int(pid) for pid in children if _is_starter(int(pid))]
    for pid in starters:
        os.kill(pid, signal.SIGKILL)
        assert until(lambda: _is_zombie(pid))  # noqa: B023

    assert launcher(hostile).stdout == b"started\n"


def _is_starter(pid: int) -> bool:
    """The starter leads a session and listens on descriptor 3."""
    try:
        return os.getsid(pid) == pid and str(Path(f"/proc/{pid}/fd/3").readlink()).startswith("socket:")
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_many_at_once_lose_nothing(launcher: Launcher, hostile: Launch, marker: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int) -> bytes:
        return launcher(hostile._replace(argv=("/bin/echo", str(number)))).stdout

    with ThreadPoolExecutor(16) as threads:
        said = list(threads.map(one, range(64)))

    assert said == [f"{number}\n".encode() for number in range(64)]
    assert marked(marker) == []


def test_nothing_of_a_run_stays_on_the_disk_or_among_the_cgroups(
    launcher: Launcher, hostile: Launch, tmp_path: Path
) -> None:
    done = launcher(hostile._replace(argv=("/bin/sh", "-c", "echo $TMPDIR")))
    assert launcher._starter
    starter = launcher._starter._pid
    launcher.close()

    where = Path(done.stdout.decode().strip())
    assert where in {Path(), Path("/tmp")} or not where.exists()
    for folder in launcher.layers.cgroup.folders:
        assert not list(Path(folder).glob(f"skillyard-{starter}-*"))


def test_cgroups_of_a_killed_starter_are_swept_up_by_the_next(tmp_path: Path) -> None:
    gone = subprocess.Popen(("/bin/true",))
    gone.wait()
    with Launcher() as first:
        folders = [Path(folder) for folder in first.layers.cgroup.folders]
    if not folders:
        pytest.skip("no cgroup is writable here")
    left = [folder / f"skillyard-{gone.pid}-left" for folder in folders]
    for path in left:
        path.mkdir()

    with Launcher() as second:
        assert second.layers == first.layers

    assert not any(path.exists() for path in left)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def in_a_process_of_its_own(*call: object) -> None:
    """Call a function of this module in a process with one thread: the workers of pytest-xdist have more."""
    name, *args = call
    code = f"from tests.sandbox import test_trees; test_trees.{name}(*{args!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parents[1], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_run_that_was_expected_is_given_to_the_supervisor_that_waits_for_it(sandboxed: bool) -> None:
    in_a_process_of_its_own("expect_and_run", sandboxed)


def expect_and_run(sandboxed: bool) -> None:
    with Launcher() as probing:
        layers = probing.layers
    with Launcher(assumed=layers) as launcher:
        launcher.expect(sandboxed=sandboxed)
        starter = launcher._starter
        assert starter
        assert until(lambda: bool(_children(starter._pid)))
        waiting = _children(starter._pid)
        show = ("/bin/sh", "-c", "cat /proc/$PPID/status")
        policy = Policy() if sandboxed else None

        done = launcher(Launch(argv=show, cwd=Path("/"), policy=policy))

        supervisor = next(line for line in done.stdout.decode().splitlines() if line.startswith("Pid:")).split()[1]
        assert supervisor == ("1" if layers.own_namespaces and sandboxed else waiting[0])
        assert len(waiting) == 1
        assert until(lambda: not _children(starter._pid))


def test_a_run_that_was_expected_and_never_comes_leaves_nothing() -> None:
    in_a_process_of_its_own("expect_in_vain")


def expect_in_vain() -> None:
    with Launcher() as probing:
        layers = probing.layers
    launcher = Launcher(assumed=layers)
    launcher.expect(sandboxed=True)
    assert launcher._starter
    starter = launcher._starter._pid

    launcher.close()

    assert not Path(f"/proc/{starter}").exists()
    for folder in layers.cgroup.folders:
        assert not list(Path(folder).glob(f"skillyard-{starter}-*"))


def test_a_run_of_another_sort_than_expected_gets_its_own_supervisor() -> None:
    with Launcher() as probing:
        layers = probing.layers
    with Launcher(assumed=layers) as launcher:
        launcher.expect(sandboxed=True)

        done = launcher(Launch(argv=("/bin/echo", "hi"), cwd=Path("/"), policy=Policy(network=True)))
        bare = launcher(Launch(argv=("/bin/echo", "hi"), cwd=Path("/")))

    assert (done.stdout, bare.stdout) == (b"hi\n", b"hi\n")
