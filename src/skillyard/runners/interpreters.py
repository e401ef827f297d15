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
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from skillyard.catalog.files import read_plain
from skillyard.core.errors import InvalidCommand, ProgramMissing
from skillyard.core.messages import Message
from skillyard.core.values import lazy_pattern
from skillyard.sandbox.launch import PYTHON_PARTS, existing_parts, is_inside, is_system

_BY_ENDING: Mapping[str, tuple[str, ...]] = {
    ".py": ("python3",),
    **dict.fromkeys((".sh", ".bash"), ("bash",)),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".ts", ".mts"), ("node",)),
    ".ps1": ("pwsh", "-NoProfile", "-NonInteractive", "-File"),
    ".rb": ("ruby",),
    ".pl": ("perl",),
    ".r": ("Rscript",),
    ".php": ("php",),
}
#: Of these a script gets the machine's own, wherever its first line looks for them.
_INTERPRETERS = frozenset({"sh", "bun", "deno", *(words[0] for words in _BY_ENDING.values())})
#: How those that run JavaScript other than node start a program. The sandbox says what it may do.
_RUNTIMES = {"bun": ("bun",), "deno": ("deno", "run", "--allow-all", "--no-prompt")}
#: What only they have, outside of comments and texts.
_OWN_RUNTIME = lazy_pattern(
    rb"""^(?!\s*(?://|\*))[^\n]*?(?:(?<![\w"'`./])(?:(?P<bun>Bun)|(?P<deno>Deno))\.\w"""
    rb"""|(?:from\s|import\s|require\(|import\()\s*["'](?:(?P<bun_module>bun(?::\w+)?["'])|(?P<deno_module>(?:npm|jsr|https):)))""",
    re.MULTILINE,
)
#: Where to get programs that the usual package managers of a system do not have.
_WHERE = {
    "bun": "https://bun.sh",
    "deno": "https://deno.com",
    "node": "https://nodejs.org",
    "pwsh": "https://aka.ms/powershell",
    "uv": "https://docs.astral.sh/uv",
}
_PYTHONS = frozenset({"python", "python3", f"python3.{sys.version_info.minor}"})
_PYTHON_NAME = lazy_pattern(r"python(?:3|(?P<version>3\.\d+t?))?")
_NEWEST_MINOR = 19
#: By their real names: what a script of theirs calls, it finds on the PATH.
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_CALLED = ("python3", "python", "node")
#: The only kind of name that a project may choose by.
_VERSION_NUMBER = lazy_pattern(r"3(?:\.\d{1,3}){1,2}")
_VERSION_BYTES = 1000
_SHEBANG_BYTES = 256
_SOURCE_BYTES = 262_144
#: How a compiled program begins, on any system.
_COMPILED = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
#: What an installed interpreter is made of. The rest of its prefix (documentation, caches, notes) stays closed.
_PARTS: Final = ("bin", "lib", "lib32", "lib64", "libexec")
#: conda keeps certificates and data files that its libraries open at run time.
_CONDA_PARTS: Final = (*_PARTS, "share", "ssl", "etc")


def interpreter_of(script: Path) -> tuple[str, ...]:
    """Return the command that runs the script: the interpreter and its options; nothing for a compiled program."""
    words = _words_of(script)
    if not words:
        _check_compiled(script)
        return ()
    if words[0] == "node":
        words = (*_javascript_runtime(script), *words[1:])
    return (find_program(words[0]), *words[1:])


def _check_compiled(program: Path) -> None:
    """Raise InvalidCommand for anything but a compiled program of this system."""
    name, head = program.name, read_head(program, 20)
    if not head.startswith(_COMPILED):
        raise InvalidCommand(Message("{name}: neither its first line nor its ending says what runs it", name=name))
    own = read_head(Path(os.path.realpath(sys.executable)), 20)
    if head[:5] != own[:5] or (head.startswith(b"\x7fELF") and head[18:20] != own[18:20]):
        raise InvalidCommand(Message("{name} was compiled for another system or processor", name=name))
    if not os.access(program, os.X_OK):
        raise InvalidCommand(Message("{name} is a compiled program that nobody may run: chmod +x it", name=name))


