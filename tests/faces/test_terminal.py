"""The command line with a person at a real terminal: it asks, and goes on with the answers."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import parse
from tests.conftest import WriteSkill


class Terminal:
    """A command on a terminal of its own; its stdout is a pipe, as for somebody who keeps the result."""

    def __init__(
        self,
        places: ProjectPaths,
        *command: str,
        stdout_too: bool = False,
        columns: int = 100,
        extra_env: Mapping[str, str] | None = None,
    ) -> None:
        self._ours, theirs = pty.openpty()
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "COLUMNS": str(columns),
            **(extra_env or {}),
        }
        self._child = subprocess.Popen(
            [sys.executable, "-m", "skillyard", *command],
            cwd=places.project,
            env=env,
            stdin=theirs,
            stderr=theirs,
            stdout=theirs if stdout_too else subprocess.PIPE,
        )
        os.close(theirs)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        if self._child.stdout:
            self._child.stdout.close()
        os.close(self._ours)

    def expect(self, text: str) -> None:
        """Read until the text was shown."""
        deadline = time.monotonic() + 60
        while text not in self.seen:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                pytest.fail(f"{text!r} was not shown, only: {self.seen!r}")
            try:
                self.seen += os.read(self._ours, 65536).decode("utf-8", "replace")
            except OSError:
                pytest.fail(f"it ended without {text!r}: {self.seen!r}")

    def read_all(self) -> str:
        """Everything, until it ends and lets go of the terminal."""
        while True:
            try:
                self.seen += os.read(self._ours, 65536).decode("utf-8", "replace")
            except OSError:
                return self.seen

    def say(self, text: str) -> None:
        os.write(self._ours, f"{text}\n".encode())

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._child.send_signal(signal.SIGINT)

    def finish(self) -> tuple[int, str]:
        out, _ = self._child.communicate(timeout=60)
        return self._child.returncode, (out or b"").decode()


GREET = """\
---
name: greet
description: Says hello
command: echo {greeting} {who}
params:
  - {name: greeting, required: true, prompt: "How?"}
  - {name: who, required: true}
