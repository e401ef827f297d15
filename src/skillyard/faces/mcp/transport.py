"""JSON-RPC over stdin and stdout, one message on each line. Every request that arrives gets an answer.

Covered: lines that are no JSON, hold lone surrogates or control characters, nest too deep, are too long, or are no
message of the protocol; answers that cannot be written as JSON.
Not covered: a line without a readable id. Its error has the id null, and a client cannot match it to a request.
"""

import fcntl
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from skillyard.core.values import check_value
from skillyard.faces.mcp.protocol import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

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


class Stdio:
    """Claims stdin and stdout: from now on fd 0 is empty and fd 1 is stderr for everything else in this process.

    `on_end` is called when nobody writes to stdin any more, or nobody reads stdout.
    """

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        sys.stdout.flush()
        stdin, stdout = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
        empty = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(empty, 0)
        os.dup2(2, 1)
        os.close(empty)
        self._stdin, self._stdout = os.fdopen(stdin, "rb"), os.fdopen(stdout, "wb", buffering=0)
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> bool:
        """An answer that cannot be written becomes an error for the client. Return whether the message was written."""
        try:
            line = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (ValueError, TypeError, RecursionError) as error:
            if "method" in message:
                return False
            line = as_error(message["id"], INTERNAL_ERROR, f"The answer cannot be written: {_in_short(error)}")
        return self._write(line)

    def _write(self, line: bytes) -> bool:
        rest = memoryview(line + b"\n")
        try:
            with self._lock:
                while rest:
                    rest = rest[self._stdout.write(rest) or 0 :]
        except BrokenPipeError:
            self._on_end()
            return False
        return True

    def read(self, receive: Callable[[Mapping[str, Any]], None]) -> None:
        """Pass on each message until stdin ends. What is none is answered here."""
        try:
            while line := self._stdin.readline(MOST_BYTES + 1):
                tail = _skip_rest(self._stdin, line)
                text = line.decode("utf-8", "replace")
                if text.strip() and (message := self._understand(text, tail)) is not None:
                    receive(message)
        finally:
            self._on_end()

    def _understand(self, text: str, tail: str) -> Mapping[str, Any] | None:
        """`tail` is the end of a line that is too long."""
        if tail:
            self._refuse(find_id(text, tail), INVALID_REQUEST, "it is too long")
            return None
        try:
            fields = json.loads(text)
            check_value(fields)
        except (ValueError, RecursionError) as error:
            return self._refuse_unreadable(text, error)
        return fields if _is_message(fields) else self._refuse_fields(fields, INVALID_REQUEST, "it is no JSON-RPC 2.0")

    def _refuse_unreadable(self, text: str, error: Exception) -> Mapping[str, Any] | None:
        reason = f"it is no valid JSON: {_in_short(error)}"
        try:
            fields = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            self._refuse(find_id(text, text[-_TAIL_BYTES:]), PARSE_ERROR, reason)
            return None
        return self._refuse_fields(fields, PARSE_ERROR, reason)

    def _refuse_fields(self, fields: Any, code: int, reason: str) -> Mapping[str, Any] | None:
        """Return an answer of the client, as the failure that it is for whoever waits for it."""
        if isinstance(fields, list):  # a batch: the protocol has none since 2025-06-18
            asked = [each for each in fields if isinstance(each, dict) and "id" in each]
            for each in asked or [{}]:
                self._refuse(each.get("id"), code, "batches are not supported")
        elif not isinstance(fields, dict):
            self._refuse(None, code, reason)
        elif "method" in fields or not _is_id(fields.get("id")):
            if "id" in fields or "method" not in fields:  # a notification has no answer
                self._refuse(fields.get("id"), code, reason)
        else:
            return {"id": fields["id"]}
        return None

    def _refuse(self, request_id: Any, code: int, reason: str) -> None:
        self._write(as_error(request_id, code, f"The request cannot be answered: {reason}"))


def _is_message(fields: Any) -> bool:
    if not isinstance(fields, dict) or fields.get("jsonrpc") != "2.0":
        return False
    if "method" not in fields:
        return _is_id(fields.get("id")) and ("result" in fields or "error" in fields)
    has_params = isinstance(fields.get("params") or {}, dict)
    return has_params and isinstance(fields["method"], str) and ("id" not in fields or _is_id(fields["id"]))


def _skip_rest(stdin: BinaryIO, line: bytes) -> str:
    """Read on to the end of a line that is too long. Return its last characters, and "" if `line` is whole."""
    if len(line) <= MOST_BYTES:
        return ""
    tail = piece = line
    while piece and not piece.endswith(b"\n"):
        piece = stdin.readline(MOST_BYTES)
        tail = (tail[-_TAIL_BYTES:] + piece)[-_TAIL_BYTES:]
    return tail[-_TAIL_BYTES:].decode("utf-8", "replace")


def as_error(request_id: Any, code: int, message: str) -> bytes:
    """One line of ASCII, so that any id can be sent back as it came. What can be no id becomes null."""
    known = request_id if _is_id(request_id) else None
    return json.dumps({"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": message}}).encode()


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


def _in_short(error: Exception) -> str:
    """What went wrong, without the input, which can be long."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error).partition("\n")[0][:_REASON_CHARACTERS].encode("utf-8", "replace").decode()