def _javascript_runtime(script: Path) -> tuple[str, ...]:
    """Return what runs a script for node: bun or deno where it uses what only they have, else what knows its types."""
    if own := _OWN_RUNTIME.search(read_head(script, _SOURCE_BYTES)):
        return _RUNTIMES["bun" if own["bun"] or own["bun_module"] else "deno"]
    if script.suffix.lower() not in {".ts", ".mts"}:
        return ("node",)
    version = node_version(find_on_path("node") or "")
    if version >= (23, 6) or (22, 18) <= version < (23,):
        return ("node",)
    if version >= (22, 6):
        return ("node", "--experimental-strip-types")
    for name, words in _RUNTIMES.items():
        if find_on_path(name):
            return words
    told = Message("{name}: TypeScript needs node 22.6 or newer, bun or deno", name=script.name)
    named = _shebang(script)
    raise _missing(next((name for name in _RUNTIMES if name in named), "node"), told)


def _missing(program: str, told: Message | None = None) -> ProgramMissing:
    where = f"from {_WHERE[program]}" if program in _WHERE else Message("with the package manager of this system")
    return ProgramMissing(told or Message("no program named {name!r} on this machine", name=program), program, where)


def is_python(script: Path) -> bool:
    """Whether Python runs the script, by its first line or its ending."""
    words = _words_of(script)
    return bool(words) and runs_python(words[0])


def is_javascript(script: Path) -> bool:
    """Whether node or bun runs the script, which find packages the same way."""
    words = _words_of(script)
    return bool(words) and Path(words[0]).name in {"node", "bun"}


def runs_python(program: str) -> bool:
    return _PYTHON_NAME.fullmatch(Path(program).name) is not None


@cache
def version_of(python: str) -> str:
    """Return a version like `3.12`, from the program's real name, else by asking it."""
    named = _PYTHON_NAME.fullmatch(Path(os.path.realpath(python)).name)
    if named and named["version"]:
        return named["version"]
    return ".".join(map(str, full_version_of(python)[:2]))


