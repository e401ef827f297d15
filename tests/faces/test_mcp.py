"""Skills inside an agent: every tool, resource and prompt, by the real client over real stdio, in both eras."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import jsonschema_rs
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from tools.envelope_schema import envelope_schema

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import parse
from tests.conftest import Skillyard, WriteSkill
from tests.faces.mcp_client import (
    CEILING_SECONDS,
    ERAS,
    MOSTLY_NEW,
    Alive,
    Connect,
    data_of,
    server_of,
    state_of,
    text_of,
    variables,
)

pytestmark = pytest.mark.anyio

SAY = """---
name: say
description: Says a text
command: sh say.sh {text} {times}
params:
  text: {required: true, description: "What to say"}
  times: {type: int, default: 1}
---
"""
SAY_SH = 'echo "$1 $2"\n'
PLAN = "---\nname: plan\ndescription: Plans a trip\nargument-hint: where and when\n---\nPlan: $ARGUMENTS\n"
COUNT = """---
name: count
description: Counts
protocol: json
entry: main.py
actions: [up, down]
---
"""
COUNT_PY = """import json, sys
asked = json.load(sys.stdin)
print(json.dumps({"status": "success", "action": asked["action"], "message": "counted", "data": asked["params"]}))
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def alive(project: Path) -> Iterator[Alive]:
    held = Alive(project)
    yield held
    held.close()


@pytest.fixture
def skills(write_skill: WriteSkill) -> None:
    write_skill("say", SAY, {"say.sh": SAY_SH, "notes/more.md": "more\n"})
    write_skill("plan", PLAN)
    write_skill("count", COUNT, {"main.py": COUNT_PY})


async def list_all_tools(client: Any) -> dict[str, types.Tool]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.usefixtures("skills")
async def test_an_agent_finds_a_skill_runs_it_and_reads_what_ran(connect: Connect, era: str) -> None:
    async with connect(era=era) as client:
        found = await client.call_tool("skill_search", {"query": "says"})
        shown = await client.call_tool("skill_show", {"name": "say"})
        ran = await client.call_tool("skill_run", {"name": "say", "params": {"text": "你好", "times": 3}})
        listed = await client.call_tool("runs", {})
        (run,) = data_of(listed)["runs"]
        one = await client.call_tool("runs", {"run_id": run["id"]})

    assert [skill["name"] for skill in data_of(found)["skills"]] == ["say"]
    (skill,) = data_of(shown)["skills"]
    assert skill["params"][0]["name"] == "text"
    assert skill["files"] == ["skill://say/SKILL.md", "skill://say/say.sh", "skill://say/notes/more.md"]
    assert (state_of(ran), ran.is_error, data_of(ran)["content"]) == ("success", False, "你好 3")
    assert (run["skill"], run["state"]) == ("say", "success")
    assert data_of(one)["runs"][0]["result"]["data"]["content"] == "你好 3"


@pytest.mark.usefixtures("skills")
async def test_every_result_is_the_two_lines_and_the_same_envelope_as_json(connect: Connect) -> None:
    validator = jsonschema_rs.validator_for(envelope_schema())
    asked: list[tuple[str, dict[str, Any]]] = [
        ("skill_run", {"name": "say", "params": {"text": "a"}}),
        ("skill_run", {"name": "say"}),
        ("skill_run", {"name": "nothing-like-it"}),
        ("skill_run", {"name": "plan", "args": ["Rome"]}),
        ("skill_run", {"name": "count", "action": "up", "params": {"by": 2}}),
        ("skill_search", {"query": "plan"}),
        ("skill_search", {}),
        ("skill_run", {"name": "say", "surplus": 1}),
        ("runs", {"run_id": "zzz"}),
    ]
    async with connect() as client:
        answers = [await client.call_tool(name, given) for name, given in asked]

    for answer in answers:
        validator.validate(answer.structured_content)
        text = text_of(answer)
        assert len(text.splitlines()) == 2
        assert parse(text).as_dict() == answer.structured_content
        assert answer.is_error == (state_of(answer) in {"error", "timeout"})
    assert [state_of(answer) for answer in answers] == [
        *("success", "pending", "error", "success", "success", "success", "success", "error", "error")
    ]


