"""Environments: the packages of a skill's programs, one folder for each set of them.

They stand beside our own home, never in it: that one is invisible to whatever runs. An environment counts once its
record is written, which happens last; one builder at a time holds the lock of a digest, and the kernel takes it away
when the builder dies.

Where packages come from is the user's own settings of pip and uv, handed into the sandbox one by one, because people
behind a mirror need theirs: only variables that say where and how to fetch, and only the files that these name.

Covered: installing happens in the sandbox, with the network and the user's index settings but nothing else of theirs;
wheels only, and npm without scripts, so nothing of a package is run; a killed builder leaves nothing that counts.
Not covered: what the packages do once a skill imports them; that is for the sandbox of the run.
"""

import configparser
import fcntl
import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from skillyard.core.errors import EnvironmentFailed, InvalidArgs, PythonMissing
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.runners.interpreters import (
    find_program,
    full_version_of,
    list_pythons,
    node_version,
    path_folders,
    reach_of,
    read_head,
)
from skillyard.runners.kind import QUOTED_CHARACTERS, cannot_start
from skillyard.runners.requirements import NPM, PIP, Requirements
from skillyard.runners.specifiers import allows
from skillyard.sandbox.launch import PYTHON_PARTS, Exit, Launch, Policy, Sandbox, existing_parts

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

#: By their use: the names of variables and settings that say where packages come from, and how they are fetched.
_NAMES: Final[dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("installer_settings.toml").read_text("utf-8")
)
_PIP_SYSTEM = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))

#: Settings of npm about where packages come from.
_NPM_SETTING = re.compile(r"registry|proxy|cafile|^npm_config_ca$|strict_ssl|fetch_|auth|maxsockets")

Progress = Callable[[str], None]


class Indexes(NamedTuple):
    """Where an installer finds packages."""

    variables: Mapping[str, str]
    #: What the installer may read, each without a symlink on the way.
    files: tuple[Path, ...]
    #: The user's uv; empty where there is none, or where only pip knows where packages come from.
    uv: str = ""


class Environment(NamedTuple):
    """The record of a built environment."""

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
    """Return the folder of all environments."""
    real = own_home.resolve()
    return real.with_name(f"{real.name}-envs")


def find(needs: Requirements, own_home: Path) -> Path | None:
    """Return the environment's folder; None if it was never built or its base interpreter is gone."""
    folder = home_of(own_home) / needs.digest
    is_whole = (folder / "node_modules").is_dir() if needs.installer == NPM else (folder / "bin" / "python").is_file()
    return folder if is_whole and folder.with_suffix(".json").is_file() else None


def readable_parts(needs: Requirements, own_home: Path) -> tuple[Path, ...]:
    """Return what a run may read: the environment, and the Python of its record, whatever a package's files name."""
    folder = home_of(own_home) / needs.digest
    record = folder.with_suffix(".json")
    if not record.is_file():
        return ()
    behind = reach_of(Path(_read(record).interpreter or needs.interpreter)).known
    return (*existing_parts(folder, (*PYTHON_PARTS, "node_modules")), *behind)


def list_built(own_home: Path) -> tuple[Environment, ...]:
    return tuple(map(_read, sorted(home_of(own_home).glob("*.json"))))


def remove(digest: str, own_home: Path) -> Environment:
    """Remove an environment by its digest or the start of it."""
    found = [environment for environment in list_built(own_home) if environment.digest.startswith(digest)]
    if len(found) != 1 or not digest:
        about = {"n": len(found), "digest": digest}
        raise InvalidArgs(Message("{n} environments start with {digest!r}: see `skillyard env list`", **about))
    folder = home_of(own_home) / found[0].digest
    with _locked(folder):
        _discard(folder)
    return found[0]


def build(
    needs: Requirements,
    own_home: Path,
    sandbox: Sandbox,
    progress: Progress = lambda _: None,
    env: Mapping[str, str] = os.environ,
) -> Path:
    """Return the environment's folder, building it if needed. Raise EnvironmentFailed with the reason."""
    folder = home_of(own_home) / needs.digest
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder, progress):
        if find(needs, own_home):
            return folder
        _sweep(folder.parent)
        _discard(folder)
        try:
            record = _Builder(needs, own_home, sandbox, progress, env).build()
        except BaseException:
            _discard(folder)
            raise
        _remove(folder.with_suffix(".work"))
        fresh = folder.with_suffix(".new")
        fresh.write_text(json.dumps(record.as_dict(), ensure_ascii=False), "utf-8")
        fresh.replace(folder.with_suffix(".json"))
    return folder


