"""Which layers a machine has, and what follows from them for a policy. `probe` does the looking.

What it found is remembered between processes: looking takes longer than a run.
"""

import json
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from skillyard.core.errors import SandboxTooWeak, SandboxUnavailable
from skillyard.core.messages import Message, join_messages
from skillyard.sandbox.launch import Policy, is_inside, make_sandbox


class Level(StrEnum):
    """How a program is confined; the value is what `meta.sandbox` says."""

    FULL = "full"
    NAMESPACES = "namespaces+seccomp"
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock+seccomp"
    SECCOMP = "seccomp"
    NONE = "none"


CACHE_FILE: Final = "cache/layers.json"
#: The first Landlock ABI with which a file outside cannot be changed at all: before it, truncating was free.
ABI_FILES: Final = 3
ABI_SCOPES: Final = 6  # the first Landlock ABI that keeps signals and abstract sockets inside
#: A FIFO in a readable folder can be opened: true wherever the folder is not shown through an overlay.
FIFO: Final = "fifo"
NESTED: Final = "nested"  # a readable path inside a writable one can be written
#: Guards that a run can do without: it says in its result that they do not hold.
BOUNDS: Final = ("memory", "forks")
#: What `landlock+seccomp` does not cover, in the words of `Exit.missing`; the README of this room explains them.
NOT_COVERED: Final = ("stat", "metadata", "proc", FIFO, NESTED)


class Hierarchies(NamedTuple):
    """Folders below which the cgroup of a run can be made; empty where there is none."""

    unified: str = ""
    memory: str = ""  # `unified` if that carries the controller, else a folder of version 1
    pids: str = ""

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(folder for folder in (self.unified, self.memory, self.pids) if folder))


class Layers(NamedTuple):
    """What this machine offers, as this user, now."""

    namespaces: bool = False
    landlock: int = 0  # the ABI; 0 is none
    seccomp: bool = False
    bubblewrap: str = ""  # the program's path; empty if there is none, or it cannot work here
    #: Whether a folder can be shown so that no socket or FIFO in it leads to the host.
    overlay: bool = False
    cgroup: Hierarchies = Hierarchies()
    pid_limit: bool = False  # whether the highest pid of a namespace can be set (Linux 6.14)
    #: Whether RLIMIT_NPROC counts the processes of one user namespace: not for root, and not before Linux 5.14.
    process_limit: bool = False
    root: bool = False
    reasons: Mapping[str, str] = {}  # why a layer is missing, by its name, for `doctor`

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data | {"cgroup": Hierarchies(**data["cgroup"])})

    def as_json(self) -> dict[str, Any]:
        return self._asdict() | {"cgroup": self.cgroup._asdict(), "reasons": dict(self.reasons)}

    @property
    def level(self) -> Level:
        """The best that these layers give."""
        if self.namespaces and self.seccomp:
            return Level.FULL if self.landlock else Level.NAMESPACES
        if self.bubblewrap and self.seccomp:
            return Level.BUBBLEWRAP
        if self.seccomp:
            return Level.LANDLOCK if self.landlock else Level.SECCOMP
        return Level.NONE

    @property
    def own_namespaces(self) -> bool:
        """Whether a run gets namespaces of ours, not bubblewrap's."""
        return self.level in {Level.FULL, Level.NAMESPACES}

    @property
    def can_mount(self) -> bool:
        """Whether there are namespaces of either sort, so that a folder can be shown at another path."""
        return self.own_namespaces or self.level is Level.BUBBLEWRAP


#: A machine with nothing, and the level that a person asks for with --no-sandbox.
NO_LAYERS: Final = Layers()


