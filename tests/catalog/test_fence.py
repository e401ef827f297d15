import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.skill_text import earlier_close, find_fence

BLOCK = "name: demo\ndescription: d\n"


def codes(text: str) -> list[str]:
    return [finding.code for finding in find_fence(text).findings]


def test_the_block_stands_between_two_fences_and_the_body_below() -> None:
    fence = find_fence(f"---\n{BLOCK}---\n\n# Text\n")

    assert (fence.block, fence.block_line) == (BLOCK, 2)
    assert (fence.body, fence.body_line) == ("\n# Text\n", 5)
    assert fence.sure
    assert fence.findings == ()


def test_a_rule_in_the_body_is_no_fence() -> None:
    assert find_fence(f"---\n{BLOCK}---  \ntext\n---\nmore").body == "text\n---\nmore"


def test_an_empty_block_is_found() -> None:
    fence = find_fence("---\n---\ntext")

    assert (fence.found, fence.block, fence.body, fence.body_line) == (True, "", "text", 3)


@pytest.mark.parametrize(
    ("text", "code", "body"),
    [
        (f"\n \n---\n{BLOCK}---\ntext", "fence-leading-blank", "text"),
        (f"<!-- a\ncomment -->\n---\n{BLOCK}---\ntext", "fence-comment-before", "text"),
        (f"  ---\n{BLOCK}---\ntext", "fence-odd-open", "text"),
        (f"-----\n{BLOCK}---\ntext", "fence-odd-open", "text"),
        (f"---\n{BLOCK}---# Text\nmore", "fence-glued-close", "# Text\nmore"),
        (f"---\n{BLOCK}...\ntext", "fence-odd-close", "text"),
        (f"---\n{BLOCK}------\ntext", "fence-odd-close", "text"),
        (f"---\n{BLOCK}  ---\ntext", "fence-odd-close", "text"),
    ],
)
def test_odd_fences_are_found_and_reported(text: str, code: str, body: str) -> None:
    fence = find_fence(text)

    assert codes(text) == [code]
    assert (fence.block, fence.body, fence.sure) == (BLOCK, body, True)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"# Title\n\n---\n{BLOCK}---\ntext", "fence-text-before"),
        (f"```yaml\n---\n{BLOCK}---\n```\ntext", "fence-in-code"),
        (f"---\n{BLOCK}\n# Text\n", "fence-no-close"),
        (f"{BLOCK}\n---\ntext", "fence-no-open"),
        ("--- name: demo description: d ---\ntext", "fence-one-line"),
    ],
)
def test_where_the_extent_is_a_guess_the_fence_is_not_sure(text: str, code: str) -> None:
    fence = find_fence(text)

    assert codes(text)[0] == code
    assert fence.block.strip() == BLOCK.strip()
    assert not fence.sure


@pytest.mark.parametrize("text", ["", "\n\n \n"])
def test_an_empty_file_says_so(text: str) -> None:
    assert codes(text) == ["file-empty"]
    assert not find_fence(text).found


@pytest.mark.parametrize("text", ["# Only text\n", "---\n\nA rule, then prose\n", "Note: this is prose"])
def test_prose_has_no_frontmatter_and_all_of_it_is_body(text: str) -> None:
    fence = find_fence(text)

    assert codes(text) == ["frontmatter-missing"]
    assert fence.body == text


def test_a_glued_fence_before_a_rule_is_found_on_the_second_look() -> None:
    fence = find_fence(f"---\n{BLOCK}---# Text\nmore\n---\nend")
    shorter = earlier_close(fence)

    assert shorter
    assert (shorter.block, shorter.body, shorter.body_line) == (BLOCK, "# Text\nmore\n---\nend", 4)


def test_a_block_without_a_second_fence_has_no_earlier_close() -> None:
    assert earlier_close(find_fence(f"---\n{BLOCK}---\ntext")) is None


@given(st.text(alphabet="-\n .:`#<!>abname\u00a0\u2028"))
def test_any_text_has_an_answer_with_the_body_at_its_end(text: str) -> None:
    fence = find_fence(text)

    assert text.endswith(fence.body)
    assert fence.body_line == text[: fence.body_start].count("\n") + 1
    earlier_close(fence)