class _Builder:
    """One build, from an empty folder to a record of what is in it."""

    def __init__(
        self, needs: Requirements, own_home: Path, sandbox: Sandbox, progress: Progress, env: Mapping[str, str]
    ) -> None:
        self._needs, self._sandbox, self._progress = needs, sandbox, progress
        self._own_home, self._folder = own_home.resolve(), home_of(own_home) / needs.digest
        self._work, self._log = self._folder.with_suffix(".work"), self._folder.with_suffix(".log")
        self._ends = time.monotonic() + LIMIT_SECONDS
        self._program = needs.interpreter if needs.installer == NPM else choose_python(needs)
        self._indexes = _find_registry(env) if needs.installer == NPM else find_indexes(env)

    def build(self) -> Environment:
        needs, program, is_node = self._needs, self._program, self._needs.installer == NPM
        for folder in (self._folder, self._work / "tmp"):
            folder.mkdir(parents=True, mode=0o700)
        self._log.unlink(missing_ok=True)
        if not is_node:
            self._do(program, "-I", "-m", "venv", "--without-pip", str(self._folder), network=False)
        ended = self._install() if needs.packages else None
        version = node_version(program) if is_node else full_version_of(program)
        sizes = (Path(parent, name).lstat().st_size for parent, _, names in os.walk(self._folder) for name in names)
        return Environment(
            digest=needs.digest,
            packages=needs.packages,
            python=needs.python,
            version=".".join(map(str, version)),
            interpreter=os.path.realpath(program),
            installer=NPM if is_node else "uv" if self._indexes.uv else PIP,
            sandbox=ended.sandbox if ended else "",
            size_bytes=sum(sizes),
            built=round(time.time(), 3),
        )

    def _install(self) -> Exit:
        program, packages = self._program, self._needs.packages
        self._progress(f"installing {', '.join(packages)}")
        if self._needs.installer == NPM:  # below the environment's node_modules; no script of a package is run
            places = ("--cache", str(self._work / "cache"), "--prefix", str(self._folder))
            safe = ("--ignore-scripts", "--no-save", "--no-package-lock", "--no-audit", "--no-fund")
            silent = ("--no-update-notifier", "--no-progress", "--loglevel=error")
            npm = os.path.realpath(find_program(NPM))
            return self._do(program, npm, "install", *places, *safe, *silent, *packages)
        own = ("--python", str(self._folder / "bin" / "python"))
        wanted = ("--only-binary", ":all:", *packages)
        if self._indexes.uv:
            ended = self._do(self._indexes.uv, "pip", "install", *own, *wanted)
            # By the Python outside: the one inside would start whatever a package puts into a .pth file.
            compiling = (program, "-I", "-m", "compileall", "-q", str(self._folder / "lib"))
            self._do(*compiling, network=False, strict=False)
            return ended
        # The base Python's pip installs into the environment, else one in a venv of its own.
        if self._do(program, "-I", "-c", _HAS_PIP, network=False, strict=False).code != 0:
            self._do(program, "-I", "-m", "venv", str(self._work / "tools"), network=False)
            program = str(self._work / "tools" / "bin" / "python")
        quiet = ("--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-color", "--progress-bar", "off")
        return self._do(program, "-I", "-m", "pip", *own, "install", *quiet, *wanted)

    def _do(self, *argv: str, network: bool = True, strict: bool = True) -> Exit:
        """Run one step in the sandbox. Of the user's variables it gets only those about where packages come from."""
        named = (Path(name).resolve() for name in _NAMED)
        read = dict.fromkeys((*reach_of(Path(self._program)).known, *self._indexes.files, *named))
        own = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
        uv = {"UV_CACHE_DIR": str(self._work / "cache"), "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
        writable, hidden = (self._folder, self._work), (self._own_home,)
        launch = Launch(
            argv=("/bin/sh", "-c", _SHELL, "sh", str(self._work / "tmp"), *argv),
            cwd=self._work,
            env={**self._indexes.variables, **own, **uv},
            limit_seconds=max(self._ends - time.monotonic(), 1.0),
            on_stderr=_Lines(self._progress) if network else None,
            policy=Policy(read=tuple(read), write=writable, hide=hidden, network=network),
        )
        try:
            ended = self._sandbox(launch)
        except OSError as error:
            raise EnvironmentFailed(cannot_start(argv[0], error)) from None
        if strict and (ended.timed_out or ended.code != 0):
            raise self._failure(ended)
        return ended

    def _failure(self, ended: Exit) -> EnvironmentFailed:
        """Return the error, with the installer's output from its first error on, else with its last lines."""
        text = _without_passwords(ended.stderr)
        self._log.write_text(text, "utf-8")
        lines = [line for line in map(_plain, text.splitlines()) if line]
        first = next((at for at, line in enumerate(lines) if line.startswith(("ERROR", "error", "npm error", "×"))), -3)
        told = " ".join(" ".join(lines[first:]).translate(_DECORATION).split())
        reason = told if len(told) <= QUOTED_CHARACTERS else told[: QUOTED_CHARACTERS - 1] + "…"
        if ended.timed_out:
            reason = Message("it took longer than {seconds:g} s", seconds=LIMIT_SECONDS)
        details: dict[str, Json] = {"installer": list(lines[-_TOLD_LINES:]), "exit_code": ended.code}
        reason = reason or Message("exit code {code}", code=ended.code)
        return EnvironmentFailed(reason, details=details, log=str(self._log))


def choose_python(needs: Requirements) -> str:
    """Return the Python that would run the program, else another of this machine that `requires-python` allows."""
    wanted = needs.python
    if allows(wanted, full_version_of(needs.interpreter)):
        return needs.interpreter
    pythons = [*list_pythons()]
    if uv := _find_uv(os.environ):  # only asked for the path of an installed one; it downloads nothing
        asked = [uv, "python", "find", "--no-project", "--no-config", "--offline", "--no-python-downloads", wanted]
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False, cwd="/")
            if done.returncode == 0 and Path(done.stdout.strip()).is_file():
                pythons.append(os.path.realpath(done.stdout.strip()))
    for python in pythons:
        if (version := full_version_of(python)) and allows(wanted, version):
            return python
    versions = {".".join(map(str, full_version_of(each))) for each in (needs.interpreter, *pythons)} - {""}
    about = {"source": needs.source, "wanted": wanted, "have": ", ".join(sorted(versions))}
    raise PythonMissing(Message("{source} needs Python {wanted}; this machine has {have}", **about))