@pytest.mark.usefixtures("skills")
async def test_without_a_form_a_missing_param_is_pending_and_the_next_call_brings_it(connect: Connect) -> None:
    async with connect() as client:
        asked = await client.call_tool("skill_run", {"name": "say"})
        answered = await client.call_tool("skill_run", {"name": "say", "params": {"text": "hi"}})

    assert (asked.is_error, data_of(asked)["required"]) == (False, ["text"])
    assert data_of(asked)["prompts"] == {"text": "What to say"}
    assert state_of(answered) == "success"


@pytest.mark.usefixtures("skills")
async def test_a_task_to_skills_takes_the_seeds_prompt_and_its_key_runs_it_once(connect: Connect) -> None:
    given = {
        "subagent_type": "skills",
        "description": "say it",
        "prompt": "执行 @say hello 2",
        "model": "some-model",
        "idempotency_key": "say:hello",
    }
    async with connect("--lang", "zh", "--allow", "worker") as client:
        first = await client.call_tool("Task", given)
        second = await client.call_tool("Task", given)

    assert data_of(first)["content"] == "hello 2"
    assert isinstance(first.structured_content, dict)
    assert first.structured_content["summary"] == "执行成功: say"
    assert first.structured_content["meta"]["model"] == "some-model"
    assert data_of(second)["cached"] is True


async def test_the_worker_is_not_granted_unless_the_person_allowed_it(connect: Connect, skillyard: Skillyard) -> None:
    skillyard("init")
    given = {
        "subagent_type": "worker_agent",
        "description": "list",
        "prompt": "执行 python bin/skill_manager.py list",
    }
    async with connect() as client:
        with pytest.raises(MCPError, match="no tool 'Task'"):
            await client.call_tool("Task", given)
    async with connect("--allow", "worker") as client:
        assert "Task" in await list_all_tools(client)
        allowed = await client.call_tool("Task", given)

    assert state_of(allowed) == "success"


async def test_tools_that_need_leave_are_not_listed_and_no_call_changes_the_project(
    connect: Connect, write_skill: WriteSkill, project: Path
) -> None:
    write_skill(
        "out", "---\nname: out\ndescription: x\ncommand: sh out.sh {output}\n---\n", {"out.sh": "echo x > $1\n"}
    )
    async with connect() as client:
        names = set(await list_all_tools(client))
        waiting = await client.call_tool("skill_run", {"name": "out", "params": {"output": "report.txt"}})

    assert names == {"skill_search", "skill_show", "skill_run", "runs"}
    assert isinstance(waiting.structured_content, dict)
    assert waiting.structured_content["meta"]["changes"] == "pending", "only a person applies it"
    assert not (project / "report.txt").exists()


async def test_params_name_paths_inside_the_project_only(
    connect: Connect, write_skill: WriteSkill, tmp_path: Path, project: Path
) -> None:
    write_skill(
        "cat",
        "---\nname: cat\ndescription: x\ncommand: cat {file}\nparams:\n  file: {required: true, type: path}\n---\n",
    )
    (tmp_path / "secret.txt").write_text("secret")
    (project / "open.txt").write_text("open")
    async with connect() as client:
        inside = await client.call_tool("skill_run", {"name": "cat", "params": {"file": "open.txt"}})
        outside = await client.call_tool("skill_run", {"name": "cat", "params": {"file": str(tmp_path / "secret.txt")}})
        above = await client.call_tool("skill_run", {"name": "cat", "params": {"file": "../secret.txt"}})

    assert data_of(inside)["content"] == "open"
    assert [data_of(answer)["type"] for answer in (outside, above)] == ["InvalidParam"] * 2
    assert "secret" not in text_of(outside).replace("secret.txt", "")


@pytest.mark.usefixtures("skills")
async def test_an_exposed_skill_is_a_tool_with_the_schema_of_its_params(connect: Connect) -> None:
    async with connect("--expose-skills", "all") as client:
        tools = await list_all_tools(client)
        said = await client.call_tool("say", {"text": "hi", "times": 2})
        counted = await client.call_tool("count", {"action": "down", "by": 5})
        unknown = await client.call_tool("say", {"text": "hi", "volume": 11})

    assert tools["say"].input_schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What to say"},
            "times": {"type": "integer", "default": 1},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    assert tools["count"].input_schema["properties"]["action"]["enum"] == ["up", "down"]
    assert "plan" not in tools  # a prompt is no program
    assert data_of(said)["content"] == "hi 2"
    assert data_of(counted)["by"] == 5
    assert data_of(unknown)["type"] == "InvalidArgs"


