"""Which program runs a script: the machine's, never one that the skill brings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillyard.core.errors import InvalidCommand
from skillyard.runners.interpreters import interpreter_of, is_python


@pytest.mark.parametrize("name", ["node", "python3", "python3.99", "sh"])
def test_an_interpreter_that_the_skill_brings_is_neither_started_nor_taken(name: str, tmp_path: Path) -> None:
    fake = tmp_path / name
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    fake.chmod(0o755)
    script = tmp_path / ("x.ts" if name == "node" else "x.py")
    script.write_text(f"#!{fake}\n")

    try:
        words = interpreter_of(script)
    except InvalidCommand:
        words = ("",)  # no node here, or one that is too old

    assert Path(words[0]).parent != tmp_path
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("first", "name", "is_so"),
    [
        ("", "x.py", True),
        ("#!/usr/bin/env python3", "x", True),
        ("#!/usr/bin/env -S uv run --script", "x", True),
        ("#!/usr/bin/env pipx run", "x", True),
        ("#!/bin/sh", "x.py", False),
        ("", "x.sh", False),
        ("", "x", False),
    ],
)
def test_python_is_known_by_the_first_line_or_the_ending(first: str, name: str, is_so: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{first}\n")

    assert is_python(tmp_path / name) is is_so


class Pyenv:
    """A pyenv with two versions. Its shims say who they stand for too late to be waited for: they leave a mark."""

    def __init__(self, folder: Path) -> None:
        self.root, self.asked = folder / "pyenv", folder / "asked"
        for version in ("3.11.9", "工作"):
            program = self.root / "versions" / version / "bin" / "python3"
            program.parent.mkdir(parents=True)
            program.write_bytes(b"")
            program.chmod(0o755)
        shim = self.root / "shims" / "python3"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\ntouch {self.asked}\nexec {sys.executable} "$@"\n')
        shim.chmod(0o755)
        self.project = folder / "project" / "deep"
        self.project.mkdir(parents=True)

    def find(self, **env: str) -> str:
        """As a new process finds it: what was found once is remembered."""
        code = "from skillyard.runners.interpreters import find_program; print(find_program('python3'))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.project,
            env={"PATH": f"{self.root}/shims:/usr/bin:/bin", "PYTHONIOENCODING": "utf-8", **env},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        )
        return done.stdout.strip()

    def program(self, version: str) -> str:
        return str(self.root / "versions" / version / "bin" / "python3")


def test_what_a_shim_of_pyenv_stands_for_is_found_without_starting_it(tmp_path: Path) -> None:
    pyenv = Pyenv(tmp_path)
    (pyenv.root / "version").write_text("3.11.9\n")
    assert pyenv.find() == pyenv.program("3.11.9")
    (pyenv.project.parent / ".python-version").write_text("3.11\n")
    assert pyenv.find() == pyenv.program("3.11.9")
    assert pyenv.find(PYENV_VERSION="工作:3.11.9") == pyenv.program("工作")
    assert not pyenv.asked.exists()


def test_a_project_chooses_a_version_number_and_no_environment_of_the_user(tmp_path: Path) -> None:
    pyenv = Pyenv(tmp_path)
    (pyenv.root / "version").write_text("3.11.9\n")
    (pyenv.project.parent / ".python-version").write_text("工作\n")

    assert pyenv.find() == pyenv.program("3.11.9")


@pytest.mark.parametrize("said", ["", "system", "3.99", "../../../project", "../project/evil", "3.99.0"])
def test_a_shim_is_never_started_whatever_the_version_files_say(said: str, tmp_path: Path) -> None:
    """It would choose by the files of the project it is started in (CVE-2022-35861 was such a choice)."""
    pyenv = Pyenv(tmp_path)
    for file in (pyenv.root / "version", pyenv.project / ".python-version", pyenv.project / ".tool-versions"):
        file.write_text(said)

    found = Path(pyenv.find())

    assert found.is_relative_to("/usr") or found.resolve() == Path(sys.executable).resolve()
    assert not pyenv.asked.exists()


def test_a_pipe_in_the_place_of_a_version_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    pyenv = Pyenv(tmp_path)
    os.mkfifo(pyenv.project / ".python-version")
    (pyenv.root / "version").write_text("3.11.9\n")

    assert pyenv.find() == pyenv.program("3.11.9")
