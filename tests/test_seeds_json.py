"""JSON skills as S3 describes them: its template to the letter, its codes, its limits, its calls."""

import os
from pathlib import Path

import pytest

from skillyard import execute_skill
from skillyard.core.envelope import from_json, parse
from skillyard.core.request import Request
from skillyard.core.states import State
from skillyard.kernel.assembly import Yard
from tests.conftest import Skillyard, WriteSkill

#: S3's example skill, to the letter.
ANALYSIS = """\
#!/usr/bin/env python3
import json
import sys

def analyze(params):
    days = params.get("days", 7)
    # 模拟分析
    return {
        "success": True,
        "data": {
            "average": 85.3,
            "trend": "improving",
            "days_analyzed": days
        }
    }

def main():
    try:
        input_data = json.loads(sys.stdin.read())
        action = input_data.get("action")

        if action == "analyze":
            result = analyze(input_data.get("params", {}))
        else:
            result = {
                "success": False,
                "error": {"code": "UNKNOWN_ACTION", "message": f"Unknown action: {action}"}
            }

        print(json.dumps(result, ensure_ascii=False))
    except Exception as e:
        print(json.dumps({"success": False, "error": {"code": "INTERNAL_ERROR", "message": str(e)}}))

if __name__ == "__main__":
    main()
"""
AGENT = """\
metadata:
  uuid: 4d0c1a52-0000-4000-8000-000000000001
skills:
  - name: build_analysis
    entry: .claude/skills/build_analysis.py
  - name: long_running_task
    entry: .claude/skills/task.py
    timeout: 600  # 10 分钟
"""
ECHO = """\
import json, os, sys
request = json.load(sys.stdin)
print("50% complete", file=sys.stderr)
data = {"request": request, "cwd": os.getcwd(), "debug": os.getenv("SKILL_DEBUG")}
response = {"success": True, "data": data, "message": "好了", "metadata": {"items_count": 10}}
print(json.dumps(response, ensure_ascii=False))
"""


@pytest.fixture
def role(project: Path) -> Path:
    folder = project / "agents" / "dev_efficiency_analyst"
    skills = folder / ".claude" / "skills"
    skills.mkdir(parents=True)
    (folder / "agent.yaml").write_text(AGENT, "utf-8")
    (skills / "build_analysis.py").write_text(ANALYSIS, "utf-8")
    (skills / "task.py").write_text(ECHO, "utf-8")
    return folder


def test_execute_skill_gives_s3s_own_response(yard: Yard, role: Path) -> None:
    response = execute_skill(
        agent_role="dev_efficiency_analyst",
        skill_name="build_analysis",
        action="analyze",
        params={"days": 3},
        yard=yard,
    )

    metadata = response.pop("metadata")
    assert response == {
        "success": True,
        "action": "analyze",
        "data": {"average": 85.3, "trend": "improving", "days_analyzed": 3},
    }
    assert isinstance(metadata, dict)
    assert metadata["execution_time_ms"] >= 0


