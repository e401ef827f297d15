"""What agent.yaml allows the skills of a role to reach. Stored with each skill, so that a run parses no YAML."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.files import expand_home, is_utf8
from skillyard.core.errors import RoleInvalid
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.core.values import NOTHING, Json

#: The field of a role's skill with its bounds.
BOUNDS = "bounds"
SECTIONS = ("workspace", "security", "secrets")
_MIB = 1 << 20
#: Longest name of a file, in bytes, on every system.
LONGEST_NAME = 255


class Secret(NamedTuple):
    """The variable that the skill reads, and where its value is looked up."""

    name: str
    source: str
    key: str


class Bounds(NamedTuple):
    """What agent.yaml asks for, whether it is granted or not."""

    #: None: not given, so the usual rules apply.
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()
    network: bool | None = None
    #: None: no hosts are named. Else the skills reach these only.
    hosts: tuple[str, ...] | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    secrets: tuple[Secret, ...] = ()


def bounds_of(skill: Skill) -> Bounds:
    """Return the bounds of a skill. Raise RoleInvalid if they cannot be read: a bound is never guessed."""
    return read_bounds(_mapping(skill.fields.get(BOUNDS))) if skill.role else Bounds()


def read_bounds(stored: Mapping[str, Json]) -> Bounds:
    if broken := stored.get("broken"):
        raise RoleInvalid(str(broken))
    workspace, security = _mapping(stored.get("workspace")), _mapping(stored.get("security"))
    network, memory, processes = (security.get(key) for key in ("network", "memory_mb", "processes"))
    secrets = stored.get("secrets")
    return Bounds(
        allowed=_texts(workspace["allowed_paths"]) if "allowed_paths" in workspace else None,
        denied=_texts(workspace.get("denied_paths")),
        network=network if isinstance(network, bool) else None,
        hosts=_texts(network) if isinstance(network, list) else None,
        memory_bytes=int(memory) * _MIB if isinstance(memory, int | float) else None,
        processes=int(processes) if isinstance(processes, int | float) else None,
        secrets=tuple(
            Secret(str(item["name"]), str(item["source"]), str(item.get("key") or item["name"]))
            for item in (secrets if isinstance(secrets, list) else ())
            if isinstance(item, Mapping)
        ),
    )


def resolve_role_path(path: str, root: Path) -> Path:
    """Return the real path behind a path of agent.yaml: relative to the project, below `~`, or absolute."""
    plain = Path(expand_home(path)) if path == "~" or path.startswith("~/") else root / path
    if not is_utf8(path) or any(len(os.fsencode(part)) > LONGEST_NAME for part in plain.parts):
        raise RoleInvalid(Message("workspace: no file can have the name {path}…", path=path[:40]))
    try:
        return plain.resolve()
    except (OSError, RuntimeError, ValueError):
        raise RoleInvalid(Message("workspace: {path} is a link that leads nowhere", path=path)) from None


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else NOTHING


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
