"""What an interpreter opens to a run: only parts of installations that we know, whatever lies beside a program."""

import os
import sys
from pathlib import Path

import pytest

from skillyard.runners.interpreters import Reach, reach_of

HOME_OF_MANAGERS = {
    ".pyenv/versions/3.12.1": "python3",
    ".local/share/uv/python/cpython-3.13.1-linux": "python3.13",
    ".nvm/versions/node/v22.1.0": "node",
    ".local/share/fnm/node-versions/v22.1.0/installation": "node",
    ".asdf/installs/python/3.12.1": "python3",
    ".local/share/mise/installs/ruby/3.4.1": "ruby",
    "miniforge3/envs/分析": "python",
    ".deno": "deno",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path.resolve() / "home"


def env(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", **more}


def make_program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("prefix", HOME_OF_MANAGERS)
def test_an_interpreter_of_a_version_manager_opens_its_own_parts_only(home: Path, prefix: str) -> None:
    program = make_program(home / prefix / "bin" / HOME_OF_MANAGERS[prefix])
    (home / prefix / "notes").mkdir()
    (home / prefix / "lib").symlink_to(home)

    reach = reach_of(program, env(home))

    assert reach == Reach(known=(home / prefix / "bin",))


@pytest.mark.parametrize(
    "prefix", [".cargo", "other", ".local", ".", ".pyenv/versions/x/tools", "miniforge3/../secret"]
)
def test_any_other_program_opens_nothing_and_names_itself(home: Path, prefix: str) -> None:
    program = make_program(Path(os.path.normpath(home / prefix / "bin/tool")))
    (program.parent.parent / "pyvenv.cfg").write_text(f"home = {home}\n")

    assert reach_of(program, env(home)) == Reach(unknown=(program,))


def test_a_system_program_needs_nothing_more() -> None:
    assert reach_of(Path("/usr/bin/env")) == Reach()


def test_a_link_to_a_system_program_opens_nothing_around_the_link(home: Path) -> None:
    link = home / "secret/bin/python3"
    link.parent.mkdir(parents=True)
    link.symlink_to("/usr/bin/env")
    (home / "secret/pyvenv.cfg").write_text(f"home = {home}\n")

    assert reach_of(link, env(home)) == Reach(unknown=(home / "secret",)), "an environment that nobody put on the PATH"


def test_an_environment_on_the_path_opens_its_parts_and_not_what_its_configuration_says(
    home: Path,
) -> None:
    python = home / "venv/bin/python3"
    for folder in ("venv/bin", "venv/lib", "venv/secret", "elsewhere/bin"):
        (home / folder).mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    (home / "venv/pyvenv.cfg").write_text(f"home = {home}/elsewhere/bin\n")

    venv = home / "venv"
    assert reach_of(python, env(home, PATH=f"{python.parent}:/usr/bin")) == Reach(
        known=(venv / "bin", venv / "lib", venv / "pyvenv.cfg")
    )


def test_a_tool_with_an_environment_of_its_own_names_both(home: Path) -> None:
    python = home / ".local/pipx/venvs/black/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    (python.parent.parent / "pyvenv.cfg").write_text("home = /usr/bin\n")
    tool = make_program(home / ".local/bin/black", f"#!{python}\n")

    assert reach_of(tool, env(home)) == Reach(unknown=(tool, python.parent.parent))


def test_a_relative_place_of_a_manager_means_nothing(home: Path) -> None:
    program = make_program(home / "evil/versions/3.12.1/bin/python3")
    evil = os.path.relpath(home / "evil")

    assert reach_of(program, env(home, PYENV_ROOT=evil, PATH=f"{evil}/shims:.:bin:/usr/bin")) == Reach(
        unknown=(program,)
    )


def test_the_python_that_runs_us_is_known() -> None:
    reach = reach_of(Path(sys.executable))

    assert reach.unknown == ()
    assert any(Path(os.__file__).is_relative_to(place) for place in (*reach.known, Path("/usr"), Path("/opt")))