class _Lines:
    """Reports progress line by line."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._rest = progress, b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[-4096:]
        for line in lines:
            if text := _plain(_without_passwords(line)):
                self._progress(text)


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).strip()


def _without_passwords(output: bytes) -> str:
    return re.sub(r"://[^/\s@]+@", "://****@", output.decode("utf-8", "replace"))


@contextmanager
def _locked(folder: Path, progress: Progress = lambda _: None) -> Iterator[None]:
    """Hold the lock of one environment. Its file is never removed, so that all who wait use the same one."""
    file = os.open(folder.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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
    """Remove what killed builders left behind: no record, and nobody holds the lock."""
    for lock in home.glob("*.lock"):
        folder = lock.with_suffix("")
        if folder.exists() or folder.with_suffix(".work").exists():
            with lock.open("rb") as file, suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not folder.with_suffix(".json").is_file():
                    _discard(folder)
    for gone in home.glob(f"*{_GONE}*"):
        shutil.rmtree(gone, ignore_errors=True)


def _discard(folder: Path) -> None:
    """Remove an environment, its record first so that no run uses it any more."""
    folder.with_suffix(".json").unlink(missing_ok=True)
    _remove(folder)
    _remove(folder.with_suffix(".work"))


def _remove(folder: Path) -> None:
    """Rename the folder, then delete it: an installer that is being killed may still write into it."""
    if folder.exists():
        gone = folder.rename(folder.with_name(f"{folder.name}{_GONE}{os.urandom(4).hex()}"))
        shutil.rmtree(gone, ignore_errors=True)


def _read(file: Path) -> Environment:
    """Read a record; unknown fields of another version are ignored."""
    try:
        fields = json.loads(file.read_text("utf-8"))
    except ValueError:
        return Environment(file.stem)
    known = {key: value for key, value in fields.items() if key in Environment._fields}
    return Environment(**{**known, "digest": file.stem, "packages": tuple(known.get("packages", ()))})


def find_indexes(env: Mapping[str, str] = os.environ) -> Indexes:
    """Return where pip and uv find packages, by the user's variables and configuration files."""
    home = Path(env.get("HOME") or "/")
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    named_pip, named_uv = env.get("PIP_CONFIG_FILE"), env.get("UV_CONFIG_FILE")
    # PIP_CONFIG_FILE replaces the file in the home folder; as /dev/null, all of them.
    pip_file = _first_file(named_pip, config / "pip" / "pip.conf", home / ".pip" / "pip.conf")
    uv_file = _first_file(named_uv, config / "uv" / "uv.toml", Path("/etc/uv/uv.toml"))
    system = () if named_pip == os.devnull else tuple(path for path in _PIP_SYSTEM if path.is_file())
    pip_files = (*system, pip_file) if pip_file else system
    passed = (name for use in ("pip", "uv", "proxies", "fetching") for name in _NAMES[use])
    variables = {name: env[name] for name in passed if env.get(name)}
    variables |= {name: value for name, value in env.items() if name.startswith("UV_INDEX_")}
    variables |= {name: os.path.realpath(env[name]) for name in _NAMES["files"] if env.get(name)}
    variables |= {"PIP_CONFIG_FILE": str(pip_file)} if pip_file else {}
    variables |= {"UV_CONFIG_FILE": str(uv_file)} if uv_file else {"UV_NO_CONFIG": "1"}
    places = [variables[name] for name in _NAMES["files"] if name in variables]
    places += [word for name in _NAMES["places"] for word in variables.get(name, "").replace(",", " ").split()]
    places += [word for file in pip_files for word in _pip_places(file)]
    places += _uv_places(uv_file) if uv_file else []
    knows_pip = bool(pip_files) or any(map(env.get, _NAMES["pip"]))
    knows_uv = uv_file is not None or any(map(env.get, _NAMES["uv"]))
    uv = _find_uv(env) if knows_uv or not knows_pip else ""
    own = [path.resolve() for path in (*pip_files, uv_file, Path(uv) if uv else None) if path]
    return Indexes(variables, tuple(dict.fromkeys((*own, *_local_files(places)))), uv)


