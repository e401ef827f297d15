"""Environments: the packages of a skill's Python programs, one folder for each set of them.

They stand beside our own home, never in it: that one is invisible to whatever runs. An environment counts once its
record is written, which happens last; one builder at a time holds the lock of a digest, and the kernel takes it away
when the builder dies.

Where packages come from is the user's own settings of pip and uv, handed into the sandbox one by one, because people
behind a mirror need theirs: only variables that say where and how to fetch, and only the files that these name.

Covered: installing happens in the sandbox, with the network and the user's index settings but nothing else of theirs;
wheels only, so nothing of a package is run; a builder that is killed leaves nothing that counts.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import EnvironmentFailed, InvalidArgs, PythonMissing
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.runners.interpreters import full_version_of, list_pythons, reach_of
from skillyard.runners.kind import QUOTED_CHARACTERS, cannot_start
from skillyard.runners.requirements import Requirements
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

#: Variables of ours to pass on: where packages come from, and how they are fetched.
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONFIG_FILE")
_UV = (
    *("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"),
    *("UV_CONFIG_FILE", "UV_OFFLINE"),
)
_PASSED = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_RETRIES", "PIP_PRE"),
    *("UV_INDEX_STRATEGY", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT"),
    *("UV_PRERELEASE", "UV_KEYRING_PROVIDER", *_PIP, *_UV),
)
#: Variables whose value is a file or a folder.
_FILES = (
    *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "UV_CONFIG_FILE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
#: Variables and settings of pip whose value may be a local folder among addresses.
_PLACES = ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX_URL", "UV_INDEX")
_PIP_SYSTEM = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
_SETTINGS = ("find-links", "index-url", "extra-index-url", "cert", "client-cert")

Progress = Callable[[str], None]


class Indexes(NamedTuple):
    variables: Mapping[str, str]
    #: What the installer may read, each without a symlink on the way.
    files: tuple[Path, ...]
    #: The user's uv; empty where there is none, or where only pip knows where packages come from.
    uv: str


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


def python_of(needs: Requirements, own_home: Path) -> Path:
    """Return the path of the environment's Python, built or not."""
    return home_of(own_home) / needs.digest / "bin" / "python"


def find(needs: Requirements, own_home: Path) -> Path | None:
    """Return the environment's Python; None if it was never built or its base interpreter is gone."""
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
    return (*existing_parts(home / needs.digest, PYTHON_PARTS), *behind)


def list_built(own_home: Path) -> tuple[Environment, ...]:
    home = home_of(own_home)
    return tuple(_read(file) for file in sorted(home.glob("*.json"))) if home.is_dir() else ()


