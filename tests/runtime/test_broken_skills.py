"""A SKILL.md whose errors change what runs is not run; what was found in one that ran is counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.project import Project
from skillyard.core.result import Result
from tests.conftest import Skillyard, WriteSkill

BROKEN = {
    "an unclosed quote above the command": ('description: "finds odd rows\ncommand: python3 odd.py {file}', 4),
    "quotes that are closed behind the command": ("description: 'finds odd\ncommand: python3 odd.py {file}'", 3),
    "a command that is a mapping": ("description: d\ncommand: {run: odd.py}", 4),
    "a command that is several command lines": ("description: d\ncommand: [echo one, echo two]", 4),
    "an entry that is not there": ("description: d\nprotocol: json", 4),
    "an entry that leaves the folder": ("description: d\nprotocol: json\nentry: ../../x.py", 5),
}


@pytest.mark.parametrize("fields", BROKEN.values(), ids=BROKEN)
def test_a_skill_whose_errors_change_what_runs_is_not_run(
    yard: Project, write_skill: WriteSkill, fields: tuple[str, int]
) -> None:
    file = write_skill("奇数", f"---\nname: odd\n{fields[0]}\n---\nBody\n")

    result = yard.run("奇数")

    assert (result.data["type"], result.data["recoverable"]) == ("MetadataMissing", False)
    assert str(result.data["msg"]).startswith(f"{file}:{fields[1]}: ")


def test_a_prompt_skill_with_a_slip_in_its_description_still_runs(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("ideas", "---\nname: ideas\ndescription: one: two\nallowed-tools: [Bash\n---\nBody\n")

    assert yard.run("ideas").ok


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ('[python3, say.py, "{who}", "a | b"]', ["Ann Lee", "a | b"]),
        ("\n  - python3\n  - say.py\n  - --who={who}\n  - 3", ["--who=Ann Lee", "3"]),
        ('["python3 say.py {who}"]', ["Ann Lee"]),
    ],
)
def test_a_command_that_is_a_list_is_read_as_its_words(
    yard: Project, write_skill: WriteSkill, command: str, printed: list[str]
) -> None:
    say = {"say.py": "import json, sys\nprint(json.dumps({'said': sys.argv[1:]}))\n"}
    write_skill("say", f"---\nname: say\ndescription: d\ncommand: {command}\n---\nBody\n", say)

    result = yard.run("say", who="Ann Lee")

    assert result.data["said"] == printed


@pytest.mark.parametrize("root", [".claude/skills", "skills"])
def test_a_folder_without_a_skill_file_is_damaged_and_not_unknown(yard: Project, project: Path, root: str) -> None:
    (project / root / "半成品").mkdir(parents=True)
    (project / root / "半成品" / "notes.txt").write_text("no SKILL.md yet")

    result = yard.run("半成品")

    assert (result.data["type"], result.exit_code) == ("MetadataMissing", 1)
    assert str(project / root / "半成品") in str(result.data["msg"])


def test_a_folder_of_skills_is_no_damaged_skill(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("office/docx", "---\nname: docx\ndescription: d\n---\nBody\n")

    assert yard.run("office").data["type"] == "SkillNotFound"
    assert yard.run("..").data["type"] == "SkillNotFound"


def test_what_was_found_in_a_skill_that_ran_is_counted(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("tidy", "---\nname: tidy\ndescription: d\ncommand: echo {x}\n---\nBody\n")
    spare = "params: {x: {type: strange}, y: {}}"
    write_skill("untidy", f"---\nname: untidy\ndescription: d\ncommand: echo {{x}}\n{spare}\n---\nBody\n")

    assert "findings" not in yard.run("tidy", x="1").meta
    assert yard.run("untidy", x="1").meta["findings"] == 2


def test_an_unknown_skill_is_told_with_the_nearest_and_how_to_get_one(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("markdown-converter", "---\nname: markdown-converter\ndescription: d\n---\nBody\n")

    near, far = skillyard("run", "markdwon-converter"), skillyard("run", "天气")

    assert "→ did you mean markdown-converter?" in near.stderr
    for shown in (near, far):
        assert "skillyard add" in shown.stderr
        assert "skillyard search" in shown.stderr
    assert "你是不是要找 markdown-converter" in skillyard("run", "markdwon-converter", SKILLYARD_LANG="zh").stderr


# Params

THUMB = """---
name: thumb
description: d
command: echo {width} {label} {options} {tags}
params:
  width: {type: int, required: true}
  label: {type: string}
  options: {type: object, properties: {crop: {type: boolean, description: cut it}}, required: [crop]}
  tags: {type: array, items: {type: string}}
