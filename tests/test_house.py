"""The house itself: names, rooms, how many modules a command needs, and the tests that hold the specification."""

from pathlib import Path

import pytest
import tools.house as house
from tools.spec_rules import known_tests, pages, what_is_wrong


def test_a_class_name_is_defined_once_in_the_package() -> None:
    assert house.classes_used_twice() == {}


def test_a_project_with_settings_lists_its_skills_with_no_more_modules() -> None:
    plain, _ = house.modules_of("list")
    after_init, _ = house.modules_of("list", before=(("init",),))

    assert after_init <= plain


def test_a_run_passes_through_few_modules_and_loads_nothing_that_it_does_not_use() -> None:
    _, called = house.modules_of("run", "@echo", "hi")
    loaded = house.loaded_by("run", "@echo", "hi")

    assert called <= 40
    unused = {"ast", "asyncio", "ctypes", "difflib", "filecmp", "hashlib", "lzma", "shutil", "subprocess"}
    assert not loaded & (unused | {"yaml", "rich", "pydantic", "dbos", "tomllib", "skillyard.editor.apply"})


def test_the_package_stays_small() -> None:
    assert len(house.sources()) <= 260


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_rule_of_the_specification_names_a_test_that_is_there(page: Path) -> None:
    assert "\n".join(what_is_wrong(page.read_text("utf-8"), known_tests())) == ""
