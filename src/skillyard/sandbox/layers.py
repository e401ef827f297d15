"""Which layers a machine has, and what follows from them for a policy. `probe` does the looking.

What it found is remembered between processes: looking takes longer than a run.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from skillyard.core.errors import SandboxTooWeak, SandboxUnavailable
from skillyard.core.messages import Message, join_messages
from skillyard.sandbox.launch import Guard, Policy, is_inside


class Level(StrEnum):
    """How a program is confined; the value is what `meta.sandbox` says."""

    FULL = "full"
    NAMESPACES = "namespaces+seccomp"
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock+seccomp"
    SECCOMP = "seccomp"
    NONE = "none"


#: The levels that use our own namespaces.
OWN_NAMESPACES: Final = frozenset({Level.FULL, Level.NAMESPACES})
#: The levels with namespaces, ours or bubblewrap's: they can show a folder at another path.
ANY_NAMESPACES: Final = OWN_NAMESPACES | {Level.BUBBLEWRAP}
#: The first Landlock ABI with which a file outside cannot be changed at all: before it, truncating was free.
ABI_FILES: Final = 3
#: The first Landlock ABI that keeps signals and abstract sockets inside.
ABI_SCOPES: Final = 6
#: A FIFO in a readable folder can be opened: true wherever the folder is not shown through an overlay.
FIFO: Final = "fifo"
#: A readable path inside a writable one can be written.
NESTED: Final = "nested"
#: What `landlock+seccomp` does not cover, in the words of `Exit.missing`; the README of this room explains them.
NOT_COVERED: Final = ("stat", "metadata", "proc", FIFO, NESTED)

NO_REASONS: Final[Mapping[str, str]] = {}


class Hierarchies(NamedTuple):
    """Folders below which the cgroup of a run can be made; empty where there is none."""

    unified: str = ""
    #: `unified` if that carries the controller, else a folder of version 1.
    memory: str = ""
    pids: str = ""

    def without_kill(self) -> "Hierarchies":
        """Only what bounds, since each one costs a move: for runs that a pid namespace ends."""
        return self if self.unified in {self.memory, self.pids} else self._replace(unified="")

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(folder for folder in (self.unified, self.memory, self.pids) if folder))


class Layers(NamedTuple):
    """What this machine offers, as this user, now."""

    namespaces: bool = False
    #: The ABI; 0 is none.
    landlock: int = 0
    seccomp: bool = False
    #: The program's path; empty if there is none, or it cannot work here.
    bubblewrap: str = ""
    #: Whether a folder can be shown so that no socket or FIFO in it leads to the host.
    overlay: bool = False
    cgroup: Hierarchies = Hierarchies()
    #: Whether the highest pid of a namespace can be set (Linux 6.14).
    pid_limit: bool = False
    #: Whether RLIMIT_NPROC counts the processes of one user namespace: not for root, and not before Linux 5.14.
    process_limit: bool = False
    root: bool = False
    #: Why a layer is missing, by its name, for `doctor`.
    reasons: Mapping[str, str] = NO_REASONS

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raise KeyError for layers that an older version found and that lack an answer."""
        return cls(**(data | {"cgroup": Hierarchies(**data["cgroup"]), "overlay": data["overlay"]}))

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
    def can_mount(self) -> bool:
        """Whether a folder can be shown at another path."""
        return self.level in ANY_NAMESPACES


#: A machine with nothing, and the level that a person asks for with --no-sandbox.
NO_LAYERS: Final = Layers()


class LayerPlan(NamedTuple):
    """The level that a run will get, the layers it uses, and what stays unguarded."""

    level: Level
    layers: Layers
    missing: tuple[str, ...] = ()


