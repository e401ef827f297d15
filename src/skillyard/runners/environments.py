"""Environments: the packages of a skill's Python programs, one folder for each set of them.

They stand beside our own home, never in it: that one is invisible to whatever runs. An environment counts once its
record is written, which happens last; one builder at a time holds the lock of a digest, and the kernel takes it away
when the builder dies.

Covered: installing happens in the sandbox, with the network and the user's index settings but nothing else of theirs;
wheels only, so nothing of a package is run; a builder that is killed leaves nothing that counts.
Not covered: what the packages do once a skill imports them; that is for the sandbox of the run.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import EnvironmentFailed, InvalidArgs, PythonMissing
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.runners.indexes import Indexes, find_indexes
from skillyard.runners.interpreters import full_version_of, list_pythons
from skillyard.runners.process import QUOTED_CHARACTERS
from skillyard.runners.requirements import Requirements
from skillyard.runners.specifiers import allows
from skillyard.runners.toolchains import environment_parts, reach_of
from skillyard.sandbox.launch import Exit, Launch, Sandbox
from skillyard.sandbox.policy import Policy

LIMIT_SECONDS = 600.0
_TOLD_LINES = 8
_GONE = ".gone-"
#: The little tree that uv draws.
_DECORATION = str.maketrans("×╰─▶├│", "      ")
#: stdout joins stderr, where progress is read live; and the temp is ours on disk, since wheels can be large.
_SHELL = 'TMPDIR="$1" && export TMPDIR && shift && exec "$@" >&2'
#: Since 22.3 it can work on another environment than its own.
_HAS_PIP = "import pip; raise SystemExit(tuple(map(int, pip.__version__.split('.')[:2])) < (22, 3))"
#: pip tells the index which system asks, and fails where such a file exists and cannot be read.
_NAMED = ("/etc/debian_version", "/etc/lsb-release")

Progress = Callable[[str], None]


class Environment(NamedTuple):
    """The record of one that is built."""

    digest: str
    packages: tuple[str, ...] = ()
    #: `requires-python`, and the version that it runs on.
    python: str = ""
    version: str = ""
    #: The Python that it was built with, by its real path.
    interpreter: str = ""
    installer: str = ""
    sandbox: str = ""
    size_bytes: int = 0
    built: float = 0.0

    def as_dict(self) -> dict[str, Json]:
        return {**self._asdict(), "packages": list(self.packages)}


def home_of(own_home: Path) -> Path:
    """The folder of all environments."""
    real = own_home.resolve()
    return real.with_name(f"{real.name}-envs")


def python_of(needs: Requirements, own_home: Path) -> Path:
    """Where the environment's Python is, or will be."""
    return home_of(own_home) / needs.digest / "bin" / "python"


def find(needs: Requirements, own_home: Path) -> Path | None:
    """The environment's Python; None where it was never built, or where the Python behind it is gone."""
    python = python_of(needs, own_home)
    return python if _record(home_of(own_home), needs.digest).is_file() and python.is_file() else None


def readable_parts(needs: Requirements, own_home: Path) -> tuple[Path, ...]:
    """What a run in it may read: the environment, and the Python that its record names.

    A package can bring a `pyvenv.cfg` or a `bin/python` of its own: what these say opens nothing.
    """
    home = home_of(own_home)
    record = _record(home, needs.digest)
    if not record.is_file():
        return ()
    behind = reach_of(Path(_read(record).interpreter or needs.interpreter)).known
    return (*environment_parts(home / needs.digest), *behind)


def list_built(own_home: Path) -> tuple[Environment, ...]:
    home = home_of(own_home)
    return tuple(_read(file) for file in sorted(home.glob("*.json"))) if home.is_dir() else ()


def remove(digest: str, own_home: Path) -> Environment:
    """By its digest, or how it starts."""
    found = [environment for environment in list_built(own_home) if environment.digest.startswith(digest)]
    if len(found) != 1 or not digest:
        raise InvalidArgs(
            Message(
                "{count} environments start with {digest!r}; `skillyard env list` shows them",
                count=len(found),
                digest=digest,
            )
        )
    home = home_of(own_home)
    with _locked(home, found[0].digest):
        _discard(home, found[0].digest)
    return found[0]


