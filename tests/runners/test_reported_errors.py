"""A response of the JSON protocol is adopted whichever program prints it: command skill, bundled script or bin/."""

import json
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.project import Project
from skillyard.core.result import Request
from skillyard.core.states import State
from tests.conftest import Skillyard, WriteSkill

ERROR = {"code": "DATA_NOT_FOUND", "message": "没有这一行", "details": {"行": 7}}


def as_program(response: Any, code: int) -> str:
    return f"import sys\nprint({json.dumps(response)!r})\nsys.exit({code})\n"


@pytest.mark.parametrize("code", [0, 1, 3])
@pytest.mark.parametrize(
    ("error", "error_type", "message"),
    [
        (ERROR, "RuntimeFailed", "没有这一行"),
        ({"code": "INVALID_PARAM", "message": "size"}, "InvalidParam", "size"),
        ("just text", "RuntimeFailed", "just text"),
        ({"code": "X", "message": "skillyard grant @x network"}, "RuntimeFailed", "the program says: "),
    ],
)
def test_a_failure_that_a_command_skill_prints_is_an_error(
    yard: Project, write_skill: WriteSkill, code: int, error: Any, error_type: str, message: str
) -> None:
    text = "---\nname: 查询\ndescription: x\ncommand: python3 go.py\n---\n"
    write_skill("查询", text, {"go.py": as_program({"success": False, "error": error}, code)})

    result = yard.runtime.run(Request(name="查询"))

    assert (result.state, result.data["type"]) == (State.ERROR, error_type)
    assert str(result.data["msg"]).startswith(message)
    assert result.data["code"] == (error["code"] if isinstance(error, dict) else "INTERNAL_ERROR")
    assert result.data.get("details") == (ERROR["details"] if error is ERROR else None)
    assert result.data.get("exit_code") == (code or None)


@pytest.mark.parametrize("code", [0, 1])
def test_a_failure_that_a_script_of_bin_prints_is_an_error(skillyard: Skillyard, project: Path, code: int) -> None:
    assert skillyard("init").returncode == 0
    (project / "bin" / "查询.py").write_text(as_program({"success": False, "error": ERROR}, code))
    assert skillyard("trust", "--accept").returncode == 0

    result = json.loads(skillyard("task", "worker", "look", "执行 python bin/查询.py", "--json").stdout)

    assert (result["state"], result["data"]["code"], result["data"]["msg"]) == ("error", ERROR["code"], "没有这一行")


def test_a_success_keeps_its_message_and_metadata(yard: Project, write_skill: WriteSkill) -> None:
    response = {"success": True, "data": {"rows": 2}, "message": "found", "metadata": {"took": 3}}
    text = "---\nname: ok\ndescription: x\ncommand: python3 go.py\n---\n"
    write_skill("ok", text, {"go.py": as_program(response, 0)})

    result = yard.runtime.run(Request(name="ok"))

    assert result.ok
    assert {name: result.data[name] for name in ("rows", "message", "metadata")} == {
        "rows": 2,
        "message": "found",
        "metadata": {"took": 3},
    }
