"""A folder that a run sees copy-on-write: it writes as it likes, and nothing of that reaches the folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillyard.editor.change_set import ChangeKind, read_changes
from tests.sandbox.conftest import ORDINARY, PYTHON, SOURCE, Drive, users

OWN = ["full", "namespaces+seccomp"]


@pytest.fixture
def project(ground: Path) -> Path:
    project = ground / "a project, 中文:\\x"
    for folder in ("mybox", ".git", "sub/deep"):
        (project / folder).mkdir(parents=True)
    for name in ("a.txt", ".env", "sub/deep/key.pem", "sub/b.txt", ".git/config", ".git/HEAD"):
        (project / name).write_text(f"{name}\n")
    for folder in ("upper", "work"):
        (ground / folder).mkdir()
    return project


def policy_of(project: Path) -> dict[str, Any]:
    return {
        "read": [str(project), str(project / ".git")],
        "write": [str(project / "mybox")],
        "hide": [str(project / name) for name in (".env", "sub/deep/key.pem", ".git/config", "nowhere/at/all")],
        "copy_on_write": [str(project), str(project.parent / "upper"), str(project.parent / "work")],
    }


def run(drive: Drive, uid: int, level: str, project: Path, line: str) -> dict[str, Any]:
    return drive(uid, level, argv=["/bin/sh", "-c", line], policy=policy_of(project), cwd=str(project))


def changed(project: Path) -> dict[str, ChangeKind]:
    found = read_changes(project.parent / "upper", project, lambda path: path.split("/")[0] in {"mybox", ".git"})
    return {change.path: change.kind for change in found.changes}


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
def test_changes_go_to_the_upper_layer_alone(drive: Drive, project: Path, uid: int, level: str) -> None:
    line = "echo two >> a.txt && echo n > new && rm sub/b.txt && mkdir d && mv d e && echo m > mybox/m && cat a.txt"
    done = run(drive, uid, level, project, line)

    assert (done["code"], done["copied_on_write"], done["read_only"]) == (0, True, ""), done
    assert done["stdout"] == "a.txt\ntwo\n"
    assert (project / "a.txt").read_text() == "a.txt\n"
    assert sorted(path.name for path in project.iterdir()) == [".env", ".git", "a.txt", "mybox", "sub"]
    assert (project / "mybox/m").read_text() == "m\n"
    assert changed(project) == {
        "a.txt": ChangeKind.MODIFIED,
        "e": ChangeKind.ADDED,
        "new": ChangeKind.ADDED,
        "sub/b.txt": ChangeKind.DELETED,
    }


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
def test_a_run_sees_what_an_earlier_one_changed_and_leaves_its_layer_alone(
    drive: Drive, project: Path, uid: int, level: str
) -> None:
    run(drive, uid, level, project, "echo two >> a.txt; rm -r sub; mkdir sub; echo n > sub/n; echo MINE > .env")
    ground, policy = project.parent, policy_of(project)
    (ground / "upper").rename(ground / "earlier")
    for folder in ("upper", "next"):
        (ground / folder).mkdir()
    policy["copy_on_write"] = [str(project), *(str(ground / name) for name in ("upper", "next"))]
    policy["below"] = str(ground / "earlier")
    before = read_changes(ground / "earlier", project, lambda _: False)

    line = "cat .env a.txt; ls sub; echo three >> a.txt; rm sub/n; echo o > sub/o"
    done = drive(uid, level, argv=["/bin/sh", "-c", line], policy=policy, cwd=str(project))

    assert (done["stdout"], done["copied_on_write"]) == ("MINE\na.txt\ntwo\nn\n", True), done
    assert (ground / "upper" / "a.txt").read_text() == "a.txt\ntwo\nthree\n"
    assert read_changes(ground / "earlier", project, lambda _: False) == before
    merged = (
        "import json, sys; from pathlib import Path; from skillyard.editor.change_set import merge_layers\n"
        "ground, project = Path(sys.argv[1]), Path(sys.argv[2]); (ground / 'merged').mkdir()\n"
        "print(merge_layers([ground / 'upper'], ground / 'earlier', project, ground / 'merged'))"
    )
    env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run((PYTHON, "-c", merged, ground, project), user=uid, env=env, capture_output=True, check=False)
    assert (code.stdout, code.stderr) == (b"[]\n", b"")
    both = read_changes(ground / "merged", project, lambda path: path == ".env")
    assert {change.path: str(change.kind) for change in both.changes} == {
        "a.txt": "modified",
        "sub/b.txt": "deleted",
        "sub/deep": "deleted",
        "sub/o": "added",
    }


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
def test_hidden_files_are_not_there_at_all(drive: Drive, project: Path, uid: int, level: str) -> None:
    done = run(drive, uid, level, project, "find . | sort; cat .env sub/deep/key.pem; cat .git/config")

    assert ".env" not in done["stdout"].split()
    assert "./.env" not in done["stdout"].split()
    assert "key.pem" not in done["stdout"]
    for secret in (".env\n", "sub/deep/key.pem\n", ".git/config\n"):
        assert secret not in done["stdout"]
    assert done["stderr"].count("No such file") == 3


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
def test_a_program_may_make_its_own_file_under_a_hidden_name(drive: Drive, project: Path, uid: int, level: str) -> None:
    done = run(drive, uid, level, project, "echo MINE > .env && cat .env && rm .env && ls -a")

    assert done["stdout"].startswith("MINE\n")
    assert (project / ".env").read_text() == ".env\n"


@pytest.mark.parametrize("level", OWN)
@pytest.mark.parametrize("uid", users())
def test_a_guarded_folder_inside_stays_read_only(drive: Drive, project: Path, uid: int, level: str) -> None:
    done = run(drive, uid, level, project, "echo x > .git/x; rm -rf .git; mv .git elsewhere; ls .git; echo x > ../x")

    assert done["stdout"] == "HEAD\n"
    assert (project / ".git/config").read_text() == ".git/config\n"
    assert not (project.parent / "x").exists()
    assert changed(project) == {}


@pytest.mark.parametrize("uid", users())
def test_files_left_in_the_private_home_are_named(drive: Drive, project: Path, uid: int) -> None:
    done = run(
        drive, uid, "full", project, "mkdir -p ~/.config ~/.cache && echo 1 > ~/.config/me && echo 1 > ~/.cache/x"
    )

    assert done["home_files"] == [".config/me"]


@pytest.mark.parametrize("level", ["bubblewrap", "landlock+seccomp"])
@pytest.mark.parametrize("uid", users())
def test_without_our_namespaces_the_folder_is_only_read(drive: Drive, project: Path, uid: int, level: str) -> None:
    done = drive(
        uid,
        level,
        argv=["/bin/sh", "-c", "cat a.txt; echo two >> a.txt; echo b > mybox/b"],
        policy=policy_of(project),
        cwd=str(project),
        weak=True,
    )

    assert done["stdout"] == "a.txt\n"
    assert (done["copied_on_write"], done["read_only"]) == (False, level)
    assert (project / "a.txt").read_text() == "a.txt\n"
    assert (project / "mybox/b").read_text() == "b\n"


@pytest.mark.parametrize("uid", users())
def test_where_the_layers_cannot_be_mounted_the_run_goes_on_read_only(drive: Drive, project: Path, uid: int) -> None:
    policy = policy_of(project)
    policy["copy_on_write"][1] = str(project.parent / "missing")
    done = drive(uid, "full", argv=["/bin/sh", "-c", "cat a.txt; echo > x"], policy=policy, cwd=str(project))

    assert done["stdout"] == "a.txt\n"
    assert not done["copied_on_write"]
    assert done["read_only"] == "No such file or directory"
    assert not (project / "x").exists()


GRANTED = "echo 2 >> a.txt; echo 2 >> sub/b.txt; echo 2 > sub/new; echo 2 > new; cat a.txt"


def check_granted(project: Path, done: dict[str, Any]) -> None:
    assert not done["copied_on_write"]
    assert done["stdout"] == "a.txt\n"
    assert (project / "a.txt").read_text() == "a.txt\n"
    assert (project / "sub/b.txt").read_text() == "sub/b.txt\n2\n"
    assert (project / "sub/new").read_text() == "2\n"
    assert not (project / "new").exists()


@pytest.mark.parametrize("level", ["full", "bubblewrap", "landlock+seccomp"])
@pytest.mark.parametrize("uid", users())
def test_a_granted_path_is_written_directly_where_there_are_no_layers(
    drive: Drive, project: Path, uid: int, level: str
) -> None:
    policy = policy_of(project)
    policy["hide"] = []  # without namespaces nothing new can be made beside something hidden
    policy["copy_on_write"] += [str(project / "sub")]
    if level == "full":
        policy["copy_on_write"][1] = str(project.parent / "missing")
    done = drive(uid, level, argv=["/bin/sh", "-c", GRANTED], policy=policy, cwd=str(project), weak=True)

    check_granted(project, done)


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A project of an ordinary user that everybody may write."""
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    base = Path(tempfile.mkdtemp(prefix="foreign-")).resolve()
    base.chmod(0o755)
    for folder in ("project/mybox", "project/sub", "upper", "work"):
        (base / folder).mkdir(parents=True)
    for name in ("project/a.txt", "project/sub/b.txt"):
        (base / name).write_text("".join((name.removeprefix("project/"), "\n")))
        (base / name).chmod(0o666)
    for path in base.rglob("project*/**"):
        os.chown(path, ORDINARY, ORDINARY)
        path.chmod(0o777)
    yield base / "project"
    shutil.rmtree(base)


