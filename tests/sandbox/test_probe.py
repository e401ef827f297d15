"""What a machine offers is found whatever the temporary folder is called, or where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "from skillyard.sandbox.launcher import Launcher\nwith Launcher() as launcher: print(launcher.layers.overlay)"


@pytest.mark.parametrize("name", ["x" * 200, "中文 and spaces", "a,b:c"])
def test_the_probe_takes_a_temporary_folder_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()

    assert probed({"TMPDIR": str(tmp_path / name)}) == probed({})


def test_the_probe_goes_on_where_the_temporary_folder_is_not_there() -> None:
    assert probed({"TMPDIR": "/nonexistent"}) == probed({})


def probed(env: dict[str, str]) -> str:
    given = {"PATH": os.environ["PATH"], **env}
    return subprocess.run([sys.executable, "-c", CODE], env=given, check=True, capture_output=True, text=True).stdout