---
Body
"""


@pytest.fixture
def thumb(yard: Project, write_skill: WriteSkill) -> Project:
    write_skill("thumb", THUMB)
    return yard


@pytest.mark.parametrize(
    "words", [("widht=800",), ("--widht", "800"), ("8", "lable=x"), ("8", "Label=x", "optoins={}")]
)
def test_a_misspelt_param_is_told_with_the_nearest(thumb: Project, words: tuple[str, ...]) -> None:
    result = thumb.run("thumb", *words)

    assert result.data["type"] == "InvalidParam"
    assert result.data["nearest"] in (["width"], ["label"], ["options"])
    assert "did you mean" in str(result.data["msg"])


def test_a_value_with_an_equals_sign_stays_a_value(thumb: Project) -> None:
    assert thumb.run("thumb", "8", "a=b").data["content"] == "8 a=b"
    assert thumb.run("thumb", "--", "8", "lable=x").data["content"] == "8 lable=x"


def test_a_surplus_word_is_told_with_what_the_skill_takes(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("greet", "---\nname: greet\ndescription: d\ncommand: echo {who}\n---\nBody\n")
    write_skill("hello", "---\nname: hello\ndescription: d\ncommand: echo hello\n---\nBody\n")

    assert yard.run("greet", "Ann", "Lee").data["msg"] == "nothing takes 'Lee'; it takes: who"
    assert yard.run("hello", "Ann").data["msg"] == "nothing takes 'Ann'; it takes no params"


@pytest.mark.parametrize("tail", ["> out.txt", ">out.txt", "2>&1", ">> 日志.txt", "| tee x", "< in.txt", "&"])
def test_a_redirection_in_a_prompt_is_no_value(thumb: Project, tail: str) -> None:
    result = thumb.task("skills", "thumb", f"run @thumb 8 {tail}")

    assert (result.data["type"], result.data["known"]) == ("InvalidParam", ["width", "label", "options", "tags"])


def test_a_quoted_sign_is_a_value_and_a_prompt_skill_takes_any_words(thumb: Project, write_skill: WriteSkill) -> None:
    write_skill("ideas", "---\nname: ideas\ndescription: d\n---\nBody\n")

    assert thumb.task("skills", "thumb", "run @thumb 8 '>'").data["content"] == "8 >"
    assert thumb.task("skills", "ideas", "run @ideas 收入 > 1000").ok


def test_objects_and_lists_are_json_on_the_command_line_and_values_from_python(
    thumb: Project, skillyard: Skillyard
) -> None:
    options: Any = {"crop": True, "名": "值"}
    typed = skillyard("run", "thumb", "8", 'options={"crop": true, "名": "值"}', "--tags", '["a", "b"]', "--json")

    result: Result = thumb.run("thumb", "8", options=options, tags=["a", "b"])

    assert result.data["content"] == '8 {"crop": true, "名": "值"} ["a", "b"]'
    assert json.loads(typed.stdout)["data"]["content"] == result.data["content"]


def test_objects_and_lists_have_their_schema_over_mcp(thumb: Project) -> None:
    from skillyard.faces.mcp.tools import signature_of

    thumb.catalog.sync()
    shown: Any = signature_of(thumb.catalog.resolve("thumb")).schema

    assert shown["required"] == ["width"]
    assert shown["properties"]["options"] == {
        "type": "object",
        "properties": {"crop": {"type": "boolean", "description": "cut it"}},
        "required": ["crop"],
    }
    assert shown["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize("value", ["{crop: true}", "[1]", "3", "null", "{" * 100_000, '{"a": NaN}'])
def test_what_is_no_json_object_is_refused(thumb: Project, value: str) -> None:
    result = thumb.run("thumb", "8", options=value)

    assert result.data["type"] == "InvalidParam"


# Piped input

JSON_SKILL = "---\nname: sum\ndescription: d\nprotocol: json\nentry: sum.py\nactions: [sum, show]\n---\nBody\n"
SUM = """import json, sys
asked = json.load(sys.stdin)
data = {"asked": asked["params"], "who": asked["context"].get("user_id")}
print(json.dumps({"success": True, "action": asked["action"], "data": data}))
"""


@pytest.fixture
def pipe(write_skill: WriteSkill, yard: Project) -> Project:
    write_skill("sum", JSON_SKILL, {"sum.py": SUM})
    write_skill("ideas", "---\nname: ideas\ndescription: d\n---\nBody\n")
    return yard


def piped(project: Project, name: str, text: str, *args: str) -> Result:
    from skillyard.core.result import Request

    return project.run(Request(name, args, stdin=text.encode()))


def test_piped_input_is_the_request_of_a_json_skill(pipe: Project) -> None:
    asked = '{"action": "sum", "params": {"numbers": [1, 2]}, "context": {"user_id": "u1"}}'

    result = piped(pipe, "sum", asked)

    assert (result.data["action"], result.data["asked"], result.data["who"]) == ("sum", {"numbers": [1, 2]}, "u1")


@pytest.mark.parametrize(
    "text", ["hello", "[1]", "{}x", '{"action": 1}', '{"params": []}', '{"numbers": [1]}', "[" * 100_000, '"\\ud800"']
)
def test_input_that_is_no_request_is_refused(pipe: Project, text: str) -> None:
    assert piped(pipe, "sum", text).data["type"] == "InvalidArgs"


def test_input_beside_words_or_for_a_prompt_is_refused_and_blank_input_is_none(pipe: Project) -> None:
    assert piped(pipe, "sum", '{"action": "sum"}', "sum", "a=1").data["type"] == "InvalidArgs"
    assert piped(pipe, "ideas", "some text").data["type"] == "InvalidArgs"
    assert piped(pipe, "ideas", "\n").ok
    assert piped(pipe, "sum", " \n", "sum", "a=1").data["asked"] == {"a": 1}