def remove(digest: str, own_home: Path) -> Environment:
    """Remove an environment by its digest or the start of it."""
    found = [environment for environment in list_built(own_home) if environment.digest.startswith(digest)]
    if len(found) != 1 or not digest:
        told = Message("{n} environments start with {digest!r}: see `skillyard env list`", n=len(found), digest=digest)
        raise InvalidArgs(told)
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
    """Return the environment's Python, building it if needed. Raise EnvironmentFailed with the reason."""
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
        fresh = _record(home, needs.digest).with_suffix(".new")
        fresh.write_text(json.dumps(record.as_dict(), ensure_ascii=False), "utf-8")
        fresh.replace(_record(home, needs.digest))
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
        python, packages = choose_python(self._needs, self._indexes.uv), self._needs.packages
        for folder in (self._folder, self._work / "tmp"):
            folder.mkdir(parents=True, mode=0o700)
        self._log.unlink(missing_ok=True)
        self._do(python, (python, "-I", "-m", "venv", "--without-pip", str(self._folder)), network=False)
        ended = self._install(python) if packages else None
        sizes = (Path(parent, name).lstat().st_size for parent, _, names in os.walk(self._folder) for name in names)
        return Environment(
            digest=self._needs.digest,
            packages=packages,
            python=self._needs.python,
            version=".".join(map(str, full_version_of(python))),
            interpreter=os.path.realpath(python),
            installer="uv" if self._indexes.uv else "pip",
            sandbox=ended.sandbox if ended else "",
            size_bytes=sum(sizes),
            built=round(time.time(), 3),
        )

    def _install(self, python: str) -> Exit:
        packages = self._needs.packages
        self._progress(f"installing {', '.join(packages)}")
        own = ("--python", str(self._folder / "bin" / "python"))
        wanted = ("--only-binary", ":all:", *packages)
        if self._indexes.uv:
            ended = self._do(python, (self._indexes.uv, "pip", "install", *own, *wanted))
            # By the Python outside: the one inside would start whatever a package puts into a .pth file.
            compiling = (python, "-I", "-m", "compileall", "-q", str(self._folder / "lib"))
            self._do(python, compiling, network=False, strict=False)
            return ended
        program = python  # whose pip installs into the environment: the base Python, else one in a venv of its own
        if self._do(python, (python, "-I", "-c", _HAS_PIP), network=False, strict=False).code != 0:
            tools = self._work / "tools"
            self._do(python, (python, "-I", "-m", "venv", str(tools)), network=False)
            program = str(tools / "bin" / "python")
        quiet = ("--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-color", "--progress-bar", "off")
        return self._do(python, (program, "-I", "-m", "pip", *own, "install", *quiet, *wanted))

    def _do(self, python: str, argv: tuple[str, ...], *, network: bool = True, strict: bool = True) -> Exit:
        """Run one step in the sandbox. Of the user's variables it gets only those about where packages come from."""
        read = [*reach_of(Path(python)).known, *self._indexes.files, *(Path(name).resolve() for name in _NAMED)]
        if self._indexes.uv:
            read.append(Path(self._indexes.uv))
        own = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
        uv = {"UV_CACHE_DIR": str(self._work / "cache"), "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
        writable, hidden = (self._folder, self._work), (self._own_home,)
        launch = Launch(
            argv=("/bin/sh", "-c", _SHELL, "sh", str(self._work / "tmp"), *argv),
            cwd=self._work,
            env={**self._indexes.variables, **own, **uv},
            limit_seconds=max(self._ends - time.monotonic(), 1.0),
            on_stderr=_Lines(self._progress) if network else None,
            policy=Policy(read=tuple(dict.fromkeys(read)), write=writable, hide=hidden, network=network),
        )
        try:
            ended = self._sandbox(launch)
        except OSError as error:
            raise EnvironmentFailed(cannot_start(argv[0], error)) from None
        if strict and (ended.timed_out or ended.code != 0):
            raise self._failure(ended)
        return ended

    def _failure(self, ended: Exit) -> EnvironmentFailed:
        text = _without_passwords(ended.stderr.decode("utf-8", "replace"))
        self._log.write_text(text, "utf-8")
        lines = [line for line in map(_plain, text.splitlines()) if line]
        reason = _reason(lines) or Message("exit code {code}", code=ended.code)
        if ended.timed_out:
            reason = Message("it took longer than {seconds:g} s", seconds=LIMIT_SECONDS)
        details: dict[str, Json] = {"installer": list(lines[-_TOLD_LINES:]), "exit_code": ended.code}
        return EnvironmentFailed(reason, details=details, log=str(self._log))


def choose_python(needs: Requirements, uv: str = "") -> str:
    """Return the Python that would run the program, else another of this machine that `requires-python` allows."""
    wanted, pythons = needs.python, [needs.interpreter]
    if allows(wanted, full_version_of(needs.interpreter)):
        return needs.interpreter
    pythons += list_pythons()
    if uv:  # only asked for the path of an installed one; it downloads nothing
        asked = [uv, "python", "find", "--no-project", "--no-config", "--offline", "--no-python-downloads", wanted]
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False, cwd="/")
            if done.returncode == 0 and Path(done.stdout.strip()).is_file():
                pythons.append(os.path.realpath(done.stdout.strip()))
    for python in pythons[1:]:
        if (version := full_version_of(python)) and allows(wanted, version):
            return python
    have = ", ".join(sorted({".".join(map(str, full_version_of(python))) for python in pythons} - {""}))
    source = needs.source
    told = Message("{source} needs Python {wanted}; this machine has {have}", source=source, wanted=wanted, have=have)
    raise PythonMissing(told)


class _Lines:
    """Reports progress line by line."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._rest = progress, b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[-4096:]
        for line in lines:
            if text := _plain(_without_passwords(line.decode("utf-8", "replace"))):
                self._progress(text)


def _reason(lines: list[str]) -> str:
    """Return the installer's output from the first error on, else its last lines."""
    first = next((at for at, line in enumerate(lines) if line.startswith(("ERROR", "error", "×"))), -3)
    text = " ".join(" ".join(lines[first:]).translate(_DECORATION).split())
    return text if len(text) <= QUOTED_CHARACTERS else text[: QUOTED_CHARACTERS - 1] + "…"


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).strip()


def _without_passwords(text: str) -> str:
    return re.sub(r"://[^/\s@]+@", "://****@", text)


@contextmanager
def _locked(home: Path, digest: str, progress: Progress = lambda _: None) -> Iterator[None]:
    """Hold the lock of one digest. Its file is never removed, so that all who wait use the same one."""
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
    """Remove what killed builders left behind: no record, and nobody holds the lock."""
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
    """Remove an environment, its record first so that no run uses it any more."""
    _record(home, digest).unlink(missing_ok=True)
    _remove(home / digest)
    _remove(_work(home, digest))


