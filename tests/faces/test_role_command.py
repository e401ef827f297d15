"""`skillyard role`, as people and programs use it."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.agentfile import SCHEMA_FILE, agent_schema, parse_role
from skillyard.core.envelope import from_json, parse
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Lang
from skillyard.install.new_skill import as_role_files, folder_of, make_role_draft
from tests.conftest import Skillyard

UUID = "4d0c1a52-0000-4000-8000-000000000001"


def roles_of(text: str) -> list[dict[str, Any]]:
    """`data.roles` of an envelope."""
    roles: list[dict[str, Any]] = json.loads(text)["data"]["roles"]
    return roles


def test_a_new_role_has_s3s_layout_passes_and_runs_at_once(skillyard: Skillyard, project: Path) -> None:
    made = skillyard("role", "new", "dev_efficiency_analyst", "--skill", "build_analysis")
    checked = skillyard("role", "validate", "--strict")
    ran = skillyard("role", "run", "dev_efficiency_analyst", "build_analysis", "analyze", "--param", "target=ci")

    folder = project / "agents" / "dev_efficiency_analyst"
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == [".claude/skills/README.md", ".claude/skills/build_analysis.py", "CLAUDE.md", "agent.yaml"]
    assert "skillyard role run dev_efficiency_analyst build_analysis report" in made.stdout
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "1 checked, all fine")
    assert parse(ran.stdout).data["insights"] == ["ci: 7 days"]
    assert "50% complete" in ran.stderr


def test_the_schema_line_of_a_new_role_leads_editors_to_the_schema(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")

    first = (project / "agents/dev/agent.yaml").read_text("utf-8").splitlines()[0]

    assert first.startswith("# yaml-language-server: $schema=")
    target = project / "agents" / "dev" / first.partition("=")[2]
    assert json.loads(target.read_text("utf-8")) == agent_schema()
    assert skillyard("role", "schema").stdout == SCHEMA_FILE.read_text("utf-8")


def test_the_readmes_own_call_by_hand_works(skillyard: Skillyard, project: Path) -> None:
    """S3 §测试规范: in the agent's folder, with nothing of ours."""
    skillyard("role", "new", "dev", "--skill", "说明 it's")
    readme = (project / "agents/dev/.claude/skills/README.md").read_text("utf-8")
    command = next(line for line in readme.splitlines() if line.startswith("echo "))

    done = subprocess.run(["sh", "-c", command], cwd=project / "agents/dev", capture_output=True, timeout=60)

    assert json.loads(done.stdout)["data"] == {"content": "# Report (daily)\n"}


def test_a_role_is_never_overwritten(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    (project / "agents/dev/CLAUDE.md").write_text("mine")

    again = skillyard("role", "new", "dev")

    assert again.returncode == 1
    assert parse(again.stdout).data["type"] == "InvalidArgs"
    assert (project / "agents/dev/CLAUDE.md").read_text() == "mine"


def test_nothing_is_written_through_a_link_that_leads_out_of_the_project(
    skillyard: Skillyard, project: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "agents").symlink_to(outside)

    refused = skillyard("role", "new", "dev")
    (project / "agents").unlink()
    (project / "agents").mkdir()
    (project / "agents" / "agent.schema.json").symlink_to(outside / "made")
    made = skillyard("role", "new", "dev")

    assert (refused.returncode, made.returncode) == (1, 0)
    assert list(outside.iterdir()) == []


def test_a_pipe_in_a_role_holds_nobody_up(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    os.mkfifo(project / "agents" / "dev" / "pipe")
    with (project / "agents/dev/agent.yaml").open("a", encoding="utf-8") as file:
        file.write("security: {network: true}\n")

    assert skillyard("trust", "--accept").returncode == 0


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("dev_efficiency_analyst", "dev_efficiency_analyst"),
        ("Dev-Ops", "Dev-Ops"),
        ("研发 分析师", "研发_分析师"),
        ("🚀 Rocket Team", "rocket_team"),
        ("../../etc/passwd", "etc_passwd"),
        ("con", "con_skill"),
        ("Über-Prüfer", "uber_prufer"),
    ],
)
def test_any_name_gives_a_safe_folder(name: str, folder: str) -> None:
    assert folder_of(name) == folder


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=30), st.sampled_from(Lang))
def test_whatever_is_typed_a_new_role_has_nothing_to_complain_about(
    name: str, description: str, skill: str, lang: Lang
) -> None:
    try:
        draft = make_role_draft(
            name, "4d0c1a52-0000-4000-8000-000000000001", description=description, skill=skill, lang=lang
        )
    except InvalidArgs:
        return
    files = as_role_files(draft)
    role = parse_role(files["agent.yaml"].encode(), Path(f"/p/agents/{draft.slug}/agent.yaml"))

    assert [finding.code for finding in role.findings] == ["role-entry-missing"]
    assert role.metadata["name"] == name.strip()
    assert [known.name for known in role.skills] == [draft.skill]
    compile(files[draft.entry], draft.entry, "exec")
    assert all(".." not in Path(file).parts for file in files)


