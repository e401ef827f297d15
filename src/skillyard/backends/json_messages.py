"""JSON from a backend: values whose form nobody guarantees, events of tools, and JSON-RPC 2.0 in lines."""

import itertools
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from skillyard.core.backend_events import Event, EventKind
from skillyard.core.values import NOTHING, Json

_NO_SUCH_METHOD: Final = -32601
#: Limit for a tool's input and output in an event.
_MOST_SHOWN: Final = 2_000
#: How we introduce ourselves.
CLIENT: Final[Mapping[str, Json]] = {"name": "skillyard", "title": "Skillyard", "version": "1"}
Id = int | str


def mapping(value: Json) -> Mapping[str, Json]:
    """Return the value, or an empty mapping if it is none. `items`, `text` and `number` do the same."""
    return value if isinstance(value, Mapping) else NOTHING


def items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def joined(blocks: Json) -> str:
    """Return the texts of content blocks, each on its own line."""
    return "\n".join(text(mapping(block).get("text")) for block in items(blocks))


def shortened(words: str, most: int = _MOST_SHOWN) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def tool_call(id_: Json, name: str, given: Json) -> Event:
    """The input is in the event as it is if it is short, else the beginning of its JSON."""
    whole = json.dumps(given, ensure_ascii=False)
    shown = given if len(whole) <= _MOST_SHOWN else shortened(whole)
    return Event(EventKind.TOOL_CALL, name, {"id": id_, "input": shown})


def tool_result(id_: Json, output: str, ok: bool) -> Event:
    return Event(EventKind.TOOL_RESULT, shortened(output), {"id": id_, "ok": ok})


class RpcRequest(NamedTuple):
    """The other side waits for `answer` or `refuse`, unless it is a notification: that has no id."""

    method: str
    params: Mapping[str, Json]
    id: Id | None = None


class RpcResponse(NamedTuple):
    """The response to a `begin`. `error` is None if it succeeded."""

    id: Id
    result: Mapping[str, Json]
    error: "RpcError | None" = None


class RpcError(Exception):
    """The error response of the other side."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Peer:
    """One side of the connection. `send` is thread-safe and must not block; `receive` blocks, and raises at the end."""

    def __init__(self, send: Callable[[Mapping[str, Json]], None], receive: Callable[[], Mapping[str, Json]]) -> None:
        self._send, self._receive = send, receive
        self._ids = itertools.count(1)
        self._waiting: deque[RpcRequest | RpcResponse] = deque()

    def begin(self, method: str, params: Mapping[str, Json] = NOTHING) -> int:
        """Send a request; `next` returns the response."""
        asked = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": asked, "method": method, "params": params})
        return asked

    def call(self, method: str, params: Mapping[str, Json] = NOTHING) -> Mapping[str, Json]:
        """Send a request and return its result. Raise RpcError. Other messages wait for `next`."""
        asked = self.begin(method, params)
        while True:
            message = self._read()
            if not (isinstance(message, RpcResponse) and message.id == asked):
                self._waiting.append(message)
            elif message.error:
                raise message.error
            else:
                return message.result

    def notify(self, method: str, params: Mapping[str, Json] = NOTHING) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, request: RpcRequest, result: Mapping[str, Json]) -> None:
        self._send({"jsonrpc": "2.0", "id": request.id, "result": result})

    def refuse(self, request: RpcRequest) -> None:
        """Answer a request for something that we never offered."""
        error: Json = {"code": _NO_SUCH_METHOD, "message": f"{request.method} is not offered"}
        self._send({"jsonrpc": "2.0", "id": request.id, "error": error})

    def next(self) -> RpcRequest | RpcResponse:
        return self._waiting.popleft() if self._waiting else self._read()

    def take_waiting(self) -> list[RpcRequest | RpcResponse]:
        """Return the messages that arrived during a `call`; `next` does not return them any more."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _read(self) -> RpcRequest | RpcResponse:
        while (message := as_incoming(self._receive())) is None:
            pass
        return message


def as_incoming(message: Mapping[str, Json]) -> RpcRequest | RpcResponse | None:
    """Return None for anything but JSON-RPC: a program may print other things in between."""
    method, id_ = message.get("method"), message.get("id")
    named = id_ if isinstance(id_, int | str) and not isinstance(id_, bool) else None
    if isinstance(method, str):
        return RpcRequest(method, mapping(message.get("params")), named)
    if named is None or not ("result" in message or "error" in message):
        return None
    if message.get("error") is None:
        return RpcResponse(named, mapping(message.get("result")))
    told = mapping(message["error"])
    error = RpcError(number(told.get("code")) or 0, text(told.get("message")), told.get("data"))
    return RpcResponse(named, NOTHING, error)
