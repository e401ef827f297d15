"""Decides what a run may touch: the rules of docs/spec/trust.md, as a policy for the sandbox.

Naming is granting: a run reads the system, its own skill and the paths that the caller named; it writes mybox/ and a
private temp. Everything wider is a capability that a person granted, for exactly these bytes.

A role's agent.yaml bounds its skills further. What it narrows counts at once; what it widens counts once
`skillyard trust` granted it for exactly the bytes of the role's folder, so a changed role is narrow again."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.bounds import Bounds, bounds_of, resolve_role_path
from skillyard.catalog.files import exists, read_plain
from skillyard.catalog.fingerprint import hash_folder
from skillyard.core.capability import ENV, MEMORY, NETWORK, PROCESSES, READ, READ_PROJECT, SECRET, WRITE
from skillyard.core.errors import InvalidParam, MetadataMissing, PermissionDenied, RoleInvalid, SkillNotFound
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.core.skill import Skill
from skillyard.runners.interpreters import Reach, reach_of
from skillyard.runners.kind import PACKAGE, Permit
from skillyard.runners.leftovers import BOX
from skillyard.sandbox.hosts import parse_rule
from skillyard.sandbox.launch import Mount, Policy, is_inside, system_paths
from skillyard.store.copies import COPIES_SUFFIX, Copies, FolderCopy
from skillyard.store.grants import Grants

#: Where skills lie in SKILLYARD_HOME: installed for every project, and staged for one run.
OWN_SKILLS = ("skills", "adhoc")
_MIB = 1 << 20
_USUAL = Policy()


def permit(
    call: Call, program: str, granted: frozenset[str], own_home: Path, environment: tuple[Path, ...] | None = None
) -> Permit:
    """Return what the call may touch. `environment` lists the parts of an environment that we built, if it runs in
    one."""
    found = _permit(call, program, granted, own_home, environment)
    return _within_role(call, found, granted) if call.skill.role else found


def _permit(
    call: Call, program: str, granted: frozenset[str], own_home: Path, environment: tuple[Path, ...] | None
) -> Permit:
    root = call.root.resolve()
    own, mounts = _own_folder(call, root)
    reach = Reach(environment) if environment is not None else reach_of(root / program)
    read = [*own, *reach.known, *call.named_paths]
    read += [path for argument in _arguments(granted, READ) if (path := _as_granted(argument, root))]
    if call.skill.kind.imports_helper:
        read.append(PACKAGE.resolve())
    write = [root / BOX]
    missing: list[str] = []
    made: list[Path] = []
    if READ_PROJECT in granted:
        read.append(root)
    elif _is_around(root, call):
        missing.append(READ_PROJECT)
    for path in call.led_out:
        _refuse_wide(path, own_home.resolve())
        if f"{READ}:{path}" not in granted:
            missing.append(f"{READ}:{path}")
    missing += _unreadable_programs(reach.unknown, [*read, *(mount.target for mount in mounts)], root)
    if target := _output_elsewhere(call, root):
        _refuse_wide(target, own_home.resolve())
        capability = f"{WRITE}:{call.output}"
        if capability in granted:
            write.append(target)
            made.append(target)
        else:
            missing.append(capability)
    readable, hide = _around_home(_without_root(read), write, call.skill.folder.resolve(), own_home.resolve())
    tools = frozenset(reach.known).difference(own, call.named_paths)
    policy = Policy(
        read=tuple(path for path in readable if path not in tools),
        tools=tuple(path for path in readable if path in tools),
        write=tuple(write),
        hide=(*hide, *(_all_copies(mount) for mount in mounts)),
        mounts=mounts,
        network=NETWORK in granted,
        hosts=tuple(_arguments(granted, NETWORK)),
    )
    return Permit(policy, tuple(_arguments(granted, ENV)), tuple(dict.fromkeys(missing)), tuple(made))


def _unreadable_programs(programs: tuple[Path, ...], read: list[Path], root: Path) -> list[str]:
    """Return the capabilities that these programs need: `read:` of each, or of the project that contains it."""
    closed = [path for path in programs if not any(is_inside(str(path), str(place)) for place in read)]
    return list(dict.fromkeys(READ_PROJECT if path.is_relative_to(root) else f"{READ}:{path}" for path in closed))


def _own_folder(call: Call, root: Path) -> tuple[tuple[Path, ...], tuple[Mount, ...]]:
    """Return how the run sees its skill: the folder or its copy to read, or the copy mounted over the folder."""
    folder = call.skill.folder.resolve()
    copy, is_around = call.copy.resolve() if call.copy else None, _is_around(root, call)
    if copy is None:
        return () if is_around else (folder,), ()
    if is_around:  # only the project of it, which a person must have opened
        copy, folder = copy / root.relative_to(folder), root
    return ((), (Mount(copy, folder),)) if call.copy_is_mounted else ((copy,), ())


def _all_copies(mount: Mount) -> Path:
    """Return the folder of all copies, which is hidden from a run."""
    return next(place for place in mount.source.parents if place.name.endswith(COPIES_SUFFIX))


def _is_around(root: Path, call: Call) -> bool:
    """A link that came with the project can make the project itself, or what lies around it, a skill's own folder.

    A folder that a person points at is meant.
    """
    return root.is_relative_to(call.skill.folder.resolve()) and not call.known_as.startswith((".", "/", "~"))


def _around_home(
    read: tuple[Path, ...], write: list[Path], skill: Path, home: Path
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """What may be read, and what is hidden: our home, but for the one skill where it lies in there.

    Hiding wins over everything, so a skill in there can be opened only where nothing else would open the rest.
    """
    is_ours = any(skill.is_relative_to(home / name) for name in OWN_SKILLS)
    others = tuple(path for path in read if path == skill or not is_inside(str(path), str(home)))
    is_within = any(is_inside(str(home), place) for place in (*map(str, (*others, *write)), *system_paths()))
    return (others, ()) if is_ours and not is_within else (read, (home,))


def _as_granted(argument: str, root: Path) -> Path | None:
    """Return the granted path; None if a link makes it lead elsewhere now."""
    literal = Path(os.path.normpath(root / argument))
    return literal if os.path.realpath(literal) == str(literal) else None


def _refuse_wide(path: Path, own_home: Path) -> None:
    """Raise PermissionDenied for what is never opened to a run: the root and our own home."""
    if path == Path("/") or path == own_home or path.is_relative_to(own_home):
        raise PermissionDenied(Message("{path} is never opened to a run", path=path))


def _arguments(granted: frozenset[str], name: str) -> list[str]:
    return sorted(capability.partition(":")[2] for capability in granted if capability.startswith(f"{name}:"))


def _output_elsewhere(call: Call, root: Path) -> Path | None:
    """Return the output if it is outside mybox/. It was resolved by the check; a later link is not followed."""
    target = Path(os.path.normpath(root / call.output)) if call.output else root / BOX
    return None if target.is_relative_to(root / BOX) else target


def _without_root(paths: list[Path]) -> tuple[Path, ...]:
    """Drop `/`, which nobody can name, and duplicates."""
    return tuple(dict.fromkeys(path for path in paths if path != Path("/")))


def wider(bounds: Bounds, root: Path, folder: Path) -> tuple[str, ...]:
    """Return the capabilities that a role's file asks for beyond the rules."""
    paths = (_capability_for(path, root.resolve(), folder.resolve()) for path in bounds.allowed or ())
    return (
        *((NETWORK,) if bounds.network else ()),
        *(f"{NETWORK}:{host}" for host in _hosts(bounds)),
        *dict.fromkeys(filter(None, paths)),
        *((_memory(bounds),) if (bounds.memory_bytes or 0) > _USUAL.memory_bytes else ()),
        *((_processes(bounds),) if (bounds.processes or 0) > _USUAL.processes else ()),
        *(f"{SECRET}:{secret.name}" for secret in bounds.secrets),
    )


