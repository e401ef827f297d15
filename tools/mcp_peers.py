"""`./dev agents` too: FastMCP and the protocol's conformance runner, which the tests of Skills over MCP talk to.

FastMCP lives in an environment of its own: it brings sixty packages that Skillyard does not need. The runner wants a
Node.js of 22, which comes from npm beside it. Both lie beside the agents (`tools/agents.py`), 250 MB in all.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tools.agents import PLATFORMS, CannotInstall, alone, cache

FASTMCP, CONFORMANCE, NODE = "4.1.2", "0.2.0-alpha.12", "22.23.3"
_FINISHED = f"{FASTMCP} {CONFORMANCE} {NODE}\n"


def folder() -> Path:
    return cache() / "mcp-peers"


def is_installed() -> bool:
    mark = folder() / "finished"
    return mark.is_file() and mark.read_text("utf-8") == _FINISHED


def python() -> Path:
    return folder() / "venv" / "bin" / "python"


def conformance() -> tuple[str, ...]:
    """The runner's command."""
    modules = folder() / "node_modules"
    package = f"node-{PLATFORMS[sys.platform, os.uname().machine][0]}"
    return str(modules / package / "bin/node"), str(modules / "@modelcontextprotocol/conformance/dist/index.js")


def install() -> bool:
    """True where something was installed, False where it was there already."""
    known = PLATFORMS.get((sys.platform, os.uname().machine))
    if is_installed():
        return False
    if known is None or shutil.which("npm") is None:
        raise CannotInstall("npm is missing, or no Node.js of this platform is known")
    folder().mkdir(parents=True, exist_ok=True)
    with alone(folder()):
        if is_installed():
            return False
        venv.create(folder() / "venv", with_pip=True, clear=True)
        _run(str(python()), "-m", "pip", "install", "-q", f"fastmcp=={FASTMCP}")
        packages = f"@modelcontextprotocol/conformance@{CONFORMANCE}", f"node-{known[0]}@{NODE}"
        (folder() / "package.json").write_text("{}", "utf-8")
        options = "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"
        _run("npm", "install", *options, *packages)
        (folder() / "finished").write_text(_FINISHED, "utf-8")
    return True


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=folder(), check=False)
    if done.returncode:
        raise CannotInstall(f"{command[0]} ended with exit code {done.returncode}; its own words are above")


def main() -> None:
    try:
        fresh = install()
    except (CannotInstall, OSError) as error:
        raise SystemExit(f"FastMCP and the conformance runner are not installed: {error}") from None
    print(
        f"{'Installed' if fresh else 'Already there'}, in {folder()}:\n  fastmcp {FASTMCP}\n  conformance {CONFORMANCE}"
    )


if __name__ == "__main__":
    main()
