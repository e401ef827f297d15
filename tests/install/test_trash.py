"""Removing skills that nobody installed, and bringing them back."""

import json
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.app.task import Kernel
from tests.conftest import Skillyard, WriteSkill

MINE = "---\nname: 我的笔记\ndescription: d\n---\nBody\n"


@pytest.mark.parametrize("root", [".claude/skills", "skills"])
def test_a_skill_that_was_written_here_goes_to_the_trash_and_comes_back(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path, yard: Project, root: str
) -> None:
    folder = write_skill("my notes", MINE, {"a/b.txt": "x"}, root=project / root).parent
    yard.activate("my notes")

    refused = skillyard("remove", "我的笔记")
    assert (refused.returncode, folder.is_dir()) == (1, True)
    assert str(folder) in skillyard("remove", "我的笔记", "--json").stdout
    done = skillyard("remove", "我的笔记", "--yes", "--json")
    assert json.loads(done.stdout)["data"]["trashed"] == [str(folder)]
    assert not folder.exists()
    assert yard.contents.active().unreadable == ()
    back = skillyard("restore", "my notes", "--json")
    assert json.loads(back.stdout)["data"]["restored"] == [str(folder)]
    assert ((folder / "SKILL.md").read_text(), (folder / "a/b.txt").read_text()) == (MINE, "x")
    assert skillyard("restore", "my notes").returncode == 1


def test_what_took_the_place_meanwhile_is_not_overwritten(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("mine", MINE)
    skillyard("remove", "mine", "--yes")
    second = write_skill("mine", MINE.replace("Body", "Newer"))

    assert skillyard("restore", "mine").returncode == 1
    assert "Newer" in second.read_text()
    skillyard("remove", "mine", "--yes")
    skillyard("restore", "mine")
    assert "Newer" in second.read_text()  # the last that was removed
    assert skillyard("restore", "nothing-like-it").returncode == 1


def test_the_command_that_brings_it_back_can_be_pasted(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("my own notes", MINE)

    assert (
        "`skillyard restore 'my own notes'`" in skillyard("remove", "my own notes", "--yes", "--format", "human").stdout
    )


def test_the_trash_of_one_project_is_not_that_of_another(
    skillyard: Skillyard, write_skill: WriteSkill, tmp_path: Path
) -> None:
    write_skill("mine", MINE)
    skillyard("remove", "mine", "--yes")
    (tmp_path / "other" / ".git").mkdir(parents=True)

    assert skillyard("restore", "mine", cwd=tmp_path / "other").returncode == 1


def test_a_listed_skill_that_cannot_be_removed_here_is_told_with_its_place(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path, places: ProjectPaths
) -> None:
    role = project / "agents" / "clerk"
    role.mkdir(parents=True)
    (role / "agent.yaml").write_text("name: clerk\nskills:\n  - {name: filing, entry: f.py}\n")
    (role / "f.py").write_text("")
    user = write_skill("style", MINE, root=places.user_home / ".claude" / "skills")
    real = write_skill("real", MINE.replace("我的笔记", "real"), root=project / "elsewhere").parent
    (project / ".claude/skills").mkdir(parents=True)
    (project / ".claude/skills/linked").symlink_to(real)

    for name, place in (("style", str(user)), ("linked", "linked")):
        told = skillyard("remove", name, "--yes")
        assert told.returncode == 1
        assert "SkillNotFound" not in told.stdout
        assert place in told.stdout
    assert user.is_file()
    assert (project / ".claude/skills/linked").is_symlink()
    listed = json.loads(skillyard("list", "--json").stdout)["data"]["skills"]
    for each in listed:
        assert "SkillNotFound" not in skillyard("remove", str(each["name"]), "--json").stdout


def test_the_worker_says_what_a_hand_written_skill_is_and_leaves_it(
    skillyard: Skillyard, write_skill: WriteSkill, yard: Project
) -> None:
    skillyard("init")
    folder = write_skill("mine", MINE).parent

    result = Kernel(yard, "en").task("worker", "uninstall", "run python bin/skill_manager.py uninstall mine")

    assert result.data["type"] == "InvalidArgs"
    assert str(folder) in str(result.data["msg"])
    assert "skillyard remove mine" in str(result.data["msg"])
    assert folder.is_dir()
