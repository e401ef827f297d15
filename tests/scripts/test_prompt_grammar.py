"""The prompt grammar: what it takes, what it refuses, and that it never guesses."""

import shlex
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.flowfile import parse_workflow
from skillyard.core.errors import InvalidArgs, MultiStep, SkillError
from skillyard.core.result import Request
from skillyard.core.shell_words import split
from skillyard.scripts.prompt_grammar import parse_prompt


def known(name: str) -> bool:
    return name in {"markdown-converter", "b"}


@pytest.mark.parametrize("verb", ["执行 ", "运行 ", "run ", ""])
def test_every_form_of_a_call_is_read(verb: str) -> None:
    prompt = parse_prompt(f"{verb}@markdown-converter README.md --to html", known)

    assert prompt == Request("markdown-converter", ("README.md", "--to", "html"))


@pytest.mark.parametrize(
    ("prompt", "parsed"),
    [
        ("执行 @markdown-converter README.md", ("markdown-converter", ("README.md",))),
        ("执行 @image-resizer photo.jpg --width 800", ("image-resizer", ("photo.jpg", "--width", "800"))),
        ("执行 @code-analyzer src/ --language python", ("code-analyzer", ("src/", "--language", "python"))),
    ],
)
def test_the_examples_of_s0(prompt: str, parsed: tuple[str, tuple[str, ...]]) -> None:
    found = parse_prompt(prompt, known)

    assert (found.name, found.args) == parsed


def test_a_script_of_a_skill_and_a_role_are_named_in_the_word() -> None:
    assert parse_prompt("run @a:scripts/x.py f", known) == Request("a", ("f",), script="scripts/x.py")
    assert parse_prompt("run @analyst/report", known).name == "analyst/report"


@pytest.mark.parametrize(
    "prompt",
    [
        "执行 @a x 然后 执行 @b y",
        "执行 @a x then run @b",
        "@a && @b",
        "@a x; 执行 @z",
        "@a x ; @z",
        "@a | @z",
        "@a @b",
        "@a x;@z",
        "@a x；执行 @b",
    ],
)
def test_several_steps_in_one_call_are_refused_with_a_workflow_that_can_be_read(prompt: str) -> None:
    with pytest.raises(MultiStep) as raised:
        parse_prompt(prompt, known)

    workflow = parse_workflow(str(raised.value.details["workflow"]).encode(), Path("workflow.yaml"))
    assert workflow.findings == ()
    first, second = workflow.steps
    assert (first.skill, second.skill in {"b", "z"}) == ("a", True)
    assert first.args in {(), ("x",)}


def test_the_words_of_each_step_are_kept_to_the_letter() -> None:
    with pytest.raises(MultiStep) as raised:
        parse_prompt("@a 'x; @b' --to \"${x} 😀\" 然后 run @b ''", known)

    workflow = parse_workflow(str(raised.value.details["workflow"]).encode(), Path("workflow.yaml"))
    assert [step.args for step in workflow.steps] == [("x; @b", "--to", "$${x} 😀"), ("",)]


@given(st.lists(st.sampled_from(["@a", "@b", "@", ";", "&&", "then", "run", "执行", "x;", "x;@b", "'@b'", "${", "|@"])))
def test_whatever_looks_like_steps_is_refused_and_never_a_crash(words: list[str]) -> None:
    with suppress(SkillError):
        parse_prompt(" ".join(["@a", *words]), known)


@pytest.mark.parametrize(
    "prompt",
    [
        "@a '@b'",  # quoted
        "@a @somebody",  # no skill of that name
        "@a then what",  # no call follows
        "@a 'x; y'",
        "@a x;y",
        "@a 先看然后再说",
        '@a "执行 @b"',
    ],
)
def test_what_only_looks_like_a_second_step_is_an_argument(prompt: str) -> None:
    assert parse_prompt(prompt, known).name == "a"


@pytest.mark.parametrize(
    "prompt",
    ["", "   ", "hello", "执行", "执行 markdown", "please run @a", "@", "run '@a'", "@a 'open", "@a x\\", "a\0b"],
)
def test_what_is_outside_the_grammar_is_refused_with_the_usage(prompt: str) -> None:
    with pytest.raises(InvalidArgs):
        parse_prompt(prompt, known)


def test_a_task_output_is_told_where_the_result_was() -> None:
    with pytest.raises(InvalidArgs, match="return value"):
        parse_prompt("TaskOutput(task_id=1)", known)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_words_are_split_as_a_shell_splits_them(words: list[str]) -> None:
    line = shlex.join(words)

    assert [word.text for word in split(line)] == words == shlex.split(line)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SkillError):
        assert parse_prompt(text, known).name
