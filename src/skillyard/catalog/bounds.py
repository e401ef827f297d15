"""What a role's file says about the reach of its skills; kept with each skill, so that a run parses nothing."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.plainfile import expand_home, is_utf8
from skillyard.core.errors import RoleInvalid
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.core.values import NOTHING, Json

#: Where a role's skill keeps what bounds it.
BOUNDS = "bounds"
SECTIONS = ("workspace", "security", "secrets")
_MIB = 1 << 20
#: Of a file, in bytes, on every system.
_LONGEST_NAME = 255


class Secret(NamedTuple):
    """A value from outside: the variable that the skill reads, and where the value is looked for."""

    name: str
    source: str
    key: str


class Bounds(NamedTuple):
    """What agent.yaml says, before anybody asked whether it is allowed."""

    #: None: nothing is said, so the usual rules hold.
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    network: bool | None = None
    #: None: no hosts are named. Else the skills reach these and no others.
    hosts: tuple[str, ...] | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    secrets: tuple[Secret, ...] = ()


UNBOUND = Bounds()


def bounds_of(skill: Skill) -> Bounds:
    """RoleInvalid where the file says something that cannot be read: a bound is never guessed."""
    if not skill.role:
        return UNBOUND
    kept = skill.fields.get(BOUNDS)
    return read_bounds(kept if isinstance(kept, Mapping) else NOTHING)


def read_bounds(kept: Mapping[str, Json]) -> Bounds:
    if broken := kept.get("broken"):
        raise RoleInvalid(str(broken))
    workspace, security = _mapping(kept.get("workspace")), _mapping(kept.get("security"))
    network, memory, processes = (security.get(key) for key in ("network", "memory_mb", "processes"))
    return Bounds(
        allowed=_texts(workspace["allowed_paths"]) if "allowed_paths" in workspace else None,
        denied=_texts(workspace.get("denied_paths")),
        network=network if isinstance(network, bool) else None,
        hosts=_texts(network) if isinstance(network, list) else None,
        memory_bytes=int(memory) * _MIB if isinstance(memory, int | float) else None,
        processes=int(processes) if isinstance(processes, int | float) else None,
        secrets=tuple(map(_secret, _items(kept.get("secrets")))),
    )


def place_of(path: str, root: Path) -> Path:
    """A path of agent.yaml, as it really is: relative to the project, in the home folder, or in full."""
    plain = Path(expand_home(path)) if path == "~" or path.startswith("~/") else root / path
    if not is_utf8(path) or any(len(os.fsencode(part)) > _LONGEST_NAME for part in plain.parts):
        raise RoleInvalid(Message("workspace: no file can have the name {path}…", path=path[:40]))
    try:
        return plain.resolve()
    except (OSError, RuntimeError, ValueError):
        raise RoleInvalid(Message("workspace: {path} is a link that leads nowhere", path=path)) from None


def _secret(item: Mapping[str, Json]) -> Secret:
    name = str(item["name"])
    return Secret(name, str(item["source"]), str(item.get("key") or name))


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else NOTHING


def _items(value: Json) -> list[Mapping[str, Json]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
