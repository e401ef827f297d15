"""What a call may touch: the contract's *Trust*, as a policy for the sandbox.

Naming is granting: a run reads the system, its own skill and the paths that the caller named; it writes mybox/
and a private temp. Everything wider is a capability that a person granted, for exactly these bytes.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.bounds import Secret
from skillyard.core.errors import NotGranted
from skillyard.core.request import Call
from skillyard.core.skill import Kind
from skillyard.runners.program import PACKAGE
from skillyard.runners.toolchains import Reach, reach_of
from skillyard.sandbox.policy import Policy, is_inside, system_paths

READ_PROJECT = "read-project"
NETWORK = "network"
PACKAGES = "packages"
#: Each with an argument: a path, or the name of a variable.
READ, WRITE, ENV = "read", "write", "env"
#: What only the file of a role asks for.
SECRET, MEMORY, PROCESSES = "secret", "memory", "processes"
SCHEDULE, ON_FAILURE, ALLOWED_TOOLS = "schedule", "on-failure", "allowed-tools"
PLAIN = (READ_PROJECT, NETWORK, PACKAGES, SCHEDULE, ON_FAILURE, ALLOWED_TOOLS)
WITH_ARGUMENT = (READ, WRITE, ENV, SECRET, MEMORY, PROCESSES)
BOX = "mybox"
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


def is_capability(text: str) -> bool:
    name, colon, argument = text.partition(":")
    return text in PLAIN or (name in WITH_ARGUMENT and bool(colon) and bool(argument))


def permit(
    call: Call, program: str, granted: frozenset[str], own_home: Path, environment: tuple[Path, ...] | None = None
) -> Permit:
    """`environment` lists the parts of an environment that we built, where the program is its Python."""
    root = call.root.resolve()
    own = () if _is_around(root, call) else (call.skill.folder.resolve(),)
    reach = Reach(environment) if environment is not None else reach_of(root / program)
    read = [*own, *reach.known, *call.named_paths]
    read += [Path(argument).resolve() for argument in _arguments(granted, READ)]
    if call.skill.kind is Kind.JSON:
        read.append(PACKAGE.resolve())
    write = [root / BOX]
    missing: list[str] = []
    made: list[Path] = []
    if READ_PROJECT in granted:
        read.append(root)
    elif not own:
        missing.append(READ_PROJECT)
    missing += _unreadable_programs(reach.unknown, read, root)
    if target := _output_elsewhere(call, root):
        capability = f"{WRITE}:{call.output}"
        if capability in granted:
            write.append(target)
            made.append(target)
        else:
            missing.append(capability)
    readable, hide = _around_home(_without_root(read), write, call.skill.folder.resolve(), own_home.resolve())
    policy = Policy(
        read=readable,
        write=tuple(write),
        hide=hide,
        network=NETWORK in granted,
    )
    return Permit(policy, tuple(_arguments(granted, ENV)), tuple(missing), tuple(made))


def _unreadable_programs(programs: tuple[Path, ...], read: list[Path], root: Path) -> list[str]:
    """What a person must grant before these can start: each by its resolved path, or the project it is part of."""
    closed = [path for path in programs if not any(is_inside(str(path), str(place)) for place in read)]
    return list(dict.fromkeys(READ_PROJECT if path.is_relative_to(root) else f"{READ}:{path}" for path in closed))


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
    """The folders that every run may write."""
    for folder in ("output", "workspace", "temp"):
        (root / BOX / folder).mkdir(parents=True, exist_ok=True)


def make_outputs(outputs: tuple[Path, ...]) -> tuple[Path, ...]:
    """Those that were not there; empty ones are taken away again after the run."""
    fresh = tuple(path for path in outputs if not path.exists())
    for path in fresh:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return fresh


def make_folders(folders: tuple[Path, ...]) -> None:
    """They stay, empty as they are: another run that stands in them at this moment must not lose them."""
    for path in folders:
        path.mkdir(parents=True, exist_ok=True)


def remove_empty(outputs: tuple[Path, ...]) -> None:
    for path in outputs:
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()


def demand(call: Call, found: Permit) -> None:
    """NotGranted, with the command that a person must run, where something is missing."""
    if found.missing:
        name = call.known_as or call.asked_as
        spoken = name if name.startswith((".", "/", "~")) else f"@{name}"
        command = "skillyard trust" if call.skill.role else shlex.join(("skillyard", "grant", spoken, *found.missing))
        raise NotGranted(" ".join(found.missing), command, details={"capabilities": list(found.missing)})


def _arguments(granted: frozenset[str], name: str) -> list[str]:
    return sorted(capability.partition(":")[2] for capability in granted if capability.startswith(f"{name}:"))


def _output_elsewhere(call: Call, root: Path) -> Path | None:
    target = (root / call.output).resolve() if call.output else root / BOX
    return None if target.is_relative_to(root / BOX) else target


def _without_root(paths: list[Path]) -> tuple[Path, ...]:
    """`/` is no path to name; whoever asks for it gets nothing."""
    return tuple(dict.fromkeys(path for path in paths if path != Path("/")))
