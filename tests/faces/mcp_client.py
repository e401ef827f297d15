"""The real MCP client library at one end, `skillyard mcp` in a process of its own at the other, stdio between them."""

import contextlib
import json
import os
import select
import subprocess
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


class RawClient:
    """`skillyard mcp` and its bare pipes, for bytes that no client library sends."""

    _asks = 1_000

    def __init__(self, places: ProjectPaths, *args: str, can_ask: bool = False, greets: bool = True) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "skillyard", "mcp", *args],
            cwd=places.project,
            env=variables(places),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"elicitation": {}} if can_ask else {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        self._rest = b""
        if not greets:
            return
        self.send(json.dumps({"jsonrpc": "2.0", "id": "start", "method": "initialize", "params": about}).encode())
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        assert "result" in self.answer_to("start")

    def send(self, line: bytes) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(line + b"\n")
        self._server.stdin.flush()

    def answer_to(self, request_id: Any) -> dict[str, Any]:
        """The next answer, past notifications; it must be the one to this request."""
        message = self.next_with_id()
        assert message["id"] == request_id, message
        return message

    def next_with_id(self) -> dict[str, Any]:
        while "id" not in (message := json.loads(self._line())):
            pass
        assert isinstance(message, dict)
        return message

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request with an id of its own."""
        self._asks += 1
        message = {"jsonrpc": "2.0", "id": self._asks, "method": method, "params": params}
        self.send(json.dumps(message).encode())
        return self.answer_to(self._asks)

    def next_message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._line())
        return message

    def peak_megabytes(self) -> float:
        status = Path(f"/proc/{self._server.pid}/status").read_text("ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def is_usable(self) -> bool:
        self.send(b'{"jsonrpc": "2.0", "id": "still there", "method": "ping"}')
        return bool(self.answer_to("still there")["result"] == {})

    def close(self) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        code = self._server.wait(timeout=CEILING_SECONDS)
        self._server.stdout.close()
        return code

    def _line(self) -> bytes:
        assert self._server.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._server.stdout], [], [], CEILING_SECONDS)
            assert ready, "no answer"
            piece = os.read(self._server.stdout.fileno(), 1_048_576)
            assert piece, "the server has ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line


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
