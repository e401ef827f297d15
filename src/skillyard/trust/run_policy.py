"""Decides what a run may touch: the rules of docs/spec/trust.md, as a policy for the sandbox.

A run reads the system, its own skill, the project without its secrets (see `hidden_files`) and the paths that the
caller named; it writes mybox/ and a private temp. The project is seen copy-on-write: what a run changes there is a
change set that a person applies. Everything wider is a capability that a person granted, for exactly these bytes. Where
the project's file says `read = "params"`, the project is read only where it is named.

A role's agent.yaml bounds its skills further. What it narrows counts at once; what it widens counts once
`skillyard trust` granted it for exactly the bytes of the role's folder, so a changed role is narrow again."""

import json
import os
import shlex
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.bounds import Bounds, bounds_of, resolve_role_path
from skillyard.catalog.files import exists, read_plain
from skillyard.catalog.fingerprint import fingerprint, hash_folder
from skillyard.core.capability import ENV, MEMORY, NETWORK, PROCESSES, READ, READ_PROJECT, SECRET, WRITE
from skillyard.core.errors import (
    InvalidParam,
    MetadataMissing,
    NotGranted,
    PermissionDenied,
    RoleInvalid,
    SkillNotFound,
)
from skillyard.core.messages import Message
from skillyard.core.result import Call
from skillyard.core.skill import Skill
from skillyard.runners.interpreters import Reach, reach_of
from skillyard.runners.kind import PACKAGE, Permit
from skillyard.runners.leftovers import BOX
from skillyard.sandbox.hosts import parse_rule
from skillyard.sandbox.launch import PRIVATE_HOME, Mount, Policy, is_inside, system_paths
from skillyard.store.copies import COPIES_SUFFIX, Copies, FolderCopy
from skillyard.store.grants import Grants
from skillyard.trust.hidden_files import find_hidden, is_hidden, list_home
from skillyard.trust.role_paths import as_folder, find_allowed, find_denied, split_pattern

#: Where skills lie in SKILLYARD_HOME: installed for every project, and staged for one run.
OWN_SKILLS = ("skills", "adhoc")
_MIB = 1 << 20
_USUAL = Policy()


class Surroundings(NamedTuple):
    """What is the same for every run of a project."""

    own_home: Path
    #: The person's home, which a run does not see.
    user_home: Path | None = None
    #: Whether what was granted of it can be shown in the run's own home.
    can_mount: bool = False
    #: Whether a run sees the project it runs in; else only what is named.
    reads_project: bool = True


def permit(
    call: Call, program: str, granted: frozenset[str], around: Surroundings, environment: tuple[Path, ...] | None = None
) -> Permit:
    """Return what the call may touch. `environment` lists the parts of the environment that we built for it."""
    is_narrow = call.skill.role and bounds_of(call.skill).allowed is not None
    if around.reads_project and not is_narrow and not _is_around(call.root.resolve(), call):
        granted |= {READ_PROJECT}
    reach = Reach(environment) if environment is not None else reach_of(call.root.resolve() / program)
    found = _permit(call, granted, around, reach)
    return _within_role(call, found, granted) if call.skill.role else found


