"""agent.yaml: every key of the schema, every mistake with its line, and files that were written to do harm."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog import schema_check
from skillyard.catalog.agentfile import MAX_BYTES, Role, agent_schema, list_roles, parse_role, read_role
from skillyard.catalog.bounds import Bounds, Secret, bounds_of, read_bounds
from skillyard.core.errors import RoleInvalid
from skillyard.core.skill import Severity
from skillyard.core.values import Json
from tests.catalog.schema_keywords import KEYWORDS
from tests.conftest import TORTURE

WHOLE = """\
metadata:
  id: dev_efficiency_analyst
  uuid: 4d0c1a52-0000-4000-8000-000000000001
  name: 研发效能分析师
  description: Looks at builds
  model: sonnet
  visibility: team
  owner_team: 平台
skills:
  - name: build_analysis
    entry: .claude/skills/build_analysis.py
    description: Analyzes builds
    timeout: 600  # 10 分钟
    actions: [daily_briefing, analyze]
schedule:
  - name: morning
    cron: 0 9 * * 1-5
    skill: build_analysis
    action: daily_briefing
    params: {days: 7}
    timezone: Asia/Shanghai
    enabled: true
    retries: 3
    misfire: run_once
    overlap: skip
    jitter: 30
    on_failure: {command: notify 'it failed'}
  - interval: 15m
    task: 执行 @word-count README.md
    on_failure: {webhook: "https://example.com/hook"}
secrets:
  - {name: API_TOKEN, source: env, key: MY_TOKEN}
  - {name: DB_PASSWORD, source: file, key: database}
allowed_tools: [Read, Bash]
max_turns: 20
workspace:
  allowed_paths: [mybox/output, data]
  denied_paths: [data/private]
security:
  network: true
  memory_mb: 512
  processes: 32
