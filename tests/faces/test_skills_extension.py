"""Skills over MCP, the server's side: every answer of the extension, without a transport."""

import base64
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from skillyard.app.project import Project
from skillyard.faces.mcp.listing import Options
from skillyard.faces.mcp.protocol import INVALID_PARAMS, ClientConnection
from skillyard.faces.mcp.server import Service
from tests.conftest import WriteSkill
from tests.faces.mcp_client import CEILING_SECONDS

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/skills": {}}},
}
Ask = Callable[..., dict[str, Any]]


def skill(name: str, more: str = "") -> str:
    return f"---\nname: {name}\ndescription: Does {name} things.\n{more}---\n# {name}\n"


@pytest.fixture
def ask(yard: Project) -> Iterator[Ask]:
    """Sends a request and returns its whole answer."""
    answers: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
    service = Service(yard, Options())

    def send(message: Mapping[str, Any]) -> bool:
        answers.put(message)
        return True

    connection = ClientConnection(service, send)
    service.connections.append(connection)

    def asked(method: str, **params: Any) -> dict[str, Any]:
        connection.receive({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}})
        return dict(answers.get(timeout=CEILING_SECONDS))

    yield asked
    service.close()


def entries(ask: Ask) -> dict[str, dict[str, Any]]:
    """Every entry of every page, by its URI."""
    found: dict[str, dict[str, Any]] = {}
    cursor: dict[str, str] = {}
    while True:
        result = ask("skills/list", **cursor)["result"]
        found |= {entry["uri"]: entry for entry in result["skills"]}
        if "nextCursor" not in result:
            return found
        cursor = {"cursor": result["nextCursor"]}


def left_out(ask: Ask) -> dict[str, str]:
    told = ask("skills/list")["result"]["_meta"].get("skillyard/leftOut", [])
    return {each["name"]: each["reason"] for each in told}


def read(ask: Ask, uri: str) -> bytes:
    (content,) = ask("resources/read", uri=uri)["result"]["contents"]
    return content["text"].encode() if "text" in content else base64.b64decode(content["blob"])


def test_the_server_declares_the_extension_with_directory_reads(ask: Ask) -> None:
    capabilities = ask("server/discover")["result"]["capabilities"]

    assert capabilities["extensions"]["io.modelcontextprotocol/skills"] == {"directoryRead": True}
    assert "resources" in capabilities


