"""Backends that speak the Agent Client Protocol: opencode, and any other program by its command line.

A backend may take a text that begins with `/`, also after white space, for a command of its own. A first block that is
marked as not meant for the model prevents that, and the text arrives unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from skillyard.backends.driver import Driver, Running, Start, only_reads
from skillyard.backends.json_messages import (
    CLIENT,
    Peer,
    RpcError,
    RpcRequest,
    RpcResponse,
    items,
    joined,
    mapping,
    shortened,
    text,
    tool_call,
    tool_result,
)
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.messages import Message
from skillyard.core.values import NOTHING, Json

_VERSION: Final = 1
#: We offer nothing: a backend has its own files and its own terminal.
_OFFERS: Json = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
#: As many as we let claude make.
_MOST_RETRIES: Final = 3
#: The method of a message that `AcpDriver.as_message` makes of a failed call to the model; `params.words` says why.
MODEL_FAILED: Final = "_skillyard/model_failed"
#: The kinds of requests that need no question.
_READING: Final = ("read", "search", "think")
_KINDS: Final[Mapping[PermissionProfile | None, Sequence[str]]] = {
    PermissionProfile.READ: _READING,
    PermissionProfile.EDIT: (*_READING, "edit"),
}
_NOT_FOR_THE_MODEL: Json = {"type": "text", "text": "Task:\n", "annotations": {"audience": ["user"]}}


class AcpDriver(Driver):
    arguments: Sequence[str] = ()
    #: Set in its environment; the user's own value wins over `defaults`.
    variables: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}

    def start(self, start: Start) -> Running:
        argv = (str(self.locate()), *self.arguments)
        env = {**self.defaults, **self._env}
        if start.profile:
            env |= self.defaults  # what was said for this task counts more than the user's usual
        return _RunningAcp(self, start, argv, {**env, **self.variables})


class NamedAcpDriver(AcpDriver):
    """A program that the user named, with its command line."""

    def __init__(self, env: Mapping[str, str], name: str, command: tuple[str, ...]) -> None:
        super().__init__(env)
        self.name = name
        self.command, *self.arguments = command


class _RunningAcp(Running):
    def __init__(self, driver: Driver, start: Start, argv: Sequence[str], env: Mapping[str, str]) -> None:
        super().__init__(driver, start, argv, env)
        self._peer = Peer(self._process.send, self._next)
        self._model: Json = None
        self._offers: Mapping[str, Json] = NOTHING
        #: A backend may ask several times about one call; a person is asked once.
        self._answered: dict[str, bool] = {}

    def _open(self) -> None:
        try:
            asked: dict[str, Json] = {"protocolVersion": _VERSION, "clientCapabilities": _OFFERS, "clientInfo": CLIENT}
            hello = self._peer.call("initialize", asked)
            self._driver.check_version(text(mapping(hello.get("agentInfo")).get("version")))
            self._offers = mapping(hello.get("agentCapabilities"))
            self._choose_model(self._open_session())
        except RpcError as error:
            raise self._failed(_words(error)) from None

    @property
    def _place(self) -> dict[str, Json]:
        return {"cwd": str(self._start.folder), "mcpServers": []}

    def _open_session(self) -> Mapping[str, Json]:
        place, offers = self._place, self._offers
        if self._start.session is None:
            opened = self._peer.call("session/new", place)
            self.session = text(opened.get("sessionId"))
            return opened
        place["sessionId"] = self._start.session
        if "resume" in mapping(offers.get("sessionCapabilities")):
            return self._peer.call("session/resume", place)
        if not offers.get("loadSession"):
            raise self._failed(Message("it cannot go on with an earlier session"))
        return self._peer.call("session/load", place)

    def _choose_model(self, opened: Mapping[str, Json]) -> None:
        session, wanted = self.session, self._start.model
        listed = map(mapping, items(opened.get("configOptions")))
        option = next((option for option in listed if option.get("category") == "model"), NOTHING)
        self._model = wanted or option.get("currentValue")
        if wanted and option:
            asked = {"sessionId": session, "configId": option.get("id"), "value": wanted}
            self._peer.call("session/set_config_option", asked)
        elif wanted:
            self._peer.call("session/set_model", {"sessionId": session, "modelId": wanted})

    def _interrupt(self) -> None:
        if self.session:
            self._peer.notify("session/cancel", {"sessionId": self.session})

    def _play(self, task: str) -> Iterator[Event]:
        yield Event(EventKind.STARTED, data={"session": self.session, "model": self._model})
        retries = 0
        words: list[Json] = [{"type": "text", "text": task}]
        if task.lstrip().startswith("/"):
            words.insert(0, _NOT_FOR_THE_MODEL)
        self._peer.take_waiting()  # a backend that loads a session sends all of it again
        asked = self._peer.begin("session/prompt", {"sessionId": self.session, "prompt": words})
        while True:
            match self._peer.next():
                case RpcResponse(id=id_, error=error) if id_ == asked and error:
                    raise self._failed(_words(error))
                case RpcResponse(id=id_, result=result) if id_ == asked:
                    usage, reason = mapping(result.get("usage")), str(result.get("stopReason"))
                    used = {"input": usage.get("inputTokens"), "output": usage.get("outputTokens")}
                    yield Event(EventKind.USAGE, data=used)
                    if retries:
                        self._answer = self._stored_answer()
                    self._cut = "" if reason == "end_turn" else reason
                    return
                case RpcRequest(id=int() | str()) as request:
                    self._permit(request)
                case RpcRequest(method="session/update", params=params) if params.get("sessionId") == self.session:
                    yield from _events(mapping(params.get("update")))
                case RpcRequest(method=method, params=params) if method == MODEL_FAILED:
                    retries += 1
                    said = text(params.get("words"))
                    if retries > _MOST_RETRIES:
                        raise self._failed(Message("its model failed {count} times: {said}", count=retries, said=said))
                    yield Event(EventKind.ERROR, said, {"retrying": True})

    def _stored_answer(self) -> str | None:
        """Return the last message as the backend has stored it: in its stream a retry follows the half before it."""
        if not self._offers.get("loadSession"):
            return None
        try:
            self._peer.call("session/load", {**self._place, "sessionId": self.session})
        except RpcError:
            return None
        said: list[str] = []
        latest: Json = None
        for message in self._peer.take_waiting():
            update = mapping(message.params.get("update")) if isinstance(message, RpcRequest) else NOTHING
            for event in _events(update):
                if event.kind is EventKind.TEXT:
                    said = [*said, event.text] if event.data.get("message") == latest else [event.text]
                    latest = event.data.get("message")
        return "".join(said)

    def _permit(self, request: RpcRequest) -> None:
        if request.method != "session/request_permission":
            self._peer.refuse(request)
            return
        call = mapping(request.params.get("toolCall"))
        given = mapping(call.get("rawInput"))
        says = text(given.get("command")) or text(call.get("title")) or str(dict(given))
        permission, asked = Permission(text(call.get("kind")) or "other", shortened(says)), text(call.get("toolCallId"))
        known = f"{asked} {permission.says}" if asked else ""
        allowed = self._answered.get(known)
        if allowed is None:
            allowed = self._in_profile(permission.tool, text(given.get("command"))) or self._allows(permission)
        if known:
            self._answered[known] = allowed
        kinds = ("allow_once",) if allowed else ("reject_once", "reject_always")
        listed = [mapping(option) for option in items(request.params.get("options"))]
        chosen = next((option for kind in kinds for option in listed if option.get("kind") == kind), None)
        outcome: Json = {"outcome": "cancelled"}
        if chosen:
            outcome = {"outcome": "selected", "optionId": chosen.get("optionId")}
        self._peer.answer(request, {"outcome": outcome})

    def _in_profile(self, kind: str, command: str) -> bool:
        if kind == "execute":
            return self._start.profile is not None and only_reads(command, self._start.folder)
        return kind in _KINDS.get(self._start.profile, ())


def _events(update: Mapping[str, Json]) -> Iterator[Event]:
    match update.get("sessionUpdate"):
        case "agent_message_chunk":
            said = text(mapping(update.get("content")).get("text"))
            yield Event(EventKind.TEXT, said, {"message": update.get("messageId")})
        case "tool_call":
            yield tool_call(update.get("toolCallId"), text(update.get("title")), update.get("rawInput"))
        case "tool_call_update" if update.get("status") in {"completed", "failed"}:
            output = joined([mapping(part).get("content") for part in items(update.get("content"))])
            yield tool_result(update.get("toolCallId"), output, ok=update.get("status") == "completed")


def _words(error: RpcError) -> str:
    """Return its message and details, without a prefix that says nothing."""
    details = text(mapping(error.data).get("details"))
    return ": ".join(filter(None, (error.message.removeprefix("Internal error: "), details)))
