"""The command line as people and programs meet it, in processes of its own."""

import json
import stat
from pathlib import Path

import jsonschema_rs
import pytest
from tools.envelope_schema import envelope_schema

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import from_json, parse
from skillyard.core.result import Result
from skillyard.faces.cli.main import COMMANDS, parser_of
from tests.conftest import Skillyard, WriteSkill


def skill(name: str, description: str = "Does something", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n# {name}\n"


def skills_of(result: Result) -> list[dict[str, object]]:
    skills = result.data["skills"]
    assert isinstance(skills, list)
    return skills


def test_the_first_line_of_every_help_is_what_the_overview_says(skillyard: Skillyard) -> None:
    overview = skillyard("--help").stdout

    for name, (_, says) in COMMANDS.items():
        assert says in overview
        assert str(parser_of(name).description).splitlines()[0] == says


def test_every_command_has_a_help_with_its_output_options(skillyard: Skillyard) -> None:
    for name in COMMANDS:
        shown = skillyard(name, "--help")
        assert shown.returncode == 0
        assert "--json" in shown.stdout or name == "mcp"  # its stdout is the protocol's


def test_version_is_answered(skillyard: Skillyard) -> None:
    assert skillyard("--version").stdout.startswith("skillyard ")


def test_an_unknown_command_suggests_the_nearest_and_exits_with_2(skillyard: Skillyard) -> None:
    slip = skillyard("serach", "x")

    assert slip.returncode == 2
    assert "`skillyard search`" in slip.stderr


def test_a_usage_error_exits_with_2_and_is_json_for_those_who_asked_for_json(skillyard: Skillyard) -> None:
    plain, as_json = skillyard("search"), skillyard("search", "--json")

    assert (plain.returncode, plain.stdout) == (2, "")
    assert "usage:" in plain.stderr
    assert as_json.returncode == 2
    assert from_json(as_json.stdout).data["type"] == "InvalidArgs"


@pytest.mark.parametrize(
    "command",
    [("list",), ("search", "x"), ("show", "one"), ("explain", "one"), ("validate", ".claude"), ("sync",), ("runs",)],
)
def test_json_is_one_envelope_and_nothing_else(
    skillyard: Skillyard, write_skill: WriteSkill, command: tuple[str, ...]
) -> None:
    write_skill("one", skill("one"))

    shown = skillyard(*command, "--json")

    assert len(shown.stdout.splitlines()) == 1
    assert from_json(shown.stdout).agent == "skillyard"
    assert list(json.loads(shown.stdout)) == ["agent", "state", "summary", "data", "meta"]


def test_options_may_stand_before_the_command_too(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("one", skill("one"))

    assert len(skills_of(from_json(skillyard("--json", "list").stdout))) == 1


def test_an_empty_project_says_what_to_do_next(skillyard: Skillyard) -> None:
    shown = skillyard("list")

    assert shown.returncode == 0
    assert ".claude/skills/" in shown.stdout


def test_nothing_in_a_skills_text_can_move_the_cursor_or_fake_a_row(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("evil", '---\nname: evil\ndescription: "a\\nfake  row\\e[2J\\rb"\n---\n')

    lines = skillyard("list").stdout.splitlines()

    assert len(lines) == 2
    assert "\x1b" not in "".join(lines)


def test_show_tells_params_and_findings_of_a_skill(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("tool", skill("tool", more="command: echo {a} {b}\nparams:\n  a: {required: true}\n  b: {type: int}\n"))

    (shown,) = skills_of(from_json(skillyard("show", "@tool", "--json").stdout))

    assert shown["kind"] == "command"
    assert shown["params"] == [
        {"name": "a", "type": "string", "required": True, "default": None, "description": "", "choices": []},
        {"name": "b", "type": "int", "required": False, "default": None, "description": "", "choices": []},
    ]


def test_explain_tells_who_wins_who_sees_it_and_how_to_mend_it(
    skillyard: Skillyard, write_skill: WriteSkill, places: ProjectPaths, project: Path
) -> None:
    mine = write_skill("report", skill("report"))
    theirs = write_skill("report", skill("report"), root=places.user_home / ".claude/skills")

    found = from_json(skillyard("explain", "report", "--json").stdout).data

    assert found["candidates"] == [
        {"name": "report", "path": str(mine), "wins": True, "why": "first in the order of roots: .claude/skills"},
        {
            "name": "report",
            "path": str(theirs),
            "wins": False,
            "why": "shadowed: .claude/skills comes before ~/.claude/skills",
        },
    ]
    agents = found["agents"]
    assert isinstance(agents, list)
    by_agent = {view["agent"]: view for view in agents}
    assert by_agent["claude-code"]["sees"] == [str(mine), str(theirs)]
    assert "personal" in by_agent["claude-code"]["why"]
    assert by_agent["codex"]["sees"] == []
    assert by_agent["codex"]["fix"] == "skillyard link report --to codex"
    skillyard(*by_agent["codex"]["fix"].split()[1:])
    after = from_json(skillyard("explain", "report", "--json").stdout).data["agents"]
    assert isinstance(after, list)
    assert {view["agent"]: bool(view["sees"]) for view in after}["codex"]


def test_explain_knows_skills_that_lie_only_where_another_agent_looks(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("only", skill("only"), root=project / ".codex/skills")

    shown = skillyard("explain", "only")

    assert shown.returncode == 0
    assert "codex sees" in shown.stdout


def test_validate_names_the_place_of_a_problem_and_fails(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    path = write_skill("bad", "---\nname: bad\ndescription: one: two: three\n---\n# Bad\n")

    shown = skillyard("validate", str(path), "--json")

    (found,) = skills_of(from_json(shown.stdout))
    assert shown.returncode == 1
    assert found["path"] == str(path)
    assert found["description"] == "one: two: three"
    findings = found["findings"]
    assert isinstance(findings, list)
    assert any(finding["line"] == 3 and finding["severity"] == "error" for finding in findings)


def test_validate_strict_fails_on_warnings_too(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    path = write_skill("folder", skill("other-name"))

    assert skillyard("validate", str(path.parent)).returncode == 0
    assert skillyard("validate", "--strict", str(path.parent)).returncode == 1


def test_validate_takes_a_path_that_is_not_there_for_a_mistake(skillyard: Skillyard) -> None:
    shown = skillyard("validate", "nowhere")

    assert shown.returncode == 1
    assert parse(shown.stdout).data["type"] == "InvalidArgs"


def test_sync_tells_what_came_and_what_went(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    path = write_skill("one", skill("one"))

    first = from_json(skillyard("sync", "--json", "--lang", "zh").stdout)
    path.unlink()
    second = from_json(skillyard("sync", "--json").stdout)

    assert first.summary == "扫描完成: 新增 1 个, 更新 0 个"
    assert (first.data["added"], first.data["total"]) == ([str(path)], 1)
    assert (second.data["removed"], second.data["total"]) == ([str(path)], 0)


def test_a_folder_that_nobody_may_read_is_left_out_without_a_traceback(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("open", skill("open"))
    closed = write_skill("closed", skill("closed"))
    closed.chmod(0)
    closed.parent.chmod(stat.S_IRUSR)

    shown = skillyard("list", "--json")

    assert shown.returncode == 0
    assert "open" in {entry["name"] for entry in skills_of(from_json(shown.stdout))}
    closed.parent.chmod(0o755)


def test_in_the_home_folder_there_is_no_project_and_that_is_said(skillyard: Skillyard, places: ProjectPaths) -> None:
    listed = skillyard("list", cwd=places.user_home)
    ran = skillyard("run", "@x", cwd=places.user_home)

    assert listed.returncode == 0
    assert ran.returncode == 1
    assert "project" in parse(ran.stdout).summary
    assert "Traceback" not in ran.stderr


def test_a_home_that_cannot_be_written_is_no_reason_to_fail_a_list(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("one", skill("one"))

    shown = skillyard("list", "--json", SKILLYARD_HOME="/proc/nobody")

    assert len(skills_of(from_json(shown.stdout))) == 1


def test_a_run_whose_home_cannot_be_written_says_so_and_what_to_set(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("one", skill("one", more="command: echo x\n"))

    shown = skillyard("run", "@one", SKILLYARD_HOME="/proc/nobody")

    assert shown.returncode == 1
    assert "Traceback" not in shown.stderr
    assert parse(shown.stdout).data["type"] in {"PermissionDenied", "RuntimeFailed"}


@pytest.mark.parametrize(
    "command", [("validate", ".claude"), ("run", "@nobody"), ("runs", "show", "x"), ("list",), ("doctor",)]
)
def test_every_answer_fits_the_published_schema(
    skillyard: Skillyard, write_skill: WriteSkill, command: tuple[str, ...]
) -> None:
    write_skill("bad", "---\nname: bad\ndescription: one: two: three\n---\n")

    shown = skillyard(*command, "--json")

    jsonschema_rs.validator_for(envelope_schema()).validate(json.loads(shown.stdout))


def test_on_a_terminal_without_emoji_the_icons_are_ascii_and_still_read_back(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("想法", skill("想法", "营销"))

    plain = skillyard("run", "@想法", "--x", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    asked = skillyard("run", "--ascii", "@想法")

    assert plain.stdout.isascii()
    assert asked.stdout.startswith("[ok] skills ")
    assert parse(asked.stdout).data["name"] == "想法"


@pytest.mark.parametrize(
    ("variables", "says"), [({"LANG": "zh_CN.UTF-8"}, "未安装技能"), ({"LANG": "de_DE.UTF-8"}, "not installed")]
)
def test_the_language_follows_the_locale(skillyard: Skillyard, variables: dict[str, str], says: str) -> None:
    shown = skillyard("run", "@nobody", SKILLYARD_LANG="", **variables)

    assert says in shown.stdout
