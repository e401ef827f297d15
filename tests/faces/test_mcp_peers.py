"""Skills over MCP against programs that are not ours: FastMCP on both sides, and the protocol's conformance runner."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools import mcp_peers

from skillyard.app.paths import ProjectPaths
from skillyard.install.target import read_lock
from tests.conftest import Skillyard, WriteSkill
from tests.faces.http_bridge import bridged
from tests.faces.mcp_client import CEILING_SECONDS, variables

pytestmark = [
    pytest.mark.ci("independent clients and servers of MCP"),
    pytest.mark.skipif(not mcp_peers.is_installed(), reason="no FastMCP and no runner: run ./dev agents"),
]
PEERS = Path(__file__).with_name("peers")
SERVER_SCENARIOS = (
    *("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"),
    "server-initialize",
)
CLIENT_SCENARIOS = {
    "sep-2640-client-no-prefetch": "find --mcp",
    "sep-2640-client-verify-digest": "add --skill pdf-processing",
    "sep-2640-client-verify-size": "add --skill pdf-processing",
    "sep-2640-client-verify-frontmatter": "add --skill pdf-processing",
}


def good(name: str) -> str:
    return (
        f"---\nname: {name}\ndescription: Does {name} things. Use when asked.\nmetadata:\n  v: '1.0'\n---\n# {name}\n"
    )


def test_fastmcps_client_lists_gets_and_reads_everything(write_skill: WriteSkill, places: ProjectPaths) -> None:
    write_skill("pdf", good("pdf"), {"docs/a ü.md": "ü"}).with_name("logo.bin").write_bytes(b"\xff\x00")
    write_skill("team/word", good("word"))
    write_skill("Bad_Name", good("Bad_Name"), {"x.md": "x"})
    done = subprocess.run(
        [mcp_peers.python(), PEERS / "fastmcp_client.py", sys.executable, "-m", "skillyard", "mcp"],
        cwd=places.project,
        env=variables(places),
        capture_output=True,
        text=True,
        timeout=CEILING_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "skill://pdf/SKILL.md": ["skill://pdf/SKILL.md", "skill://pdf/docs/a%20%C3%BC.md", "skill://pdf/logo.bin"],
        "skill://word/SKILL.md": ["skill://word/SKILL.md"],
    }


@contextmanager
def on_loopback(folder: Path, places: ProjectPaths) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(mcp_peers.python()), str(PEERS / "fastmcp_server.py"), str(folder), str(port)]
    with subprocess.Popen(command, env=variables(places), stderr=subprocess.DEVNULL) as server:
        try:
            ends = time.monotonic() + CEILING_SECONDS
            while server.poll() is None and time.monotonic() < ends:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)  # there is nothing else to wait on until it listens
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_skills_of_fastmcps_server_are_installed_updated_and_verified(
    way: str, write_skill: WriteSkill, skillyard: Skillyard, places: ProjectPaths, project: Path, tmp_path: Path
) -> None:
    served = tmp_path / "served"
    file = write_skill("pdf", good("pdf"), {"docs/a.md": "one"}, served)
    file.with_name("logo.bin").write_bytes(b"\xff\x00")
    with on_loopback(served, places) as url:
        command = shlex.join([str(mcp_peers.python()), str(PEERS / "fastmcp_server.py"), str(served)])
        source = url if way == "http" else command
        found = json.loads(skillyard("find", "--mcp", source, "--json").stdout)["data"]
        added = skillyard("add", f"mcp:{source}")
        if way == "stdio":
            assert skillyard("trust", "--server", source, "--accept").returncode == 0
        (served / "pdf/docs/a.md").write_text("two")
        updated = skillyard("update", "--all", "--json")

    assert [(each["uri"], each["files"]) for each in found["skills"]] == [("skill://pdf/SKILL.md", 3)]
    assert (added.returncode, added.stdout) == (0, "added pdf\n")
    assert json.loads(updated.stdout)["data"]["skills"][0]["standing"] == "changed"
    assert (project / ".claude/skills/pdf/docs/a.md").read_text() == "two"
    assert read_lock(project / "skillyard.lock")["pdf"].source == f"mcp:{source}"
    assert skillyard("verify").returncode == 0


def conform(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*mcp_peers.conformance(), *words],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=CEILING_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("scenario", SERVER_SCENARIOS)
def test_the_conformance_runner_finds_nothing_wrong_with_our_server(
    scenario: str, write_skill: WriteSkill, places: ProjectPaths, tmp_path: Path
) -> None:
    write_skill("pdf", good("pdf"), {"docs/a.md": "one", "docs/deep/b.md": "two"})
    write_skill("word", good("word"))
    with bridged(places) as url:
        done = conform("server", "--url", url, "--scenario", scenario, cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert " 0 failed" in done.stdout


@pytest.mark.parametrize(("scenario", "words"), CLIENT_SCENARIOS.items())
def test_the_conformance_runner_finds_nothing_wrong_with_our_host(
    scenario: str, words: str, places: ProjectPaths, project: Path, tmp_path: Path
) -> None:
    """The runner appends its address, so a script of ours puts it where the command wants it."""
    script = tmp_path / "host.sh"
    prefix = "" if "find" in words else "mcp:"
    assigned = " ".join(f"{key}={shlex.quote(value)}" for key, value in variables(places).items())
    line = (
        f'cd {shlex.quote(str(project))} && {assigned} {shlex.quote(sys.executable)} -m skillyard {words} "{prefix}$1"'
    )
    script.write_text(line + "\n")
    done = conform("client", "--command", f"sh {script}", "--scenario", scenario, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert not (project / ".claude").exists()
