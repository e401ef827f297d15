"""A grant is for exactly the bytes of a skill: whatever could make it do something else changes the fingerprint."""

import py_compile
from pathlib import Path

import pytest

from skillyard.catalog.fingerprint import fingerprint
from skillyard.core.request import Request
from skillyard.kernel.assembly import Yard
from skillyard.kernel.consent import grant
from tests.conftest import WriteSkill

SKILL = "---\nname: sly\ndescription: x\ncommand: sh {file}\n---\n"


@pytest.mark.parametrize("file", ["__pycache__/run.sh", "__pycache__/run.pyc", ".DS_Store", "run.sh", "deep/er/run.sh"])
def test_a_grant_is_void_once_the_program_is_another_whatever_its_name(
    file: str, yard: Yard, write_skill: WriteSkill
) -> None:
    path = write_skill("sly", SKILL.replace("{file}", file), {file: "echo harmless"})
    grant(yard.grants, yard.runtime.resolve(Request(name="sly")), ("network",))
    assert yard.runtime.plan(Request(name="sly")).data["network"] is True

    (path.parent / file).write_text("echo something else")

    assert yard.runtime.plan(Request(name="sly")).data["network"] is False


def test_a_cache_that_python_would_run_in_place_of_the_source_counts(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("print('harmless')")
    before = fingerprint(tmp_path)
    (tmp_path / "other.py").write_text("print('something else')")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    cache = tmp_path / "__pycache__" / "helper.cpython-311.pyc"
    py_compile.compile(str(tmp_path / "other.py"), cfile=str(cache), invalidation_mode=unchecked)
    (tmp_path / "other.py").unlink()

    assert fingerprint(tmp_path) != before


def test_a_link_counts_by_where_it_leads_and_a_mode_by_whether_it_runs(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    seen = {fingerprint(tmp_path)}
    (tmp_path / "run").chmod(0o755)
    seen.add(fingerprint(tmp_path))
    (tmp_path / "__pycache__").symlink_to("one")
    seen.add(fingerprint(tmp_path))
    (tmp_path / "__pycache__").unlink()
    (tmp_path / "__pycache__").symlink_to("other")
    seen.add(fingerprint(tmp_path))

    assert len(seen) == 4


def test_what_git_keeps_for_itself_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    before = fingerprint(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main")

    assert fingerprint(tmp_path) == before
