"""Codex: its app server, JSON-RPC on stdio.

Its `error` notices do not end a turn: only `turn/completed` with the status `failed` does. The user's own configuration
decides about its sandbox and approvals; the approvals that it asks for come to us.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from skillyard.backends.driver import (
    NPM_PLATFORM,
    Backend,
    BackendProgram,
    ProgramDriver,
    Running,
    SkillsQuestion,
    Start,
    VisibleSkill,
    check_version,
)
from skillyard.backends.json_messages import (
    Peer,
    RpcError,
    RpcNotice,
    RpcRequest,
    RpcResponse,
    items,
    mapping,
    number,
    text,
)
from skillyard.backends.process import Played, Process, RunningBackend, launch, shortened, shown
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.messages import Message
from skillyard.core.values import Json

_PROGRAM: Final = BackendProgram(
    backend="codex",
    command="codex",
    variable="SKILLYARD_CODEX",
    package="@openai/codex",
    native=f"@openai/codex-{NPM_PLATFORM}/vendor/*/bin/codex",
    minimum="0.100",
)
_CLIENT: Mapping[str, Json] = {"name": "skillyard", "title": "Skillyard", "version": "1"}
#: Items of a turn that are calls, and the name of the tool.
_TOOLS = {"commandExecution": "shell", "fileChange": "apply_patch", "webSearch": "web_search"}
_NO_TOOLS = {"userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "contextCompaction"}
_ROOT: Final = re.compile(r"^- `(r\d+)` = `(.*)`$", re.MULTILINE)
_LISTED: Final = re.compile(r"^- (.+?): .*\(file: (.+)\)$", re.MULTILINE)
_STATUSES = {"unauthorized": 401, "rateLimitExceeded": 429, "usageLimitExceeded": 429, "internalServerError": 500}


class Codex(ProgramDriver):
    """A `Driver`."""

    bounds_turns = False

    def start(self, start: Start) -> Running:
        argv = (str(self.locate()), "app-server", "-c", "check_for_update_on_startup=false")
        return _RunningCodex(self.name, "codex login", start, launch(self.name, argv, start, self._env))


class _RunningCodex(RunningBackend):
    def __init__(self, backend: str, login: str, start: Start, process: Process) -> None:
        super().__init__(backend, login, start, process)
        self._peer = Peer(process.send, self._next)
        self._model: Json = None
        #: Codex's own id of the turn that runs, and the tokens that the session had used before it.
        self._turn_id = ""
        self._before: tuple[int, int] | None = None

    def _open(self) -> None:
        try:
            hello = self._peer.call("initialize", {"clientInfo": _CLIENT})
            check_version(_PROGRAM, text(hello.get("userAgent")))
            self._peer.notify("initialized")
            asked: dict[str, Json] = {"cwd": str(self._start.folder)}
            if self._start.model:
                asked["model"] = self._start.model
            wanted = self._start.session
            if wanted is None:
                opened = self._peer.call("thread/start", asked)
            else:
                opened = self._peer.call("thread/resume", {**asked, "threadId": wanted, "excludeTurns": True})
        except RpcError as error:
            raise self._failed(error.message) from None
        got = text(mapping(opened.get("thread")).get("id"))
        if wanted not in {None, got}:  # an unknown name makes it begin anew, as if nothing were wrong
            raise self._failed(Message("it went on with session {got} instead of {wanted}", got=got, wanted=wanted))
        self.session, self._model = got, opened.get("model")

    def _interrupt(self) -> None:
        if self.session and self._turn_id:
            self._peer.begin("turn/interrupt", {"threadId": self.session, "turnId": self._turn_id})

    def _play(self, text: str) -> Played:
        yield Event(EventKind.STARTED, data={"session": self.session, "model": self._model})
        self._turn_id, self._before = "", None
        words: Json = [{"type": "text", "text": text}]
        asked = self._peer.begin("turn/start", {"threadId": self.session, "input": words})
        while True:
            match self._peer.next():
                case RpcResponse(id=id_, error=error) if id_ == asked and error:
                    raise self._failed(error.message)
                case RpcResponse(id=id_, result=result) if id_ == asked:
                    self._turn_id = str(mapping(result.get("turn")).get("id"))
                    if self._cancelled_at is not None:
                        self._interrupt()
                case RpcRequest() as request:
                    self._answer(request)
                case RpcNotice(method="turn/completed", params=params) if self._ours(params):
                    turn = mapping(params.get("turn"))
                    if turn.get("id") == self._turn_id:
                        return self._completed(turn)
                case RpcNotice(method="thread/tokenUsage/updated", params=params) if self._ours(params):
                    yield self._used(mapping(params.get("tokenUsage")))
                case RpcNotice() as notice if self._ours(notice.params):
                    yield from _events(notice)

    def _ours(self, params: Mapping[str, Json]) -> bool:
        """Agents that codex starts itself send on the same connection, each in its own thread."""
        return params.get("threadId") == self.session

    def _used(self, usage: Mapping[str, Json]) -> Event:
        """Codex counts for the whole session; the first count of a turn shows where the turn began."""
        total, last = _tokens(usage.get("total")), _tokens(usage.get("last"))
        if self._before is None:
            self._before = (total[0] - last[0], total[1] - last[1])
        read, written = self._before
        return Event(EventKind.USAGE, data={"input": total[0] - read, "output": total[1] - written})

    def _completed(self, turn: Mapping[str, Json]) -> str:
        status = turn.get("status")
        if status == "failed":
            error = mapping(turn.get("error"))
            raise self._failed(_words(error), _status(error))
        return "" if status == "completed" else str(status)

    def _answer(self, request: RpcRequest) -> None:
        params = request.params
        match request.method:
            case "item/commandExecution/requestApproval":
                allowed = self._allows(Permission("shell", _reasoned(text(params.get("command")), params)))
                self._peer.answer(request, {"decision": "accept" if allowed else "decline"})
            case "item/fileChange/requestApproval":
                says = _reasoned(f"change files below {params.get('grantRoot') or self._start.folder}", params)
                allowed = self._allows(Permission("apply_patch", says))
                self._peer.answer(request, {"decision": "accept" if allowed else "decline"})
            case "mcpServer/elicitation/request":
                says = text(params.get("message")) or "a tool of an MCP server"
                allowed = self._allows(Permission(text(params.get("serverName")) or "mcp", says))
                self._peer.answer(request, {"action": "accept", "content": {}} if allowed else {"action": "decline"})
            case _:
                self._peer.refuse(request)


def _tokens(counted: Json) -> tuple[int, int]:
    counts = mapping(counted)
    return number(counts.get("inputTokens")) or 0, number(counts.get("outputTokens")) or 0


def _reasoned(what: str, params: Mapping[str, Json]) -> str:
    reason = text(params.get("reason"))
    return shortened(f"{what} ({reason})" if reason else what)


def _events(notice: RpcNotice) -> Iterator[Event]:
    params = notice.params
    match notice.method:
        case "item/agentMessage/delta":
            yield Event(EventKind.TEXT, text(params.get("delta")), {"message": params.get("itemId")})
        case "item/started":
            yield from _begun(mapping(params.get("item")))
        case "item/completed":
            yield from _ended(mapping(params.get("item")))
        case "error" if params.get("willRetry"):
            error = mapping(params.get("error"))
            yield Event(EventKind.ERROR, _words(error), {"status": _status(error), "retrying": True})


def _begun(item: Mapping[str, Json]) -> Iterator[Event]:
    kind = text(item.get("type"))
    if kind in _NO_TOOLS:
        return
    name = ".".join(filter(None, (text(item.get("server")), text(item.get("tool"))))) or _TOOLS.get(kind, kind)
    given = next((item[key] for key in ("command", "arguments", "changes", "query") if item.get(key)), None)
    yield Event(EventKind.TOOL_CALL, name, {"id": item.get("id"), "input": shown(given)})


def _ended(item: Mapping[str, Json]) -> Iterator[Event]:
    if item.get("type") in _NO_TOOLS:
        return
    ok = item.get("status") == "completed" and item.get("exitCode") in {None, 0}
    came = text(item.get("aggregatedOutput")) or _words(mapping(item.get("error"))) or _plain(item.get("result"))
    yield Event(EventKind.TOOL_RESULT, shortened(came or text(item.get("status"))), {"id": item.get("id"), "ok": ok})


def _plain(result: Json) -> str:
    return "\n".join(text(mapping(part).get("text")) for part in items(mapping(result).get("content")))


def _words(error: Mapping[str, Json]) -> str:
    return ": ".join(filter(None, (text(error.get("message")), text(error.get("additionalDetails")))))


def _status(error: Mapping[str, Json]) -> int | None:
    info = error.get("codexErrorInfo")
    if isinstance(info, str):
        return _STATUSES.get(info)
    codes = (number(mapping(inner).get("httpStatusCode")) for inner in mapping(info).values())
    return next(filter(None, codes), None)


def _skills_question(_: str) -> SkillsQuestion:
    quiet = ("-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false")
    return SkillsQuestion((*quiet, "debug", "prompt-input", "hi"), _read_skills)


def _read_skills(said: str) -> list[VisibleSkill]:
    texts = [part["text"] for item in json.loads(said) for part in item.get("content", ()) if "text" in part]
    listed = "\n".join(text for text in texts if text.startswith("<skills_instructions>"))
    roots = dict(_ROOT.findall(listed))
    found: list[VisibleSkill] = []
    for name, path in _LISTED.findall(listed):
        first, _, rest = path.partition("/")
        found.append(VisibleSkill(name, f"{roots[first]}/{rest}" if first in roots else path))
    return found


BACKEND: Final = Backend(_PROGRAM, lambda env: Codex(_PROGRAM, env), _skills_question)