def check_guards(layers: Layers, policy: Policy, *, weak: bool = False) -> tuple[str, ...]:
    """Return what stays unguarded. Raise SandboxUnavailable if that is too much, or the policy needs more.

    As root a level without namespaces is refused too, unless the person accepted it on the command line (`weak`).
    """
    policy.check()
    level = layers.level
    if policy.mounts and not layers.can_mount:
        what = Message("This machine has no mount namespaces any more: try again")
        raise SandboxUnavailable(what, missing="namespaces")
    if policy.hosts and not policy.network and not layers.own_namespaces:
        what = Message(
            "This machine cannot limit the network to hosts: it needs namespaces, and the sandbox here is {way}",
            way=level.value,
        )
        raise SandboxUnavailable(what, details={"missing": ["hosts"], "sandbox": level.value}, missing="hosts")
    lost = _lost_guards(layers)
    if refused := [guard for guard in lost if guard not in BOUNDS]:
        names = ", ".join(refused)
        what = Message("This machine cannot guard {names}", names=names)
        reasons = (Message("{place}: {reason}", place=name, reason=reason) for name, reason in layers.reasons.items())
        if layers.reasons:
            what = Message("{what} ({why})", what=what, why=join_messages("; ", reasons))
        raise SandboxUnavailable(what, details={"missing": refused, "sandbox": level.value}, missing=names)
    open_ways = _open_ways(layers, policy)
    if layers.root and level is Level.LANDLOCK and not weak:
        raise SandboxTooWeak(level.value, open_ways)
    return lost + open_ways


def not_covered(layers: Layers) -> tuple[str, ...]:
    """Return what stays unguarded in an ordinary run with these."""
    return _lost_guards(layers) + _open_ways(layers, Policy())


def _lost_guards(layers: Layers) -> tuple[str, ...]:
    landlock = layers.landlock if layers.level is Level.LANDLOCK else 0
    is_counted = layers.own_namespaces and (layers.process_limit or layers.pid_limit)
    held = {
        # It reads and writes only what the policy names.
        "files": layers.can_mount or landlock >= ABI_FILES,
        # It reaches no other host, local port or local socket: seccomp refuses them, also without a net namespace.
        "network": layers.level is not Level.NONE,
        # It cannot signal, trace or read the processes outside.
        "processes": layers.can_mount or landlock >= ABI_SCOPES,
        # What the whole tree holds in memory is bounded (one process always is).
        "memory": bool(layers.cgroup.memory),
        # How many processes it can have is bounded. Elsewhere RLIMIT_NPROC counts every process of the person.
        "forks": bool(layers.cgroup.pids) or is_counted,
    }
    return tuple(guard for guard, holds in held.items() if not holds)


def _open_ways(layers: Layers, policy: Policy) -> tuple[str, ...]:
    if layers.level is Level.LANDLOCK:
        nested = any(is_inside(str(read), str(write)) for read in policy.read for write in policy.write)
        return tuple(word for word in NOT_COVERED if nested or word != NESTED)
    is_sealed = layers.own_namespaces and layers.overlay
    return (FIFO,) if layers.can_mount and not is_sealed else ()


def remembered_layers(own_home: Path) -> Layers | None:
    """The layers of this boot, this user and this place in the cgroup tree; None where we must look.

    A layer that was taken away since makes the run fail, not run unguarded: whoever applies it finds out.
    """
    try:
        known = json.loads((own_home / CACHE_FILE).read_bytes())
        return Layers.from_json(known["layers"]) if known["key"] == _key() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def find_layers() -> Layers | None:
    """Look now, whatever was remembered; None where this system has no layers at all."""
    with closing(make_sandbox()) as sandbox:
        return getattr(sandbox, "layers", None)


def holds(layers: Layers) -> bool:
    """Whether an ordinary run can be guarded with these."""
    try:
        check_guards(layers, Policy())
    except SandboxUnavailable:
        return False
    return True


def remember_layers(own_home: Path, layers: Layers) -> None:
    """Where it cannot be kept, the next process looks again."""
    file = own_home / CACHE_FILE
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({"key": _key(), "layers": layers.as_json()}))
        fresh.replace(file)


def _key() -> list[str]:
    """Whatever a different answer could depend on."""
    known = [os.environ.get("PATH", ""), ",".join(Layers._fields)]
    facts = ("Uid", "Gid", "Seccomp", "CapEff", "NoNewPrivs")
    for file, starts in (("sys/kernel/random/boot_id", ""), ("self/cgroup", ""), ("self/status", facts)):
        with suppress(OSError):
            known += [line for line in Path("/proc", file).read_text().splitlines() if line.startswith(starts)]
    return known