def test_lists_and_shows_as_a_table_and_as_data(skillyard: Skillyard) -> None:
    empty = skillyard("role")
    skillyard("role", "new", "研发分析师", "--description", "看构建", SKILLYARD_LANG="zh")
    table = skillyard("role", "list")
    listed = skillyard("role", "--json").stdout
    shown = skillyard("role", "show", "研发分析师", "--json").stdout
    page = skillyard("role", "show", "研发分析师")

    assert "skillyard role new" in empty.stdout
    assert table.stdout.splitlines()[0].split() == ["ROLE", "SKILLS", "JOBS", "STANDING", "DESCRIPTION"]
    (role,) = roles_of(listed)
    assert (role["role"], role["description"], role["skills"], role["trusted"]) == (
        "研发分析师", "看构建", ["daily_report"], True,
    )  # fmt: skip
    assert from_json(listed).agent == "skillyard"
    (whole,) = roles_of(shown)
    assert whole["skills"][0]["actions"] == ["analyze", "report"]
    assert whole["claude"].endswith("CLAUDE.md")
    assert "description: 看构建" in page.stdout


def test_a_summary_is_in_the_persons_language(skillyard: Skillyard) -> None:
    skillyard("role", "new", "dev")

    assert from_json(skillyard("role", "--json", "--lang", "zh").stdout).summary == "共 1 个角色"
    assert from_json(skillyard("role", "validate", "--json", SKILLYARD_LANG="zh").stdout).summary.startswith("检查 1")
    chinese = skillyard("role", "run", "dev", "daily_report", "report", "--lang", "zh")
    assert chinese.stdout.startswith("✅ skills 执行成功: dev/daily_report")