@pytest.mark.usefixtures("skills")
async def test_only_the_named_skills_are_exposed(connect: Connect) -> None:
    async with connect("--expose-skills", "count") as client:
        assert {"count"} == set(await list_all_tools(client)) - {
            "skill_search",
            "skill_show",
            "skill_run",
            "runs",
        }
        with pytest.raises(MCPError, match="no tool 'say'"):
            await client.call_tool("say", {"text": "x"})


@pytest.mark.usefixtures("skills")
async def test_skills_are_resources_and_their_files_are_read_on_demand(connect: Connect, project: Path) -> None:
    blob = bytes(range(256))
    (project / ".claude/skills/say/logo.bin").write_bytes(blob)
    async with connect() as client:
        listed = (await client.list_resources()).resources
        (template,) = (await client.list_resource_templates()).resource_templates
        (text,) = (await client.read_resource("skill://say/SKILL.md")).contents
        (more,) = (await client.read_resource("skill://say/notes/more.md")).contents
        (binary,) = (await client.read_resource("skill://say/logo.bin")).contents

    assert [resource.uri for resource in listed] == [f"skill://{name}/SKILL.md" for name in ("count", "plan", "say")]
    assert template.uri_template == "skill://{name}/{+path}"
    assert isinstance(text, types.TextResourceContents)
    assert (text.text, text.mime_type) == (SAY, "text/markdown")
    assert isinstance(more, types.TextResourceContents)
    assert more.text == "more\n"
    assert isinstance(binary, types.BlobResourceContents)
    assert base64.b64decode(binary.blob) == blob


@pytest.mark.usefixtures("skills")
async def test_prompt_skills_are_prompts_with_their_arguments(connect: Connect, write_skill: WriteSkill) -> None:
    write_skill("mail", "---\nname: mail\ndescription: x\narguments: [to, about]\n---\nTo $to about $about\n")
    async with connect() as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        plan = await client.get_prompt("plan", {"arguments": "Rome in May"})
        mail = await client.get_prompt("mail", {"to": "Ann Lee", "about": "lunch"})
        with pytest.raises(MCPError, match="no prompt 'say'"):
            await client.get_prompt("say")
        with pytest.raises(MCPError, match="takes no volume"):
            await client.get_prompt("mail", {"volume": "11"})

    assert set(prompts) == {"plan", "mail"}
    (argument,) = prompts["plan"].arguments or []
    assert (argument.name, argument.description) == ("arguments", "where and when")
    assert [argument.name for argument in prompts["mail"].arguments or []] == ["to", "about"]
    assert _said(plan) == "Plan: Rome in May\n"
    assert _said(mail) == "To Ann Lee about lunch\n"


def _said(prompt: types.GetPromptResult) -> str:
    (message,) = prompt.messages
    assert isinstance(message.content, types.TextContent)
    return message.content.text


@pytest.mark.parametrize("era", MOSTLY_NEW)
async def test_what_a_run_says_comes_as_progress(connect: Connect, write_skill: WriteSkill, era: str) -> None:
    steps = "for n in 1 2 3; do echo \"step $n\" >&2; read -r _ < mybox/next$n; done; printf 'last\\0 word\\n' >&2\n"
    write_skill("slow", "---\nname: slow\ndescription: x\ncommand: sh slow.sh\n---\n", {"slow.sh": steps})
    project = Path(write_skill("other", PLAN)).parents[3]
    (project / "mybox").mkdir()
    for number in (1, 2, 3):
        os.mkfifo(project / "mybox" / f"next{number}")
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))
        if message and message.startswith("step"):
            await anyio.to_thread.run_sync((project / "mybox" / f"next{message[-1]}").write_text, "\n")

    async with connect(era=era) as client:
        answer = await client.call_tool("skill_run", {"name": "slow"}, progress_callback=hear)

    assert state_of(answer) == "success"
    assert [message for _, message in heard] == ["step 1", "step 2", "step 3", "last word"]
    assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})


