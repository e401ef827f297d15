"""Codex: its app server, JSON-RPC on stdio.

Its `error` notices do not end a turn: only `turn/completed` with the status `failed` does. The user's own configuration
decides about its sandbox and approvals; the approvals that it asks for come to us.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from skillyard.backends.driver import NPM_PLATFORM, Driver, Running, SkillsQuestion, Start, VisibleSkill
from skillyard.backends.json_messages import (
    CLIENT,
    Peer,
    RpcError,
    RpcRequest,
    RpcResponse,
    joined,
    mapping,
    number,
    shortened,
    text,
    tool_call,
    tool_result,
)
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.messages import Message
from skillyard.core.values import Json

#: Items of a turn that are calls, and the name of the tool.
_TOOLS = {"commandExecution": "shell", "fileChange": "apply_patch", "webSearch": "web_search"}
_NO_TOOLS = {"userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "contextCompaction"}
_ROOT: Final = re.compile(r"^- `(r\d+)` = `(.*)`$", re.MULTILINE)
_LISTED: Final = re.compile(r"^- (.+?): .*\(file: (.+)\)$", re.MULTILINE)
_SANDBOXES: Final = {
    PermissionProfile.READ: "read-only",
    PermissionProfile.EDIT: "workspace-write",
    PermissionProfile.FULL: "danger-full-access",
}
_UNREACHABLE: Final = re.compile(
    r"waiting for network|failed to lookup address|dns error|error sending request|connection refused|unreachable",
    re.IGNORECASE,
)
#: It would wait for the network without an end.
_MOST_UNREACHABLE: Final = 3
_STATUSES = {"unauthorized": 401, "rateLimitExceeded": 429, "usageLimitExceeded": 429, "internalServerError": 500}


class Codex(Driver):
    name = command = "codex"
    variable = "SKILLYARD_CODEX"
    package = "@openai/codex"
    native = f"@openai/codex-{NPM_PLATFORM}/vendor/*/bin/codex"
    minimum = "0.100"
    login = "codex login"

    def start(self, start: Start) -> Running:
        argv = (str(self.locate()), "app-server", "-c", "check_for_update_on_startup=false")
        return _RunningCodex(self, start, argv, self._env)

    def skills_question(self, url: str) -> SkillsQuestion:
        del url
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


class _RunningCodex(Running):
    def __init__(self, driver: Driver, start: Start, argv: Sequence[str], env: Mapping[str, str]) -> None:
        super().__init__(driver, start, argv, env)
        self._peer = Peer(self._process.send, self._next)
        self._model: Json = None
        #: Codex's own id of the turn that runs, and the tokens that the session had used before it.
        self._turn_id = ""
        self._before: tuple[int, int] | None = None
        #: How often in a row it did not reach its model.
        self._unreachable = 0

    def _open(self) -> None:
        wanted = self._start.session
        try:
            hello = self._peer.call("initialize", {"clientInfo": CLIENT})
            self._driver.check_version(text(hello.get("userAgent")))
            self._peer.notify("initialized")
            asked: dict[str, Json] = {"cwd": str(self._start.folder)}
            if self._start.model:
                asked["model"] = self._start.model
            if self._start.profile:
                asked |= {"sandbox": _SANDBOXES[self._start.profile], "approvalPolicy": "on-request"}
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

    def _play(self, task: str) -> Iterator[Event]:
        yield Event(EventKind.STARTED, data={"session": self.session, "model": self._model})
        self._turn_id, self._before, self._unreachable = "", None, 0
        words: Json = [{"type": "text", "text": task}]
        asked = self._peer.begin("turn/start", {"threadId": self.session, "input": words})
        while True:
            match self._peer.next():
                case RpcResponse(id=id_, error=error) if id_ == asked and error:
                    raise self._failed(error.message)
                case RpcResponse(id=id_, result=result) if id_ == asked:
                    self._turn_id = str(mapping(result.get("turn")).get("id"))
                    if self._cancelled_at is not None:
                        self._interrupt()
                case RpcRequest(id=int() | str()) as request:
                    self._permit(request)
                # Agents that codex starts itself send on the same connection, each in its own thread.
                case RpcRequest(params=params) as notice if params.get("threadId") == self.session:
                    turn = mapping(params.get("turn"))
                    if notice.method == "turn/completed" and turn.get("id") == self._turn_id:
                        self._complete(turn)
                        return
                    yield from self._events(notice)

    def _complete(self, turn: Mapping[str, Json]) -> None:
        status = turn.get("status")
        if status == "failed":
            error = mapping(turn.get("error"))
            raise self._failed(_words(error), _status(error))
        self._cut = "" if status == "completed" else str(status)

    def _events(self, notice: RpcRequest) -> Iterator[Event]:
        params = notice.params
        item, error = mapping(params.get("item")), mapping(params.get("error"))
        match notice.method:
            case "thread/tokenUsage/updated":
                yield self._used(mapping(params.get("tokenUsage")))
            case "item/agentMessage/delta":
                yield Event(EventKind.TEXT, text(params.get("delta")), {"message": params.get("itemId")})
            case "item/completed" if item.get("type") == "agentMessage":
                said = text(item.get("text"))
                if item.get("id") != self._message:
                    yield Event(EventKind.TEXT, said, {"message": item.get("id")})
                self._answer = said
            case "item/started" if text(item.get("type")) not in _NO_TOOLS:
                kind = text(item.get("type"))
                name = ".".join(filter(None, (text(item.get("server")), text(item.get("tool")))))
                given = next((item[key] for key in ("command", "arguments", "changes", "query") if item.get(key)), None)
                yield tool_call(item.get("id"), name or _TOOLS.get(kind, kind), given)
            case "item/completed" if text(item.get("type")) not in _NO_TOOLS:
                result = joined(mapping(item.get("result")).get("content"))
                came = text(item.get("aggregatedOutput")) or _words(mapping(item.get("error"))) or result
                ok = item.get("status") == "completed" and item.get("exitCode") in {None, 0}
                yield tool_result(item.get("id"), came or text(item.get("status")), ok)
            case "warning" if _UNREACHABLE.search(text(params.get("message"))):
                yield Event(EventKind.ERROR, text(params.get("message")), {"retrying": True})
            case "error" if params.get("willRetry"):
                self._check_reachable(_words(error))
                yield Event(EventKind.ERROR, _words(error), {"status": _status(error), "retrying": True})

    def _check_reachable(self, words: str) -> None:
        self._unreachable = self._unreachable + 1 if _UNREACHABLE.search(words) else 0
        if self._unreachable >= _MOST_UNREACHABLE:
            earlier = f" ({self._trouble})" if self._trouble and self._trouble != words else ""
            raise self._failed(Message("its model cannot be reached: {words}{earlier}", words=words, earlier=earlier))

    def _used(self, usage: Mapping[str, Json]) -> Event:
        """Codex counts for the whole session; the first count of a turn shows where the turn began."""
        total, last = _tokens(usage.get("total")), _tokens(usage.get("last"))
        if self._before is None:
            self._before = (total[0] - last[0], total[1] - last[1])
        read, written = self._before
        return Event(EventKind.USAGE, data={"input": total[0] - read, "output": total[1] - written})

    def _permit(self, request: RpcRequest) -> None:
        params, reason = request.params, text(request.params.get("reason"))
        accept: dict[str, Json] = {"decision": "accept"}
        decline: dict[str, Json] = {"decision": "decline"}
        match request.method:
            case "item/commandExecution/requestApproval":
                tool, says = "shell", text(params.get("command"))
            case "item/fileChange/requestApproval":
                tool, says = "apply_patch", f"change files below {params.get('grantRoot') or self._start.folder}"
            case "mcpServer/elicitation/request":
                tool = text(params.get("serverName")) or "mcp"
                says = text(params.get("message")) or "a tool of an MCP server"
                accept, decline = {"action": "accept", "content": {}}, {"action": "decline"}
            case _:
                self._peer.refuse(request)
                return
        allowed = self._allows(Permission(tool, shortened(f"{says} ({reason})" if reason else says)))
        self._peer.answer(request, accept if allowed else decline)


def _tokens(counted: Json) -> tuple[int, int]:
    counts = mapping(counted)
    return number(counts.get("inputTokens")) or 0, number(counts.get("outputTokens")) or 0


def _words(error: Mapping[str, Json]) -> str:
    return ": ".join(filter(None, (text(error.get("message")), text(error.get("additionalDetails")))))


def _status(error: Mapping[str, Json]) -> int | None:
    info = error.get("codexErrorInfo")
    if isinstance(info, str):
        return _STATUSES.get(info)
    codes = (number(mapping(inner).get("httpStatusCode")) for inner in mapping(info).values())
    return next(filter(None, codes), None)


BACKEND: Final = Codex
