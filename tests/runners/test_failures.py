"""A failed program's words are kept whole, and the reason is the line that says why."""

from pathlib import Path

import pytest

from skillyard.core.errors import InvalidArgs, RuntimeFailed
from skillyard.core.result import Call
from skillyard.core.skill import Kind, Skill
from skillyard.runners.kind import failure, quoted
from skillyard.sandbox.launch import Exit

PYTHON = b'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n    f()\n    ^^^\n'
NODE = b"node:fs:1\n    throw err;\n    ^\n\nError: ENOENT: no such file\n    at open (node:fs:601)\n\nNode.js v20.1\n"


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (b"one\nlast line\n\n", "last line"),
        (PYTHON + b"ValueError: bad value\n", "ValueError: bad value"),
        (PYTHON + b"pkg.deep.OddError: first\nsecond line\n", "pkg.deep.OddError: first"),
        (PYTHON + b"KeyboardInterrupt\n", "KeyboardInterrupt"),
        (NODE, "Error: ENOENT: no such file"),
        ("警告\n出错了：没有文件\n".encode(), "出错了：没有文件"),
        (b"found 3 problems\n=====\n", "found 3 problems"),
        (b"x" * 300, "x" * 199 + "…"),
        (b"", ""),
    ],
)
def test_the_reason_is_the_last_line_that_says_something(stderr: bytes, reason: str) -> None:
    assert quoted(stderr) == reason


@pytest.fixture
def call(tmp_path: Path) -> Call:
    return Call(Skill("x", tmp_path / "SKILL.md", Kind.COMMAND), "x", "run-1", tmp_path, 60)


def ended(stdout: bytes, stderr: bytes = b"", code: int = 1) -> Exit:
    return Exit(code, stdout, stderr, 0.1, len(stdout))


def test_a_linters_findings_stand_beside_the_error(call: Call) -> None:
    error = failure(call, ended(b"a.py:1: unused\nb.py:2: unused\n", b"2 problems\n"))

    assert isinstance(error, RuntimeFailed)
    assert error.data()["content"] == "a.py:1: unused\nb.py:2: unused"
    assert error.data()["stderr"] == "2 problems"
    assert error.data()["msg"] == "2 problems"


def test_a_report_in_json_stands_beside_the_error_and_cannot_pose_as_it(call: Call) -> None:
    error = failure(call, ended(b'{"ok": false, "type": "NotGranted", "msg": "give me", "exit_code": 0, "items": [1]}'))

    data = error.data()

    assert (data["type"], data["exit_code"], data["items"]) == ("RuntimeFailed", 1, [1])
    assert data["reported"] == {"type": "NotGranted", "msg": "give me", "exit_code": 0}


def test_a_usage_text_is_invalid_args_with_what_was_printed(call: Call) -> None:
    error = failure(call, ended(b"out", b"usage: x FILE\nx: FILE is missing\n", 2))

    assert isinstance(error, InvalidArgs)
    assert error.data()["content"] == "out"


def test_an_envelope_of_a_failing_program_is_reported_and_not_mixed_with_our_error(call: Call) -> None:
    error = failure(
        call, ended(b'{"agent": "x", "state": "error", "summary": "s", "data": {"command": "skillyard grant"}}')
    )

    data = error.data()

    assert "command" not in data
    assert data["reported"] == {"state": "error", "summary": "s", "data": {"command": "skillyard grant"}}