@pytest.mark.parametrize("era", MOSTLY_NEW)
async def test_cancelling_a_call_ends_the_whole_tree_of_its_run(
    connect: Connect, write_skill: WriteSkill, alive: Alive, era: str
) -> None:
    write_skill("hold", "---\nname: hold\ndescription: x\ncommand: sh hold.sh\n---\n", {"hold.sh": Alive.HOLD})
    async with connect(era=era) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "skill_run", {"name": "hold"})
            await anyio.to_thread.run_sync(alive.wait_until_up)
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(alive.wait_until_gone)
        with anyio.fail_after(CEILING_SECONDS):
            while (run := data_of(await client.call_tool("runs", {}))["runs"][0])["state"] == "running":
                await anyio.sleep(0.01)

    assert run["state"] == "error"
    assert run["summary"] == "RuntimeFailed: stopped: it was stopped, with everything that it had started"


@contextlib.asynccontextmanager
async def holding_server(places: ProjectPaths, alive: Alive) -> AsyncIterator[anyio.abc.Process]:
    """A server whose client has a run on its hands."""
    server = server_of(places)
    async with await anyio.open_process(
        [server.command, *server.args], cwd=places.project, env=variables(places)
    ) as process:
        assert process.stdin
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        call = {"name": "skill_run", "arguments": {"name": "hold"}}
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        ):
            await process.stdin.send(json.dumps(message).encode() + b"\n")
        await anyio.to_thread.run_sync(alive.wait_until_up)
        yield process


@pytest.mark.parametrize("how", ["the end of stdin", "SIGINT", "SIGTERM", "SIGKILL"])
async def test_however_the_server_ends_its_runs_end_with_it(
    places: ProjectPaths, write_skill: WriteSkill, alive: Alive, skillyard: Skillyard, how: str
) -> None:
    write_skill("hold", "---\nname: hold\ndescription: x\ncommand: sh hold.sh\n---\n", {"hold.sh": Alive.HOLD})
    async with holding_server(places, alive) as process:
        if how.startswith("SIG"):
            process.send_signal(signal.Signals[how])
        elif process.stdin:
            await process.stdin.aclose()
        with anyio.fail_after(CEILING_SECONDS):
            code = await process.wait()
        await anyio.to_thread.run_sync(alive.wait_until_gone)
        assert process.stderr
        said = b"".join([piece async for piece in process.stderr])

    assert (code, said) == (-9 if how == "SIGKILL" else 0, b"")
    (run,) = json.loads(skillyard("runs", "--json").stdout)["data"]["runs"]
    told = "RuntimeFailed: the runtime ended" if how == "SIGKILL" else "RuntimeFailed: stopped"
    assert run["result"]["summary"].startswith(told)


async def test_a_client_that_reads_no_more_is_no_crash(places: ProjectPaths) -> None:
    server = server_of(places)
    async with await anyio.open_process(
        [server.command, *server.args], cwd=places.project, env=variables(places)
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        await process.stdout.aclose()
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        await process.stdin.send(json.dumps(message).encode() + b"\n")
        await process.stdin.aclose()
        with anyio.fail_after(CEILING_SECONDS):
            code = await process.wait()
        said = b"".join([piece async for piece in process.stderr])

    assert (code, said) == (0, b"")


async def test_a_call_that_takes_long_holds_no_other_up(
    connect: Connect, write_skill: WriteSkill, alive: Alive
) -> None:
    write_skill("hold", "---\nname: hold\ndescription: x\ncommand: sh hold.sh\n---\n", {"hold.sh": Alive.HOLD})
    write_skill("say", SAY, {"say.sh": SAY_SH})
    said: list[str] = []
    async with connect() as client:

        async def say(number: int) -> None:
            answer = await client.call_tool("skill_run", {"name": "say", "params": {"text": str(number)}})
            said.append(data_of(answer)["content"])

        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "skill_run", {"name": "hold"})
            await anyio.to_thread.run_sync(alive.wait_until_up)
            async with anyio.create_task_group() as many:
                for number in range(20):
                    many.start_soon(say, number)
            group.cancel_scope.cancel()

    assert sorted(said) == sorted(f"{number} 1" for number in range(20))


class News:
    """What the server tells of its lists, on the wire of either era."""

    def __init__(self) -> None:
        self._heard: set[str] = set()
        self._new = anyio.Event()

    async def handle(self, message: Any) -> None:
        for kind, what in (
            (types.ToolListChangedNotification, "tools"),
            (types.PromptListChangedNotification, "prompts"),
            (types.ResourceListChangedNotification, "resources"),
        ):
            if isinstance(message, kind):
                self._note(what)

    async def listen(self, client: Any, *, task_status: Any) -> None:
        every = {f"{what}_list_changed": True for what in ("tools", "prompts", "resources")}
        async with client.listen(**every) as subscription:
            task_status.started()
            async for event in subscription:
                self._note(type(event).__name__.removesuffix("ListChanged").lower())

    def _note(self, what: str) -> None:
        self._heard.add(what)
        self._new.set()

    async def wait_for(self, *wanted: str) -> None:
        with anyio.fail_after(CEILING_SECONDS):
            while not set(wanted) <= self._heard:
                self._new = anyio.Event()
                await self._new.wait()
        self._heard.clear()


