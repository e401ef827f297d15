"""The three ways in which agents talk to a model: what is in their requests, and how an answer is streamed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol
from uuid import uuid4

from tests.agents.turns import Turn, pieces

Body = Mapping[str, Any]
#: A line of a stream: the name of the event (or none) and its data.
Event = tuple[str, Mapping[str, Any] | str]
USAGE_IN, USAGE_OUT = 12, 7


class Tool(NamedTuple):
    """A tool as the agent offers it to the model; `space` is the group in which codex puts it."""

    name: str
    space: str = ""

    @property
    def whole(self) -> str:
        return f"{self.space}__{self.name}" if self.space else self.name


class Wire(Protocol):
    """One API. Reads requests and writes answers; decides nothing."""

    agent: ClassVar[str]
    path: ClassVar[str]
    #: Of the answer to this one request.
    message_id: str

    def conversation(self, body: Body) -> list[Any]: ...
    def system(self, body: Body) -> str: ...
    def users(self, body: Body) -> list[list[str]]: ...
    def results(self, body: Body) -> list[str]: ...
    def tools(self, body: Body) -> list[Tool]: ...
    def begin(self, body: Body) -> Iterator[Event]: ...
    def say(self, text: str) -> Iterator[Event]: ...
    def end(self, body: Body, turn: Turn) -> Iterator[Event]: ...
    def error(self, message: str) -> Event: ...
    def whole(self, body: Body, turn: Turn) -> Mapping[str, Any]: ...


def failure(wire: Wire, turn: Turn) -> Mapping[str, Any]:
    """An error as each provider words it."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(turn.status, "api_error")
    detail = {"type": kind, "message": turn.message}
    if wire.path == Messages.path:
        return {"type": "error", "error": detail}
    return {"error": {**detail, "code": kind}}


def texts(content: Any) -> list[str]:
    """The texts in a content, which is a text or blocks that have one."""
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content or [] if isinstance(block, dict) and isinstance(block.get("text"), str)]


class Messages:
    """Anthropic's Messages API, as claude speaks it."""

    agent: ClassVar[str] = "claude-code"
    path: ClassVar[str] = "/v1/messages"

    def __init__(self) -> None:
        self.message_id = _identity("msg")

    def conversation(self, body: Body) -> list[Any]:
        return list(body.get("messages", []))

    def system(self, body: Body) -> str:
        return "\n".join(texts(body.get("system", "")))

    def users(self, body: Body) -> list[list[str]]:
        return [said for m in self.conversation(body) if m["role"] == "user" and (said := texts(m["content"]))]

    def results(self, body: Body) -> list[str]:
        blocks = [block for m in self.conversation(body) if isinstance(m["content"], list) for block in m["content"]]
        return ["\n".join(texts(block.get("content"))) for block in blocks if block.get("type") == "tool_result"]

    def tools(self, body: Body) -> list[Tool]:
        return [Tool(tool["name"]) for tool in body.get("tools", [])]

    def begin(self, body: Body) -> Iterator[Event]:
        yield self._event("message_start", message=self._message(body, [], None))
        yield self._event("content_block_start", index=0, content_block={"type": "text", "text": ""})

    def say(self, text: str) -> Iterator[Event]:
        for piece in pieces(text):
            yield self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})

    def end(self, body: Body, turn: Turn) -> Iterator[Event]:
        yield self._event("content_block_stop", index=0)
        if turn.tool:
            block = {"type": "tool_use", "id": _identity("toolu"), "name": self._named(body, turn), "input": {}}
            yield self._event("content_block_start", index=1, content_block=block)
            for piece in pieces(json.dumps(turn.arguments, ensure_ascii=False)):
                yield self._event(
                    "content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": piece}
                )
            yield self._event("content_block_stop", index=1)
        stop = {"stop_reason": "tool_use" if turn.tool else "end_turn", "stop_sequence": None}
        yield self._event("message_delta", delta=stop, usage={"output_tokens": USAGE_OUT})
        yield self._event("message_stop")

    def error(self, message: str) -> Event:
        return self._event("error", error={"type": "overloaded_error", "message": message})

    def whole(self, body: Body, turn: Turn) -> Mapping[str, Any]:
        content: list[Mapping[str, Any]] = [{"type": "text", "text": turn.text}]
        if turn.tool:
            name = self._named(body, turn)
            content.append({"type": "tool_use", "id": _identity("toolu"), "name": name, "input": turn.arguments})
        return self._message(body, content, "tool_use" if turn.tool else "end_turn")

    def _named(self, body: Body, turn: Turn) -> str:
        return find(self.tools(body), turn.tool).name

    def _message(self, body: Body, content: list[Mapping[str, Any]], stop: str | None) -> Mapping[str, Any]:
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": USAGE_IN, "output_tokens": USAGE_OUT if stop else 1},
        }

    @staticmethod
    def _event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, **fields}


