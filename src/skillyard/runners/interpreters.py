"""Which program runs a script: by its first line, else by its ending; always by its real path.

A shim (pyenv, asdf) costs more than the interpreter it starts, so it is asked once who it stands for.
"""

import os
import re
import sys
from functools import cache
from pathlib import Path

from skillyard.catalog.plainfile import read_plain
from skillyard.core.errors import InvalidCommand

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
_VERSION_BYTES = 1000
_SHEBANG_BYTES = 256
#: From this version on, node runs TypeScript as it is.
_NODE_WITH_TYPES = 22


def interpreter_of(script: Path) -> tuple[str, ...]:
    """The words that go before the script."""
    words = _shebang(script) or _by_ending(script)
    if not words:
        raise InvalidCommand(f"{script.name}: neither its first line nor its ending says what runs it")
    program = find_program(words[0])
    if script.suffix in {".ts", ".mts"} and _node_version(program) < _NODE_WITH_TYPES:
        raise InvalidCommand(f"{script.name}: TypeScript needs node {_NODE_WITH_TYPES} or newer")
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
    found = (path for name in names if (path := find_on_path(name)))
    reals = ((_of_pyenv(path) or _executable(path)) if "/shims/" in path else os.path.realpath(path) for path in found)
    return tuple(dict.fromkeys(real for real in reals if real))


def find_on_path(name: str) -> str | None:
    """What `shutil.which` gives, without the archive modules that it brings."""
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    candidates = (os.path.join(folder or ".", name) if "/" not in name else name for folder in folders)  # noqa: PTH118
    return next((path for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), None)  # noqa: PTH113


def find_program(name: str) -> str:
    """The real path of a program on the PATH; `python` is there even where only `python3` is."""
    if name in _PYTHONS:
        return _python(name)
    found = find_on_path(name)
    if found is None:
        raise InvalidCommand(f"no program named {name!r} on this machine")
    return found


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
    is_known = name in _PYTHONS or find_on_path(words[0]) is not None
    return tuple(words) if is_known else ()


def _by_ending(script: Path) -> tuple[str, ...]:
    name = _BY_ENDING.get(script.suffix.lower())
    return (name,) if name else ()


@cache
def _python(name: str) -> str:
    """The user's python3, past any shim; ours where there is none."""
    for candidate in (name, "python3", "python"):
        found = find_on_path(candidate)
        if found and "/shims/" not in found:
            return os.path.realpath(found) if not _in_environment(found) else found
        if found and (real := _of_pyenv(found) or _executable(found)):
            return real
    return sys.executable


def _in_environment(program: str) -> bool:
    """A virtual environment's python must be started by its own name, or it forgets its packages."""
    return (Path(program).parent.parent / "pyvenv.cfg").is_file()


def _of_pyenv(shim: str) -> str:
    """What pyenv's shim would start, by the same rule and without its hundred milliseconds; nothing where the shim is
    another tool's, or the rule needs more than a look at files."""
    root, name = Path(shim).parent.parent, Path(shim).name
    for version in _pyenv_version(root).replace(":", " ").split():
        folder = root / "versions" / version
        if not _VERSION_NAME.fullmatch(version) or not folder.is_dir():
            return ""
        if os.access(program := folder / "bin" / name, os.X_OK):
            return str(program)
    return ""


def _pyenv_version(root: Path) -> str:
    """Of the shell, of the nearest folder that says one, or of the user."""
    if said := os.environ.get("PYENV_VERSION"):
        return said
    here = Path(os.environ.get("PYENV_DIR") or Path.cwd())
    for file in (*(folder / ".python-version" for folder in (here, *here.parents)), root / "version"):
        try:
            return read_plain(file, _VERSION_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
    return ""


def _executable(shim: str) -> str:
    answer = _ask(shim, "import sys; print(sys.executable)")
    return answer if Path(answer).is_file() else ""


def _ask(python: str, code: str) -> str:
    asked = [python, "-I", "-c", code]
    import subprocess  # noqa: PLC0415  (only a shim has to be asked)

    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def _node_version(program: str) -> int:
    import subprocess  # noqa: PLC0415

    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    digits = done.stdout.strip().removeprefix("v").split(".")[0]
    return int(digits) if digits.isdigit() else 0