@pytest.mark.parametrize("era", MOSTLY_NEW)
async def test_skills_that_come_change_and_go_are_told_of(connect: Connect, write_skill: WriteSkill, era: str) -> None:
    write_skill("say", SAY, {"say.sh": SAY_SH})
    tell = SAY.replace("say\n", "tell\n")
    news = News()
    async with (
        connect("--expose-skills", "all", era=era, message_handler=news.handle) as client,
        anyio.create_task_group() as group,
    ):
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed is True
        if era == "auto":
            await group.start(news.listen, client)
        path = write_skill("tell", tell, {"say.sh": SAY_SH})
        await news.wait_for("tools", "resources")
        assert "tell" in await list_all_tools(client)
        path.write_text(tell.replace("times", "count"), "utf-8")
        await news.wait_for("tools")
        assert "count" in (await list_all_tools(client))["tell"].input_schema["properties"]
        path.unlink()
        await news.wait_for("tools", "resources")
        assert "tell" not in await list_all_tools(client)
        write_skill("plan", PLAN)
        await news.wait_for("prompts", "resources")
        group.cancel_scope.cancel()


@pytest.mark.parametrize("era", MOSTLY_NEW)
@pytest.mark.parametrize("tool", ["skill_run", "Task", "say"])
@pytest.mark.usefixtures("skills")
async def test_where_the_client_has_a_form_it_asks_for_what_is_missing(connect: Connect, era: str, tool: str) -> None:
    asked: list[types.ElicitRequestFormParams] = []

    async def fill(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"text": "from 'the' form; $(id)"})

    given: dict[str, dict[str, Any]] = {
        "skill_run": {"name": "say", "params": {"times": 4}},
        "Task": {"subagent_type": "skills", "description": "x", "prompt": "run @say --times 4"},
        "say": {"times": 4},
    }
    async with connect("--expose-skills", "say", "--allow", "worker", era=era, elicitation_callback=fill) as client:
        answer = await client.call_tool(tool, given[tool])

    assert data_of(answer)["content"] == "from 'the' form; $(id) 4"
    (form,) = asked
    assert form.message == "The skill say needs: text"
    assert form.requested_schema == {
        "type": "object",
        "properties": {"text": {"type": "string", "title": "text", "description": "What to say"}},
        "required": ["text"],
    }


@pytest.mark.parametrize("era", MOSTLY_NEW)
async def test_a_form_asks_for_the_action_first_and_then_for_its_params(
    connect: Connect, write_skill: WriteSkill, era: str
) -> None:
    write_skill(
        "count", COUNT.replace("---\n", "---\nparams: {by: {type: int, required: true}}\n", 1), {"main.py": COUNT_PY}
    )
    asked: list[dict[str, Any]] = []

    async def fill(_: Any, params: Any) -> types.ElicitResult:
        properties = params.requested_schema["properties"]
        asked.append(properties)
        return types.ElicitResult(action="accept", content={"action": "up"} if "action" in properties else {"by": 7})

    async with connect(era=era, elicitation_callback=fill) as client:
        answer = await client.call_tool("skill_run", {"name": "count"})

    assert [list(properties) for properties in asked] == [["action"], ["by"]]
    assert asked[0]["action"]["enum"] == ["up", "down"]
    assert asked[1]["by"]["type"] == "integer"
    assert data_of(answer)["by"] == 7


@pytest.mark.parametrize("era", MOSTLY_NEW)
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.usefixtures("skills")
async def test_who_declines_the_form_leaves_the_call_pending(connect: Connect, era: str, action: Any) -> None:
    async def refuse(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action=action)

    async with connect(era=era, elicitation_callback=refuse) as client:
        answer = await client.call_tool("skill_run", {"name": "say"})

    assert (state_of(answer), answer.is_error) == ("pending", False)
    assert isinstance(answer.structured_content, dict)
    assert answer.structured_content["meta"]["elicitation"] == action


