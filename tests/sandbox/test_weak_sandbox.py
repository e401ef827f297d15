"""As root, on a machine without namespaces: refused, unless a person insists on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import WriteSkill
from tests.sandbox.conftest import SOURCE

#: Becomes `skillyard` on a machine that makes no namespaces.
WITHOUT_NAMESPACES = """
import os, sys
from skillyard.sandbox import seccomp
from skillyard.sandbox.syscalls import MACHINE
seccomp.load(seccomp.refuse(MACHINE, ("unshare", "setns"), namespaces=False))
os.execv(sys.executable, [sys.executable, "-m", "skillyard", *sys.argv[1:]])
"""
ECHO = "---\nname: echo\ndescription: x\ncommand: echo {text}\n---\n"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root is refused")


def skillyard(project: Path, home: Path, *args: str) -> dict[str, Any]:
    done = subprocess.run(
        (sys.executable, "-c", WITHOUT_NAMESPACES, *args, "--json"),
        cwd=project,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "SKILLYARD_HOME": str(home / "own"),
            "PYTHONPATH": str(SOURCE),
        },
        capture_output=True,
        timeout=120,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_run_as_root_is_refused_and_says_how_to_insist(
    project: Path, tmp_path: Path, write_skill: WriteSkill
) -> None:
    write_skill("echo", ECHO)

    refused = skillyard(project, tmp_path, "run", "@echo", "x")
    insisted = skillyard(project, tmp_path, "run", "--weak-sandbox", "@echo", "x")

    assert refused["data"]["type"] == "SandboxUnavailable"
    assert refused["data"]["missing"] == ["stat", "metadata", "proc", "fifo"]
    assert "--weak-sandbox" in refused["meta"]["hint"]
    assert insisted["data"].get("content") == "x", insisted
    assert insisted["meta"]["sandbox"] == "landlock+seccomp"
    assert {"stat", "metadata", "proc", "fifo"} <= {*insisted["meta"]["not_covered"]}


def test_no_file_of_a_project_insists(project: Path, tmp_path: Path, write_skill: WriteSkill) -> None:
    write_skill("echo", ECHO.replace("command", "weak_sandbox: true\nweak-sandbox: true\ncommand"))
    (project / "skillyard.toml").write_text("weak_sandbox = true\n[sandbox]\nweak = true\n")

    refused = skillyard(project, tmp_path, "run", "@echo", "x")

    assert refused["data"].get("content") is None


def test_doctor_names_what_is_not_covered(project: Path, tmp_path: Path) -> None:
    answer = skillyard(project, tmp_path, "doctor")

    found = {finding["part"]: finding for finding in answer["data"]["findings"]}
    assert found["sandbox"]["ok"] is False
    assert found["sandbox"]["detail"].endswith("not covered: stat, metadata, proc, fifo")