def _first_file(named: str | None, *usual: Path) -> Path | None:
    return next((path.resolve() for path in ((Path(named),) if named else usual) if path.is_file()), None)


def _find_registry(env: Mapping[str, str]) -> Indexes:
    """Return where npm finds packages, by the user's own settings, and npm itself."""
    variables = {name: env[name] for name in _NAMES["proxies"] if env.get(name)}
    files = (name for name in (*_NAMES["files"], "NODE_EXTRA_CA_CERTS") if env.get(name))
    variables |= {name: os.path.realpath(env[name]) for name in files}
    config = {name: value for name, value in env.items() if name.lower().startswith("npm_config_")}
    variables |= {name: value for name, value in config.items() if _NPM_SETTING.search(name.lower())}
    named = env.get("NPM_CONFIG_USERCONFIG") or env.get("npm_config_userconfig")
    file = _first_file(named, Path(env.get("HOME") or "/", ".npmrc"))
    variables |= {"NPM_CONFIG_USERCONFIG": str(file)} if file else {}
    return Indexes(variables, (*_local_files(variables.values()), *reach_of(Path(find_program(NPM))).known))


def _find_uv(env: Mapping[str, str]) -> str:
    """Return the real path of uv; empty for a shim (pyenv, asdf), which cannot work in the sandbox."""
    found = shutil.which("uv", path=os.pathsep.join(path_folders(env)))
    return os.path.realpath(found) if found and read_head(Path(found), 2) != b"#!" else ""


def _pip_places(file: Path) -> list[str]:
    """Return the addresses and paths in a pip.conf; none if it cannot be parsed, which pip itself reports."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text("utf-8"))
    except (configparser.Error, UnicodeDecodeError, OSError):
        return []
    values = (parser[section].get(name) or "" for section in parser.sections() for name in _NAMES["pip_settings"])
    return " ".join(values).split()


def _uv_places(file: Path) -> list[str]:
    """Return the `find-links` folders of a uv.toml."""
    try:
        fields = tomllib.loads(file.read_text("utf-8"))
    except (ValueError, OSError):
        return []
    tables = (fields, fields.get("pip", {}))
    return [str(link) for table in tables if isinstance(table, dict) for link in table.get("find-links", [])]


def _local_files(texts: Iterable[str]) -> Iterator[Path]:
    """Yield the local paths that texts name; not addresses and missing files."""
    for text in texts:
        path = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
        if path.is_absolute() and path.exists() and (real := path.resolve()) not in {Path("/"), Path("/dev/null")}:
            yield real
