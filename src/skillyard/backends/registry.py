"""The drivers by name: the three that we know, and whatever ACP agents the user names."""

import os
from collections.abc import Mapping, Sequence

from skillyard.backends.acp import OPENCODE, Acp, AcpAgent
from skillyard.backends.claude import ClaudeCode
from skillyard.backends.codex import Codex
from skillyard.backends.driver import Driver


def make_drivers(env: Mapping[str, str] = os.environ, others: Sequence[Acp] = ()) -> dict[str, Driver]:
    """In the order in which one is chosen where nobody says which. A name of ours is never another agent's."""
    known: tuple[Driver, ...] = (ClaudeCode(env), Codex(env), AcpAgent(OPENCODE, env))
    ours = {driver.name for driver in known}
    added = (AcpAgent(agent, env) for agent in others if agent.name not in ours)
    return {driver.name: driver for driver in (*known, *added)}
