"""workflow.yaml: what is read, what is refused with its line, and references that are nothing but references."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.flowfile import MAX_BYTES, MAX_STEPS, WorkflowFile, list_workflows, parse_workflow, read_workflow
from skillyard.catalog.references import Reference, as_text, fill, parse, references, walk
from skillyard.core.values import Json
from tests.catalog.schema_keywords import KEYWORDS
from tests.core.values import texts, values

WHOLE = """\
name: weekly-report
description: 每周报告
inputs:
  days: {type: integer, default: 7}
  team:
steps:
  - id: collect
    skill: "@collect"
    action: daily_briefing
    params: {days: "${inputs.days}"}
  - id: 总结
    skill: analyst/summarise
    for_each: "${collect.data.files}"
    params: {file: "${item}", number: "${index}"}
    retries: 2
    timeout: 30
    at_once: 4
    on_failure: continue
  - skill: publish
    args: [--text, "${总结.data.content}"]
"""


def read(text: str, path: Path = Path("workflows/weekly.yaml")) -> WorkflowFile:
    return parse_workflow(text.encode(), path)


def told(text: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.message) for finding in read(text).findings]


def steps(*lines: str) -> str:
    return "steps:\n" + "".join(f"  {line}\n" for line in lines)


def test_every_key_is_read() -> None:
    workflow = read(WHOLE)

    assert workflow.findings == ()
    assert (workflow.name, workflow.description) == ("weekly-report", "每周报告")
    assert [(each.name, each.type, each.default, each.required) for each in workflow.inputs] == [
        ("days", "integer", 7, False),
        ("team", "string", None, True),
    ]
    collect, summarise, publish = workflow.steps
    assert (collect.id, collect.skill, collect.action) == ("collect", "collect", "daily_briefing")
    assert (summarise.skill, summarise.for_each, summarise.at_once) == ("analyst/summarise", "${collect.data.files}", 4)
    assert (summarise.retries, summarise.timeout_seconds, summarise.goes_on) == (2, 30.0, True)
    assert (publish.id, publish.args) == ("publish", ("--text", "${总结.data.content}"))
    assert (publish.retries, publish.timeout_seconds, publish.goes_on, publish.at_once) == (0, None, False, 1)


def test_the_name_is_the_files_where_none_is_said() -> None:
    assert read("steps: [{skill: a}]").name == "weekly"
    assert read("steps: [{skill: a}]", Path("/x/report/workflow.yaml")).name == "report"


def test_the_digest_is_of_the_bytes() -> None:
    assert read(WHOLE).digest == read(WHOLE).digest != read(WHOLE + "\n").digest


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("name: a\n", 1, "lacks `steps`"),
        ("steps: []\n", 1, "has 0 items"),
        (steps("- id: a"), 2, "lacks `skill`"),
        (steps("- skill: a", "  retrys: 2"), 3, "is not known"),
        (steps("- skill: a", "  retries: -1"), 3, "is -1"),
        (steps("- skill: a", "  timeout: 0"), 3, "is 0"),
        (steps("- skill: a", "  on_failure: ignore"), 3, "one of stop, continue"),
        (steps("- skill: a", "  params: [1]"), 3, "is a list"),
        (steps("- skill: a", "- skill: a"), 3, "is 'a' again, like step 1"),
        (steps("- skill: a", "  id: item"), 3, "references use for something else"),
        (steps("- skill: a", "  id: a.b"), 3, "it should be a word"),
        (steps("- skill: x.y"), 2, "cannot stand in for it"),
        (steps("- skill: a", "  params:", "    x: ${b.data}", "- skill: b"), 4, "that step comes later"),
        (steps("- skill: a", "  params:", "    x: ${a.data}"), 4, "or is this one"),
        (steps("- skill: collect", "- skill: b", "  args: ['${colect.data}']"), 4, "there is no such step"),
        (steps("- skill: a", "- skill: b", "  params: {x: '${a.dat.x}'}"), 4, "a step has data, state, summary, run"),
        (steps("- skill: a", "  params: {x: '${inputs.y}'}"), 3, "there is no such input"),
        (steps("- skill: a", "  params: {x: '${item}'}"), 3, "only the params of a step with `for_each`"),
        (steps("- skill: a", "  for_each: '${item}'"), 3, "only the params of a step with `for_each`"),
        (steps("- skill: a", "  for_each: [1]", "  params: {x: '${index.a}'}"), 4, "nothing below a number"),
        (steps("- skill: a", "  for_each: files"), 3, "is a text"),
        (steps("- skill: a", "  params: {x: '${a b}'}"), 3, "is no reference"),
        (steps("- skill: a", "  params: {x: '${1 + 1}'}"), 3, "is no reference"),
        (steps("- skill: a", "  params: {x: '${a'}"), 3, "no closing brace"),
        ("inputs: {n: {type: integer, default: x}}\n" + steps("- skill: a"), 1, "should be a whole number"),
        ("inputs: {n: {type: date}}\n" + steps("- skill: a"), 1, "one of string, integer"),
        ("inputs: {'a b': {}}\n" + steps("- skill: a"), 1, "is no name that a reference can have"),
        ("name: a b\n" + steps("- skill: a"), 1, "a word without spaces"),
        (steps("- skill: a", "  at_once: 3"), 3, "does nothing without `for_each`"),
        (steps("- &x skill: a"), 2, "anchors"),
        ("- a\n- b\n", 1, "a list, not fields"),
        ("steps: [\n", 2, "not valid YAML"),
        ("", 1, "holds no fields"),
        (steps("- skill: a", "  skill: b"), 3, "stands here again"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, says: str) -> None:
    found = told(text)

    assert any(says in message and at == line for at, message in found), found


def test_a_mistake_is_told_with_the_nearest_known_name() -> None:
    wrong = read(steps("- skill: collect", "- skill: b", "  params: {x: '${colect.data}'}", "  retrys: 1"))

    assert {finding.advice for finding in wrong.findings} == {"did you mean `collect`?", "did you mean `retries`?"}


def test_files_that_cannot_be_read_are_told_not_raised(tmp_path: Path) -> None:
    big, folder = tmp_path / "big.yaml", tmp_path / "empty"
    big.write_bytes(b"#" * (MAX_BYTES + 1))
    folder.mkdir()

    assert not read_workflow(big).usable
    assert "No such file" in read_workflow(folder).findings[0].message
    assert not read("steps: " + "[" * 5000).usable
    assert "more than" in told("steps: [" + ", ".join(["{skill: a}"] * (MAX_STEPS + 1)) + "]")[0][1]


@given(st.binary(max_size=400) | st.text(alphabet="steps:-{}[]$ \n'\"&*!#@ab.0", max_size=200).map(str.encode))
def test_no_bytes_make_the_reader_raise(content: bytes) -> None:
    assert parse_workflow(content, Path("x.yaml")).name == "x"


def test_the_schema_says_only_what_is_checked() -> None:
    from skillyard.catalog.flowfile import workflow_schema

    def words(schema: object) -> set[str]:
        if isinstance(schema, list):
            return set().union(*map(words, schema))
        if not isinstance(schema, dict):
            return set()
        own = set(schema) - {"default"}
        below = [words(schema[key]) for key in ("items", "additionalProperties") if key in schema]
        named = [words(each) for key in ("properties", "definitions") for each in schema.get(key, {}).values()]
        return own.union(*below, *named)

    assert words(workflow_schema()) <= KEYWORDS


def test_a_project_has_its_own_and_those_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflow.yaml").write_text("name: own\nsteps: [{skill: a}]")
    for name in ("b.yaml", "a.yml", "notes.txt"):
        (tmp_path / "workflows" / name).write_text("steps: [{skill: a}]")

    assert [workflow.name for workflow in list_workflows(tmp_path)] == ["a", "b", "own"]


# -- references


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("${a}", (Reference("a"),)),
        ("${a.data.files[0].x}", (Reference("a", ("data", "files", 0, "x")),)),
        ("${步骤.data.键}", (Reference("步骤", ("data", "键")),)),
        ("x ${a.b} y ${c[1]}", ("x ", Reference("a", ("b",)), " y ", Reference("c", (1,)))),
        ("$a $ {b} $$ {}", ("$a $ {b} $$ {}",)),
        ("$${a}", ("${", "a}")),
        ("", ()),
    ],
)
def test_a_text_is_split_at_its_references(text: str, pieces: tuple[str | Reference, ...]) -> None:
    assert parse(text) == pieces


@pytest.mark.parametrize(
    "text",
    ["${", "${}", "${a", "${a b}", "${a.}", "${a[x]}", "${a[-1]}", "${.a}", "${a..b}", "${a()}", "${a|b}", "${a+1}"],
)
def test_nothing_else_is_a_reference(text: str) -> None:
    with pytest.raises(ValueError, match=r"reference|brace"):
        parse(text)


@given(texts)
def test_an_escaped_text_fills_to_itself(text: str) -> None:
    assert fill(text.replace("${", "$${"), lambda _: "never") == text


@given(values)
def test_one_reference_alone_keeps_the_value_as_it_is(value: Json) -> None:
    assert fill("${x}", lambda _: value) == value
    assert fill("a${x}", lambda _: value) == f"a{as_text(value)}"


@given(texts)
def test_what_was_filled_in_is_never_read_for_references_again(text: str) -> None:
    assert fill({"a": ["${x}", "<${x}>"]}, lambda _: text) == {"a": [text, f"<{text}>"]}


@given(st.lists(st.text(alphabet="abc键😀_-", min_size=1) | st.integers(0, 10**8), max_size=5))
def test_a_reference_reads_back_as_it_is_shown(path: list[str | int]) -> None:
    reference = Reference("step", tuple(path))

    assert parse(reference.shown) == (reference,)


def test_references_are_found_wherever_they_stand() -> None:
    found = list(references({"a": ["x", "${b.data}"], "c": {"d": "${e} ${f}"}, "g": 1}))

    assert [(path, getattr(each, "name", "")) for path, each in found] == [
        (("a", 1), "b"),
        (("c", "d"), "e"),
        (("c", "d"), "f"),
    ]


def test_a_path_leads_through_keys_and_positions_and_a_key_of_a_list_is_that_of_each_item() -> None:
    value: Json = {"data": [{"content": "一"}, {"content": "二"}], "n": {"x": [1, 2]}}

    assert walk(value, ("n", "x", 1)) == 2
    assert walk(value, ("data", "content")) == ["一", "二"]
    assert walk(value, ("data", 0, "content")) == "一"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (("n", "y"), "did you mean `yy`"),
        (("l", 7), r"no \[7\] in a list of 2"),
        (("t", "x"), "nothing below a text"),
        (("none", "x"), "nothing below nothing"),
        (("l", "content"), "nothing below a plain value"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(path: tuple[str | int, ...], says: str) -> None:
    with pytest.raises(LookupError, match=says):
        walk({"n": {"yy": 1}, "l": [1, 2], "t": "x", "none": None}, path)


def test_in_a_text_a_list_is_its_lines_and_a_mapping_is_json() -> None:
    assert as_text(["a", 1, None, ["b"]]) == "a\n1\n\nb"
    assert json.loads(as_text({"键": True})) == {"键": True}
    assert (as_text(True), as_text(1.5), as_text(None)) == ("true", "1.5", "")
