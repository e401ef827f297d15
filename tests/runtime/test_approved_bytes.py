"""The bytes that were approved are the bytes that run, whatever happens to the skill's folder meanwhile."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import TORTURE
from tests.sandbox.conftest import ORDINARY, PYTHON, SOURCE, users

pytestmark = pytest.mark.ci("crash and escape rounds")

HERE = Path(__file__).parent
ROUNDS = 200 if TORTURE else 12


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder that every user can reach."""
    root = Path(tempfile.mkdtemp(prefix="race-")).resolve()
    root.chmod(0o755)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def race(ground: Path, uid: int, level: str, swap: str, *, read_project: bool = False) -> dict[str, Any]:
    if os.getuid() == 0:
        os.chown(ground, uid, uid)
    given = {"uid": uid, "level": level, "place": str(ground), "swap": swap, "rounds": ROUNDS}
    env = {"PATH": os.environ["PATH"], "HOME": str(ground)}
    env |= {"PYTHONPATH": f"{SOURCE}:{Path(yaml.__file__).parents[1]}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        (PYTHON, str(HERE / "racing.py")),
        input=json.dumps({**given, "read_project": read_project}).encode(),
        capture_output=True,
        env=env,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.skipif(sys.platform != "linux", reason="the levels are Linux's")
@pytest.mark.parametrize("uid", users())
@pytest.mark.parametrize("level", ["full", "landlock+seccomp"])
@pytest.mark.parametrize("swap", ["script", "command", "module", "link", "folder", "bin"])
def test_no_swap_runs_other_bytes_with_the_grant(ground: Path, uid: int, level: str, swap: str) -> None:
    told = race(ground, uid, level, swap)

    assert told["first"] == "good yes", "the grant counts"
    assert told["sandbox"] == level
    assert "evil yes" not in told["said"]


@pytest.mark.skipif(sys.platform != "linux", reason="the levels are Linux's")
@pytest.mark.parametrize("swap", ["script", "module", "folder"])
def test_no_swap_does_so_where_the_run_sees_the_project_around_the_skill(ground: Path, swap: str) -> None:
    uid = ORDINARY if os.getuid() == 0 else os.getuid()
    told = race(ground, uid, "full", swap, read_project=True)

    assert told["first"] == "good yes"
    assert "evil yes" not in told["said"]
