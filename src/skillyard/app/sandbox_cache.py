"""What the sandbox found out about this machine, remembered between processes: looking takes longer than a run."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillyard.sandbox.layers import Layers

_FILE = "cache/layers.json"


def remembered_layers(own_home: Path) -> "Layers | None":
    """The layers of this boot, this user and this place in the cgroup tree; None where we must look.

    A layer that was taken away since makes the run fail, not run unguarded: whoever applies it finds out.
    """
    if sys.platform != "linux":
        return None
    from skillyard.sandbox.layers import Layers

    try:
        known = json.loads((own_home / _FILE).read_bytes())
        return Layers.from_json(known["layers"]) if known["key"] == _key() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def find_layers() -> "Layers | None":
    """Look now, whatever was remembered; None where this system has no layers at all."""
    if sys.platform != "linux":
        return None
    from skillyard.sandbox.launcher import Launcher

    with Launcher() as launcher:
        return launcher.layers


def holds(layers: "Layers") -> bool:
    """Whether an ordinary run can be guarded with these."""
    from skillyard.core.errors import SandboxUnavailable
    from skillyard.sandbox.layers import plan
    from skillyard.sandbox.policy import Policy

    try:
        plan(layers, Policy())
    except SandboxUnavailable:
        return False
    return True


def not_covered(layers: "Layers") -> tuple[str, ...]:
    """Return what stays unguarded in an ordinary run with these."""
    from skillyard.sandbox.layers import plan
    from skillyard.sandbox.policy import Policy

    return plan(layers, Policy(demand=frozenset())).missing


def remember_layers(own_home: Path, layers: "Layers") -> None:
    """Where it cannot be kept, the next process looks again."""
    file = own_home / _FILE
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({"key": _key(), "layers": layers.as_json()}))
        fresh.replace(file)


def _key() -> list[str]:
    """Whatever a different answer could depend on."""
    from skillyard.sandbox.layers import Layers

    known = [os.environ.get("PATH", ""), ",".join(Layers._fields)]
    for file in ("/proc/sys/kernel/random/boot_id", "/proc/self/cgroup", "/proc/self/status"):
        with suppress(OSError):
            lines = Path(file).read_text().splitlines()
            facts = ("Uid", "Gid", "Seccomp", "CapEff", "NoNewPrivs")
            known += [line for line in lines if not file.endswith("status") or line.startswith(facts)]
    return known
