"""`./dev agents`: the three command-line agents, for the tests that talk to the real programs.

Binaries only: the native package of each agent for this machine, from npm, without its install scripts. They lie in a
cache folder (`SKILLYARD_TEST_AGENTS`, else `skillyard/agents` in the cache of the user), 1 GB in all, and stay there: a
second call finds them and returns at once.
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """One agent as npm has it for one platform."""

    name: str
    package: str
    version: str
    spec: str
    path: str

    def file(self, folder: Path) -> Path:
        return folder / "node_modules" / self.package / self.path

    def installed(self, folder: Path) -> bool:
        """The very version that the tests were written for, and a file that can be started."""
        try:
            found = json.loads((folder / "node_modules" / self.package / "package.json").read_text("utf-8"))
        except (OSError, ValueError):
            return False
        return bool(found.get("version") == self.version) and os.access(self.file(folder), os.X_OK)


CLAUDE_CODE, CODEX, OPENCODE = "2.1.325", "0.166.0", "1.18.33"
#: Platforms by the names of npm, with the name that codex has for the same.
PLATFORMS = {
    ("linux", "x86_64"): ("linux-x64", "x86_64-unknown-linux-musl"),
    ("linux", "aarch64"): ("linux-arm64", "aarch64-unknown-linux-musl"),
    ("darwin", "x86_64"): ("darwin-x64", "x86_64-apple-darwin"),
    ("darwin", "arm64"): ("darwin-arm64", "aarch64-apple-darwin"),
}


def programs(system: str = sys.platform, machine: str | None = None) -> dict[str, Program]:
    """The three by the name of their backend; none where no package for this machine is known."""
    known = PLATFORMS.get((system, machine or platform.machine()))
    if known is None:
        return {}
    suffix, triple = known
    claude, codex, opencode = f"@anthropic-ai/claude-code-{suffix}", f"@openai/codex-{suffix}", f"opencode-{suffix}"
    build = f"{CODEX}-{suffix}"
    three = (
        Program("claude-code", claude, CLAUDE_CODE, f"{claude}@{CLAUDE_CODE}", "claude"),
        Program("codex", codex, build, f"{codex}@npm:@openai/codex@{build}", f"vendor/{triple}/bin/codex"),
        Program("opencode", opencode, OPENCODE, f"{opencode}@{OPENCODE}", "bin/opencode"),
    )
    return {program.name: program for program in three}


def cache() -> Path:
    """Where they are kept."""
    if chosen := os.environ.get("SKILLYARD_TEST_AGENTS"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skillyard" / "agents"


class CannotInstall(Exception):
    """Why not, and what to do about it."""


def install(folder: Path) -> bool:
    """True where something was installed, False where all three were there already."""
    wanted = programs()
    if not wanted:
        raise CannotInstall(f"no packages of the agents are known for {sys.platform} {platform.machine()}")
    if _complete(wanted, folder):
        return False
    if shutil.which("npm") is None:
        raise CannotInstall(
            "npm is missing. Install Node.js (Debian, Ubuntu: sudo apt-get install -y npm), then run ./dev agents"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        if _complete(wanted, folder):  # someone else did it while we waited
            return False
        _install(wanted, folder)
    return True


def _complete(wanted: dict[str, Program], folder: Path) -> bool:
    return all(program.installed(folder) for program in wanted.values())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two at once: the second waits. The lock dies with its process."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(wanted: dict[str, Program], folder: Path) -> None:
    """Beside the old ones first, then in their place: whoever is stopped half-way leaves nothing half-installed."""
    for left in folder.glob(".new-*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as name:
        fresh = Path(name)
        (fresh / "package.json").write_text("{}", "utf-8")
        command = [
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--loglevel=error",
        ]
        done = subprocess.run([*command, *(program.spec for program in wanted.values())], cwd=fresh, check=False)
        if done.returncode:
            raise CannotInstall(f"npm ended with exit code {done.returncode}; its own words are above")
        if missing := [program.name for program in wanted.values() if not program.installed(fresh)]:
            raise CannotInstall(f"npm installed, yet {', '.join(missing)} cannot be started from {fresh}")
        modules = folder / "node_modules"
        if modules.exists():
            modules.rename(fresh / "old")
        (fresh / "node_modules").rename(modules)


def main() -> None:
    folder = cache()
    try:
        fresh = install(folder)
    except (CannotInstall, OSError) as error:
        raise SystemExit(f"The agents are not installed: {error}") from None
    print(f"{'Installed' if fresh else 'Already there'}, in {folder}:")
    for program in programs().values():
        print(f"  {program.name:12} {program.version}")


if __name__ == "__main__":
    main()
