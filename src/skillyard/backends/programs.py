"""Where the agents' programs are on this machine, and how they come there."""

import os
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple

from skillyard.core.errors import AgentNotInstalled


class Program(NamedTuple):
    """One agent's program."""

    backend: str
    command: str
    #: Names another program than the one on the PATH.
    variable: str
    package: str

    @property
    def install(self) -> str:
        return f"npm install -g {self.package}"


PROGRAMS: Final[Mapping[str, Program]] = {
    program.backend: program
    for program in (
        Program("claude-code", "claude", "SKILLYARD_CLAUDE_CODE", "@anthropic-ai/claude-code"),
        Program("codex", "codex", "SKILLYARD_CODEX", "@openai/codex"),
        Program("opencode", "opencode", "SKILLYARD_OPENCODE", "opencode-ai"),
    )
}


def locate(program: Program, env: Mapping[str, str] = os.environ) -> Path:
    """Raises AgentNotInstalled, with the command that installs it."""
    named = env.get(program.variable)
    found = which(named or program.command, path=env.get("PATH", os.defpath))
    if found is None:
        where = f"{program.variable}={named} is no program" if named else f"no `{program.command}` on the PATH"
        raise AgentNotInstalled(
            f"{program.backend} is not installed: {where}", agent=program.backend, command=program.install
        )
    return Path(found)
