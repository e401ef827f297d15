"""Skills of an MCP server: found, installed, updated and verified against what the server told, by the real command."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import SkillError, SourceFailed
from skillyard.install.mcp_source import parse_mcp
from skillyard.install.source import Limits
from skillyard.install.target import read_lock
from skillyard.trust.mcp_servers import McpServers
from tests.conftest import Skillyard
from tests.install import mcp_stub_modes
from tests.install.conftest import DOUBTFUL, good, write

STUB = Path(__file__).with_name("mcp_stub.py")
Server = Callable[[str], str]


def data_of(done: "subprocess.CompletedProcess[str]") -> Any:
    return json.loads(done.stdout)["data"]


def skills_in(project: Path) -> list[str]:
    folder = project / ".claude" / "skills"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The folder whose skills the server has."""
    return write(
        tmp_path / "served", {"pdf/SKILL.md": good("pdf"), "pdf/docs/a.md": "one", "word/SKILL.md": good("word")}
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "requests.log"


@pytest.fixture
def server(served: Path, log: Path, project: Path) -> Server:
    """Names a server `docs` in .mcp.json that behaves as the mode says. Returns the source that a person types."""

    def named(mode: str) -> str:
        args = [str(STUB), mode, str(served), str(log)]
        entry = {"command": sys.executable, "args": args}
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"docs": entry}}))
        return f"mcp:{shlex.join([sys.executable, *args])}"

    return named


