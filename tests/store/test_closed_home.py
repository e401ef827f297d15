"""A home that can be read and not written: what only looks goes on, what would keep something says so."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.store.database import open_database
from skillyard.store.runs import RUNNING, Run, Runs
from tests.conftest import Skillyard, WriteSkill
from tests.sandbox.conftest import ORDINARY, PYTHON, SOURCE

ECHO = "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n"
FLOW = 'steps: [{id: one, skill: "@echo", params: {text: hi}}]\n'


@pytest.fixture
def tmp_path(everybodys_path: Path) -> Path:
    return everybodys_path


@pytest.fixture
def as_a_guest(places: ProjectPaths, project: Path) -> Iterator[Skillyard]:
    """The real command as somebody who may read everything here and write nothing."""
    if os.getuid() != 0 or not PYTHON:
        pytest.skip("only root can be somebody else")

    def run(*args: str) -> "subprocess.CompletedProcess[str]":
        for path in (places.own_home, *places.own_home.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{SOURCE}:{Path(yaml.__file__).parents[1]}",
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "LANG": "C.UTF-8",
        }
        command = [PYTHON, "-m", "skillyard", *args]
        return subprocess.run(
            command,
            cwd=project,
            env=variables,
            user=ORDINARY,
            group=ORDINARY,
            capture_output=True,
            text=True,
            timeout=120,
        )

    yield run
    for path in (places.own_home, *places.own_home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.parametrize("used_before", [True, False])
@pytest.mark.parametrize("words", ["list", "runs", "role list", "flow list", "jobs history", "grants"])
def test_what_only_looks_shows_what_is_there(
    as_a_guest: Skillyard, skillyard: Skillyard, project: Path, write_skill: WriteSkill, words: str, used_before: bool
) -> None:
    write_skill("echo", ECHO)
    (project / "workflows").mkdir()
    (project / "workflows" / "hello.yaml").write_text(FLOW)
    assert skillyard("role", "new", "dev").returncode == 0
    if used_before:
        assert skillyard("run", "@echo", "hi").returncode == 0

    done = as_a_guest(*words.split())

    assert done.returncode == 0, done.stdout + done.stderr
    ran = "echo" if used_before else "Nothing has run"
    shown = {"runs": ran, "role list": "dev", "flow list": "hello", "list": "echo"}.get(words, "")
    assert shown in done.stdout


def test_a_run_is_refused_before_it_starts_and_says_why(
    as_a_guest: Skillyard, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("touch", "---\nname: touch\ndescription: Leaves a trace.\ncommand: touch mybox/trace\n---\n")
    (project / "mybox").mkdir(mode=0o777)
    done = as_a_guest("run", "@touch")

    assert done.returncode == 1
    assert "PermissionDenied" in done.stdout
    assert not (project / "mybox" / "trace").exists()


def test_nothing_is_kept_in_a_database_that_stands_in_for_one(tmp_path: Path) -> None:
    """Not even until the process ends: what looks written would be believed."""
    if os.getuid() == 0:
        pytest.skip("root writes everywhere")
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    runs = Runs(open_database(home / "skillyard.db"), "p")

    assert runs.list() == ()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        runs.record_use("echo", 0.0)


def test_a_run_that_lost_its_runtime_has_ended_also_where_that_cannot_be_kept(yard: Project) -> None:
    lost = Run("r1", "skills", "echo", "command", RUNNING, 1.0)
    yard.history.put(lost)
    yard._database.execute("PRAGMA query_only = ON")

    assert [run.state for run in yard.runs(10)] == ["error"]
    found = yard.find_run("r1")
    assert found is not None
    assert found.state == "error"


@pytest.mark.parametrize("words", ["list", "runs", "grants", "run @echo hi", "grant @echo network --accept", "doctor"])
def test_damage_in_a_home_that_cannot_be_written_is_named(
    as_a_guest: Skillyard, places: ProjectPaths, write_skill: WriteSkill, words: str
) -> None:
    write_skill("echo", ECHO)
    for name in ("state.db", "grants.json"):
        (places.own_home / name).write_bytes(b"damaged" * 1000)

    done = as_a_guest(*words.split())

    assert "Traceback" not in done.stdout + done.stderr
    assert (places.own_home / "state.db").read_bytes() == b"damaged" * 1000
    if words.startswith("run"):
        assert done.returncode == 1
        assert "damaged" in done.stdout