def test_validate_tells_line_path_and_what_to_do_and_fails(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    file = project / "agents/dev/agent.yaml"
    file.write_text(file.read_text("utf-8").replace("timeout: 300", "timeout: five\n    time: 3"), "utf-8")

    page = skillyard("role", "validate", "dev")
    data = skillyard("role", "validate", "agents/dev/agent.yaml", "--json").stdout

    assert page.returncode == 1
    assert "FAIL agents/dev/agent.yaml" in page.stdout
    assert "`skills[0].timeout` is the text 'five'; it should be a number above 0" in page.stdout
    assert "did you mean `timeout`?" in page.stdout
    (role,) = roles_of(data)
    assert [finding["line"] for finding in role["findings"]] == [12, 13]
    assert from_json(data).data["type"] == "RuntimeFailed"


def test_a_role_that_is_not_there_is_told_with_the_nearest(skillyard: Skillyard) -> None:
    skillyard("role", "new", "analyst")

    missing = skillyard("role", "show", "analist", "--json")
    run = skillyard("role", "run", "analist", "daily_report", "report", "--json")
    other = skillyard("role", "run", "analyst", "weekly", "report", "--json")

    assert from_json(missing.stdout).data["nearest"] == ["analyst"]
    assert from_json(run.stdout).data["type"] == "SkillNotFound"
    assert from_json(other.stdout).data["nearest"] == ["analyst/daily_report"], "what the role has"
    assert (missing.returncode, run.returncode) == (1, 1)


@pytest.mark.parametrize("words", ["role", "flow", "runs", "jobs history"])
def test_an_empty_list_says_so_in_the_persons_language(skillyard: Skillyard, words: str) -> None:
    assert "还没有" in skillyard(*words.split(), "--lang", "zh").stdout


def test_params_are_typed_and_can_come_as_json(skillyard: Skillyard) -> None:
    skillyard("role", "new", "dev")
    call = ("role", "run", "dev", "daily_report", "analyze", "--json")

    pairs = from_json(skillyard(*call, "--param", "target=a=b 值", "--param", "days=3").stdout)
    whole = from_json(skillyard(*call, "--params", '{"target": "x", "days": 2}').stdout)
    refused = from_json(skillyard(*call, "--param", "target=x", "--param", "days=0").stdout)
    broken = from_json(skillyard(*call, "--params", "[1]").stdout)
    nothing = from_json(skillyard(*call, "--param", "novalue").stdout)

    assert (pairs.data["insights"], whole.data["insights"]) == (["a=b 值: 3 days"], ["x: 2 days"])
    assert (refused.data["type"], refused.data["code"]) == ("InvalidParam", "INVALID_PARAM")
    assert (broken.data["type"], nothing.data["type"]) == ("InvalidArgs", "InvalidArgs")


def test_the_response_of_the_command_line_is_s3s_own(skillyard: Skillyard) -> None:
    skillyard("role", "new", "dev")

    good = skillyard("role", "run", "dev", "daily_report", "report", "--response")
    bad = skillyard("role", "run", "dev", "daily_report", "explode", "--response")

    assert json.loads(good.stdout)["data"] == {"content": "# Report (daily)\n"}
    error = json.loads(bad.stdout)["error"]
    assert (error["code"], bad.returncode) == ("UNKNOWN_ACTION", 1)


@pytest.mark.parametrize(
    "words",
    [
        ("role", "run", "dev", "daily_report"),
        ("run", "@dev/daily_report"),
        ("show", "@dev/daily_report"),
        ("jobs", "enqueue", "@dev/daily_report"),
        ("jobs", "add", "@daily", "@dev/daily_report"),
        ("jobs", "run", "dev/daily_report"),
        ("jobs", "pause", "dev/daily_report"),
    ],
)
def test_a_broken_agent_yaml_is_told_with_its_line_wherever_the_role_is_named(
    skillyard: Skillyard, project: Path, words: tuple[str, ...]
) -> None:
    skillyard("role", "new", "dev")
    (project / "agents" / "dev" / "agent.yaml").write_text("skills:\n  - name: daily_report\n   entry: x\n")

    result = from_json(skillyard(*words, "--json").stdout)

    assert (result.data["type"], result.meta["code"]) == ("MetadataMissing", "role_invalid")
    assert "agents/dev/agent.yaml:3: not valid YAML" in str(result.data["msg"])


def test_a_mistake_elsewhere_is_none_of_the_schedules(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    (project / "agents" / "dev" / "agent.yaml").write_text("skills: [code-review]\n")

    told = skillyard("jobs", "schedules")

    assert told.stdout.startswith("Nothing recurs here.")
    assert told.stderr == ""


def test_validate_checks_what_schedules_name(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    (project / "agents" / "dev" / "agent.yaml").write_text(
        "skills:\n  - {name: daily_report, entry: .claude/skills/daily_report.py, actions: [report]}\n"
        "schedule:\n"
        "  - {cron: '@daily', skill: daily_report, action: repotr}\n"
        "  - {cron: '@daily', task: 执行 @nothere x}\n"
        "  - {cron: '@daily', task: run python bin/nothere.py}\n"
        "  - {cron: '@daily', task: Sum it up, to: clade-code}\n"
        "  - {cron: '@daily', task: 执行 @dev/daily_report then @dev/daily_report}\n"
        "  - {cron: '@daily', flow: nothere}\n"
        "  - {cron: '@daily', task: run @dev/daily_report}\n"
        "  - {cron: '@daily', task: Sum it up, to: claude-code}\n"
    )

    told = skillyard("role", "validate", "--json")

    (file,) = json.loads(told.stdout)["data"]["roles"]
    found = [(each["line"], each["severity"], each["code"]) for each in file["findings"]]
    assert sorted(found) == [
        (4, "error", "role-value"),
        (5, "warning", "role-skill-missing"),
        (6, "warning", "role-script-missing"),
        (7, "error", "role-backend"),
        (8, "error", "role-task"),
        (9, "warning", "role-flow-missing"),
    ]
    assert told.returncode == 1


def test_the_schedules_of_a_broken_agent_yaml_are_not_none(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    (project / "agents" / "dev" / "agent.yaml").write_text("schedule:\n  - cron: x\n   task: y\n")

    told = skillyard("jobs", "schedules")

    assert "agents/dev/agent.yaml:3: not valid YAML" in told.stdout
    assert "Nothing recurs here" not in told.stdout
    (problem,) = json.loads(skillyard("jobs", "schedules", "--json").stdout)["data"]["problems"]
    assert problem["role"] == "dev"
    assert "agent.yaml:3" in problem["msg"]


def test_trust_show_lists_what_it_is_for_and_what_is_free_to_change(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    folder = project / "agents" / "dev"
    skillyard("trust", "--accept")
    for name in ("README.md", ".DS_Store", ".agent.yaml.swp", ".coverage", "test.log", "junit.xml"):
        (folder / name).write_text("x")
    (folder / "htmlcov").mkdir()
    (folder / "htmlcov" / "index.html").write_text("x")

    (covered,) = json.loads(skillyard("trust", "--show", "--json").stdout)["data"]["covered"][:1]
    shown = skillyard("trust", "--show").stdout

    assert covered["folder"] == "agents/dev"
    assert set(covered["files"]) == {".claude/skills/daily_report.py", "CLAUDE.md", "agent.yaml"}
    assert set(covered["free"]) == {".claude/skills/README.md", "README.md", "test.log"}
    assert re.search(r"agents/dev/CLAUDE.md +covered", shown)
    assert re.search(r"agents/dev/README.md +free to change", shown)


def test_only_the_role_that_was_named_answers(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev_analyst")
    folder = project / ".claude" / "skills" / "analyst" / "daily_report"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: daily_report\ndescription: x\ncommand: echo no role\n---\n")

    result = from_json(skillyard("role", "run", "analyst", "daily_report", "report", "--json").stdout)

    assert result.data["type"] == "SkillNotFound"


def test_trust_shows_the_list_and_is_what_a_role_waits_for(skillyard: Skillyard, project: Path) -> None:
    skillyard("role", "new", "dev")
    with (project / "agents/dev/agent.yaml").open("a", encoding="utf-8") as file:
        file.write("security: {network: true}\n")

    before = skillyard("role", "list")
    check = from_json(skillyard("trust", "--check", "--json").stdout)
    skillyard("trust", "--accept")
    after = skillyard("role", "list")
    granted = skillyard("grants")
    skillyard("revoke", "--trust")

    assert "asks for trust" in before.stdout
    assert check.data["wants"] == [
        {"what": "reach the network for the role dev", "where": "agents/dev/agent.yaml security.network"}
    ]
    assert check.data["trusted"] is False
    assert "asks for trust" not in after.stdout
    assert "network" in granted.stdout
    assert "asks for trust" in skillyard("role", "list").stdout


def test_inside_an_agent_no_role_is_trusted(skillyard: Skillyard) -> None:
    skillyard("role", "new", "dev")

    assert parse(skillyard("trust", "--accept", SKILLYARD_DEPTH="1").stdout).data["type"] == "PermissionDenied"


def test_a_list_of_skills_reads_no_schema_and_no_role_command(skillyard: Skillyard, project: Path) -> None:
    """What `list` and `run` import decides how fast they are. A file is read again until its time stamp has settled."""
    skillyard("role", "new", "dev")
    readers = {"yaml", "skillyard.catalog.schema_check", "skillyard.catalog.agentfile"}

    for _ in range(200):
        shown = skillyard("list", PYTHONVERBOSE="1")  # PYTHONPROFILEIMPORTTIME leaves out what import_module imports
        loaded = {line.split("'")[1] for line in shown.stderr.splitlines() if line.startswith("import '")}
        if not readers & loaded:
            break

    assert "skillyard.catalog.index" in loaded
    assert not readers & loaded
