"""How long the MCP server takes to start and to answer, and what it holds: by the real client, over real stdio."""

import asyncio
import json
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.figures import Figure, command, interleaved
from bench.ground import SKILLYARD, make_env, make_project

_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_SAY = "---\nname: say\ndescription: Says a text\ncommand: echo {text}\n---\n"


def measure(folder: Path) -> Iterator[Figure]:
    env = make_env(folder)
    small = make_project(folder, 30)
    (small / ".claude/skills/say").mkdir()
    (small / ".claude/skills/say/SKILL.md").write_text(_SAY)
    first_answer(small, env)()  # reads the skills and compiles the modules, once
    taken = interleaved({"server": first_answer(small, env)}, rounds=12)
    yield Figure("`initialize` is answered, with 30 skills", taken["server"], " s", at_most=0.35)
    added, bare, megabytes = asyncio.run(_added(small, env))
    yield Figure("`skill_run` over MCP beyond the run itself (p50, warm)", added * 1000, " ms", at_most=5)
    yield Figure("of that, what the client and the emptiest request take", bare * 1000, " ms")
    yield Figure("memory of the server with 30 skills, after 120 requests", megabytes, " MB", at_most=45)
    large = make_project(folder, 10_000)
    command([SKILLYARD, "sync"], large, env)()
    seconds, megabytes = asyncio.run(_searched(large, env))
    yield Figure("`skill_search` among 10,000 skills (p50)", seconds * 1000, " ms", at_most=30)
    yield Figure("memory of the server with 10,000 skills", megabytes, " MB", at_most=120)
    yield Figure("all pages of `skills/list` of 1,000 skills (warm)", listed(folder, env, 1_000), " ms", at_most=150)
    yield Figure("the same of 10,000 skills", listed(folder, env, 10_000), " ms", at_most=2_500)


def first_answer(project: Path, env: Mapping[str, str]) -> Callable[[], None]:
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO}).encode() + b"\n"

    def case() -> None:
        with subprocess.Popen(
            [SKILLYARD, "mcp"], cwd=project, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdin
            assert server.stdout
            server.stdin.write(hello)
            server.stdin.flush()
            assert server.stdout.readline()
            server.kill()

    return case


def listed(folder: Path, env: Mapping[str, str], count: int) -> float:
    """The best of five, in milliseconds: every entry with the digests of its files, over stdio."""
    project = make_project(folder, count)
    command([SKILLYARD, "sync"], project, env)()
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    taken = []
    with subprocess.Popen(
        [SKILLYARD, "mcp"], cwd=project, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin
        assert server.stdout
        for number in range(6):  # the first one reads every file
            started, cursor, found = time.perf_counter(), dict[str, str](), 0
            while True:
                params = {**cursor, "_meta": meta}
                asked = {"jsonrpc": "2.0", "id": number, "method": "skills/list", "params": params}
                server.stdin.write(json.dumps(asked).encode() + b"\n")
                server.stdin.flush()
                result = json.loads(server.stdout.readline())["result"]
                found += len(result["skills"])
                if "nextCursor" not in result:
                    break
                cursor = {"cursor": result["nextCursor"]}
            assert found == count, found
            taken.append(time.perf_counter() - started)
        server.kill()
    return min(taken[1:]) * 1000


async def _with_client(project: Path, env: Mapping[str, str], use: Callable[[Any], Awaitable[Any]]) -> Any:
    from mcp import Client, StdioServerParameters  # noqa: PLC0415  (the other groups need none of it)

    parameters = StdioServerParameters(command=str(SKILLYARD), args=["mcp"], env=dict(env), cwd=str(project))
    async with Client(parameters, cache=None) as client:
        return await use(client)


async def _added(project: Path, env: Mapping[str, str]) -> tuple[float, float, float]:
    """What a client waits beyond the seconds that the result says the run took."""

    async def use(client: Any) -> tuple[float, float, float]:
        waits, bare = [], []
        for number in range(60):
            started = time.perf_counter()
            answer = await client.call_tool("skill_run", {"name": "say", "params": {"text": str(number)}})
            waits.append(time.perf_counter() - started - answer.structured_content["meta"]["time"])
            started = time.perf_counter()
            await client.list_resource_templates()
            bare.append(time.perf_counter() - started)
        return statistics.median(waits[10:]), statistics.median(bare[10:]), _resident_megabytes("mcp")

    taken: tuple[float, float, float] = await _with_client(project, env, use)
    return taken


async def _searched(project: Path, env: Mapping[str, str]) -> tuple[float, float]:
    async def use(client: Any) -> tuple[float, float]:
        waits = []
        for number in range(40):
            started = time.perf_counter()
            await client.call_tool("skill_search", {"query": ("markdown", "报告", "skill-0777", "review")[number % 4]})
            waits.append(time.perf_counter() - started)
        await client.list_resources()
        return statistics.median(waits[4:]), _resident_megabytes("mcp")

    found: tuple[float, float] = await _with_client(project, env, use)
    return found


def _resident_megabytes(word: str) -> float:
    """The most that our child with this word in its command line held."""
    import os  # noqa: PLC0415

    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    for child in children:
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if word.encode() in words:
            status = Path(f"/proc/{child}/status").read_text()
            return int(status.split("VmHWM:")[1].split()[0]) / 1024
    raise LookupError("the server is not there")