def _remove(folder: Path) -> None:
    """Rename the folder, then delete it: an installer that is being killed may still write into it."""
    if folder.exists():
        gone = folder.rename(folder.with_name(f"{folder.name}{_GONE}{os.urandom(4).hex()}"))
        shutil.rmtree(gone, ignore_errors=True)


def _record(home: Path, digest: str) -> Path:
    return home / f"{digest}.json"


def _work(home: Path, digest: str) -> Path:
    return home / f"{digest}.work"


def _read(file: Path) -> Environment:
    """Read a record; unknown fields of another version are ignored."""
    try:
        fields = json.loads(file.read_text("utf-8"))
    except ValueError:
        return Environment(file.stem)
    known = {key: value for key, value in fields.items() if key in Environment._fields}
    return Environment(**{**known, "digest": file.stem, "packages": tuple(known.get("packages", ()))})


def find_indexes(env: Mapping[str, str] = os.environ) -> Indexes:
    variables = {name: env[name] for name in _PASSED if env.get(name)}
    variables |= {name: value for name, value in env.items() if name.startswith("UV_INDEX_")}
    variables |= {name: os.path.realpath(env[name]) for name in _FILES if env.get(name)}
    pip_files, uv_file = _pip_files(env), _uv_file(env)
    if env.get("PIP_CONFIG_FILE") != os.devnull and pip_files and pip_files[-1] not in _PIP_SYSTEM:
        variables["PIP_CONFIG_FILE"] = str(pip_files[-1])
    variables |= {"UV_CONFIG_FILE": str(uv_file)} if uv_file else {"UV_NO_CONFIG": "1"}
    knows_pip = bool(pip_files) or any(env.get(name) for name in _PIP if name != "PIP_CONFIG_FILE")
    knows_uv = uv_file is not None or any(env.get(name) for name in _UV)
    return Indexes(
        variables=variables,
        files=tuple(dict.fromkeys(_readable(variables, pip_files, uv_file))),
        uv=_find_uv(env) if knows_uv or not knows_pip else "",
    )


def _find_uv(env: Mapping[str, str]) -> str:
    """Return the real path of uv; empty for a shim (pyenv, asdf), which cannot work in the sandbox."""
    found = shutil.which("uv", path=absolute_entries(env))
    if not found:
        return ""
    with Path(found).open("rb") as file:
        return "" if file.read(2) == b"#!" else os.path.realpath(found)


def _pip_files(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return pip's configuration files, the user's own last. PIP_CONFIG_FILE replaces the one in the home folder."""
    named = env.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return ()
    usual = (_config_home(env) / "pip" / "pip.conf", Path(env.get("HOME") or "/") / ".pip" / "pip.conf")
    own = [path.resolve() for path in ((Path(named),) if named else usual) if path.is_file()]
    return (*(path for path in _PIP_SYSTEM if path.is_file()), *own[:1])


def _uv_file(env: Mapping[str, str]) -> Path | None:
    named = env.get("UV_CONFIG_FILE")
    usual = (_config_home(env) / "uv" / "uv.toml", Path("/etc/uv/uv.toml"))
    return next((path.resolve() for path in ((Path(named),) if named else usual) if path.is_file()), None)


def _config_home(env: Mapping[str, str]) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or "/", ".config"))


def _readable(variables: Mapping[str, str], pip_files: tuple[Path, ...], uv_file: Path | None) -> Iterator[Path]:
    yield from (path.resolve() for path in pip_files)
    named = [variables[name] for name in _FILES if name in variables]
    if uv_file:
        yield uv_file
        named += _links_of(uv_file)
    for name in _PLACES:
        named += variables.get(name, "").replace(",", " ").split()
    for file in pip_files:
        named += _settings_of(file)
    yield from (place for text in named if (place := _local(text)))


def _settings_of(file: Path) -> list[str]:
    """Return the addresses and paths in a pip.conf; none if it cannot be parsed, which pip itself reports."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text("utf-8"))
    except (configparser.Error, UnicodeDecodeError, OSError):
        return []
    values = [parser[section].get(name) or "" for section in parser.sections() for name in _SETTINGS]
    return [word for value in values for word in value.split()]


def _links_of(file: Path) -> list[str]:
    """Return the `find-links` folders of a uv.toml."""
    try:
        fields = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):
        return []
    tables = (fields, fields.get("pip", {}))
    return [str(link) for table in tables if isinstance(table, dict) for link in table.get("find-links", [])]


def _local(text: str) -> Path | None:
    """Return the local path that a text names; None for an address or a missing file."""
    path = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    if not path.is_absolute() or not path.exists():
        return None
    real = path.resolve()
    return None if real in {Path("/"), Path("/dev/null")} else real
