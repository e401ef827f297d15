"""A client of the Model Context Protocol for what installing needs: requests, one after the other, over stdio or HTTP.

Both eras: `server/discover` of 2026-07-28 is tried first, then the handshake. Nothing that a server asks of a client is
granted. One deadline holds for everything, and one limit for all bytes that arrive.

Covered: a server that ends, never answers, answers byte by byte, or without end; redirects are refused. Its process
group is killed at the end.
Not covered: a server that starts a session of its own and lives on; OAuth.
"""

import base64
import http.client
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from skillyard.core.errors import SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.names import shown
from skillyard.install.source import Deadline
from skillyard.trust.mcp_servers import McpServer

MODERN, LEGACY = "2026-07-28", "2025-11-25"
EXTENSION = "io.modelcontextprotocol/skills"
_MOST_LINE, _MOST_TOTAL = 32_000_000, 256_000_000
_PROBE_SECONDS = 15.0
#: A server that was told to end gets this long.
_END_SECONDS = 0.5
_META = "io.modelcontextprotocol/"
_ABOUT_US = {"name": "skillyard", "version": "1"}
_CAPABILITIES: Mapping[str, Mapping[str, Mapping[str, str]]] = {"extensions": {EXTENSION: {}}}
#: What a program gets of our environment, as the protocol's own clients do it.
_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
_STDERR_BYTES = 2_000
_CHUNK = 1 << 16
Fields: TypeAlias = Mapping[str, Any]


class ServerError(Exception):
    """A JSON-RPC error that the server answered with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Transport(Protocol):
    """Sends a message; returns the answer to a request, and None for a notification. TimeoutError at the deadline."""

    def send(self, message: Fields, headers: Mapping[str, str], seconds: float) -> Any: ...


class McpConnection:
    """An open connection. Every failure is a SourceFailed or SourceRefused that names the server."""

    def __init__(self, name: str, transport: Transport, deadline: Deadline) -> None:
        self._name, self._transport, self._deadline = name, transport, deadline
        self._id, self._version = 0, MODERN
        self.capabilities: Fields = {}

    def greet(self) -> None:
        """Learn the era and the capabilities. SourceRefused if the server does not declare the skills extension."""
        try:
            found = self._ask("server/discover", {}, min(_PROBE_SECONDS, self._deadline.left()))
        except (ServerError, TimeoutError):
            self._version = LEGACY
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": _ABOUT_US}
            found = self.request("initialize", hello)
            self._notify("notifications/initialized")
        capabilities = found.get("capabilities")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        extensions = self.capabilities.get("extensions")
        if not isinstance(extensions, dict) or EXTENSION not in extensions:
            raise SourceRefused(
                Message("the MCP server {name} declares no skills ({id})", name=self._name, id=EXTENSION)
            )

    def request(self, method: str, params: Fields) -> Fields:
        """Return the result. ServerError if the server answers with an error; SourceFailed if it does not answer."""
        try:
            return self._ask(method, params, self._deadline.left())
        except TimeoutError:
            told = {"name": self._name, "method": method, "seconds": self._deadline.seconds}
            why = Message("the MCP server {name} did not answer {method} within {seconds:g} s", **told)
            raise SourceFailed(why) from None

    def _ask(self, method: str, params: Fields, seconds: float) -> Fields:
        self._id += 1
        fields, headers = dict(params), dict[str, str]()
        if self._version == MODERN:
            fields["_meta"] = {
                f"{_META}protocolVersion": MODERN,
                f"{_META}clientCapabilities": _CAPABILITIES,
                f"{_META}clientInfo": _ABOUT_US,
            }
            headers["Mcp-Method"] = method
            if method == "resources/read":
                headers["Mcp-Name"] = _as_header(str(params["uri"]))
        if method != "initialize":
            headers["MCP-Protocol-Version"] = self._version
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": fields}
        answer = self._transport.send(message, headers, seconds)
        if not isinstance(answer, dict):
            raise SourceRefused(
                Message(
                    "the MCP server {name} answered {method} with no message of the protocol",
                    name=self._name,
                    method=method,
                )
            )
        if isinstance(error := answer.get("error"), dict):
            code = error.get("code")
            text = error.get("message")
            raise ServerError(code if isinstance(code, int) else 0, shown(text if isinstance(text, str) else "?"))
        result = answer.get("result")
        if not isinstance(result, dict):
            told = {"name": self._name, "method": method}
            raise SourceRefused(Message("the MCP server {name} answered {method} with no result", **told))
        return result

    def _notify(self, method: str) -> None:
        headers = {"MCP-Protocol-Version": self._version}
        self._transport.send({"jsonrpc": "2.0", "method": method}, headers, self._deadline.left())


def _as_header(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@contextmanager
def connected(
    server: McpServer, cwd: Path | None, env: Mapping[str, str], deadline: Deadline
) -> Iterator[McpConnection]:
    """Start or reach a server that a person allowed, and greet it."""
    if server.url:
        connection = McpConnection(server.name, _Http(server, deadline), deadline)
        connection.greet()
        yield connection
        return
    with _started(server, cwd, env) as transport:
        connection = McpConnection(server.name, transport, deadline)
        connection.greet()
        yield connection


@contextmanager
def _started(server: McpServer, cwd: Path | None, env: Mapping[str, str]) -> Iterator["_Stdio"]:
    inherited = {key: env[key] for key in _INHERITED if key in env}
    with tempfile.TemporaryFile() as stderr:
        try:
            process = subprocess.Popen(
                server.command,
                cwd=cwd,
                env={**inherited, **server.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            told = {"name": server.name, "reason": getattr(error, "strerror", None) or error}
            raise SourceFailed(Message("the MCP server {name} cannot be started: {reason}", **told)) from None
        try:
            yield _Stdio(server.name, process, stderr)
        finally:
            with suppress(OSError):
                cast("IO[bytes]", process.stdin).close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class _Stdio:
    """One message on each line. Lines are read by a thread, so that a silent server keeps nobody waiting."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> None:
        self._name, self._process, self._stderr = name, process, stderr
        self._stdin, self._stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        self._lines: queue.SimpleQueue[bytes | str] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="skillyard-mcp", daemon=True).start()

    def _read(self) -> None:
        """Put each line, and at the end why there are no more."""
        total, reason = 0, ""
        with suppress(OSError, ValueError), self._stdout:
            while line := self._stdout.readline(_MOST_LINE + 1):
                total += len(line)
                if len(line) > _MOST_LINE or total > _MOST_TOTAL:
                    reason = "too much"
                    break
                self._lines.put(line)
        self._lines.put(reason)

    def send(self, message: Fields, _: Mapping[str, str], seconds: float) -> Any:
        deadline = Deadline(seconds)
        try:
            self._stdin.write(json.dumps(message).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            raise self._gone() from None
        while "id" in message:
            try:
                line = self._lines.get(timeout=deadline.left() or 0.001)
            except queue.Empty:
                raise TimeoutError from None
            if isinstance(line, str):
                if line:
                    raise SourceRefused(Message("the MCP server {name} sent too much", name=self._name))
                raise self._gone()
            answer = _parsed(line)
            if isinstance(answer, dict) and "method" in answer:
                if "id" in answer:
                    self._refuse(answer["id"])
            elif isinstance(answer, dict) and answer.get("id") == message["id"]:
                return answer
        return None

    def _refuse(self, request_id: Any) -> None:
        """Answer what the server asks of us: nothing is offered."""
        error = {"code": -32601, "message": "this client offers nothing"}
        with suppress(OSError):
            self._stdin.write(json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode() + b"\n")
            self._stdin.flush()

    def _gone(self) -> SourceFailed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - _STDERR_BYTES))
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        told = {"name": self._name, "code": self._process.poll(), "reason": shown(lines[-1]) if lines else "-"}
        return SourceFailed(Message("the MCP server {name} ended (exit code {code}): {reason}", **told))