def test_every_file_has_the_digest_and_size_of_the_bytes_that_are_served(ask: Ask, write_skill: WriteSkill) -> None:
    folder = write_skill("pdf", skill("pdf"), {"references/a b ü.md": "ü\r\n", "scripts/run.py": "print(1)\n"}).parent
    (folder / "logo.bin").write_bytes(b"\xff\x00\xfe")

    (entry,) = entries(ask).values()

    assert [each["uri"] for each in entry["resources"]] == [
        "skill://pdf/SKILL.md",
        "skill://pdf/logo.bin",
        "skill://pdf/references/a%20b%20%C3%BC.md",
        "skill://pdf/scripts/run.py",
    ]
    for each in entry["resources"]:
        content = read(ask, each["uri"])
        assert each["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert each["size"] == len(content)
    assert ask("skills/get", uri=entry["uri"])["result"]["skill"] == entry


def test_the_frontmatter_is_what_yaml_reads_and_nothing_else(ask: Ask, write_skill: WriteSkill) -> None:
    more = "version: 1.0\ntags: [a, 2, yes]\nlicense: MIT # free\nmetadata:\n  author: 'x'\nwhen: 2026-01-02\n"
    write_skill("pdf", skill("pdf", more))

    (entry,) = entries(ask).values()

    assert entry["frontmatter"] == {
        "name": "pdf",
        "description": "Does pdf things.",
        "version": 1.0,
        "tags": ["a", 2, True],
        "license": "MIT",
        "metadata": {"author": "x"},
        "when": "2026-01-02",
    }


BREAKS_THE_STANDARD = {
    "Bad_Name": skill("Bad_Name"),
    "other-folder": skill("some-name"),
    "no-description": "---\nname: no-description\n---\n# It\n",
    "tools-as-list": skill("tools-as-list", "allowed-tools: [Bash, Read]\n"),
    "odd-metadata": skill("odd-metadata", "metadata:\n  version: 1.0\n"),
    "broken-yaml": "---\nname: broken-yaml\ndescription: a: b: c\n---\n",
    "周报": skill("周报"),
}


def test_what_breaks_the_standard_is_left_out_with_the_reason_and_stays_readable(
    ask: Ask, write_skill: WriteSkill
) -> None:
    for folder, text in BREAKS_THE_STANDARD.items():
        write_skill(folder, text)
    write_skill("good", skill("good"))

    assert list(entries(ask)) == ["skill://good/SKILL.md"]
    assert left_out(ask).keys() == BREAKS_THE_STANDARD.keys()
    for folder in BREAKS_THE_STANDARD:
        uri = f"skill://{folder}/SKILL.md"
        assert read(ask, uri).startswith(b"---\n")
        assert ask("skills/get", uri=uri)["error"]["code"] == INVALID_PARAMS


def test_a_skill_above_the_limits_is_left_out(ask: Ask, write_skill: WriteSkill) -> None:
    write_skill("many", skill("many"), {f"{number}.md": "" for number in range(512)})
    write_skill("just", skill("just"), {f"{number}.md": "" for number in range(511)})
    large = write_skill("large", skill("large")).with_name("data.bin")
    with large.open("wb") as file:
        file.truncate(16 * 1024 * 1024)

    assert [len(entry["resources"]) for entry in entries(ask).values()] == [512]
    assert left_out(ask).keys() == {"many", "large"}


def test_hidden_files_links_and_caches_are_no_files_of_a_skill(ask: Ask, write_skill: WriteSkill) -> None:
    folder = write_skill("pdf", skill("pdf"), {".env": "TOKEN=1", ".git/x": "x", "__pycache__/x": "x"}).parent
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")

    (entry,) = entries(ask).values()

    assert [each["uri"] for each in entry["resources"]] == ["skill://pdf/SKILL.md"]
    assert [child["name"] for child in ask("resources/directory/read", uri="skill://pdf")["result"]["resources"]] == [
        "pdf"
    ]


def test_a_skill_inside_a_skill_is_a_file_of_it_and_can_be_asked_for(ask: Ask, write_skill: WriteSkill) -> None:
    write_skill("outer", skill("outer"), {"parts/inner/SKILL.md": skill("inner"), "parts/inner/x.md": "x"})

    (outer,) = entries(ask).values()
    inner = ask("skills/get", uri="skill://outer/parts/inner/SKILL.md")["result"]["skill"]

    assert "skill://outer/parts/inner/SKILL.md" in [each["uri"] for each in outer["resources"]]
    assert inner["frontmatter"]["name"] == "inner"
    assert [each["uri"] for each in inner["resources"]] == [
        "skill://outer/parts/inner/SKILL.md",
        "skill://outer/parts/inner/x.md",
    ]


def test_a_change_of_any_file_is_in_the_next_answer(ask: Ask, write_skill: WriteSkill) -> None:
    file = write_skill("pdf", skill("pdf"), {"a.md": "1"})
    (first,) = entries(ask).values()
    file.with_name("a.md").write_text("2")
    (second,) = entries(ask).values()
    (file.parent / "deep").mkdir()
    (file.parent / "deep/b.md").write_text("new")
    (third,) = entries(ask).values()
    file.with_name("a.md").unlink()
    (fourth,) = entries(ask).values()
    shutil.rmtree(file.parent)

    assert first["resources"][1]["digest"] != second["resources"][1]["digest"]
    assert [len(each["resources"]) for each in (first, second, third, fourth)] == [2, 2, 3, 2]
    assert entries(ask) == {}


def test_pages_hold_every_skill_once_and_an_entry_is_never_split(ask: Ask, write_skill: WriteSkill) -> None:
    for number in range(501):
        write_skill(f"skill-{number}", skill(f"skill-{number}"))
    write_skill("Bad_Name", skill("Bad_Name"))

    first = ask("skills/list")["result"]

    assert len(first["skills"]) == 499
    assert len(entries(ask)) == 501
    assert ask("skills/list", cursor="nonsense")["error"]["code"] == INVALID_PARAMS
    assert ask("skills/list", cursor=7)["error"]["code"] == INVALID_PARAMS


def test_a_folder_is_read_child_by_child(ask: Ask, write_skill: WriteSkill) -> None:
    folder = write_skill("pdf", skill("pdf"), {"docs/a.md": "", "docs/deep/b.bin": ""}).parent
    (folder / "empty").mkdir()

    top = ask("resources/directory/read", uri="skill://pdf")["result"]
    docs = ask("resources/directory/read", uri="skill://pdf/docs")["result"]

    assert top["resultType"] == "complete"
    assert top["resources"] == [
        {
            "uri": "skill://pdf/SKILL.md",
            "name": "pdf",
            "description": "Does pdf things.",
            "mimeType": "text/markdown",
        },
        {"uri": "skill://pdf/docs", "name": "docs", "mimeType": "inode/directory"},
        {"uri": "skill://pdf/empty", "name": "empty", "mimeType": "inode/directory"},
    ]
    assert [each["name"] for each in docs["resources"]] == ["a.md", "deep"]
    assert ask("resources/directory/read", uri="skill://pdf/empty")["result"]["resources"] == []


def test_a_large_folder_is_read_in_pages(ask: Ask, write_skill: WriteSkill) -> None:
    write_skill("pdf", skill("pdf"), {f"docs/{number:04}.md": "" for number in range(700)})

    first = ask("resources/directory/read", uri="skill://pdf/docs")["result"]
    second = ask("resources/directory/read", uri="skill://pdf/docs", cursor=first["nextCursor"])["result"]

    names = [each["name"] for each in (*first["resources"], *second["resources"])]
    assert names == [f"{number:04}.md" for number in range(700)]
    assert "nextCursor" not in second


NOT_SERVED = (
    "skill://pdf/nope",
    "skill://pdf/SKILL.md/",
    "skill://pdf/../pdf/SKILL.md",
    "skill://pdf/%2e%2e/pdf",
    "skill://pdf//",
    "skill://pdf/out",
    "skill://pdf/.hidden",
    "skill://nobody",
    "skill://",
    "file:///etc",
    "",
    "\ud800",
    "skill://pdf/\ud800",
    7,
    None,
)


@pytest.mark.parametrize("method", ["skills/get", "resources/directory/read"])
def test_what_is_not_served_is_an_error_of_the_client(method: str, ask: Ask, write_skill: WriteSkill) -> None:
    folder = write_skill("pdf", skill("pdf"), {".hidden/x": "x"}).parent
    (folder / "out").symlink_to("/etc")
    for uri in NOT_SERVED:
        assert ask(method, uri=uri)["error"]["code"] == INVALID_PARAMS, uri
    assert ask("resources/directory/read", uri="skill://pdf/SKILL.md")["error"]["code"] == INVALID_PARAMS
    assert ask("skills/get", uri="skill://pdf")["error"]["code"] == INVALID_PARAMS


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_takes_only_its_own_skill_out(ask: Ask, write_skill: WriteSkill) -> None:
    write_skill("good", skill("good"))
    write_skill("shut", skill("shut"), {"a.md": "x"}).with_name("a.md").chmod(0)

    assert list(entries(ask)) == ["skill://good/SKILL.md"]
    assert left_out(ask).keys() == {"shut"}


def test_skills_of_the_same_name_have_addresses_of_their_own(ask: Ask, write_skill: WriteSkill, project: Path) -> None:
    for team in ("billing", "support"):
        write_skill(f"{team}/refunds", skill("refunds"), {"a.md": team})

    assert list(entries(ask)) == ["skill://billing/refunds/SKILL.md", "skill://support/refunds/SKILL.md"]
    assert read(ask, "skill://support/refunds/a.md") == b"support"
