"""The protocol itself, byte by byte: versions, eras, ids, cancellation, and what a start costs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from tests.conftest import WriteSkill
from tests.faces.mcp_client import Alive, RawClient, variables

SAY = "---\nname: say\ndescription: Says a text\ncommand: echo {text}\nparams: {text: {required: true}}\n---\n"
HOLD = "---\nname: hold\ndescription: x\ncommand: sh hold.sh\n---\n"
META = "io.modelcontextprotocol/"
MODERN = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}


@pytest.fixture
def bare(places: ProjectPaths, write_skill: WriteSkill) -> Iterator[RawClient]:
    """A client that has not said anything yet."""
    write_skill("say", SAY)
    client = RawClient(places, greets=False)
    try:
        yield client
    finally:
        assert client.close() == 0


def hello(version: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        *((version, version) for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_the_handshake_agrees_on_a_version_that_both_know(bare: RawClient, asked: str, agreed: str) -> None:
    result = bare.ask("initialize", **hello(asked))["result"]

    assert result["protocolVersion"] == agreed
    assert result["serverInfo"]["name"] == "skillyard"
    assert "- say: Says a text" in result["instructions"]
    assert "resultType" not in bare.ask("tools/list")["result"]


def test_a_start_is_no_change_of_the_lists(bare: RawClient, write_skill: WriteSkill) -> None:
    write_skill("plan", "---\nname: plan\ndescription: Plans\n---\nPlan.\n")
    bare.ask("initialize", **hello("2025-06-18"))
    bare.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    for method in ("tools/list", "prompts/list", "resources/list"):
        bare.send(json.dumps({"jsonrpc": "2.0", "id": method, "method": method}).encode())

    assert sorted(bare.next_message()["id"] for _ in range(3)) == ["prompts/list", "resources/list", "tools/list"]


def test_before_the_handshake_only_ping_and_initialize_are_answered(bare: RawClient) -> None:
    assert bare.ask("ping")["result"] == {}
    for method in ("tools/list", "tools/call", "resources/list"):
        assert bare.ask(method)["error"]["code"] == -32602
    assert bare.ask("initialize", **hello(5))["error"]["code"] == -32602
    assert bare.ask("tools/list")["error"]["code"] == -32602, "the handshake failed"


def test_a_request_of_2026_brings_its_own_version_and_needs_no_handshake(bare: RawClient) -> None:
    found = bare.ask("server/discover", _meta=MODERN)["result"]
    tools = bare.ask("tools/list", _meta=MODERN)["result"]
    call = {"name": "skill_run", "arguments": {"name": "say", "params": {"text": "hi"}}}
    ran = bare.ask("tools/call", _meta=MODERN, **call)["result"]

    assert found["supportedVersions"] == ["2026-07-28"]
    assert "- say: Says a text" in found["instructions"]
    for result in (found, tools):
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
        assert result["_meta"][f"{META}serverInfo"]["name"] == "skillyard"
    assert ran["structuredContent"]["data"]["content"] == "hi"


def test_a_version_that_nobody_serves_is_refused_with_those_that_are(bare: RawClient) -> None:
    error = bare.ask("tools/list", _meta={**MODERN, f"{META}protocolVersion": "2030-01-01"})["error"]
    lacking = bare.ask("tools/list", _meta={f"{META}protocolVersion": "2026-07-28"})["error"]
    wrong = bare.ask("tools/list", _meta={**MODERN, f"{META}protocolVersion": 5})["error"]

    assert (error["code"], error["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2030-01-01"})
    assert (lacking["code"], wrong["code"]) == (-32602, -32602)
    assert f"{META}clientCapabilities" in lacking["message"]


def test_a_method_belongs_to_its_era(bare: RawClient) -> None:
    bare.ask("initialize", **hello("2025-06-18"))

    assert bare.ask("server/discover")["error"]["code"] == -32601
    assert bare.ask("subscriptions/listen")["error"]["code"] == -32601
    assert bare.ask("ping", _meta=MODERN)["error"]["code"] == -32601
    assert bare.ask("no/such", _meta=MODERN)["error"]["code"] == -32601


def test_nothing_is_sent_for_a_request_after_the_client_cancelled_it(
    places: ProjectPaths, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("hold", HOLD, {"hold.sh": "echo said >&2\n" + Alive.HOLD})
    alive, client = Alive(project), RawClient(places)
    call = {"name": "skill_run", "arguments": {"name": "hold"}, "_meta": {"progressToken": "t"}}
    client.send(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}).encode())
    alive.wait_until_up()
    while client.next_message().get("params", {}).get("message") != "said":
        pass
    client.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}')
    alive.wait_until_gone()

    assert client.is_usable(), "and the answer to the ping is the next message with an id"
    assert client.close() == 0
    alive.close()


def test_the_server_imports_no_library_and_holds_little_memory(places: ProjectPaths, write_skill: WriteSkill) -> None:
    for number in range(30):
        write_skill(f"skill-{number}", SAY.replace("name: say", f"name: skill-{number}"))
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello("2025-11-25")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "skillyard", "mcp"],
        input=json.dumps(request).encode() + b"\n",
        cwd=places.project,
        env=variables(places),
        capture_output=True,
        check=True,
    )
    imported = {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}
    client = RawClient(places)
    call = {"name": "skill_run", "arguments": {"name": "skill-7", "params": {"text": "hi"}}}
    assert client.ask("tools/call", **call)["result"]["isError"] is False

    assert json.loads(done.stdout)["result"]["serverInfo"]
    assert "skillyard.faces.mcp.server" in imported
    assert not imported & {"mcp", "mcp_types", "pydantic", "anyio", "asyncio", "concurrent.futures"}
    assert client.peak_megabytes() <= 45
    assert client.close() == 0


TASKS: dict[str, Any] = {f"{META}tasks": {}}


def polling(**capabilities: Any) -> dict[str, Any]:
    return {**MODERN, f"{META}clientCapabilities": {"extensions": TASKS, **capabilities}}


def follow(client: RawClient, task_id: str, status: str) -> dict[str, Any]:
    """Poll until the task has left this status."""
    task: dict[str, Any] = {"status": status}
    while task["status"] == status:
        task = client.ask("tasks/get", taskId=task_id, _meta=MODERN)["result"]
    return task


def test_a_call_that_takes_long_becomes_a_task_and_ends_with_its_result(
    bare: RawClient, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("slow", HOLD.replace("hold", "slow"), {"slow.sh": "read -r _ < mybox/go; echo done\n"})
    (project / "mybox").mkdir()
    os.mkfifo(project / "mybox" / "go")
    found = bare.ask("server/discover", _meta=MODERN)["result"]["capabilities"]["extensions"]
    quick = bare.ask("tools/call", name="skill_search", arguments={"query": "say"}, _meta=polling())["result"]
    task = bare.ask("tools/call", name="skill_run", arguments={"name": "slow"}, _meta=polling())["result"]
    working = bare.ask("tasks/get", taskId=task["taskId"], _meta=MODERN)["result"]
    (project / "mybox" / "go").write_text("\n")
    ended = follow(bare, task["taskId"], "working")

    assert f"{META}tasks" in found
    assert quick["resultType"] == "complete"
    assert (task["resultType"], task["status"], working["status"]) == ("task", "working", "working")
    assert ended["status"] == "completed"
    assert ended["result"]["structuredContent"]["data"]["content"] == "done"
    assert bare.ask("tasks/get", taskId="nobody", _meta=MODERN)["error"]["code"] == -32602


def test_a_task_is_cancelled_with_the_whole_tree_of_its_run(
    bare: RawClient, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("hold", HOLD, {"hold.sh": Alive.HOLD})
    alive = Alive(project)
    task = bare.ask("tools/call", name="skill_run", arguments={"name": "hold"}, _meta=polling())["result"]
    alive.wait_until_up()
    assert bare.ask("tasks/cancel", taskId=task["taskId"], _meta=MODERN)["result"]["resultType"] == "complete"
    alive.wait_until_gone()
    assert follow(bare, task["taskId"], "working")["status"] == "cancelled"
    alive.close()


def test_a_question_asked_at_once_is_the_answer_and_not_a_task(bare: RawClient) -> None:
    asked = bare.ask("tools/call", name="skill_run", arguments={"name": "say"}, _meta=polling(elicitation={}))["result"]

    assert asked["resultType"] == "input_required"
    assert list(asked["inputRequests"]) == ["params"]


def test_a_task_asks_through_itself_and_goes_on_with_the_answer(
    bare: RawClient, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("change", HOLD.replace("hold", "change"), {"change.sh": "read -r _ < mybox/go; echo more >> a.txt\n"})
    (project / "a.txt").write_text("first\n")
    (project / "mybox").mkdir()
    os.mkfifo(project / "mybox" / "go")
    call = {"name": "skill_run", "arguments": {"name": "change"}}
    task = bare.ask("tools/call", **call, _meta=polling(elicitation={}))["result"]
    (project / "mybox" / "go").write_text("\n")
    asking = follow(bare, task["taskId"], "working")
    answer = {"changes": {"action": "accept", "content": {"changes": "apply"}}}
    assert asking["status"] == "input_required"
    assert list(asking["inputRequests"]) == ["changes"]
    bare.ask("tasks/update", taskId=task["taskId"], inputResponses=answer, _meta=MODERN)
    ended = follow(bare, task["taskId"], "working")

    assert ended["status"] == "completed"
    assert "inputRequests" not in ended
    assert ended["result"]["structuredContent"]["meta"]["changes"] == "applied"
    assert (project / "a.txt").read_text() == "first\nmore\n"
