"""Claude Code: its own stream of JSON, both ways.

Its `result` says `success` also for an API error: only `is_error` counts. It would read a file that is named with `@`
into the task; that is switched off, so that the text arrives as it was written. Only a leading `/`, which would be a
command of its own, gets a newline before it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

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
from skillyard.backends.json_messages import items, mapping, number, text
from skillyard.backends.process import Played, RunningBackend, launch, shortened, shown
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.values import Json

_PROGRAM: Final = BackendProgram(
    backend="claude-code",
    command="claude",
    variable="SKILLYARD_CLAUDE_CODE",
    package="@anthropic-ai/claude-code",
    native=f"@anthropic-ai/claude-code-{NPM_PLATFORM}*/claude",
    minimum="2.1",
)
_ARGUMENTS = (
    *("-p", "--verbose", "--include-partial-messages"),
    *("--input-format", "stream-json", "--output-format", "stream-json", "--permission-prompt-tool", "stdio"),
)
_LOGIN = "claude, then /login; or set ANTHROPIC_API_KEY"


class ClaudeCode(ProgramDriver):
    """A `Driver`."""

    bounds_turns = True

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
        return _RunningClaude(self.name, _LOGIN, start, launch(self.name, argv, start, env))


class _RunningClaude(RunningBackend):
    def _open(self) -> None:
        """It reports its version with its first answer."""

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
        self._process.forget()  # messages from between the turns are no answer to this one
        self._process.send({"type": "user", "message": {"role": "user", "content": content}})

    def _started(self, init: Mapping[str, Json]) -> Event:
        self.session = text(init.get("session_id")) or self.session
        check_version(_PROGRAM, text(init.get("claude_code_version")))
        return Event(EventKind.STARTED, data={"session": self.session, "model": init.get("model")})

    def _piece(self, message: Mapping[str, Json]) -> Iterator[Event]:
        event = mapping(message.get("event"))
        delta = mapping(event.get("delta"))
        if event.get("type") == "content_block_delta" and delta.get("type") == "text_delta":
            yield Event(EventKind.TEXT, text(delta.get("text")), {"message": message.get("api_message_id")})

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
            yield Event(EventKind.TEXT, said)
        subtype, stop = text(result.get("subtype")), text(result.get("stop_reason"))
        if subtype != "success":
            return subtype
        return stop if stop in {"max_tokens", "refusal"} else ""

    def _refused(self, result: Mapping[str, Json]) -> Exception:
        listed = map(text, items(result.get("errors")))
        words = text(result.get("result")) or "; ".join(filter(None, listed)) or text(result.get("subtype"))
        return self._failed(words, number(result.get("api_error_status")))


def _says(given: Mapping[str, Json]) -> str:
    """Return what a person must see of a call: the command or the path if there is one, else all of it."""
    for name in ("command", "file_path", "url"):
        if told := text(given.get(name)):
            return told
    return shortened(str(dict(given)))


def _retry(message: Mapping[str, Json]) -> Event:
    status = message.get("error_status")
    words = f"{text(message.get('error')) or 'the model failed'}, trying again"
    attempts: dict[str, Json] = {"attempt": message.get("attempt"), "attempts": message.get("max_retries")}
    return Event(EventKind.ERROR, words, {"status": status, "retrying": True, **attempts})


def _tools(message: Mapping[str, Json]) -> Iterator[Event]:
    for block in map(mapping, items(mapping(message.get("message")).get("content"))):
        if block.get("type") == "tool_use":
            yield Event(
                EventKind.TOOL_CALL,
                text(block.get("name")),
                {"id": block.get("id"), "input": shown(block.get("input"))},
            )
        elif block.get("type") == "tool_result":
            ok = not block.get("is_error")
            yield Event(EventKind.TOOL_RESULT, _plain(block.get("content")), {"id": block.get("tool_use_id"), "ok": ok})


def _plain(content: Json) -> str:
    blocks = "\n".join(text(mapping(block).get("text")) for block in items(content))
    return shortened(text(content) or blocks)


def _usage(result: Mapping[str, Json]) -> Event:
    usage = mapping(result.get("usage"))
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    read = sum(value for part in parts if (value := number(usage.get(part))))
    return Event(
        EventKind.USAGE,
        data={"input": read, "output": usage.get("output_tokens"), "cost": result.get("total_cost_usd")},
    )


def _skills_question(url: str) -> SkillsQuestion:
    """`/cost` is answered without a model; before it comes the event that lists the skills."""
    asked = (
        {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}},
        {"type": "user", "message": {"role": "user", "content": "/cost"}},
    )
    address = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
    argv = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--strict-mcp-config")
    settings = json.dumps({"disableAllHooks": True, "env": address})
    quiet = (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_AUTOUPDATER",
    )
    return SkillsQuestion(
        argv=(*argv, "--no-session-persistence", "--settings", settings),
        stdin="".join(f"{json.dumps(line)}\n" for line in asked),
        env={**address, **dict.fromkeys(quiet, "1"), "CLAUDE_CODE_MAX_RETRIES": "0"},
        read=_read_skills,
    )


def _read_skills(said: str) -> list[VisibleSkill]:
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (init,) = (event for event in events if event.get("subtype") == "init")
    commands = [
        command
        for event in events
        if event.get("type") == "control_response"
        for command in event["response"]["response"]["commands"]
    ]
    owners = {name: _owner(command) for command in commands for name in _names(command)}
    return [VisibleSkill(name, owner=owners.get(name, "")) for name in init["skills"]]


def _names(command: Mapping[str, Any]) -> list[str]:
    """Return a skill's own name, and its folder's if that differs."""
    return [command["name"], *command.get("aliases", ())]


def _owner(command: Mapping[str, Any]) -> str:
    found = re.search(r"\((user|project)\)$", command["description"])
    return found[1] if found else ""


BACKEND: Final = Backend(_PROGRAM, lambda env: ClaudeCode(_PROGRAM, env), _skills_question)