def _permit(call: Call, granted: frozenset[str], around: Surroundings, reach: Reach) -> Permit:
    root, own_home, user_home = call.root.resolve(), around.own_home, around.user_home
    own, mounts = _own_folder(call, root)
    literal = [Path(os.path.normpath(root / argument)) for argument in _arguments(granted, READ)]
    opened = [path for path in literal if os.path.realpath(path) == str(path)]  # else a link leads elsewhere by now
    read = [*own, *reach.known, *call.named_paths, *opened]
    if call.skill.kind.imports_helper:
        read.append(PACKAGE.resolve())
    write, missing = [root / BOX], list[str]()
    made: tuple[Path, ...] = ()
    secrets: tuple[Path, ...] = ()
    if READ_PROJECT in granted or root in read:
        secrets = tuple(path for path in find_hidden(root, own_home) if path not in read)
        is_copy = any(mount.target == root for mount in mounts)  # read-only as a whole
        # What is named in the project is seen, and changed, as the rest of it.
        named = {path for path in (*call.named_paths, *opened) if path.is_relative_to(root)} - {root}
        read = [path for path in read if is_copy or path not in named]
        guarded = (root / name for name in GUARDED)
        read += [root, *(path for path in guarded if not is_copy and path.exists() and not path.is_symlink())]
    elif _is_around(root, call):
        missing.append(READ_PROJECT)
    for path in call.led_out:
        _refuse_wide(path, own_home.resolve())
        missing += [f"{READ}:{path}"] if f"{READ}:{path}" not in granted else []
    # Programs that it could not read: the project of one, or the program itself.
    places = [*map(str, read), *(str(mount.target) for mount in mounts)]
    closed = (path for path in reach.unknown if not any(is_inside(str(path), place) for place in places))
    missing += (READ_PROJECT if path.is_relative_to(root) else f"{READ}:{path}" for path in closed)
    # The output was resolved by the check; a later link is not followed.
    target = Path(os.path.normpath(root / call.output)) if call.output else root / BOX
    if not target.is_relative_to(root / BOX):
        _refuse_wide(target, own_home.resolve())
        is_change = READ_PROJECT in granted and target.is_relative_to(root)  # of the project, as any other
        if not is_change and f"{WRITE}:{call.output}" in granted:
            write, made = [*write, target], (target,)
        elif not is_change:
            missing.append(f"{WRITE}:{call.output}")
    # `/`, which nobody can name, is left out.
    paths = tuple(dict.fromkeys(path for path in read if path != Path("/")))
    readable, hide = _around_home(paths, write, call.skill.folder.resolve(), own_home.resolve())
    tools = frozenset(reach.known).difference(own, call.named_paths)
    # Granted paths in the person's home are seen in the run's own home too: a program asks for `~/x`.
    at_home = [path for path in opened if user_home and user_home in path.parents and path.exists()]
    in_home = [Mount(path, PRIVATE_HOME / path.relative_to(user_home)) for path in at_home if user_home]
    copies = (next(above for above in mount.source.parents if above.name.endswith(COPIES_SUFFIX)) for mount in mounts)
    policy = Policy(
        read=tuple(path for path in readable if path not in tools),
        tools=tuple(path for path in readable if path in tools),
        write=tuple(write),
        hide=(*hide, *copies, *secrets),
        mounts=(*mounts, *(in_home if around.can_mount else ())),
        network=NETWORK in granted,
        hosts=tuple(_arguments(granted, NETWORK)),
    )
    return Permit(policy, tuple(_arguments(granted, ENV)), tuple(dict.fromkeys(missing)), made)


def not_granted(call: Call, missing: tuple[str, ...]) -> NotGranted:
    """Return the error for missing capabilities, with the command that a person must run."""
    command = "skillyard trust" if call.skill.role else grant_command(call, missing)
    return NotGranted(" ".join(missing), command, details={"capabilities": list(missing)})


def grant_command(call: Call, capabilities: tuple[str, ...]) -> str:
    """Return the grant command that a person would type, quoted for a shell."""
    return shlex.join(("skillyard", "grant", spoken(call.known_as or call.asked_as), *capabilities))


def env_command(asked_as: str, script: str) -> str:
    """Return the command that builds the environment of a program."""
    return f"skillyard env {spoken(asked_as)}{f':{script}' if script else ''}"


def spoken(name: str) -> str:
    """Return what a person types for a skill: `@name`, or its folder as it is."""
    return name if name.startswith((".", "/", "~")) else f"@{name}"


def noted_names(policy: Policy, home: Path | None) -> tuple[str, ...]:
    """Return the names in the person's home whose lookups by a run with this policy are noted: not those it sees."""
    if home is None:
        return ()
    seen = [mount.target.relative_to(PRIVATE_HOME) for mount in policy.mounts if PRIVATE_HOME in mount.target.parents]
    return tuple(name for name in list_home(home) if not any(Path(name) in (path, *path.parents) for path in seen))


def is_closed(path: str) -> bool:
    """Whether a path in a project, relative and with `/`, is never changed by what a run left."""
    first, *rest = path.split("/")
    return first.lower() in GUARDED or first == BOX or ".git" in rest or is_hidden(path)


def _own_folder(call: Call, root: Path) -> tuple[tuple[Path, ...], tuple[Mount, ...]]:
    """Return how the run sees its skill: the folder or its copy to read, or the copy mounted over the folder."""
    folder = call.skill.folder.resolve()
    copy, is_around = call.copy.resolve() if call.copy else None, _is_around(root, call)
    if copy is None:
        return () if is_around else (folder,), ()
    if is_around:  # only the project of it, which a person must have opened
        copy, folder = copy / root.relative_to(folder), root
    return ((), (Mount(copy, folder),)) if call.copy_is_mounted else ((copy,), ())


def _is_around(root: Path, call: Call) -> bool:
    """Whether a link that came with the project makes the project a skill's own folder. One that a person names may."""
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


def _refuse_wide(path: Path, own_home: Path) -> None:
    """Raise PermissionDenied for what is never opened to a run: the root and our own home."""
    if path == Path("/") or path == own_home or path.is_relative_to(own_home):
        raise PermissionDenied(Message("{path} is never opened to a run", path=path))


