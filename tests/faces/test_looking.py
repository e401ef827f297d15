"""What somebody sees who waits for a job: on a real terminal, in a pipe, and as a program."""

import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.faces.live_line import bar
from tests.conftest import Skillyard, WriteSkill
from tests.jobs.test_jobs import env_of, said

SECONDS = 60.0
SAYS = """#!/bin/sh
echo 'preparing' >&2
printf '60%% of 页面 \\033[2J\\n' >&2
until test -e mybox/go; do sleep 0.05; done
echo 'almost there' >&2
echo done
"""


@pytest.fixture
def says(places: ProjectPaths, write_skill: WriteSkill) -> ProjectPaths:
    (places.own_home / "config.toml").write_text("[engine]\npoll_seconds = 0.05\n")
    text = "---\nname: says\ndescription: Says how far it has come.\ncommand: sh says.sh\n---\n"
    write_skill("says", text, {"says.sh": SAYS})
    return places


@contextmanager
def on_terminal(places: ProjectPaths, *words: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "skillyard", *words]
    child = subprocess.Popen(
        command, cwd=places.project, env=env_of(places), stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    try:
        yield child, terminal
    finally:
        child.kill()
        child.communicate()
        os.close(terminal)


def read_until(terminal: int, wanted: str) -> str:
    seen = b""
    while wanted.encode() not in seen:
        assert select.select([terminal], [], [], SECONDS)[0], seen.decode()
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other side was closed
            break
    assert wanted in seen.decode(), seen.decode()
    return seen.decode()


def test_on_a_terminal_a_line_moves_and_is_gone_at_the_end(
    says: ProjectPaths, skillyard: Skillyard, project: Path
) -> None:
    assert skillyard("jobs", "add", "@yearly", "@says", "--name", "年报").returncode == 0
    with on_terminal(says, "jobs", "run", "年报") as (child, terminal):
        seen = read_until(terminal, "60% of 页面")
        assert "年报: running  " in seen
        assert "████████████░░░░░░░░" in seen
        assert "\x1b[2J" not in seen, "nothing that a skill says moves the cursor"
        (project / "mybox" / "go").touch()
        stdout, _ = child.communicate(timeout=SECONDS)

    assert "done" in stdout
    assert child.returncode == 0


def test_who_waits_for_a_worker_sees_what_the_run_says(says: ProjectPaths, project: Path) -> None:
    with on_terminal(says, "jobs", "enqueue", "@says", "--wait") as (child, terminal):
        read_until(terminal, "says: queued")
        worker = subprocess.Popen(
            [sys.executable, "-m", "skillyard", "worker", "--drain"],
            cwd=project,
            env=env_of(says),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        read_until(terminal, "60% of 页面")
        (project / "mybox" / "go").touch()
        stdout, _ = child.communicate(timeout=SECONDS)
        worker.wait(SECONDS)

    assert "done" in stdout


def test_in_a_pipe_there_are_events_and_for_a_program_nothing(
    says: ProjectPaths, skillyard: Skillyard, project: Path
) -> None:
    assert skillyard("jobs", "add", "@yearly", "@says", "--name", "y").returncode == 0
    (project / "mybox").mkdir()
    (project / "mybox" / "go").touch()
    piped = skillyard("jobs", "run", "y")
    quiet = skillyard("jobs", "run", "y", "--json")

    lines = piped.stderr.splitlines()
    assert [line for line in lines if " y: " not in line and line != "y: running"] == [
        "| preparing",
        "| 60% of 页面  [2J",
        "| almost there",
    ]
    assert any(line.endswith(" y: success") for line in lines)
    assert "\r" not in piped.stderr
    assert "\x1b" not in piped.stderr
    assert (said(quiet)["state"], quiet.stderr) == ("success", "")


def test_in_a_pipe_who_waits_sees_each_line_once(says: ProjectPaths, project: Path) -> None:
    command = [sys.executable, "-m", "skillyard", "jobs", "enqueue", "@says", "--wait"]
    with subprocess.Popen(
        command, cwd=project, env=env_of(says), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        heard = iter(child.stderr.readline, "")
        assert any(line == "says: queued\n" for line in heard)
        threading.Thread(target=work_off, args=(says,), daemon=True).start()
        rest = []
        for line in heard:
            rest.append(line.rstrip("\n"))
            if "60%" in line:
                (project / "mybox" / "go").touch()
        child.wait(SECONDS)

    assert [line for line in rest if line != "says: running"] == ["| preparing", "| 60% of 页面  [2J", "| almost there"]


def work_off(places: ProjectPaths) -> None:
    command = [sys.executable, "-m", "skillyard", "worker", "--drain"]
    subprocess.run(command, cwd=places.project, env=env_of(places), capture_output=True, check=True)


@pytest.mark.parametrize(
    ("note", "full"),
    [
        ("60% done", 12),
        ("99.9 %", 19),
        ("0%", 0),
        ("100%", 20),
        ("page 3/5 of x", 12),
        ("[10 / 10]", 20),
        ("140%", None),
        ("7/5", None),
        ("0/0", None),
        ("on 2026/11/16", None),
        ("a/b 1.5/2", None),
        ("", None),
    ],
)
def test_a_bar_where_the_words_tell_how_far_it_is(note: str, full: int | None) -> None:
    assert bar(note, is_ascii=True) == ("" if full is None else "#" * full + "-" * (20 - full))
