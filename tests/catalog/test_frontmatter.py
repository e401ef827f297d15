import math
import os
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.frontmatter import read_block, typed
from skillyard.core.values import MAX_DEPTH, Json, check_value


def only(block: str) -> tuple[str, int, int]:
    (finding,) = read_block(block).findings
    return finding.code, finding.line, finding.column


@pytest.mark.parametrize("name", ["yes", "8004", "1.0", "2024-01-01", "off", "0x1F"])
def test_a_text_field_is_what_is_written(name: str) -> None:
    assert read_block(f"name: {name}\n").fields == {"name": name}


def test_an_empty_text_field_is_nothing() -> None:
    assert read_block("name:\ntitle: ~\n").fields == {"name": None, "title": None}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("12", 12),
        ("1_000", 1000),
        ("-0x1f", -31),
        ("0b11", 3),
        ("017", 15),
        ("1:30", 90),
        ("1.5", 1.5),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1.0e+999", "1.0e+999"),
        ("y", "y"),
        ("1e3", "1e3"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_other_fields_are_typed_as_yaml_1_1_and_stay_json(word: str, value: Json) -> None:
    assert read_block(f"field: {word}\n").fields == {"field": value}


def test_each_field_knows_its_place_in_the_file() -> None:
    assert read_block("name: x\nmetadata:\n  a: 1\n", line=2).positions == {"name": (2, 1), "metadata": (3, 1)}


@pytest.mark.parametrize(
    ("block", "code", "line", "column"),
    [
        ("a: &x 1\n", "yaml-anchor", 1, 4),
        ("a: 1\nb: *x\n", "yaml-alias", 2, 4),
        ("a: !!python/object:os.system x\n", "yaml-tag", 1, 4),
        ("m:\n  <<: {a: 1}\n", "yaml-merge", 2, 3),
        ("? [a]\n: 1\n", "yaml-key", 1, 3),
        ("a: b: c\n", "yaml-invalid", 1, 5),
        ("- a\n", "yaml-not-mapping", 1, 1),
        ("", "frontmatter-empty", 1, 1),
        ('a: "\\ud83d"\n', "yaml-invalid", 1, 7),
        ("a: \x01\n", "yaml-invalid", 1, 4),
    ],
)
def test_what_is_refused_is_refused_with_its_place(block: str, code: str, line: int, column: int) -> None:
    assert read_block(block).failed
    assert only(block) == (code, line, column)


@pytest.mark.parametrize("block", ["a: x & y\n", "a: '*.py'\n", "a: 5 * 3! ok\n", "a: [b, c&d]\n"])
def test_the_same_characters_inside_text_are_text(block: str) -> None:
    assert not read_block(block).failed


@pytest.mark.parametrize("text", ["[" * 60_000, "- " * 30_000, "? " * 30_000, "{a: " * 15_000])
def test_depth_cannot_crash_the_c_parser(text: str) -> None:
    assert only("a: " + text if text[0] in "[{" else text)[0] == "yaml-too-deep"


def test_depth_within_the_limit_is_read_and_one_more_is_refused() -> None:
    fits, deep = MAX_DEPTH - 1, MAX_DEPTH + 1

    assert not read_block(f"a: {'[' * fits}{']' * fits}\n").failed
    assert only(f"a: {'[' * deep}{']' * deep}\n")[0] == "yaml-too-deep"


def test_the_last_of_two_equal_fields_counts_and_is_reported() -> None:
    read = read_block("title: a\ntitle: b\nmetadata: {x: 1, x: 2}\n")

    assert read.fields == {"title": "b", "metadata": {"x": 2}}
    assert [(found.code, found.line, found.column) for found in read.findings] == [
        ("yaml-duplicate", 2, 1),
        ("yaml-duplicate", 3, 18),
    ]


def test_of_two_commands_none_is_used() -> None:
    read = read_block("name: x\ncommand: ./a\ncommand: ./b\n")

    assert read.fields == {"name": "x"}
    assert read.refused == ("command",)


def test_a_comment_that_cuts_a_text_is_a_warning() -> None:
    assert only("name: x\ndescription: Fix issue #12\n") == ("value-cut", 2, 23)


@pytest.mark.parametrize("block", ["description: 'Fix #12'\n", "flag: true # yes\n", "name: a#b\n"])
def test_other_comments_are_fine(block: str) -> None:
    assert read_block(block).findings == []


WITHOUT_LIBYAML = """
import sys, yaml
yaml.__with_libyaml__ = False
from skillyard.catalog.frontmatter import PurePythonParser, read_block
from skillyard.catalog import frontmatter
assert issubclass(frontmatter._Composer, PurePythonParser)
for block in sys.argv[1:]:
    read = read_block(block)
    print(read.fields, read.positions, [finding.code for finding in read.findings])
"""


def test_without_libyaml_the_answers_are_the_same() -> None:
    blocks = [
        "name: yes\nn: 0x1f\nm: {a: [1, 'x']}\n",
        "a: &x 1\nb: !t 2\n",
        "a: b: c\n",
        'a: "\\ud83d"\n',
        "description: a #b\n",
        "a: " + "[" * 20_000,
        "a: \x01",
        "",
    ]
    command = [sys.executable, "-c", WITHOUT_LIBYAML, *blocks]
    slow = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout
    fast = [read_block(block) for block in blocks]

    assert slow.splitlines() == [
        f"{read.fields} {read.positions} {[finding.code for finding in read.findings]}" for read in fast
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.from_regex(r"[a-z]{3}-[a-z]{3}", fullmatch=True), VALUES, min_size=1))
def test_what_pyyaml_writes_is_read_back(fields: dict[str, Json]) -> None:
    read = read_block(yaml.safe_dump(fields))

    assert not read.failed
    assert read.fields == fields


WORDS = st.text(alphabet="0123456789_.:+-eExbnulOF~") | st.sampled_from(["True", "NO", "oN", "null", "~", ""])


@given(WORDS)
def test_words_are_typed_as_pyyaml_types_them(word: str) -> None:
    """Where JSON has such a value at all; 1:30.5 we leave as text."""
    loader = yaml.SafeLoader("")
    tag = loader.resolve(yaml.ScalarNode, word, (True, False))  # type: ignore[no-untyped-call]
    try:
        value = loader.construct_object(yaml.ScalarNode(tag, word))
    except ValueError:
        return
    in_json = isinstance(value, bool | int | str | None) or (isinstance(value, float) and ":" not in word)
    if in_json and value not in {math.inf, -math.inf}:
        assert typed(word) == value
        assert type(typed(word)) is type(value)
    else:
        assert typed(word) == word


@given(st.text())
def test_any_block_has_an_answer_that_json_can_carry(block: str) -> None:
    check_value(read_block(block).fields)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,? \n\t"))
def test_any_heap_of_indicators_has_an_answer(block: str) -> None:
    check_value(read_block(block).fields)
