"""Applies the layers and limits to a process: the one piece of code that does, whoever starts the program and however.

Call it only in a freshly forked process with a single thread. Afterwards that process is inside, for good,
and execs the program, or runs Python that it has loaded already.

The rlimits cover: memory of each process, size of a file, open files, processes of an ordinary user, priority, no core
files. They do not cover the sum over processes (a cgroup does that), and the number of processes of root.
"""

import os
import re
import resource
from functools import cache
from pathlib import Path
from typing import Final

from skillyard.sandbox import landlock, namespaces, seccomp
from skillyard.sandbox.landlock import DEVICE, READ, WRITE, PathRule
from skillyard.sandbox.layers import ABI_SCOPES, ANY_NAMESPACES, OWN_NAMESPACES, Layers, Level
from skillyard.sandbox.policy import DEVICES, Policy, outside, refuse_special, system_paths
from skillyard.sandbox.syscalls import MACHINE, PR_SET_NO_NEW_PRIVS, drop_capabilities, prctl

#: Since Linux 5.14 processes are counted for each user namespace, before it for the person as a whole.
_COUNTED_BY_NAMESPACE: Final = (5, 14)


def warm_up() -> None:
    """Compute what is the same for every run, in the process that the others are copied from."""
    namespaces.system_layout(network=False)
    for own in (True, False) if MACHINE in seccomp.AUDIT_ARCH else ():
        allowed = seccomp.Sockets(internet=own, unix=own)
        seccomp.as_bytes(seccomp.assemble(MACHINE, allowed, shared=not own))
    counts_by_namespace()


def finish_root(old: int, policy: Policy, layers: Layers, cwd: str) -> bool:
    """First half, only after `namespaces.clone` and `begin`: the new root. Return whether it is sealed."""
    sealed = namespaces.finish(old, policy, cwd, pid_limit=layers.pid_limit and not layers.process_limit)
    return sealed and layers.overlay


def restrict(level: Level, policy: Policy, layers: Layers, temp: str, *, sealed: bool = False) -> None:
    """Second half, at every level but bubblewrap's: limits, capabilities, Landlock, seccomp, in this order.

    `temp` is the private folder outside, where there are no namespaces. `sealed` is what `finish_root` returned.
    """
    own_namespaces = level in OWN_NAMESPACES
    limit(policy, own_namespaces=own_namespaces)
    if level is Level.NONE:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    drop_capabilities()
    if layers.landlock:
        rules = rules_inside(policy) if own_namespaces else rules_outside(policy, temp)
        landlock.restrict(layers.landlock, rules, network=policy.network or own_namespaces)
    allowed = sockets(policy, level, layers, sealed=sealed)
    seccomp.load(seccomp.assemble(MACHINE, allowed, shared=not own_namespaces))


def sockets(policy: Policy, level: Level, layers: Layers, *, sealed: bool) -> seccomp.Sockets:
    """Which sockets a run may open.

    Internet sockets: with the grant, or in a net namespace of its own, where there is nothing but its own loopback.
    Unix sockets: only where no path and no abstract name leads to a socket of somebody else. That needs a mount
    namespace whose read mounts are `sealed` (see `namespaces`), and either a net namespace or Landlock's scopes.
    """
    apart = level in ANY_NAMESPACES
    scoped = level is Level.FULL and layers.landlock >= ABI_SCOPES
    return seccomp.Sockets(
        internet=policy.network or apart,
        unix=apart and sealed and (scoped or not policy.network),
    )


def rules_inside(policy: Policy) -> tuple[PathRule, ...]:
    """In the new root everything that exists may be read."""
    write = [PathRule(str(path), WRITE, literal=True) for path in outside(policy.write, policy.hide)]
    own = [PathRule(path, WRITE) for path in (namespaces.PRIVATE, "/tmp", "/dev/shm")]
    return (PathRule("/", READ), PathRule("/dev", DEVICE), *own, *write)


def rules_outside(policy: Policy, temp: str) -> tuple[PathRule, ...]:
    for path in (*policy.read, *policy.write, *policy.tools):
        if path.exists():
            refuse_special(str(path), path.stat().st_mode)
    system = [PathRule(path, READ) for path in (*system_paths(network=policy.network), "/proc")]
    devices = [PathRule(path, DEVICE) for path in DEVICES]
    named = [
        PathRule(str(visible), access, literal=True)
        for paths, access in (((*policy.tools, *policy.read), READ), (policy.write, WRITE))
        for path in paths
        for visible in landlock.without(path, policy.hide)
    ]
    return (*system, *devices, PathRule(temp, WRITE), *named)


# -- limits


@cache
def kernel_version(release: str) -> tuple[int, int]:
    """`6.1.0-13-amd64` as (6, 1)."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def counts_by_namespace() -> bool:
    """Whether this kernel counts processes for each user namespace."""
    return kernel_version(os.uname().release) >= _COUNTED_BY_NAMESPACE


def limit(policy: Policy, *, own_namespaces: bool) -> None:
    """Lower this process's limits, hard and soft; never raise one. With bubblewrap this is all that we apply."""
    processes = process_limit(policy.processes, counted_here=own_namespaces and counts_by_namespace())
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


def process_limit(processes: int, *, counted_here: bool) -> int:
    """The value for RLIMIT_NPROC. Where the person's other processes count too, add as many as this machine runs."""
    return processes + (2 if counted_here else _count_threads())


def _count_threads() -> int:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 4096
