"""Puts the layers on a process: the one piece of code that does, whoever starts the program and however.

Call it only in a freshly forked process with a single thread. Afterwards that process is inside, for good,
and execs the program, or runs Python that it has loaded already.
"""

import os
from pathlib import Path

from skillyard.sandbox import landlock, limits, namespaces, seccomp
from skillyard.sandbox.landlock import DEVICE, READ, WRITE, Rule
from skillyard.sandbox.layers import APART, Layers, Way
from skillyard.sandbox.policy import DEVICES, Policy, outside, refuse_special, system_paths
from skillyard.sandbox.syscalls import MACHINE, PR_SET_NO_NEW_PRIVS, drop_capabilities, prctl


def finish_root(old: int, policy: Policy, layers: Layers, cwd: str) -> bool:
    """First half, only after `namespaces.clone` and `begin`: the new root. Return whether it is sealed."""
    sealed = namespaces.finish(old, policy, cwd, pid_limit=layers.pid_limit and not layers.process_limit)
    return sealed and layers.overlay


def warm_up() -> None:
    """Work out what is the same for every run, in the process that the others are copied from."""
    namespaces.system_layout(network=False)
    for apart in (True, False) if MACHINE in seccomp.AUDIT_ARCH else ():
        found = seccomp.Sockets(internet=apart, unix=apart)
        seccomp.as_bytes(seccomp.assemble(MACHINE, found, shared=not apart))
    limits.kernel(os.uname().release)


def restrict(way: Way, policy: Policy, layers: Layers, temp: str, *, sealed: bool = False) -> None:
    """Second half, in every way but bubblewrap's: limits, capabilities, Landlock, seccomp, in this order.

    `temp` is the private folder outside, where there are no namespaces. `sealed` is what `finish_root` returned.
    """
    apart = way in APART
    limit(policy, apart=apart)
    if way is Way.NONE:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    drop_capabilities()
    if layers.landlock:
        rules = rules_inside(policy) if apart else rules_outside(policy, temp)
        landlock.restrict(layers.landlock, rules, network=policy.network or apart)
    found = sockets(policy, way, layers, sealed=sealed)
    seccomp.load(seccomp.assemble(MACHINE, found, shared=not apart))


def limit(policy: Policy, *, apart: bool) -> None:
    """The only half that bubblewrap leaves to us."""
    counted_here = apart and limits.kernel(os.uname().release) >= limits.COUNTED_BY_NAMESPACE
    limits.apply(policy, limits.process_limit(policy.processes, counted_here=counted_here))


def sockets(policy: Policy, way: Way, layers: Layers, *, sealed: bool) -> seccomp.Sockets:
    """Which sockets a run may open.

    Internet sockets: with the grant, or in a net namespace of its own, where there is nothing but its own loopback.
    Unix sockets: only where no path and no abstract name leads to a socket of somebody else. That needs a mount
    namespace whose read mounts are `sealed` (see `overlay`), and either a net namespace or Landlock's scopes.
    """
    apart = way in APART or way is Way.BUBBLEWRAP
    scoped = way is Way.FULL and layers.landlock >= landlock.ABI_SCOPES
    return seccomp.Sockets(
        internet=policy.network or apart,
        unix=apart and sealed and (scoped or not policy.network),
    )


def rules_inside(policy: Policy) -> tuple[Rule, ...]:
    """In the new root everything that exists may be read."""
    write = [Rule(str(path), WRITE, literal=True) for path in outside(policy.write, policy.hide)]
    own = [Rule(path, WRITE) for path in (namespaces.PRIVATE, "/tmp", "/dev/shm")]
    return (Rule("/", READ), Rule("/dev", DEVICE), *own, *write)


def rules_outside(policy: Policy, temp: str) -> tuple[Rule, ...]:
    for path in (*policy.read, *policy.write, *policy.tools):
        if path.exists():
            refuse_special(str(path), path.stat().st_mode)
    system = [Rule(path, READ) for path in (*system_paths(network=policy.network), "/proc")]
    devices = [Rule(path, DEVICE) for path in DEVICES]
    read = [
        Rule(str(kept), READ, literal=True) for path in (*policy.tools, *policy.read) for kept in _visible(path, policy)
    ]
    write = [Rule(str(kept), WRITE, literal=True) for path in policy.write for kept in _visible(path, policy)]
    return (*system, *devices, Rule(temp, WRITE), *read, *write)


def _visible(path: Path, policy: Policy) -> tuple[Path, ...]:
    return landlock.without(path, policy.hide)
