"""The real MCP client library at one end, `skillyard mcp` in a process of its own at the other, stdio between them."""

import contextlib
import os
import select
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from skillyard.app.paths import ProjectPaths

#: Far above what anything takes on a loaded machine; what passes it hangs.
CEILING_SECONDS = 120.0
ERAS = ("auto", "legacy")
#: For what does not look different to a client of the older protocol.
MOSTLY_NEW = ("auto", pytest.param("legacy", marks=pytest.mark.ci("MCP's older protocol, every case")))

Connect = Callable[..., AbstractAsyncContextManager[Client]]


def variables(places: ProjectPaths) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "LANG": "C.UTF-8",
        "SKILLYARD_LANG": "en",
    }


def server_of(places: ProjectPaths, *args: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "skillyard", "mcp", *args],
        env=variables(places),
        cwd=str(places.project),
    )


@pytest.fixture
def connect(places: ProjectPaths) -> Connect:
    @contextlib.asynccontextmanager
    async def connected(*args: str, era: str = "auto", **options: Any) -> AsyncIterator[Client]:
        client = Client(server_of(places, *args), mode=era, cache=None, read_timeout_seconds=CEILING_SECONDS, **options)
        async with client:
            yield client

    return connected


def data_of(answer: types.CallToolResult) -> dict[str, Any]:
    """The data of the envelope that came with a call."""
    content = answer.structured_content
    assert isinstance(content, dict)
    data = content["data"]
    assert isinstance(data, dict)
    return data


def state_of(answer: types.CallToolResult) -> str:
    assert isinstance(answer.structured_content, dict)
    return str(answer.structured_content["state"])


def text_of(answer: types.CallToolResult) -> str:
    (block,) = answer.content
    assert isinstance(block, types.TextContent)
    return block.text


class Alive:
    """A pipe that everybody of a run holds open: it ends when the last of them is gone."""

    #: What a skill's shell says to hold it, itself and a child that outlives nobody.
    HOLD = "exec 3>mybox/alive; echo up >&3; sleep 1000 & sleep 1000\n"

    def __init__(self, project: Path) -> None:
        path = project / "mybox" / "alive"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait_until_up(self) -> None:
        assert self._next() == b"up\n"

    def wait_until_gone(self) -> None:
        assert self._next() == b""

    def close(self) -> None:
        os.close(self._pipe)

    def _next(self) -> bytes:
        ready, _, _ = select.select([self._pipe], [], [], CEILING_SECONDS)
        assert ready, "the pipe is still as it was"
        return os.read(self._pipe, 100)