def build(
    needs: Requirements,
    own_home: Path,
    sandbox: Sandbox,
    progress: Progress = lambda _: None,
    env: Mapping[str, str] = os.environ,
) -> Path:
    """The environment's Python, built now unless somebody else just did. EnvironmentFailed says why not."""
    home = home_of(own_home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(home, needs.digest, progress):
        if found := find(needs, own_home):
            return found
        _sweep(home)
        _discard(home, needs.digest)
        try:
            record = _Builder(needs, own_home, sandbox, progress, find_indexes(env)).build()
        except BaseException:
            _discard(home, needs.digest)
            raise
        _remove(_work(home, needs.digest))
        _write(_record(home, needs.digest), record)
    return python_of(needs, own_home)


class _Builder:
    """One build, from an empty folder to a record of what is in it."""

    def __init__(
        self, needs: Requirements, own_home: Path, sandbox: Sandbox, progress: Progress, indexes: Indexes
    ) -> None:
        self._needs, self._sandbox, self._progress, self._indexes = needs, sandbox, progress, indexes
        self._own_home = own_home.resolve()
        home = home_of(own_home)
        self._folder, self._work = home / needs.digest, _work(home, needs.digest)
        self._log = home / f"{needs.digest}.log"
        self._ends = time.monotonic() + LIMIT_SECONDS
        self._said: list[bytes] = []

    def build(self) -> Environment:
        python = choose_python(self._needs, self._indexes.uv)
        for folder in (self._folder, self._work / "tmp"):
            folder.mkdir(parents=True, mode=0o700)
        self._log.unlink(missing_ok=True)
        self._do(python, (python, "-I", "-m", "venv", "--without-pip", str(self._folder)), network=False)
        ended = self._install(python) if self._needs.packages else None
        return Environment(
            digest=self._needs.digest,
            packages=self._needs.packages,
            python=self._needs.python,
            version=".".join(map(str, full_version_of(python))),
            interpreter=os.path.realpath(python),
            installer="uv" if self._indexes.uv else "pip",
            sandbox=ended.sandbox if ended else "",
            size_bytes=_size(self._folder),
            built=round(time.time(), 3),
        )

    def _install(self, python: str) -> Exit:
        self._progress(f"installing {', '.join(self._needs.packages)}")
        own = str(self._folder / "bin" / "python")
        if self._indexes.uv:
            ended = self._do(python, (self._indexes.uv, "pip", "install", "--python", own, *self._options()))
            # By the Python outside: the one inside would start whatever a package puts into a .pth file.
            compiling = (python, "-I", "-m", "compileall", "-q", str(self._folder / "lib"))
            self._do(python, compiling, network=False, strict=False)
            return ended
        pip = self._pip(python, own)
        quiet = ("--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-color", "--progress-bar", "off")
        return self._do(python, (*pip, "install", *quiet, *self._options()))

    def _options(self) -> tuple[str, ...]:
        return ("--only-binary", ":all:", *self._needs.packages)

    def _pip(self, python: str, own: str) -> tuple[str, ...]:
        """The pip outside, working on the environment; else the one that Python brings along, in a place of its own."""
        outside = (python, "-I", "-m", "pip", "--python", own)
        if self._do(python, (python, "-I", "-c", _HAS_PIP), network=False, strict=False).code == 0:
            return outside
        tools = self._work / "tools"
        self._do(python, (python, "-I", "-m", "venv", str(tools)), network=False)
        return (str(tools / "bin" / "python"), "-I", "-m", "pip", "--python", own)

    def _do(self, python: str, argv: tuple[str, ...], *, network: bool = True, strict: bool = True) -> Exit:
        lines = _Lines(self._progress)
        read = [*reach_of(Path(python)).known, *self._indexes.files, *(Path(name).resolve() for name in _NAMED)]
        if self._indexes.uv:
            read.append(Path(self._indexes.uv))
        launch = Launch(
            argv=("/bin/sh", "-c", _SHELL, "sh", str(self._work / "tmp"), *argv),
            cwd=self._work,
            env=self._environment(),
            limit_seconds=max(self._ends - time.monotonic(), 1.0),
            on_stderr=lines if network else None,
            policy=Policy(
                read=tuple(dict.fromkeys(read)),
                write=(self._folder, self._work),
                hide=(self._own_home,),
                network=network,
            ),
        )
        try:
            ended = self._sandbox(launch)
        except OSError as error:
            raise EnvironmentFailed(
                Message("{argv} cannot be started: {strerror}", argv=argv[0], strerror=error.strerror)
            ) from None
        if strict and (ended.timed_out or ended.code != 0):
            raise self._failure(ended)
        return ended

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's but where packages come from."""
        own = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
        uv = {"UV_CACHE_DIR": str(self._work / "cache"), "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
        return {**self._indexes.variables, **own, **uv}

    def _failure(self, ended: Exit) -> EnvironmentFailed:
        text = _without_passwords(ended.stderr.decode("utf-8", "replace"))
        self._log.write_text(text, "utf-8")
        lines = [line for line in (_plain(line) for line in text.splitlines()) if line]
        reason = _reason(lines) or Message("exit code {code}", code=ended.code)
        if ended.timed_out:
            reason = Message("it took longer than {seconds:g} s", seconds=LIMIT_SECONDS)
        details: dict[str, Json] = {"installer": list(lines[-_TOLD_LINES:]), "exit_code": ended.code}
        return EnvironmentFailed(reason, details=details, log=str(self._log))


def choose_python(needs: Requirements, uv: str = "") -> str:
    """The Python that would run the program, else another one of this machine that `requires-python` takes."""
    if allows(needs.python, full_version_of(needs.interpreter)):
        return needs.interpreter
    candidates = [*list_pythons(), *_of_uv(uv, needs.python)]
    for python in candidates:
        if (version := full_version_of(python)) and allows(needs.python, version):
            return python
    have = sorted({".".join(map(str, full_version_of(python))) for python in (needs.interpreter, *candidates)} - {""})
    raise PythonMissing(
        Message(
            "{source} needs Python {python}; this machine has {have}",
            source=needs.source,
            python=needs.python,
            have=", ".join(have),
        )
    )


def _of_uv(uv: str, specifier: str) -> Iterator[str]:
    """The Python that uv manages for somebody, if one fits; it is asked for a path and fetches nothing."""
    if not uv:
        return
    asked = [uv, "python", "find", "--no-project", "--no-config", "--offline", "--no-python-downloads", specifier]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False, cwd="/")
        if done.returncode == 0 and Path(done.stdout.strip()).is_file():
            yield os.path.realpath(done.stdout.strip())


class _Lines:
    """Tells progress line by line, as pieces come."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._rest = progress, b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[-4096:]
        for line in lines:
            if text := _plain(_without_passwords(line.decode("utf-8", "replace"))):
                self._progress(text)


def _reason(lines: list[str]) -> str:
    """From the first line that speaks of an error, in the words of pip or uv; else the last ones."""
    first = next((at for at, line in enumerate(lines) if line.startswith(("ERROR", "error", "×"))), -3)
    text = " ".join(" ".join(lines[first:]).translate(_DECORATION).split())
    return text if len(text) <= QUOTED_CHARACTERS else text[: QUOTED_CHARACTERS - 1] + "…"


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).strip()


def _without_passwords(text: str) -> str:
    return re.sub(r"://[^/\s@]+@", "://****@", text)


@contextmanager
def _locked(home: Path, digest: str, progress: Progress = lambda _: None) -> Iterator[None]:
    """The lock of one digest. Its file is never removed: whoever waits for it must wait for the same one."""
    file = os.open(home / f"{digest}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build of the same environment")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _sweep(home: Path) -> None:
    """What builders that were killed left behind: no record, and nobody holds the lock."""
    for lock in home.glob("*.lock"):
        digest = lock.stem
        if not (home / digest).exists() and not _work(home, digest).exists():
            continue
        with lock.open("rb") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _record(home, digest).is_file():
                _discard(home, digest)
    for folder in home.glob(f"*{_GONE}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _discard(home: Path, digest: str) -> None:
    """The record first: from then on it counts for nobody."""
    _record(home, digest).unlink(missing_ok=True)
    _remove(home / digest)
    _remove(_work(home, digest))


def _remove(folder: Path) -> None:
    """Out of the way at once; an installer that is just being killed may still write into it."""
    if folder.exists():
        gone = folder.rename(folder.with_name(f"{folder.name}{_GONE}{os.urandom(4).hex()}"))
        shutil.rmtree(gone, ignore_errors=True)


def _record(home: Path, digest: str) -> Path:
    return home / f"{digest}.json"


def _work(home: Path, digest: str) -> Path:
    return home / f"{digest}.work"


def _write(file: Path, record: Environment) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(record.as_dict(), ensure_ascii=False), "utf-8")
    fresh.replace(file)


def _read(file: Path) -> Environment:
    """A record of another version of ours still names what it can."""
    try:
        fields = json.loads(file.read_text("utf-8"))
    except ValueError:
        return Environment(file.stem)
    known = {key: value for key, value in fields.items() if key in Environment._fields}
    return Environment(**{**known, "digest": file.stem, "packages": tuple(known.get("packages", ()))})


def _size(folder: Path) -> int:
    return sum(
        Path(parent, name).lstat().st_size for parent, _, names in os.walk(folder, followlinks=False) for name in names
    )