@pytest.fixture
def change(write_skill: WriteSkill, project: Path) -> Path:
    """A skill that changes a file of the project."""
    write_skill(
        "change", "---\nname: change\ndescription: Changes.\ncommand: sh x.sh\n---\n", {"x.sh": "echo more >> a.txt\n"}
    )
    (project / "a.txt").write_text("first\n")
    return project / "a.txt"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("said", "state"), [("apply", "applied"), ("discard", "discarded"), ("later", "pending")])
async def test_the_person_decides_in_a_form_about_what_a_run_changed(
    connect: Connect, change: Path, era: str, said: str, state: str
) -> None:
    asked: list[str] = []

    async def fill(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"changes": said})

    async with connect(era=era, elicitation_callback=fill) as client:
        answer = await client.call_tool("skill_run", {"name": "change"})

    assert isinstance(answer.structured_content, dict)
    assert (state_of(answer), answer.structured_content["meta"]["changes"]) == ("success", state)
    assert "changed 1 files of the project: modified a.txt" in asked[0]
    assert change.read_text() == ("first\nmore\n" if said == "apply" else "first\n")


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_form_the_answer_has_the_diff_and_the_command(
    connect: Connect, change: Path, skillyard: Skillyard, era: str
) -> None:
    async with connect(era=era) as client:
        answer = await client.call_tool("skill_run", {"name": "change"})

    assert isinstance(answer.structured_content, dict)
    meta, data = answer.structured_content["meta"], data_of(answer)
    assert meta["changes"] == "pending"
    assert [each["path"] for each in data["changes"]] == ["a.txt"]
    assert "+more" in data["diff"]
    assert f"skillyard changes {meta['run']} apply" in meta["hint"]
    assert change.read_text() == "first\n"
    assert skillyard("changes", meta["run"], "apply").returncode == 0
    assert change.read_text() == "first\nmore\n"


async def test_inside_an_agent_nobody_is_asked_and_nothing_is_applied(places: ProjectPaths, change: Path) -> None:
    async def accept(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"changes": "apply"})

    server = server_of(places)
    server.env = {**(server.env or {}), "SKILLYARD_DEPTH": "1"}
    options: dict[str, Any] = {"cache": None, "elicitation_callback": accept}
    async with Client(server, read_timeout_seconds=CEILING_SECONDS, **options) as client:
        answer = await client.call_tool("skill_run", {"name": "change"})

    assert isinstance(answer.structured_content, dict)
    assert answer.structured_content["meta"]["changes"] == "pending"
    assert change.read_text() == "first\n"


@pytest.mark.usefixtures("skills")
async def test_the_instructions_name_the_skills_the_most_used_first(connect: Connect, skillyard: Skillyard) -> None:
    skillyard("run", "@say", "x")
    async with connect() as client:
        lines = (client.instructions or "").splitlines()

    assert lines[2:] == ["Skills:", "- say: Says a text", "- count: Counts", "- plan: Plans a trip"]


async def test_a_thousand_skills_are_listed_page_by_page_and_searched(
    connect: Connect, write_skill: WriteSkill
) -> None:
    for number in range(1000):
        write_skill(f"skill-{number:04}", SAY.replace("name: say", f"name: skill-{number:04}"))
    async with connect("--expose-skills", "all") as client:
        uris: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_resources(cursor=cursor)
            uris += [resource.uri for resource in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        tools = await list_all_tools(client)
        found = await client.call_tool("skill_search", {"query": "skill-0777"})
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="elsewhere")
        instructions = client.instructions or ""

    assert uris == [f"skill://skill-{number:04}/SKILL.md" for number in range(1000)]
    assert len(tools) == 1004
    assert data_of(found)["skills"][0]["name"] == "skill-0777"
    assert 1800 < len(instructions) <= 2000
    assert instructions.splitlines()[-1].endswith(" more: use skill_search")


async def test_a_project_can_be_named_and_what_goes_wrong_is_said_on_stderr(
    skillyard: Skillyard, tmp_path: Path
) -> None:
    wrong = skillyard("mcp", "--project", str(tmp_path / "nowhere"))
    refused = skillyard("mcp", "--allow", "everything")
    elsewhere = skillyard("mcp", "--project", str(tmp_path / "project"), cwd=tmp_path)

    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "nowhere is no folder" in wrong.stderr
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (elsewhere.returncode, elsewhere.stdout, elsewhere.stderr) == (0, "", "")


