"""What a person sees while something runs: a spinner after a silence, a bar where progress is reported."""

import re
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.faces.live_line import Progress, read_progress
from tests.conftest import Skillyard, WriteSkill
from tests.faces.test_terminal import Terminal

WAITS = """\
import os, sys, time
say = lambda text: print(text, file=sys.stderr, flush=True)
say("starting \\x1b[2J up")
def wait(name):
    while not os.path.exists(f"mybox/{name}"):
        time.sleep(0.02)
wait("one")
say("progress: 5/10 pages")
wait("two")
say('{"progress": 0.75, "message": "almost"}')
wait("three")
sys.stderr.write("\\r 10% drawn\\r 100% drawn\\nthe last line, left open")
print("done")
"""


@pytest.fixture
def waits(places: ProjectPaths, project: Path, write_skill: WriteSkill) -> Path:
    write_skill("waits", "---\nname: waits\ndescription: x\ncommand: python p.py\n---\n", {"p.py": WAITS})
    (project / "mybox").mkdir()
    return project / "mybox"


def test_a_silent_run_shows_that_it_goes_on(places: ProjectPaths, waits: Path) -> None:
    with Terminal(places, "run", "@waits", stdout_too=True) as terminal:
        terminal.expect("| starting  [2J up")
        terminal.expect("1 s  starting  [2J up")
        (waits / "one").touch()
        terminal.expect("██████████░░░░░░░░░░ 5/10 pages")
        (waits / "two").touch()
        terminal.expect("███████████████░░░░░ 75% almost")
        (waits / "three").touch()
        seen = terminal.read_all()

    lines = [re.sub(r"\x1b\[[\d;]*[mK]", "", line.rstrip("\r").rpartition("\r")[2]) for line in seen.split("\n")]
    assert lines[:3] == ["| starting  [2J up", "|  100% drawn", "| the last line, left open"]
    assert lines[3] == "✅ skills ran: waits"
    assert "\x1b[2J" not in seen


def test_in_a_pipe_progress_is_lines_as_they_are(skillyard: Skillyard, waits: Path) -> None:
    for name in ("one", "two", "three"):
        (waits / name).touch()

    said = skillyard("run", "@waits").stderr

    assert "| progress: 5/10 pages\n| {" in said
    assert "█" not in said


def test_a_task_shows_its_result_after_all_that_was_said(places: ProjectPaths, waits: Path) -> None:
    for name in ("one", "two", "three"):
        (waits / name).touch()
    with Terminal(places, "task", "skills", "wait", "run @waits", stdout_too=True) as terminal:
        seen = terminal.read_all()

    assert "skills ran: waits" in seen
    assert "\x1b[K" not in seen.rpartition("✅")[2]
    assert seen.index("left open") < seen.index("✅")


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        ("progress: 3/10", Progress("3/10")),
        ("Progress 30% - reading", Progress("30%", "reading")),
        ('{"progress": 0.5}', Progress("50%")),
        ('{"progress": 40, "message": "x"}', Progress("40%", "x")),
        ('{"progress": {"done": 1, "total": 4}}', Progress("1/4")),
        ('{"progress": "2/3"}', Progress("2/3")),
        ('{"progress": null}', None),
        ('{"progress": [1]}', None),
        ('{"progress"', None),
        ("in progress: nothing", None),
        ("3/10", None),
    ],
)
def test_progress_is_read_from_a_line(line: str, progress: Progress | None) -> None:
    assert read_progress(line) == progress
