"""Patterns that are compiled at their first use: a mistake in one must not wait for that."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import skillyard
from skillyard.core.values import LazyPattern, lazy_pattern

ROOMS = ("core", "catalog", "sandbox", "store", "runners", "runtime", "trust", "editor", "install")


def _patterns() -> Iterator[tuple[str, LazyPattern[str]]]:
    for room in ROOMS:
        package = importlib.import_module(f"skillyard.{room}")
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(found.name)).items():
                values = value.values() if isinstance(value, dict) else (value,)
                yield from ((f"{found.name}.{name}", each) for each in values if type(each) is LazyPattern)


def test_every_pattern_can_be_compiled() -> None:
    patterns = dict(_patterns())

    assert len(patterns) > 20, skillyard.__name__
    for pattern in patterns.values():
        assert pattern.pattern is not None


def test_a_lazy_pattern_does_what_a_compiled_one_does() -> None:
    text = "(?P<word>[a-z]+)-([0-9]+)"
    lazy, compiled = lazy_pattern(text, re.IGNORECASE), re.compile(text, re.IGNORECASE)

    assert lazy.sub(r"\2", "Ab-12 c-3") == compiled.sub(r"\2", "Ab-12 c-3") == "12 3"
    assert [each["word"] for each in lazy.finditer("Ab-12 c-3")] == ["Ab", "c"]
    assert lazy.fullmatch("nothing") is None
    assert lazy_pattern(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_pattern_that_cannot_be_compiled_is_refused_at_its_first_use() -> None:
    broken = lazy_pattern("(")

    with pytest.raises(re.error):
        broken.match("x")