def _within_role(call: Call, found: Permit, granted: frozenset[str]) -> Permit:
    """Narrow the permit of a role's skill to what the role's file allows."""
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


def _capability_for(path: str, root: Path, folder: Path) -> str:
    """Return the capability that a path needs; empty if the rules already allow it."""
    place = resolve_role_path(path, root)
    if not place.is_relative_to(root):
        if Path(os.path.normpath(root / path)).is_relative_to(root):
            msg = Message("workspace.allowed_paths: {path} leads out of the project through a link", path=path)
            raise RoleInvalid(msg)
        return f"{READ}:{place}"
    below = place.relative_to(root)
    if place.is_relative_to(root / BOX) or place.is_relative_to(folder):
        return ""
    if not below.parts or below.parts[0] in GUARDED:
        return f"{READ}:{place}"
    return f"{WRITE}:{below.as_posix()}"


def _writable(bounds: Bounds, policy: Policy, root: Path, folder: Path, granted: frozenset[str]) -> tuple[Path, ...]:
    """Return where it may write: the allowed parts of mybox/, and what else a person granted."""
    if bounds.allowed is None:
        return policy.write
    box = root / BOX
    places: dict[Path, None] = {}
    for path in bounds.allowed:
        place, asked = resolve_role_path(path, root), _capability_for(path, root, folder)
        if place.is_relative_to(box):
            places[place] = None
        elif box.is_relative_to(place):
            places[box] = None
        elif asked.startswith(f"{WRITE}:") and asked in granted and place.exists():
            places[place] = None
    return tuple(places)


