"""What a model gets through MCP: results that it can use, whole sentences, and nothing twice."""

import json
import os
from pathlib import Path

import anyio
import mcp_types as types
import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.faces.mcp.listing import shorten
from skillyard.faces.mcp.model_results import MOST_CHARACTERS
from tests.conftest import Skillyard, WriteSkill
from tests.faces.mcp_client import CEILING_SECONDS, Alive, Connect, RawClient, data_of, state_of, text_of

pytestmark = pytest.mark.anyio

SAY = "---\nname: {name}\ndescription: {said}\ncommand: sh say.sh\n---\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def says(name: str, said: str = "Says something") -> str:
    return SAY.format(name=name, said=said)


async def test_a_long_text_has_head_tail_size_and_a_file_of_the_project(
    connect: Connect, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("long", says("long"), {"say.sh": "seq 1 30000; echo 末尾\n"})
    async with connect() as client:
        answer = await client.call_tool("skill_run", {"name": "long"})

    content = data_of(answer)["content"]
    assert content["head"].startswith("1\n2\n3\n")
    assert content["tail"].rstrip().endswith("30000\n末尾")
    assert content["size"] == "164.9KB"
    assert (project / content["file"]).read_text().splitlines() == [*map(str, range(1, 30001)), "末尾"]
    assert len(json.dumps(answer.structured_content)) <= MOST_CHARACTERS
    assert len(text_of(answer)) <= MOST_CHARACTERS
    assert f"data.content.file:\n{content['file']}" in text_of(answer)
    assert "\n29999\n30000\n末尾" in text_of(answer)


async def test_many_values_are_cut_as_json_and_stand_whole_in_a_file(
    connect: Connect, write_skill: WriteSkill, project: Path
) -> None:
    rows = "import json; print(json.dumps({'rows': [{'n': n, '名': 'x' * 20} for n in range(3000)], 'count': 3000}))"
    write_skill("rows", says("rows"), {"say.sh": f'python3 -c "{rows}"\n'})
    async with connect() as client:
        answer = await client.call_tool("skill_run", {"name": "rows"})

    cut = data_of(answer)["cut"]
    assert data_of(answer)["count"] == 3000
    assert len(json.dumps(answer.structured_content)) <= MOST_CHARACTERS
    assert len(json.loads((project / cut["file"]).read_text())["rows"]) == 3000


async def test_no_line_of_a_long_answer_is_so_long_that_an_agent_drops_it(
    connect: Connect, write_skill: WriteSkill
) -> None:
    write_skill("one", says("one"), {"say.sh": "head -c 9000 /dev/zero | tr '\\0' x\n"})
    async with connect() as client:
        text = text_of(await client.call_tool("skill_run", {"name": "one"}))

    assert max(map(len, text.splitlines())) <= 1000
    assert text.count("x") >= 7000
    assert text.startswith("✅ skills ran: one\n  state: success | data: {skill:")


async def test_a_prompts_content_is_what_the_model_must_follow(connect: Connect, write_skill: WriteSkill) -> None:
    body = "Go to ${CLAUDE_SKILL_DIR} with $ARGUMENTS.\n" + "Step.\n" * 5_000
    folder = write_skill("plan", f"---\nname: plan\ndescription: Plans\n---\n{body}").parent
    async with connect() as client:
        bare = data_of(await client.call_tool("skill_run", {"name": "plan"}))
        given = await client.call_tool("skill_run", {"name": "plan", "args": ["Rome"]})
        prompt = await client.get_prompt("plan")

    filled = data_of(given)["content"]
    assert bare["content"].startswith(f"Go to {folder} with $ARGUMENTS.\n")
    assert filled == body.replace("${CLAUDE_SKILL_DIR}", str(folder)).replace("$ARGUMENTS", "Rome")
    assert "rendered" not in data_of(given)
    assert "---" not in text_of(given)
    assert isinstance(prompt.messages[0].content, types.TextContent)
    assert prompt.messages[0].content.text == bare["content"]


async def test_a_search_for_nothing_lists_by_use_page_by_page(
    connect: Connect, write_skill: WriteSkill, skillyard: Skillyard
) -> None:
    for number in range(5):
        write_skill(f"say-{number}", says(f"say-{number}"), {"say.sh": "echo hi\n"})
    write_skill("pandoc", says("pandoc"), {"say.sh": "echo hi\n"})
    skillyard("run", "@say-3")
    async with connect() as client:
        first = data_of(await client.call_tool("skill_search", {"query": "", "limit": 2}))
        last = data_of(await client.call_tool("skill_search", {"limit": 2, "page": 3}))
        mistyped = data_of(await client.call_tool("skill_search", {"query": "pandco"}))

    assert [skill["name"] for skill in first["skills"]] == ["say-3", "pandoc"]
    assert (first["total"], first["next_page"]) == (6, 2)
    assert ([skill["name"] for skill in last["skills"]], "next_page" in last) == (["say-2", "say-4"], False)
    assert [skill["name"] for skill in mistyped["skills"]] == ["pandoc"]


async def test_what_is_told_of_a_skill_is_told_once(connect: Connect, write_skill: WriteSkill) -> None:
    said = "Counts the words of a file. Use when somebody asks how long a text is."
    text = f"---\nname: count\ndescription: {said}\ncommand: wc {{file}} {{n}}\nlicense: MIT\n"
    text += "params: {file: {required: true, description: 'The file to count'}, n: {type: int, default: 0}}\n---\n"
    write_skill("count", text)
    async with connect() as client:
        shown = await client.call_tool("skill_show", {"name": "count"})
        found = await client.call_tool("skill_search", {"query": "words"})

    (skill,) = data_of(shown)["skills"]
    assert skill["fields"] == {"license": "MIT"}
    assert [param.get("default") for param in skill["params"]] == [None, 0]
    for answer in (shown, found):
        assert json.dumps(answer.structured_content).count("how long a text is") == 1
    assert json.dumps(shown.structured_content).count("The file to count") == 1


async def test_a_hint_names_a_tool_or_the_person(connect: Connect, write_skill: WriteSkill) -> None:
    write_skill("say", says("say"), {"say.sh": "echo hi\n"})
    async with connect() as client:
        missing = await client.call_tool("skill_run", {"name": "sya"})
    assert isinstance(missing.structured_content, dict)
    hint = missing.structured_content["meta"]["hint"]

    assert hint == "skill_search finds the skills of this project; only the user can install one"
    assert data_of(missing)["nearest"] == ["say"]
    assert "`skillyard" not in text_of(missing)


def test_a_description_is_cut_by_sentences_and_keeps_when_to_use_the_skill() -> None:
    long = "Turns tables into charts. " + "It knows many formats. " * 20
    assert shorten("Short. Use when asked.") == "Short. Use when asked."
    assert shorten(f"{long}Use when the user asks for a chart.") == (
        "Turns tables into charts. Use when the user asks for a chart."
    )
    assert shorten("把表格转换成图表。" + "支持很多格式。" * 40 + "当用户需要图表时使用。") == (
        "把表格转换成图表。 当用户需要图表时使用。"
    )
    assert len(shorten("x" * 5_000)) == 200


@pytest.mark.ci("waits for the heartbeat of ten seconds")
async def test_a_silent_run_is_heard_of_every_ten_seconds(
    connect: Connect, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("silent", says("silent"), {"say.sh": "read -r _ < mybox/go; echo done\n"})
    (project / "mybox").mkdir()
    os.mkfifo(project / "mybox" / "go")
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))
        if len(heard) == 2:
            await anyio.to_thread.run_sync((project / "mybox" / "go").write_text, "\n")

    async with connect() as client:
        with anyio.fail_after(CEILING_SECONDS):
            answer = await client.call_tool("skill_run", {"name": "silent"}, progress_callback=hear)

    assert state_of(answer) == "success"
    assert [str(message).split(" for ")[0] for _, message in heard] == ["running", "running"]
    assert heard[0][0] < heard[1][0]


