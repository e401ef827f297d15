from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.app.project import Project
from skillyard.core.errors import InvalidCommand, InvalidParam
from skillyard.runners.command import fill, split
from tests.conftest import WriteSkill

TEXT = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(TEXT.filter(lambda value: not value.startswith("-")))
def test_a_param_is_always_exactly_one_argument(value: str) -> None:
    words = split("tool --to {x} --flag")

    assert fill(words, {"x": value}) == ("tool", "--to", value, "--flag")


@given(TEXT)
def test_a_param_inside_a_word_stays_inside_it(value: str) -> None:
    assert fill(split("tool --to={x}"), {"x": value}) == ("tool", f"--to={value}")


@given(st.text())
def test_a_template_is_split_or_refused_and_never_crashes(template: str) -> None:
    with suppress(InvalidCommand):
        assert split(template)


@pytest.mark.parametrize(
    "template",
    [
        "cat {x} | wc",
        "cat {x} > out",
        "cat < {x}",
        "a && b",
        "a; b",
        "echo $(id)",
        "echo `id`",
        'echo "$(id)"',
        'echo "`id`"',
        "echo $HOME",
        "a & ",
        "a\nb",
        "(a)",
        "",
        "   ",
        'open "quote',
    ],
)
def test_a_template_that_needs_a_shell_is_refused(template: str) -> None:
    with pytest.raises(InvalidCommand):
        split(template)


@pytest.mark.parametrize("template", ["echo 'a | b'", 'echo "a > b"', r"echo a\;b", "echo 'x;$(id)'", "echo ${x} {y}"])
def test_quoted_shell_characters_are_plain_text(template: str) -> None:
    assert split(template)[0] == "echo"


@pytest.mark.parametrize(
    "template",
    [
        "python -c {x}",
        "bash -c 'echo {x}'",
        "node -e {x}",
        "awk {x} file",
        "sed s/{x}/b/ file",
        "ssh host {x}",
        "xargs {x}",
        "perl -e {x}",
        "{x} --flag",
    ],
)
def test_a_slot_that_would_be_run_as_code_is_refused(template: str) -> None:
    with pytest.raises(InvalidCommand):
        split(template)


def test_an_optional_slot_without_a_value_drops_its_argument_and_the_flag_before_it() -> None:
    words = split("tool {input} --width {width} -q --name={name} last")

    assert fill(words, {"input": "a"}) == ("tool", "a", "-q", "last")
    assert fill(words, {"input": "a", "width": "8", "name": "n"}) == (
        *("tool", "a", "--width", "8", "-q", "--name=n", "last"),
    )


@pytest.mark.parametrize("value", ["-rf", "--files0-from=.env", "-"])
def test_a_value_that_looks_like_an_option_is_refused(value: str) -> None:
    with pytest.raises(InvalidParam):
        fill(split("wc {file}"), {"file": value})


def test_a_value_may_look_like_an_option_where_the_author_says_so() -> None:
    assert fill(split("wc -- {file}"), {"file": "-rf"}) == ("wc", "--", "-rf")
    assert fill(split("git log {range}"), {"range": "-5"}, frozenset({"range"})) == ("git", "log", "-5")


def test_a_slot_has_a_name_in_any_script() -> None:
    words = split("tool --to {文本} ${größe} {1} {a b}".replace("{a b}", "'{a b}'"))

    assert fill(words, {"文本": "你好 $(id)", "größe": "2"}) == ("tool", "--to", "你好 $(id)", "2", "{1}", "{a b}")


@pytest.mark.parametrize("value", [-5, "-5", "-2.5e3"])
def test_a_negative_number_is_a_value_of_a_number(yard: Project, write_skill: WriteSkill, value: int | str) -> None:
    params = "params: {数: {required: true, type: number}, text: {default: x}}"
    write_skill("加", f"---\nname: 加\ndescription: adds\n{params}\ncommand: echo {{数}} {{text}}\n---\n")

    assert float(str(yard.run("加", 数=value).data["content"]).split()[0]) == float(value)
    assert yard.run("加", 数=1, text="-5").data["type"] == "InvalidParam"
    assert yard.run("加", 数="-x").data["type"] == "InvalidParam"