"""


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "agents"
    folder.mkdir(parents=True)
    return folder


def write(agents: Path, text: str | bytes, name: str = "dev") -> Path:
    folder = agents / name
    (folder / ".claude" / "skills").mkdir(parents=True, exist_ok=True)
    (folder / ".claude" / "skills" / "build_analysis.py").write_text("print('{}')\n")
    (folder / "agent.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def read(agents: Path, text: str | bytes) -> Role:
    return read_role(write(agents, text))


def told(role: Role) -> list[tuple[str, int, str]]:
    return [(str(finding.severity), finding.line, finding.message) for finding in role.findings]


def test_every_key_of_the_schema_is_read(agents: Path) -> None:
    role = read(agents, WHOLE)

    assert role.findings == ()
    assert role.metadata["name"] == "研发效能分析师"
    assert (role.name, role.model, role.max_turns, role.allowed_tools) == ("dev", "sonnet", 20, ("Read", "Bash"))
    (skill,) = role.skills
    assert (skill.name, skill.timeout_seconds, skill.actions) == (
        "build_analysis",
        600.0,
        ("daily_briefing", "analyze"),
    )
    assert skill.fields["agent_id"] == "4d0c1a52-0000-4000-8000-000000000001"
    assert [job.get("cron") or job.get("interval") for job in role.schedule] == ["0 9 * * 1-5", "15m"]
    bounds = read_bounds(role.bounds)
    assert bounds.allowed == ("mybox/output", "data")
    assert bounds.denied == ("data/private",)
    assert (bounds.network, bounds.memory_bytes, bounds.processes) == (True, 512 << 20, 32)
    assert bounds.secrets == (Secret("API_TOKEN", "env", "MY_TOKEN"), Secret("DB_PASSWORD", "file", "database"))


def test_a_role_is_read_from_its_folder_or_its_file_and_knows_its_claude_text(agents: Path) -> None:
    folder = write(agents, WHOLE)

    assert read_role(folder) == read_role(folder / "agent.yaml")
    assert read_role(folder).claude_text is None
    (folder / "CLAUDE.md").write_text("You are the analyst.")
    assert read_role(folder).claude_text == folder / "CLAUDE.md"


def test_a_claude_text_that_leads_out_of_the_role_is_none(agents: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    folder = write(agents, WHOLE)
    (folder / "CLAUDE.md").symlink_to(tmp_path / "secret")

    assert read_role(folder).claude_text is None


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        (
            "timeout: 600  # 10 分钟",
            "timeout: ten minutes",
            13,
            "`skills[0].timeout` is the text 'ten minutes'; it should be a number above 0",
        ),
        ("timeout: 600  # 10 分钟", "timeout: 0", 13, "`skills[0].timeout` is 0; it should be a number above 0"),
        (
            "actions: [daily_briefing, analyze]",
            "actions: analyze",
            14,
            "`skills[0].actions` is the text 'analyze'; it should be a list",
        ),
        (
            "    misfire: run_once",
            "    misfire: sometimes",
            24,
            (
                "`schedule[0].misfire` is the text 'sometimes'; "
                "it should be one of run-once, run-all, skip, run_once, run_all"
            ),
        ),
        (
            "    retries: 3",
            "    retries: -1",
            23,
            "`schedule[0].retries` is -1; it should be a whole number from 0 to 100",
        ),
        (
            "    retries: 3",
            "    retries: 1.5",
            23,
            "`schedule[0].retries` is 1.5; it should be a whole number from 0 to 100",
        ),
        (
            "    enabled: true",
            "    enabled: maybe",
            22,
            "`schedule[0].enabled` is the text 'maybe'; it should be true or false",
        ),
        (
            "    skill: build_analysis",
            "    skill: nothing",
            18,
            "`schedule[0].skill` is 'nothing', which is no skill of this role",
        ),
        (
            "interval: 15m",
            "interval: often",
            28,
            "`schedule[1].interval` is 'often'; it should be a number of seconds, or a text such as 30s, 15m, 2h, 1d",
        ),
        (
            "  - interval: 15m\n    task",
            "  - task",
            28,
            "`schedule[1]` has none of `cron`, `interval`; it needs exactly one",
        ),
        (
            "interval: 15m",
            "interval: 15m\n    cron: 0 9 * * *",
            28,
            "`schedule[1]` has both `cron`, `interval`; it needs exactly one",
        ),
        (
            "max_turns: 20",
            "max_turns: twenty",
            35,
            "`max_turns` is the text 'twenty'; it should be a whole number from 1",
        ),
        ("source: file", "source: vault", 33, "`secrets[1].source` is the text 'vault'; it should be one of env, file"),
        ("name: DB_PASSWORD", "name: API_TOKEN", 33, "`secrets[1].name` is 'API_TOKEN' again"),
        ("  network: true", "  network: 1", 40, "`security.network` is 1; it should be true or false or a list"),
        (
            "metadata:\n  id: dev",
            "metadata:\n  id: [dev]\n  xd: dev",
            2,
            "`metadata.id` is a list; it should be text or a whole number",
        ),
    ],
)
def test_a_wrong_value_is_an_error_with_its_path_its_line_and_what_was_expected(
    agents: Path, before: str, after: str, line: int, says: str
) -> None:
    assert before in WHOLE

    role = read(agents, WHOLE.replace(before, after, 1))

    assert ("error", line, says) in told(role)


@pytest.mark.parametrize(
    ("before", "after", "line", "key", "near"),
    [
        ("max_turns: 20", "max_turn: 20", 35, "max_turn", "max_turns"),
        ("max_turns: 20", "max-turns: 20", 35, "max-turns", "max_turns"),
        ("    timeout: 600", "    time_out: 600", 13, "skills[0].time_out", "timeout"),
        ("  denied_paths", "  denied_path", 38, "workspace.denied_path", "denied_paths"),
        ("    on_failure: {command", "    onfailure: {command", 27, "schedule[0].onfailure", "on_failure"),
    ],
)
def test_an_unknown_key_warns_with_its_path_and_the_nearest_known_one(
    agents: Path, before: str, after: str, line: int, key: str, near: str
) -> None:
    role = read(agents, WHOLE.replace(before, after, 1))

    (finding,) = role.findings
    assert (finding.severity, finding.line) == (Severity.WARNING, line)
    assert finding.message == f"`{key}` is not known and does nothing"
    assert finding.advice == f"did you mean `{near}`?"


def test_what_is_wrong_in_one_place_leaves_the_rest_usable(agents: Path) -> None:
    role = read(agents, WHOLE.replace("retries: 3", "retries: many").replace("timeout: 600", "timeout: long"))

    assert [job.get("interval") for job in role.schedule] == ["15m"]
    assert [(skill.name, skill.timeout_seconds) for skill in role.skills] == [("build_analysis", None)]
    assert read_bounds(role.bounds).network is True


@pytest.mark.parametrize("empty", ["skills:", "schedule:", "secrets:", "workspace:", "security:", "metadata:"])
def test_an_empty_section_is_none(agents: Path, empty: str) -> None:
    assert read(agents, f"{empty}\n").findings == ()


def test_null_means_not_given_at_every_optional_key(agents: Path) -> None:
    def nulls(name: str, *given: str) -> str:
        definition = agent_schema()["definitions"][name]
        optional = definition["properties"].keys() - {*definition.get("required", ()), *given}
        return ", ".join(f"{key}: null" for key in sorted(optional))

    text = (
        f"metadata: {{{nulls('metadata')}}}\n"
        f"skills: [{{name: x, entry: later.py, {nulls('skill')}}}]\n"
        f"schedule: [{{interval: 5m, task: run @x, {nulls('scheduled', 'interval', 'task')}}}]\n"
        f"secrets: [{{name: TOKEN, source: env, {nulls('secret')}}}]\n"
        f"workspace: {{{nulls('workspace')}}}\nsecurity: {{{nulls('security')}}}\nallowed_tools: null\nmax_turns:\n"
    )

    role = read(agents, text)

    assert [finding.code for finding in role.findings] == ["role-entry-missing"]
    assert role.schedule == ({"interval": "5m", "task": "run @x"},)
    assert (role.metadata, role.max_turns, role.allowed_tools) == ({}, None, ())
    assert read_bounds(role.bounds) == Bounds(secrets=(Secret("TOKEN", "env", "TOKEN"),))


def test_a_key_of_metadata_at_the_top_is_told_where_it_belongs(agents: Path) -> None:
    (finding,) = read(agents, "description: Looks at builds\n").findings

    assert finding.advice == "write it below `metadata`"


def test_null_in_the_params_of_a_schedule_is_a_value(agents: Path) -> None:
    scheduled = "schedule: [{cron: '@daily', skill: x, params: {since: null}}]\n"
    role = read(agents, f"skills: [{{name: x, entry: x.py}}]\n{scheduled}")

    assert role.schedule[0]["params"] == {"since": None}


def test_a_key_that_is_needed_is_missed_where_it_is_null(agents: Path) -> None:
    assert told(read(agents, "skills:\n  - {name: x, entry: null}\n")) == [("error", 2, "`skills[0]` lacks `entry`")]


def test_a_skill_with_a_mistake_of_its_own_does_not_run_and_the_others_do(agents: Path) -> None:
    role = read(agents, "skills:\n  - {name: x, entry: x.py, timeout: long}\n  - {name: y, entry: y.py}\n")

    with pytest.raises(RoleInvalid, match=r"agents/dev/agent.yaml:2: `skills\[0\].timeout` is the text 'long'"):
        bounds_of(role.skills[0])
    assert bounds_of(role.skills[1]) == Bounds()


@pytest.mark.parametrize(
    "entry", ["../other/x.py", "/etc/passwd", ".claude/../../x.py", "link/passwd", "a\\0b", "x" * 5000]
)
def test_an_entry_outside_the_roles_folder_is_refused(agents: Path, entry: str) -> None:
    folder = write(agents, f'skills:\n  - name: x\n    entry: "{entry}"\n')
    (folder / "link").symlink_to("/etc")

    role = read_role(folder)

    assert role.skills == ()
    assert any(finding.code == "role-entry" for finding in role.findings)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &x [1]\nskills: *x\n", "yaml-alias"),
        ("skills: &skills\n  - {name: x, entry: x.py}\n", "yaml-anchor"),
        ("metadata:\n  name: !!python/object/apply:os.system ['touch /tmp/x']\n", "yaml-tag"),
        ("base: {a: 1}\nmetadata:\n  <<: {a: 1}\n", "yaml-merge"),
        ("[" * 5000 + "]" * 5000, "yaml-too-deep"),
        ("- a\n- b\n", "yaml-not-mapping"),
        ("skills: [\n", "yaml-invalid"),
        ("", "frontmatter-empty"),
        ("schedule:\n  - cron: * * * * *\n    task: x\n", "yaml-invalid"),
        (b"x: " + b"y" * MAX_BYTES, "role-unreadable"),
    ],
    ids=["alias", "anchor", "tag", "merge", "deep", "list", "broken", "empty", "star", "large"],
)
def test_a_file_that_was_written_to_do_harm_is_a_finding_and_nothing_more(
    agents: Path, text: str | bytes, code: str
) -> None:
    role = read(agents, text)

    assert code in {finding.code for finding in role.findings}
    assert (role.skills, role.schedule, role.usable) == ((), (), False)


def test_a_thousand_mistakes_are_told_as_a_hundred(agents: Path) -> None:
    role = read(agents, "".join(f"key{number}: 1\n" for number in range(20_000)))

    assert len(role.findings) == 100


def test_thousands_of_skills_are_read(agents: Path) -> None:
    count = 10_000 if TORTURE else 2_000
    skills = "".join(f"  - {{name: s{number}, entry: .claude/skills/build_analysis.py}}\n" for number in range(count))

    assert len(read(agents, f"skills:\n{skills}").skills) == count


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ('{cron: "61 * * * *", skill: a}', "`schedule[1].cron` cannot be read: '61 * * * *': '61' is no minute"),
        ('{cron: "0 0 31 2 *", skill: a}', "never comes"),
        ("{cron: 0 9 * *, skill: a}", "has 4 fields: cron has five"),
        ("{interval: 0.1, skill: a}", "`schedule[1].interval` cannot be read: "),
        ('{cron: "@daily", skill: a, timezone: Mars/Base}', "`schedule[1].timezone` cannot be read: 'Mars/Base'"),
        ('{cron: "@daily", skill: a, misfire: run_all, overlap: skip}', "`schedule[1].overlap` is 'skip' beside"),
        ('{cron: "@daily", task: run @a, skill: a}', "has both `task`, `skill`"),
        ('{cron: "@daily", task: run @a, params: {}}', "`schedule[1].params` goes only with `skill`, `flow`"),
    ],
)
def test_a_time_that_cannot_be_meant_is_found_with_its_line_and_the_other_entries_count(
    agents: Path, entry: str, shown: str
) -> None:
    skills = "skills: [{name: a, entry: .claude/skills/build_analysis.py}]\n"
    role = read(agents, f'{skills}schedule:\n  - {{cron: "@hourly", skill: a}}\n  - {entry}\n')

    ((severity, line, message),) = told(role)
    assert (severity, line) == ("error", 4)
    assert shown in message
    assert [each["cron"] for each in role.schedule] == ["@hourly"]


def test_a_workflow_that_is_not_there_yet_is_a_warning_and_one_that_is_there_is_fine(agents: Path) -> None:
    text = 'schedule:\n  - {cron: "@daily", flow: weekly, params: {days: 7}}\n'
    role = read(agents, text)

    assert told(role) == [("warning", 2, "there is no workflow weekly in workflows/")]
    assert len(role.schedule) == 1
    file = agents.parent / "workflows" / "weekly.yaml"
    file.parent.mkdir()
    file.write_text("steps: []\n")
    assert read(agents, text).findings == ()


def test_a_key_with_control_characters_cannot_move_the_cursor(agents: Path) -> None:
    role = read(agents, '"\\e[31mred\\u202e": 1\n')

    (finding,) = role.findings
    assert finding.message.isprintable()


def test_a_duplicate_key_is_told_and_bounds_with_one_are_broken(agents: Path) -> None:
    role = read(agents, "security: {network: false}\nsecurity: {network: true}\n")

    assert [finding.code for finding in role.findings] == ["yaml-duplicate"]
    assert "broken" in role.bounds


def test_a_role_that_leads_out_of_the_project_is_not_read(agents: Path, tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", WHOLE, "real")
    (agents / "linked").symlink_to(elsewhere)
    inner = write(agents, WHOLE, "inner")
    (inner / "agent.yaml").unlink()
    (inner / "agent.yaml").symlink_to(elsewhere / "agent.yaml")

    roles = list_roles(agents)

    assert [(role.name, role.skills) for role in roles] == [("inner", ()), ("linked", ())]
    assert {finding.code for role in roles for finding in role.findings} == {"role-outside"}


@pytest.mark.parametrize("name", ["研发分析师", "🚀rocket", "a b", "ümlaut", "x" * 200])
def test_a_role_may_be_called_anything_that_a_folder_may(agents: Path, name: str) -> None:
    role = read_role(write(agents, WHOLE, name))

    assert (role.name, role.findings) == (name, ())
    assert [skill.role for skill in role.skills] == [name]


def test_a_file_that_is_not_there_is_a_finding(agents: Path) -> None:
    assert [finding.code for finding in read_role(agents / "nobody").findings] == ["role-unreadable"]


def test_an_entry_that_is_not_written_yet_is_a_warning(agents: Path) -> None:
    role = read(agents, "skills: [{name: x, entry: later.py}]\n")

    assert [(f.code, f.severity) for f in role.findings] == [("role-entry-missing", Severity.WARNING)]
    assert len(role.skills) == 1


def test_the_schema_says_only_what_we_hold() -> None:
    def keywords(schema: Json, *, inside: str = "") -> set[str]:
        if isinstance(schema, list):
            return {word for item in schema for word in keywords(item)}
        if not isinstance(schema, dict):
            return set()
        named = inside in {"properties", "definitions", "dependencies"}
        own = set() if named else set(schema)
        return own | {word for key, item in schema.items() for word in keywords(item, inside="" if named else key)}

    assert keywords(agent_schema()) <= KEYWORDS
    jsonschema_rs.meta.validate(agent_schema())


_KEYS = sorted(
    {"metadata", "skills", "schedule", "secrets", "allowed_tools", "max_turns", "workspace", "security", "unknown"}
)
_INNER = [
    "name",
    "entry",
    "timeout",
    "cron",
    "interval",
    "task",
    "skill",
    "action",
    "source",
    "key",
    "network",
    "retries",
]
_LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 700),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "15m", "env", "file", "0 9 * * 1-5", "skip", "TOKEN", "PATH", "a/b", "*", "https://x.y"]),
    st.text(max_size=8),
)
_VALUE = st.recursive(
    _LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(_INNER), st.text(max_size=6)), inner, max_size=5),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(_KEYS), _VALUE, max_size=5))
def test_our_verdict_is_the_one_of_a_whole_validator(value: dict[str, Json]) -> None:
    ours = list(schema_check.problems(value, agent_schema()))

    assert (not ours) == jsonschema_rs.is_valid(agent_schema(), value)


@given(st.dictionaries(st.sampled_from(_KEYS), _VALUE, max_size=5))
def test_every_problem_has_a_place_in_the_file(value: dict[str, Json]) -> None:
    lines = json.dumps(value, indent=1)

    role = parse_role(lines.encode(), Path("/p/agents/dev/agent.yaml"))

    count = lines.count("\n") + 1
    assert all(1 <= finding.line <= count for finding in role.findings)
    assert all(finding.message.isprintable() for finding in role.findings)


@given(st.binary(max_size=400))
def test_no_file_makes_the_reader_fail(content: bytes) -> None:
    parse_role(content, Path("/p/agents/dev/agent.yaml"))
