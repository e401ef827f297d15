"""JSON skills as S3 describes them: its template to the letter, its codes, its limits, its calls."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skillyard import JobExecutor, execute_skill
from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.catalog.agentfile import read_role
from skillyard.core.envelope import from_json, parse
from skillyard.core.result import Request
from skillyard.core.states import State
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
  - {name: template, entry: .claude/skills/template.py}
  - {name: alarm, entry: .claude/skills/alarm.py}
  - {name: logs, entry: .claude/skills/logs.py}
"""
#: S3's template, to the letter: its `{...}` are what an author fills in.
TEMPLATE = '''\
#!/usr/bin/env python3
"""
{Skill Name}
{简短描述}

输入格式 (stdin JSON):
{
    "action": "action_name",
    "params": {...}
}

输出格式 (stdout JSON):
{
    "success": true,
    "data": {...}
}
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict

# 配置
SKILL_DIR = Path(__file__).parent
AGENT_DIR = SKILL_DIR.parent.parent
TIMEOUT = 300  # 秒


def handle_action_1(params: Dict[str, Any]) -> Dict[str, Any]:
    """处理 action_1"""
    # 实现逻辑
    return {
        "success": True,
        "data": {...}
    }


def handle_action_2(params: Dict[str, Any]) -> Dict[str, Any]:
    """处理 action_2"""
    # 实现逻辑
    return {
        "success": True,
        "data": {...}
    }


def main():
    """主入口"""
    try:
        # 读取输入
        input_data = json.loads(sys.stdin.read())
        action = input_data.get("action")
        params = input_data.get("params", {})

        # 路由到对应的处理函数
        if action == "action_1":
            result = handle_action_1(params)
        elif action == "action_2":
            result = handle_action_2(params)
        else:
            result = {
                "success": False,
                "error": {
                    "code": "UNKNOWN_ACTION",
                    "message": f"Unknown action: {action}",
                    "supported_actions": ["action_1", "action_2"]
                }
            }

        # 输出结果
        result["action"] = action
        print(json.dumps(result, ensure_ascii=False, indent=2))

    except json.JSONDecodeError as e:
        error_response = {
            "success": False,
            "error": {
                "code": "INVALID_JSON",
                "message": f"Failed to parse input JSON: {str(e)}"
            }
        }
        print(json.dumps(error_response, ensure_ascii=False))
        sys.exit(1)

    except Exception as e:
        error_response = {
            "success": False,
            "error": {
                "code": "INTERNAL_ERROR",
                "message": str(e)
            }
        }
        print(json.dumps(error_response, ensure_ascii=False))
        sys.exit(1)


if __name__ == "__main__":
    main()
'''
#: S3 §最佳实践, to the letter, around work that takes too long.
ALARM = """\
import json
import sys
import time
TIMEOUT = 1
def do_work():
    time.sleep(60)

import signal

def timeout_handler(signum, frame):
    raise TimeoutError("Skill execution timeout")

signal.signal(signal.SIGALRM, timeout_handler)
signal.alarm(TIMEOUT)  # 设置超时

try:
    # 执行操作
    result = do_work()
except TimeoutError as e:
    result = {"success": False, "error": {"code": "TIMEOUT", "message": str(e)}}
finally:
    signal.alarm(0)  # 取消超时
print(json.dumps(result))
"""
#: S3 §日志和调试, to the letter.
LOGGING = """\
import json
import os
import sys
import logging

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

# 记录到 stderr（不影响 stdout 的 JSON 输出）
handler = logging.StreamHandler(sys.stderr)
logger.addHandler(handler)

# 使用
logger.info("Processing started")
logger.error("Failed to connect to database")
DEBUG = os.getenv("SKILL_DEBUG") == "1"
input_data = json.loads(sys.stdin.read())

if DEBUG:
    logger.debug(f"Input data: {input_data}")
print(json.dumps({"success": True, "data": {"debug": DEBUG}}))
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
    (skills / "template.py").write_text(TEMPLATE, "utf-8")
    (skills / "alarm.py").write_text(ALARM, "utf-8")
    (skills / "logs.py").write_text(LOGGING, "utf-8")
    return folder


def test_execute_skill_gives_s3s_own_response(yard: Project, role: Path) -> None:
    response = execute_skill(
        agent_role="dev_efficiency_analyst",
        skill_name="build_analysis",
        action="analyze",
        params={"days": 3},
        project=yard,
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
    yard: Project, role: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILL_DEBUG", "1")

    response = execute_skill(
        agent_role="dev_efficiency_analyst",
        skill_name="long_running_task",
        action="报告",
        params={"文件": "a.md", "n": 1.5, "list": [1, None, True]},
        context={"user_id": "u-1"},
        project=yard,
    )

    data = response["data"]
    assert isinstance(data, dict)
    run = yard.history.list()[0]
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


def test_an_unknown_action_comes_back_as_the_skill_says_it(yard: Project, role: Path) -> None:
    response = execute_skill(
        agent_role="dev_efficiency_analyst", skill_name="build_analysis", action="explode", project=yard
    )

    assert response["success"] is False
    assert response["error"] == {"code": "UNKNOWN_ACTION", "message": "Unknown action: explode"}
    assert yard.history.list()[0].state == "error"


def test_an_action_that_agent_yaml_does_not_list_is_refused_as_s3s_template_does(yard: Project, role: Path) -> None:
    skill = "{name: build_analysis, entry: .claude/skills/build_analysis.py, actions: [analyze]}"
    (role / "agent.yaml").write_text(f"skills: [{skill}]\n", "utf-8")

    response: Any = execute_skill(
        agent_role="dev_efficiency_analyst", skill_name="build_analysis", action="explode", project=yard
    )

    assert response["error"]["code"] == "UNKNOWN_ACTION"
    assert response["error"]["supported_actions"] == ["analyze"]
    assert yard.history.list() == (), "nothing was started"


def test_a_role_or_skill_that_is_not_there_is_a_response_too(yard: Project, role: Path) -> None:
    response = execute_skill(agent_role="nobody", skill_name="nothing", action="x", project=yard)

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
    yard: Project, write_skill: WriteSkill, code: str, kind: str
) -> None:
    error = {"code": code, "message": "说明", "details": {"a": 1}}
    response = f"{{'success': False, 'error': {error!r}}}"
    program = f"import json, sys\nsys.stdin.read()\nprint(json.dumps({response}))\nsys.exit(1)\n"
    write_skill("fails", "---\nname: fails\ndescription: x\nprotocol: json\nentry: f.py\n---\n", {"f.py": program})

    result = yard.runtime.run(Request(name="fails", args=("analyze",)))

    assert (result.state, result.data["type"], result.data["code"]) == (State.ERROR, kind, code)
    assert (result.data["msg"], result.data["details"]) == ("说明", {"a": 1})


def test_the_code_timeout_of_a_skill_is_a_timeout(yard: Project, write_skill: WriteSkill) -> None:
    program = 'print(\'{"success": false, "error": {"code": "TIMEOUT", "message": "slow"}}\')\n'
    write_skill("slow", "---\nname: slow\ndescription: x\nprotocol: json\nentry: f.py\n---\n", {"f.py": program})

    assert yard.runtime.run(Request(name="slow", args=("x",))).state is State.TIMEOUT


def test_over_ten_megabytes_is_too_large_and_the_program_is_stopped(yard: Project, write_skill: WriteSkill) -> None:
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


def test_the_agent_yaml_of_s3_to_the_letter_has_nothing_to_complain_about(role: Path) -> None:
    (role / "agent.yaml").write_text(
        "skills:\n  - name: long_running_task\n    entry: .claude/skills/task.py\n    timeout: 600  # 10 分钟\n",
        "utf-8",
    )

    read = read_role(role)

    assert read.findings == ()
    assert [(skill.name, skill.timeout_seconds) for skill in read.skills] == [("long_running_task", 600.0)]


def test_flat_params_stand_beside_the_action(yard: Project, role: Path) -> None:
    (role / "agent.yaml").write_text("skills: [{name: task, entry: .claude/skills/task.py, flat_params: true}]\n")

    def ask(**params: str | int) -> Any:
        return JobExecutor(yard).execute_skill("dev_efficiency_analyst", "task", "report", params)

    request = ask(days=7, 城市="北京")["data"]["request"]
    assert {key: request[key] for key in request.keys() - {"context"}} == {
        "action": "report",
        "days": 7,
        "城市": "北京",
    }
    assert ask(context="x")["error"]["code"] == "INVALID_PARAM"


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_an_entry_may_be_a_compiled_program(yard: Project, role: Path, tmp_path: Path) -> None:
    (tmp_path / "skill.c").write_text(
        '#include <stdio.h>\nint main() { while (getchar() != EOF); puts("{\\"success\\": true, \\"data\\": 7}"); }\n'
    )
    program = role / ".claude" / "skills" / "编译 程序"
    subprocess.run(["cc", "-o", program, tmp_path / "skill.c"], check=True)
    (role / "agent.yaml").write_text("skills: [{name: 编译, entry: .claude/skills/编译 程序}]\n", "utf-8")

    def ask() -> Any:
        return JobExecutor(yard).execute_skill("dev_efficiency_analyst", "编译", "go")

    assert ask()["data"] == 7
    program.chmod(0o644)
    assert "chmod +x" in ask()["error"]["message"]


def test_execute_skill_takes_a_timeout(yard: Project, role: Path) -> None:
    (role / ".claude" / "skills" / "task.py").write_text("import time\ntime.sleep(60)\n")

    response = execute_skill(
        agent_role="dev_efficiency_analyst",
        skill_name="long_running_task",
        action="full",
        timeout_seconds=0.5,
        project=yard,
    )

    assert response["error"] == {"code": "TIMEOUT", "message": "no response within 0.5 s"}


def test_the_job_executor_of_s3_takes_its_own_call(yard: Project, role: Path) -> None:
    executor = JobExecutor(yard)

    response = executor.execute_skill(
        agent_role="dev_efficiency_analyst",
        skill_name="build_analysis",
        action="analyze",
        params={},
    )

    assert response["success"] is True
    assert response["data"] == {"average": 85.3, "trend": "improving", "days_analyzed": 7}


def test_the_job_executor_finds_the_project_it_stands_in(
    role: Path, places: ProjectPaths, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("SKILLYARD_HOME", str(places.own_home))
    monkeypatch.setenv("HOME", str(places.user_home))

    response = JobExecutor().execute_skill("dev_efficiency_analyst", "build_analysis", "analyze", {"days": 1})

    assert response["success"] is True


def test_the_template_of_s3_to_the_letter_answers_each_of_its_ways(yard: Project, role: Path) -> None:
    executor = JobExecutor(yard)

    unknown = executor.execute_skill("dev_efficiency_analyst", "template", "explode")
    unfilled = executor.execute_skill("dev_efficiency_analyst", "template", "action_1")

    assert unknown == {
        "success": False,
        "action": "explode",
        "error": {
            "code": "UNKNOWN_ACTION",
            "message": "Unknown action: explode",
            "supported_actions": ["action_1", "action_2"],
        },
    }
    # Its own `except Exception` tells that nobody has written the `{...}` yet.
    assert unfilled == {
        "success": False,
        "action": "action_1",
        "error": {"code": "INTERNAL_ERROR", "message": "Object of type set is not JSON serializable"},
    }


def test_s3s_own_alarm_works_inside_and_is_a_timeout(yard: Project, role: Path) -> None:
    response = JobExecutor(yard).execute_skill("dev_efficiency_analyst", "alarm", "full")

    assert response["error"] == {"code": "TIMEOUT", "message": "Skill execution timeout"}


def test_s3s_own_logging_goes_to_the_log_and_never_into_the_response(yard: Project, role: Path) -> None:
    response = JobExecutor(yard).execute_skill("dev_efficiency_analyst", "logs", "full")

    assert response["data"] == {"debug": False}
    assert yard.logs.read(yard.history.list()[0].id) == "Processing started\nFailed to connect to database\n"


def test_the_timeout_of_agent_yaml_is_enforced_and_told_with_its_limit(yard: Project, role: Path) -> None:
    (role / "agent.yaml").write_text("skills: [{name: slow, entry: .claude/skills/slow.py, timeout: 0.5}]\n")
    (role / ".claude/skills/slow.py").write_text("import time\ntime.sleep(600)\n")

    response = JobExecutor(yard).execute_skill("dev_efficiency_analyst", "slow", "full")

    assert response["error"] == {"code": "TIMEOUT", "message": "no response within 0.5 s"}


def test_role_run_of_the_command_line_is_s3s_call(skillyard: Skillyard, role: Path) -> None:
    call = ("role", "run", "dev_efficiency_analyst", "build_analysis", "analyze", "--param", "days=7")

    result = from_json(skillyard(*call, "--json").stdout)
    alone = json.loads(skillyard(*call, "--response").stdout)

    assert (result.state, result.data["days_analyzed"]) == (State.SUCCESS, 7)
    assert alone["data"] == {"average": 85.3, "trend": "improving", "days_analyzed": 7}


def test_the_unit_test_of_s3_passes_by_hand(role: Path) -> None:
    """S3 §单元测试, to the letter but for the skill's own action."""
    input_data = {"action": "analyze", "params": {}}
    result = subprocess.run(
        ["python3", "build_analysis.py"],
        input=json.dumps(input_data),
        capture_output=True,
        text=True,
        cwd=role / ".claude" / "skills",
        timeout=60,
    )

    assert result.returncode == 0
    output = json.loads(result.stdout)
    assert output["success"] is True
