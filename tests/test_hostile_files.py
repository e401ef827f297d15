"""A clone can hold anything under the names that we read: pipes, devices, bytes that are no text, endless nesting."""

import os
from pathlib import Path

import pytest

from tests.conftest import Skillyard, WriteSkill

#: What is read, and the commands that read it.
READ = {
    "agents/x/agent.yaml": (["list"], ["role", "validate"], ["trust", "--check"]),
    ".claude/skills/x/SKILL.md": (["list"], ["show", "x"]),
    "skillyard.toml": (["list"], ["jobs"], ["trust", "--check"]),
    "skillyard.lock": (["verify"],),
    ".skillyard/links.json": (["unlink", "--all"],),
    ".skillyard/install/journal.json": (["verify"],),
    ".mcp.json": (["init", "--mcp", "claude-code"],),
    ".codex/config.toml": (["init", "--mcp", "codex"],),
    "workflows/x.yaml": (["flow", "validate", "workflows/x.yaml"],),
    "bin/skill_manager.py": (["init", "--check"], ["trust", "--check"]),
}
TASK = ["task", "worker_agent", "x", "run python bin/x.py", "--key", "k"]


@pytest.mark.parametrize("name", READ)
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(name: str, skillyard: Skillyard, project: Path) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(project / name)

    for words in READ[name]:
        shown = skillyard(*words)  # the fixture's own ceiling is the assertion
        assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("name", [name for name in READ if not name.startswith((".claude", "bin"))])
def test_a_file_without_an_end_is_refused(name: str, skillyard: Skillyard, project: Path) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).symlink_to("/dev/zero")

    for words in READ[name]:
        assert "Traceback" not in skillyard(*words).stderr


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("content", [b"\xff\xfeengine", b"a = " + b"[" * 100_000, b"[" * 100_000])
def test_bytes_that_are_nothing_of_the_kind_are_an_error_and_no_traceback(
    name: str, content: bytes, skillyard: Skillyard, project: Path
) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_bytes(content)

    for words in (*READ[name], TASK):
        shown = skillyard(*words)
        assert "Traceback" not in shown.stderr
        assert shown.stdout


def test_a_value_nested_without_end_is_a_text_like_any_other(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    text = "---\nname: say\ndescription: x\nprotocol: json\nentry: say.py\n---\n# x\n"
    program = "import json, sys; print(json.dumps({'success': True, 'data': json.load(sys.stdin)['params']}))"
    write_skill("say", text, {"say.py": program})
    nested = "[" * 50_000

    shown = skillyard("run", "@say", "say", f"it={nested}", "--json")

    assert shown.returncode == 0, shown.stderr
    assert nested in shown.stdout
