"""`skillyard.skill` as authors meet it: programs in processes of their own, by hand and through the runtime."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import skillyard
from skillyard.app.project import Project
from skillyard.core.result import Request
from skillyard.core.states import State
from tests.conftest import WriteSkill

PACKAGE = Path(skillyard.__file__).parent
SKILL_MD = (
    "---\nname: demo\ndescription: A skill for tests. Use in tests.\nprotocol: json\nentry: skill.py\n---\n# Demo\n"
)

#: What the docs promise: a skill in under fifteen lines.
SHORT = '''\
from skillyard.skill import Problem, action, progress, serve

@action
def analyze(target: str, days: int = 7) -> dict:
    """Analyze something."""
    if days < 1:
        raise Problem("INVALID_PARAM", "days must be at least 1", days=days)
    progress("50% complete")
    return {"target": target, "days": days}

if __name__ == "__main__":
    serve()
'''

TYPED = """\
import os, subprocess, sys
from pathlib import Path
from typing import Any, Literal, Optional, Union
from skillyard.skill import Context, Problem, Reply, action, debug, serve

print("while it is imported")

@action
def types(text: str = "", whole: int = 1, number: float = 1.0, flag: bool = False, many: list = [], some: dict = {},
          numbers: "list[int]" = [], path: Path = Path("."), size: Literal["s", "m", 3] = "s",
          maybe: Optional[int] = None, either: Union[int, str] = 1, anything: Any = None, *, from_: str = "") -> dict:
    return {"path": [type(path).__name__ != "str", path], "number": number, "size": size, "maybe": maybe,
            "either": either, "from": from_}

@action
def who(context: Context, **more: object) -> dict:
    return {"id": context.request_id, "user": context.user_id, "more": more}

@action
def items() -> list:
    return [1, 2, 3]

@action
def told() -> Reply:
    return Reply({"a": 1}, "all done", pages=2)

@action
def noisy() -> None:
    print("print")
    sys.stdout.write("write")
    os.write(1, b"descriptor")
    subprocess.run(["echo", "child"], check=True)
    debug("seen while debugging")

@action
def problem(code: str) -> None:
    raise Problem(code, "as asked")

@action
def crash() -> None:
    1 / 0

@action
def leave() -> None:
    sys.exit(3)

@action
def unwritable() -> dict:
    return {"no json": object()}

@action
def surrogate() -> dict:
    return {"half": "\\ud800"}

def briefing() -> dict:
    return {}

action(briefing, "daily-briefing")

if __name__ == "__main__":
    serve()
"""


class Answer(NamedTuple):
    code: int
    response: dict[str, Any]
    stderr: str

    @property
    def error(self) -> dict[str, Any]:
        assert self.response["success"] is False
        assert self.code == 1
        error: dict[str, Any] = self.response["error"]
        return error

    @property
    def data(self) -> Any:
        assert self.response["success"] is True, self.response
        assert self.code == 0
        return self.response["data"]


class Program:
    """A skill's program, run by hand: `echo '{…}' | python3 skill.py`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def send(self, stdin: bytes, *args: str, **env: str) -> Answer:
        ended = subprocess.run(
            [sys.executable, str(self.path), *args],
            input=stdin,
            capture_output=True,
            env={"PATH": os.environ["PATH"], **env},
            timeout=60,
        )
        return Answer(ended.returncode, json.loads(ended.stdout), ended.stderr.decode())

    def ask(self, action: str, **params: object) -> Answer:
        return self.send(json.dumps({"action": action, "params": params}).encode())


@pytest.fixture
def typed(tmp_path: Path) -> Program:
    path = tmp_path / "skill.py"
    path.write_text(TYPED, "utf-8")
    return Program(path)


@pytest.fixture
def short(tmp_path: Path) -> Program:
    path = tmp_path / "skill.py"
    path.write_text(SHORT, "utf-8")
    return Program(path)


def test_a_skill_has_under_fifteen_lines_and_answers_as_s3_says(short: Program) -> None:
    assert len(SHORT.splitlines()) < 15
    heard = short.ask("analyze", target="构建")

    assert heard.data == {"target": "构建", "days": 7}
    assert heard.response["action"] == "analyze"
    assert heard.response["metadata"]["execution_time_ms"] >= 0
    assert heard.stderr == "50% complete\n"