def _arguments(granted: frozenset[str], name: str) -> list[str]:
    return sorted(capability.partition(":")[2] for capability in granted if capability.startswith(f"{name}:"))


def wider(bounds: Bounds, root: Path, folder: Path) -> tuple[str, ...]:
    """Return the capabilities that a role's file asks for beyond the rules."""
    paths = (_capability_for(path, root.resolve(), folder.resolve()) for path in bounds.allowed or ())
    return (
        *((NETWORK,) if bounds.network else ()),
        *(f"{NETWORK}:{host}" for host in _hosts(bounds)),
        *dict.fromkeys(filter(None, paths)),
        *(capability for capability, asked, usual in _limits(bounds) if (asked or 0) > usual),
        *(f"{SECRET}:{secret.name}" for secret in bounds.secrets),
    )


def _within_role(call: Call, found: Permit, granted: frozenset[str]) -> Permit:
    """Narrow the permit of a role's skill to what the role's file allows."""
    bounds = bounds_of(call.skill)
    root, folder = call.root.resolve(), call.skill.folder.resolve()
    hidden = find_denied(bounds.denied, root)
    allowed = _list_allowed(bounds, root, folder)
    read, write = ((), found.policy.write) if allowed is None else _opened(allowed, root, folder, granted)
    _refuse_paths(call, allowed, hidden)
    hosts = found.policy.hosts
    if bounds.hosts is not None:  # the granted ones, or those that the file names if all are granted
        hosts = tuple(host for host in _hosts(bounds) if found.policy.network or host in hosts)
    memory, processes = (
        usual if asked is None else asked if capability in granted else min(asked, usual)
        for capability, asked, usual in _limits(bounds)
    )
    policy = found.policy._replace(
        read=(*found.policy.read, *read),
        write=write,
        hide=(*found.policy.hide, *hidden),
        network=found.policy.network and bounds.network is not False and bounds.hosts is None,
        hosts=() if bounds.network is False else hosts,
        memory_bytes=memory,
        processes=processes,
    )
    secrets = (f"{SECRET}:{secret.name}" for secret in bounds.secrets)
    # What is not there cannot be opened, nor covered.
    in_box = (path for path in write if path.is_relative_to(root / BOX))
    absent = [path for path in (*in_box, *hidden) if not path.exists()]
    return found._replace(
        policy=policy,
        missing=(*found.missing, *(secret for secret in secrets if secret not in granted)),
        secrets=bounds.secrets,
        folders=tuple(path for path in absent if any(path.is_relative_to(place) for place in write)),
    )


def _limits(bounds: Bounds) -> tuple[tuple[str, int | None, int], ...]:
    """Return memory and processes: the capability, what the file asks for, and the usual limit."""
    memory, processes = bounds.memory_bytes, bounds.processes
    return (
        (f"{MEMORY}:{(memory or 0) // _MIB}", memory, _USUAL.memory_bytes),
        (f"{PROCESSES}:{processes or 0}", processes, _USUAL.processes),
    )


def _capability_for(path: str, root: Path, folder: Path) -> str:
    """Return the capability that a path or pattern needs; empty if the rules already allow it."""
    path = as_folder(path)
    if path.startswith("!"):
        raise RoleInvalid(Message("workspace.allowed_paths: {path} allows nothing: deny it instead", path=path))
    base, rest = split_pattern(path)
    place = resolve_role_path(base, root)
    if not place.is_relative_to(root):
        if Path(os.path.normpath(root / base)).is_relative_to(root):
            told = Message("workspace.allowed_paths: {path} leads out of the project through a link", path=path)
            raise RoleInvalid(told)
        return f"{READ}:{place / rest}"
    below = place.relative_to(root)
    if place.is_relative_to(root / BOX) or place.is_relative_to(folder):
        return ""
    if (not below.parts and not rest) or below.parts[:1] in _GUARDED_PARTS:
        return f"{READ}:{place / rest}"
    return f"{WRITE}:{(below / rest).as_posix()}"


class _Allowed(NamedTuple):
    """What an entry of `allowed_paths` stands for now, and the capability that it needs."""

    path: str
    capability: str
    places: tuple[Path, ...]


def _list_allowed(bounds: Bounds, root: Path, folder: Path) -> list[_Allowed] | None:
    if bounds.allowed is None:
        return None
    asked = ((path, _capability_for(path, root, folder)) for path in bounds.allowed)
    return [_Allowed(path, capability, find_allowed(path, root)) for path, capability in asked]