class _Http:
    """Streamable HTTP: each message is a POST of its own; the answer is JSON, or a stream of events that holds it."""

    def __init__(self, server: McpServer, deadline: Deadline) -> None:
        self._server, self._deadline, self._session, self._total = server, deadline, "", 0
        self._parts = urlsplit(server.url)

    def send(self, message: Fields, headers: Mapping[str, str], seconds: float) -> Any:
        try:
            return Deadline(min(seconds, self._deadline.left())).run(lambda: self._post(message, headers))
        except (http.client.HTTPException, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            told = {"name": self._server.name, "reason": str(error) or type(error).__name__}
            raise SourceFailed(Message("the MCP server {name} cannot be reached: {reason}", **told)) from None

    def _post(self, message: Fields, headers: Mapping[str, str]) -> Any:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._deadline.left() or 0.001)
        fields = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "User-Agent": "skillyard",
            **self._server.headers,
            **headers,
            **({"Mcp-Session-Id": self._session} if self._session else {}),
        }
        path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        try:
            connection.connect()
            if connection.sock:
                self._deadline.watch(connection.sock)
            connection.request("POST", path, json.dumps(message).encode(), fields)
            answer = connection.getresponse()
            self._session = answer.getheader("Mcp-Session-Id") or self._session
            is_stream = (answer.getheader("Content-Type") or "").partition(";")[0].strip() == "text/event-stream"
            if "id" not in message:
                return None
            if 300 <= answer.status < 400:
                told = {"name": self._server.name, "url": shown(answer.getheader("Location") or "")}
                raise SourceRefused(Message("the MCP server {name} leads to {url}; give that address", **told))
            if is_stream:
                return self._from_events(answer, message["id"])
            parsed = _parsed(b"".join(self._chunks(answer)))
            if not isinstance(parsed, dict) and answer.status >= 400:
                raise ServerError(answer.status, f"HTTP {answer.status} {answer.reason}")
            return parsed
        finally:
            connection.close()

    def _chunks(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        size = 0
        while chunk := answer.read1(_CHUNK):
            self._deadline.check()
            size += len(chunk)
            self._total += len(chunk)
            if size > _MOST_LINE or self._total > _MOST_TOTAL:
                raise SourceRefused(Message("the MCP server {name} sent too much", name=self._server.name))
            yield chunk

    def _from_events(self, answer: http.client.HTTPResponse, request_id: Any) -> Any:
        data, rest = list[bytes](), bytearray()
        for chunk in self._chunks(answer):
            rest += chunk
            if b"\n" not in chunk:
                continue
            *lines, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            for line in (each.removesuffix(b"\r") for each in lines):
                if line.startswith(b"data:"):
                    data.append(line.removeprefix(b"data:").removeprefix(b" "))
                elif not line and data:
                    parsed, data = _parsed(b"\n".join(data)), []
                    if isinstance(parsed, dict) and "method" not in parsed and parsed.get("id") == request_id:
                        return parsed
        raise SourceFailed(Message("the MCP server {name} ended its answer too early", name=self._server.name))


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