def test_a_missing_param_a_wrong_type_and_an_unknown_one_are_told_by_their_codes(short: Program) -> None:
    assert short.ask("analyze").error["code"] == "MISSING_PARAM"
    assert short.ask("analyze").error["details"] == {"missing": ["target"]}
    assert short.ask("analyze", target=1).error["code"] == "INVALID_PARAM"
    assert short.ask("analyze", target="x", days="7").error["message"] == "'days' takes int, not '7'"
    assert short.ask("analyze", target="x", day=7).error["details"] == {"known": ["target", "days"]}
    assert short.ask("analyze", target="x", days=0).error["details"] == {"days": 0}


def test_an_unknown_action_names_the_supported_ones_beside_its_code(short: Program) -> None:
    heard = short.ask("nope")

    assert heard.error == {
        "code": "UNKNOWN_ACTION",
        "message": "Unknown action: nope",
        "supported_actions": ["analyze"],
    }
    assert short.send(b"{}").error["code"] == "UNKNOWN_ACTION"


@pytest.mark.parametrize(
    ("stdin", "code"),
    [
        (b"", "INVALID_JSON"),
        (b"{nope", "INVALID_JSON"),
        (b"[]", "INVALID_JSON"),
        (b"\xff\xfe", "INVALID_JSON"),
        (b"[" * 100_000, "INVALID_JSON"),
        (b'{"action": "analyze", "params": "text"}', "INVALID_PARAM"),
        (b'{"action": "analyze", "context": []}', "MISSING_PARAM"),
        (b'{"action": ["analyze"]}', "UNKNOWN_ACTION"),
    ],
)
def test_whatever_comes_on_stdin_gets_a_response(stdin: bytes, code: str, short: Program) -> None:
    assert short.send(stdin).error["code"] == code


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("text", ["", "文"], [1, None, True, []]),
        ("whole", [0, -3], [1.5, "1", True, None]),
        ("number", [1, 1.5], ["1", False, None]),
        ("flag", [True, False], [0, "true", None]),
        ("many", [[], [1, "a"]], [{}, "a"]),
        ("some", [{}, {"a": 1}], [[], "a"]),
        ("numbers", [[1, 2]], [["1"], [1.5], 1]),
        ("path", ["a/b"], [1, ["a"]]),
        ("size", ["s", "m", 3], ["l", 3.5, "3", True]),
        ("maybe", [None, 1], ["1", 1.5]),
        ("either", [1, "1"], [1.5, [], None]),
        ("anything", [None, 1, "a", []], []),
        ("from", ["here"], [1]),
    ],
)
def test_the_signature_types_the_params(name: str, good: list[object], bad: list[object], typed: Program) -> None:
    for value in good:
        assert typed.ask("types", **{name: value}).response["success"], value
    for value in bad:
        assert typed.ask("types", **{name: value}).error["code"] == "INVALID_PARAM", value


def test_types_need_no_typing(tmp_path: Path) -> None:
    path = tmp_path / "skill.py"
    path.write_text(
        "from skillyard.skill import action, serve\n@action\n"
        "def total(numbers: list[int], names: dict[str, int], limit: int | None = None) -> dict:\n"
        "    return {'total': sum(numbers), 'limit': limit}\nserve()\n"
    )
    program = Program(path)

    assert program.ask("total", numbers=[1, 2], names={"a": 1}, limit=3).data == {"total": 3, "limit": 3}
    assert program.ask("total", numbers=["1"], names={}).error["code"] == "INVALID_PARAM"
    assert program.ask("total", numbers=1, names={}).error["code"] == "INVALID_PARAM"
    assert program.ask("total", numbers=[], names={"a": "b"}).error["code"] == "INVALID_PARAM"
    assert program.ask("total", numbers=[], names={}, limit="3").error["code"] == "INVALID_PARAM"


def test_values_arrive_as_the_types_they_were_asked_for(typed: Program) -> None:
    assert typed.ask("types", path="a/b", number=2).data == {
        "path": [True, "a/b"],
        "number": 2.0,
        "size": "s",
        "maybe": None,
        "either": 1,
        "from": "",
    }


