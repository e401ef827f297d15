"""Generated docs: written from the code, and checked against it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.envelope_schema import envelope_schema

from skillyard.faces.cli.main import COMMANDS
from tests.conftest import Skillyard

ROOT = Path(__file__).parent.parent


def docs(*args: str, into: Path) -> "subprocess.CompletedProcess[str]":
    command: list[str | Path] = [sys.executable, "-m", "tools.docs", "--into", into, *args]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60, cwd=ROOT)


def test_docs_that_were_just_written_are_up_to_date(tmp_path: Path) -> None:
    assert docs(into=tmp_path).returncode == 0

    checked = docs("--check", into=tmp_path)

    assert (checked.returncode, checked.stdout) == (0, "")
    assert json.loads((tmp_path / "reference/envelope.schema.json").read_text("utf-8")) == envelope_schema()


def test_a_check_names_what_is_out_of_date_and_writes_nothing(tmp_path: Path) -> None:
    docs(into=tmp_path)
    page = tmp_path / "reference" / "command-line.md"
    page.write_text("old", "utf-8")

    checked = docs("--check", into=tmp_path)

    assert checked.returncode == 1
    assert checked.stdout == "out of date: docs/reference/command-line.md\n"
    assert page.read_text("utf-8") == "old"


def test_the_reference_has_a_section_for_every_command_and_the_ones_below_it(tmp_path: Path) -> None:
    docs(into=tmp_path)
    page = (tmp_path / "reference" / "command-line.md").read_text("utf-8")

    for name in COMMANDS:
        assert f"\n## skillyard {name}\n\n```text\nusage: skillyard {name}" in page
    assert "\n### skillyard runs list\n" in page


@pytest.mark.parametrize("command", [(), ("run",), ("runs", "list")], ids=" ".join)
def test_what_the_reference_says_is_what_help_says(
    command: tuple[str, ...], tmp_path: Path, skillyard: Skillyard
) -> None:
    docs(into=tmp_path)

    page = (tmp_path / "reference" / "command-line.md").read_text("utf-8")

    help_text = skillyard(*command, "--help").stdout.replace("python -m skillyard", "skillyard")
    assert help_text.rstrip() in page
