"""JSON-RPC over stdin and stdout, one message on each line. Every request that arrives gets an answer.

The SDK's transport drops a line that it cannot read, and ends the server at an answer that it cannot write. Here both
become a JSON-RPC error for the id of the request.

Covered: lines that are no JSON, hold lone surrogates or control characters, nest too deep, are too long, or are no
message of the protocol; answers that cannot be written as JSON.
Not covered: a line without a readable id. Its error has the id null, and a client cannot match it to a request.
"""

import fcntl
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, BinaryIO, TypeAlias

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from skillyard.core.envelope import encodes
from skillyard.core.values import check_value

#: The largest message that is read. JSON skills may answer with 10 MB, and a model may send that on.
MOST_BYTES = 32_000_000
#: Where the id is looked for in a line that cannot be parsed: before the params, or after them.
_HEAD_BYTES, _TAIL_BYTES = 65_536, 1_024
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
_ID = re.compile(r'\s*:\s*(-?[0-9]{1,18}|"(?:[^"\\]|\\.){0,1000}")\s*[,}]')
_LAST_ID = re.compile(
    r'[{,]\s*"id"(\s*:\s*(?:-?[0-9]{1,18}|"[^"\\]{0,500}")\s*)(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*\Z'
)
_REASON_CHARACTERS = 200

Incoming: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing: TypeAlias = MemoryObjectSendStream[SessionMessage]
_Received: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
_Write: TypeAlias = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def open_stdio() -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The streams of messages for `Server.run`. Meanwhile fd 0 is empty and fd 1 is stderr for everything else here."""
    with _claimed_stdio() as (stdin, stdout):
        received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
        lock = anyio.Lock()

        def put(line: bytes) -> None:
            stdout.write(line)
            stdout.flush()

        async def write(text: str) -> None:
            async with lock:  # whole lines, whichever task has one
                await anyio.to_thread.run_sync(put, text.encode() + b"\n")

        async with anyio.create_task_group() as group:
            group.start_soon(_read_all, stdin, received, write)
            group.start_soon(_write_all, sent, received, write)
            yield incoming, outgoing


async def _read_all(stdin: BinaryIO, received: _Received, write: _Write) -> None:
    try:
        async with received:
            while line := await anyio.to_thread.run_sync(stdin.readline, MOST_BYTES + 1):
                tail = await _skip_rest(stdin, line)
                text = line.decode("utf-8", "replace")
                for answer in understand(text, tail) if text.strip() else ():
                    await (write(answer) if isinstance(answer, str) else received.send(answer))
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        await anyio.lowlevel.checkpoint()  # the server ended first


async def _skip_rest(stdin: BinaryIO, line: bytes) -> str:
    """Read on to the end of a line that is too long. Returns its last characters, and "" if `line` is whole."""
    if len(line) <= MOST_BYTES:
        return ""
    tail = piece = line
    while piece and not piece.endswith(b"\n"):
        piece = await anyio.to_thread.run_sync(stdin.readline, MOST_BYTES)
        tail = (tail[-_TAIL_BYTES:] + piece)[-_TAIL_BYTES:]
    return tail[-_TAIL_BYTES:].decode("utf-8", "replace")


async def _write_all(sent: MemoryObjectReceiveStream[SessionMessage], received: _Received, write: _Write) -> None:
    """What cannot be written becomes an error for whoever waits: the client for our answer, or we for the client's."""
    async with sent:
        async for item in sent:
            message = item.message
            try:
                line = message.model_dump_json(by_alias=True, exclude_unset=True)
                line.encode()
            except (ValueError, TypeError, RecursionError) as error:
                reason = f"the answer cannot be written as JSON: {_in_short(error)}"
                if isinstance(message, types.JSONRPCRequest):
                    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        await received.send(_failure(message.id, types.INTERNAL_ERROR, reason))
                if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                    continue
                line = as_error(message.id, types.INTERNAL_ERROR, reason)
            await write(line)


