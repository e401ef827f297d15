"""What one process may take: rlimits, inherited by all that it starts.

Covered: memory of each process, size of a file, open files, processes of an ordinary user, priority, no core files.
Not covered: the sum over processes (a cgroup does that), and the number of processes of root.
"""

import re
import resource
from functools import cache
from pathlib import Path
from typing import Final

from skillyard.sandbox.policy import Policy

#: Since Linux 5.14 processes are counted for each user namespace, before it for the person as a whole.
COUNTED_BY_NAMESPACE: Final = (5, 14)


@cache
def kernel(release: str) -> tuple[int, int]:
    """`6.1.0-13-amd64` as (6, 1)."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def process_limit(processes: int, *, counted_here: bool) -> int:
    """Where the person's other processes count too, room for all that run on this machine is added."""
    return processes + (2 if counted_here else _threads_running())


def _threads_running() -> int:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 4096


def apply(policy: Policy, processes: int) -> None:
    """Lower this process's limits, hard and soft; never raise one."""
    for which, value in (
        # Not 0: that still starts the program of a piped core_pattern, outside and as root.
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_DATA, policy.memory_bytes),
        (resource.RLIMIT_FSIZE, policy.file_bytes),
        (resource.RLIMIT_NOFILE, policy.open_files),
        (resource.RLIMIT_NPROC, processes),
        # No real-time policy and no higher priority, whatever the person themselves may have.
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_NICE, 0),
    ):
        hard = resource.getrlimit(which)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (most, most))