def plan(layers: Layers, policy: Policy | None, *, weak: bool = False) -> LayerPlan:
    """Raise SandboxUnavailable if the policy demands what these layers cannot give.

    As root a level without namespaces is refused too, unless the person accepted it on the command line (`weak`).
    """
    if policy is None:
        return LayerPlan(Level.NONE, NO_LAYERS)
    policy.check()
    level = layers.level
    if policy.mounts and not layers.can_mount:
        what = Message("This machine has no mount namespaces any more: try again")
        raise SandboxUnavailable(what, missing="namespaces")
    if policy.hosts and not policy.network and level not in OWN_NAMESPACES:
        what = Message(
            "This machine cannot limit the network to hosts: it needs namespaces, and the sandbox here is {way}",
            way=level.value,
        )
        raise SandboxUnavailable(what, details={"missing": ["hosts"], "sandbox": level.value}, missing="hosts")
    held = _held_guards(layers)
    lost = [guard for guard in Guard if guard not in held]
    if refused := [guard.value for guard in lost if guard in policy.demand]:
        names = ", ".join(refused)
        what = Message("This machine cannot guard {names}", names=names)
        reasons = (Message("{place}: {reason}", place=name, reason=reason) for name, reason in layers.reasons.items())
        if layers.reasons:
            what = Message("{what} ({why})", what=what, why=join_messages("; ", reasons))
        raise SandboxUnavailable(what, details={"missing": refused, "sandbox": level.value}, missing=names)
    not_covered = _not_covered(layers, policy)
    if layers.root and level in {Level.LANDLOCK, Level.SECCOMP} and Guard.FILES in policy.demand and not weak:
        raise SandboxTooWeak(level.value, not_covered)
    return LayerPlan(level, layers, (*(guard.value for guard in lost), *not_covered))


def _not_covered(layers: Layers, policy: Policy) -> tuple[str, ...]:
    if layers.level is Level.LANDLOCK:
        nested = any(is_inside(str(read), str(write)) for read in policy.read for write in policy.write)
        return NOT_COVERED if nested else tuple(word for word in NOT_COVERED if word != NESTED)
    sealed = layers.level in OWN_NAMESPACES and layers.overlay
    return (FIFO,) if layers.can_mount and not sealed else ()


def _held_guards(layers: Layers) -> set[Guard]:
    level, held = layers.level, set[Guard]()
    landlock = layers.landlock if level is Level.LANDLOCK else 0
    if layers.can_mount or landlock >= ABI_FILES:
        held.add(Guard.FILES)
    if level is not Level.NONE:
        held.add(Guard.NETWORK)  # seccomp refuses the sockets, with and without a net namespace
    if layers.can_mount or landlock >= ABI_SCOPES:
        held.add(Guard.PROCESSES)
    if layers.cgroup.memory:
        held.add(Guard.MEMORY)
    # Elsewhere RLIMIT_NPROC counts every process of the person, so it is no exact bound.
    if layers.cgroup.pids or (level in OWN_NAMESPACES and (layers.process_limit or layers.pid_limit)):
        held.add(Guard.FORKS)
    return held


_CACHE_FILE = "cache/layers.json"


def remembered_layers(own_home: Path) -> Layers | None:
    """The layers of this boot, this user and this place in the cgroup tree; None where we must look.

    A layer that was taken away since makes the run fail, not run unguarded: whoever applies it finds out.
    """
    if sys.platform != "linux":
        return None
    try:
        known = json.loads((own_home / _CACHE_FILE).read_bytes())
        return Layers.from_json(known["layers"]) if known["key"] == _key() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def find_layers() -> Layers | None:
    """Look now, whatever was remembered; None where this system has no layers at all."""
    if sys.platform != "linux":
        return None
    from skillyard.sandbox.launcher import Launcher  # noqa: PLC0415  (it imports this module)

    with Launcher() as launcher:
        return launcher.layers


def holds(layers: Layers) -> bool:
    """Whether an ordinary run can be guarded with these."""
    try:
        plan(layers, Policy())
    except SandboxUnavailable:
        return False
    return True


def not_covered(layers: Layers) -> tuple[str, ...]:
    """Return what stays unguarded in an ordinary run with these."""
    return plan(layers, Policy(demand=frozenset())).missing


def remember_layers(own_home: Path, layers: Layers) -> None:
    """Where it cannot be kept, the next process looks again."""
    file = own_home / _CACHE_FILE
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({"key": _key(), "layers": layers.as_json()}))
        fresh.replace(file)


def _key() -> list[str]:
    """Whatever a different answer could depend on."""
    known = [os.environ.get("PATH", ""), ",".join(Layers._fields)]
    for file in ("/proc/sys/kernel/random/boot_id", "/proc/self/cgroup", "/proc/self/status"):
        with suppress(OSError):
            lines = Path(file).read_text().splitlines()
            facts = ("Uid", "Gid", "Seccomp", "CapEff", "NoNewPrivs")
            known += [line for line in lines if not file.endswith("status") or line.startswith(facts)]
    return known
