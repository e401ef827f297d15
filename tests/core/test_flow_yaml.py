"""The notation of data and meta: one line of YAML that reads back, here and in any YAML envelope."""

import json
from itertools import product

import pytest
import yaml
from hypothesis import example, given

from skillyard.core import envelope
from skillyard.core.values import MAX_DEPTH, Json, check_text
from tests.core.values import exactly, mappings, texts

LOADERS: list[type[yaml.SafeLoader | yaml.CSafeLoader]] = [yaml.SafeLoader, yaml.CSafeLoader]
ENCODINGS = ["utf-8", "ascii", "gbk"]


def read(text: str) -> dict[str, Json]:
    check_text(text)
    reader = envelope.FlowYamlReader(text)
    items = reader.mapping()
    reader.expect_end()
    return items


@given(mappings)
def test_what_is_written_reads_back_exactly(value: dict[str, Json]) -> None:
    assert exactly(read(envelope.write(value))) == exactly(value)


@given(mappings)
@example({"😀" * 160: 1})
@example({"键" * 500: {"x" * 5000: "y"}})
@example({"<<": {"a": 1}, "=": 2, "? x": 3})
def test_any_yaml_reader_reads_the_same_in_any_encoding(value: dict[str, Json]) -> None:
    for encoding, loader in product(ENCODINGS, LOADERS):
        text = envelope.write(value, encoding)
        assert exactly(yaml.load(text, Loader=loader)) == exactly(value)


@given(mappings)
def test_it_is_one_line_that_the_encoding_can_carry(value: dict[str, Json]) -> None:
    for encoding in ENCODINGS:
        text = envelope.write(value, encoding)
        assert len(text.splitlines()) == 1
        assert exactly(read(text.encode(encoding).decode(encoding))) == exactly(value)


@given(texts)
def test_a_text_that_was_escaped_reads_back(text: str) -> None:
    escaped = envelope.escape(text, "ascii")

    assert escaped.isascii()
    assert len(escaped.splitlines()) <= 1
    assert envelope.unescape(escaped) == text


@given(texts)
def test_json_is_read_too(text: str) -> None:
    value: dict[str, Json] = {"key": [text, {"nested": text}], "n": None, "t": True}

    assert read(json.dumps(value)) == value


@given(texts)
def test_whatever_is_read_there_is_a_mapping_or_a_value_error(text: str) -> None:
    for attempt in (text, "{" + text, "{" + text + "}", "{a: " + text + "}", '{"' + text + '": 1}'):
        try:
            value = read(attempt)
        except ValueError:
            continue
        assert isinstance(value, dict)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ({"skill": "a", "total": 1}, '{skill: "a", total: 1}'),
        ({"yes": 1, "No": 2, "1": 3, "": 4, "a b": 5}, '{"yes": 1, "No": 2, "1": 3, "": 4, "a b": 5}'),
        ({"键": [True, None, 1.5]}, '{"键": [true, null, 1.5]}'),
        ({"a": 1e16, "b": 1e-7}, "{a: 1.0e+16, b: 1.0e-07}"),
        ({"a": "\n\x1b\u2028\x85\\😀"}, '{a: "\\n\\u001b\\u2028\\u0085\\\\😀"}'),
        ({"a": {}, "b": []}, "{a: {}, b: []}"),
    ],
)
def test_the_notation_looks_like_the_seeds(value: dict[str, Json], text: str) -> None:
    assert envelope.write(value) == text


@pytest.mark.parametrize(
    "value",
    [
        {"a": float("nan")},
        {"a": [float("inf")]},
        {"a": {"b": -float("inf")}},
        {"a": "\ud800"},
        {"\udfff": 1},
        {"a": {1}},
        {"a": b"bytes"},
        {1: "a"},
    ],
    ids=repr,
)
def test_what_cannot_be_told_is_refused(value: dict[str, Json]) -> None:
    with pytest.raises(ValueError, match=r"not a JSON|lone surrogate|key must be text"):
        envelope.write(value)


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 100_000])
def test_a_value_that_is_nested_too_deeply_is_refused_in_both_directions(depth: int) -> None:
    text = "{a: " + "[" * depth + "]" * depth + "}"

    if depth == MAX_DEPTH:
        assert envelope.write(read(text)) == text
    else:
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            read(text)
        value: list[Json] = []
        for _ in range(min(depth, 500)):
            value = [value]
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            envelope.write({"a": value})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "line 1, column 1: { expected"),
        ("{a: 1", "column 6: , or } expected"),
        ("{a: 1} x", "column 8: the end expected"),
        ("{a 1}", "column 5: : expected"),
        ('{a: "x}', "column 5: the end of a quoted text expected"),
        ("{a: [1 2}", "or ] expected"),
        ("{a: 1,\n a: 2}", "line 2, column 3: a key other than 'a'"),
        ("{a: 1.0e999}", "column 5: a finite number expected"),
        ('{a: "\\ud800"}', "lone surrogate"),
        ('{a: "\\U00110000"}', "is no character"),
        ('{a: "\ud800"}', "lone surrogate"),
    ],
)
def test_what_cannot_be_read_says_where(text: str, where: str) -> None:
    with pytest.raises(ValueError, match=r"expected|surrogate|character") as refused:
        read(text)
    assert where in str(refused.value)
