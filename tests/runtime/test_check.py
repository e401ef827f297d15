"""Request → Call: what is bound, typed, validated, refused, and which paths naming grants."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.core.errors import InvalidParam, ParamMissing, PermissionDenied
from skillyard.core.result import Call, Request
from skillyard.core.skill import Kind, Param, ParamType, Skill
from skillyard.runtime.check import as_scalar, bind, check

INPUT = Param(name="input_file", required=True, prompt="Which file?")
WIDTH = Param(name="width", type=ParamType.INT)
BEST = Param(name="best", type=ParamType.BOOL)


def skill(*params: Param, kind: Kind = Kind.COMMAND, **more: Any) -> Skill:
    return Skill(name="s", path=Path("/skills/s/SKILL.md"), kind=kind, params=params)._replace(**more)


def checked(found: Skill, *args: str, root: Path = Path("/nowhere"), **more: Any) -> Call:
    return check(found, Request(name="s", args=args)._replace(**more), root, "run-1")


@pytest.mark.parametrize(
    "words",
    [
        ("a.jpg", "--width", "800"),
        ("--width=800", "a.jpg"),
        ("a.jpg", "width=800"),
        ("input_file=a.jpg", "800"),
        ("--input-file", "a.jpg", "--width", "800"),
        ("--width", "800", "--", "a.jpg"),
    ],
)
def test_params_are_given_by_place_or_by_name(words: tuple[str, ...]) -> None:
    assert checked(skill(INPUT, WIDTH), *words).params == {"input_file": "a.jpg", "width": 800}


def test_a_bool_needs_no_value() -> None:
    assert checked(skill(INPUT, BEST), "a", "--best").params["best"] is True
    assert checked(skill(INPUT, BEST), "a", "--best", "false").params["best"] is False


@pytest.mark.parametrize(
    "words", [("a", "1", "2"), ("a", "--nope", "1"), ("a", "--width"), ("a", "input_file=b"), ("a", "--width", "wide")]
)
def test_what_nothing_takes_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParam):
        checked(skill(INPUT, WIDTH), *words)


def test_all_missing_params_are_named_at_once_with_their_prompts() -> None:
    with pytest.raises(ParamMissing) as caught:
        checked(skill(INPUT, Param(name="b", required=True), WIDTH))

    assert caught.value.as_question() == {
        "required": ["input_file", "b"],
        "optional": ["width"],
        "prompts": {"input_file": "Which file?"},
    }
    assert caught.value.msg == "Required parameters 'input_file', 'b' not provided"


@pytest.mark.parametrize(
    ("kind", "value", "typed"),
    [
        (ParamType.INT, "-3", -3),
        (ParamType.NUMBER, "1.5", 1.5),
        (ParamType.NUMBER, "2", 2),
        (ParamType.BOOL, "Yes", True),
        (ParamType.STRING, "007", "007"),
        (ParamType.PATH, "文件.md", "文件.md"),
    ],
)
def test_values_get_their_type(kind: ParamType, value: str, typed: object) -> None:
    assert checked(skill(Param(name="x", type=kind)), f"x={value}").params == {"x": typed}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ParamType.INT, "1.5"),
        (ParamType.INT, ""),
        (ParamType.NUMBER, "nan"),
        (ParamType.NUMBER, "1e999"),
        (ParamType.BOOL, "maybe"),
        (ParamType.STRING, "a\0b"),
    ],
)
def test_values_of_another_type_are_refused(kind: ParamType, value: str) -> None:
    with pytest.raises(InvalidParam):
        checked(skill(Param(name="x", type=kind)), f"x={value}")


def test_an_enum_takes_only_its_choices() -> None:
    found = skill(Param(name="to", type=ParamType.ENUM, choices=("html", "text")))

    assert checked(found, "html").params == {"to": "html"}
    with pytest.raises(InvalidParam, match="html, text"):
        checked(found, "pdf")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("not_empty", "x", "  "),
        ("url_format", "https://例子.cn/a?b=1", "example"),
        ("email", "a@b.cn", "a@b"),
        ("file_exists", "here.txt", "gone.txt"),
    ],
)
def test_validations_of_skill_md_hold(tmp_path: Path, rule: str, good: str, bad: str) -> None:
    (tmp_path / "here.txt").touch()
    found = skill(Param(name="x", validation=rule))

    assert checked(found, f"x={good}", root=tmp_path).params == {"x": good}
    with pytest.raises(InvalidParam, match=rule):
        checked(found, f"x={bad}", root=tmp_path)


def test_defaults_fill_in_and_are_typed_too() -> None:
    assert checked(skill(Param(name="x", type=ParamType.INT, default="7"))).params == {"x": 7}


def test_the_first_word_for_a_json_skill_is_the_action_and_values_are_json_scalars() -> None:
    call = checked(skill(kind=Kind.JSON), "analyze", "days=7", "--deep", "true", "name=x", "none=null")

    assert call.action == "analyze"
    assert call.params == {"days": 7, "deep": True, "name": "x", "none": None}


def test_an_unknown_action_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(InvalidParam) as caught:
        checked(skill(kind=Kind.JSON, actions=("analyze",)), "explode")

    assert caught.value.details == {"code": "UNKNOWN_ACTION", "supported_actions": ["analyze"]}


def test_without_an_action_the_question_names_them() -> None:
    with pytest.raises(ParamMissing) as caught:
        checked(skill(kind=Kind.JSON, actions=("analyze", "report")))

    assert caught.value.required == ("action",)
    assert checked(skill(kind=Kind.JSON, actions=("analyze",))).action == "analyze"


@pytest.mark.parametrize(
    ("request_more", "skill_seconds", "limit"),
    [
        ({}, None, 60),
        ({}, 20.0, 20),
        ({"timeout_seconds": 5.0}, 20.0, 5),
        ({"deadline_seconds": 90.0}, 600.0, 90),
        ({"deadline_seconds": 90.0}, None, 60),
        ({"deadline_seconds": 90.0, "timeout_seconds": 600.0}, None, 600),
    ],
)
def test_the_nearest_limit_wins_and_only_an_explicit_one_passes_a_deadline(
    request_more: dict[str, Any], skill_seconds: float | None, limit: float
) -> None:
    assert checked(skill(timeout_seconds=skill_seconds), **request_more).limit_seconds == limit


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_limit_must_be_above_zero(seconds: float) -> None:
    with pytest.raises(InvalidParam):
        checked(skill(), timeout_seconds=seconds)


def test_a_path_that_a_person_types_is_meant_from_where_they_stand(tmp_path: Path) -> None:
    inside = tmp_path / "project" / "sub"
    inside.mkdir(parents=True)
    (inside / "a.md").touch()
    (tmp_path / "outside.md").touch()
    root = tmp_path / "project"
    found = skill(Param(name="file"))

    here = checked(found, "a.md", root=root, typed_in=inside)
    there = checked(found, "../../outside.md", root=root, typed_in=inside)

    assert (here.params, here.named_paths) == ({"file": "sub/a.md"}, (inside / "a.md",))
    assert (there.params, there.named_paths) == ({"file": str(tmp_path / "outside.md")}, (tmp_path / "outside.md",))


def test_a_path_that_somebody_else_names_counts_only_inside_the_project(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "in.md").touch()
    (tmp_path / "out.md").touch()
    (root / "link.md").symlink_to(tmp_path / "out.md")
    found = skill(Param(name="file"))

    assert checked(found, "in.md", root=root).named_paths == (root / "in.md",)
    assert checked(found, "../out.md", root=root).named_paths == ()
    assert checked(found, "link.md", root=root).named_paths == ()
    with pytest.raises(InvalidParam, match="outside the project"):
        checked(skill(Param(name="file", type=ParamType.PATH)), "../out.md", root=root)


def test_a_default_path_is_not_a_name_that_somebody_gave(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()

    assert checked(skill(Param(name="file", default="secret")), root=tmp_path).named_paths == ()


@pytest.mark.parametrize("output", [".git/hooks/x", ".claude/skills/y", "agents/a", "bin/x.py", "mybox/../.git/x"])
def test_what_decides_what_may_run_is_never_an_output(tmp_path: Path, output: str) -> None:
    with pytest.raises(PermissionDenied):
        checked(skill(), f"output={output}", root=tmp_path)


def test_an_output_is_the_folder_unless_it_is_named(tmp_path: Path) -> None:
    declared = skill(Param(name="output", default="report.html"))

    assert checked(skill(), root=tmp_path).output == "mybox/output/"
    assert checked(skill(), "output=mybox/x.html", root=tmp_path).output == "mybox/x.html"
    assert checked(declared, root=tmp_path).output == "mybox/output/report.html"


@given(st.lists(st.text()))
def test_any_words_are_bound_or_refused(words: list[str]) -> None:
    with suppress(InvalidParam):
        bind(skill(INPUT, WIDTH, BEST), words)


@given(st.text())
def test_a_scalar_is_itself_or_what_json_says(text: str) -> None:
    value = as_scalar(text)

    assert value == text or value is None or isinstance(value, bool | int | float)
