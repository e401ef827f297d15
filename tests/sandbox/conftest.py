"""A patch of ground for each test, and runtimes that run on it as any user and at any level."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillyard.sandbox import bubblewrap

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
#: An ordinary user without an account, who owns nothing but what a test gives.
ORDINARY = 12345

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]


def _everybodys_python() -> str:
    """One that an ordinary user can run: our own may live in root's home."""
    for candidate in ("/usr/bin/python3", sys.executable):
        code = "import sys; raise SystemExit(sys.version_info < (3, 11))"
        command = (candidate, "-I", "-c", code)
        user = ORDINARY if os.getuid() == 0 else os.getuid()
        try:
            if subprocess.run(command, user=user, check=False, stderr=subprocess.DEVNULL).returncode == 0:
                return candidate
        except OSError:
            continue
    return ""


PYTHON = _everybodys_python()

Drive = Callable[..., dict[str, Any]]


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder that every user can reach: home, outside, open (with something hidden) and out."""
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    root.chmod(0o755)
    for folder in ("home/.ssh", "outside", "open/hidden", "out"):
        (root / folder).mkdir(parents=True)
    (root / "home/.ssh/id").write_text("the key")
    (root / "outside/victim").write_text("untouched")
    (root / "open/file").write_text("welcome")
    (root / "open/hidden/token").write_text("the token")
    yield root
    shutil.rmtree(root, ignore_errors=True)


def give(root: Path, uid: int) -> None:
    if os.getuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, uid, uid)


@pytest.fixture
def drive(ground: Path) -> Drive:
    """Launch something from a runtime of its own: drive(uid, level, argv=..., policy=...)."""

    def run(uid: int, level: str, *, argv: list[str], policy: dict[str, Any], **more: Any) -> dict[str, Any]:
        if not PYTHON:
            pytest.skip("no Python 3.11 that an ordinary user can run")
        if level == "bubblewrap" and not bubblewrap.find()[0]:
            pytest.skip("no bubblewrap that works here")
        give(ground, uid)
        given = {"uid": uid, "level": level, "argv": argv, "policy": policy, "cwd": str(ground), **more}
        env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "SECRET": "s3cret-of-the-runtime"}
        done = subprocess.run(
            (PYTHON, str(HERE / "drive.py")),
            input=json.dumps(given).encode(),
            capture_output=True,
            env=env,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout)
        if reason := answer.get("skip"):
            pytest.skip(reason)
        return answer

    return run


def users() -> list[Any]:
    """Root can be both; anybody else only themselves."""
    if os.getuid() == 0:
        return [pytest.param(0, id="root"), pytest.param(ORDINARY, id="ordinary")]
    return [pytest.param(os.getuid(), id="ordinary")]