def _refuse_outside(call: Call, bounds: Bounds, root: Path, hidden: tuple[Path, ...]) -> None:
    """Raise PermissionDenied for a named path that the role's file does not allow."""
    allowed = None if bounds.allowed is None else [resolve_role_path(path, root) for path in bounds.allowed]
    own = call.skill.folder.resolve()
    for path in (*call.named_paths, *call.led_out):
        if any(path.is_relative_to(place) for place in hidden):
            msg = Message("{path} is in workspace.denied_paths of the role {role}", path=path, role=call.skill.role)
            raise PermissionDenied(msg)
        if allowed is not None and not any(path.is_relative_to(place) for place in (*allowed, own)):
            raise PermissionDenied(
                Message("{path} is outside workspace.allowed_paths of the role {role}", path=path, role=call.skill.role)
            )


def _refuse_blind(call: Call, hidden: tuple[Path, ...]) -> None:
    """Raise RoleInvalid if the role hides its own program."""
    program = (call.skill.folder / call.skill.entry).resolve()
    for place in hidden:
        if program.is_relative_to(place):
            raise RoleInvalid(Message("workspace.denied_paths: {place} hides the role's own program", place=place))


def _hosts(bounds: Bounds) -> tuple[str, ...]:
    """Return the hosts that the file names, each in its one spelling."""
    if not bounds.hosts:
        return ()
    found: dict[str, None] = {}
    for host in bounds.hosts:
        try:
            found[str(parse_rule(host))] = None
        except ValueError as error:
            msg = Message("security.network: {host} names no host: {error}", host=host, error=error)
            raise RoleInvalid(msg) from None
    return tuple(found)


def _reachable(bounds: Bounds, policy: Policy) -> tuple[str, ...]:
    """Return the hosts that it may reach: the granted ones, or those the file names if all are granted."""
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


#: Never an output, whoever asks: what lies there decides what may run.
GUARDED = (".git", ".claude", ".agents", ".skillyard", "agents", "bin", "skillyard.toml", "skillyard.lock")
_MOST_CHARACTERS = 4096
#: As many links as the kernel itself follows.
_MOST_LINKS = 40
_NO_LINKS = Message("links in mybox/ are not followed: name another output, or the path that the link leads to")


class NamedPath(NamedTuple):
    """A path that exists."""

    path: Path
    #: It lies outside the project, and a link in the project leads there.
    led_out: bool


def find_named(value: str, where: Path, root: Path) -> NamedPath | None:
    """Return the file or folder that a word names; None if it names none."""
    if not value or len(value) > _MOST_CHARACTERS or "\n" in value or "\0" in value:
        return None
    try:
        path = Path(os.path.realpath(where / value))
        real_root = os.path.realpath(root)
        if not exists(path):
            return None
        led_out = not is_inside(str(path), real_root)
        return NamedPath(path, led_out=led_out and _passes_link_in(str(where / value), real_root))
    except (OSError, ValueError, RecursionError):
        return None


