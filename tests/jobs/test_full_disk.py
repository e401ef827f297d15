"""A disk that fills up under jobs: said in plain words, and nothing of what was kept is lost."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from tests.conftest import Skillyard, WriteSkill

ECHO = "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n"
SECONDS = 60.0
pytestmark = pytest.mark.parametrize("small_disk", ["4m"], indirect=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    written = subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=4k"], capture_output=True, text=True)
    assert "No space left" in written.stderr
    return ballast


def jobs_of(ended: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ended.stdout)["data"]["jobs"]
    return found


def test_what_was_queued_before_is_done_when_there_is_room_again(
    small_disk: Path, skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("echo", ECHO)
    home = {"SKILLYARD_HOME": str(small_disk)}
    queued = jobs_of(skillyard("jobs", "enqueue", "@echo", "一", "--json", **home))

    ballast = fill(small_disk)
    for words in (("jobs", "enqueue", "@echo", "二"), ("run", "@echo", "三"), ("worker", "--drain")):
        refused = skillyard(*words, "--json", **home)
        told = json.loads(refused.stdout)
        assert refused.returncode == 1
        assert (told["state"], told["data"]["type"]) == ("error", "RuntimeFailed")
        assert "df -h" in told["meta"]["hint"]
        assert "Traceback" not in refused.stderr
    assert skillyard("list", **home).returncode == 0

    ballast.unlink()
    assert skillyard("worker", "--drain", **home).returncode == 0
    found = jobs_of(skillyard("jobs", "--json", **home))
    assert [(job["id"], job["state"]) for job in found] == [(queued[0]["id"], "success")]


def test_a_worker_outlives_it_and_goes_on(small_disk: Path, places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("echo", ECHO)
    home = {**os.environ, "HOME": str(places.user_home), "SKILLYARD_HOME": str(small_disk), "SKILLYARD_LANG": "en"}
    command = [sys.executable, "-m", "skillyard"]
    subprocess.run([*command, "jobs", "add", "1s", "@echo", "滴答"], cwd=places.project, env=home, check=True)
    worker = subprocess.Popen(
        [*command, "worker"], cwd=places.project, env=home, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    too_long = threading.Timer(SECONDS, worker.kill)
    too_long.start()
    try:
        _read_until(worker, "echo: success")
        ballast = fill(small_disk)
        _read_until(worker, "disk is full", "disk I/O error")
        ballast.unlink()
        _read_until(worker, "echo: success")
    finally:
        too_long.cancel()
        worker.terminate()
        worker.communicate(timeout=SECONDS)


def _read_until(worker: "subprocess.Popen[str]", *words: str) -> None:
    assert worker.stderr
    said = []
    for line in worker.stderr:
        said.append(line)
        if any(each in line for each in words):
            return
    pytest.fail(f"the worker ended before it said any of {words}: {said}")
