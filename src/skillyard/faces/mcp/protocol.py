"""The Model Context Protocol, apart from any transport: requests, answers, questions and news, in both of its eras.

`initialize` opens the era of the handshake, up to 2025-11-25. A request of 2026-07-28 carries its own version and
capabilities under `_meta`. One connection may hold both; which one a request belongs to is told by itself.

Covered: every request gets exactly one answer, unless the client cancelled it; nothing is sent for it afterwards.
Not covered: the shape of what a handler returns. It is the handler's own.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeAlias

from skillyard import __version__
from skillyard.core.cancel_token import CancelToken
from skillyard.faces.command import EXPECTED, as_skill_error

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
UNSUPPORTED_VERSION = -32022

_META = "io.modelcontextprotocol/"
_VERSION_KEY, _CAPABILITIES_KEY = f"{_META}protocolVersion", f"{_META}clientCapabilities"
_CLIENT_KEY = f"{_META}clientInfo"
_SERVER_KEY, _SUBSCRIPTION_KEY = f"{_META}serverInfo", f"{_META}subscriptionId"
_ABOUT_US = {"name": "skillyard", "title": "Skillyard", "version": __version__}
#: Results that 2026-07-28 wants with how long they may be kept: not at all, unless the handler says so.
_CACHEABLE = frozenset(
    {*("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover")}
)
_MODERN_ONLY = frozenset({"server/discover", "subscriptions/listen"})
_NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}
_MOST_SUBSCRIPTIONS = 100

Fields: TypeAlias = Mapping[str, Any]
RequestId: TypeAlias = int | str


class ProtocolError(Exception):
    """What a request is answered with that has no result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data

    def as_error(self) -> dict[str, Any]:
        error = {"code": self.code, "message": str(self)}
        return error if self.data is None else {**error, "data": self.data}


class FormAnswer(NamedTuple):
    """What the person did with a form, and what they filled in."""

    action: str
    content: Fields


class InputRequired(Exception):
    """The question is the answer: clients of 2026-07-28 answer it in a call of their own."""

    def __init__(self, key: str, question: Fields, state: str) -> None:
        super().__init__(key)
        self.result = {"resultType": "input_required", "inputRequests": {key: question}, "requestState": state}


class Unanswered(Exception):
    """The request stays open until the client cancels it."""


class ClientRequest:
    """One request, for its handler: what it asks, and the ways to talk to the client meanwhile."""

    def __init__(
        self,
        connection: "ClientConnection",
        request_id: RequestId,
        method: str,
        params: Fields,
        version: str,
        client: Fields,
    ) -> None:
        self._connection = connection
        self.id, self.method, self.params = request_id, method, params
        #: Protocol version, and the capabilities of the client.
        self.version, self.client = version, client
        given = params.get("inputResponses")
        #: What the client brings to the questions of an earlier call; each counts once.
        self.responses: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        #: Cancelled when the client no longer waits.
        self.stop = CancelToken()

    @property
    def is_modern(self) -> bool:
        return self.version in MODERN_VERSIONS

    @property
    def client_name(self) -> str:
        """What the client calls itself, such as claude-code."""
        about = self._meta.get(_CLIENT_KEY) if self.is_modern else self._connection.client_info
        return str(about.get("name", "")) if isinstance(about, dict) else ""

    @property
    def _meta(self) -> Fields:
        meta: Fields = self.params.get("_meta") or {}
        return meta

    def text(self, name: str) -> str:
        value = self.find_text(name)
        if value is None:
            raise ProtocolError(INVALID_PARAMS, f"{self.method} needs {name}, a text")
        return value

    def find_text(self, name: str) -> str | None:
        value = self.params.get(name)
        if value is not None and not isinstance(value, str):
            raise ProtocolError(INVALID_PARAMS, f"{name} must be a text")
        return value

    def mapping(self, name: str) -> Fields:
        value = self.params.get(name)
        if value is not None and not isinstance(value, dict):
            raise ProtocolError(INVALID_PARAMS, f"{name} must be an object")
        return value or {}

    # -- talking back

    @property
    def wants_progress(self) -> bool:
        token = self._meta.get("progressToken")
        return isinstance(token, int | str) and not isinstance(token, bool)

    def report_progress(self, progress: float, message: str) -> None:
        """Each call with more progress than the one before."""
        token = self._meta.get("progressToken") if self.wants_progress else None
        if token is not None and not self.stop.cancelled:
            about = {"progressToken": token, "progress": progress, "message": message}
            self._connection.notify("notifications/progress", about)

    def end_progress(self) -> None:
        """The request has its answer, and what goes on is told in another way."""
        self.params = {**self.params, "_meta": {**self._meta, "progressToken": None}}

    def resume(self, responses: Fields, state: str) -> None:
        """Ask again with the answers to what was asked."""
        self.params = {**self.params, "requestState": state}
        self.responses = dict(responses)

    @property
    def can_ask(self) -> bool:
        asks = self.client.get("elicitation")
        return isinstance(asks, dict) and (asks.get("form") is not None or asks.get("url") is None)

    def ask(self, key: str, message: str, schema: Fields, state: Any) -> FormAnswer | None:
        """Show the person a form. Return None where the client cannot show it now. Raise InputRequired."""
        if key in self.responses:
            return as_form_answer(self.responses.pop(key))
        question = {"mode": "form", "message": message, "requestedSchema": schema}
        if self.is_modern:
            raise InputRequired(key, {"method": "elicitation/create", "params": question}, json.dumps(state))
        return as_form_answer(self._connection.ask("elicitation/create", question, self.stop))

    @property
    def state(self) -> Any:
        """What `ask` was given before the client called again."""
        try:
            return json.loads(self.find_text("requestState") or "null")
        except (ValueError, RecursionError):
            return None


