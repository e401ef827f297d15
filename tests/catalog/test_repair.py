import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.frontmatter import repair
from skillyard.core.values import Json, check_value


def codes(block: str) -> list[tuple[str, int, int]]:
    return [(found.code, found.line, found.column) for found in repair(block, 2).findings]


@pytest.mark.parametrize(
    ("value", "read", "code"),
    [
        ("Use it: always", "Use it: always", "repair-colon"),
        ("Ends with a colon: x:", "Ends with a colon: x:", "repair-colon"),
        ("> text on the line\n  and below", "text on the line and below", "repair-block"),
        ("| one\n  two", "one\ntwo", "repair-block"),
        ("|\none\ntwo", "one\ntwo", "repair-indent"),
        ("**bold** text", "**bold** text", "repair-indicator"),
        ("&co and more", "&co and more", "repair-indicator"),
        ("!important text", "!important text", "repair-indicator"),
        ("@user does it", "@user does it", "repair-indicator"),
        ("%d items", "%d items", "repair-indicator"),
        ("`code` does it", "`code` does it", "repair-indicator"),
        (", a comma", ", a comma", "repair-indicator"),
        ('"never closed', '"never closed', "repair-quotes"),
        ('"a "word" inside"', 'a "word" inside', "repair-quotes"),
        ('"It\\\'s bad"', "It\\'s bad", "repair-quotes"),
        ('"Quoted." \n  and more', "Quoted. and more", "repair-quotes"),
        ("{NAME}'s own text", "{NAME}'s own text", "repair-flow"),
        ("[one] [two]", "[one] [two]", "repair-flow"),
        ("first\nsecond line\n\nthird", "first second line third", "repair-indent"),
        ("\nbelow, not indented", "below, not indented", "repair-indent"),
        ("bell \x07 rings", "bell \x07 rings", "repair-control"),
        ('"\\ud83d\\ude00 smile"', "😀 smile", "repair-escape"),
    ],
)
def test_a_broken_text_is_read_as_its_author_saw_it(value: str, read: str, code: str) -> None:
    mended = repair(f"name: demo\ndescription: {value}\nlicense: MIT\n", 2)

    assert mended.fields == {"name": "demo", "description": read, "license": "MIT"}
    assert [found.code for found in mended.findings if found.code.startswith("repair")] == [code]
    assert (mended.findings[-1].line, mended.findings[-1].column) == (3, 14)


def test_fields_beside_the_broken_one_keep_their_types() -> None:
    mended = repair("count: 3\ndescription: a: b\ntags: [x, y]\n", 2)

    assert mended.fields == {"count": 3, "description": "a: b", "tags": ["x", "y"]}


def test_tabs_are_read_as_spaces() -> None:
    mended = repair("metadata:\n\tauthor: me\n\tdeep:\n\t\tx: 1\n", 2)

    assert mended.fields == {"metadata": {"author": "me", "deep": {"x": 1}}}
    assert codes("metadata:\n\tauthor: me\n") == [("repair-tabs", 2, 10)]


def test_a_broken_value_inside_a_field_is_quoted_and_the_rest_kept() -> None:
    block = 'metadata:\n  hint: use: this\n  emoji: "\\U+1F4E7"\n  keys: [a, @if, b]\n  n: 1\n'

    assert repair(block, 2).fields == {
        "metadata": {"hint": "use: this", "emoji": "\\U+1F4E7", "keys": ["a", "@if", "b"], "n": 1}
    }
    assert codes(block) == [("repair-nested", 2, 10)]


def test_a_line_before_the_first_field_is_ignored_aloud() -> None:
    assert codes("some words\nname: x\n") == [("repair-line", 2, 1)]


def test_conflict_markers_are_reported_once() -> None:
    block = "name: x\n<<<<<<< ours\nlicense: MIT\n=======\n>>>>>>> theirs\n"

    assert repair(block, 2).fields == {"name": "x", "license": "MIT"}
    assert codes(block) == [("merge-conflict", 3, 1)]


GUARDED = [
    "command: ./run.sh a: b",
    'command: "./run.sh',
    "entry: @main.py",
    "params:\n\tinput: {required: true}",
    "parameters: {a: {",
    "required_params:\n- name: a\n nope",
    "allowed-tools: [Bash] [Read]",
    "allowed_tools: *all",
    "hooks: {PreToolUse: [",
    "disable-model-invocation: !yes true",
    "user-invocable: false: true",
]


@pytest.mark.parametrize("field", GUARDED)
def test_a_field_that_decides_what_may_run_is_never_repaired(field: str) -> None:
    mended = repair(f"name: x\n{field}\n", 2)
    key = field.partition(":")[0]

    assert mended.fields == {"name": "x"}
    assert mended.refused == (key,)
    assert ("repair-refused", 3, 1) in codes(f"name: x\n{field}\n")


def test_a_guarded_field_that_is_fine_survives_a_broken_neighbour() -> None:
    mended = repair("description: a: b\nallowed-tools: Read\n", 2)

    assert mended.fields["allowed-tools"] == "Read"


@pytest.mark.parametrize("before", ['description: "never closed', "metadata: {a: 1", "description: x\nmore: [a"])
def test_a_guarded_field_after_an_open_end_is_not_trusted(before: str) -> None:
    """It may be part of the text before it."""
    mended = repair(f"{before}\ncommand: rm -rf {{x}}\n", 2)

    assert "command" not in mended.fields
    assert mended.refused == ("command",)


def test_guarded_fields_need_a_sure_fence_and_no_conflict() -> None:
    assert repair("command: ./run\n", 2, sure=False).refused == ("command",)
    assert repair("<<<<<<< a\ncommand: ./run\n=======\n>>>>>>> b\n", 2).refused == ("command",)


def test_of_two_guarded_fields_none_is_used() -> None:
    mended = repair("description: a: b\ncommand: ./a\ncommand: ./b\n", 2)

    assert "command" not in mended.fields
    assert mended.refused == ("command",)


def test_anchors_are_not_expanded_by_a_repair_either() -> None:
    fields: dict[str, Json] = dict(repair("metadata: &m {a: 1}\nother: *m\n", 2).fields)

    assert fields == {"metadata": "&m {a: 1}", "other": "*m"}


def test_a_heap_of_broken_fields_is_not_mended_at_all() -> None:
    """Each takes a few parses: thousands of them would be an attack on the reader's time."""
    assert repair("a: b: c\n" * 5000, 2).fields == {}


LINES = st.lists(
    st.sampled_from(
        [
            "name: x",
            "description: a: b",
            'title: "open',
            "metadata:",
            "  a: @b",
            "\tb: 1",
            "command: ./run {x}",
            "allowed-tools: [",
            "hooks: *x",
            "- item",
            "words: > on the line",
            "<<<<<<< HEAD",
            "# comment",
            "",
            "prose",
            "\x00\x1b",
            'e: "\\ud83d"',
        ]
    )
)


@given(LINES)
def test_any_mix_of_lines_is_read_without_a_crash(lines: list[str]) -> None:
    check_value(repair("\n".join(lines), 1).fields)


@given(LINES)
def test_a_repaired_block_has_a_guarded_field_only_as_it_was_written(lines: list[str]) -> None:
    fields = repair("\n".join(lines), 1).fields

    assert fields.get("command", "./run {x}") == "./run {x}"
    assert "allowed-tools" not in fields
    assert "hooks" not in fields


@given(st.text())
def test_any_text_is_read_without_a_crash(block: str) -> None:
    check_value(repair(block, 1).fields)
