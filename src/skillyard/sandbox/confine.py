"""Applies the layers and limits to a process: the one piece of code that does, whoever starts the program and however.

Call it only in a freshly forked process with a single thread, which is inside afterwards, for good.

Landlock covers: reading, running, writing, making, removing, renaming and (ABI 3) truncating files; TCP (ABI 4);
device ioctls (ABI 5); signals and abstract sockets to the outside (ABI 6); tracing the outside (always). It does not
cover seeing that a file exists (stat), UDP and path sockets; seccomp and the mounts cover the last two.

The rlimits cover: memory of each process, size of a file, open files, processes of an ordinary user, priority, no core
files. They do not cover the sum over processes (a cgroup does that), and the number of processes of root.
"""

import os
import re
import resource
import stat
from collections.abc import Iterable
from enum import IntFlag
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from skillyard.sandbox import namespaces, seccomp
from skillyard.sandbox.launch import DEVICES, PRIVATE, Policy, is_hidden, is_inside, refuse_special, system_paths
from skillyard.sandbox.layers import ABI_SCOPES, Layers, Level
from skillyard.sandbox.syscalls import AT_FDCWD, MACHINE, buffer, call, closing_fd, drop_capabilities, open_path, prctl


def warm_up() -> None:
    """Compute what is the same for every run, in the process that the others are copied from."""
    namespaces.system_layout(network=False)
    counts_by_namespace()
    for own in (True, False) if MACHINE in seccomp.AUDIT_ARCH else ():
        allowed = seccomp.Sockets(internet=own, unix=own)
        seccomp.as_bytes(seccomp.assemble(MACHINE, allowed, shared=not own))


def restrict(policy: Policy, layers: Layers, temp: str, *, sealed: bool = False) -> None:
    """Apply limits, capabilities, Landlock, seccomp, in this order. At every level but bubblewrap's.

    `temp` is the private folder outside, where there are no namespaces. `sealed` is what `namespaces.finish` returned.
    """
    own_namespaces = layers.own_namespaces
    limit(policy, own_namespaces=own_namespaces)
    if layers.level is Level.NONE:
        return
    prctl("NO_NEW_PRIVS", 1)
    drop_capabilities()
    if layers.landlock:
        rules = rules_inside(policy) if own_namespaces else rules_outside(policy, temp)
        _restrict_paths(layers.landlock, rules, network=policy.network or own_namespaces)
    seccomp.load(seccomp.assemble(MACHINE, sockets(policy, layers, sealed=sealed), shared=not own_namespaces))


def sockets(policy: Policy, layers: Layers, *, sealed: bool) -> seccomp.Sockets:
    """Which sockets a run may open.

    Internet sockets: with the grant, or in a net namespace of its own, where there is nothing but its own loopback.
    Unix sockets: only where no path and no abstract name leads to a socket of somebody else. That needs a mount
    namespace whose read mounts are `sealed` (see `namespaces`), and either a net namespace or Landlock's scopes.
    """
    apart = layers.can_mount
    scoped = layers.level is Level.FULL and layers.landlock >= ABI_SCOPES
    return seccomp.Sockets(internet=policy.network or apart, unix=apart and sealed and (scoped or not policy.network))


Access = IntFlag(
    "Access",
    "EXECUTE WRITE_FILE READ_FILE READ_DIR REMOVE_DIR REMOVE_FILE MAKE_CHAR MAKE_DIR MAKE_REG MAKE_SOCK MAKE_FIFO "
    "MAKE_BLOCK MAKE_SYM REFER TRUNCATE IOCTL_DEV",
)
_READ: Final = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
_DEVICE: Final = Access.READ_FILE | Access.READ_DIR | Access.WRITE_FILE | Access.TRUNCATE | Access.IOCTL_DEV
#: Everything but making device nodes.
_WRITE: Final = Access(0xFFFF) & ~(Access.MAKE_CHAR | Access.MAKE_BLOCK | Access.IOCTL_DEV)
#: What a rule on a single file can say.
_ON_A_FILE: Final = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV


class PathRule(NamedTuple):
    path: str
    access: Access
    literal: bool = False  # a path that others may have changed is never followed through a symlink