def test_a_project_of_another_user_is_only_read(drive: Drive, foreign: Path) -> None:
    policy = policy_of(foreign)
    policy |= {"hide": [], "copy_on_write": [*policy["copy_on_write"], str(foreign / "sub")]}
    done = drive(0, "full", argv=["/bin/sh", "-c", GRANTED], policy=policy, cwd=str(foreign))

    check_granted(foreign, done)
    assert done["read_only"] == "its files belong to another user or group"


def test_layers_that_lie_on_an_overlay_leave_the_project_read_only(project: Path) -> None:
    """As in a container whose SKILLYARD_HOME lies in the container itself."""
    base = project.parent
    for folder in ("lower", "above", "scratch", "merged"):
        (base / folder).mkdir()
    code = (
        "import sys; from pathlib import Path; from skillyard.sandbox.launch import *\n"
        "project, merged = map(Path, sys.argv[1:])\n"
        "for name in ('upper', 'work'): (merged / name).mkdir()\n"
        "policy = Policy(read=(project,), copy_on_write=CopyOnWrite(project, merged / 'upper', merged / 'work'))\n"
        "done = make_sandbox()(Launch(('/bin/sh', '-c', 'cat a.txt; echo > x'), project, policy=policy))\n"
        "print(done.stdout.decode(), done.copied_on_write, done.read_only)\n"
    )
    options = f"userxattr,lowerdir={base}/lower,upperdir={base}/above,workdir={base}/scratch"
    line = f'mount -t overlay none -o "{options}" "$2" && exec "$0" -c "$3" "$1" "$2"'
    words = ["unshare", "-rm", "sh", "-c", line, PYTHON, str(project), str(base / "merged"), code]
    done = subprocess.run(words, capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no overlay to stand on: {done.stderr}")

    reason = "the folder for its changes cannot be an upper layer: fsconfig: Invalid argument"
    assert done.stdout == f"a.txt\n False {reason}\n", done.stderr
    assert not (project / "x").exists()


def test_what_its_owner_may_not_read_is_left_out(ground: Path) -> None:
    for folder in ("upper/closed", "upper/open", "project"):
        (ground / folder).mkdir(parents=True)
    (ground / "upper/open/secret").write_text("x")
    (ground / "upper/open/secret").chmod(0)
    (ground / "upper/closed").chmod(0)
    code = (
        "import sys; from pathlib import Path; from skillyard.editor.change_set import read_changes\n"
        "base = Path(sys.argv[1]); print(read_changes(base / 'upper', base / 'project', lambda path: False).skipped)\n"
    )
    user = ORDINARY if os.getuid() == 0 else os.getuid()
    for path in ground.rglob("*"):
        if os.getuid() == 0:
            os.chown(path, user, user)
    words = [PYTHON, "-c", code, str(ground)]
    done = subprocess.run(
        words, capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}, user=user, check=False
    )
    (ground / "upper/closed").chmod(0o700)

    assert done.stdout == "('closed', 'open/secret')\n", done.stderr
