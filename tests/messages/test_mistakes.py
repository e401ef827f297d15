"""What people see after a typical mistake, in both languages: the files in `expected`, which were read by a person.

`python -m tests.messages.shown` writes them anew. Look at the difference before you commit it.
"""

import sys

import pytest

from tests.messages.mistakes import GROUPS
from tests.messages.shown import LANGUAGES, file_of, shown


def test_there_are_enough_of_them() -> None:
    assert sum(map(len, GROUPS.values())) >= 100


@pytest.mark.ci("a process for each mistake")
@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="Python and argparse word their errors anew in each version"
)
@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("group", GROUPS)
def test_a_mistake_shows_what_is_expected(group: str, lang: str) -> None:
    assert shown(group, lang) == file_of(group, lang).read_text("utf-8")


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_expected_is_a_traceback_of_ours_or_says_nothing(group: str) -> None:
    for lang in LANGUAGES:
        text = file_of(group, lang).read_text("utf-8")
        assert "/skillyard/" not in text.replace("/skillyard/spec", "")
        for each in text.split("\n$ ")[1:]:
            assert len(each.strip().splitlines()) > 1, each