---
"""


def test_missing_params_are_asked_for_and_the_run_goes_on(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("greet", GREET)

    with Terminal(places, "run", "@greet") as terminal:
        terminal.expect("greeting (How?): ")
        terminal.say("你好")
        terminal.expect("who: ")
        terminal.say("Ada Lovelace")
        code, out = terminal.finish()

    assert code == 0
    assert parse(out).data["content"] == "你好 Ada Lovelace"


def test_whoever_does_not_answer_gets_the_question_as_a_result(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("greet", GREET)

    with Terminal(places, "run", "@greet") as terminal:
        terminal.expect("greeting (How?): ")
        terminal.say("")
        code, out = terminal.finish()

    assert code == 4
    assert parse(out).data["required"] == ["greeting", "who"]


def test_a_grant_is_asked_for_once_and_only_a_clear_yes_is_one(
    places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    text = "---\nname: maker\ndescription: x\ncommand: cp {skill}/SKILL.md {output}\n---\n"
    write_skill("maker", text)
    (project / "skillyard.toml").write_text('[run]\nread = "params"\n')
    command = ("run", "@maker", "output=result.md")

    with Terminal(places, *command) as terminal:
        terminal.expect("[y/N] ")
        terminal.say("maybe")
        refused, out = terminal.finish()
    assert (refused, parse(out).data["type"]) == (1, "NotGranted")
    assert not (project / "result.md").exists()

    with Terminal(places, *command) as terminal:
        terminal.expect("write:result.md")
        terminal.expect("[y/N] ")
        terminal.say("y")
        allowed, _ = terminal.finish()
    assert allowed == 0
    assert (project / "result.md").read_text() == text

    with Terminal(places, *command) as terminal:
        assert terminal.finish()[0] == 0
        assert "[y/N]" not in terminal.seen


def test_a_list_on_a_terminal_is_a_table_that_fits(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("long", f"---\nname: long\ndescription: {'很长的描述 ' * 60}\n---\n")

    with Terminal(places, "list", stdout_too=True) as terminal:
        terminal.expect("…")
        terminal.finish()

    assert "long" in terminal.seen


def test_trust_shows_the_list_before_it_asks(places: ProjectPaths, project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin/x.py").write_text("print(1)\n")

    with Terminal(places, "trust") as terminal:
        terminal.expect("run the scripts in bin/")
        terminal.expect("Trust it? [y/N] ")
        terminal.say("yes")
        assert terminal.finish()[0] == 0


TIDY = """\
import pathlib
pathlib.Path("README.md").write_text("tidied\\n")
pathlib.Path("notes").mkdir()
pathlib.Path("notes/\\x1b[31m 说明.md").write_text("\\x1b]0;owned\\x07\\n")
pathlib.Path("notes/b.md").write_text("b\\n")
"""


@pytest.fixture
def tidy(project: Path, write_skill: WriteSkill) -> tuple[str, ...]:
    """A run that changes one file and adds two in a new folder."""
    (project / "README.md").write_text("untidy\n")
    write_skill("tidy", "---\nname: tidy\ndescription: x\n---\n", {"tidy.py": TIDY})
    return ("run", "@tidy:tidy.py")


def test_changes_are_kept_after_one_question(places: ProjectPaths, project: Path, tidy: tuple[str, ...]) -> None:
    with Terminal(places, *tidy) as terminal:
        terminal.expect("q decide later ")
        terminal.say("d")
        terminal.expect("+tidied")
        terminal.expect("+b\r\n")
        terminal.say("k")
        code, out = terminal.finish()

    assert code == 0
    assert parse(out).meta["changes"] == "applied"
    assert (project / "README.md").read_text() == "tidied\n"
    assert (project / "notes/b.md").read_text() == "b\n"
    assert "\x1b[31m" not in terminal.seen, "a name cannot colour the terminal"
    assert "\x1b]0;" not in terminal.seen, "nor can a file's content set its title"
    assert "+ notes/\r\n" not in terminal.seen, "a folder comes with what lies in it"


def test_of_changes_a_person_chooses_some(places: ProjectPaths, project: Path, tidy: tuple[str, ...]) -> None:
    """Enter after a key answers nothing: it must not count as a no to the next question."""
    with Terminal(places, *tidy) as terminal:
        terminal.expect("q decide later ")
        terminal.say("c")
        terminal.expect("~ README.md? y/n ")
        terminal.say("y")
        terminal.expect("说明.md? y/n ")
        terminal.say("n")
        terminal.expect("+ notes/b.md? y/n ")
        terminal.say("y")
        code, out = terminal.finish()

    data: dict[str, Any] = {**parse(out).data}
    assert code == 0
    assert parse(out).meta["changes"] == "applied"
    assert [change["path"] for change in data["changes"]] == ["README.md", "notes", "notes/b.md"]
    assert data["outputs"] == ["README.md", "notes/b.md"]
    assert (project / "README.md").read_text() == "tidied\n"
    assert [path.name for path in (project / "notes").iterdir()] == ["b.md"]


@pytest.mark.parametrize(("key", "state"), [("x", "discarded"), ("q", "pending"), ("\x04", "pending")])
def test_changes_are_discarded_or_left_for_later(
    places: ProjectPaths, project: Path, tidy: tuple[str, ...], key: str, state: str
) -> None:
    with Terminal(places, *tidy) as terminal:
        terminal.expect("q decide later ")
        terminal.say(key)
        code, out = terminal.finish()

    assert code == 0
    assert parse(out).meta["changes"] == state
    assert (project / "README.md").read_text() == "untidy\n"
    with Terminal(places, "changes", stdout_too=True) as terminal:
        assert ("pending" in terminal.read_all()) is (state == "pending")


def test_only_a_person_at_a_terminal_sees_secrets(places: ProjectPaths, write_skill: WriteSkill) -> None:
    key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    write_skill("钥", "---\nname: 钥\ndescription: x\ncommand: python3 go.py\n---\n", {"go.py": f"print('看 {key}')\n"})

    with Terminal(places, "run", "@钥", "--show-secrets", stdout_too=True) as terminal:
        terminal.expect(key)
        terminal.finish()
    with Terminal(places, "run", "@钥", stdout_too=True) as terminal:
        usual = terminal.read_all()
        terminal.finish()
    with Terminal(places, "run", "@钥", "--show-secrets") as terminal:
        code, refused = terminal.finish()
    with Terminal(places, "runs", "show", "latest", "--json") as terminal:
        _, kept = terminal.finish()

    assert "看 •••" in usual
    assert (code, parse(refused).data["type"]) == (1, "InvalidArgs")
    assert key not in kept