async def test_a_run_that_nobody_waits_for_gives_its_id_and_runs_waits_for_it(
    connect: Connect, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("slow", says("slow"), {"say.sh": "echo up >&2; read -r _ < mybox/go; echo done\n"})
    (project / "mybox").mkdir()
    os.mkfifo(project / "mybox" / "go")
    async with connect() as client:
        started = await client.call_tool("skill_run", {"name": "slow", "wait": False})
        run_id = data_of(started)["run_id"]
        early = await client.call_tool("runs", {"run_id": run_id, "wait": 1})
        await anyio.to_thread.run_sync((project / "mybox" / "go").write_text, "\n")
        late = await client.call_tool("runs", {"run_id": run_id, "wait": 3600})
        missing = await client.call_tool("skill_run", {"name": "nothing", "wait": False})
        short = await client.call_tool("runs", {"run_id": "zzz", "wait": 1})

    assert state_of(started) == "success"
    assert data_of(early)["runs"][0]["state"] == "running"
    assert data_of(late)["runs"][0]["state"] == "success"
    assert data_of(late)["runs"][0]["result"]["data"]["content"] == "done"
    assert (state_of(missing), state_of(short)) == ("error", "error")


async def test_a_run_that_nobody_waits_for_ends_with_the_server(
    places: ProjectPaths, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("hold", says("hold"), {"say.sh": Alive.HOLD})
    alive, client = Alive(project), RawClient(places)
    started = client.ask("tools/call", name="skill_run", arguments={"name": "hold", "wait": False})
    await anyio.to_thread.run_sync(alive.wait_until_up)
    assert started["result"]["structuredContent"]["data"]["run_id"]
    assert client.close() == 0
    await anyio.to_thread.run_sync(alive.wait_until_gone)
    alive.close()


async def test_what_a_person_activated_is_a_tool_with_hints_from_its_grants(
    connect: Connect, write_skill: WriteSkill, skillyard: Skillyard
) -> None:
    for name in ("plain", "open", "writing", "other"):
        write_skill(name, says(name), {"say.sh": "echo hi\n"})
    write_skill("saves", "---\nname: saves\ndescription: x\ncommand: cp a {output}\n---\n")
    skillyard("activate", "plain", "open", "writing", "saves")
    skillyard("grant", "@open", "network:api.example.com", "--accept")
    skillyard("grant", "@writing", "write:out", "--accept")
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        ran = await client.call_tool("plain", {})
    async with connect("--expose-skills", "none") as client:
        none = {tool.name for tool in (await client.list_tools()).tools}

    def hints(name: str) -> tuple[bool | None, bool | None, bool | None]:
        found = tools[name].annotations
        assert found is not None
        return found.read_only_hint, found.destructive_hint, found.open_world_hint

    assert set(tools) - none == {"plain", "open", "writing", "saves"}
    assert hints("plain") == (True, False, False)
    assert hints("open") == (False, False, True)
    assert hints("writing") == (False, True, False)
    assert hints("saves") == (False, False, False)
    assert state_of(ran) == "success"


def test_claude_code_is_not_given_the_prompts_that_it_lists_itself(
    places: ProjectPaths, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("plan", "---\nname: plan\ndescription: Plans\n---\nPlan it.\n")
    (project / "skills/review").mkdir(parents=True)
    (project / "skills/review/SKILL.md").write_text("---\nname: review\ndescription: Reviews\n---\nReview it.\n")
    listed, told = {}, {}
    for name in ("claude-code", "codex"):
        client = RawClient(places, greets=False)
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
        told[name] = client.ask("initialize", **about)["result"]["instructions"]
        listed[name] = [prompt["name"] for prompt in client.ask("prompts/list")["result"]["prompts"]]
        assert client.ask("prompts/get", name="plan")["result"]["messages"]
        assert client.close() == 0

    assert listed == {"claude-code": ["review"], "codex": ["plan", "review"]}
    assert [text.count("listed by Claude Code itself") for text in told.values()] == [1, 0]


async def test_a_name_that_no_agent_takes_can_be_read_all_the_same(connect: Connect, write_skill: WriteSkill) -> None:
    write_skill("周报", says("周报"), {"say.sh": "echo hi\n"})
    write_skill("Überblick", says("Überblick"), {"say.sh": "echo hi\n"})
    write_skill("отчёт", says("отчёт").replace("name:", "title: Weekly report\nname:"), {"say.sh": "echo hi\n"})
    async with connect("--expose-skills", "all") as client:
        names = sorted(tool.name for tool in (await client.list_tools()).tools[4:])
        ran = [await client.call_tool(name, {}) for name in names]

    assert [name.rpartition("_")[0] for name in names] == ["Uberblick", "Weekly_report", "zhou_bao"]
    assert [state_of(answer) for answer in ran] == ["success"] * 3