def landlock_version() -> int:
    """The ABI of this kernel, 0 if it has no Landlock."""
    try:
        return call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def handled(abi: int) -> Access:
    """The rights that this ABI knows; all of them are taken away first."""
    known = Access((1 << 13) - 1)
    for since, right in ((2, Access.REFER), (3, Access.TRUNCATE), (5, Access.IOCTL_DEV)):
        if abi >= since:
            known |= right
    return known


def rules_inside(policy: Policy) -> tuple[PathRule, ...]:
    """In the new root everything that exists may be read."""
    changed = (policy.copy_on_write.folder,) if policy.copy_on_write else ()
    written = (str(path) for path in (*policy.write, *changed))
    write = [PathRule(path, _WRITE, literal=True) for path in written if not is_hidden(path, policy.hide)]
    own = [PathRule(path, _WRITE) for path in (PRIVATE, "/tmp", "/dev/shm")]
    return (PathRule("/", _READ), PathRule("/dev", _DEVICE), *own, *write)


def rules_outside(policy: Policy, temp: str) -> tuple[PathRule, ...]:
    for path in (*policy.read, *policy.write, *policy.tools):
        if path.exists():
            refuse_special(str(path), path.stat().st_mode)
    system = [PathRule(path, _READ) for path in (*system_paths(network=policy.network), "/proc")]
    devices = [PathRule(path, _DEVICE) for path in DEVICES]
    named = [
        PathRule(str(visible), access, literal=True)
        for paths, access in (((*policy.tools, *policy.read), _READ), (policy.write, _WRITE))
        for path in paths
        for visible in without(path, policy.hide)
    ]
    return (*system, *devices, PathRule(temp, _WRITE), *named)


def without(path: Path, hidden: tuple[Path, ...]) -> tuple[Path, ...]:
    """`path`, or if something below it is hidden, what else is in there now: a Landlock rule can only allow."""
    if is_hidden(str(path), hidden):
        return ()
    if not any(is_inside(str(secret), str(path)) for secret in hidden):
        return (path,)
    children = sorted(path.iterdir()) if path.is_dir() else ()
    return tuple(kept for child in children if not child.is_symlink() for kept in without(child, hidden))


def _restrict_paths(abi: int, rules: Iterable[PathRule], *, network: bool) -> None:
    """Confine this process and all that it starts to these rules, for good."""
    rights = handled(abi)
    tcp, scopes = 0b11 if abi >= 4 and not network else 0, 0b11
    words = (rights, tcp, scopes)[: 3 if abi >= ABI_SCOPES else 2 if abi >= 4 else 1]
    ruleset = call("landlock_create_ruleset", buffer(f"={len(words)}Q", *words), 8 * len(words), 0)
    with closing_fd(ruleset):
        for rule in rules:
            _add(ruleset, rule, rights)
        call("landlock_restrict_self", ruleset, 0)


def _add(ruleset: int, rule: PathRule, rights: Access) -> None:
    try:
        place = open_path(AT_FDCWD, rule.path, literal=rule.literal)
    except FileNotFoundError:
        if rule.literal and rule.access & Access.MAKE_REG:
            raise
        return  # what is not there cannot be read either
    with closing_fd(place):
        mode = os.stat(place).st_mode
        is_folder = stat.S_ISDIR(mode)
        if rule.literal and not is_folder and not stat.S_ISREG(mode):
            return  # a socket, FIFO or device beside something hidden
        access = rule.access & rights & (rights if is_folder else _ON_A_FILE)
        call("landlock_add_rule", ruleset, 1, buffer("=Qi", access, place), 0)


def kernel_version(release: str) -> tuple[int, ...]:
    """`6.1.0-13-amd64` as (6, 1)."""
    return tuple(map(int, re.findall(r"\d+", release)[:2]))


@cache
def counts_by_namespace() -> bool:
    """Whether this kernel counts processes for each user namespace: before Linux 5.14 for the person as a whole."""
    return kernel_version(os.uname().release) >= (5, 14)


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
    if counted_here:
        return processes + 2
    try:
        return processes + int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return processes + 4096
