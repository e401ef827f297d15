"""What each operation does to a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.core.errors import AmbiguousText, InvalidArgs, RuntimeFailed, TextNotFound
from skillyard.editor.json_edit import as_value
from skillyard.editor.operations import (
    Append,
    DeleteBetween,
    InsertAfter,
    InsertBefore,
    Operation,
    Prepend,
    Regex,
    Replace,
    UpdateJson,
    make_operation,
)
from skillyard.editor.text_edits import splice, with_lf


def change(text: str, operation: Operation) -> str:
    return splice(text, operation.splices(with_lf(text)))


@pytest.mark.parametrize(
    ("text", "operation", "expected"),
    [
        ("a b c", Replace(old="b", new="x"), "a x c"),
        ("a a a", Replace(old="a", new="x", all=True), "x x x"),
        ("a a a", Replace(old="a", new="x", nth=2), "a x a"),
        ("a\r\nb\r\nc\r\n", Replace(old="a\nb", new="x\ny\nz"), "x\r\ny\r\nz\r\nc\r\n"),
        ("", Append(content="a"), "a"),
        ("a", Append(content="b"), "a\nb"),
        ("a\n", Append(content="b\n"), "a\nb\n"),
        ("a\r\nb", Append(content="c\n"), "a\r\nb\r\nc\r\n"),
        ("a\n", Prepend(content="b"), "b\na\n"),
        ("a\nb\n", InsertAfter(marker="a", content="x"), "a\nx\nb\n"),
        ("a\nb", InsertAfter(marker="b", content="x"), "a\nb\nx"),
        ("a\nb\n", InsertAfter(marker="a\n", content="x\n"), "a\nx\nb\n"),
        ("a a\nb\n", InsertAfter(marker="a", content="x"), "a a\nx\nb\n"),
        ("a\nb\na\n", InsertAfter(marker="a", content="x", all=True), "a\nx\nb\na\nx\n"),
        ("a\nb\n", InsertBefore(marker="b", content="x"), "a\nx\nb\n"),
        ("a\nb\na\n", InsertBefore(marker="a", content="x", nth=2), "a\nb\nx\na\n"),
        ("s\n1\n2\ne\n", DeleteBetween(start="s", end="e"), "s\ne\n"),
        ("s\n1\n2\ne\nz", DeleteBetween(start="s", end="e", with_markers=True), "z"),
        ("s e\nz\n", DeleteBetween(start="s", end="e"), "s e\nz\n"),
        ("s\n1\ne\ns\n2\ne\n", DeleteBetween(start="s", end="e", nth=2), "s\n1\ne\ns\ne\n"),
        ("a1 b2", Regex(pattern=r"([a-z])(\d)", replacement=r"\2\1"), "1a 2b"),
        ("aaa", Regex(pattern="a", replacement="b", count=2), "bba"),
        ("A\r\na\r\n", Regex(pattern="^a$", replacement="b", multiline=True, ignore_case=True), "b\r\nb\r\n"),
        ("a\nb", Regex(pattern="a.b", replacement="x", dotall=True), "x"),
        ("a\r\nb\nc", Regex(pattern="b\nc", replacement="x\ny"), "a\r\nx\ny"),
    ],
)
def test_an_operation_changes_what_it_says_and_nothing_else(text: str, operation: Operation, expected: str) -> None:
    assert change(text, operation) == expected


@pytest.mark.parametrize(
    "operation",
    [
        Replace(old="x", new="y"),
        Replace(old="a", new="y", nth=4),
        InsertAfter(marker="x", content="y"),
        InsertBefore(marker="x", content="y"),
        DeleteBetween(start="x", end="a"),
        DeleteBetween(start="b", end="x"),
        DeleteBetween(start="b", end="a a"),
        Regex(pattern="x+", replacement="y"),
    ],
)
def test_what_does_not_stand_there_is_not_found(operation: Operation) -> None:
    with pytest.raises(TextNotFound):
        operation.splices("a a\na\nb\n")


@pytest.mark.parametrize(
    "operation",
    [
        Replace(old="a", new="y"),
        InsertAfter(marker="a", content="y"),
        InsertBefore(marker="a", content="y"),
        DeleteBetween(start="a", end="b"),
    ],
)
def test_several_places_are_refused_with_their_lines_until_someone_says_which(operation: Operation) -> None:
    with pytest.raises(AmbiguousText) as refused:
        operation.splices("a\nb\na\n")

    assert refused.value.data()["lines"] == [1, 3]


def test_places_that_overlap_are_several() -> None:
    with pytest.raises(AmbiguousText):
        Replace(old="aa", new="b").splices("aaa")
    assert change("aaa", Replace(old="aa", new="b", all=True)) == "ba"


@pytest.mark.parametrize(
    "operation",
    [
        Replace(old="", new="y"),
        Replace(old="a", new="y", all=True, nth=1),
        DeleteBetween(start="a", end=""),
        Regex(pattern="(", replacement=""),
        Regex(pattern="a", replacement=r"\7"),
        Regex(pattern="a", replacement=r"\g<no>"),
        UpdateJson(field="a..b", value=1),
        UpdateJson(field="", value=1),
        UpdateJson(field="a[", value=1),
    ],
)
def test_what_can_mean_nothing_is_a_usage_error(operation: Operation) -> None:
    with pytest.raises(InvalidArgs):
        operation.splices("a")


def test_a_catastrophic_pattern_is_stopped_at_the_limit() -> None:
    with pytest.raises(RuntimeFailed, match=r"stopped after 0\.5 s"):
        Regex(pattern=r"(a+)+$", replacement="x", seconds=0.5).splices("a" * 64 + "!")


@pytest.mark.parametrize(
    ("text", "field", "value", "expected"),
    [
        ("", "a.b", 1, '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{}\n", "a", 1, '{\n  "a": 1\n}\n'),
        ('{"a": 1.00, "b": [1,  2]}', "a", 2, '{"a": 2, "b": [1,  2]}'),
        ('{"a":1,"b":2}', "c.d", [1, {"x": 2}], '{"a":1,"b":2,"c":{"d":[1,{"x":2}]}}'),
        ('{\n\t"a": 1\n}\n', "b", {"c": 1}, '{\n\t"a": 1,\n\t"b": {\n\t\t"c": 1\n\t}\n}\n'),
        ('{"items": [{"name": "x"}]}', "items.0.name", "y", '{"items": [{"name": "y"}]}'),
        ('{"items": [1, 2]}', "items[1]", 3, '{"items": [1, 3]}'),
        ('{"items": [1, 2]}', "items[-]", 3, '{"items": [1, 2, 3]}'),
        ('{"items": [1, 2]}', "items.2", 3, '{"items": [1, 2, 3]}'),
        ('{"items": []}', "items.-.name", "x", '{"items": [{"name": "x"}]}'),
        ('{"a": 1}', "b.0", 1, '{"a": 1, "b": [1]}'),
        ('{"a": 1}', "b.2024", 1, '{"a": 1, "b": {"2024": 1}}'),
        ('{"a": {"0": 1}}', "a.0", 2, '{"a": {"0": 2}}'),
        ('{"a.b": {"c": 1}}', '"a.b".c', 2, '{"a.b": {"c": 2}}'),
        ('{"a.b": {"c": 1}}', '["a.b"]["c"]', 2, '{"a.b": {"c": 2}}'),
        ('{"a": 1, "a": 2}', "a", 3, '{"a": 1, "a": 3}'),
        ('["x"]', "[0]", "y", '["y"]'),
        ('{"a": "\\u4e2d"}', "b", "文", '{"a": "\\u4e2d", "b": "\\u6587"}'),
        ('{"键": 1}', "键", "值 🧰", '{"键": "值 🧰"}'),
    ],
)
def test_a_json_field_is_set_where_it_stands(text: str, field: str, value: object, expected: str) -> None:
    assert change(text, UpdateJson(field=field, value=value)) == expected


@pytest.mark.parametrize(
    ("text", "field", "error"),
    [
        ("{not json", "a", RuntimeFailed),
        ("[" * 100_000, "a", RuntimeFailed),
        ('{"a": 1}', "a.b", RuntimeFailed),
        ('{"a": null}', "a.b", RuntimeFailed),
        ('{"a": [1]}', "a.b", RuntimeFailed),
        ('{"a": {}}', "a[0]", RuntimeFailed),
        ('{"a": [1]}', "a.5", TextNotFound),
        ("{}", "a[3]", TextNotFound),
    ],
)
def test_a_path_that_leads_nowhere_changes_nothing(text: str, field: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        UpdateJson(field=field, value=1).splices(text)


@pytest.mark.parametrize(
    ("word", "value"),
    [("1", 1), ("1.5", 1.5), ("true", True), ("null", None), ('"1"', "1"), ("[1]", [1]), ("x", "x"), ("NaN", "NaN")],
)
def test_a_value_is_json_where_it_parses(word: str, value: object) -> None:
    assert as_value(word) == value


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("explode", {}, "no operation 'explode'"),
        ("replace", {"old": "a"}, "needs 'new'"),
        ("replace", {"old": "a", "new": 1}, "replace new: 1"),
        ("replace", {"old": "a", "new": "b", "all": 1}, "replace all: 1"),
        ("replace", {"old": "a", "new": "b", "nth": True}, "replace nth: True"),
        ("replace", {"old": "a", "new": "b", "nth": -1}, "below zero"),
        ("append", {"content": "a", "where": "b"}, "takes no 'where'"),
        ("append", {"content": "a\0"}, "NUL"),
        ("append", {"content": "a\udc80"}, "not valid text"),
        ("update-json", {"field": "a", "value": "\udc80"}, "not valid text"),
    ],
)
def test_fields_that_an_operation_does_not_take_are_named(name: str, given: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidArgs, match=says):
        make_operation(name, given)


@given(st.text("ab\r\n", max_size=20))
def test_a_text_without_splices_stays_as_it_is(text: str) -> None:
    assert splice(text, []) == text
    assert change(text, Append(content="")).startswith(text)
