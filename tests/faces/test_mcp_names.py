"""Names, texts and instructions for any skill that anybody could write."""

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from skillyard.catalog.index import CatalogEntry
from skillyard.core.skill import Kind, Param, ParamType, Skill
from skillyard.faces.mcp.listing import BUDGET, RESERVED, Shown, Surface, clean, instructions_of, safe_names
from skillyard.faces.mcp.tools import signature_of

SAFE = re.compile(r"[A-Za-z0-9_-]{1,48}")
anything = st.text(st.characters(exclude_categories=[]))
close = st.text(alphabet="aA_-0f 周", max_size=6)
names = st.lists(anything | close | st.sampled_from(sorted(RESERVED)), max_size=20)


@given(names)
def test_every_name_becomes_a_safe_one_of_its_own(found: list[str]) -> None:
    safe = safe_names(found, RESERVED)

    assert set(safe) == set(found)
    assert all(SAFE.fullmatch(name) for name in safe.values())
    lower = [name.lower() for name in safe.values()]
    assert len(set(lower)) == len(lower)
    assert not {name.lower() for name in RESERVED} & set(lower)


@given(names, st.randoms())
def test_names_do_not_depend_on_the_order_in_which_they_come(found: list[str], chance: object) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]

    assert safe_names(found) == safe_names(shuffled)


@given(st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,40}", fullmatch=True), max_size=20))
def test_a_plain_name_stays_as_it_is(found: list[str]) -> None:
    assert all(name == safe for name, safe in safe_names(found, RESERVED).items())


def test_nobody_can_take_the_name_that_another_was_given() -> None:
    given_name = safe_names(["a b"])["a b"]

    safe = safe_names(["a b", given_name])

    assert safe["a b"] == given_name
    assert safe[given_name] != given_name


@given(anything, st.integers(1, 300))
def test_a_cleaned_text_is_one_visible_line(text: str, limit: int) -> None:
    line = clean(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for c in line)
    assert clean(line, limit) == line
    line.encode()


def test_what_people_write_is_left_as_it_is() -> None:
    for text in ("Counts words", "统计字数，并估算阅读时间。", "naïve café", "日本語 한국어", "🚀 rocket ❤️"):
        assert clean(text, 100) == text


@st.composite
def surfaces(draw: st.DrawFn) -> Surface:
    found = draw(st.dictionaries(anything.filter(bool), anything, max_size=60))
    safe = safe_names(found, RESERVED)
    return Surface(tuple(_shown(name, safe[name], text) for name, text in sorted(found.items())))


def _shown(address: str, name: str, description: str) -> Shown:
    entry = CatalogEntry(
        0, "/r", f"/r/{address}/SKILL.md", address, address, "", Kind.COMMAND, "", description, (), "", True
    )
    return Shown(address, name, entry, "")


@given(surfaces(), st.dictionaries(anything, st.integers(0, 5), max_size=5))
def test_instructions_stay_within_their_budget_and_give_each_skill_one_line(
    surface: Surface, uses: dict[str, int]
) -> None:
    text = instructions_of(surface, uses)

    lines = text.splitlines()
    assert len(text) <= BUDGET
    assert lines[0].startswith("Skillyard runs the skills of this project")
    listed = [line for line in lines[3:] if line.startswith("- ")]
    counted = re.fullmatch(r"and (\d+) more: use skill_search", lines[-1])
    assert len(listed) + (int(counted[1]) if counted else 0) == len(surface.skills)


def many(count: int) -> Surface:
    names = [f"skill-{number:03}" for number in range(count)]
    return Surface(tuple(_shown(name, name, "about something " * 8) for name in names))


def test_the_least_used_lose_their_description_first() -> None:
    lines = instructions_of(many(70), {"skill-069": 9, "skill-050": 3}).splitlines()[3:]

    assert [line.split(":")[0] for line in lines[:3]] == ["- skill-069", "- skill-050", "- skill-000"]
    described = [": about" in line for line in lines]
    assert (described[:2], described[-1]) == ([True, True], False)
    assert described == sorted(described, reverse=True)


def test_where_not_even_the_names_fit_the_least_used_are_counted() -> None:
    lines = instructions_of(many(300), {"skill-299": 9}).splitlines()[3:]

    assert lines[0] == "- skill-299"
    assert lines[-1] == f"and {300 - (len(lines) - 1)} more: use skill_search"


@given(st.lists(st.tuples(anything, anything, st.sampled_from(ParamType)), max_size=80))
def test_the_schema_of_any_params_has_safe_properties_that_lead_back_to_them(
    found: list[tuple[str, str, ParamType]],
) -> None:
    params = {name: Param(name, True, kind, None, said) for name, said, kind in found}
    skill = Skill(name="x", path=__file__, kind=Kind.JSON, params=tuple(params.values()))  # type: ignore[arg-type]

    signature = signature_of(skill)

    properties = signature.schema["properties"]
    assert all(SAFE.fullmatch(name) for name in properties)
    assert set(properties) == set(signature.params) | {"action"}
    assert "action" not in signature.params
    assert set(signature.params.values()) == set(list(params)[:64])
