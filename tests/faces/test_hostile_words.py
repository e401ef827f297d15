"""What strangers wrote, shown to a person: nothing of it moves the cursor, clears the screen or fakes a line."""

import json
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from tests.conftest import Skillyard, WriteSkill
from tests.faces.test_terminal import Terminal

CLEAR = "\x1b[2J"
#: One byte to a terminal that reads it so, and no control character to JSON.
CSI = "\x9b2J\u2028"


def skill(name: str, more: str = "") -> str:
    return f'---\nname: "{name}"\ndescription: Does something\n{more}---\n# x\n'


def test_a_hint_shows_the_names_of_folders_without_what_a_terminal_would_obey(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill(f"one{CLEAR}/same", skill("same"))
    write_skill("two/same", skill("same"))

    shown = skillyard("run", "@same")

    assert "name one of these instead: one" in shown.stderr
    assert CLEAR not in shown.stderr + shown.stdout


def test_the_question_of_trust_lists_each_wish_on_one_line(places: ProjectPaths, project: Path) -> None:
    wish = r"x\u001b[2K\rnothing beyond the rules\nTrust it? [y/N] "
    (project / "skillyard.toml").write_text(f'[catalog]\nroots = ["{wish}"]\n')

    with Terminal(places, "trust") as terminal:
        terminal.expect("Trust it? [y/N] ")
        terminal.expect("\nTrust it? [y/N] ")
        terminal.say("n")
        terminal.finish()

    assert "\x1b" not in terminal.seen
    assert "  - look for skills in x" in terminal.seen
    assert terminal.seen.count("\nTrust it?") == 1


def test_the_question_of_a_grant_shows_a_name_for_what_it_is(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("sly", skill(r"sly\e[2K\rAllow @harmless"))

    with Terminal(places, "grant", "@sly", "network") as terminal:
        terminal.expect("[y/N] ")
        terminal.say("n")
        terminal.finish()

    assert "\x1b" not in terminal.seen
    assert "\rAllow" not in terminal.seen


@pytest.mark.parametrize("verb", ["tail", "show"])
def test_a_log_is_shown_without_what_a_terminal_would_obey(
    verb: str, skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    program = "import sys; sys.stderr.write('before\\x1b[2J\\tafter\\r\\n第二行\\n')"
    write_skill("loud", skill("loud", "command: python3 loud.py\n"), {"loud.py": program})
    run = skillyard("run", "@loud", "--json").stdout.partition('"run": "')[2][:14]

    shown = skillyard("runs", verb, run)

    assert shown.returncode == 0, shown.stdout
    assert "before" in shown.stdout
    assert "after\n" in shown.stdout
    assert "第二行\n" in shown.stdout
    assert not {"\x1b", "\r"} & set(shown.stdout)


def test_the_response_of_a_role_holds_nothing_that_a_terminal_would_obey(skillyard: Skillyard, project: Path) -> None:
    folder = project / "agents" / "analyst"
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text("skills: [{name: talk, entry: talk.py}]\n")
    (folder / "talk.py").write_text(f'print(\'{{"success": true, "action": "x", "data": {{"a": "{CSI}"}}}}\')\n')

    shown = skillyard("role", "run", "analyst", "talk", "x", "--response")

    assert shown.returncode == 0, shown.stdout
    assert "\x9b" not in shown.stdout
    assert json.loads(shown.stdout)["data"] == {"a": CSI}


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["task", "--help"], ["runs"]])
def test_a_stream_that_lacks_a_character_gets_it_escaped(words: list[str], skillyard: Skillyard) -> None:
    shown = skillyard(*words, PYTHONIOENCODING="ascii")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.isascii()
