"""The profiles `read`, `edit` and `full`, by each agent's own means: what is done unasked, and what is asked."""

import json

import pytest

from skillyard.backends.driver import Start
from skillyard.backends.driver import Turn as DriverTurn
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.dispatch_settings import PermissionProfile
from tests.agents.agent import Agent
from tests.agents.drivers import TOOLS, contents, driver_of
from tests.agents.fixtures import MakeAgent
from tests.agents.stub import Stub, Turn, answer, call

READ, EDIT, FULL = PermissionProfile
PATCH = "*** Begin Patch\n*** Add File: made\n+by the tool\n*** End Patch\n"


def shell(agent: Agent, line: str, *, escalated: bool = True) -> Turn:
    tool = TOOLS[agent.name]
    given = dict(tool.command(line))
    if not escalated:
        given.pop("sandbox_permissions", None)
        given.pop("justification", None)
    return call(tool.shell, given)


def edits(agent: Agent) -> Turn:
    match agent.name:
        case "claude-code":
            return call("Write", {"file_path": str(agent.cwd / "made"), "content": "by the tool"})
        case "codex":
            line = f"apply_patch <<'EOF'\n{PATCH}EOF"
            return shell(agent, line, escalated=False)
        case _:
            return call("write", {"filePath": str(agent.cwd / "made"), "content": "by the tool"})


def play(agent: Agent, stub: Stub, profile: PermissionProfile, turn: Turn) -> tuple[list[Permission], list[Event]]:
    """What was asked, and refused; and what the agent told."""
    asked: list[Permission] = []
    stub.play(turn, answer("So be it."))

    def ask(permission: Permission) -> bool:
        asked.append(permission)
        return False

    running = driver_of(agent).start(Start(agent.cwd, None, agent.model, profile=profile))
    try:
        return asked, list(running.turn(DriverTurn("Do it."), ask))
    finally:
        running.close()


@pytest.mark.parametrize("profile", [READ, EDIT, FULL])
def test_every_profile_looks_around_unasked(agent: Agent, stub: Stub, profile: PermissionProfile) -> None:
    (agent.cwd / "kept.txt").write_text("as it was\n", "utf-8")

    asked, events = play(agent, stub, profile, shell(agent, "ls && cat kept.txt", escalated=False))

    assert asked == []
    (came,) = [event for event in events if event.kind is EventKind.TOOL_RESULT]
    assert "kept.txt" in came.text
    assert "as it was" in came.text


def test_read_changes_nothing_unasked(agent: Agent, stub: Stub) -> None:
    asked, events = play(agent, stub, READ, edits(agent))

    assert contents(agent.cwd) == {}
    assert len(asked) == 1 or agent.name == "codex"  # whose sandbox is read-only
    assert [event.data["ok"] for event in events if event.kind is EventKind.TOOL_RESULT] == [False]


def test_edit_changes_files_unasked(agent: Agent, stub: Stub) -> None:
    asked, _ = play(agent, stub, EDIT, edits(agent))

    assert asked == []
    assert contents(agent.cwd)["made"].strip() == b"by the tool"


def test_edit_asks_for_anything_else(agent: Agent, stub: Stub) -> None:
    asked, _ = play(agent, stub, EDIT, shell(agent, 'python3 -c \'open("made", "w")\''))

    assert [permission.tool for permission in asked] == [TOOLS[agent.name].permission]
    assert contents(agent.cwd) == {}


def test_full_does_everything_unasked(agent: Agent, stub: Stub) -> None:
    asked, _ = play(agent, stub, FULL, shell(agent, "touch made"))

    assert asked == []
    assert list(contents(agent.cwd)) == ["made"]


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_what_a_clone_allows_claude_is_asked_about(make_agent: MakeAgent, stub: Stub, name: str) -> None:
    agent = make_agent("claude-code")
    (agent.cwd / ".claude").mkdir()
    wide = {"permissions": {"allow": ["Bash", "Bash(touch:*)"], "defaultMode": "bypassPermissions"}}
    (agent.cwd / ".claude" / name).write_text(json.dumps(wide), "utf-8")

    asked, _ = play(agent, stub, READ, shell(agent, "touch made"))

    assert [permission.tool for permission in asked] == ["Bash"]
    assert not (agent.cwd / "made").exists()
