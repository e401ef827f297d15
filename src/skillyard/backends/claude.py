"""Claude Code: its own stream of JSON, both ways.

Its `result` says `success` also for an API error: only `is_error` counts. A file that is named with `@` would be read
into the task; that is switched off, so that what arrives is what was written. Only a leading `/`, a command of its own,
gets a newline before it.
"""

import os
from collections.abc import Iterator, Mapping

from skillyard.backends.driver import Event, Permission, Running, Start, Told
from skillyard.backends.json_access import items, mapping, number, text
from skillyard.backends.programs import PROGRAMS, Located, check_version, version_in
from skillyard.backends.running import Agent, Played, launch, shortened, shown
from skillyard.core.values import Json

_PROGRAM = PROGRAMS["claude-code"]
_ARGUMENTS = (
    *("-p", "--verbose", "--include-partial-messages"),
    *("--input-format", "stream-json", "--output-format", "stream-json", "--permission-prompt-tool", "stdio"),
)
_LOGIN = "claude, then /login; or set ANTHROPIC_API_KEY"


class ClaudeCode(Located):
    """A `Driver`."""

    bounds_turns = True

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        super().__init__(_PROGRAM, env)

    def start(self, start: Start) -> Running:
        argv = [str(self.locate()), *_ARGUMENTS]
        given = {
            "--model": start.model,
            "--resume": start.session,
            "--allowedTools": ",".join(start.allowed_tools),
            "--max-turns": start.max_turns,
        }
        argv += [f"{option}={value}" for option, value in given.items() if value]  # a value is never an option
        env = {
            "CLAUDE_CODE_MAX_RETRIES": "3",  # its own default is ten, also for a key that is wrong
            **{name: value for name, value in self._env.items() if name != "CLAUDECODE"},
            "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        return _Claude(self.name, _LOGIN, start, launch(self.name, argv, start, env))


class _Claude(Agent):
    def _open(self) -> None:
        """It says who it is with its first answer."""

    def _greet(self) -> None:
        self._process.send({"type": "control_request", "request_id": "hello", "request": {"subtype": "initialize"}})
        while self._next().get("type") != "control_response":
            pass

    def _interrupt(self) -> None:
        self._process.send({"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}})

    def _play(self, text: str) -> Played:
        self._say(text)
        started, spoken = False, False
        while True:
            message = self._next()
            match message.get("type"):
                case "system" if message.get("subtype") == "init" and not started:
                    started = True
                    yield self._started(message)
                case "system" if message.get("subtype") == "api_retry":
                    yield _retry(message)
                case "stream_event" if message.get("parent_tool_use_id") is None:
                    for event in self._piece(message):
                        spoken = True
                        yield event
                case "assistant" | "user":
                    yield from _tools(message)
                case "control_request":
                    self._permit(message)
                case "result":
                    if not started:
                        raise self._refused(message)
                    yield _usage(message)
                    return (yield from self._finished(message, spoken))

    def _say(self, text: str) -> None:
        if text.startswith("/"):
            text = "\n" + text
        content: Json = [{"type": "text", "text": text}]
        self._process.forget()  # what it did by itself since the last turn is no answer to this one
        self._process.send({"type": "user", "message": {"role": "user", "content": content}})

    def _started(self, init: Mapping[str, Json]) -> Event:
        self.session = text(init.get("session_id")) or self.session
        version = version_in(text(init.get("claude_code_version")))
        if version:
            check_version(_PROGRAM, version)
        return Event(Told.STARTED, data={"session": self.session, "model": init.get("model")})

    def _piece(self, message: Mapping[str, Json]) -> Iterator[Event]:
        event = mapping(message.get("event"))
        delta = mapping(event.get("delta"))
        if event.get("type") == "content_block_delta" and delta.get("type") == "text_delta":
            yield Event(Told.TEXT, text(delta.get("text")), {"message": message.get("api_message_id")})

    def _permit(self, message: Mapping[str, Json]) -> None:
        request = mapping(message.get("request"))
        answer: dict[str, Json]
        if request.get("subtype") == "can_use_tool":
            given = mapping(request.get("input"))
            tool = text(request.get("tool_name"))
            if self._allows(Permission(tool, _says(given))):
                answer = {"behavior": "allow", "updatedInput": given}
            else:
                answer = {"behavior": "deny", "message": "The user did not allow this."}
            response: dict[str, Json] = {"subtype": "success", "response": answer}
        else:
            response = {"subtype": "error", "error": "not offered"}
        response["request_id"] = message.get("request_id")
        self._process.send({"type": "control_response", "response": response})

    def _finished(self, result: Mapping[str, Json], spoken: bool) -> Played:
        if result.get("is_error"):
            raise self._refused(result)
        said = text(result.get("result"))
        if said and not spoken:  # a command of its own answered, and no model
            yield Event(Told.TEXT, said)
        subtype, stop = text(result.get("subtype")), text(result.get("stop_reason"))
        if subtype != "success":
            return subtype
        return stop if stop in {"max_tokens", "refusal"} else ""

    def _refused(self, result: Mapping[str, Json]) -> Exception:
        listed = map(text, items(result.get("errors")))
        words = text(result.get("result")) or "; ".join(filter(None, listed)) or text(result.get("subtype"))
        return self._failed(words, number(result.get("api_error_status")))


def _says(given: Mapping[str, Json]) -> str:
    """What a person must see of a call: the command or the path if there is one, else all of it."""
    for name in ("command", "file_path", "url"):
        if told := text(given.get(name)):
            return told
    return shortened(str(dict(given)))


def _retry(message: Mapping[str, Json]) -> Event:
    status = message.get("error_status")
    words = f"{text(message.get('error')) or 'the model failed'}, trying again"
    attempts: dict[str, Json] = {"attempt": message.get("attempt"), "attempts": message.get("max_retries")}
    return Event(Told.ERROR, words, {"status": status, "retrying": True, **attempts})


def _tools(message: Mapping[str, Json]) -> Iterator[Event]:
    for block in map(mapping, items(mapping(message.get("message")).get("content"))):
        if block.get("type") == "tool_use":
            yield Event(
                Told.TOOL_CALL, text(block.get("name")), {"id": block.get("id"), "input": shown(block.get("input"))}
            )
        elif block.get("type") == "tool_result":
            ok = not block.get("is_error")
            yield Event(Told.TOOL_RESULT, _plain(block.get("content")), {"id": block.get("tool_use_id"), "ok": ok})


def _plain(content: Json) -> str:
    blocks = "\n".join(text(mapping(block).get("text")) for block in items(content))
    return shortened(text(content) or blocks)


def _usage(result: Mapping[str, Json]) -> Event:
    usage = mapping(result.get("usage"))
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    read = sum(value for part in parts if (value := number(usage.get(part))))
    return Event(
        Told.USAGE, data={"input": read, "output": usage.get("output_tokens"), "cost": result.get("total_cost_usd")}
    )
