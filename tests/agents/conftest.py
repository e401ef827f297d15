"""A real agent takes seconds to start, so `./dev test` runs only the cases below; CI runs every one."""

from collections.abc import Sequence

import pytest

#: What each of the three does in its own way and no agent of ours can stand for.
ALWAYS = (
    "test_an_answer_comes_in_pieces_between_started_and_done",
    "test_cancel_ends_a_tool_that_sleeps[claude-code",
    "test_cancel_ends_a_tool_that_sleeps[codex",
    "test_the_enhanced_task_arrives_complete_and_unchanged[claude-code",
    "test_the_enhanced_task_arrives_complete_and_unchanged[codex",
    "test_an_agent_knows_finds_and_runs_a_skill_of_each_kind[claude-code",
    "test_an_agent_knows_finds_and_runs_a_skill_of_each_kind[codex",
)


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        starts_an_agent = {"agent", "make_agent"} & set(getattr(item, "fixturenames", ()))
        if starts_an_agent and not item.name.startswith(ALWAYS):
            item.add_marker(pytest.mark.ci("real agents, every case"))
