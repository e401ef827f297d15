"""A folder that a run sees copy-on-write: it writes as it likes, and nothing of that reaches the folder."""

from pathlib import Path
from typing import Any

import pytest

from skillyard.editor.change_set import ChangeKind, read_changes
from tests.sandbox.conftest import Drive, users

OWN = ["full", "namespaces+seccomp"]


@pytest.fixture
def project(ground: Path) -> Path:
    project = ground / "a project, 中文:\\x"
    for folder in ("mybox", ".git", "sub/deep"):
        (project / folder).mkdir(parents=True)
    for name in ("a.txt", ".env", "sub/deep/key.pem", "sub/b.txt", ".git/config"):
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
def test_hidden_files_are_not_there_at_all(drive: Drive, project: Path, uid: int, level: str) -> None:
    done = run(drive, uid, level, project, "find . | sort; cat .env sub/deep/key.pem; cat .git/config")

    assert ".env" not in done["stdout"].split()
    assert "./.env" not in done["stdout"].split()
    assert "key.pem" not in done["stdout"]
    for secret in (".env\n", "sub/deep/key.pem\n", ".git/config\n"):
        assert secret not in done["stdout"].replace("./.git/config\n", "")
    assert done["stderr"].count("No such file") == 2


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

    assert "config" in done["stdout"]
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
