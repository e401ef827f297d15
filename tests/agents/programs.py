"""Where the three real agents are; a test that needs one that is not there is skipped, and says how to get it."""

from pathlib import Path

import pytest
from tools import agents

NAMES = ("claude-code", "codex", "opencode")


def program(name: str) -> Path:
    """The native program of an agent."""
    known = agents.programs()
    folder = agents.cache()
    if name not in known:
        pytest.skip(f"no package of {name} is known for this platform")
    if not known[name].installed(folder):
        pytest.skip(f"{name} {known[name].version} is not installed: run ./dev agents")
    return known[name].file(folder)
