"""Where the agents' programs are on this machine, and how they come there.

Finding is cheap; asking a program for its version is not (opencode takes seconds), so that is a step of its own.
"""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple

from skillyard.core.errors import AgentNotInstalled, AgentTooOld
from skillyard.core.messages import Message
from skillyard.core.searchpath import absolute_entries

_VERSION_SECONDS: Final = 60.0
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")
#: How npm names a machine.
_CPU: Final = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_SYSTEM: Final = f"{platform.system().lower()}-{_CPU}"


class Program(NamedTuple):
    """One agent's program. `native` is the pattern of its binary below a `node_modules`, for this machine."""

    backend: str
    command: str
    #: Names another program than the one on the PATH.
    variable: str
    package: str
    native: str
    #: The oldest that speaks the protocol that we speak.
    minimum: str

    @property
    def install(self) -> str:
        return f"npm install -g {self.package}"


PROGRAMS: Final[Mapping[str, Program]] = {
    program.backend: program
    for program in (
        Program(
            backend="claude-code",
            command="claude",
            variable="SKILLYARD_CLAUDE_CODE",
            package="@anthropic-ai/claude-code",
            native=f"@anthropic-ai/claude-code-{_SYSTEM}*/claude",
            minimum="2.1",
        ),
        Program(
            backend="codex",
            command="codex",
            variable="SKILLYARD_CODEX",
            package="@openai/codex",
            native=f"@openai/codex-{_SYSTEM}/vendor/*/bin/codex",
            minimum="0.100",
        ),
        Program(
            backend="opencode",
            command="opencode",
            variable="SKILLYARD_OPENCODE",
            package="opencode-ai",
            native=f"opencode-{_SYSTEM}*/bin/opencode",
            minimum="1.0",
        ),
    )
}


class Installed(NamedTuple):
    """A backend's program as it was found on this machine."""

    program: Path
    version: str


def locate(program: Program, env: Mapping[str, str] = os.environ) -> Path:
    """The binary itself. Raises AgentNotInstalled, with the command that installs it."""
    named = env.get(program.variable)
    found = which(named or program.command, path=absolute_entries(env))
    if found is None:
        where = (
            f"{program.variable}={named} is no program"
            if named
            else Message("no `{command}` on the PATH", command=program.command)
        )
        raise AgentNotInstalled(
            Message("{backend} is not installed: {where}", backend=program.backend, where=where),
            agent=program.backend,
            command=program.install,
        )
    path = Path(found)
    return _native(path, program.native) or path


def _native(found: Path, pattern: str) -> Path | None:
    """The binary that npm's wrapper would start: a wrapper that is killed leaves the agent behind."""
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


def find(program: Program, env: Mapping[str, str] = os.environ) -> Installed:
    """With its version, which it is asked for. Raises AgentNotInstalled, also where it does not answer."""
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
        raise AgentNotInstalled(
            Message("{path} does not say its version: {error}", path=path, error=error),
            agent=program.backend,
            command=program.install,
        ) from None
    version = version_in(answer)
    if not version:
        raise AgentNotInstalled(
            Message("{path} does not say its version", path=path), agent=program.backend, command=program.install
        )
    check_version(program, version)
    return Installed(path, version)


class Located:
    """The half of a `Driver` that only needs to know its program.

    `env` is the user's: their configuration and their credentials are the agent's own matter.
    """

    def __init__(self, program: Program, env: Mapping[str, str]) -> None:
        self.name = program.backend
        self._program, self._env = program, env

    def locate(self) -> Path:
        return locate(self._program, self._env)

    def find(self) -> Installed:
        return find(self._program, self._env)


def version_in(text: str) -> str:
    """The first thing that looks like a version, or nothing."""
    found = _VERSION.search(text)
    return found[0] if found else ""


def check_version(program: Program, version: str) -> None:
    if _numbers(version) < _numbers(program.minimum):
        raise AgentTooOld(program.backend, version, program.minimum, program.install)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
