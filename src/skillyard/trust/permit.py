"""What a call may touch: the contract's *Trust*, as a policy for the sandbox.

Naming is granting: a run reads the system, its own skill and the paths that the caller named; it writes mybox/
and a private temp. Everything wider is a capability that a person granted, for exactly these bytes.
"""

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.bounds import Secret
from skillyard.catalog.files import is_utf8, make_below, make_file, open_resolved, remove_if_empty
from skillyard.core.capability import ENV, NETWORK, READ, READ_PROJECT, WRITE
from skillyard.core.errors import InvalidArgs, NotGranted, PermissionDenied
from skillyard.core.messages import Message
from skillyard.core.request import Call
from skillyard.core.skill import Kind
from skillyard.runners.process import PACKAGE
from skillyard.runners.toolchains import Reach, reach_of
from skillyard.runtime.paths import BOX, resolve_output
from skillyard.sandbox.policy import Mount, Policy, is_inside, system_paths
from skillyard.store.copies import COPIES_SUFFIX

#: Where skills lie in SKILLYARD_HOME: installed for every project, and staged for one run.
OWN_SKILLS = ("skills", "adhoc")


class Permit(NamedTuple):
    """A policy, the variables that may be passed, and what is still missing."""

    policy: Policy
    variables: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    #: Outputs outside mybox/: a file must be there before it can be opened to the run alone.
    outputs: tuple[Path, ...] = ()
    #: What a role declares; resolved when it runs.
    secrets: tuple[Secret, ...] = ()
    #: Folders that must be there for the sandbox to open or to cover.
    folders: tuple[Path, ...] = ()


def as_capability(text: str) -> str:
    """The one spelling of a capability; ValueError with the reason where `network:HOST` names no host."""
    name, colon, argument = text.partition(":")
    if name != NETWORK or not colon:
        return text
    from skillyard.sandbox.hosts import parse_rule

    return f"{NETWORK}:{parse_rule(argument)}"


def permit(
    call: Call, program: str, granted: frozenset[str], own_home: Path, environment: tuple[Path, ...] | None = None
) -> Permit:
    """`environment` lists the parts of an environment that we built, where the program is its Python."""
    root = call.root.resolve()
    own, mounts = _own_folder(call, root)
    reach = Reach(environment) if environment is not None else reach_of(root / program)
    read = [*own, *reach.known, *call.named_paths]
    read += [path for argument in _arguments(granted, READ) if (path := _as_granted(argument, root))]
    if call.skill.kind is Kind.JSON:
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
    """What a person must grant before these can start: each by its resolved path, or the project it is part of."""
    closed = [path for path in programs if not any(is_inside(str(path), str(place)) for place in read)]
    return list(dict.fromkeys(READ_PROJECT if path.is_relative_to(root) else f"{READ}:{path}" for path in closed))


def _own_folder(call: Call, root: Path) -> tuple[tuple[Path, ...], tuple[Mount, ...]]:
    """How the run sees its skill: the folder or its copy to read, or the copy at the folder's path."""
    folder = call.skill.folder.resolve()
    copy, is_around = call.copy.resolve() if call.copy else None, _is_around(root, call)
    if copy is None:
        return () if is_around else (folder,), ()
    if is_around:  # only the project of it, which a person must have opened
        copy, folder = copy / root.relative_to(folder), root
    return ((), (Mount(copy, folder),)) if call.copy_is_mounted else ((copy,), ())


def _all_copies(mount: Mount) -> Path:
    """The folder of all copies: no run has to see those of other skills."""
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


def make_box(root: Path) -> None:
    """The folders that every run may write. PermissionDenied if one of them is a link."""
    real_root = root.resolve()
    for folder in ("output", "workspace", "temp"):
        make_below(real_root, real_root / BOX / folder)


def make_outputs(outputs: tuple[Path, ...]) -> dict[Path, int]:
    """Those that were not there, by their inode; empty ones are taken away again after the run."""
    made = {path: make_file(path) for path in outputs if not path.is_dir()}
    return {path: inode for path, inode in made.items() if inode is not None}


def make_folders(folders: tuple[Path, ...]) -> None:
    """They stay, empty as they are: another run that stands in them at this moment must not lose them."""
    for path in folders:
        os.close(open_resolved(path, create=True))


def remove_empty(outputs: dict[Path, int]) -> None:
    for path, inode in outputs.items():
        remove_if_empty(path, inode)


def resolve_capability(text: str, root: Path, user_home: Path) -> str:
    """The capability with its path resolved, from the project root: what is asked, stored and opened is the same."""
    name, _, argument = text.partition(":")
    if name not in {READ, WRITE} or not argument:
        return text
    if argument == "~" or argument.startswith("~/"):
        argument = str(user_home) + argument[1:]
    if "\0" in argument or not is_utf8(argument):
        raise InvalidArgs(
            Message("{argument!r} names no path: it holds characters that are no text", argument=argument)
        )
    if name == WRITE:
        return f"{WRITE}:{resolve_output(argument, root)}"
    try:
        return f"{READ}:{os.path.realpath(root / argument)}"
    except (OSError, ValueError):
        raise InvalidArgs(Message("{argument!r} names no path", argument=argument)) from None


def demand(call: Call, found: Permit) -> None:
    """NotGranted, with the command that a person must run, where something is missing."""
    if found.missing:
        command = "skillyard trust" if call.skill.role else grant_command(call, found.missing)
        raise NotGranted(" ".join(found.missing), command, details={"capabilities": list(found.missing)})


def _as_granted(argument: str, root: Path) -> Path | None:
    """The path that was granted; None if it leads elsewhere now: that was not what the person said yes to."""
    literal = Path(os.path.normpath(root / argument))
    return literal if os.path.realpath(literal) == str(literal) else None


def _refuse_wide(path: Path, own_home: Path) -> None:
    """Never readable through a link, and never an output, whoever asks."""
    if path == Path("/") or path == own_home or path.is_relative_to(own_home):
        raise PermissionDenied(Message("{path} is never opened to a run", path=path))


def grant_command(call: Call, capabilities: tuple[str, ...]) -> str:
    """What a person would type, quoted for a shell."""
    name = call.known_as or call.asked_as
    spoken = name if name.startswith((".", "/", "~")) else f"@{name}"
    return shlex.join(("skillyard", "grant", spoken, *capabilities))


def _arguments(granted: frozenset[str], name: str) -> list[str]:
    return sorted(capability.partition(":")[2] for capability in granted if capability.startswith(f"{name}:"))


def _output_elsewhere(call: Call, root: Path) -> Path | None:
    """The output outside mybox/. It was resolved when the call was checked; a link that came later is not followed."""
    target = Path(os.path.normpath(root / call.output)) if call.output else root / BOX
    return None if target.is_relative_to(root / BOX) else target


def _without_root(paths: list[Path]) -> tuple[Path, ...]:
    """`/` is no path to name; whoever asks for it gets nothing."""
    return tuple(dict.fromkeys(path for path in paths if path != Path("/")))