def _failure(request_id: int | str, code: int, reason: str) -> SessionMessage:
    error = types.ErrorData(code=code, message=reason)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def understand(text: str, tail: str) -> Iterator[str | SessionMessage]:
    """The message of a line. For one that is none: errors to write, or the failure of an answer that we wait for.

    `tail` is the end of a line that is too long.
    """
    if tail:
        yield as_error(find_id(text, tail), types.INVALID_REQUEST, "it is too long")
        return
    try:
        message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except (ValueError, RecursionError) as error:
        yield from _answer_unreadable(text, error)
        return
    if isinstance(message, types.JSONRPCNotification) and "id" in json.loads(text):
        # The SDK takes a request whose id is null, a fraction or a boolean for a notification.
        yield as_error(None, types.INVALID_REQUEST, "its id is no text or integer")
    else:
        yield SessionMessage(message)


def _answer_unreadable(text: str, error: Exception) -> Iterator[str | SessionMessage]:
    try:
        fields = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        request_id, reason = find_id(text, text[-_TAIL_BYTES:]), f"it is no valid JSON: {_in_short(error)}"
        yield as_error(request_id, types.PARSE_ERROR, reason)
        return
    is_json = "Invalid JSON" not in str(error)
    code = types.INVALID_REQUEST if is_json else types.PARSE_ERROR
    reason = "it is no message of JSON-RPC 2.0" if is_json else f"it is no valid JSON: {_in_short(error, fields)}"
    if isinstance(fields, list):  # a batch: the protocol has none since 2025-06-18
        asked = [each for each in fields if isinstance(each, dict) and "id" in each]
        yield from (as_error(each["id"], code, "batches are not supported") for each in asked or [{"id": None}])
    elif not isinstance(fields, dict):
        yield as_error(None, code, reason)
    elif "method" in fields or not _is_id(fields.get("id")):
        if "id" in fields or "method" not in fields:  # a notification has no answer
            yield as_error(fields.get("id"), code, reason)
    elif isinstance(request_id := fields["id"], int) or encodes(request_id, "utf-8"):
        yield _failure(request_id, code, f"the answer cannot be read: {reason}")


def as_error(request_id: Any, code: int, reason: str) -> str:
    """One line of ASCII, so that any id can be sent back as it came. What can be no id becomes null."""
    known = request_id if _is_id(request_id) else None
    error = {"code": code, "message": f"The request cannot be answered: {reason}"}
    return json.dumps({"jsonrpc": "2.0", "id": known, "error": error})


def find_id(text: str, tail: str) -> int | str | None:
    """The id of a message that is no JSON as a whole: before its params, or at its end."""
    depth = 0
    head = text[:_HEAD_BYTES]
    for token in _TOKEN.finditer(head):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        elif depth == 1 and token[0] == '"id"' and (found := _ID.match(head, token.end())):
            return _as_id(found[1])
    last = _LAST_ID.search(tail)
    return _as_id(last[1].strip(" \t\r\n:")) if last else None


def _as_id(text: str) -> int | str | None:
    try:
        found: int | str = json.loads(text, strict=False)
    except ValueError:
        return None
    return found


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _in_short(error: Exception, fields: Any = None) -> str:
    """What went wrong, without the input: that can be long, and is what could not be read. In our words where we have
    them: a lone surrogate in the fields, or too many levels."""
    try:
        check_value(fields)
    except ValueError as found:
        return str(found)
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    lines = [line for line in str(error).splitlines() if "Invalid JSON" in line] or str(error).splitlines()[:1]
    shown = "".join(lines[:1]).strip().removeprefix("Invalid JSON: ").partition(" [type=")[0]
    return shown[:_REASON_CHARACTERS].encode("utf-8", "replace").decode() or type(error).__name__


@contextmanager
def _claimed_stdio() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Private copies of stdin and stdout: what else runs in this process can neither read nor write messages."""
    sys.stdout.flush()
    stdin, stdout = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    empty = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    try:
        # Not closed at the end: a thread may still wait in a read.
        yield os.fdopen(stdin, "rb", closefd=False), os.fdopen(stdout, "wb", closefd=False)
    finally:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