def _opened(
    allowed: list[_Allowed], root: Path, folder: Path, granted: frozenset[str]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return what it may read, and where it may write: the allowed parts of mybox/, and what else a person granted.

    Nothing of its own folder: what it sees of that is the copy that was approved.
    """
    box = root / BOX
    read, write = dict[Path, None](), dict[Path, None]()
    for entry in allowed:
        for place in entry.places:
            if place.is_relative_to(box):
                write[place] = None
            elif box.is_relative_to(place):
                write[box] = None
            elif entry.capability in granted and place.exists() and not place.is_relative_to(folder):
                is_open = entry.capability.startswith(f"{WRITE}:")
                is_guarded = place.is_relative_to(root) and place.relative_to(root).parts[:1] in _GUARDED_PARTS
                (write if is_open and not is_guarded else read)[place] = None
    return tuple(read), tuple(write)


def _refuse_paths(call: Call, allowed: list[_Allowed] | None, hidden: tuple[Path, ...]) -> None:
    """Raise for a role that hides its own program, and for a named path that the role's file does not allow."""
    own, role = call.skill.folder.resolve(), call.skill.role
    program = (call.skill.folder / call.skill.entry).resolve()
    for place in hidden:
        if program.is_relative_to(place):
            raise RoleInvalid(Message("workspace.denied_paths: {place} hides the role's own program", place=place))
    open_places = None if allowed is None else [*(place for entry in allowed for place in entry.places), own]
    for path in (*call.named_paths, *call.led_out):
        about = {"path": path, "role": role}
        if any(path.is_relative_to(place) for place in hidden):
            raise PermissionDenied(Message("{path} is in workspace.denied_paths of the role {role}", **about))
        if open_places is not None and not any(path.is_relative_to(place) for place in open_places):
            raise PermissionDenied(Message("{path} is outside workspace.allowed_paths of the role {role}", **about))


def _hosts(bounds: Bounds) -> tuple[str, ...]:
    """Return the hosts that the file names, each in its one spelling."""
    found: dict[str, None] = {}
    for host in bounds.hosts or ():
        try:
            found[str(parse_rule(host))] = None
        except ValueError as error:
            msg = Message("security.network: {host} names no host: {error}", host=host, error=error)
            raise RoleInvalid(msg) from None
    return tuple(found)


#: Never an output, whoever asks: what lies there decides what may run.
GUARDED = (".git", ".claude", ".agents", ".skillyard", "agents", "bin", "skillyard.toml", "skillyard.lock")
#: The same as the first part of a relative path.
_GUARDED_PARTS = tuple((name,) for name in GUARDED)
_MOST_CHARACTERS = 4096
#: As many links as the kernel itself follows.
_MOST_LINKS = 40


class NamedPath(NamedTuple):
    """A path that exists. `led_out`: it lies outside the project, and a link in the project leads there."""

    path: Path
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
    """Return a path to write, resolved and relative to the project root if inside. A folder ends in a slash.

    Raise PermissionDenied if a link in mybox/ leads elsewhere, or if it is where nobody writes.
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
        about = {"named": named, "box": BOX, "target": target}
        hint = Message("links in mybox/ are not followed: name another output, or the path that the link leads to")
        told = Message("{named} goes through a link in {box}/ and leads to {target}", **about)
        raise PermissionDenied(told, advice=hint)
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


def mark_of_skill(skill: Skill) -> str:
    return fingerprint(skill.folder, in_role=bool(skill.role))


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
    key = str(skill.path)
    try:  # parsed once for each copy: parsing YAML takes longer than everything else here
        readings = [Skill.from_record(record) for record in json.loads(copy.notes.read_bytes())[key]]
    except (OSError, ValueError, KeyError, TypeError):
        readings = _parse(skill, copy)
        copy.notes.write_text(json.dumps({key: [reading.as_record() for reading in readings]}), "utf-8")
    for found in readings:
        if not skill.role or found.name == skill.name:
            return found
    raise SkillNotFound(skill.name)


def _parse(skill: Skill, copy: FolderCopy) -> list[Skill]:
    from skillyard.catalog.manifest import MAX_FILE_BYTES, parse_skill  # noqa: PLC0415  (brings YAML)

    content = read_plain(copy.files / skill.path.name, MAX_FILE_BYTES)
    if skill.role:
        from skillyard.catalog.agentfile import parse_role  # noqa: PLC0415  (brings YAML)

        return list(parse_role(content, skill.path).skills)
    reading = parse_skill(content, skill.path)
    if reading.skill is None:
        reason = reading.findings[0].message if reading.findings else "it cannot be read"
        raise MetadataMissing(Message("{place}: {reason}", place=skill.path, reason=reason))
    return [reading.skill]
