"""A cgroup for each run, where one can be made: limits memory and processes in total, and kills everybody at once.

Uses version 2 if its controllers are delegated to us, and version 1's `memory` and `pids` if those are writable.
Not covered: machines where no cgroup is writable; there `layers` reports that `memory` is missing.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from skillyard.sandbox.launch import Policy
from skillyard.sandbox.layers import Hierarchies
from skillyard.sandbox.syscalls import buffer, call, closing_fd, write_file

_V1: Final = ("memory", "pids")
_PREFIX: Final = "skillyard-"
_INTO_CGROUP: Final = 0x2_0000_0000  # of clone3, since Linux 5.7


def find() -> Hierarchies:
    """Find what this process may use, by making a cgroup and removing it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return Hierarchies()
    mine = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    points = [point for _, point, kind, *_ in mounts if kind == "cgroup2"]
    unified, controllers = _find_unified(points[0], mine.get("", "/")) if points else ("", [])
    found = dict.fromkeys(_V1, unified)
    for name in set(_V1) - set(controllers):
        points = [point for _, point, kind, options, *_ in mounts if kind == "cgroup" and name in options.split(",")]
        places = (place for point in points[:1] for place in (point + mine.get(name, "/"), point))
        found[name] = next(filter(_can_hold, places), "")
    return Hierarchies(unified=unified, memory=found["memory"], pids=found["pids"])


def _find_unified(point: str, own: str) -> tuple[str, list[str]]:
    """The nearest writable ancestor and the controllers it delegates, which may be none: it can still kill."""
    best: tuple[str, list[str]] = ("", [])
    place = Path(point + own)
    for folder in (place, *place.parents):
        if not folder.is_relative_to(point):
            break
        with contextlib.suppress(OSError):
            delegated = (folder / "cgroup.subtree_control").read_text().split()
            if _can_hold(str(folder)):
                if {*_V1} <= {*delegated}:
                    return str(folder), delegated
                best = best if best[0] else (str(folder), delegated)
    return best


def _can_hold(folder: str) -> bool:
    trial = f"{folder}/{_PREFIX}{os.getpid()}-probe"
    with contextlib.suppress(OSError):
        os.mkdir(trial)
        os.rmdir(trial)
        return os.access(f"{folder}/cgroup.procs", os.W_OK)
    return False


def sweep(hierarchies: Hierarchies) -> None:
    """Remove the cgroups that killed starters left."""
    for folder in hierarchies.folders:
        for left in Path(folder).glob(f"{_PREFIX}*-*"):
            owner = left.name.removeprefix(_PREFIX).partition("-")[0]
            if not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    left.rmdir()


class Cgroup:
    """The cgroup of one run, made empty: set its limits, and have a process in it before that starts anything.

    Without a hierarchy there is none, and it limits nothing. Its name says which process will remove it, so that others
    can if that one is killed.

    To move a process from outside, the kernel waits for all processors, which takes 4 to 12 ms. It does not wait if a
    process moves itself as a thread (`enter`; version 1), or is made inside (`clone`; version 2).
    """

    def __init__(self, hierarchies: Hierarchies) -> None:
        name = f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
        self._folders = {folder: f"{folder.rstrip('/')}/{name}" for folder in hierarchies.folders}
        self._memory = self._folders.get(hierarchies.memory, "")
        self._pids = self._folders.get(hierarchies.pids, "")
        self._unified = self._folders.get(hierarchies.unified, "")
        for folder in self._folders.values():
            os.mkdir(folder)
        #: Open files to (limit, counter): after `namespaces.finish` the folder is not visible any more.
        self._counters: dict[int, tuple[str, str]] = {}
        events = "memory.events" if self._memory == self._unified else "memory.oom_control"
        for folder, file, limit, counter in (
            (self._memory, events, "memory", "oom_kill"),
            (self._pids, "pids.events", "processes", "max"),
        ):
            with contextlib.suppress(OSError):
                if folder:
                    self._counters[os.open(f"{folder}/{file}", os.O_RDONLY | os.O_CLOEXEC)] = (limit, counter)

    def limit(self, policy: Policy) -> None:
        settings = {"memory.max": policy.memory_bytes, "memory.swap.max": 0}
        if self._memory != self._unified:
            settings = dict.fromkeys(("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), policy.memory_bytes)
        settings = {f"{self._memory}/{name}": value for name, value in settings.items() if self._memory}
        if self._pids:
            settings[f"{self._pids}/pids.max"] = policy.processes + 2  # the supervisor, and the one of `lookups`
        for path, value in settings.items():
            with contextlib.suppress(FileNotFoundError):  # there is no such limit here
                write_file(path, str(value))

    def clone(self, flags: int) -> int:
        """Make the system call; the child is in the cgroup of version 2, and must still `enter` those of version 1."""
        if self._unified:
            with contextlib.suppress(OSError), closing_fd(os.open(self._unified, os.O_PATH | os.O_CLOEXEC)) as folder:
                fields = (flags | _INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, folder)
                return call("clone3", buffer(f"={len(fields)}Q", *fields), 8 * len(fields))
        pid = call("clone", flags | signal.SIGCHLD)
        if pid and self._unified:  # before Linux 5.7, or where a container refuses it
            write_file(f"{self._unified}/cgroup.procs", str(pid))
        return pid

    def enter(self, *, also_unified: bool = False) -> None:
        """Move this process, which must have a single thread, into the cgroups of version 1."""
        for folder in {self._memory, self._pids} - {"", self._unified}:
            write_file(f"{folder}/tasks", "0")
        if also_unified and self._unified:
            write_file(f"{self._unified}/cgroup.procs", "0")

    def kill(self) -> bool:
        """Kill all processes in it. Return False if this kernel cannot."""
        if not self._unified:
            return False
        try:
            write_file(f"{self._unified}/cgroup.kill", "1")
        except OSError:
            return False
        return True

    def hit(self) -> str:
        """The limit that was reached, or an empty text."""
        for file, (limit, counter) in self._counters.items():
            lines = os.pread(file, 4096, 0).decode().splitlines()
            if any(int(line.split()[1]) for line in lines if line.startswith(f"{counter} ")):
                return limit
        return ""

    def close_counters(self) -> None:
        for file in self._counters:
            os.close(file)
        self._counters = {}

    def close(self) -> None:
        """Remove it."""
        self.close_counters()
        for folder in self._folders.values():
            with contextlib.suppress(OSError):  # a process that the kernel has not let go of yet keeps it
                os.rmdir(folder)
