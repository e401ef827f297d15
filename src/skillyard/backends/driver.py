"""What every driver offers, and how a backend's program is found on this machine.

Finding a program is cheap; asking it for its version is not (opencode takes seconds), so that is a step of its own.
"""

import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple, Protocol

from skillyard.core.backend_events import Ask, Event, refuse
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import AgentNotInstalled, AgentTooOld
from skillyard.core.messages import Message

_VERSION_SECONDS: Final = 60.0
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")
_CPU: Final = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
#: How npm names this machine.
NPM_PLATFORM: Final = f"{platform.system().lower()}-{_CPU}"


class Start(NamedTuple):
    """Options for the whole life of a backend process. `session` is the backend's own, to resume; None for a new one.

    `allowed_tools` need no permission: names as the backend's requests have them; claude also takes its patterns.
    """

    folder: Path
    session: str | None = None
    model: str | None = None
    allowed_tools: tuple[str, ...] = ()
    #: How often it may call its model; only for a driver that `bounds_turns`.
    max_turns: int | None = None


class Turn(NamedTuple):
    """One task. A backend that sends nothing for `silent_seconds`, while none of its tools runs, hangs."""

    text: str
    silent_seconds: float = 300.0
    limit_seconds: float = 3600.0


class Running(Protocol):
    """A backend process in one folder and one session: one turn at a time."""

    #: The backend's own session, once it is known.
    session: str | None

    def turn(self, turn: Turn, ask: Ask = refuse) -> Iterator[Event]:
        """Yield STARTED first and DONE last. Raise BackendFailed, Timeout or AgentTooOld.

        `ask` is called between two events, in the thread that iterates. An error, and a caller that stops iterating
        early, ends the process.
        """

    def hello(self, limit_seconds: float) -> None:
        """Do only the handshake, without calling a model. Raise the same errors as `turn`."""

    def alive(self) -> bool:
        """Whether another turn is possible: the process runs and nobody closed it. Thread-safe."""

    def cancel(self) -> None:
        """End the turn with DONE (`cancelled`), and the process with it. Return at once. Thread-safe."""

    def close(self) -> None:
        """End the whole process tree. Thread-safe, and may be called again."""


class Driver(Protocol):
    """Knows one backend: where its program is, how it is started and what its messages mean. Never prints."""

    name: str
    #: Whether the backend accepts a limit on its calls to the model.
    bounds_turns: bool

    def locate(self) -> Path:
        """Return the program without starting it. Raise AgentNotInstalled, with the command that installs it."""

    def find(self) -> "InstalledProgram":
        """Return the program with its version, which starts it. Raise AgentNotInstalled or AgentTooOld."""

    def start(self, start: Start) -> Running:
        """Raise AgentNotInstalled, TooDeep or BackendFailed."""


class BackendProgram(NamedTuple):
    """A backend's program. `native` is the glob of its binary below a `node_modules`, for this machine."""

    backend: str
    command: str
    #: The environment variable that names another program than the one on the PATH.
    variable: str
    package: str
    native: str
    #: The oldest version that speaks our protocol.
    minimum: str

    @property
    def install(self) -> str:
        return f"npm install -g {self.package}"


class InstalledProgram(NamedTuple):
    program: Path
    version: str


class VisibleSkill(NamedTuple):
    """One skill that a backend lists. Claude Code gives no path, but the owner: "user" or "project"."""

    name: str
    path: str = ""
    owner: str = ""


class SkillsQuestion(NamedTuple):
    """How to make a backend list its skills without calling a model."""

    argv: tuple[str, ...]
    #: Read stdout. Raise ValueError, KeyError, TypeError or AttributeError if it has another form.
    read: Callable[[str], list[VisibleSkill]]
    stdin: str = ""
    env: Mapping[str, str] = {}


class Backend(NamedTuple):
    """Everything about one backend. Each module of this room that has a `BACKEND` adds one; see `registry`."""

    program: BackendProgram
    #: Make the driver for the user's environment.
    driver: Callable[[Mapping[str, str]], Driver]
    #: Gets the URL of a port where nobody listens, for a backend that needs an address of a model.
    skills_question: Callable[[str], SkillsQuestion]


class ProgramDriver:
    """Base class of drivers that have a `BackendProgram`.

    `env` is the user's: configuration and credentials are the backend's own matter.
    """

    def __init__(self, program: BackendProgram, env: Mapping[str, str]) -> None:
        self.name = program.backend
        self._program, self._env = program, env

    def locate(self) -> Path:
        return locate(self._program, self._env)

    def find(self) -> InstalledProgram:
        return find(self._program, self._env)


def locate(program: BackendProgram, env: Mapping[str, str]) -> Path:
    """Return the binary itself. Raise AgentNotInstalled, with the command that installs it."""
    named = env.get(program.variable)
    found = which(named or program.command, path=absolute_entries(env))
    if found is None:
        where = f"{program.variable}={named} is no program"
        if not named:
            where = Message("no `{command}` on the PATH", command=program.command)
        raise _not_installed(
            program, Message("{backend} is not installed: {where}", backend=program.backend, where=where)
        )
    return _native(Path(found), program.native) or Path(found)


def _not_installed(program: BackendProgram, msg: str) -> AgentNotInstalled:
    return AgentNotInstalled(msg, agent=program.backend, command=program.install)


def _native(found: Path, pattern: str) -> Path | None:
    """Return the binary that npm's wrapper would start: a wrapper that is killed leaves the backend running."""
    try:
        with found.open("rb") as file:
            if file.read(2) != b"#!":
                return None
        real = found.resolve()
    except OSError:
        return None
    for folder in real.parents:
        modules = folder if folder.name == "node_modules" else folder / "node_modules"
        for binary in sorted(modules.glob(pattern)):
            if os.access(binary, os.X_OK):
                return binary
    return None


def find(program: BackendProgram, env: Mapping[str, str]) -> InstalledProgram:
    """Return the program with the version that it prints. Raise AgentNotInstalled, also if it prints none."""
    path = locate(program, env)
    try:
        answer = subprocess.run(
            [path, "--version"],
            env={**env, "DISABLE_AUTOUPDATER": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_SECONDS,
            check=False,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_installed(
            program, Message("{path} does not say its version: {error}", path=path, error=error)
        ) from None
    if not version_in(answer):
        raise _not_installed(program, Message("{path} does not say its version", path=path))
    check_version(program, answer)
    return InstalledProgram(path, version_in(answer))


def version_in(text: str) -> str:
    """Return the first thing that looks like a version, or an empty string."""
    found = _VERSION.search(text)
    return found[0] if found else ""


def check_version(program: BackendProgram, text: str) -> None:
    """Raise AgentTooOld if the version in `text` is too old. A text without a version passes."""
    version = version_in(text)
    if version and _numbers(version) < _numbers(program.minimum):
        raise AgentTooOld(program.backend, version, program.minimum, program.install)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
