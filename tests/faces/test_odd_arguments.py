"""Whatever bytes a name or an argument holds: a message and an exit code, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.result import Request
from tests.conftest import WriteSkill

CAT = "---\nname: cat\ndescription: x\ncommand: cat {file}\n---\n"
WORDS = (b"\xff\xfe", b"~nouser/x", b"~nouser/x.zip@b", b"a\nb\x1b[2J", b"x" * 5000, b"", b"http://[", b"@\xff")
COMMANDS = (
    ("run",),
    ("run", "@cat"),
    ("run", "@cat:x.py"),
    ("task", "skills", "x"),
    ("list",),
    ("show",),
    ("add",),
    ("scan",),
    ("validate",),
    ("check",),
    ("new", "--kind", "prompt"),
    ("grant", "@cat"),
    ("flow", "run"),
    ("edit", "append"),
)


def command(places: ProjectPaths, *words: str | bytes, cwd: Path | None = None, **env: bytes | str) -> tuple[int, str]:
    known: dict[str, bytes | str] = {
        "PATH": os.environ["PATH"],
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "SKILLYARD_LANG": "en",
        "https_proxy": "http://127.0.0.1:1",
        **env,
    }
    done = subprocess.run(
        [sys.executable, "-m", "skillyard", *words],
        cwd=cwd or places.project,
        env={name: value for name, value in known.items() if value != "unset"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    assert "Traceback" not in said, said
    return done.returncode, said


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_argument_ends_in_a_traceback(places: ProjectPaths, write_skill: WriteSkill, words: tuple[str, ...]) -> None:
    write_skill("cat", CAT)

    for word in WORDS:
        code, said = command(places, *words, word)
        assert code in {0, 1, 2, 3, 4, 5, 64}, (word, said)
        assert said, word


def test_an_argument_that_is_no_utf8_is_named(places: ProjectPaths) -> None:
    assert command(places, "run", "@cat", b"a\xffb") == (
        2,
        "skillyard: an argument is not UTF-8: 'a\\udcffb'\nusage: skillyard COMMAND …\nTry 'skillyard --help'.\n",
    )


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("search", "cat"),
        ("run", "@cat", "a.txt"),
        ("scan", ".claude/skills"),
        ("validate", ".claude/skills"),
    ],
)
def test_a_skill_folder_that_is_no_utf8_stops_nobody_else(
    places: ProjectPaths, project: Path, write_skill: WriteSkill, words: tuple[str, ...]
) -> None:
    write_skill("cat", CAT)
    (project / "a.txt").write_text("content")
    write_skill("b\udcff", CAT.replace("cat", "odd"))
    (project / ".claude/skills/cat/f\udcff.txt").write_text("x")

    code, said = command(places, *words)

    assert code == 0, said


@pytest.mark.parametrize("words", [("list",), ("run", "@cat", "x"), ("new", "--kind", "prompt", "x"), ("init",)])
def test_a_project_whose_path_is_no_utf8_is_an_error_with_the_next_step(
    places: ProjectPaths, words: tuple[str, ...]
) -> None:
    odd = places.user_home.parent / "p\udcff"
    (odd / ".git").mkdir(parents=True)

    code, said = command(places, *words, cwd=odd)

    assert code == 1
    assert "is not UTF-8: rename that folder" in said


@pytest.mark.parametrize("home", ["unset", "relative", ".", b"/\xff"])
def test_a_home_that_is_missing_or_odd_is_no_traceback(places: ProjectPaths, home: bytes | str) -> None:
    code, said = command(places, "list", HOME=home)

    assert code == (0 if home == "unset" else 1), said
    assert home == "unset" or "HOME must be an absolute path" in said


def test_a_working_directory_that_was_deleted_is_told(places: ProjectPaths, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})\nimport sys; sys.argv = ['skillyard', 'list']\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + "from skillyard.__main__ import main; main()"],
        env={"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_LANG": "en"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert "the working directory was deleted" in done.stdout


@pytest.mark.parametrize("text", ["\ud800", "执行 @cat \udcff", "@\ud800", "执行 @cat file=\ud800"])
def test_half_a_character_in_a_task_is_an_error(yard: Project, write_skill: WriteSkill, text: str) -> None:
    write_skill("cat", CAT)
    kernel = Kernel(yard)

    for agent in ("skills", "worker"):
        assert kernel.task(agent, "x", text).data["type"] == "InvalidArgs"
    assert kernel.task("skills", "x", "@cat a", idempotency_key=text).data["type"] == "InvalidArgs"
    assert yard.runtime.run(Request(name="cat", params={"file": [{text: text}]})).data["type"] == "InvalidArgs"
    assert yard.runtime.run(Request(name=text)).data["type"] == "InvalidArgs"


def test_nul_and_long_values_from_json_are_errors(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("cat", CAT)

    for value in ("a\0b", "x" * 5000, "/" * 5000, "~nouser/x", json.loads('"\\u0000"')):
        assert yard.runtime.run(Request(name="cat", params={"file": value})).state == "error"
        assert yard.runtime.run(Request(name="cat", params={"file": "a", "output": value})).state == "error"
