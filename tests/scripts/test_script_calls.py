"""The worker's prompts: scripts that exist, never code that somebody made up."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.scripts.prompt_grammar import ScriptCall, parse_script_calls


@pytest.mark.parametrize(
    ("prompt", "order"),
    [
        ("执行 python bin/skill_manager.py list", ScriptCall("bin/skill_manager.py", ("list",))),
        (
            "执行 python bin/skill_manager.py search markdown",
            ScriptCall("bin/skill_manager.py", ("search", "markdown")),
        ),
        ("执行 python bin/skill_scanner.py scan", ScriptCall("bin/skill_scanner.py", ("scan",))),
        ("run python3 ./bin/x.py 'a b' \"c\"", ScriptCall("bin/x.py", ("a b", "c"))),
        ("python bin/x.py >/dev/null", ScriptCall("bin/x.py", drop_stdout=True)),
        ("python bin/x.py > /dev/null 2>&1", ScriptCall("bin/x.py", drop_stdout=True, drop_stderr=True)),
        ("python bin/x.py 2>&1 > /dev/null", ScriptCall("bin/x.py", drop_stdout=True, join_stderr=True)),
        ("python bin/x.py a 2>/dev/null b", ScriptCall("bin/x.py", ("a", "b"), drop_stderr=True)),
        ("python bin/x.py '> nul'", ScriptCall("bin/x.py", ("> nul",))),
    ],
)
def test_an_order_is_a_script_with_its_words(prompt: str, order: ScriptCall) -> None:
    assert parse_script_calls(prompt) == (order,)


def test_every_line_is_an_order_of_its_own() -> None:
    prompt = "执行 python bin/a.py\n\n  执行 python bin/b.py x  \n"

    assert parse_script_calls(prompt) == (ScriptCall("bin/a.py"), ScriptCall("bin/b.py", ("x",)))


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "hello",
        "执行 bin/x.py",
        "执行 python",
        "执行 python -c 'print(1)'",
        "执行 python -m http.server",
        "python bin/x.py << END",
        "python bin/x.py <<END",
        "python bin/x.py | wc",
        "python bin/x.py && rm x",
        "python bin/x.py; rm x",
        "python bin/x.py > out.txt",
        "python bin/x.py >> /dev/zero",
        "python bin/x.py > nul",
        "python bin/x.py >NUL",
        "python bin/x.py 2>Nul",
        "python bin/x.py 'open",
        "TaskOutput(task_id=1)",
    ],
)
def test_everything_else_is_refused(prompt: str) -> None:
    with pytest.raises(InvalidArgs):
        parse_script_calls(prompt)


def test_the_hint_for_nul_names_dev_null() -> None:
    with pytest.raises(InvalidArgs, match="/dev/null"):
        parse_script_calls("python bin/x.py > nul")


@pytest.mark.parametrize("script", ["x.py", "scripts/x.py", "../x.py", "/etc/x.py"])
def test_a_script_outside_bin_is_denied(script: str) -> None:
    with pytest.raises(PermissionDenied):
        parse_script_calls(f"python {script}")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SkillError):
        assert parse_script_calls(text)
