"""`skillyard init --mcp`: what it prints can be pasted, and what it writes loses nothing that was there."""

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.child_process import own_command
from skillyard.core.envelope import from_json
from skillyard.install.mcp_config import AGENTS, EntryState, make_config, write
from tests.conftest import Skillyard
from tests.faces.mcp_client import CEILING_SECONDS, variables
from tests.faces.test_terminal import Terminal

FILES = {"claude-code": ".mcp.json", "codex": ".codex/config.toml", "opencode": "opencode.json"}


def command_in(agent: str, text: str) -> tuple[list[str], dict[str, str]]:
    """The words and the variables that the agent would start the server with."""
    if agent == "codex":
        entry: dict[str, Any] = tomllib.loads(text)["mcp_servers"]["skillyard"]
        return [entry["command"], *entry["args"]], entry.get("env", {})
    if agent == "opencode":
        entry = json.loads(text)["mcp"]["skillyard"]
        return entry["command"], entry.get("environment", {})
    entry = json.loads(text)["mcpServers"]["skillyard"]
    return [entry["command"], *entry["args"]], entry.get("env", {})


@pytest.mark.parametrize("agent", AGENTS)
def test_what_is_printed_is_a_whole_file_and_its_command_starts_the_server_on_any_machine(
    skillyard: Skillyard, places: ProjectPaths, agent: str
) -> None:
    """The file is committed and shared: it names our command, and no path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = skillyard("init", "--mcp", agent, PATH=path)

    words, env = command_in(agent, printed.stdout)
    assert (words, env) == (["skillyard", "mcp"], {})
    assert str(places.own_home) not in printed.stdout
    assert "approv" not in printed.stdout
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    with subprocess.Popen(
        words,
        cwd=places.project,
        env={**variables(places), "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(message.encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        server.stdin.close()
        assert server.wait(CEILING_SECONDS) == 0
    assert answer["result"]["serverInfo"]["name"] == "skillyard"


def test_off_a_terminal_nothing_is_written_and_nothing_is_laid_out(skillyard: Skillyard, project: Path) -> None:
    before = sorted(project.iterdir())

    printed = skillyard("init", "--mcp", "claude-code,codex,opencode")
    told = from_json(skillyard("init", "--mcp", "claude-code,codex,opencode", "--json").stdout)

    assert [line for line in printed.stdout.splitlines() if line.startswith("# ")] == [
        f"# {agent}: {path}" for agent, path in FILES.items()
    ]
    assert isinstance(told.data["files"], list)
    assert [(each["agent"], each["path"], each["entry"]) for each in told.data["files"]] == [
        (agent, path, "missing") for agent, path in FILES.items()
    ]
    assert sorted(project.iterdir()) == before


def test_with_yes_each_file_is_written_once_and_then_kept(skillyard: Skillyard, project: Path) -> None:
    first = skillyard("init", "--mcp", "claude-code,codex,opencode", "--yes", "--json")
    texts = {agent: (project / path).read_text("utf-8") for agent, path in FILES.items()}
    second = skillyard("init", "--mcp", "claude-code,codex,opencode", "--yes", "--json")

    for done, standing in ((first, "written"), (second, "kept")):
        files = from_json(done.stdout).data["files"]
        assert isinstance(files, list)
        assert [each["entry"] for each in files] == [standing] * 3
    for agent, text in texts.items():
        assert text == skillyard("init", "--mcp", agent).stdout
        assert (project / FILES[agent]).read_text("utf-8") == text


def test_what_stands_in_a_file_already_stays(skillyard: Skillyard, project: Path) -> None:
    (project / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "x"}}, "名": [1, 2.5, null]}')
    (project / ".mcp.json").chmod(0o600)
    (project / ".codex").mkdir()
    (project / ".codex/config.toml").write_text('# mine\nmodel = "m"\n[mcp_servers.other]\ncommand = "x"')
    (project / "opencode.json").write_text('{"theme": "dark"}')

    skillyard("init", "--mcp", "claude-code,codex,opencode", "--yes")

    claude = json.loads((project / ".mcp.json").read_text("utf-8"))
    assert (claude["mcpServers"]["other"], claude["名"]) == ({"command": "x"}, [1, 2.5, None])
    assert "skillyard" in claude["mcpServers"]
    assert (project / ".mcp.json").stat().st_mode & 0o777 == 0o600
    toml = (project / ".codex/config.toml").read_text("utf-8")
    assert toml.startswith('# mine\nmodel = "m"\n[mcp_servers.other]\ncommand = "x"\n\n[mcp_servers.skillyard]\n')
    assert set(tomllib.loads(toml)["mcp_servers"]) == {"other", "skillyard"}
    opencode = json.loads((project / "opencode.json").read_text("utf-8"))
    assert (opencode["theme"], list(opencode["mcp"])) == ("dark", ["skillyard"])


@pytest.mark.parametrize(
    ("agent", "name", "text"),
    [
        ("claude-code", ".mcp.json", '{"mcpServers": {}} // mine\n'),
        ("claude-code", ".mcp.json", '{"a": 1, "a": 2}'),
        ("claude-code", ".mcp.json", '{"mcpServers": []}'),
        ("claude-code", ".mcp.json", "[]"),
        ("opencode", "opencode.jsonc", '{/* mine */ "mcp": {}}'),
        ("codex", ".codex/config.toml", 'mcp_servers = {other = {command = "x"}}\n'),
        ("codex", ".codex/config.toml", "broken =\n"),
    ],
)
def test_a_file_that_cannot_be_changed_without_loss_is_left_alone(
    project: Path, agent: str, name: str, text: str
) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(text)

    config = make_config(project, agent, own_command(), {})

    assert (config.entry, config.path, config.merged) == (EntryState.UNREADABLE, name, "")


@pytest.mark.parametrize("agent", AGENTS)
def test_an_entry_of_ours_that_somebody_changed_is_theirs(project: Path, agent: str) -> None:
    write(project, make_config(project, agent, ("/elsewhere/skillyard",), {}))

    assert make_config(project, agent, own_command(), {}).entry is EntryState.DIFFERS


def test_each_agent_is_told_how_long_a_skill_may_take(skillyard: Skillyard) -> None:
    codex = tomllib.loads(skillyard("init", "--mcp", "codex").stdout)["mcp_servers"]["skillyard"]
    opencode = json.loads(skillyard("init", "--mcp", "opencode").stdout)["mcp"]["skillyard"]

    assert (codex["tool_timeout_sec"], codex["startup_timeout_sec"], codex["env_vars"]) == (
        3600,
        30,
        ["SKILLYARD_HOME"],
    )
    assert opencode["timeout"] == 3_600_000


def test_where_no_agent_would_find_the_command_uvx_starts_it_or_the_person_is_told(
    skillyard: Skillyard, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    alone = skillyard("init", "--mcp", "claude-code", PATH=str(tmp_path / "bin"))
    (tmp_path / "bin" / "uvx").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "uvx").chmod(0o755)
    with_uvx = skillyard("init", "--mcp", "claude-code", PATH=str(tmp_path / "bin"))

    assert command_in("claude-code", alone.stdout)[0] == ["skillyard", "mcp"]
    assert "`uv tool install skillyard` puts it there" in alone.stderr
    assert command_in("claude-code", with_uvx.stdout)[0] == ["uvx", "skillyard", "mcp"]
    assert with_uvx.stderr == ""


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "place", ["/小明/s k/skillyard", '/a"b\\c/skillyard', "/🚀\u202e\x7f\x01/skillyard", "/a'#$(id)/s"]
)
def test_any_path_reads_back_as_it_is(project: Path, agent: str, place: str) -> None:
    config = make_config(project, agent, (place,), {"SKILLYARD_HOME": place})

    assert command_in(agent, config.text) == ([place, "mcp"], {"SKILLYARD_HOME": place})
    assert config.text.replace("\n", "").isprintable()


def test_a_link_is_not_written_through(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text("{}")
    (project / ".mcp.json").symlink_to(tmp_path / "outside.json")
    config = make_config(project, "claude-code", own_command(), {})

    with pytest.raises(Exception, match="is a link"):
        write(project, config)

    assert (tmp_path / "outside.json").read_text() == "{}"


def test_nothing_is_written_through_a_name_that_a_clone_could_guess(project: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (project / f".mcp.json.{os.getpid()}.new").symlink_to(victim)

    write(project, make_config(project, "claude-code", ("skillyard",), {}))

    assert victim.read_text() == "mine"
    assert json.loads((project / ".mcp.json").read_text())["mcpServers"]


def test_a_file_that_others_could_not_read_stays_so(project: Path) -> None:
    (project / ".mcp.json").write_text("{}")
    (project / ".mcp.json").chmod(0o600)

    write(project, make_config(project, "claude-code", ("skillyard",), {}))

    assert stat.S_IMODE((project / ".mcp.json").stat().st_mode) == 0o600


def test_an_unknown_agent_is_told_which_there_are_and_an_agent_writes_nothing(
    skillyard: Skillyard, project: Path
) -> None:
    unknown = skillyard("init", "--mcp", "cursor")
    inside = skillyard("init", "--mcp", "codex", "--yes", SKILLYARD_DEPTH="1")

    assert unknown.returncode == 1
    assert "there are claude-code, codex, opencode" in unknown.stdout
    assert "PermissionDenied" in inside.stdout
    assert not (project / ".codex").exists()


def test_the_command_is_this_installation(tmp_path: Path) -> None:
    words = own_command()

    assert words[0].startswith(str(Path(sys.executable).parent))
    told = subprocess.run([*words, "--version"], capture_output=True, text=True, cwd=tmp_path, timeout=CEILING_SECONDS)
    assert told.stdout.startswith("skillyard ")


def test_on_a_terminal_each_file_is_asked_about(places: ProjectPaths, project: Path) -> None:
    with Terminal(places, "init", "--mcp", "claude-code,opencode") as terminal:
        terminal.expect("Put this into .mcp.json, for claude-code? [y/N]")
        terminal.say("y")
        terminal.expect("Put this into opencode.json, for opencode? [y/N]")
        terminal.say("n")
        code, out = terminal.finish()

    assert code == 0
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["written", "claude-code", ".mcp.json"],
        ["missing", "opencode", "opencode.json"],
    ]
    assert "skillyard" in json.loads((project / ".mcp.json").read_text("utf-8"))["mcpServers"]
    assert not (project / "opencode.json").exists()
