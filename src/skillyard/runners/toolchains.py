"""Which interpreters of this machine may run a skill's program, and which folders each of them needs.

A run can read an interpreter's libraries without a grant, so only interpreters that we know count: those in the
system's folders, the Python that runs us, and those that a version manager of the user installed. From each we open
the exact subfolders that it needs, and never one that is a symlink.

Nothing that a skill, a package or a project contains decides what is opened: no `pyvenv.cfg` is read, and a program
that is named by its path is opened only by a grant for that path.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from skillyard.core.child_process import absolute_entries
from skillyard.sandbox.policy import PYTHON_PARTS, existing_parts, is_inside, is_system

#: What an installed interpreter is made of. The rest of its prefix (documentation, caches, notes) stays closed.
_PARTS: Final = ("bin", "lib", "lib32", "lib64", "libexec")
#: conda keeps certificates and data files that its libraries open at run time.
_CONDA_PARTS: Final = (*_PARTS, "share", "ssl", "etc")
_SHEBANG_BYTES: Final = 256


class Manager(NamedTuple):
    """A folder in which a version manager installs: `folder/<name>` × `depth` is one installation's prefix."""

    folder: Path
    depth: int
    parts: tuple[str, ...] = _PARTS


def _managers(env: Mapping[str, str]) -> tuple[Manager, ...]:
    """The version managers that this user may have, by their documented places."""
    return tuple(manager for manager in _usual_managers(env) if manager.folder.is_absolute())


def _usual_managers(env: Mapping[str, str]) -> Iterator[Manager]:
    home = Path(env.get("HOME") or "/nonexistent")
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")

    def place(variable: str, usual: Path) -> Path:
        return Path(env.get(variable) or usual)

    yield Manager(place("PYENV_ROOT", home / ".pyenv") / "versions", 1)
    for folder in path_folders(env):
        if folder.endswith("/shims"):
            yield Manager(Path(folder).parent / "versions", 1)
    yield Manager(place("RBENV_ROOT", home / ".rbenv") / "versions", 1)
    yield Manager(place("UV_PYTHON_INSTALL_DIR", data / "uv" / "python"), 1)
    yield Manager(place("NVM_DIR", home / ".nvm") / "versions" / "node", 1)
    yield Manager(place("FNM_DIR", data / "fnm") / "node-versions", 2)
    yield Manager(place("VOLTA_HOME", home / ".volta") / "tools" / "image" / "node", 1)
    yield Manager(place("ASDF_DATA_DIR", home / ".asdf") / "installs", 2)
    yield Manager(place("MISE_DATA_DIR", data / "mise") / "installs", 2)
    yield Manager(place("SDKMAN_DIR", home / ".sdkman") / "candidates", 2)
    yield Manager(place("BUN_INSTALL", home / ".bun"), 0, ("bin",))
    yield Manager(place("DENO_INSTALL", home / ".deno"), 0, ("bin",))
    for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"):
        yield Manager(home / name, 0, _CONDA_PARTS)
        yield Manager(home / name / "envs", 1, _CONDA_PARTS)


class Reach(NamedTuple):
    """What a program needs to start beyond the system, the skill and the project."""

    #: Parts of interpreters that we know: opened without a grant.
    known: tuple[Path, ...] = ()
    #: Everything else, by its resolved path: opened only where a person granted to read it.
    unknown: tuple[Path, ...] = ()


def reach_of(program: Path, env: Mapping[str, str] = os.environ) -> Reach:
    """What must be readable for this program to start. `program` is absolute."""
    real = os.path.realpath(program)
    known = _known_parts(real, env)
    if known is not None:
        return _with_environment(program, Reach(known), env)
    interpreter = _named_interpreter(real)
    if interpreter is None:
        return Reach(unknown=(Path(real),))
    behind = _known_parts(os.path.realpath(interpreter), env)
    if behind is None:
        return Reach(unknown=(Path(real), Path(os.path.realpath(interpreter))))
    own = (interpreter.parent.parent,) if is_environment(interpreter) else ()
    return Reach(known=behind, unknown=(Path(real), *own))


def is_known(program: str) -> bool:
    """Whether it can run without a grant for itself; only such a program is ever started outside the sandbox."""
    return _known_parts(os.path.realpath(program), os.environ) is not None


def newest_installed(name: str) -> str:
    """The newest installation of a program by a version manager: a shim would choose by the files of a project."""
    found = (
        path
        for manager in _managers(os.environ)
        for path in manager.folder.glob("/".join(("*",) * manager.depth + ("bin", name)))
        if os.access(path, os.X_OK)
    )
    return str(max(found, key=lambda path: _version_key(path.parent.parent.name), default=""))


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,9}", name))


def is_environment(program: Path) -> bool:
    """Whether a Python must be started by its own name, or it forgets its packages."""
    return program.parent.name == "bin" and (program.parent.parent / "pyvenv.cfg").is_file()


def environment_parts(prefix: Path) -> tuple[Path, ...]:
    """The parts of a virtual environment; its configuration is for Python itself to read, inside."""
    return existing_parts(prefix, PYTHON_PARTS)


def _with_environment(program: Path, reach: Reach, env: Mapping[str, str]) -> Reach:
    """With the packages of the virtual environment that a Python is started from.

    One that the user put on the PATH, or that runs us, counts as chosen; any other needs a grant.
    """
    prefix = program.parent.parent
    if is_system(str(program)) or not program.is_symlink() or not is_environment(program):
        return reach
    if str(program.parent) in path_folders(env) or prefix == Path(sys.prefix):
        return reach._replace(known=(*environment_parts(Path(os.path.realpath(prefix))), *reach.known))
    return reach._replace(unknown=(Path(os.path.realpath(prefix)),))


def path_folders(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The absolute folders of the PATH: a relative one would mean something else in each project."""
    return tuple(map(os.path.normpath, filter(None, absolute_entries(env).split(os.pathsep))))


def _known_parts(real: str, env: Mapping[str, str]) -> tuple[Path, ...] | None:
    """For a resolved path: nothing for a system program, the parts of a known installation, else None."""
    if is_system(real):
        return ()
    for prefix, names in _prefixes(real, env):
        parts = existing_parts(prefix, names)
        # The program must lie in what is opened: `~/.pyenv/versions/x/notes/run` is no interpreter.
        if any(is_inside(real, str(part)) for part in parts):
            return parts
    return None


def _prefixes(real: str, env: Mapping[str, str]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    for own in dict.fromkeys((sys.base_prefix, sys.base_exec_prefix, sys.prefix)):
        prefix = os.path.realpath(own)
        if is_inside(real, prefix):
            yield Path(prefix), PYTHON_PARTS
    for manager in _managers(env):
        folder = os.path.realpath(manager.folder)
        if folder == "/" or not is_inside(real, folder):
            continue
        names = real.removeprefix(f"{folder}/").split("/")
        if len(names) > manager.depth:
            yield Path(folder, *names[: manager.depth]), manager.parts


def _named_interpreter(program: str) -> Path | None:
    """What its first line names, if it is a script."""
    try:
        with open(program, "rb") as stream:  # noqa: PTH123
            first = stream.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    path = Path(os.fsdecode(words[0])) if words else Path()
    return path if path.is_absolute() else None
