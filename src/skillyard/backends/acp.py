"""Backends that speak the Agent Client Protocol: opencode, and any other program by its command line.

A backend may take a text that begins with `/`, also after white space, for a command of its own. A first block that is
marked as not meant for the model prevents that, and the text arrives unchanged.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple

from skillyard.backends.driver import BackendProgram, InstalledProgram, Running, Start, check_version, find, locate
from skillyard.backends.json_messages import Peer, RpcError, RpcNotice, RpcRequest, RpcResponse, items, mapping, text
from skillyard.backends.process import AsMessage, Played, Process, RunningBackend, launch, shortened, shown
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import AgentNotInstalled
from skillyard.core.messages import Message
from skillyard.core.values import Json

_VERSION: Final = 1
_CLIENT: Final[Mapping[str, Json]] = {"name": "skillyard", "title": "Skillyard", "version": "1"}
#: We offer nothing: a backend has its own files and its own terminal.
_OFFERS: Json = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
#: As many as we let claude make.
_MOST_RETRIES: Final = 3
#: The method of a message that `AcpBackend.as_message` makes of a failed call to the model; `params.words` says why.
MODEL_FAILED: Final = "_skillyard/model_failed"
_NOT_FOR_THE_MODEL: Json = {"type": "text", "text": "Task:\n", "annotations": {"audience": ["user"]}}


class AcpBackend(NamedTuple):
    """A backend as configuration: a name and a command line. It is installed if its program is found."""

    name: str
    command: tuple[str, ...]
    login: str = "start it by hand"
    #: Set in its environment; the user's own value wins over `defaults`.
    variables: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    #: Knows where the program is and which versions will do.
    program: BackendProgram | None = None
    #: For a backend that reports some things only on stderr.
    as_message: AsMessage = lambda _: None


class AcpDriver:
    """A `Driver`. `env` is the user's: configuration and credentials are the backend's own matter."""

    bounds_turns = False

    def __init__(self, backend: AcpBackend, env: Mapping[str, str]) -> None:
        self.name = backend.name
        self._backend, self._env = backend, env

    def locate(self) -> Path:
        if self._backend.program:
            return locate(self._backend.program, self._env)
        command = self._backend.command[0]
        found = which(command, path=absolute_entries(self._env))
        if found is None:
            where = Message("no `{command}` on the PATH", command=command)
            msg = Message("{backend} is not installed: {where}", backend=self.name, where=where)
            raise AgentNotInstalled(msg, agent=self.name, command=command)
        return Path(found)

    def find(self) -> InstalledProgram:
        program = self._backend.program
        return find(program, self._env) if program else InstalledProgram(self.locate(), "")

    def start(self, start: Start) -> Running:
        backend = self._backend
        argv = (str(self.locate()), *backend.command[1:])
        env = {**backend.defaults, **self._env, **backend.variables}
        return _RunningAcp(backend, start, launch(self.name, argv, start, env, as_message=backend.as_message))


class _RunningAcp(RunningBackend):
    def __init__(self, backend: AcpBackend, start: Start, process: Process) -> None:
        super().__init__(backend.name, backend.login, start, process)
        self._program = backend.program
        self._peer = Peer(process.send, self._next)
        self._model: Json = start.model
        self._retries = 0

    def _open(self) -> None:
        try:
            hello = self._peer.call(
                "initialize", {"protocolVersion": _VERSION, "clientCapabilities": _OFFERS, "clientInfo": _CLIENT}
            )
            if self._program:
                check_version(self._program, text(mapping(hello.get("agentInfo")).get("version")))
            opened = self._session(mapping(hello.get("agentCapabilities")))
            self._choose_model(opened)
        except RpcError as error:
            raise self._failed(_words(error)) from None

    def _session(self, offers: Mapping[str, Json]) -> Mapping[str, Json]:
        place: dict[str, Json] = {"cwd": str(self._start.folder), "mcpServers": []}
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
        listed = map(mapping, items(opened.get("configOptions")))
        option = next((option for option in listed if option.get("category") == "model"), None)
        if option is not None:
            self._model = self._model or option.get("currentValue")
        if not self._start.model:
            return
        named: dict[str, Json] = {"sessionId": self.session}
        if option is not None:
            named |= {"configId": option.get("id"), "value": self._start.model}
            self._peer.call("session/set_config_option", named)
        else:
            self._peer.call("session/set_model", {**named, "modelId": self._start.model})

    def _interrupt(self) -> None:
        if self.session:
            self._peer.notify("session/cancel", {"sessionId": self.session})

    def _play(self, text: str) -> Played:
        yield Event(EventKind.STARTED, data={"session": self.session, "model": self._model})
        self._retries = 0
        words: list[Json] = [{"type": "text", "text": text}]
        if text.lstrip().startswith("/"):
            words.insert(0, _NOT_FOR_THE_MODEL)
        self._peer.forget()  # a backend that loads a session sends all of it again
        asked = self._peer.begin("session/prompt", {"sessionId": self.session, "prompt": words})
        while True:
            match self._peer.next():
                case RpcResponse(id=id_, error=error) if id_ == asked and error:
                    raise self._failed(_words(error))
                case RpcResponse(id=id_, result=result) if id_ == asked:
                    yield _usage(mapping(result.get("usage")))
                    reason = str(result.get("stopReason"))
                    return "" if reason == "end_turn" else reason
                case RpcRequest() as request:
                    self._answer(request)
                case RpcNotice(method="session/update", params=params) if params.get("sessionId") == self.session:
                    yield from _events(mapping(params.get("update")))
                case RpcNotice(method=method, params=params) if method == MODEL_FAILED:
                    yield self._tried(params)

    def _tried(self, params: Mapping[str, Json]) -> Event:
        self._retries += 1
        said = text(params.get("words"))
        if self._retries > _MOST_RETRIES:
            raise self._failed(Message("its model failed {count} times: {said}", count=self._retries, said=said))
        return Event(EventKind.ERROR, said, {"retrying": True})

    def _answer(self, request: RpcRequest) -> None:
        if request.method != "session/request_permission":
            self._peer.refuse(request)
            return
        call = mapping(request.params.get("toolCall"))
        given = mapping(call.get("rawInput"))
        says = text(given.get("command")) or text(call.get("title")) or str(dict(given))
        allowed = self._allows(Permission(text(call.get("kind")) or "other", shortened(says)))
        kinds = ("allow_once",) if allowed else ("reject_once", "reject_always")
        listed = [mapping(option) for option in items(request.params.get("options"))]
        chosen = next((option for kind in kinds for option in listed if option.get("kind") == kind), None)
        outcome: Json = {"outcome": "cancelled"}
        if chosen:
            outcome = {"outcome": "selected", "optionId": chosen.get("optionId")}
        self._peer.answer(request, {"outcome": outcome})


def _events(update: Mapping[str, Json]) -> Iterator[Event]:
    named: dict[str, Json] = {"id": update.get("toolCallId")}
    match update.get("sessionUpdate"):
        case "agent_message_chunk":
            said = text(mapping(update.get("content")).get("text"))
            yield Event(EventKind.TEXT, said, {"message": update.get("messageId")})
        case "tool_call":
            yield Event(
                EventKind.TOOL_CALL, text(update.get("title")), {**named, "input": shown(update.get("rawInput"))}
            )
        case "tool_call_update" if update.get("status") in {"completed", "failed"}:
            ok = update.get("status") == "completed"
            yield Event(EventKind.TOOL_RESULT, _plain(update), {**named, "ok": ok})


def _plain(update: Mapping[str, Json]) -> str:
    parts = [mapping(mapping(part).get("content")) for part in items(update.get("content"))]
    return shortened("\n".join(text(part.get("text")) for part in parts))


def _usage(usage: Mapping[str, Json]) -> Event:
    return Event(EventKind.USAGE, data={"input": usage.get("inputTokens"), "output": usage.get("outputTokens")})


def _words(error: RpcError) -> str:
    """Return its message and details, without a prefix that says nothing."""
    details = text(mapping(error.data).get("details"))
    return ": ".join(filter(None, (error.message.removeprefix("Internal error: "), details)))
