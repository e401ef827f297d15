"""A run sees the project copy-on-write: what it changed is applied by a person, all or nothing."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillyard.app.project import Project
from skillyard.core.errors import SkillError
from skillyard.core.result import Request, Result
from skillyard.core.states import State

WriteSkill = Callable[..., Path]
MANIFEST = "---\nname: change\ndescription: Changes things.\ncommand: sh change.sh {code}\n---\n"
HUGE = "truncate -s 2G big; sleep 50\n"
CHANGE = "echo more >> a.txt; echo new > out.json; rm gone.txt; echo box > mybox/box.txt; cat .env; exit $1\n"


@pytest.fixture
def project(yard: Project, write_skill: WriteSkill) -> Project:
    write_skill("change", MANIFEST, {"change.sh": CHANGE})
    for name in ("a.txt", "gone.txt", ".env"):
        (yard.root / name).write_text(f"{name}\n")
    return yard


def run(project: Project, code: int, *, apply: bool = False) -> Result:
    return project.runtime.run(Request("change", (str(code),), apply=apply))


def files(project: Project) -> dict[str, str]:
    return {name: (project.root / name).read_text() for name in ("a.txt", ".env")}


def test_the_changes_of_a_run_wait_and_are_applied_together(project: Project) -> None:
    result = run(project, 0)

    assert result.state is State.SUCCESS
    assert result.meta["changes"] == "pending"
    assert {change["path"]: change["kind"] for change in result.data["changes"]} == {  # type: ignore[union-attr,call-overload,index]
        "a.txt": "modified",
        "gone.txt": "deleted",
        "out.json": "added",
    }
    assert files(project) == {"a.txt": "a.txt\n", ".env": ".env\n"}
    assert (project.root / "mybox/box.txt").read_text() == "box\n"

    (kept,) = project.changes.list(project.root)
    project.changes.apply(kept, project.read_changes(kept).changes)

    assert files(project) == {"a.txt": "a.txt\nmore\n", ".env": ".env\n"}
    assert not (project.root / "gone.txt").exists()
    assert project.changes.list(project.root) == ()


def test_a_file_that_the_caller_names_can_be_changed_as_any_other(project: Project, write_skill: WriteSkill) -> None:
    manifest = "---\nname: edit\ndescription: Edits.\ncommand: sh edit.sh {file}\nparams: {file: {type: path}}\n---\n"
    write_skill("edit", manifest, {"edit.sh": 'echo more >> "$1" && cat "$1"\n'})

    result = project.runtime.run(Request("edit", ("a.txt",)))

    assert result.data["content"] == "a.txt\nmore"
    assert result.data["changes"] == [{"kind": "modified", "path": "a.txt", "size": 11, "mode": "644"}]


def test_a_failed_run_changes_nothing_and_can_be_looked_at(project: Project) -> None:
    result = run(project, 3, apply=True)

    assert result.state is State.ERROR
    assert result.meta["changes"] == "failed"
    assert files(project)["a.txt"] == "a.txt\n"
    assert [str(kept.state) for kept in project.changes.list(project.root)] == ["failed"]


def test_a_person_can_say_beforehand_that_changes_are_applied(project: Project) -> None:
    result = run(project, 0, apply=True)

    assert result.meta["changes"] == "applied"
    assert files(project)["a.txt"] == "a.txt\nmore\n"


def test_a_run_that_changes_nothing_leaves_nothing(project: Project, write_skill: WriteSkill) -> None:
    write_skill("look", "---\nname: look\ndescription: Looks.\ncommand: cat a.txt\n---\n")

    result = project.runtime.run(Request("look"))

    assert result.data["content"] == "a.txt"
    assert "changes" not in result.meta
    assert project.changes.list(project.root) == ()
    spare = project.paths.own_home / "changes" / ".spare"
    assert list(spare.parent.iterdir()) == [spare]
    assert list((spare / "upper").iterdir()) == []


def test_the_layers_of_a_run_that_changed_nothing_are_the_next_ones(project: Project, write_skill: WriteSkill) -> None:
    """Whatever the first did to the folder of the project itself is not seen by the second."""
    about = "---\nname: look\ndescription: Looks.\ncommand: sh look.sh\n---\n"
    write_skill("look", about, {"look.sh": "chmod 700 . ; touch x && rm x; stat -c %a .; ls\n"})
    (project.root).chmod(0o755)

    told = [project.runtime.run(Request("look")) for _ in range(3)]
    changed = run(project, 0)

    assert {result.data["content"] for result in told} == {"700\na.txt\ngone.txt\nmybox"}
    assert {result.meta.get("changes") for result in told} <= {None, "pending"}
    assert (project.root).stat().st_mode & 0o777 == 0o755
    assert [change["path"] for change in changed.data["changes"]] == ["a.txt", "gone.txt", "out.json"]  # type: ignore[union-attr,call-overload,index]


def test_runs_at_once_have_layers_of_their_own(project: Project, write_skill: WriteSkill) -> None:
    about = "---\nname: put\ndescription: Puts.\ncommand: sh put.sh {name}\nparams: {name: {required: true}}\n---\n"
    write_skill("put", about, {"put.sh": 'test "$1" = none || echo "$1" > "$1.txt"\n'})
    names = ["none", "one", "none", "two", "none", "三", "none", "none"]

    with ThreadPoolExecutor(4) as pool:
        ran = list(pool.map(lambda name: project.run("put", name=name), names))

    found = [[change["path"] for change in result.data.get("changes", [])] for result in ran]  # type: ignore[union-attr,call-overload,index]
    assert found == [[] if name == "none" else [f"{name}.txt"] for name in names]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_layers_of_another_user_are_left_alone(project: Project) -> None:
    spare = project.paths.own_home / "changes" / ".spare"
    (spare / "upper").mkdir(parents=True)
    os.chown(spare, 12345, 12345)

    assert run(project, 0).meta["changes"] == "pending"
    assert (spare / "upper").is_dir()


def test_hidden_files_are_neither_read_nor_changed(project: Project) -> None:
    result = run(project, 0)

    assert ".env" not in str(result.data)


def test_a_run_that_changes_too_much_is_stopped_and_leaves_nothing(project: Project, write_skill: WriteSkill) -> None:
    write_skill("huge", "---\nname: huge\ndescription: Fills.\ncommand: sh x.sh\n---\n", {"x.sh": HUGE})
    started = time.monotonic()

    result = project.runtime.run(Request("huge"))

    assert result.state is State.ERROR
    assert "1 GiB" in str(result.summary)
    assert time.monotonic() - started < 40
    assert list((project.paths.own_home / "changes").iterdir()) == []
    assert not (project.root / "big").exists()


def test_layers_of_a_starting_run_are_never_taken_for_a_dead_ones(project: Project) -> None:
    done, sets = threading.Event(), project.changes

    def recover() -> None:
        while not done.is_set():
            sets.recover()

    other = threading.Thread(target=recover)
    other.start()
    try:
        for number in range(200):
            with sets.open(f"run{number}", project.root, "change") as layers:
                assert layers.upper.is_dir()
                assert layers.work.is_dir()
    finally:
        done.set()
        other.join()


def test_a_set_is_applied_once_by_whoever_comes_first(project: Project) -> None:
    run(project, 0)
    (kept,) = project.changes.list(project.root)
    changes = project.read_changes(kept).changes
    ended: list[str] = []

    def apply() -> None:
        try:
            project.changes.apply(kept, changes)
            ended.append("applied")
        except SkillError as error:
            ended.append(type(error).__name__)

    threads = [threading.Thread(target=apply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(ended) == ["InvalidArgs", "InvalidArgs", "InvalidArgs", "applied"]
    assert (project.root / "a.txt").read_text() == "a.txt\nmore\n"