class Responses:
    """OpenAI's Responses API, as codex speaks it."""

    agent: ClassVar[str] = "codex"
    path: ClassVar[str] = "/v1/responses"

    def __init__(self) -> None:
        self.said, self.message_id = "", _identity("msg")

    def conversation(self, body: Body) -> list[Any]:
        return list(body.get("input", []))

    def system(self, body: Body) -> str:
        developer = [
            text
            for item in self.conversation(body)
            if item.get("role") == "developer"
            for text in texts(item["content"])
        ]
        return "\n".join([body.get("instructions") or "", *developer])

    def users(self, body: Body) -> list[list[str]]:
        return [texts(item["content"]) for item in self.conversation(body) if item.get("role") == "user"]

    def results(self, body: Body) -> list[str]:
        outputs = [item for item in self.conversation(body) if item.get("type", "").endswith("_call_output")]
        return ["\n".join(texts(item.get("output"))) for item in outputs]

    def tools(self, body: Body) -> list[Tool]:
        found = []
        for tool in body.get("tools", []):
            if tool.get("type") == "namespace":
                found += [Tool(inner["name"], tool["name"]) for inner in tool.get("tools", [])]
            else:
                found.append(Tool(tool.get("name") or tool["type"]))
        return found

    def begin(self, body: Body) -> Iterator[Event]:
        yield self._event("response.created", response=self._response(body, "in_progress", []))
        item = {"type": "message", "id": self.message_id, "role": "assistant", "status": "in_progress", "content": []}
        yield self._event("response.output_item.added", output_index=0, item=item)

    def say(self, text: str) -> Iterator[Event]:
        self.said += text
        for piece in pieces(text):
            yield self._event(
                "response.output_text.delta", item_id=self.message_id, output_index=0, content_index=0, delta=piece
            )

    def end(self, body: Body, turn: Turn) -> Iterator[Event]:
        output = [self._text(self.said)] if self.said else []
        for item in output:
            yield self._event("response.output_item.done", output_index=0, item=item)
        if turn.tool:
            made = self._call(body, turn)
            output.append(made)
            yield self._event("response.output_item.added", output_index=1, item={**made, "arguments": ""})
            for piece in pieces(made["arguments"]):
                yield self._event(
                    "response.function_call_arguments.delta", item_id=made["id"], output_index=1, delta=piece
                )
            yield self._event("response.output_item.done", output_index=1, item=made)
        yield self._event("response.completed", response=self._response(body, "completed", output))

    def error(self, message: str) -> Event:
        failed = {**self._response({}, "failed", []), "error": {"code": "server_is_overloaded", "message": message}}
        return self._event("response.failed", response=failed)

    def whole(self, body: Body, turn: Turn) -> Mapping[str, Any]:
        calls = [self._call(body, turn)] if turn.tool else []
        return self._response(body, "completed", [self._text(turn.text), *calls])

    def _text(self, text: str) -> dict[str, Any]:
        part = {"type": "output_text", "text": text, "annotations": []}
        return {"type": "message", "id": self.message_id, "role": "assistant", "status": "completed", "content": [part]}

    def _call(self, body: Body, turn: Turn) -> dict[str, Any]:
        tool = find(self.tools(body), turn.tool)
        return {
            "type": "function_call",
            "id": _identity("fc"),
            "call_id": _identity("call"),
            "name": tool.name,
            **({"namespace": tool.space} if tool.space else {}),
            "arguments": json.dumps(turn.arguments, ensure_ascii=False),
            "status": "completed",
        }

    def _response(self, body: Body, status: str, output: list[dict[str, Any]]) -> Mapping[str, Any]:
        usage = {
            "input_tokens": USAGE_IN,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": USAGE_OUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": USAGE_IN + USAGE_OUT,
        }
        return {
            "id": _identity("resp"),
            "object": "response",
            "status": status,
            "model": body.get("model"),
            "output": output,
            "usage": usage if status == "completed" else None,
        }

    @staticmethod
    def _event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, **fields}