def resolve_output(named: str, root: Path) -> str:
    """Return a path to write, resolved, relative to the project root if it is inside. A folder ends in a slash.

    PermissionDenied if a link in mybox/ leads elsewhere, or if it is where nobody writes.
    """
    try:
        real_root = Path(os.path.realpath(root))
        target = Path(os.path.realpath(real_root / named))
        literal = Path(os.path.normpath(real_root / named))
        is_folder = target.is_dir()
    except (OSError, ValueError, RecursionError):
        raise InvalidParam(Message("no file can have the name {named!r}", named=named[:80])) from None
    # The person may have written the project's own path with a link above it.
    if literal.is_relative_to(root):
        literal = real_root / literal.relative_to(root)
    if literal.is_relative_to(real_root / BOX) and target != literal:
        denied = PermissionDenied(
            Message("{named} goes through a link in {box}/ and leads to {target}", named=named, box=BOX, target=target)
        )
        denied.extra_hint = _NO_LINKS
        raise denied
    if target != real_root and not target.is_relative_to(real_root):
        return f"{target}/" if is_folder and target != Path("/") else str(target)
    below = target.relative_to(real_root)
    if below.parts[:1] and below.parts[0].lower() in GUARDED:
        raise PermissionDenied(Message("{parts} is never an output", parts=below.parts[0]))
    return f"{below.as_posix()}/" if is_folder else below.as_posix()


def _passes_link_in(path: str, real_root: str) -> bool:
    """Whether the path follows a link inside the project."""
    left = [part for part in reversed(path.split("/")) if part not in {"", "."}]
    here, links = Path("/"), 0
    while left:
        part = left.pop()
        place = here.parent if part == ".." else here / part
        if part == ".." or not place.is_symlink():
            here = place
            continue
        links += 1
        if is_inside(str(here), real_root) or links > _MOST_LINKS:
            return True
        target = str(place.readlink())
        here = Path("/") if target.startswith("/") else here
        left += [step for step in reversed(target.split("/")) if step not in {"", "."}]
    return False


class Approved(NamedTuple):
    """A skill, what was granted to it, and the copy to use if anything was."""

    skill: Skill
    granted: frozenset[str] = frozenset()
    copy: FolderCopy | None = None


def approve(skill: Skill, grants: Grants, own_home: Path) -> Approved:
    """Return the grants for the folder's present bytes, and the skill as those bytes describe it."""
    key = str(skill.folder)
    if not grants.has_any(key) or not skill.folder.is_dir():
        return Approved(skill)
    in_role = bool(skill.role)
    marks = hash_folder(skill.folder, in_role=in_role)
    if not grants.of(key, marks.approved):
        return Approved(skill)
    copies = Copies(own_home)
    copy = copies.find(marks) or copies.make(skill.folder, in_role=in_role)
    granted = grants.of(key, copy.marks.approved)
    return Approved(_described(skill, copy), granted, copy) if granted else Approved(skill)


def _described(skill: Skill, copy: FolderCopy) -> Skill:
    """Return the skill as the copy describes it; the folder may have changed since."""
    if not (copy.files / skill.path.name).is_file():
        return skill  # a folder without SKILL.md: only its scripts can be run
    found = [known for known in _readings(skill, copy) if not skill.role or known.name == skill.name]
    if not found:
        raise SkillNotFound(skill.name)
    return found[0]


def _readings(skill: Skill, copy: FolderCopy) -> Sequence[Skill]:
    """Parsed once for each copy: parsing YAML takes longer than everything else here."""
    key = str(skill.path)
    try:
        notes = json.loads(copy.notes.read_bytes())
        return [Skill.from_record(record) for record in notes[key]]
    except (OSError, ValueError, KeyError, TypeError):
        readings = _parsed(skill, copy)
    copy.notes.write_text(json.dumps({key: [reading.as_record() for reading in readings]}), "utf-8")
    return readings


def _parsed(skill: Skill, copy: FolderCopy) -> Sequence[Skill]:
    from skillyard.catalog.manifest import MAX_FILE_BYTES, parse_skill  # noqa: PLC0415  (brings YAML)

    content = read_plain(copy.files / skill.path.name, MAX_FILE_BYTES)
    if skill.role:
        from skillyard.catalog.agentfile import parse_role  # noqa: PLC0415  (brings YAML)

        return parse_role(content, skill.path).skills
    reading = parse_skill(content, skill.path)
    if reading.skill is None:
        reason = reading.findings[0].message if reading.findings else "it cannot be read"
        raise MetadataMissing(Message("{place}: {reason}", place=skill.path, reason=reason))
    return (reading.skill,)
