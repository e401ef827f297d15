"""A clone cannot make us read the person's files to it by linking them under the name of one of ours."""

import os
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.catalog.files import read_plain
from skillyard.catalog.flowfile import read_workflow
from tests.conftest import Skillyard

SECRET = "PRIVATE-KEY-CANARY"


@pytest.fixture
def secret(places: ProjectPaths) -> Path:
    file = places.user_home / ".ssh" / "id"
    file.parent.mkdir()
    file.write_text(f"{SECRET}\n")
    return file


@pytest.mark.parametrize("target", ["{secret}", "{relative}", "chain", "/proc/self/environ"])
@pytest.mark.parametrize("name", ["SKILL.md", "skill.md"])
def test_a_skill_file_that_is_a_link_out_of_its_folder_is_not_read(
    skillyard: Skillyard, project: Path, secret: Path, target: str, name: str
) -> None:
    skill = project / ".claude" / "skills" / "a"
    skill.mkdir(parents=True)
    (skill / "chain").symlink_to(secret)
    told = target.format(secret=secret, relative=os.path.relpath(secret, skill))
    (skill / name).symlink_to(told)

    for words in (("list", "--json"), ("show", "a"), ("run", "@a"), ("validate", str(skill)), ("search", "KEY")):
        shown = skillyard(*words, API_KEY=SECRET)
        assert SECRET not in shown.stdout + shown.stderr, words
        assert "Traceback" not in shown.stderr


def test_a_link_inside_its_own_folder_is_read(project: Path) -> None:
    skill = project / "skill"
    skill.mkdir()
    (skill / "README.md").write_text("hello")
    (skill / "SKILL.md").symlink_to("README.md")

    assert read_plain(skill / "SKILL.md", 100) == b"hello"


def test_a_skill_folder_that_is_a_link_is_read(skillyard: Skillyard, project: Path) -> None:
    real = project / ".agents" / "skills" / "word"
    real.mkdir(parents=True)
    (real / "SKILL.md").write_text("---\nname: word\ndescription: x\n---\nhello\n")
    (project / ".claude" / "skills").mkdir(parents=True)
    (project / ".claude" / "skills" / "word").symlink_to("../../.agents/skills/word")

    assert "hello" in skillyard("run", "@word").stdout


def test_a_workflow_that_is_a_link_out_of_its_folder_is_not_read(project: Path, secret: Path) -> None:
    (project / "workflow.yaml").symlink_to(secret)

    assert SECRET not in str(read_workflow(project / "workflow.yaml"))