def test_the_context_goes_to_the_param_of_its_type(typed: Program) -> None:
    request = {"action": "who", "params": {"x": 1}, "context": {"request_id": "r1"}}

    assert typed.send(json.dumps(request).encode()).data == {"id": "r1", "user": None, "more": {"x": 1}}


def test_lists_are_counted_and_a_reply_carries_a_message(typed: Program) -> None:
    assert typed.ask("items").response["metadata"]["items_count"] == 3
    told = typed.ask("told").response
    assert (told["message"], told["metadata"]["pages"]) == ("all done", 2)
    assert typed.ask("daily-briefing").data == {}


def test_nothing_but_the_response_reaches_stdout(typed: Program) -> None:
    heard = typed.ask("noisy")  # the response is parsed from the whole of stdout

    assert heard.data == {}
    for said in ("while it is imported", "print", "write", "descriptor", "child"):
        assert said in heard.stderr
    assert "seen while debugging" not in heard.stderr
    assert "seen while debugging" in typed.send(b'{"action": "noisy"}', SKILL_DEBUG="1").stderr


@pytest.mark.parametrize("code", ["TIMEOUT", "PERMISSION_DENIED", "DATA_NOT_FOUND", "EXTERNAL_SERVICE_ERROR"])
def test_a_problem_is_told_by_its_code(code: str, typed: Program) -> None:
    assert typed.ask("problem", code=code).error == {"code": code, "message": "as asked"}


@pytest.mark.parametrize("action", ["crash", "leave", "unwritable", "surrogate"])
def test_whatever_an_action_does_there_is_a_response(action: str, typed: Program) -> None:
    heard = typed.ask(action)

    assert heard.error["code"] == "INTERNAL_ERROR"
    assert "Traceback" not in heard.stderr
    assert (
        "Traceback" in typed.send(json.dumps({"action": action}).encode(), SKILL_DEBUG="1").stderr or action == "leave"
    )


def test_a_code_that_s3_does_not_know_is_the_authors_mistake(typed: Program) -> None:
    error = typed.ask("problem", code="OOPS").error

    assert error["code"] == "INTERNAL_ERROR"
    assert "DATA_NOT_FOUND" in error["message"]


def test_a_program_tells_its_actions(typed: Program) -> None:
    found = {each["name"]: each for each in typed.send(b"", "--actions").response["actions"]}
    params = {param["name"]: param for param in found["types"]["params"]}

    assert list(found)[:3] == ["types", "who", "items"]
    assert params["size"] == {
        "name": "size",
        "type": "enum",
        "required": False,
        "default": "s",
        "choices": ["s", "m", 3],
    }
    assert params["maybe"]["type"] == "int"
    assert params["path"] == {"name": "path", "type": "path", "required": False, "default": "."}
    assert found["who"]["params"] == []


def test_it_runs_in_the_sandbox_by_a_python_that_does_not_have_it(
    yard: Project, write_skill: WriteSkill, tmp_path: Path
) -> None:
    write_skill("demo", SKILL_MD, {"skill.py": SHORT})

    with yard:
        result = yard.runtime.run(Request(name="demo", action="analyze", params={"target": "x"}))
        refused = yard.runtime.run(Request(name="demo", action="analyze"))

    assert result.state is State.SUCCESS, result
    assert (result.data["target"], result.data["days"]) == ("x", 7)
    assert (refused.data["type"], refused.data["code"]) == ("ParamMissing", "MISSING_PARAM")


def test_only_the_helper_is_in_sight_on_the_path_of_a_skill(tmp_path: Path) -> None:
    code = "import skillyard.skill; print(hasattr(skillyard, 'Kernel'), skillyard.skill.__file__)"
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(PACKAGE / "for_skills")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert ended.stdout.split() == ["False", str(PACKAGE / "skill.py")], ended.stderr


def test_importing_it_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, os, json; before = set(sys.modules); import skillyard.skill; print(*set(sys.modules) - before)"
    ended = subprocess.run([sys.executable, "-S", "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)

    assert set(ended.stdout.split()) <= {"skillyard", "skillyard.skill", "__future__"}


def test_any_python_from_3_9_on_can_read_it() -> None:
    ast.parse((PACKAGE / "skill.py").read_text("utf-8"), feature_version=(3, 9))
