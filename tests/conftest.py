"""Real folders, a real database, a real process for every test; never the user's own home."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest
from tools import agents

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project

pytest_plugins = ["tests.agents.fixtures", "tests.selection"]
# The real agents lie in the real cache: look where that is before the home is taken away.
os.environ["SKILLYARD_TEST_AGENTS"] = str(agents.cache())
# Whatever forgets to pass a home fails at once instead of touching the real one.
os.environ["SKILLYARD_HOME"] = "/dev/null/no-home-in-tests"
os.environ["HOME"] = "/dev/null/no-home-in-tests"
os.environ.pop("SKILLYARD_LANG", None)

#: Every point and round of the slow suites; without it a sample.
TORTURE = bool(os.environ.get("SKILLYARD_TORTURE"))


# Machines are noisy: a property is true or false, never late.
hypothesis.settings.register_profile(
    "skillyard", deadline=None, max_examples=50, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "torture", deadline=None, max_examples=3000, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("skillyard")


@pytest.fixture
def everybodys_path() -> Iterator[Path]:
    """A temporary folder that every user can reach, in place of `tmp_path`: each pytest that starts on this machine
    closes pytest's own folder to others, also while our tests run in it."""
    folder = Path(tempfile.mkdtemp(prefix="skillyard-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def places(tmp_path: Path) -> ProjectPaths:
    project, user_home, own_home = tmp_path / "project", tmp_path / "home", tmp_path / "skillyard-home"
    for folder in (project / ".git", user_home, own_home):
        folder.mkdir(parents=True)
    return ProjectPaths(project=project, user_home=user_home, own_home=own_home)


@pytest.fixture
def project(places: ProjectPaths) -> Path:
    assert places.project is not None
    return places.project


@pytest.fixture
def yard(places: ProjectPaths) -> Iterator[Project]:
    with Project(places) as opened:
        yield opened


WriteSkill = Callable[..., Path]


@pytest.fixture
def write_skill(project: Path) -> WriteSkill:
    """Writes a skill folder: its SKILL.md, and files beside it by name."""

    def write(folder: str, text: str, files: Mapping[str, str] | None = None, root: Path | None = None) -> Path:
        target = (root or project / ".claude" / "skills") / folder
        for name, content in {"SKILL.md": text, **(files or {})}.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
        return target / "SKILL.md"

    return write


Skillyard = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def skillyard(places: ProjectPaths) -> Skillyard:
    """The real command in a process of its own, in the temporary project."""

    def run(*args: str, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "LANG": "C.UTF-8",
            "SKILLYARD_LANG": "en",
            **env,
        }
        return subprocess.run(
            [sys.executable, "-m", "skillyard", *args],
            cwd=cwd or places.project,
            env=variables,
            capture_output=True,
            text=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of its own, of 64 kB or as much as the test asks for by `@pytest.mark.parametrize(…, indirect=True)`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = getattr(request, "param", "64k")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)
