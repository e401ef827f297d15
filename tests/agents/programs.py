"""Where the three real agents are; a test that needs one that is not there is skipped, and says how to get it."""

import os
from pathlib import Path

import pytest

NAMES = ("claude-code", "codex", "opencode")
_NATIVE = {
    "claude-code": "@anthropic-ai/claude-code-linux-*/claude",
    "codex": "@openai/codex-linux-*/vendor/*/bin/codex",
    "opencode": "opencode-linux-*/bin/opencode",
}


def program(name: str) -> Path:
    """The native program of an agent."""
    folder = os.environ.get("SKILLYARD_TEST_AGENTS", "")
    found = sorted(Path(folder, "node_modules").glob(_NATIVE[name])) if folder else []
    if not found:
        pytest.skip(f"{name} is not installed: SKILLYARD_TEST_AGENTS names the folder whose node_modules hold it")
    return found[0]
