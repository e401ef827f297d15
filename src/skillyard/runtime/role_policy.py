"""A role's own bounds on top of the rules: what its agent.yaml narrows counts at once, what it widens after a grant.

`skillyard trust` gives the grants, for exactly the bytes of the role's folder; so a changed role is narrow again.
"""

import os
from pathlib import Path

from skillyard.catalog.bounds import Bounds, bounds_of, resolve_role_path
from skillyard.core.capability import MEMORY, NETWORK, PROCESSES, READ, SECRET, WRITE
from skillyard.core.errors import PermissionDenied, RoleInvalid
from skillyard.core.messages import Message
from skillyard.core.request import Call
from skillyard.runtime.paths import BOX, GUARDED
from skillyard.sandbox.policy import Policy
from skillyard.trust.permit import Permit

_MIB = 1 << 20
_USUAL = Policy()


def wider(bounds: Bounds, root: Path, folder: Path) -> tuple[str, ...]:
    """The capabilities that the file asks for beyond the rules."""
    paths = (_asked(path, root.resolve(), folder.resolve()) for path in bounds.allowed or ())
    return (
        *((NETWORK,) if bounds.network else ()),
        *(f"{NETWORK}:{host}" for host in _hosts(bounds)),
        *dict.fromkeys(filter(None, paths)),
        *((_memory(bounds),) if (bounds.memory_bytes or 0) > _USUAL.memory_bytes else ()),
        *((_processes(bounds),) if (bounds.processes or 0) > _USUAL.processes else ()),
        *(f"{SECRET}:{secret.name}" for secret in bounds.secrets),
    )


def bound(call: Call, found: Permit, granted: frozenset[str]) -> Permit:
    """The permit of a role's skill, inside what the role's file says."""
    bounds = bounds_of(call.skill)
    root, folder = call.root.resolve(), call.skill.folder.resolve()
    hidden = tuple(resolve_role_path(path, root) for path in bounds.denied)
    _refuse_blind(call, hidden)
    write = _writable(bounds, found.policy, root, folder, granted)
    _refuse_outside(call, bounds, root, hidden)
    policy = found.policy._replace(
        write=write,
        hide=(*found.policy.hide, *hidden),
        network=found.policy.network and bounds.network is not False and bounds.hosts is None,
        hosts=_reachable(bounds, found.policy),
        memory_bytes=_limit(bounds.memory_bytes, _USUAL.memory_bytes, _memory(bounds) in granted),
        processes=_limit(bounds.processes, _USUAL.processes, _processes(bounds) in granted),
    )
    missing = tuple(f"{SECRET}:{secret.name}" for secret in bounds.secrets if f"{SECRET}:{secret.name}" not in granted)
    box = root / BOX
    return found._replace(
        policy=policy,
        missing=(*found.missing, *missing),
        secrets=bounds.secrets,
        # What is not there cannot be opened, nor covered.
        folders=tuple(
            path
            for path in (*(path for path in write if path.is_relative_to(box)), *hidden)
            if not path.exists() and any(path.is_relative_to(place) for place in write)
        ),
    )


def _asked(path: str, root: Path, folder: Path) -> str:
    """What it takes to reach a path; nothing where the rules give it already."""
    place = resolve_role_path(path, root)
    if not place.is_relative_to(root):
        if Path(os.path.normpath(root / path)).is_relative_to(root):
            raise RoleInvalid(
                Message("workspace.allowed_paths: {path} leads out of the project through a link", path=path)
            )
        return f"{READ}:{place}"
    below = place.relative_to(root)
    if place.is_relative_to(root / BOX) or place.is_relative_to(folder):
        return ""
    if not below.parts or below.parts[0] in GUARDED:
        return f"{READ}:{place}"
    return f"{WRITE}:{below.as_posix()}"


def _writable(bounds: Bounds, policy: Policy, root: Path, folder: Path, granted: frozenset[str]) -> tuple[Path, ...]:
    """mybox/ or the parts of it that are allowed, and what else a person has granted."""
    if bounds.allowed is None:
        return policy.write
    box = root / BOX
    places: dict[Path, None] = {}
    for path in bounds.allowed:
        place, asked = resolve_role_path(path, root), _asked(path, root, folder)
        if place.is_relative_to(box):
            places[place] = None
        elif box.is_relative_to(place):
            places[box] = None
        elif asked.startswith(f"{WRITE}:") and asked in granted and place.exists():
            places[place] = None
    return tuple(places)


def _refuse_outside(call: Call, bounds: Bounds, root: Path, hidden: tuple[Path, ...]) -> None:
    """Naming a path opens it only inside what the role's file allows."""
    allowed = None if bounds.allowed is None else [resolve_role_path(path, root) for path in bounds.allowed]
    own = call.skill.folder.resolve()
    for path in (*call.named_paths, *call.led_out):
        if any(path.is_relative_to(place) for place in hidden):
            raise PermissionDenied(
                Message("{path} is in workspace.denied_paths of the role {role}", path=path, role=call.skill.role)
            )
        if allowed is not None and not any(path.is_relative_to(place) for place in (*allowed, own)):
            raise PermissionDenied(
                Message("{path} is outside workspace.allowed_paths of the role {role}", path=path, role=call.skill.role)
            )


def _refuse_blind(call: Call, hidden: tuple[Path, ...]) -> None:
    """A role that hides its own program could only fail without words."""
    program = (call.skill.folder / call.skill.entry).resolve()
    for place in hidden:
        if program.is_relative_to(place):
            raise RoleInvalid(Message("workspace.denied_paths: {place} hides the role's own program", place=place))


def _hosts(bounds: Bounds) -> tuple[str, ...]:
    """The hosts that the file names, each in its one spelling."""
    if not bounds.hosts:
        return ()
    from skillyard.sandbox.hosts import parse_rule

    found: dict[str, None] = {}
    for host in bounds.hosts:
        try:
            found[str(parse_rule(host))] = None
        except ValueError as error:
            raise RoleInvalid(
                Message("security.network: {host} names no host: {error}", host=host, error=error)
            ) from None
    return tuple(found)


def _reachable(bounds: Bounds, policy: Policy) -> tuple[str, ...]:
    """The hosts that were granted, or of the whole network those that the file names."""
    if bounds.network is False:
        return ()
    if bounds.hosts is None:
        return policy.hosts
    return tuple(host for host in _hosts(bounds) if policy.network or host in policy.hosts)


def _limit(asked: int | None, usual: int, is_granted: bool) -> int:
    if asked is None:
        return usual
    return asked if is_granted else min(asked, usual)


def _memory(bounds: Bounds) -> str:
    return f"{MEMORY}:{(bounds.memory_bytes or 0) // _MIB}"


def _processes(bounds: Bounds) -> str:
    return f"{PROCESSES}:{bounds.processes or 0}"
