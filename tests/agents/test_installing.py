"""`./dev agents`, without npm's network: what it knows, and what it says when it cannot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import agents

SCRIPT = Path(agents.__file__)


def put(folder: Path, version: str | None = None) -> None:
    """Three programs as npm would leave them."""
    for program in agents.programs().values():
        file = program.file(folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n", "ascii")
        file.chmod(0o755)
        package = folder / "node_modules" / program.package / "package.json"
        package.write_text(json.dumps({"version": version or program.version}), "ascii")


def run(folder: Path, path: str) -> "subprocess.CompletedProcess[str]":
    env = {"SKILLYARD_TEST_AGENTS": str(folder), "PATH": path}
    return subprocess.run([sys.executable, SCRIPT], env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture
def npm(tmp_path: Path) -> str:
    """A PATH with an npm of ours, that notes each call and installs what `put` puts."""
    folder = tmp_path / "bin"
    folder.mkdir()
    made = tmp_path / "made"
    put(made)
    script = f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\ncp -r {made}/node_modules .\n'
    (folder / "npm").write_text(script, "utf-8")
    (folder / "npm").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_the_three_are_pinned_for_every_platform_that_is_known() -> None:
    for system, machine in agents.PLATFORMS:
        assert set(agents.programs(system, machine)) == {"claude-code", "codex", "opencode"}
    specs = [program.spec for program in agents.programs("linux", "x86_64").values()]
    assert specs == [
        "@anthropic-ai/claude-code-linux-x64@2.1.325",
        "@openai/codex-linux-x64@npm:@openai/codex@0.166.0-linux-x64",
        "opencode-linux-x64@1.18.33",
    ]
    assert agents.programs("plan9", "mips") == {}


def test_what_is_there_is_left_alone_without_any_npm(tmp_path: Path) -> None:
    put(tmp_path / "cache")

    done = run(tmp_path / "cache", "/nowhere")

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"Already there, in {tmp_path / 'cache'}:")


def test_without_npm_it_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path / "cache", "/nowhere")

    assert done.returncode == 1
    assert "npm is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_old_version_is_replaced_and_no_script_is_run(tmp_path: Path, npm: str) -> None:
    folder = tmp_path / "cache"
    put(folder, version="0.0.1")

    done = run(folder, npm)

    assert done.stdout.startswith("Installed"), done.stderr
    assert all(program.installed(folder) for program in agents.programs().values())
    assert "--ignore-scripts" in (tmp_path / "calls").read_text()
    assert sorted(entry.name for entry in folder.iterdir()) == [".lock", "node_modules"]


def test_two_at_once_install_once(tmp_path: Path, npm: str) -> None:
    folder = tmp_path / "cache"
    env = {"SKILLYARD_TEST_AGENTS": str(folder), "PATH": npm}

    both = [subprocess.Popen([sys.executable, SCRIPT], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=120)[0].split(",")[0] for process in both)

    assert said == ["Already there", "Installed"]
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_an_npm_that_fails_leaves_the_old_ones(tmp_path: Path, npm: str) -> None:
    folder = tmp_path / "cache"
    put(folder, version="0.0.1")
    (tmp_path / "bin" / "npm").write_text("#!/bin/sh\nexit 3\n", "ascii")

    done = run(folder, npm)

    assert (done.returncode, "exit code 3" in done.stderr) == (1, True)
    assert (folder / "node_modules").is_dir()