class Completions:
    """OpenAI's Chat Completions API, as opencode speaks it to whoever is compatible with it."""

    agent: ClassVar[str] = "opencode"
    path: ClassVar[str] = "/v1/chat/completions"
    message_id = "chatcmpl-stub"

    def conversation(self, body: Body) -> list[Any]:
        return list(body.get("messages", []))

    def system(self, body: Body) -> str:
        return "\n".join(
            text
            for m in self.conversation(body)
            if m["role"] in {"system", "developer"}
            for text in texts(m["content"])
        )

    def users(self, body: Body) -> list[list[str]]:
        return [texts(m["content"]) for m in self.conversation(body) if m["role"] == "user"]

    def results(self, body: Body) -> list[str]:
        return ["\n".join(texts(m["content"])) for m in self.conversation(body) if m["role"] == "tool"]

    def tools(self, body: Body) -> list[Tool]:
        return [Tool(tool["function"]["name"]) for tool in body.get("tools", [])]

    def begin(self, body: Body) -> Iterator[Event]:
        yield self._chunk(body, {"role": "assistant", "content": ""})

    def say(self, text: str) -> Iterator[Event]:
        for piece in pieces(text):
            yield self._chunk({}, {"content": piece})

    def end(self, body: Body, turn: Turn) -> Iterator[Event]:
        if turn.tool:
            yield self._chunk(body, {"tool_calls": [{"index": 0, **self._call(body, turn, "")}]})
            for piece in pieces(json.dumps(turn.arguments, ensure_ascii=False)):
                yield self._chunk(body, {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        yield self._chunk(body, {}, "tool_calls" if turn.tool else "stop")
        yield "", {**self._base(body, "chat.completion.chunk"), "choices": [], "usage": self._usage()}
        yield "", "[DONE]"

    def error(self, message: str) -> Event:
        return "", {"error": {"type": "server_error", "code": "overloaded", "message": message}}

    def whole(self, body: Body, turn: Turn) -> Mapping[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text}
        if turn.tool:
            arguments = json.dumps(turn.arguments, ensure_ascii=False)
            message["tool_calls"] = [self._call(body, turn, arguments)]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if turn.tool else "stop"}
        return {**self._base(body, "chat.completion"), "choices": [choice], "usage": self._usage()}

    def _call(self, body: Body, turn: Turn, arguments: str) -> dict[str, Any]:
        function = {"name": find(self.tools(body), turn.tool).name, "arguments": arguments}
        return {"id": _identity("call"), "type": "function", "function": function}

    def _chunk(self, body: Body, delta: Mapping[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {**self._base(body, "chat.completion.chunk"), "choices": [choice]}

    def _base(self, body: Body, kind: str) -> dict[str, Any]:
        return {"id": self.message_id, "object": kind, "created": 1, "model": body.get("model", "m")}

    @staticmethod
    def _usage() -> dict[str, int]:
        return {
            "prompt_tokens": USAGE_IN,
            "completion_tokens": USAGE_OUT,
            "total_tokens": USAGE_IN + USAGE_OUT,
        }


WIRES: dict[str, type[Messages] | type[Responses] | type[Completions]] = {
    wire.path: wire for wire in (Messages, Responses, Completions)
}


def find(offered: list[Tool], wanted: str) -> Tool:
    """The tool with this name, or the one whose name ends in it; a name that nobody offers is called all the same."""
    exact = [tool for tool in offered if wanted in {tool.name, tool.whole}]
    ending = [tool for tool in offered if tool.whole.endswith(f"_{wanted}")]
    return (exact or ending or [Tool(wanted)])[0]


def _identity(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex[:20]}"
