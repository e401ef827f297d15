"""`link --check` with the real agents, each in a network of its own; and with programs that do not behave."""

import json
import os
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.backends.registry import list_backends, list_visible_skills
from skillyard.core.envelope import from_json
from skillyard.core.errors import RuntimeFailed, Timeout
from tests.agents import programs
from tests.conftest import Skillyard
from tests.install.conftest import good, write

pytestmark = pytest.mark.ci("real agents, every case")

ALL = ",".join(programs.NAMES)


def offline(name: str, folder: Path) -> Path:
    """The real program, where it can reach nobody."""
    program = programs.program(name)
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network of its own can be made here, and this program may look for other hosts")
    return script(folder / name, f'exec unshare -rn {shlex.quote(str(program))} "$@"')


def script(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    file.chmod(0o755)
    return file


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The variables that name the three programs."""
    return {list_backends()[name].variable: str(offline(name, tmp_path / "programs")) for name in programs.NAMES}


def checked(skillyard: Skillyard, *words: str, **env: str) -> tuple[str, dict[str, dict[str, Any]]]:
    done = skillyard("link", "--check", "--json", *words, **env)
    result = from_json(done.stdout)
    views = result.data.get("skills", [])
    assert isinstance(views, list)
    return str(result.state), {
        f"{view['name']} {view['agent']}": dict(view) for view in views if isinstance(view, dict)
    }


def test_each_agent_says_itself_what_was_linked_for_it(
    skillyard: Skillyard, project: Path, installed: dict[str, str]
) -> None:
    for name in ("pdf", "报告"):
        write(project / "skills" / name, {"SKILL.md": good(name)})

    before = checked(skillyard, "pdf", "报告", **installed)
    skillyard("link", "pdf", "--to", ALL)
    skillyard("link", "报告", "--to", ALL, "--copy")
    linked = checked(skillyard, **installed)
    skillyard("unlink", "--all")
    after = checked(skillyard, "pdf", **installed)

    assert before[0] == after[0] == "error"
    assert {view["standing"] for view in before[1].values()} == {"not seen"}
    assert before[1]["pdf codex"]["note"] == "skillyard link pdf --to codex"
    assert linked[0] == "success"
    assert {key: view["standing"] for key, view in linked[1].items()} == {
        f"{name} {agent}": "seen" for name in ("pdf", "报告") for agent in programs.NAMES
    }
    assert linked[1]["pdf codex"]["path"] == str(project / ".agents/skills/pdf")
    assert {view["standing"] for view in after[1].values()} == {"not seen"}


def test_the_users_skills_are_seen_from_any_folder(
    skillyard: Skillyard, places: ProjectPaths, installed: dict[str, str]
) -> None:
    write(places.own_home / "skills/mine", {"SKILL.md": good("mine")})
    for agent in programs.NAMES:
        skillyard("link", "mine", "--user", "--to", agent)

    state, views = checked(skillyard, "--user", **installed)

    assert (state, {view["standing"] for view in views.values()}) == ("success", {"seen"})


def test_a_skill_of_the_same_name_is_told(
    skillyard: Skillyard, project: Path, places: ProjectPaths, installed: dict[str, str]
) -> None:
    write(project / "skills/pdf", {"SKILL.md": good("pdf")})
    rival = write(places.user_home / ".claude/skills/pdf", {"SKILL.md": good("pdf")})
    other = write(places.user_home / ".agents/skills/pdf", {"SKILL.md": good("pdf")})
    skillyard("link", "pdf", "--to", "claude-code,codex")

    _, views = checked(skillyard, "pdf", "--to", "claude-code,codex", **installed)

    assert (views["pdf claude-code"]["standing"], views["pdf claude-code"]["path"]) == ("shadowed", str(rival))
    assert views["pdf codex"]["standing"] == "seen"
    assert str(other) in views["pdf codex"]["note"]


def test_nothing_is_sent_and_nothing_of_the_project_is_started(
    skillyard: Skillyard, project: Path, tmp_path: Path
) -> None:
    """Even where the project's own settings name a model's address, and a hook."""
    program = programs.program("claude-code")
    write(project / ".claude/skills/pdf", {"SKILL.md": good("pdf")})
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}", "ANTHROPIC_API_KEY": "dummy"}
        hook = {"hooks": [{"type": "command", "command": f"touch {tmp_path / 'hooked'}"}]}
        settings = {"env": address, "hooks": {"SessionStart": [hook], "UserPromptSubmit": [hook]}}
        write(project / ".claude", {"settings.json": json.dumps(settings)})

        _, views = checked(skillyard, "pdf", "--to", "claude-code", SKILLYARD_CLAUDE_CODE=str(program), **address)

        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert views["pdf claude-code"]["standing"] == "seen"
    assert not (tmp_path / "hooked").exists()


def test_an_agent_that_is_not_installed_is_told_with_the_command(skillyard: Skillyard, project: Path) -> None:
    write(project / "skills/pdf", {"SKILL.md": good("pdf")})
    nowhere = {backend.variable: "/nowhere/agent" for backend in list_backends().values()}

    done = skillyard("link", "pdf", "--check", "--to", "codex", "--json", **nowhere)

    result = from_json(done.stdout)
    assert result.data["type"] == "AgentNotInstalled"
    assert "npm install -g @openai/codex" in str(result.meta["hint"])


@pytest.mark.parametrize("answer", ["", "hello", "[]x", '{"a": 1}', '[{"content": 3}]'])
def test_an_answer_that_nobody_knows_is_told(skillyard: Skillyard, project: Path, tmp_path: Path, answer: str) -> None:
    write(project / "skills/pdf", {"SKILL.md": good("pdf")})
    odd = str(script(tmp_path / "odd", f"printf %s {shlex.quote(answer)}; echo why >&2"))
    programs_of = {backend.variable: odd for backend in list_backends().values()}

    state, views = checked(skillyard, "pdf", **programs_of)

    assert state == "error"
    assert {view["standing"] for view in views.values()} == {"unknown"}
    assert {view["note"] for view in views.values()} == {f"{odd} did not tell its skills: why"}


def test_a_program_that_never_ends_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    slow = script(tmp_path / "slow", f"echo $$ >{pids}; setsid sh -c 'echo $$ >>{pids}; exec sleep 1000' & sleep 1000")
    env = {"PATH": os.environ["PATH"], "SKILLYARD_CODEX": str(slow)}

    with pytest.raises(Timeout):
        list_visible_skills("codex", tmp_path, env, seconds=10)

    started = [int(line) for line in pids.read_text().split()]
    assert len(started) == 2
    assert [pid for pid in started if _is_alive(pid)] == []


def _is_alive(pid: int) -> bool:
    """A zombie that its new parent has not reaped yet is as good as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    broken = script(tmp_path / "broken", "")
    broken.write_bytes(b"\x7fELF nonsense")

    with pytest.raises(RuntimeFailed):
        list_visible_skills("codex", tmp_path, {"PATH": os.environ["PATH"], "SKILLYARD_CODEX": str(broken)})
