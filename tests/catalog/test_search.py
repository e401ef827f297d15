"""Words rank, they do not filter: sentences, Chinese, misspelt words and the text of a skill find it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.app.project import Project
from skillyard.catalog.search import as_fts_text, as_terms, snippet

WriteSkill = Callable[..., Path]
#: Skills of different sorts, in the words of people who did not know the queries.
SKILLS = {
    "pdf-merge": "Combine several PDF files into one document and reorder pages.",
    "resolving-conflicts": "Use when git reports a merge conflict during a rebase or pull.",
    "weather": "Current conditions and forecast for any city.",
    "dep-audit": "Checks dependencies for known vulnerabilities.",
    "weekly": "自动生成项目周报并发送到飞书群",
    "the-tool": "A tool.",
}


@pytest.fixture
def searched(yard: Project, write_skill: WriteSkill) -> Project:
    for name, description in SKILLS.items():
        body = "\n# Accounting\n\nCloses the books at the end of a quarter.\n" if name == "the-tool" else "\nText.\n"
        write_skill(name, f"---\nname: {name}\ndescription: {description}\n---\n{body}")
    yard.catalog.sync()
    return yard


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("how do I put several pdf files together into one", "pdf-merge"),
        ("what will the weather be like in Lisbon", "weather"),
        ("git says conflict while rebasing, help me please", "resolving-conflicts"),
        ("合并分支冲突怎么办", "resolving-conflicts"),
        ("检查依赖的漏洞", "dep-audit"),
        ("周报", "weekly"),
        ("把这周的工作写成周报发给大家", "weekly"),
        ("wether forcast", "weather"),
        ("vulnerabilitys", "dep-audit"),
        ("quarter books", "the-tool"),  # only inside
        ("the tool", "the-tool"),  # the exact name, in other writing, before all words
        ("the", "the-tool"),  # a stop word alone still counts
        ("depend", "dep-audit"),  # the beginning of a word
        ("will it rain", "weather"),  # a synonym
        ("third party libraries with security holes", "dep-audit"),
        ("第三方库有没有问题", "dep-audit"),  # a Chinese word longer than a pair
    ],
)
def test_a_natural_query_finds_its_skill(searched: Project, query: str, first: str) -> None:
    hits = searched.catalog.search(query)

    assert [hit.entry.name for hit in hits][:1] == [first]


def test_copies_of_a_skill_are_one_hit(searched: Project, write_skill: WriteSkill) -> None:
    for number in range(5):
        write_skill(f"copy-{number}/weather", f"---\nname: weather\ndescription: {SKILLS['weather']}\n---\nText.\n")
    write_skill("almanac", "---\nname: almanac\ndescription: The weather of the last hundred years.\n---\nText.\n")
    searched.catalog.sync()

    assert [hit.entry.name for hit in searched.catalog.search("weather", limit=3)] == ["weather", "almanac"]


def test_a_query_that_nothing_answers_finds_nothing(searched: Project) -> None:
    assert searched.catalog.search("zzzzqqqq") == ()


def test_a_changed_description_is_found_by_its_new_words_alone(searched: Project, write_skill: WriteSkill) -> None:
    write_skill("weather", "---\nname: weather\ndescription: Tells about the barometer.\n---\n\nText.\n")
    searched.catalog.sync()

    assert [hit.entry.name for hit in searched.catalog.search("barometer")] == ["weather"]
    assert [hit.entry.name for hit in searched.catalog.search("city")] == []


def test_a_snippet_starts_at_a_word() -> None:
    text = "first " * 60 + "needle " + "last " * 60

    found = snippet(text, "the needle", 120)

    assert "needle" in found
    assert found.startswith("…first ")
    assert snippet("short", "x", 120) == "short"


@given(st.text())
def test_any_text_gives_terms_and_a_text_for_the_index(text: str) -> None:
    for term in as_terms(text):
        assert '"' not in term
    assert isinstance(as_fts_text(text), str)
