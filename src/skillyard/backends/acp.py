"""Agents that speak the Agent Client Protocol: opencode, and any other one by its command line.

opencode tells of a model that fails only in its log, and tries again for ever: so its log is read, and after some
tries the turn fails. A text that begins with `/`, however much space stands before it, would be a command of its own: a
first block that is marked as not meant for the model keeps it from that, and the text arrives unchanged.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Final, NamedTuple

from skillyard.backends.driver import Event, Permission, Running, Start, Told
from skillyard.backends.json_access import items, mapping, text
from skillyard.backends.json_messages import Notice, Peer, Request, Response, RpcError
from skillyard.backends.process import Process
from skillyard.backends.programs import PROGRAMS, Installed, Program, check_version, find, locate, version_in
from skillyard.backends.running import Agent, Played, launch, shortened, shown
from skillyard.core.errors import AgentNotInstalled
from skillyard.core.searchpath import absolute_entries
from skillyard.core.values import Json

_VERSION: Final = 1
_CLIENT: Mapping[str, Json] = {"name": "skillyard", "title": "Skillyard", "version": "1"}
#: We offer an agent nothing: it has its own files and its own terminal.
_OFFERS: Json = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
#: As many as we let claude make.
_MOST_RETRIES: Final = 3
_FAILED_CALL: Final = re.compile(r'message="stream error".*error\.error="?(?:\w+: )?(?P<words>[^"]*)')
_NOT_FOR_THE_MODEL: Json = {"type": "text", "text": "Task:\n", "annotations": {"audience": ["user"]}}


class Acp(NamedTuple):
    """An agent as configuration: a name and a command line. It is installed when its program is found."""

    name: str
    command: tuple[str, ...]
    login: str = "start it by hand"
    #: Set for it; what the user set wins over `defaults`.
    variables: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    #: A row of `programs`, where there is one: it knows where the program is and which versions will do.
    program: Program | None = None


OPENCODE: Final = Acp(
    name="opencode",
    command=("opencode", "acp", "--print-logs", "--log-level", "ERROR"),
    login="opencode auth login",
    variables={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
    # By default it asks nobody. What is allowed is a person's to say, as with the other two.
    defaults={"OPENCODE_PERMISSION": '{"edit":"ask","bash":"ask","webfetch":"ask","external_directory":"ask"}'},
    program=PROGRAMS["opencode"],
)


class AcpAgent:
    """A `Driver`. `env` is the user's: their configuration and their credentials are the agent's own matter."""

    bounds_turns = False

    def __init__(self, agent: Acp, env: Mapping[str, str] = os.environ) -> None:
        self.name = agent.name
        self._agent, self._env = agent, env

    def locate(self) -> Path:
        if self._agent.program:
            return locate(self._agent.program, self._env)
        command = self._agent.command[0]
        found = which(command, path=absolute_entries(self._env))
        if found is None:
            msg = f"{self.name} is not installed: no `{command}` on the PATH"
            raise AgentNotInstalled(msg, agent=self.name, command=command)
        return Path(found)

    def find(self) -> Installed:
        if self._agent.program:
            return find(self._agent.program, self._env)
        return Installed(self.locate(), "")

    def start(self, start: Start) -> Running:
        argv = (str(self.locate()), *self._agent.command[1:])
        env = {**self._agent.defaults, **self._env, **self._agent.variables}
        return _Acp(self._agent, start, launch(self.name, argv, start, env, as_message=_failed_call))


def _failed_call(line: str) -> Mapping[str, Json] | None:
    """A line of the log as a message of the protocol, so that it comes in its place among the others."""
    found = _FAILED_CALL.search(line)
    return {"method": _RETRY, "params": {"words": found["words"]}} if found else None


_RETRY: Final = "_skillyard/failed_call"


class _Acp(Agent):
    def __init__(self, agent: Acp, start: Start, process: Process) -> None:
        super().__init__(agent.name, agent.login, start, process)
        self._program = agent.program
        self._peer = Peer(process.send, self._next)
        self._model: Json = start.model
        self._retries = 0

    def _open(self) -> None:
        try:
            hello = self._peer.call(
                "initialize", {"protocolVersion": _VERSION, "clientCapabilities": _OFFERS, "clientInfo": _CLIENT}
            )
            version = version_in(text(mapping(hello.get("agentInfo")).get("version")))
            if self._program and version:
                check_version(self._program, version)
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
            raise self._failed("it cannot go on with an earlier session")
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
        yield Event(Told.STARTED, data={"session": self.session, "model": self._model})
        self._retries = 0
        words: list[Json] = [{"type": "text", "text": text}]
        if text.lstrip().startswith("/"):
            words.insert(0, _NOT_FOR_THE_MODEL)
        self._peer.forget()  # an agent that loads a session tells all of it again
        asked = self._peer.begin("session/prompt", {"sessionId": self.session, "prompt": words})
        while True:
            match self._peer.next():
                case Response(id=id_, error=error) if id_ == asked and error:
                    raise self._failed(_words(error))
                case Response(id=id_, result=result) if id_ == asked:
                    yield _usage(mapping(result.get("usage")))
                    reason = str(result.get("stopReason"))
                    return "" if reason == "end_turn" else reason
                case Request() as request:
                    self._answer(request)
                case Notice(method="session/update", params=params) if params.get("sessionId") == self.session:
                    yield from _events(mapping(params.get("update")))
                case Notice(method=method, params=params) if method == _RETRY:
                    yield self._tried(params)

    def _tried(self, params: Mapping[str, Json]) -> Event:
        self._retries += 1
        said = text(params.get("words"))
        if self._retries > _MOST_RETRIES:
            raise self._failed(f"its model failed {self._retries} times: {said}")
        return Event(Told.ERROR, said, {"retrying": True})

    def _answer(self, request: Request) -> None:
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
            yield Event(Told.TEXT, said, {"message": update.get("messageId")})
        case "tool_call":
            yield Event(Told.TOOL_CALL, text(update.get("title")), {**named, "input": shown(update.get("rawInput"))})
        case "tool_call_update" if update.get("status") in {"completed", "failed"}:
            ok = update.get("status") == "completed"
            yield Event(Told.TOOL_RESULT, _plain(update), {**named, "ok": ok})


def _plain(update: Mapping[str, Json]) -> str:
    parts = [mapping(mapping(part).get("content")) for part in items(update.get("content"))]
    return shortened("\n".join(text(part.get("text")) for part in parts))


def _usage(usage: Mapping[str, Json]) -> Event:
    return Event(Told.USAGE, data={"input": usage.get("inputTokens"), "output": usage.get("outputTokens")})


def _words(error: RpcError) -> str:
    """`Internal error: ` says nothing that the rest does not."""
    details = text(mapping(error.data).get("details"))
    return ": ".join(filter(None, (error.message.removeprefix("Internal error: "), details)))
