"""Real agents take seconds to start. opencode's cases that differ run always, and every third one of the two that start
faster, the same ones each time; all of them in torture."""

import zlib
from collections.abc import Sequence

import pytest

from tests.conftest import TORTURE

#: What opencode does in its own way; the rest is the same code as for any ACP agent, which tests/backends tries out.
ALWAYS = (
    "test_an_answer_comes_in_pieces",
    "test_a_task_arrives_byte_for_byte[opencode-long]",
    "test_cancel_ends_a_tool_that_sleeps",
    "test_a_model_that_fails_is_an_error_in_its_own_words[opencode-401]",
    "test_the_enhanced_task_arrives_complete_and_unchanged",
)
#: The drivers, the command above them, and the bare agents without any of ours.
_MANY = frozenset({"test_drivers.py", "test_agents.py", "test_dispatch.py"})


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    if TORTURE:
        return
    for item in items:
        if item.name == "test_a_missing_param_is_a_question_that_the_model_can_answer[opencode]":
            item.add_marker(pytest.mark.skip("real agents start slowly: this case runs in ./dev torture"))
        is_one_of_many = item.path.name in _MANY and "[" in item.name and not item.name.startswith(ALWAYS)
        if is_one_of_many and ("[opencode" in item.name or zlib.crc32(item.name.encode()) % 3):
            item.add_marker(pytest.mark.skip("real agents start slowly: this case runs in ./dev torture"))
