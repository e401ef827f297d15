"""The house itself: names, rooms, and how many modules a command needs."""

import tools.house as house


def test_a_class_name_is_defined_once_in_the_package() -> None:
    assert house.classes_used_twice() == {}


def test_a_project_with_settings_lists_its_skills_with_no_more_modules() -> None:
    plain, _ = house.modules_of("list")
    after_init, _ = house.modules_of("list", before=(("init",),))

    assert after_init <= plain


def test_the_package_stays_small() -> None:
    assert len(house.sources()) <= 260
