"""Which program runs a script: the machine's, never one that the skill brings."""

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
