"""What is said to somebody who does not know the command yet: suggestions, help, and a no."""

import re
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from tests.conftest import Skillyard, WriteSkill
from tests.faces.test_terminal import Terminal

REPORT = """\
---
name: report
description: Writes a report.
command: echo {topic} {days}
params: {topic: {required: true, description: What it is about}, days: {type: int, default: 7}}
---
"""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("install x", "skillyard add"),
        ("uninstall x", "skillyard remove"),
        ("logs", "skillyard runs"),
        ("schedule", "skillyard jobs add"),
        ("lst", "skillyard list"),
        ("@report x", "skillyard run @report x"),
        ("runs shw", "skillyard runs show"),
    ],
)
def test_a_wrong_command_names_the_one_that_was_meant(skillyard: Skillyard, typed: str, meant: str) -> None:
    done = skillyard(*typed.split())

    assert done.returncode == 2
    assert f"did you mean `{meant}`?" in done.stderr
    assert "\nusage: skillyard" in done.stderr


def test_every_meaning_is_a_command_that_exists() -> None:
    from skillyard.faces.cli.main import _MEANT, COMMANDS

    assert {meant.split()[0] for meant in _MEANT.values()} <= COMMANDS.keys()


def test_help_of_a_command_is_its_help(skillyard: Skillyard) -> None:
    assert skillyard("help", "run").stdout == skillyard("run", "--help").stdout
    assert skillyard("help", "jobs", "add").stdout == skillyard("jobs", "add", "--help").stdout


def test_options_of_ours_may_stand_before_the_command(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("report", REPORT)

    assert skillyard("--lang", "zh", "list").stdout == skillyard("list", "--lang", "zh").stdout
    assert '"report"' in skillyard("--format=json", "list").stdout
    assert skillyard("--raw", "run", "@report", "x").stdout == "x 7"


def test_the_help_of_a_skill_shows_its_params(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("report", REPORT)
    write_skill("helps", "---\nname: helps\ndescription: x\ncommand: echo {help}\n---\n")

    shown = skillyard("run", "@report", "--help", "--format", "human")
    own = skillyard("run", "@helps", "--help", "me")

    assert "usage: skillyard run @report <topic> [days]" in shown.stdout
    assert re.search(r"topic +\(string\) +What it is about", shown.stdout)
    assert re.search(r"days +\(int\) += 7", shown.stdout)
    assert 'content: "me"' in own.stdout, "a param of that name wins"


def test_a_no_is_an_answer_and_no_error(places: ProjectPaths, project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin/x.py").write_text("print(1)\n")

    with Terminal(places, "trust", stdout_too=True) as terminal:
        terminal.expect("[y/N] ")
        terminal.say("n")
        seen = terminal.read_all()
        code, _ = terminal.finish()

    assert code == 1
    assert seen.rstrip().endswith("Nothing was changed.")
    assert "InvalidArgs" not in seen


def test_a_person_gets_advice_for_persons_and_an_agent_its_own(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("word-count", "---\nname: word-count\ndescription: x\n---\n")

    agent = skillyard("run", "@wordcount")
    person = skillyard("run", "@wordcount", "--format", "human")

    assert "install it first" in agent.stdout
    assert "→ did you mean @word-count?" in person.stdout
    assert "install it first" not in person.stdout + person.stderr
