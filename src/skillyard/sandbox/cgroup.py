"""A cgroup for each run, where one can be made: limits memory and processes in total, and kills everybody at once.

Uses version 2 if its controllers are delegated to us, and version 1's `memory` and `pids` if those are writable.
Not covered: machines where no cgroup is writable; there `layers` reports that `memory` is missing.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from skillyard.sandbox.layers import Hierarchies
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.syscalls import write_file

_V1: Final = ("memory", "pids")
_PREFIX: Final = "skillyard-"


def find() -> Hierarchies:
    """Find what this process may use, by making a cgroup and removing it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return Hierarchies()
    mine = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    unified, controllers = _unified(_mount_points(mounts, "cgroup2"), mine.get("", "/"))
    found = {name: unified for name in _V1 if name in controllers}
    for name in _V1:
        if name not in found:
            found[name] = _version_1(mounts, name, mine.get(name, "/"))
    return Hierarchies(unified=unified, memory=found["memory"], pids=found["pids"])


def sweep(hierarchies: Hierarchies) -> None:
    """Remove the cgroups that killed starters left."""
    for folder in hierarchies.folders:
        for left in Path(folder).glob(f"{_PREFIX}*-*"):
            owner = left.name.removeprefix(_PREFIX).partition("-")[0]
            if not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    left.rmdir()


def _mount_points(mounts: Iterable[str], kind: str) -> list[tuple[str, str]]:
    fields = (line.split(" ") for line in mounts)
    return [(field[1], field[3]) for field in fields if len(field) > 3 and field[2] == kind]


def _unified(points: list[tuple[str, str]], own: str) -> tuple[str, str]:
    """The nearest writable ancestor and the controllers it delegates, which may be none: it can still kill."""
    best = ("", "")
    for point, _ in points[:1]:
        place = Path(point + own)
        for folder in (place, *place.parents):
            if not folder.is_relative_to(point):
                break
            if not _can_hold(str(folder)):
                continue
            handed = _read(f"{folder}/cgroup.subtree_control")
            if "memory" in handed and "pids" in handed:
                return str(folder), handed
            best = best if best[0] else (str(folder), handed)
    return best


def _version_1(mounts: Iterable[str], name: str, own: str) -> str:
    for point, options in _mount_points(mounts, "cgroup"):
        if name in options.split(","):
            return next((place for place in (point + own, point) if _can_hold(place)), "")
    return ""


def _can_hold(folder: str) -> bool:
    trial = f"{folder}/{_PREFIX}{os.getpid()}-probe"
    if not os.access(f"{folder}/cgroup.procs", os.W_OK):
        return False
    try:
        os.mkdir(trial)
        os.rmdir(trial)
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


class Cgroup:
    """The cgroup of one run. Made empty; `limit` it and `add` a process before that starts anything."""

    def __init__(self, hierarchies: Hierarchies, name: str) -> None:
        self._where = {folder: f"{folder.rstrip('/')}/{name}" for folder in hierarchies.folders}
        self._memory = self._where.get(hierarchies.memory, "")
        self._pids = self._where.get(hierarchies.pids, "")
        self._unified = self._where.get(hierarchies.unified, "")
        self._counters: dict[int, tuple[str, str]] = {}

    @classmethod
    def make(cls, hierarchies: Hierarchies) -> Self | None:
        """Make one. Its name says which process will remove it, so that others can if that one is killed."""
        if not hierarchies.folders:
            return None
        group = cls(hierarchies, f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
        for folder in group._where.values():
            os.mkdir(folder)
        group._counters = group._open_counters()
        return group

    def limit(self, policy: Policy) -> None:
        for path, value in self._settings(policy).items():
            with contextlib.suppress(FileNotFoundError):
                write_file(path, str(value))

    def _settings(self, policy: Policy) -> Mapping[str, int]:
        if not self._memory:
            memory = {}
        elif self._memory == self._unified:
            memory = {"memory.max": policy.memory_bytes, "memory.swap.max": 0}
        else:
            memory = {
                "memory.limit_in_bytes": policy.memory_bytes,
                "memory.memsw.limit_in_bytes": policy.memory_bytes,
            }
        settings = {f"{self._memory}/{name}": value for name, value in memory.items()}
        if self._pids:
            settings[f"{self._pids}/pids.max"] = policy.processes + 1  # the first process of the namespace
        return settings

    def add(self, pid: int) -> None:
        for folder in self._where.values():
            write_file(f"{folder}/cgroup.procs", str(pid))

    def kill(self) -> bool:
        """Kill all processes in it. Return False if this kernel cannot."""
        try:
            write_file(f"{self._unified}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def _open_counters(self) -> dict[int, tuple[str, str]]:
        """Open files to (limit, counter): after `namespaces.finish` the folder is not visible any more."""
        memory = "memory.events" if self._memory == self._unified else "memory.oom_control"
        wanted = {
            f"{self._memory}/{memory}": ("memory", "oom_kill"),
            f"{self._pids}/pids.events": ("processes", "max"),
        }
        opened: dict[int, tuple[str, str]] = {}
        for path, what in wanted.items():
            with contextlib.suppress(OSError):
                opened[os.open(path, os.O_RDONLY | os.O_CLOEXEC)] = what
        return opened

    def hit(self) -> str:
        """The limit that was reached, or an empty text."""
        for file, (limit, counter) in self._counters.items():
            if _count(os.pread(file, 4096, 0).decode(), counter):
                return limit
        return ""

    def close(self) -> None:
        """Close what `make` opened."""
        for file in self._counters:
            os.close(file)
        self._counters = {}

    def remove(self) -> None:
        self.close()
        for folder in self._where.values():
            with contextlib.suppress(OSError):  # a process that the kernel has not let go of yet keeps it
                os.rmdir(folder)


def _count(text: str, name: str) -> int:
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} ")), 0)
