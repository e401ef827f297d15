"""Which program runs a script, and what of this machine a run may read for it.

A script's program is chosen by its first line, else by its ending, and always started by its real path. A shim (pyenv,
asdf, mise) chooses by files of the folder it is started in, so it is never started: what pyenv's stands for is read
from pyenv's own files, any other is passed over. Of a project's `.python-version` only a plain version number counts,
which can choose among the installed interpreters and nothing else.

A run can read an interpreter's libraries without a grant, so only interpreters that we know count: those in the
system's folders, the Python that runs us, and those that a version manager of the user installed. From each we open
the exact subfolders that it needs, and never one that is a symlink. Nothing that a skill, a package or a project
contains decides what is opened: no `pyvenv.cfg` is read, and a program that is named by its path is opened only by a
grant for that path.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from skillyard.catalog.files import read_plain
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import InvalidCommand
from skillyard.core.messages import Message
from skillyard.sandbox.launch import PYTHON_PARTS, existing_parts, is_inside, is_system

_BY_ENDING = {
    ".py": "python3",
    ".sh": "sh",
    ".bash": "bash",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".ts": "node",
    ".mts": "node",
}
_PYTHONS = frozenset({"python", "python3", f"python3.{sys.version_info.minor}"})
_PYTHON_NAME = re.compile(r"python(?:3|(?P<version>3\.\d+t?))?")
_NEWEST_MINOR = 19
_VERSION_NAME = re.compile(r"\w[\w.+-]*")
#: The only kind of name that a project may choose by.
_VERSION_NUMBER = re.compile(r"3(?:\.\d{1,3}){1,2}")
_VERSION_BYTES = 1000
_SHEBANG_BYTES = 256
#: From this version on, node runs TypeScript as it is.
_NODE_WITH_TYPES = 22
#: What an installed interpreter is made of. The rest of its prefix (documentation, caches, notes) stays closed.
_PARTS: Final = ("bin", "lib", "lib32", "lib64", "libexec")
#: conda keeps certificates and data files that its libraries open at run time.
_CONDA_PARTS: Final = (*_PARTS, "share", "ssl", "etc")


def interpreter_of(script: Path) -> tuple[str, ...]:
    """Return the command that runs the script: the interpreter and its options."""
    name, words = script.name, _words_of(script)
    if not words:
        raise InvalidCommand(Message("{name}: neither its first line nor its ending says what runs it", name=name))
    program = find_program(words[0])
    if script.suffix in {".ts", ".mts"} and _node_version(program) < _NODE_WITH_TYPES:
        needed = _NODE_WITH_TYPES
        raise InvalidCommand(Message("{name}: TypeScript needs node {needed} or newer", name=name, needed=needed))
    return (program, *words[1:])


def is_python(script: Path) -> bool:
    """Whether Python runs the script, by its first line or its ending."""
    words = _words_of(script)
    return bool(words) and runs_python(words[0])


def runs_python(program: str) -> bool:
    return _PYTHON_NAME.fullmatch(Path(program).name) is not None


@cache
def version_of(python: str) -> str:
    """Return a version like `3.12`, from the program's real name, else by asking it."""
    named = _PYTHON_NAME.fullmatch(Path(os.path.realpath(python)).name)
    if named and named["version"]:
        return named["version"]
    return _said(python, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")


@cache
def full_version_of(python: str) -> tuple[int, ...]:
    """Return the version with its micro number; empty if the program does not start."""
    answer = _said(python, "-I", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])")
    return tuple(int(number) for number in answer.split(".")) if answer else ()


def list_pythons() -> tuple[str, ...]:
    """Return every `python3.N` on the PATH, the newest first."""
    names = (f"python3.{minor}" for minor in range(_NEWEST_MINOR, 7, -1))
    found = (_chosen_python(path) for name in names for path in _on_path(name))
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if path))


def find_on_path(name: str) -> str | None:
    """Return the first program of this name, preferring one that needs no grant. An absolute path stands for itself."""
    if "/" in name:
        return name if name.startswith("/") and _is_program(name) else None
    found = tuple(_on_path(name))
    known = (path for path in found if is_known(path))
    shims = (installed for path in found if "/shims/" in path and (installed := newest_installed(name)))
    return next(chain(known, shims, found[:1]), None)


