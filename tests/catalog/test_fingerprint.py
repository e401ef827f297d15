"""A grant is for exactly the bytes of a skill: whatever could make it do something else changes the fingerprint."""

import os
import py_compile
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from skillyard.app.project import Project
from skillyard.catalog.fingerprint import fingerprint, hash_folder
from skillyard.core.result import Request
from skillyard.trust.permissions import grant
from tests.conftest import WriteSkill
from tests.sandbox.conftest import ORDINARY, SOURCE
from tests.sandbox.conftest import PYTHON as PYTHON_OF_ALL

SKILL = "---\nname: sly\ndescription: x\ncommand: sh {file}\n---\n"


@pytest.mark.parametrize("file", ["__pycache__/run.sh", "__pycache__/run.pyc", ".DS_Store", "run.sh", "deep/er/run.sh"])
def test_a_grant_is_void_once_the_program_is_another_whatever_its_name(
    file: str, yard: Project, write_skill: WriteSkill
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


@pytest.mark.parametrize("name", [".git", ".GIT", "deep/.git"])
@pytest.mark.parametrize("script", ["", "{name}/hooks/run.py"])
def test_no_run_uses_what_lies_in_a_repository_of_the_skill(
    name: str, script: str, yard: Project, write_skill: WriteSkill
) -> None:
    file = f"{name}/hooks/run.py"
    write_skill("sly", SKILL.replace("sh {file}", f"python3 {file}"), {file: "print('ran')"})
    grant(yard.grants, yard.runtime.resolve(Request(name="sly")), ("network",))

    result = yard.runtime.run(Request(name="sly", script=script.format(name=name)))

    assert result.state == "error"
    assert result.data.get("content") != "ran"


def test_a_pipe_or_a_socket_in_the_folder_neither_hangs_nor_counts(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    before = fingerprint(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))

        assert fingerprint(tmp_path) == before


def test_a_copy_holds_exactly_what_was_hashed(tmp_path: Path) -> None:
    folder, copy = tmp_path / "skill", tmp_path / "copy"
    (folder / "empty").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "run").write_text("x")
    (folder / "run").chmod(0o4755)
    (folder / "name \udcff 中文 😀").write_text("y")
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")

    marks = hash_folder(folder, copy)

    assert hash_folder(copy) == marks
    assert sorted(path.name for path in copy.iterdir()) == sorted(["empty", "link", "name \udcff 中文 😀", "run"])
    assert stat.S_IMODE((copy / "run").stat().st_mode) == 0o555
    assert (copy / "link").readlink() == Path("/etc/passwd")


def test_what_cannot_be_read_is_told() -> None:
    """As an ordinary user: root reads everything."""
    folder = Path(tempfile.mkdtemp(prefix="closed-"))  # pytest's own folders are closed to other users
    folder.chmod(0o755)
    (folder / "closed").mkdir(mode=0)
    code = "import sys; from pathlib import Path; from skillyard.catalog.fingerprint import fingerprint\n"
    code += "from skillyard.core.errors import PermissionDenied\n"
    code += "try:\n    fingerprint(Path(sys.argv[1]))\nexcept PermissionDenied as error:\n    print(error.msg)\n"
    user = ORDINARY if os.getuid() == 0 else os.getuid()
    command = (PYTHON_OF_ALL, "-c", code, str(folder))
    done = subprocess.run(
        command, user=user, env={"PYTHONPATH": str(SOURCE)}, cwd="/", capture_output=True, text=True, check=False
    )
    (folder / "closed").rmdir()
    folder.rmdir()

    assert done.stdout == f"{folder}/closed: it cannot be read, so nothing can be granted to it\n", done.stderr


def test_the_trust_in_a_role_is_for_its_programs_and_not_for_its_documents(tmp_path: Path) -> None:
    def mark() -> str:
        return fingerprint(tmp_path, in_role=True)

    (tmp_path / "agent.yaml").write_text("name: x\n")
    (tmp_path / "notes.md").write_text("a")
    before = mark()
    (tmp_path / "notes.md").write_text("b")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("c")
    (tmp_path / "agent.yaml~").write_text("c")
    assert mark() == before
    for name, text in {
        "CLAUDE.md": "x",
        "tool.py": "x",
        "data.json": "{}",
        "agent.yaml": "y",
        "notes.md": "#!/bin/sh",
        "module.pyc": "x",
    }.items():
        (tmp_path / name).write_text(text)
        assert mark() != before, name
        before = mark()


def test_what_git_keeps_for_itself_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    before = fingerprint(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main")

    assert fingerprint(tmp_path) == before
