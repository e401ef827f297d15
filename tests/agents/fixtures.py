"""`stub`, `make_agent` and `agent`, for any test: tests/conftest.py knows them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents import agent as agents
from tests.agents import programs
from tests.agents.agent import Agent
from tests.agents.stub import Stub, open_stub


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A model on loopback, with an empty script."""
    with open_stub() as opened:
        yield opened


MakeAgent = Callable[[str], Agent]


@pytest.fixture
def make_agent(stub: Stub, tmp_path: Path) -> MakeAgent:
    """A real agent by its name, in a home of its own, that talks to the stub."""
    return lambda name: agents.make(name, stub, tmp_path / "agents" / name)


@pytest.fixture(params=programs.NAMES)
def agent(request: pytest.FixtureRequest, make_agent: MakeAgent) -> Agent:
    """Each of the three in turn."""
    return make_agent(request.param)