@cache
def full_version_of(python: str) -> tuple[int, ...]:
    """Return the version with its micro number; empty if the program does not start."""
    return _version_key(_said(python, "-I", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"))


def list_pythons() -> tuple[str, ...]:
    """Return every `python3.N` on the PATH or of a version manager, the newest first."""
    names = [f"python3.{minor}" for minor in range(_NEWEST_MINOR, 7, -1)]
    found = (path for name in names for path in (*map(_chosen_python, _on_path(name)), newest_installed(name)))
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
        raise _missing(name)
    # A system link stays, because some programs (busybox) go by the name they were called; so does an environment's.
    is_kept = found.startswith("/usr/") or is_environment(Path(found))
    return found if is_kept else os.path.realpath(found)


def run_path() -> str:
    """Return the PATH of a run: the user's, with the Python and node that a folder of shims stands for in its place.

    Shims read files outside what a run sees. Without this a script that calls `python` would get the system's, or none.
    """
    return _without_shims(os.environ.get("PATH", os.defpath))


@cache
def _without_shims(path: str) -> str:
    if "/shims" not in path:
        return path
    folders = list[str]()
    for folder in path.split(os.pathsep):
        shims = (f"{folder}/{name}" for name in _CALLED if folder.endswith("/shims"))
        behind = (_behind_shim(shim) for shim in shims if _is_program(shim))
        folders += dict.fromkeys(str(Path(program).parent) for program in behind if program) or [folder]
    return os.pathsep.join(folders)


def _behind_shim(shim: str) -> str:
    name = Path(shim).name
    return _chosen_python(shim) if runs_python(name) else newest_installed(name)


def _parts_called(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return what must be readable for the Python and node that a shell script finds on its PATH."""
    folders = path_folders({"PATH": _without_shims(env.get("PATH", os.defpath))})
    found = (next(filter(_is_program, (f"{folder}/{name}" for folder in folders)), "") for name in _CALLED)
    parts = (reach_of(Path(program), env).known for program in found if program and not is_system(program))
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def _on_path(name: str) -> Iterator[str]:
    """Yield all matches on the PATH, like `shutil.which`, whose import would bring the archive modules."""
    return (path for folder in path_folders() if _is_program(path := f"{folder}/{name}"))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def _words_of(script: Path) -> tuple[str, ...]:
    """Return the interpreter and its options, by the first line of the script, else by its ending; empty if unknown."""
    by_ending = _BY_ENDING.get(script.suffix.lower(), ())
    if by_ending == ("bash",) and not find_on_path("bash"):
        by_ending = ("sh",)
    words = _shebang(script)
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S" and "=" not in word]
    if not words:
        return by_ending
    if words[0] in {"uv", "pipx"} and words[1:2] == ["run"]:
        return ("python3",)  # they would install what the script asks for; that is not for a script to start
    name = Path(words[0]).name
    if runs_python(name) or name in _INTERPRETERS:
        words[0] = name  # of the machine, never of the skill: some are asked for their version, outside the sandbox
    is_there = name in _PYTHONS or find_on_path(words[0]) is not None
    return tuple(words) if is_there or not by_ending else by_ending


def read_head(file: Path, count: int) -> bytes:
    """Return the first bytes of a file. Raise InvalidCommand if it is unreadable, or gone since we looked."""
    try:
        with file.open("rb") as stream:
            return stream.read(count)
    except OSError as error:
        raise InvalidCommand(f"{file}: {error.strerror}") from None


def _shebang(script: Path) -> list[str]:
    """Return the words after `#!` in the first line."""
    first = read_head(script, _SHEBANG_BYTES).split(b"\n", 1)[0]
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
    installed = [path for path in root.glob("versions/*") if path.is_dir()]
    for version in _pyenv_versions(root):
        exact = [path for path in installed if path.name == version]
        inside = [path for path in installed if path.name.startswith(f"{version}.")]  # `3.11` may mean 3.11.9
        found = exact or [path for path in inside if _VERSION_NUMBER.fullmatch(path.name)]
        folder = max(found, key=lambda path: _version_key(path.name), default=None)
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


def _version_lines(file: Path) -> list[str]:
    try:
        text = read_plain(file, _VERSION_BYTES, follow=True).decode("utf-8", "replace")
    except OSError:
        return []
    return [word for line in text.splitlines() for word in line.partition("#")[0].replace(":", " ").split()]


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
def node_version(program: str) -> tuple[int, ...]:
    return (_version_key(_said(program, "--version")) if program else ()) or (0,)


def _managers(env: Mapping[str, str]) -> Iterator[tuple[Path, int, tuple[str, ...]]]:
    """Yield the folders in which the version managers that this user may have install, by their documentation.

    With how many names below a folder are one installation's prefix, and the parts of it that are opened.
    """
    home = Path(env.get("HOME") or "/nonexistent")
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    for folder in path_folders(env):
        if folder.endswith("/shims"):
            yield Path(folder).parent / "versions", 1, _PARTS
    for variable, usual, inside, depth in (
        ("PYENV_ROOT", home / ".pyenv", "versions", 1),
        ("RBENV_ROOT", home / ".rbenv", "versions", 1),
        ("UV_PYTHON_INSTALL_DIR", data / "uv" / "python", "", 1),
        ("NVM_DIR", home / ".nvm", "versions/node", 1),
        ("FNM_DIR", data / "fnm", "node-versions", 2),
        ("VOLTA_HOME", home / ".volta", "tools/image/node", 1),
        ("ASDF_DATA_DIR", home / ".asdf", "installs", 2),
        ("MISE_DATA_DIR", data / "mise", "installs", 2),
        ("SDKMAN_DIR", home / ".sdkman", "candidates", 2),
    ):
        yield Path(env.get(variable) or usual, inside), depth, _PARTS
    yield Path(env.get("BUN_INSTALL") or home / ".bun"), 0, ("bin",)
    yield Path(env.get("DENO_INSTALL") or home / ".deno"), 0, ("bin",)
    for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"):
        yield home / name, 0, _CONDA_PARTS
        yield home / name / "envs", 1, _CONDA_PARTS


class Reach(NamedTuple):
    """What a program needs to start beyond the system, the skill and the project."""

    #: Parts of interpreters that we know: opened without a grant.
    known: tuple[Path, ...] = ()
    #: Everything else, by its resolved path: opened only where a person granted to read it.
    unknown: tuple[Path, ...] = ()


def reach_of(program: Path, env: Mapping[str, str] = os.environ) -> Reach:
    """What must be readable for this program to start. `program` is absolute."""
    real = Path(os.path.realpath(program))
    known = _known_parts(str(real), env)
    if known == () and real.name in _SHELLS:
        return Reach(_parts_called(env))
    if known is None:
        words = list[str]()
        with suppress(InvalidCommand):
            words = _shebang(real)
        if not words or not words[0].startswith("/"):
            return Reach(unknown=(real,))
        named = Path(words[0])  # the interpreter that the first line of a script names
        behind = _known_parts(os.path.realpath(named), env)
        if behind is None:
            return Reach(unknown=(real, Path(os.path.realpath(named))))
        return Reach(behind, (real, *((named.parent.parent,) if is_environment(named) else ())))
    if is_system(str(program)) or not program.is_symlink() or not is_environment(program):
        return Reach(known)
    # A virtual environment that the user put on the PATH, or that runs us, counts as chosen; any other needs a grant.
    prefix = Path(os.path.realpath(program.parent.parent))
    if str(program.parent) in path_folders(env) or program.parent.parent == Path(sys.prefix):
        return Reach((*existing_parts(prefix, PYTHON_PARTS), *known))
    return Reach(known, (prefix,))


def is_known(program: str) -> bool:
    """Whether a program can run without a grant. Only such programs are ever started outside the sandbox."""
    return _known_parts(os.path.realpath(program), os.environ) is not None


def newest_installed(name: str) -> str:
    """Return the newest installation by a version manager, because a shim would choose by a project's files."""
    managers = ((folder, depth) for folder, depth, _ in _managers(os.environ) if folder.is_absolute())
    paths = (path for folder, depth in managers for path in folder.glob("*/" * depth + f"bin/{name}"))
    found = (path for path in paths if os.access(path, os.X_OK))
    return str(max(found, key=lambda path: _version_key(path.parent.parent.name), default=""))


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,9}", name))


def is_environment(program: Path) -> bool:
    """Whether a Python belongs to a virtual environment and so must not be resolved before it is started."""
    return program.parent.name == "bin" and (program.parent.parent / "pyvenv.cfg").is_file()


def path_folders(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the absolute folders of the PATH; a relative one would mean something else in each project."""
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    return tuple(os.path.normpath(folder) for folder in folders if folder.startswith("/"))


def _known_parts(real: str, env: Mapping[str, str]) -> tuple[Path, ...] | None:
    """Return what a resolved program needs: nothing for the system's, parts of a known installation, else None."""
    if is_system(real):
        return ()
    own = dict.fromkeys(map(os.path.realpath, (sys.base_prefix, sys.base_exec_prefix, sys.prefix)))
    prefixes: list[tuple[Path, tuple[str, ...]]]
    prefixes = [(Path(prefix), PYTHON_PARTS) for prefix in own if is_inside(real, prefix)]
    for folder, depth, names in _managers(env):
        place = os.path.realpath(folder)
        below = real.removeprefix(f"{place}/").split("/")
        if folder.is_absolute() and place != "/" and is_inside(real, place) and len(below) > depth:
            prefixes.append((Path(place, *below[:depth]), names))
    found = (existing_parts(prefix, names) for prefix, names in prefixes)
    # The program must lie in what is opened: `~/.pyenv/versions/x/notes/run` is no interpreter.
    return next((parts for parts in found if any(is_inside(real, str(part)) for part in parts)), None)