def as_form_answer(given: Any) -> FormAnswer | None:
    if not isinstance(given, dict) or given.get("action") not in {"accept", "decline", "cancel"}:
        return None
    content = given.get("content")
    return FormAnswer(given["action"], content if isinstance(content, dict) else {})


Method: TypeAlias = Callable[[ClientRequest], Fields]


class Serving(Protocol):
    """What a connection serves."""

    @property
    def methods(self) -> Mapping[str, Method]:
        """What each request is answered by. It may take long, and is called in a thread of its own."""

    def describe(self, request: ClientRequest) -> Fields:
        """Return `capabilities` and `instructions`."""

    def start(self, request: ClientRequest, answer: Callable[[], None]) -> None:
        """Call `answer` in another thread."""


class ClientConnection:
    """One client. `receive` takes its messages one after the other; `send` may be called by any thread."""

    def __init__(self, serving: Serving, send: Callable[[Fields], bool]) -> None:
        self._serving, self._send = serving, send
        self._lock = threading.Lock()
        #: What the handshake agreed on; empty before it.
        self._version = ""
        self._client: Fields = {}
        self.client_info: Any = None
        #: Whether the handshake is over, and which lists changed before.
        self._is_greeted, self._missed = False, set[str]()
        self._open: dict[RequestId, ClientRequest] = {}
        self._asked: dict[RequestId, SimpleQueue[Any]] = {}
        self._subscriptions: dict[RequestId, frozenset[str]] = {}
        self._own: dict[str, Method] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "server/discover": self._discover,
            "subscriptions/listen": self._subscribe,
        }

    def receive(self, message: Fields) -> None:
        """A message of JSON-RPC 2.0, as `transport.understand` leaves it."""
        if "method" not in message:
            with self._lock:
                waiting = self._asked.pop(message["id"], None)
            if waiting:
                waiting.put(message.get("result"))
        elif "id" in message:
            self._take(message["id"], message["method"], message.get("params") or {})
        else:
            self._hear(message["method"], message.get("params") or {})

    def _hear(self, method: str, params: Fields) -> None:
        if method == "notifications/initialized":
            with self._lock:
                self._is_greeted, missed = bool(self._version), self._missed
                self._missed = set()
            self.tell_changed(missed)
        elif method == "notifications/cancelled":
            cancelled = params.get("requestId")
            if isinstance(cancelled, int | str):
                with self._lock:
                    request = self._open.pop(cancelled, None)
                    self._subscriptions.pop(cancelled, None)
                if request:
                    request.stop.cancel()

    def _take(self, request_id: RequestId, method: str, params: Fields) -> None:
        try:
            request = ClientRequest(self, request_id, method, params, *self._era(method, params))
            handler = self._find_handler(request)
        except ProtocolError as error:
            self._send({"jsonrpc": "2.0", "id": request_id, "error": error.as_error()})
            return
        with self._lock:
            self._open[request_id] = request
        if handler in self._own.values():  # the handshake must be over before the next message is read
            self._answer(request, handler)
        else:
            self._serving.start(request, lambda: self._answer(request, handler))

    def _find_handler(self, request: ClientRequest) -> Method:
        own = self._own.get(request.method)
        if own and request.is_modern != (request.method in _MODERN_ONLY):
            own = None
        handler = own or self._serving.methods.get(request.method)
        if handler is None:
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", request.method)
        return handler

    def _era(self, method: str, params: Fields) -> tuple[str, Fields]:
        """Return the version and the client's capabilities that count for this request."""
        meta = params.get("_meta", {})
        if not isinstance(meta, dict):
            raise ProtocolError(INVALID_PARAMS, "params._meta must be an object")
        is_enveloped = _VERSION_KEY in meta and method != "initialize"
        if not is_enveloped and (self._version or method in {"initialize", "ping"}):
            return self._version, self._client
        if missing := [key for key in (_VERSION_KEY, _CAPABILITIES_KEY) if key not in meta]:
            named = ", ".join(missing)
            raise ProtocolError(INVALID_PARAMS, f"params._meta lacks {named}; or send `initialize` first")
        version, client = meta[_VERSION_KEY], meta[_CAPABILITIES_KEY]
        if not isinstance(version, str) or not isinstance(client, dict):
            raise ProtocolError(INVALID_PARAMS, f"{_VERSION_KEY} must be a text, {_CAPABILITIES_KEY} an object")
        if version not in MODERN_VERSIONS:
            known = {"supported": list(MODERN_VERSIONS), "requested": version}
            raise ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version", known)
        return version, client

    def _answer(self, request: ClientRequest, handler: Method) -> None:
        try:
            answer: Fields = {"result": self._stamped(request, handler(request))}
        except InputRequired as question:
            answer = {"result": self._stamped(request, question.result)}
        except Unanswered:
            return
        except ProtocolError as error:
            answer = {"error": error.as_error()}
        except EXPECTED as error:
            answer = {"error": ProtocolError(INTERNAL_ERROR, as_skill_error(error).msg).as_error()}
        except BaseException:
            self._close(request, {"error": ProtocolError(INTERNAL_ERROR, "a defect of skillyard").as_error()})
            sys.excepthook(*sys.exc_info())  # a thread of a pool tells nobody
            raise
        self._close(request, answer)

    def _close(self, request: ClientRequest, answer: Fields) -> None:
        with self._lock:
            is_waited_for = self._open.get(request.id) is request
            if is_waited_for:
                del self._open[request.id]
        if is_waited_for:
            self._send({"jsonrpc": "2.0", "id": request.id, **answer})

    @staticmethod
    def _stamped(request: ClientRequest, result: Fields) -> Fields:
        if not request.is_modern:
            return result
        is_kept = request.method in _CACHEABLE and result.get("resultType") != "input_required"
        meta = {_SERVER_KEY: _ABOUT_US, **result.get("_meta", {})}
        return {"resultType": "complete", **(_NOT_KEPT if is_kept else {}), **result, "_meta": meta}

    # -- the methods of the protocol itself

    def _initialize(self, request: ClientRequest) -> Fields:
        asked = request.text("protocolVersion")
        self._client, self.client_info = request.mapping("capabilities"), request.params.get("clientInfo")
        self._version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        return {"protocolVersion": self._version, **self._serving.describe(request), "serverInfo": _ABOUT_US}

    def _discover(self, request: ClientRequest) -> Fields:
        return {"supportedVersions": list(MODERN_VERSIONS), **self._serving.describe(request)}

    def _subscribe(self, request: ClientRequest) -> Fields:
        """The answer would be the end of the subscription, which only the client brings about."""
        wanted = [name for name, value in request.mapping("notifications").items() if value is True]
        kinds = frozenset(name.removesuffix("ListChanged") for name in wanted if name in _SUBSCRIBED)
        with self._lock:
            if len(self._subscriptions) >= _MOST_SUBSCRIPTIONS:
                raise ProtocolError(INTERNAL_ERROR, "too many subscriptions")
            self._subscriptions[request.id] = kinds
        honoured = {f"{kind}ListChanged": True for kind in sorted(kinds)}
        about = {"notifications": honoured, "_meta": {_SUBSCRIPTION_KEY: request.id}}
        self.notify("notifications/subscriptions/acknowledged", about)
        raise Unanswered

    # -- from us to the client

    def notify(self, method: str, params: Fields | None = None) -> None:
        self._send({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})

    def tell_changed(self, kinds: Iterable[str]) -> None:
        """The lists of tools, prompts or resources are other ones now."""
        with self._lock:
            subscriptions, is_greeted = tuple(self._subscriptions.items()), self._is_greeted
            if not is_greeted and self._version:
                self._missed.update(kinds)
        for kind in kinds:
            method = f"notifications/{kind}/list_changed"
            if is_greeted:
                self.notify(method)
            for subscription, wanted in subscriptions:
                if kind in wanted:
                    self.notify(method, {"_meta": {_SUBSCRIPTION_KEY: subscription}})

    def ask(self, method: str, params: Fields, stop: CancelToken) -> Any:
        """Return what the client answers; None if that is an error, or nobody waits for it any more."""
        answers: SimpleQueue[Any] = SimpleQueue()
        with self._lock:
            self._asks += 1
            request_id = self._asks
            self._asked[request_id] = answers
        with stop.on_cancel(lambda: answers.put(None)):
            is_sent = self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
            answer = answers.get() if is_sent else None
        with self._lock:
            is_abandoned = self._asked.pop(request_id, None) is not None
        if is_sent and is_abandoned:
            self.notify("notifications/cancelled", {"requestId": request_id})
        return answer

    _asks = 0

    def close(self) -> None:
        """Cancel whatever is still worked at."""
        with self._lock:
            requests = tuple(self._open.values())
        for request in requests:
            request.stop.cancel()


_SUBSCRIBED = frozenset({"toolsListChanged", "promptsListChanged", "resourcesListChanged"})
