"""Which layers a machine has, and what follows from them for a policy. Pure: `probe` does the looking."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from skillyard.core.errors import SandboxTooWeak, SandboxUnavailable
from skillyard.core.messages import Message, join_messages
from skillyard.sandbox.cgroup import Hierarchies
from skillyard.sandbox.landlock import ABI_FILES, ABI_SCOPES
from skillyard.sandbox.policy import Guard, Policy, is_inside


class Way(StrEnum):
    """How a program is confined; the value is what `meta.sandbox` says."""

    FULL = "full"
    NAMESPACES = "namespaces+seccomp"
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock+seccomp"
    SECCOMP = "seccomp"
    NONE = "none"


#: The ways that make our own namespaces.
APART: Final = frozenset({Way.FULL, Way.NAMESPACES})
#: The ways that can show a folder at another path.
MOUNTING: Final = APART | {Way.BUBBLEWRAP}
#: The ways without any namespaces: the program shares the machine with everybody.
_SHARED: Final = frozenset({Way.LANDLOCK, Way.SECCOMP})
#: A FIFO in a readable folder can be opened: true wherever the folder is not shown through an overlay.
FIFO: Final = "fifo"
#: A readable path inside a writable one can be written.
NESTED: Final = "nested"
#: What a way cannot cover, by the words of `Exit.missing`; the README of this room says what each means.
NOT_COVERED: Final = ("stat", "metadata", "proc", FIFO, NESTED)


NO_REASONS: Final[Mapping[str, str]] = {}


class Layers(NamedTuple):
    """What this machine offers, as this user, now."""

    namespaces: bool = False
    #: The ABI; 0 is none.
    landlock: int = 0
    seccomp: bool = False
    #: The program's path; empty is none, or one that cannot work here.
    bubblewrap: str = ""
    #: Whether a folder can be shown so that no socket or FIFO in it leads to the host.
    overlay: bool = False
    cgroup: Hierarchies = Hierarchies()
    #: Whether a pid namespace can be told its highest number (Linux 6.14).
    pid_limit: bool = False
    #: Whether RLIMIT_NPROC counts the processes of one user namespace: not for root, and not before Linux 5.14.
    process_limit: bool = False
    #: Whether this user is root, whose files are the whole machine's.
    root: bool = False
    #: Why a layer is not there, by its name, for `doctor`.
    reasons: Mapping[str, str] = NO_REASONS

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """KeyError for layers that an older version found and that lack an answer."""
        return cls(**(data | {"cgroup": Hierarchies(**data["cgroup"]), "overlay": data["overlay"]}))

    def as_json(self) -> dict[str, Any]:
        return self._asdict() | {"cgroup": self.cgroup._asdict(), "reasons": dict(self.reasons)}


#: A machine with nothing, and the level that a person asks for with --no-sandbox.
NO_LAYERS: Final = Layers()


class Plan(NamedTuple):
    """The way that a run will take, the layers it uses, and what stays unguarded."""

    way: Way
    layers: Layers
    missing: tuple[str, ...] = ()


def choose(layers: Layers) -> Way:
    if layers.namespaces and layers.seccomp:
        return Way.FULL if layers.landlock else Way.NAMESPACES
    if layers.bubblewrap and layers.seccomp:
        return Way.BUBBLEWRAP
    if layers.seccomp:
        return Way.LANDLOCK if layers.landlock else Way.SECCOMP
    return Way.NONE


def plan(layers: Layers, policy: Policy | None, *, weak: bool = False) -> Plan:
    """Raises SandboxUnavailable where the policy demands what these layers cannot give.

    As root a way without namespaces is refused too, unless the person said on the command line that it will do.
    """
    if policy is None:
        return Plan(way=Way.NONE, layers=NO_LAYERS)
    policy.check()
    way = choose(layers)
    if policy.mounts and way not in MOUNTING:
        raise SandboxUnavailable(
            Message("This machine has no mount namespaces any more: try again"), missing="namespaces"
        )
    if policy.hosts and not policy.network and way not in APART:
        raise SandboxUnavailable(
            Message(
                "This machine cannot limit the network to hosts: it needs namespaces, and the sandbox here is {way}",
                way=way.value,
            ),
            details={"missing": ["hosts"], "sandbox": way.value},
            missing="hosts",
        )
    lost = [guard for guard in Guard if guard not in _held(way, layers)]
    refused = [guard.value for guard in lost if guard in policy.demand]
    if refused:
        names = ", ".join(refused)
        why = join_messages(
            "; ", (Message("{place}: {reason}", place=layer, reason=reason) for layer, reason in layers.reasons.items())
        )
        guards = Message("This machine cannot guard {names}", names=names)
        raise SandboxUnavailable(
            Message("{what} ({why})", what=guards, why=why) if why else guards,
            details={"missing": list(refused), "sandbox": way.value},
            missing=names,
        )
    if layers.root and way in _SHARED and Guard.FILES in policy.demand and not weak:
        raise SandboxTooWeak(way.value, _not_covered(way, layers, policy))
    return Plan(way=way, layers=layers, missing=(*(guard.value for guard in lost), *_not_covered(way, layers, policy)))


def _not_covered(way: Way, layers: Layers, policy: Policy) -> tuple[str, ...]:
    if way is Way.LANDLOCK:
        nested = any(is_inside(str(read), str(write)) for read in policy.read for write in policy.write)
        return NOT_COVERED if nested else tuple(word for word in NOT_COVERED if word != NESTED)
    sealed = way in APART and layers.overlay
    return () if sealed or way not in MOUNTING else (FIFO,)


def _held(way: Way, layers: Layers) -> frozenset[Guard]:
    held: set[Guard] = set()
    apart = way in APART or way is Way.BUBBLEWRAP
    if apart or (way is Way.LANDLOCK and layers.landlock >= ABI_FILES):
        held.add(Guard.FILES)
    if way is not Way.NONE:
        held.add(Guard.NETWORK)  # seccomp refuses the sockets, with and without a net namespace
    if apart or (way is Way.LANDLOCK and layers.landlock >= ABI_SCOPES):
        held.add(Guard.PROCESSES)
    if layers.cgroup.memory:
        held.add(Guard.MEMORY)
    # Elsewhere RLIMIT_NPROC counts every process of the person, so it is no exact bound.
    if layers.cgroup.pids or (way in APART and (layers.process_limit or layers.pid_limit)):
        held.add(Guard.FORKS)
    return frozenset(held)
