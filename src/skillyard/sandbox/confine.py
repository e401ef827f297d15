"""Puts the layers on a process: the one piece of code that does, whoever starts the program and however.

Call it only in a freshly forked process with a single thread. Afterwards that process is inside, for good,
and execs the program, or runs Python that it has loaded already.
"""

import os
from pathlib import Path

from skillyard.sandbox import landlock, limits, namespaces, seccomp
from skillyard.sandbox.landlock import DEVICE, READ, WRITE, Rule
from skillyard.sandbox.layers import APART, Layers, Way
from skillyard.sandbox.policy import DEVICES, Policy, outside, system_paths
from skillyard.sandbox.syscalls import MACHINE, PR_SET_NO_NEW_PRIVS, drop_capabilities, prctl


def finish_root(old: int, policy: Policy, layers: Layers, cwd: str) -> None:
    """First half, only after `namespaces.clone` and `begin`: the new root."""
    namespaces.finish(old, policy, cwd, pid_limit=layers.pid_limit and not layers.process_limit)


def warm_up() -> None:
    """Work out what is the same for every run, in the process that the others are copied from."""
    namespaces.system_layout(network=False)
    for apart in (True, False) if MACHINE in seccomp.AUDIT_ARCH else ():
        seccomp.as_bytes(seccomp.assemble(MACHINE, sockets(Policy(), apart=apart), shared=not apart))
    limits.kernel(os.uname().release)


def restrict(way: Way, policy: Policy, layers: Layers, temp: str) -> None:
    """Second half, in every way but bubblewrap's: limits, capabilities, Landlock, seccomp, in this order.

    `temp` is the private folder outside, where there are no namespaces.
    """
    apart = way in APART
    limit(policy, apart=apart)
    if way is Way.NONE:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    drop_capabilities()
    if layers.landlock:
        rules = rules_inside(policy) if apart else rules_outside(policy, temp)
        landlock.restrict(layers.landlock, rules, network=policy.network)
    seccomp.load(seccomp.assemble(MACHINE, sockets(policy, apart=apart), shared=not apart))


def limit(policy: Policy, *, apart: bool) -> None:
    """The only half that bubblewrap leaves to us."""
    counted_here = apart and limits.kernel(os.uname().release) >= limits.COUNTED_BY_NAMESPACE
    limits.apply(policy, limits.process_limit(policy.processes, counted_here=counted_here))


def sockets(policy: Policy, *, apart: bool) -> seccomp.Sockets:
    """Without a mount namespace a path leads to anybody's socket, and Landlock does not look at that."""
    return seccomp.Sockets(internet=policy.network, unix=apart)


def rules_inside(policy: Policy) -> tuple[Rule, ...]:
    """In the new root everything that exists may be read."""
    write = [Rule(str(path), WRITE, literal=True) for path in outside(policy.write, policy.hide)]
    own = [Rule(path, WRITE) for path in (namespaces.PRIVATE, "/tmp", "/dev/shm")]
    return (Rule("/", READ), Rule("/dev", DEVICE), *own, *write)


def rules_outside(policy: Policy, temp: str) -> tuple[Rule, ...]:
    system = [Rule(path, READ) for path in (*system_paths(network=policy.network), "/proc")]
    devices = [Rule(path, DEVICE) for path in DEVICES]
    read = [Rule(str(kept), READ, literal=True) for path in policy.read for kept in _visible(path, policy)]
    write = [Rule(str(kept), WRITE, literal=True) for path in policy.write for kept in _visible(path, policy)]
    return (*system, *devices, Rule(temp, WRITE), *read, *write)


def _visible(path: Path, policy: Policy) -> tuple[Path, ...]:
    return landlock.without(path, policy.hide)