async def test_a_task_goes_to_another_agent_only_where_the_person_allowed_it(
    connect: Connect, places: ProjectPaths, project: Path
) -> None:
    command = json.dumps([sys.executable, str(Path(__file__).parent.parent / "backends" / "acp_agent.py")])
    (places.own_home / "config.toml").write_text(f"[backends.small]\ncommand = {command}\n", "utf-8")
    given = {"task": "hello 你好", "to": "small", "session": "talk"}
    async with connect() as client:
        with pytest.raises(MCPError, match="no tool 'agent_dispatch'"):
            await client.call_tool("agent_dispatch", given)
    async with connect("--allow", "dispatch") as client:
        assert "agent_dispatch" in await list_all_tools(client)
        done = await client.call_tool("agent_dispatch", given)
        asked = await client.call_tool("agent_dispatch", {**given, "task": "ask"})
        outside = await client.call_tool("agent_dispatch", {**given, "cwd": ".."})

    assert (data_of(done)["content"].strip(), data_of(done)["cwd"]) == ("hello 你好", str(project.resolve()))
    assert data_of(asked)["refused"] == [{"tool": "edit", "says": "write a file"}]
    assert (data_of(outside)["type"], outside.is_error) == ("InvalidArgs", True)


@pytest.mark.usefixtures("skills")
async def test_active_skills_are_tools_from_the_moment_they_are(connect: Connect, skillyard: Skillyard) -> None:
    ours = {"skill_search", "skill_show", "skill_run", "runs"}
    async with connect("--expose-skills", "active") as client:
        before = set(await list_all_tools(client))
        skillyard("activate", "say")
        after = set(await list_all_tools(client))
        said = await client.call_tool("say", {"text": "hi"})

    assert (before, after) == (ours, ours | {"say"})
    assert state_of(said) == "success"


@pytest.mark.usefixtures("skills")
async def test_jobs_are_run_where_the_person_allowed_it_and_nothing_is_granted(
    connect: Connect, skillyard: Skillyard, places: ProjectPaths, project: Path
) -> None:
    (places.own_home / "config.toml").write_text("[engine]\npoll_seconds = 0.1\n", "utf-8")
    role = project / "agents" / "analyst"
    role.mkdir(parents=True)
    (role / "agent.yaml").write_text("schedule: [{name: hi, cron: '0 9 * * *', task: 'run @say hi'}]\n")
    skillyard("jobs", "add", "@daily", "@say", "你好", "--name", "greet")
    async with connect() as client:
        with pytest.raises(MCPError, match="no tool 'job_run'"):
            await client.call_tool("job_run", {"name": "greet"})
    async with connect("--allow", "jobs") as client:
        assert "job_run" in await list_all_tools(client)
        queued = await client.call_tool("job_run", {"name": "greet"})
        short = await client.call_tool("job_run", {"skill": "@say", "params": {"text": "later"}, "wait": 1})
        untrusted = await client.call_tool("job_run", {"name": "analyst/hi"})
        missing = await client.call_tool("job_run", {"skill": "say"})
        both = await client.call_tool("job_run", {"name": "greet", "skill": "say"})
        neither = await client.call_tool("job_run", {})
        skillyard("worker", "--drain")
        runs = await client.call_tool("runs", {"run_id": data_of(queued)["job"]["id"]})
        with worker_of(places):
            done = await client.call_tool("job_run", {"skill": "say", "params": {"text": "now"}, "wait": 60})

    assert (state_of(queued), data_of(queued)["job"]["name"], data_of(queued)["job"]["state"]) == (
        "success",
        "greet",
        "queued",
    )
    assert data_of(short)["job"]["state"] == "queued"
    assert (data_of(untrusted)["type"], data_of(untrusted)["grant"]) == ("NotGranted", "skillyard trust")
    assert data_of(missing)["type"] == "ParamMissing"
    assert data_of(both)["type"] == data_of(neither)["type"] == "InvalidArgs"
    assert data_of(runs)["runs"][0]["state"] == "success"
    assert (state_of(done), data_of(done)["content"].strip(), data_of(done)["job"]["state"]) == (
        "success",
        "now 1",
        "success",
    )


@contextlib.contextmanager
def worker_of(places: ProjectPaths) -> Iterator[None]:
    words = [sys.executable, "-m", "skillyard", "worker"]
    process = subprocess.Popen(words, cwd=places.project, env=variables(places), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
