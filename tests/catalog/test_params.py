from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.frontmatter import Block
from skillyard.catalog.manifest import read_params, slots
from skillyard.core.skill import Param, ParamType
from skillyard.core.values import Json


def read(fields: Mapping[str, Json], command: str = "") -> tuple[Param, ...]:
    return read_params(Block(dict(fields), {}, []), command)


def codes(fields: Mapping[str, Json], command: str = "") -> list[str]:
    block = Block(dict(fields), {}, [])
    read_params(block, command)
    return [finding.code for finding in block.findings]


def test_a_mapping_declares_params_by_name() -> None:
    spec: Json = {"input": {"required": True, "type": "path", "description": "the file"}, "n": {"default": 3}}

    assert read({"params": spec}) == (
        Param(name="input", required=True, type=ParamType.PATH, description="the file"),
        Param(name="n", default=3),
    )


@pytest.mark.parametrize("field", ["params", "parameters", "required_params"])
def test_a_list_declares_params_with_prompts_and_validations(field: str) -> None:
    item: Json = {"name": "url", "required": True, "prompt": "Which page?", "validation": "url_format"}

    assert read({field: [item]}) == (Param(name="url", required=True, prompt="Which page?", validation="url_format"),)


def test_required_params_are_required_unless_they_say_otherwise() -> None:
    listed: Json = ["a", {"name": "b", "required": False}, {"c": "int"}]

    assert [(param.name, param.required) for param in read({"required_params": listed})] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def test_slots_alone_are_required_params_and_ours_are_none() -> None:
    command = "./run {input} --to ${format} {output} {skill} {baseDir} ${CLAUDE_SKILL_DIR} {input}"

    assert slots(command) == ("input", "format")
    assert read({}, command) == (Param(name="input", required=True), Param(name="format", required=True))
    assert codes({}, command) == []


def test_slots_and_declarations_are_matched() -> None:
    declared: Json = {"a": {"default": "x"}, "unused": None}

    assert [(param.name, param.required) for param in read({"params": declared}, "run {a} {b}")] == [
        ("a", False),
        ("unused", False),
        ("b", True),
    ]
    assert codes({"params": declared}, "run {a} {b}") == ["param-unused", "param-undeclared"]


def test_a_default_answers_for_a_required_param() -> None:
    assert read({"params": {"a": {"required": True, "default": "x"}}}) == (Param(name="a", default="x"),)


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        ("str", ParamType.STRING),
        ("Integer", ParamType.INT),
        ("float", ParamType.NUMBER),
        ("boolean", ParamType.BOOL),
        ("file", ParamType.PATH),
        ("directory", ParamType.PATH),
    ],
)
def test_common_spellings_of_types_are_known(spelling: str, kind: ParamType) -> None:
    assert read({"params": {"a": {"type": spelling}}})[0].type is kind
    assert read({"params": {"a": spelling}})[0].type is kind


def test_choices_make_an_enum() -> None:
    (param,) = read({"params": {"a": {"enum": ["x", 2, True]}}})

    assert (param.type, param.choices) == (ParamType.ENUM, ("x", "2", "true"))


def test_an_option_may_start_with_a_hyphen() -> None:
    assert read({"params": {"a": {"option": True}}})[0].option


def test_a_json_schema_is_read_as_the_params_it_describes() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["q"],
    }

    assert [(param.name, param.required, param.type) for param in read({"parameters": schema})] == [
        ("q", True, ParamType.STRING),
        ("n", False, ParamType.INT),
    ]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("text", "params-shape"),
        (7, "params-shape"),
        ([{"required": True, "type": "int"}], "param-name"),
        ([["a"]], "param-name"),
        ({"2x": {}}, "param-name"),
        ({"a": 7}, "param-shape"),
        ({"a": {"type": "wat"}}, "param-type"),
        ({"a": {"type": ["int"]}}, "param-type"),
        ({"a": {"validation": "wat"}}, "param-validation"),
        ({"a": {"required": "maybe"}}, "param-flag"),
        ({"a": {"type": "enum"}}, "param-choices"),
        ({"a": {"type": "int", "default": "x"}}, "param-default"),
        ({"a": {"type": "int", "default": True}}, "param-default"),
        ({"a": {"choices": ["x"], "default": "y"}}, "param-default"),
        ([{"name": "a"}, {"name": "a"}], "param-twice"),
    ],
)
def test_a_bad_declaration_is_a_finding(value: Json, code: str) -> None:
    assert codes({"params": value}) == [code]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["name", "a", "int", "enum", "required"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["name", "type", "default", "choices", "a", "properties"]), inner)
    ),
)


@given(VALUES, st.text())
def test_any_value_is_read_without_a_crash(value: Json, command: str) -> None:
    for field in ("params", "parameters", "required_params"):
        read({field: value}, command)
