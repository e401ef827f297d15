"""`skillyard edit`, and the same as bin/file_editor.py."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import from_json, parse
from tests.conftest import Skillyard

FILE_EDITOR = "import sys; from skillyard.faces.bin.file_editor import main; main(sys.argv[1:])"


@pytest.fixture
def file_editor(places: ProjectPaths) -> Skillyard:
    """The thin script, as `init` lays it out."""

    def run(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "SKILLYARD_LANG": "zh",
            "LANG": "C.UTF-8",
        }
        return subprocess.run(
            [sys.executable, "-c", FILE_EDITOR, *words],
            cwd=places.project,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
        )

    return run


def test_s2s_operations_in_s2s_forms(file_editor: Skillyard, project: Path) -> None:
    file, config = project / "mybox/方案.md", project / "mybox/config.json"
    commands = [
        ("append", "mybox/方案.md", "# 汇总"),
        ("append", "mybox/方案.md", "结果: 草稿"),
        ("replace", "mybox/方案.md", "草稿", "定稿"),
        ("insert-after", "mybox/方案.md", "# 汇总", "---"),
        ("regex", "mybox/方案.md", r"结果: (\S+)", r"**\1**"),
        ("update-json", "mybox/config.json", "model.name", "opus"),
        ("update-json", "mybox/config.json", "model.limit", "30000"),
    ]

    for command in commands:
        done = file_editor(*command)
        assert (done.returncode, done.stderr) == (0, "")
        result = parse(done.stdout)
        assert (result.agent, result.summary) == ("skillyard", f"已编辑：{command[1]}")
        assert (result.data["operation"], result.data["changed"]) == (command[0], True)

    assert file.read_text("utf-8") == "# 汇总\n---\n**定稿**"
    assert json.loads(config.read_text()) == {"model": {"name": "opus", "limit": 30000}}


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("replace", "mybox/a", "a", "b"), 0, None),
        (("replace", "mybox/a", "nope", "b"), 2, "TextNotFound"),
        (("insert-after", "mybox/a", "nope", "b"), 2, "TextNotFound"),
        (("replace", "mybox/a", "x", "b"), 1, "AmbiguousText"),
        (("replace", "mybox/missing", "x", "b"), 1, "RuntimeFailed"),
        (("append", "/etc/passwd", "x"), 1, "PermissionDenied"),
        (("append", "mybox/a"), 64, "InvalidArgs"),
        (("regex", "mybox/a", "(", "x"), 64, "InvalidArgs"),
        (("replace", "mybox/a", "a"), 64, "InvalidArgs"),
        (("replace", "mybox/a", "a", "b", "--al"), 64, "InvalidArgs"),
        (("explode", "mybox/a"), 64, "InvalidArgs"),
        ((), 64, "InvalidArgs"),
    ],
)
def test_exit_codes_are_those_of_the_contract(
    skillyard: Skillyard, file_editor: Skillyard, project: Path, words: tuple[str, ...], code: int, kind: str | None
) -> None:
    (project / "mybox").mkdir()
    for run in (partial(skillyard, "edit"), file_editor):
        (project / "mybox/a").write_text("a x x")
        done = run(*words, "--json")

        assert done.returncode == code
        assert len(done.stdout.splitlines()) == 1
        assert from_json(done.stdout).data.get("type") == kind


def test_a_usage_error_shows_the_usage_under_the_name_it_was_called_by(file_editor: Skillyard) -> None:
    shown = file_editor("replace")

    assert (shown.returncode, shown.stdout) == (64, "")
    assert "用法: python bin/file_editor.py replace" in shown.stderr


@pytest.mark.parametrize("content", ["---", "-x", "--not-an-option", "- item", "--all", "", "$(id)", "中文 🧰"])
def test_any_text_can_be_given_and_after_two_dashes_also_the_name_of_an_option(
    skillyard: Skillyard, project: Path, content: str
) -> None:
    done = skillyard("edit", "append", "--json", "mybox/a", "--", content)

    assert done.returncode == 0
    assert (project / "mybox/a").read_text("utf-8") == content
    if content != "--all":
        assert skillyard("edit", "replace", "mybox/a", content or "x", "y").returncode in {0, 2}


def test_content_from_stdin(file_editor: Skillyard, project: Path) -> None:
    assert file_editor("append", "mybox/a", "--stdin", stdin="行一\n行二\n").returncode == 0
    assert file_editor("append", "mybox/a", "both", "--stdin", stdin="x").returncode == 64

    assert (project / "mybox/a").read_text("utf-8") == "行一\n行二\n"


def test_a_dry_run_shows_a_diff_to_people_and_to_programs(skillyard: Skillyard, project: Path) -> None:
    (project / "mybox").mkdir()
    (project / "mybox/a").write_text("one\n\ttwo\n")

    shown = skillyard("edit", "replace", "mybox/a", "one", "1", "--dry-run")
    told = from_json(skillyard("--json", "edit", "replace", "mybox/a", "one", "1", "--dry-run").stdout)

    assert "-one\n+1\n" in shown.stdout
    assert told.data["diff"] == "--- a/mybox/a\n+++ b/mybox/a\n@@ -1,2 +1,2 @@\n-one\n+1\n \ttwo\n"
    assert (project / "mybox/a").read_text() == "one\n\ttwo\n"


def test_a_batch_tells_what_came_of_each_edit(file_editor: Skillyard, project: Path) -> None:
    plan = [
        {"operation": "append", "file": "mybox/a", "content": "x x"},
        {"operation": "replace", "file": "mybox/a", "old": "x", "new": "y", "all": True},
        {"operation": "update-json", "file": "mybox/b.json", "field": "n", "value": "1"},
    ]

    done = file_editor("batch", "-", "--json", stdin=json.dumps(plan))

    data = from_json(done.stdout).data
    assert (data["operation"], data["changed"]) == ("batch", True)
    assert [edit.get("replacements") for edit in data["edits"]] == [None, 2, None]  # type: ignore[union-attr]
    assert (project / "mybox/a").read_text() == "y y"
    assert json.loads((project / "mybox/b.json").read_text()) == {"n": "1"}


def test_outside_a_project_there_is_nothing_to_edit(skillyard: Skillyard, places: ProjectPaths) -> None:
    assert skillyard("edit", "append", "x", "y", cwd=places.user_home).returncode == 64
