"""Which program runs a script: by its first line, else by its ending; always by its real path.

A shim (pyenv, asdf, mise) chooses by files of the folder it is started in, so it is never started: what pyenv's stands
for is read from pyenv's own files, any other is passed over. Of a project's `.python-version` only a plain version
number counts, which can choose among the installed interpreters and nothing else.
"""

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from skillyard.catalog.files import read_plain
from skillyard.core.errors import InvalidCommand
from skillyard.core.messages import Message
from skillyard.runners.toolchains import is_environment, is_known, newest_installed, path_folders

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


def interpreter_of(script: Path) -> tuple[str, ...]:
    """The words that go before the script."""
    words = _shebang(script) or _by_ending(script)
    if not words:
        raise InvalidCommand(
            Message("{name}: neither its first line nor its ending says what runs it", name=script.name)
        )
    program = find_program(words[0])
    if script.suffix in {".ts", ".mts"} and _node_version(program) < _NODE_WITH_TYPES:
        raise InvalidCommand(
            Message(
                "{name}: TypeScript needs node {node_with_types} or newer",
                name=script.name,
                node_with_types=_NODE_WITH_TYPES,
            )
        )
    return (program, *words[1:])


def is_python(script: Path) -> bool:
    """Whether Python runs it, by its first line or its ending."""
    words = _shebang(script) or _by_ending(script)
    return bool(words) and runs_python(words[0])


def runs_python(program: str) -> bool:
    return _PYTHON_NAME.fullmatch(Path(program).name) is not None


@cache
def version_of(python: str) -> str:
    """`3.12`, as its real name says it, else as it says itself."""
    named = _PYTHON_NAME.fullmatch(Path(os.path.realpath(python)).name)
    if named and named["version"]:
        return named["version"]
    return _ask(python, "import sys; print('%d.%d' % sys.version_info[:2])")


@cache
def full_version_of(python: str) -> tuple[int, ...]:
    """Down to the last number; empty where it does not start."""
    answer = _ask(python, "import sys; print('%d.%d.%d' % sys.version_info[:3])")
    return tuple(int(number) for number in answer.split(".")) if answer else ()


def list_pythons() -> tuple[str, ...]:
    """Every Python 3 on the PATH by its own name, the newest first."""
    names = (f"python3.{minor}" for minor in range(_NEWEST_MINOR, 7, -1))
    found = (_chosen_python(path) for name in names for path in _on_path(name))
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if path))


def find_on_path(name: str) -> str | None:
    """The first program of this name; one that needs no grant comes before one that does. A path stands for itself."""
    if "/" in name:
        return name if name.startswith("/") and _is_program(name) else None
    found = tuple(_on_path(name))
    known = (path for path in found if is_known(path))
    shims = (installed for path in found if "/shims/" in path and (installed := newest_installed(name)))
    return next(chain(known, shims, found[:1]), None)


def find_program(name: str) -> str:
    """The path to start a program by; `python` is there even where only `python3` is. A path must be absolute."""
    if "/" not in name and runs_python(name) and (chosen := _python(name)):
        return chosen
    found = find_on_path(name)
    if found is None:
        raise InvalidCommand(Message("no program named {name!r} on this machine", name=name))
    # A system link stays, because some programs (busybox) go by the name they were called; so does an environment's.
    is_kept = found.startswith("/usr/") or is_environment(Path(found))
    return found if is_kept else os.path.realpath(found)


def _on_path(name: str) -> Iterator[str]:
    """What `shutil.which` gives, all of it, without the archive modules that it brings."""
    return (path for folder in path_folders() if _is_program(path := f"{folder}/{name}"))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def _shebang(script: Path) -> tuple[str, ...]:
    try:
        with script.open("rb") as stream:
            first = stream.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError as error:
        raise InvalidCommand(f"{script}: {error.strerror}") from None
    if not first.startswith(b"#!"):
        return ()
    words = first[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S" and "=" not in word]
    if not words:
        return ()
    if words[0] in {"uv", "pipx"} and words[1:2] == ["run"]:
        return ("python3",)  # they would install what the script asks for; that is not for a script to start
    name = Path(words[0]).name
    if runs_python(name) or name in _BY_ENDING.values():
        words[0] = name  # of the machine, never of the skill: some are asked for their version, outside the sandbox
    is_there = name in _PYTHONS or find_on_path(words[0]) is not None
    return tuple(words) if is_there else ()


def _by_ending(script: Path) -> tuple[str, ...]:
    name = _BY_ENDING.get(script.suffix.lower())
    return (name,) if name else ()


@cache
def _python(name: str) -> str:
    """The user's Python of this name, past any shim; for a plain `python3` ours where there is none that we know."""
    is_plain = name in _PYTHONS
    names = dict.fromkeys((name, "python3", "python")) if is_plain else (name,)
    candidates = (path for each in names for path in _on_path(each))
    return next((chosen for path in candidates if (chosen := _chosen_python(path))), sys.executable if is_plain else "")


def _chosen_python(path: str) -> str:
    """The interpreter that a Python on the PATH stands for, if it is one that we know; else nothing."""
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
    """Of the shell, of the nearest folder that says one, then of the user."""
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
    """By its own name, else the newest that it is the start of: `3.11` means 3.11.9."""
    if (versions / name).is_dir():
        return versions / name
    if not _VERSION_NUMBER.fullmatch(name) or not versions.is_dir():
        return None
    found = [path for path in versions.iterdir() if path.name.startswith(f"{name}.") and _numbers(path.name)]
    return max(found, key=lambda path: _numbers(path.name), default=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split("."))) if _VERSION_NUMBER.fullmatch(version) else ()


def _ask(python: str, code: str) -> str:
    """What one that we know says of itself, away from every project."""
    return _said([os.path.realpath(python), "-I", "-c", code]) if is_known(python) else ""


def _said(argv: list[str]) -> str:
    import subprocess  # noqa: PLC0415  (few runs ask)

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
    digits = _said([program, "--version"]).removeprefix("v").split(".")[0] if is_known(program) else ""
    return int(digits) if digits.isdigit() else 0
