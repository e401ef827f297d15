"""A process is in its cgroup from the start, whoever puts it there."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from skillyard.sandbox import cgroup
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.launch import Launch, Policy
from skillyard.sandbox.launcher import Launcher
from skillyard.sandbox.layers import Hierarchies


def _cgroups_of(clone: Callable[[int], int], enter: Callable[[], None]) -> str:
    """Return what a child that enters reads in its own /proc/self/cgroup."""
    answers, say = os.pipe()
    pid = clone(0)
    if pid == 0:
        try:
            enter()
            os.write(say, Path("/proc/self/cgroup").read_bytes())
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(answers, "rb") as stream:
        told = stream.read().decode()
    os.waitpid(pid, 0)
    return told


@pytest.fixture
def found() -> Hierarchies:
    hierarchies = cgroup.find()
    if not hierarchies.folders:
        pytest.skip("no cgroup is writable here")
    return hierarchies


@pytest.fixture
def unified(found: Hierarchies) -> Hierarchies:
    """As where version 2 carries every controller: one folder, in which a process is made."""
    if not found.unified:
        pytest.skip("no cgroup of version 2 is writable here")
    return Hierarchies(found.unified, found.unified, found.unified)


def test_a_process_made_inside_is_in_the_unified_cgroup_at_once(unified: Hierarchies) -> None:
    with closing(Cgroup(unified)) as group:
        told = _cgroups_of(group.clone, lambda: None)

    assert f"/skillyard-{os.getpid()}-" in told.splitlines()[-1]
    assert not list(Path(unified.unified).glob(f"skillyard-{os.getpid()}-*"))


def test_a_process_that_enters_is_in_every_cgroup_of_version_1(found: Hierarchies) -> None:
    hierarchies = found._replace(unified="") if found.unified not in {found.memory, found.pids} else found
    with closing(Cgroup(hierarchies)) as group:
        lines = _cgroups_of(group.clone, group.enter).splitlines()

    placed = [line for line in lines if f"/skillyard-{os.getpid()}-" in line]
    assert len(placed) == len(hierarchies.folders)


def test_a_run_is_in_its_cgroups_with_all_that_it_starts(found: Hierarchies) -> None:
    with Launcher() as launcher:
        done = launcher(Launch(argv=("/bin/sh", "-c", "cat /proc/self/cgroup"), cwd=Path("/"), policy=Policy()))

    assert done.code == 0
    assert done.stdout.count(b"/skillyard-") == len({found.memory, found.pids} - {""})