def find_program(name: str) -> str:
    """Return the path of a program. `python` is found even if only `python3` exists; a path must be absolute."""
    if "/" not in name and runs_python(name) and (chosen := _python(name)):
        return chosen
    found = find_on_path(name)
    if found is None:
        raise InvalidCommand(Message("no program named {name!r} on this machine", name=name))
    # A system link stays, because some programs (busybox) go by the name they were called; so does an environment's.
    is_kept = found.startswith("/usr/") or is_environment(Path(found))
    return found if is_kept else os.path.realpath(found)


def _on_path(name: str) -> Iterator[str]:
    """Yield all matches on the PATH, like `shutil.which`, whose import would bring the archive modules."""
    return (path for folder in path_folders() if _is_program(path := f"{folder}/{name}"))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def _words_of(script: Path) -> tuple[str, ...]:
    """Return the interpreter and its options, by the first line of the script, else by its ending; empty if unknown."""
    ending = _BY_ENDING.get(script.suffix.lower())
    by_ending = (ending,) if ending else ()
    try:
        words = _shebang(script)
    except OSError as error:
        raise InvalidCommand(f"{script}: {error.strerror}") from None
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S" and "=" not in word]
    if not words:
        return by_ending
    if words[0] in {"uv", "pipx"} and words[1:2] == ["run"]:
        return ("python3",)  # they would install what the script asks for; that is not for a script to start
    name = Path(words[0]).name
    if runs_python(name) or name in _BY_ENDING.values():
        words[0] = name  # of the machine, never of the skill: some are asked for their version, outside the sandbox
    is_there = name in _PYTHONS or find_on_path(words[0]) is not None
    return tuple(words) if is_there else by_ending


def _shebang(program: Path) -> list[str]:
    """Return the words after `#!` in the first line. Raise OSError if it cannot be read."""
    with program.open("rb") as stream:
        first = stream.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    return first[2:].decode("utf-8", "surrogateescape").split() if first.startswith(b"#!") else []


@cache
def _python(name: str) -> str:
    """Return the user's Python of this name, resolving shims; our own for a plain `python3` if none is known."""
    is_plain = name in _PYTHONS
    names = dict.fromkeys((name, "python3", "python")) if is_plain else (name,)
    candidates = (path for each in names for path in _on_path(each))
    return next((chosen for path in candidates if (chosen := _chosen_python(path))), sys.executable if is_plain else "")


def _chosen_python(path: str) -> str:
    """Return the interpreter that a Python on the PATH stands for; empty if it is none that we know."""
    if "/shims/" in path:
        path = _of_pyenv(path)
    if not path or not is_known(path):
        return ""
    return path if is_environment(Path(path)) else os.path.realpath(path)


def _of_pyenv(shim: str) -> str:
    """What pyenv's shim would start, by the same rule and without its hundred milliseconds; nothing where the shim is
    another tool's, or the rule leads to no installed version."""
    root, name = Path(shim).parent.parent, Path(shim).name
    for version in _pyenv_versions(root):
        if not _VERSION_NAME.fullmatch(version):
            continue
        folder = _installed_version(root / "versions", version)
        if folder and _is_program(program := f"{folder}/bin/{name}"):
            return program
    return ""


def _pyenv_versions(root: Path) -> Iterator[str]:
    """Yield the versions that pyenv would choose: of the shell, of the nearest `.python-version`, of the user."""
    yield from os.environ.get("PYENV_VERSION", "").split(":")
    here = Path(os.environ.get("PYENV_DIR") or Path.cwd())
    for folder in (here, *here.parents):
        if lines := _version_lines(folder / ".python-version"):
            yield from filter(_VERSION_NUMBER.fullmatch, lines)
            break
    yield from _version_lines(root / "version")


def _version_lines(file: Path) -> tuple[str, ...]:
    try:
        text = read_plain(file, _VERSION_BYTES, follow=True).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(word for line in text.splitlines() for word in line.partition("#")[0].replace(":", " ").split())


def _installed_version(versions: Path, name: str) -> Path | None:
    """Return the installation of this name, else the newest that starts with it: `3.11` may mean 3.11.9."""
    if (versions / name).is_dir():
        return versions / name
    if not _VERSION_NUMBER.fullmatch(name) or not versions.is_dir():
        return None
    found = [path for path in versions.iterdir() if path.name.startswith(f"{name}.")]
    found = [path for path in found if _VERSION_NUMBER.fullmatch(path.name)]
    return max(found, key=lambda path: _version_key(path.name), default=None)


def _said(program: str, *args: str) -> str:
    """Ask a known interpreter about itself, outside any project; empty for an unknown one."""
    import subprocess  # noqa: PLC0415  (few runs ask)

    if not is_known(program):
        return ""
    argv = (os.path.realpath(program), *args)
    env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL, cwd="/", env=env
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def _node_version(program: str) -> int:
    digits = _said(program, "--version").removeprefix("v").split(".")[0]
    return int(digits) if digits.isdigit() else 0


