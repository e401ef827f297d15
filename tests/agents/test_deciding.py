"""A real agent decides on an interrupt of the worker: one question, no tools, and nothing above MEDIUM."""

import json
import os
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.messages import Lang
from skillyard.core.result import Result
from skillyard.core.states import State
from skillyard.trust.consent import trust
from tests.agents.agent import Agent
from tests.agents.drivers import TOOLS, environment
from tests.agents.fixtures import MakeAgent
from tests.agents.stub import Stub, answer, call
from tests.test_spec_worker import FLOW, INTERRUPT

KEEP_ONE = '{"good": "keep", "evil": "uninstall"}'


@pytest.fixture(params=["claude-code", "codex"])
def agent(request: pytest.FixtureRequest, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """In the environment of this process, as a user has it."""
    made = make_agent(request.param)
    for name, value in environment(made).items():
        monkeypatch.setenv(name, value)
    if made.name == "claude-code":
        monkeypatch.setenv("ANTHROPIC_MODEL", made.model)
    return made


def decided(places: ProjectPaths, backend: str, *, allowed: str = "") -> Result:
    assert places.project is not None
    (places.project / "bin").mkdir(exist_ok=True)
    (places.project / "bin" / "flow.py").write_text(FLOW % INTERRUPT, "utf-8")
    tools = f'[backends.{backend}]\nallowed_tools = ["{allowed}"]\n' if allowed else ""
    (places.own_home / "config.toml").write_text(f'[worker]\ndecider = "{backend}"\n{tools}', "utf-8")
    with Project(places) as yard:
        trust(yard.grants, yard.root)
        return Kernel(yard, Lang.ZH).task("worker_agent", "x", "执行 python bin/flow.py start")


def test_a_clear_answer_is_carried_out(agent: Agent, stub: Stub, places: ProjectPaths) -> None:
    """The rules keep what is LOW, so the agent is asked about the other one only."""
    stub.play(answer('{"evil": "uninstall"}'))

    result = decided(places, agent.name)

    assert result.data["llm_decisions"] == json.loads(KEEP_ONE)
    assert '"severities": {"good": "LOW", "evil": "HIGH"}' in stub.last(agent.name).user_text


def test_to_keep_what_is_high_is_not_an_agents_to_say(agent: Agent, stub: Stub, places: ProjectPaths) -> None:
    stub.play(answer('{"good": "keep", "evil": "keep"}'))

    assert decided(places, agent.name).state is State.INTERRUPTED


def test_an_agent_that_uses_a_tool_decides_nothing(
    agent: Agent, stub: Stub, places: ProjectPaths, tmp_path: Path
) -> None:
    tool = TOOLS[agent.name]
    stub.play(call(tool.shell, tool.command(f"touch {tmp_path}/made-by-the-tool")), answer(KEEP_ONE))

    assert decided(places, agent.name, allowed=tool.permission).state is State.INTERRUPTED
    assert not (tmp_path / "made-by-the-tool").exists()
    assert "SKILLYARD_DEPTH" not in os.environ