def requests(log: Path, method: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{method} ")]


def test_find_tells_what_a_server_has_and_fetches_nothing(skillyard: Skillyard, server: Server, log: Path) -> None:
    done = skillyard("find", "--mcp", server("paged"), "--json")

    assert [each["uri"] for each in data_of(done)["skills"]] == ["skill://pdf/SKILL.md", "skill://word/SKILL.md"]
    assert data_of(done)["skills"][0]["files"] == 2
    assert requests(log, "resources/read") == []


def test_find_keeps_those_with_the_words(skillyard: Skillyard, server: Server) -> None:
    done = skillyard("find", "WORD", "--mcp", server("good"), "--json")

    assert [each["name"] for each in data_of(done)["skills"]] == ["word"]
    assert skillyard("find", "word").returncode == 1


@pytest.mark.parametrize("mode", ["good", "paged", "legacy", "asks-back"])
def test_a_skill_of_a_server_is_installed_and_verifies(
    mode: str, skillyard: Skillyard, server: Server, project: Path, served: Path, log: Path
) -> None:
    (served / "pdf/logo.bin").write_bytes(b"\xff\x00")
    source = server(mode)
    done = skillyard("add", source, "--skill", "pdf")

    assert (done.returncode, done.stdout) == (0, "added pdf\n")
    assert skills_in(project) == ["pdf"]
    assert (project / ".claude/skills/pdf/logo.bin").read_bytes() == b"\xff\x00"
    installed = read_lock(project / "skillyard.lock")["pdf"]
    assert (installed.source, installed.uri, installed.path) == (source, "skill://pdf/SKILL.md", "pdf")
    assert skillyard("verify").returncode == 0
    assert requests(log, "resources/read") == [
        "skill://pdf/SKILL.md",
        "skill://pdf/docs/a.md",
        "skill://pdf/logo.bin",
    ]


def test_a_server_of_the_project_starts_only_after_a_person_allowed_it(
    skillyard: Skillyard, server: Server, project: Path, log: Path
) -> None:
    server("good")
    refused = skillyard("add", "mcp:docs/pdf", "--json")

    assert data_of(refused)["type"] == "NotGranted"
    assert data_of(refused)["grant"] == "skillyard trust --server docs"
    assert not log.exists()

    assert skillyard("trust", "--server", "docs").returncode == 1  # nobody at a terminal said yes
    assert skillyard("trust", "--server", "docs", "--accept", SKILLYARD_DEPTH="1").returncode != 0
    assert not log.exists()
    assert skillyard("trust", "--server", "docs", "--accept").returncode == 0
    assert skillyard("add", "mcp:docs/pdf").returncode == 0
    assert read_lock(project / "skillyard.lock")["pdf"].source == "mcp:docs"
    assert "mcp-server:docs" in skillyard("grants").stdout

    server("paged")  # another command, which nobody saw
    changed = skillyard("update", "--all", "--json")
    assert "Not granted" in changed.stdout


def test_a_command_in_a_lock_that_came_with_a_clone_is_not_started(
    skillyard: Skillyard, server: Server, project: Path, log: Path
) -> None:
    source = server("good")
    assert skillyard("add", source, "--skill", "pdf").returncode == 0
    log.unlink()
    shutil.rmtree(project / ".claude/skills/pdf")

    assert data_of(skillyard("restore", "--json"))["type"] == "NotGranted"
    assert "Not granted" in skillyard("update", "--all", "--json").stdout
    assert not log.exists()
    assert skillyard("trust", "--server", source, "--accept").returncode == 0
    assert skillyard("restore").returncode == 0
    assert skills_in(project) == ["pdf"]


def test_the_users_own_server_needs_no_question_and_wins(
    skillyard: Skillyard, server: Server, places: ProjectPaths, project: Path
) -> None:
    server("good")
    (places.user_home / ".claude.json").write_text((project / ".mcp.json").read_text())
    server("dies-at-once")  # what the clone calls by the same name

    assert skillyard("add", "mcp:docs/pdf").returncode == 0


def test_servers_of_codex_and_opencode_are_known_by_name(
    skillyard: Skillyard, server: Server, places: ProjectPaths, project: Path, log: Path, served: Path
) -> None:
    server("good")
    words = [sys.executable, str(STUB), "good", str(served), str(log)]
    write(
        places.user_home,
        {".codex/config.toml": f"[mcp_servers.c]\ncommand = {json.dumps(words[0])}\nargs = {json.dumps(words[1:])}\n"},
    )
    write(
        places.user_home,
        {".config/opencode/opencode.json": json.dumps({"mcp": {"o": {"type": "local", "command": words}}})},
    )

    assert len(data_of(skillyard("find", "--mcp", "c", "--json"))["skills"]) == 2
    assert len(data_of(skillyard("find", "--mcp", "o", "--json"))["skills"]) == 2
    unknown = skillyard("find", "--mcp", "nobody", "--json")
    assert "there are: c, o, docs" in unknown.stdout


def test_update_compares_manifests_and_fetches_only_what_changed(
    skillyard: Skillyard, server: Server, project: Path, served: Path, log: Path
) -> None:
    server("good")
    skillyard("trust", "--server", "docs", "--accept")
    assert skillyard("add", "mcp:docs", "--all").returncode == 0
    log.unlink()

    assert skillyard("update", "--all").stdout.split() == ["current", "pdf", "current", "word"]
    assert requests(log, "resources/read") == []

    (served / "pdf/docs/a.md").write_text("two")
    (served / "pdf/docs/b.md").write_text("new")
    done = skillyard("update", "--all", "--json")

    assert [each["standing"] for each in data_of(done)["skills"]] == ["changed", "current"]
    assert (project / ".claude/skills/pdf/docs/a.md").read_text() == "two"
    assert all(uri.startswith("skill://pdf/") for uri in requests(log, "resources/read"))
    assert skillyard("verify").returncode == 0

    (project / ".claude/skills/pdf/docs/b.md").write_text("mine")
    assert skillyard("verify").returncode == 1
    assert skillyard("restore", "--theirs").returncode == 0
    assert skillyard("verify").returncode == 0

    shutil.rmtree(served / "word")
    assert "gone     word" in skillyard("update", "--all").stdout


def test_a_skill_that_the_list_lacks_is_asked_for_by_its_address(skillyard: Skillyard, server: Server) -> None:
    source = server("unlisted")

    assert skillyard("add", source, "--skill", "skill://pdf/SKILL.md").returncode == 0
    assert skillyard("add", source, "--skill", "nope", "--json").returncode != 0


def test_what_looks_doubtful_is_held_back_as_from_any_source(
    skillyard: Skillyard, server: Server, project: Path, served: Path
) -> None:
    (served / "pdf/SKILL.md").write_text(good("pdf") + DOUBTFUL)
    done = skillyard("add", server("good"), "--skill", "pdf", "--json")

    assert json.loads(done.stdout)["state"] == "interrupted"
    assert skills_in(project) == []


def test_no_skill_of_a_server_takes_the_name_of_another(
    skillyard: Skillyard, server: Server, places: ProjectPaths, project: Path, served: Path, tmp_path: Path
) -> None:
    source = server("good")
    write(places.user_home / ".claude/skills/word", {"SKILL.md": good("word")})
    write(tmp_path / "local/pdf", {"SKILL.md": good("pdf") + "Mine.\n"})
    assert skillyard("add", str(tmp_path / "local/pdf")).returncode == 0

    for name in ("pdf", "word"):
        done = skillyard("add", source, "--skill", name, "--json")
        assert data_of(done)["type"] == "InvalidArgs"
        assert "--as NAME" in data_of(done)["msg"]
    assert "Mine." in (project / ".claude/skills/pdf/SKILL.md").read_text()
    assert skillyard("add", source, "--skill", "pdf", "--as", "their-pdf").returncode == 0
    assert skills_in(project) == ["pdf", "their-pdf"]


def test_two_of_one_name_on_one_server_are_told_apart_by_their_paths(
    skillyard: Skillyard, server: Server, project: Path, served: Path
) -> None:
    write(served, {"support/pdf/SKILL.md": good("pdf") + "Support.\n"})
    source = server("good")

    assert skillyard("add", source, "--skill", "support/pdf").returncode == 0
    assert "Support." in (project / ".claude/skills/pdf-2/SKILL.md").read_text()
    assert read_lock(project / "skillyard.lock")["pdf-2"].uri == "skill://support/pdf/SKILL.md"


def test_a_skill_inside_another_is_installed_only_if_it_is_named(
    skillyard: Skillyard, server: Server, project: Path, served: Path
) -> None:
    write(served, {"pdf/parts/inner/SKILL.md": good("inner")})
    source = server("good")

    assert skillyard("add", source, "--all").returncode == 0
    assert skills_in(project) == ["pdf", "word"]
    assert (project / ".claude/skills/pdf/parts/inner/SKILL.md").is_file()
    assert skillyard("add", source, "--skill", "inner").returncode == 0
    assert skills_in(project) == ["inner", "pdf", "word"]


@pytest.mark.parametrize("mode", mcp_stub_modes.REFUSED_ENTRIES)
def test_an_entry_that_breaks_a_rule_is_refused_before_anything_of_it_is_fetched(
    mode: str, skillyard: Skillyard, server: Server, project: Path, log: Path, tmp_path: Path
) -> None:
    source = server(mode)
    done = skillyard("add", source, "--skill", "pdf", "--json")

    assert json.loads(done.stdout)["state"] == "error", done.stdout
    assert data_of(done)["type"] in {"SourceRefused", "SkillNotFound"}
    assert requests(log, "resources/read") == []
    assert skills_in(project) == []
    assert not (project / "skillyard.lock").exists()
    assert not list(tmp_path.rglob("evil*"))
    assert skillyard("add", source, "--skill", "word").returncode == 0  # its neighbour is not held up


@pytest.mark.parametrize("mode", mcp_stub_modes.REFUSED_CONTENT)
def test_content_that_differs_from_what_was_told_is_refused_and_nothing_is_installed(
    mode: str, skillyard: Skillyard, server: Server, project: Path
) -> None:
    done = skillyard("add", server(mode), "--skill", "pdf", "--json")

    assert json.loads(done.stdout)["state"] == "error", done.stdout
    assert skills_in(project) == []
    assert not (project / "skillyard.lock").exists()
    assert not list((project / ".skillyard").rglob("SKILL.md"))


@pytest.mark.parametrize(("mode", "said"), mcp_stub_modes.FAILING_SERVERS.items())
def test_a_server_that_fails_is_told_and_left(
    mode: str, said: str, skillyard: Skillyard, server: Server, project: Path
) -> None:
    done = skillyard("add", server(mode), "--skill", "pdf", "--json")

    assert json.loads(done.stdout)["state"] == "error"
    assert said in data_of(done)["msg"]
    assert skills_in(project) == []


@pytest.mark.parametrize("mode", ["silent", "drips", "floods"])
def test_a_server_that_keeps_us_waiting_is_left_at_the_deadline(
    mode: str, server: Server, places: ProjectPaths, tmp_path: Path
) -> None:
    servers = McpServers(places.project, places.user_home, None, {})
    source, _ = parse_mcp(server(mode), servers)

    with pytest.raises(SkillError) as failure:
        source._replace(limits=Limits(seconds=3.0)).fetch(tmp_path, lambda _: None)
    assert isinstance(failure.value, SourceFailed) or mode == "floods"


@pytest.mark.parametrize(
    "text", ["mcp:", "mcp: ", "mcp:https://me:secret@host.invalid/mcp", "mcp:'open quote x", "mcp:a\x00b"]
)
def test_what_names_no_server_is_refused(text: str, skillyard: Skillyard) -> None:
    done = skillyard("add", text.replace("\x00", "\x01"), "--json")

    assert data_of(done)["type"] == "InvalidArgs"
    assert "secret" not in done.stdout


def test_a_variable_in_a_configuration_is_filled_in_or_asked_for(
    skillyard: Skillyard, server: Server, places: ProjectPaths, project: Path
) -> None:
    server("good")
    fields = json.loads((project / ".mcp.json").read_text())
    fields["mcpServers"]["docs"]["args"][1] = "${STUB_MODE}"
    (places.user_home / ".claude.json").write_text(json.dumps(fields))

    assert "needs the variable STUB_MODE" in skillyard("find", "--mcp", "docs", "--json").stdout
    assert skillyard("find", "--mcp", "docs", STUB_MODE="good").returncode == 0