class VersionManager(NamedTuple):
    """A folder in which a version manager installs: `folder/<name>` × `depth` is one installation's prefix."""

    folder: Path
    depth: int
    parts: tuple[str, ...] = _PARTS


def _managers(env: Mapping[str, str]) -> Iterator[VersionManager]:
    """Yield the version managers that this user may have, by their documented folders."""
    home = Path(env.get("HOME") or "/nonexistent")
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")

    def place(variable: str, usual: Path) -> Path:
        return Path(env.get(variable) or usual)

    yield VersionManager(place("PYENV_ROOT", home / ".pyenv") / "versions", 1)
    for folder in path_folders(env):
        if folder.endswith("/shims"):
            yield VersionManager(Path(folder).parent / "versions", 1)
    yield VersionManager(place("RBENV_ROOT", home / ".rbenv") / "versions", 1)
    yield VersionManager(place("UV_PYTHON_INSTALL_DIR", data / "uv" / "python"), 1)
    yield VersionManager(place("NVM_DIR", home / ".nvm") / "versions" / "node", 1)
    yield VersionManager(place("FNM_DIR", data / "fnm") / "node-versions", 2)
    yield VersionManager(place("VOLTA_HOME", home / ".volta") / "tools" / "image" / "node", 1)
    yield VersionManager(place("ASDF_DATA_DIR", home / ".asdf") / "installs", 2)
    yield VersionManager(place("MISE_DATA_DIR", data / "mise") / "installs", 2)
    yield VersionManager(place("SDKMAN_DIR", home / ".sdkman") / "candidates", 2)
    yield VersionManager(place("BUN_INSTALL", home / ".bun"), 0, ("bin",))
    yield VersionManager(place("DENO_INSTALL", home / ".deno"), 0, ("bin",))
    for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"):
        yield VersionManager(home / name, 0, _CONDA_PARTS)
        yield VersionManager(home / name / "envs", 1, _CONDA_PARTS)


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
    """Whether a program can run without a grant. Only such programs are ever started outside the sandbox."""
    return _known_parts(os.path.realpath(program), os.environ) is not None


def newest_installed(name: str) -> str:
    """Return the newest installation by a version manager, because a shim would choose by a project's files."""
    found = (
        path
        for manager in _managers(os.environ)
        if manager.folder.is_absolute()
        for path in manager.folder.glob("/".join(("*",) * manager.depth + ("bin", name)))
        if os.access(path, os.X_OK)
    )
    return str(max(found, key=lambda path: _version_key(path.parent.parent.name), default=""))


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,9}", name))


def is_environment(program: Path) -> bool:
    """Whether a Python belongs to a virtual environment and so must not be resolved before it is started."""
    return program.parent.name == "bin" and (program.parent.parent / "pyvenv.cfg").is_file()


def _with_environment(program: Path, reach: Reach, env: Mapping[str, str]) -> Reach:
    """With the packages of the virtual environment that a Python is started from.

    One that the user put on the PATH, or that runs us, counts as chosen; any other needs a grant.
    """
    prefix = program.parent.parent
    if is_system(str(program)) or not program.is_symlink() or not is_environment(program):
        return reach
    if str(program.parent) in path_folders(env) or prefix == Path(sys.prefix):
        return reach._replace(known=(*existing_parts(Path(os.path.realpath(prefix)), PYTHON_PARTS), *reach.known))
    return reach._replace(unknown=(Path(os.path.realpath(prefix)),))


def path_folders(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the absolute folders of the PATH; a relative one would mean something else in each project."""
    return tuple(map(os.path.normpath, filter(None, absolute_entries(env).split(os.pathsep))))


def _known_parts(real: str, env: Mapping[str, str]) -> tuple[Path, ...] | None:
    """Return what a resolved program needs: nothing for the system's, parts of a known installation, else None."""
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
        if folder == "/" or not manager.folder.is_absolute() or not is_inside(real, folder):
            continue
        names = real.removeprefix(f"{folder}/").split("/")
        if len(names) > manager.depth:
            yield Path(folder, *names[: manager.depth]), manager.parts


def _named_interpreter(program: str) -> Path | None:
    """Return the interpreter that the first line of a script names; None if there is none."""
    try:
        words = _shebang(Path(program))
    except OSError:
        return None
    return Path(words[0]) if words and words[0].startswith("/") else None
