"""What a person is shown before they trust a project, and what that trust is for."""

from pathlib import Path

import pytest

from skillyard.kernel.assembly import Yard
from skillyard.kernel.consent import is_trusted, trust, wants
from skillyard.kernel.layout import lay_out
from skillyard.kernel.task import Kernel


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
    other: str, yard: Yard, project: Path
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
def test_a_script_that_nobody_was_shown_is_not_trusted_with_the_rest(script: str, yard: Yard, project: Path) -> None:
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