def test_the_request_has_s3s_shape_and_the_skill_runs_in_its_roles_folder(
    yard: Yard, role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILL_DEBUG", "1")

    response = execute_skill(
        agent_role="dev_efficiency_analyst",
        skill_name="long_running_task",
        action="报告",
        params={"文件": "a.md", "n": 1.5, "list": [1, None, True]},
        context={"user_id": "u-1"},
        yard=yard,
    )

    data = response["data"]
    assert isinstance(data, dict)
    run = yard.runs.list()[0]
    assert data["request"] == {
        "action": "报告",
        "params": {"文件": "a.md", "n": 1.5, "list": [1, None, True]},
        "context": {
            "agent_id": "4d0c1a52-0000-4000-8000-000000000001",
            "user_id": "u-1",
            "request_id": run.id,
        },
    }
    assert (data["cwd"], data["debug"]) == (str(role), "1")
    assert response["message"] == "好了"
    assert run.launch["limit_seconds"] == 600
    assert yard.logs.read(run.id) == "50% complete\n"


def test_an_unknown_action_comes_back_as_the_skill_says_it(yard: Yard, role: Path) -> None:
    response = execute_skill(
        agent_role="dev_efficiency_analyst", skill_name="build_analysis", action="explode", yard=yard
    )

    assert response["success"] is False
    assert response["error"] == {"code": "UNKNOWN_ACTION", "message": "Unknown action: explode"}
    assert yard.runs.list()[0].state == "error"


def test_a_role_or_skill_that_is_not_there_is_a_response_too(yard: Yard, role: Path) -> None:
    response = execute_skill(agent_role="nobody", skill_name="nothing", action="x", yard=yard)

    assert response["success"] is False
    error = response["error"]
    assert isinstance(error, dict)
    assert error["code"] == "DATA_NOT_FOUND"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_JSON", "RuntimeFailed"),
        ("UNKNOWN_ACTION", "InvalidParam"),
        ("MISSING_PARAM", "ParamMissing"),
        ("INVALID_PARAM", "InvalidParam"),
        ("PERMISSION_DENIED", "PermissionDenied"),
        ("DATA_NOT_FOUND", "RuntimeFailed"),
        ("EXTERNAL_SERVICE_ERROR", "RuntimeFailed"),
        ("INTERNAL_ERROR", "RuntimeFailed"),
    ],
)
def test_the_codes_of_s3_are_our_error_types_and_are_kept(
    yard: Yard, write_skill: WriteSkill, code: str, kind: str
) -> None:
    error = {"code": code, "message": "说明", "details": {"a": 1}}
    response = f"{{'success': False, 'error': {error!r}}}"
    program = f"import json, sys\nsys.stdin.read()\nprint(json.dumps({response}))\nsys.exit(1)\n"
    write_skill("fails", "---\nname: fails\ndescription: x\nprotocol: json\nentry: f.py\n---\n", {"f.py": program})

    result = yard.runtime.run(Request(name="fails", args=("analyze",)))

    assert (result.state, result.data["type"], result.data["code"]) == (State.ERROR, kind, code)
    assert (result.data["msg"], result.data["details"]) == ("说明", {"a": 1})


def test_the_code_timeout_of_a_skill_is_a_timeout(yard: Yard, write_skill: WriteSkill) -> None:
    program = 'print(\'{"success": false, "error": {"code": "TIMEOUT", "message": "slow"}}\')\n'
    write_skill("slow", "---\nname: slow\ndescription: x\nprotocol: json\nentry: f.py\n---\n", {"f.py": program})

    assert yard.runtime.run(Request(name="slow", args=("x",))).state is State.TIMEOUT


def test_over_ten_megabytes_is_too_large_and_the_program_is_stopped(yard: Yard, write_skill: WriteSkill) -> None:
    program = "import sys\nwhile True:\n    sys.stdout.write('x' * 65536)\n"
    write_skill("loud", "---\nname: loud\ndescription: x\nprotocol: json\nentry: f.py\n---\n", {"f.py": program})

    result = yard.runtime.run(Request(name="loud", args=("x",)))

    assert result.data["type"] == "OutputTooLarge"


def test_a_flat_answer_is_read_and_said_and_refused_with_strict(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    text = "---\nname: flat\ndescription: x\nprotocol: json\nentry: f.py\n---\n"
    write_skill("flat", text, {"f.py": "print('{\"total\": 3}')\n"})

    read = from_json(skillyard("run", "@flat", "analyze", "--json").stdout)
    refused = skillyard("run", "--strict", "@flat", "analyze")

    assert read.data["total"] == 3
    assert read.meta["normalised"]
    assert parse(refused.stdout).data["code"] == "INTERNAL_ERROR"


def test_what_a_json_skill_says_on_stderr_is_seen_while_it_runs(skillyard: Skillyard, role: Path) -> None:
    shown = skillyard("run", "@long_running_task", "full")

    assert "50% complete" in shown.stderr
    assert parse(shown.stdout).summary == "好了"


def test_the_example_call_of_the_command_line_works_as_s3_writes_it(role: Path) -> None:
    """S3 §测试规范: the skill itself, by hand, in the agent's folder."""
    command = 'echo \'{"action": "analyze"}\' | python3 .claude/skills/build_analysis.py > out.json'

    assert os.system(f"cd '{role}' && {command}") == 0
    assert '"trend": "improving"' in (role / "out.json").read_text("utf-8")
