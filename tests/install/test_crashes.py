"""add, update and remove, killed with SIGKILL at random points: the state is the old one or the new one, never half."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.install.target import digests_of, project_target, read_lock, tree_hash
from tests.conftest import Skillyard
from tests.install.conftest import good, write

ROUNDS = 10
FILES = 12
#: The real command, killed at the n-th thing that it does to a file; without a kill it tells how many there were.
DOOMED = """
import itertools, os, signal, sys
count, at = itertools.count(), int(sys.argv.pop(1))
from skillyard.faces.cli import install, main
from skillyard.install import installer
def watch(event, args):
    if event.startswith(("open", "os.", "shutil.", "fcntl.")) and next(count) == at:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
try:
    main.main()
finally:
    sys.stderr.write(f"\\n{next(count)}")
"""


@pytest.mark.slow
def test_a_kill_at_thirty_random_points_never_leaves_a_broken_state(
    skillyard: Skillyard, project: Path, places: ProjectPaths, tmp_path: Path
) -> None:
    source, seed = tmp_path / "pdf", random.randrange(1 << 30)
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    chance = random.Random(seed)
    commands = {"add": ("add", str(source)), "update": ("update", "pdf"), "remove": ("remove", "pdf", "--yes")}
    place, skill = project_target(project), project / ".claude/skills/pdf"

    def publish(number: int) -> None:
        write(source, {"SKILL.md": good("pdf"), **{f"{n}.md": f"round {number}" for n in range(FILES)}})

    def run(at: int, command: str) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-c", DOOMED, str(at), *commands[command]]
        return subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=120, check=False)

    def check(told: str) -> None:
        """Whole at once, without any command's help; then in accord with the lock, with nothing left over."""
        contents = {(skill / f"{n}.md").read_text() for n in range(FILES)} if skill.exists() else {""}
        assert len(contents) == 1, told
        assert skillyard("verify").returncode == 0, told
        known = read_lock(place.lock_file).get("pdf")
        assert (known is not None) == skill.exists(), told
        assert known is None or known.hash == tree_hash(digests_of(skill)), told
        assert not place.is_unfinished, told
        assert not any(
            path for folder in ((place.state / "staging"), (place.state / "trash")) for path in folder.glob("*")
        ), told

    totals: dict[str, int] = {}
    for number, command in enumerate(("add", "update", "remove")):
        publish(number)
        done = run(-1, command)
        assert done.returncode == 0, done.stderr
        totals[command] = int(done.stderr.rsplit("\n", 1)[1])
    killed = 0
    for number in range(3, 3 + ROUNDS):
        for command in ("add", "update", "remove"):
            publish(number if command == "add" else number + 1000)
            at = chance.randrange(totals[command])
            done = run(at, command)
            killed += done.returncode == -signal.SIGKILL
            check(f"seed {seed}: {command} of round {number}, killed at {at}: {done.stderr}")
            if command != "remove" or skill.exists():
                assert skillyard(*commands[command]).returncode == 0
            assert skill.exists() == (command != "remove")
            if command != "remove":
                assert not any((places.own_home / "staging").iterdir())
                assert (skill / "0.md").read_text() == (source / "0.md").read_text()
    assert killed >= 2 * ROUNDS, f"seed {seed}: only {killed} of {3 * ROUNDS} were killed"
