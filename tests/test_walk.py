"""The walking skeleton: one skill of each kind from the command line to one result, and on to the history."""

from skillyard.core.envelope import from_json, parse
from skillyard.core.states import State
from tests.conftest import Skillyard, WriteSkill

GREET = """\
---
name: greet
description: Says hello
command: echo hello {who}
params:
  who: {required: true}
---
# Greet
"""
IDEAS = "---\nname: ideas\ndescription: 营销想法\n---\n# 想法\n\n先问产品。\n"
STATS = "---\nname: stats\ndescription: Numbers\nprotocol: json\nentry: stats.py\n---\n# Stats\n"
STATS_PY = (
    "import json, sys\n"
    "request = json.load(sys.stdin)\n"
    "print(json.dumps({'success': True, 'action': request['action'], 'data': {'total': 3}}))\n"
)


def test_a_command_skill_goes_from_the_terminal_to_one_result_and_into_the_history(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("greet", GREET)

    ran = skillyard("run", "@greet", "世界")

    result = parse(ran.stdout)
    assert (ran.returncode, result.state) == (0, State.SUCCESS)
    assert result.data == {"skill": "greet", "content": "hello 世界"}
    history = from_json(skillyard("runs", "list", "--json").stdout)
    runs = history.data["runs"]
    assert isinstance(runs, list)
    assert [run["id"] for run in runs] == [result.meta["run"]]


def test_a_prompt_skill_hands_over_its_whole_text_and_stands_in_the_history(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("ideas", IDEAS)

    result = parse(skillyard("run", "@ideas").stdout)

    assert result.data["content"] == IDEAS
    assert result.data["executable"] is False
    runs = from_json(skillyard("runs", "list", "--json").stdout).data["runs"]
    assert isinstance(runs, list)
    assert [(run["id"], run["kind"], run["state"]) for run in runs] == [(result.meta["run"], "prompt", "success")]


def test_a_json_skill_answers_on_stdout_what_it_was_asked_on_stdin(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("stats", STATS, {"stats.py": STATS_PY})

    result = from_json(skillyard("run", "--json", "@stats", "analyze").stdout)

    assert result.ok
    assert (result.data["action"], result.data["total"]) == ("analyze", 3)
    assert from_json(skillyard("runs", "list", "--json").stdout).data["runs"] != []
