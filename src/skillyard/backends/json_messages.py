"""One side of a JSON-RPC 2.0 conversation: both codex and every ACP agent speak it, a message on each line."""

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from skillyard.backends.json_access import mapping, number, text
from skillyard.core.values import NOTHING, Json

NO_SUCH_METHOD: Final = -32601

Id = int | str


class Request(NamedTuple):
    """The other side asks, and waits for `answer` or `refuse`."""

    id: Id
    method: str
    params: Mapping[str, Json]


class Notice(NamedTuple):
    """The other side tells."""

    method: str
    params: Mapping[str, Json]


class Response(NamedTuple):
    """What came of a `begin`. `error` is None where it went well."""

    id: Id
    result: Mapping[str, Json]
    error: "RpcError | None" = None


class RpcError(Exception):
    """The other side refused, in its own words."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


Incoming = Request | Notice | Response


class Peer:
    """`send` must not wait and may be called by any thread; `receive` waits, and raises when it is over."""

    def __init__(self, send: Callable[[Mapping[str, Json]], None], receive: Callable[[], Mapping[str, Json]]) -> None:
        self._send, self._receive = send, receive
        self._ids = itertools.count(1)
        self._waiting: deque[Incoming] = deque()

    def begin(self, method: str, params: Mapping[str, Json] = NOTHING) -> int:
        """Ask; the response comes with `next`."""
        asked = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": asked, "method": method, "params": params})
        return asked

    def call(self, method: str, params: Mapping[str, Json] = NOTHING) -> Mapping[str, Json]:
        """Ask and wait. Raises RpcError. What comes in the meantime comes with `next`."""
        asked = self.begin(method, params)
        while True:
            message = self._read()
            if not (isinstance(message, Response) and message.id == asked):
                self._waiting.append(message)
            elif message.error:
                raise message.error
            else:
                return message.result

    def notify(self, method: str, params: Mapping[str, Json] = NOTHING) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, request: Request, result: Mapping[str, Json]) -> None:
        self._send({"jsonrpc": "2.0", "id": request.id, "result": result})

    def refuse(self, request: Request) -> None:
        """It asks for something that we never offered."""
        error: Json = {"code": NO_SUCH_METHOD, "message": f"{request.method} is not offered"}
        self._send({"jsonrpc": "2.0", "id": request.id, "error": error})

    def next(self) -> Incoming:
        return self._waiting.popleft() if self._waiting else self._read()

    def forget(self) -> None:
        """What came during a `call` and nobody asked for yet."""
        self._waiting.clear()

    def _read(self) -> Incoming:
        while True:
            message = as_incoming(self._receive())
            if message is not None:
                return message


def as_incoming(message: Mapping[str, Json]) -> Incoming | None:
    """None for what is no JSON-RPC: a program that prints something else in between is forgiven."""
    method, id_ = message.get("method"), message.get("id")
    named = id_ if isinstance(id_, int | str) and not isinstance(id_, bool) else None
    if isinstance(method, str):
        params = mapping(message.get("params"))
        return Notice(method, params) if named is None else Request(named, method, params)
    if named is None or not ("result" in message or "error" in message):
        return None
    if message.get("error") is None:
        return Response(named, mapping(message.get("result")))
    told = mapping(message["error"])
    error = RpcError(number(told.get("code")) or 0, text(told.get("message")), told.get("data"))
    return Response(named, NOTHING, error)
