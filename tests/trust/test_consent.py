"""What a person is shown before they trust a project, and what that trust is for."""

import json
from pathlib import Path

import pytest

from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.trust.consent import (
    are_settings_trusted,
    is_trusted,
    show_wants,
    trust,
    trusted_before,
    wants,
)
from skillyard.trust.own_files import lay_out
from tests.conftest import Skillyard


def asks_for(project: Path, database: str) -> str:
    """What `trust` would show."""
    (project / "skillyard.toml").write_text(f'[engine]\ndatabase = "{database}"\n')
    (want,) = wants(project)
    return want.what


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://evil.example/x@db.example/jobs",
        "postgresql://evil.example?x=@db.example/jobs",
        "postgresql://me:x/y@evil.example/z@db.example/jobs",
        "postgresql://you@evil.example,db.example/jobs",
    ],
)
def test_a_database_is_shown_as_the_one_it_is_and_trust_in_one_is_for_no_other(
    other: str, yard: Project, project: Path
) -> None:
    asks_for(project, "postgresql://db.example/jobs")
    trust(yard.grants, project)
    assert is_trusted(yard.grants, project)

    shown = asks_for(project, other)

    assert "evil.example" in shown
    assert not is_trusted(yard.grants, project)


@pytest.mark.parametrize(
    "database",
    ["postgresql://me:hunter2@db.example:5432/jobs", "postgresql://db.example/jobs?user=me&password=hunter2"],
)
def test_a_password_is_not_shown(database: str, project: Path) -> None:
    shown = asks_for(project, database)

    assert "hunter2" not in shown
    assert "db.example" in shown


@pytest.mark.parametrize("script", ["bin/deep/er.py", "bin/without-ending", "bin/skill_manager.pyw", "bin/er.py"])
def test_a_script_that_nobody_was_shown_is_not_trusted_with_the_rest(script: str, yard: Project, project: Path) -> None:
    lay_out(project)
    (project / "skillyard.toml").write_text('[catalog]\nroots = ["more"]\n')
    trust(yard.grants, project)
    assert is_trusted(yard.grants, project)

    (project / script).parent.mkdir(parents=True, exist_ok=True)
    (project / script).write_text("print('ran')\n")

    assert "bin/" in {want.where for want in wants(project)}
    assert not is_trusted(yard.grants, project)
    result = Kernel(yard).task("worker", "x", f"run python {script}")
    assert result.data["type"] == "NotGranted"


def trusted_bin(yard: Project, project: Path) -> Kernel:
    (project / "bin").mkdir()
    (project / "bin" / "run.py").write_text("import helper\nprint(helper.WORD, open('read.txt').read())\n")
    (project / "bin" / "helper.py").write_text("WORD = 'good'\n")
    (project / "bin" / "data.txt").write_text("data")
    (project / "read.txt").write_text("read")
    kernel = Kernel(yard)
    assert kernel.task("worker", "x", "run python bin/run.py").data["type"] == "NotGranted"
    trust(yard.grants, project)
    assert kernel.task("worker", "x", "run python bin/run.py").data == {"content": "good read"}
    return kernel


@pytest.mark.parametrize(
    ("file", "text", "change"),
    [
        ("helper.py", "WORD = 'evil'\n", "changed"),
        ("data.txt", "other", "changed"),
        ("run.py", "print('evil')\n", "changed"),
        ("new.bin", "x", "added"),
        ("deep/__init__.py", "", "added"),
        ("data.txt", None, "removed"),
    ],
)
def test_trust_in_bin_is_for_the_bytes_of_every_file(
    file: str, text: str | None, change: str, yard: Project, project: Path
) -> None:
    kernel = trusted_bin(yard, project)
    path = project / "bin" / file
    if text is None:
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    refused = kernel.task("worker", "x", "run python bin/run.py")

    assert (refused.data["type"], refused.data["grant"]) == ("NotGranted", "skillyard trust")
    assert refused.data["bin"] == {change: [f"bin/{file}"]}
    (want,) = wants(project, trusted_before(yard.grants))
    assert want.files == ((change, f"bin/{file}"),)
    assert not is_trusted(yard.grants, project)


def test_what_is_trusted_is_what_was_shown(yard: Project, project: Path) -> None:
    kernel = trusted_bin(yard, project)
    (project / "bin" / "helper.py").write_text("WORD = 'shown'\n")
    shown = show_wants(yard.grants, project)
    (project / "bin" / "helper.py").write_text("WORD = 'evil'\n")

    trust(yard.grants, project, shown)

    assert kernel.task("worker", "x", "run python bin/run.py").data["type"] == "NotGranted"
    (project / "bin" / "helper.py").write_text("WORD = 'shown'\n")
    assert kernel.task("worker", "x", "run python bin/run.py").data["content"] == "shown read"


def test_an_edited_script_does_not_switch_the_projects_settings_off(yard: Project, project: Path) -> None:
    (project / "skillyard.toml").write_text('[catalog]\nroots = ["more"]\n')
    trusted_bin(yard, project)
    (project / "bin" / "run.py").write_text("print('other')\n")

    assert not is_trusted(yard.grants, project)
    assert are_settings_trusted(yard.grants, project)


def test_the_list_says_what_changed_since_the_last_time(skillyard: Skillyard, yard: Project, project: Path) -> None:
    trusted_bin(yard, project)
    (project / "bin" / "helper.py").write_text("WORD = 'other'\n")
    (project / "bin" / "added.py").write_text("")
    (project / "bin" / "data.txt").unlink()

    told = json.loads(skillyard("trust", "--check", "--json").stdout)

    assert told["data"]["trusted"] is False
    assert told["data"]["wants"][0]["files"] == [
        {"path": "bin/added.py", "change": "added"},
        {"path": "bin/data.txt", "change": "removed"},
        {"path": "bin/helper.py", "change": "changed"},
    ]
    assert skillyard("trust", "--accept").returncode == 0
    assert skillyard("task", "worker", "x", "run python bin/run.py").returncode == 0
