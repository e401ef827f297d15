"""Claude Code: its own stream of JSON, both ways.

Its `result` says `success` also for an API error: only `is_error` counts. Of a stream that breaks it marks the half
that came as `abandoned_blocks`, and tries again; the text of `result` is the answer, whatever came before.

It would read a file that is named with `@` into the task; that is switched off, so that the text arrives as it was
written. Only a leading `/`, which would be a command of its own, gets a newline before it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from skillyard.backends.driver import NPM_PLATFORM, Driver, Running, SkillsQuestion, Start, VisibleSkill
from skillyard.backends.json_messages import items, joined, mapping, number, shortened, text, tool_call, tool_result
from skillyard.core.backend_events import Event, EventKind, Permission
from skillyard.core.dispatch_settings import PermissionProfile
from skillyard.core.values import Json

_STREAMS: Final = ("-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
_QUIET: Final = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_AUTOUPDATER",
)
_INPUT_TOKENS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


#: What it allows by itself; for `full` we say yes to whatever it asks.
_MODES: Final = {
    PermissionProfile.READ: "default",
    PermissionProfile.EDIT: "acceptEdits",
    PermissionProfile.FULL: "default",
}
_EDITS: Final = ("Edit", "Write", "NotebookEdit", "MultiEdit")
_MOST_SETTINGS_BYTES: Final = 1_000_000


class ClaudeCode(Driver):
    name = "claude-code"
    command = "claude"
    variable = "SKILLYARD_CLAUDE_CODE"
    package = "@anthropic-ai/claude-code"
    native = f"@anthropic-ai/claude-code-{NPM_PLATFORM}*/claude"
    minimum = "2.1"
    login = "claude, then /login; or set ANTHROPIC_API_KEY"
    bounds_turns = True

    def start(self, start: Start) -> Running:
        argv = [str(self.locate()), *_STREAMS, "--include-partial-messages", "--permission-prompt-tool", "stdio"]
        given = {
            "--model": start.model,
            "--resume": start.session,
            "--allowedTools": ",".join(start.allowed_tools),
            "--max-turns": start.max_turns,
            "--permission-mode": _MODES.get(start.profile) if start.profile else None,
            "--settings": _without_project_rules(start),
        }
        argv += [f"{option}={value}" for option, value in given.items() if value]  # a value is never an option
        env = {
            "CLAUDE_CODE_MAX_RETRIES": "3",  # its own default is ten, also for a key that is wrong
            **{name: value for name, value in self._env.items() if name != "CLAUDECODE"},
            "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        return _RunningClaude(self, start, argv, env)

    def skills_question(self, url: str) -> SkillsQuestion:
        """`/cost` is answered without a model; before it comes the event that lists the skills."""
        asked = (
            {"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}},
            {"type": "user", "message": {"role": "user", "content": "/cost"}},
        )
        address = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
        settings = json.dumps({"disableAllHooks": True, "env": address})
        return SkillsQuestion(
            argv=(*_STREAMS, "--strict-mcp-config", "--no-session-persistence", "--settings", settings),
            stdin="".join(f"{json.dumps(line)}\n" for line in asked),
            env={**address, **dict.fromkeys(_QUIET, "1"), "CLAUDE_CODE_MAX_RETRIES": "0"},
            read=_read_skills,
        )


def _without_project_rules(start: Start) -> str:
    """Return settings that make claude ask where the project's own settings allow: they may have come with a clone."""
    if start.profile in {None, PermissionProfile.FULL}:
        return ""
    rules: list[str] = []
    for name in ("settings.json", "settings.local.json"):
        try:
            with (start.folder / ".claude" / name).open("rb") as file:
                found = json.loads(file.read(_MOST_SETTINGS_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        rules += map(text, items(mapping(mapping(found).get("permissions")).get("allow")))
    may_edit = start.profile is PermissionProfile.EDIT
    asked = [rule for rule in rules if rule and not (may_edit and rule.startswith(_EDITS))]
    return json.dumps({"permissions": {"ask": asked}}) if asked else ""


def _read_skills(said: str) -> list[VisibleSkill]:
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (init,) = (event for event in events if event.get("subtype") == "init")
    owners: dict[str, str] = {}
    for event in events:
        if event.get("type") == "control_response":
            for command in event["response"]["response"]["commands"]:
                owner = re.search(r"\((user|project)\)$", command["description"])
                # A skill's own name, and its folder's if that differs.
                owners |= dict.fromkeys([command["name"], *command.get("aliases", ())], owner[1] if owner else "")
    return [VisibleSkill(name, owner=owners.get(name, "")) for name in init["skills"]]


class _RunningClaude(Running):
    def _open(self) -> None:
        """It reports its version with its first answer."""

    def _greet(self) -> None:
        self._process.send({"type": "control_request", "request_id": "hello", "request": {"subtype": "initialize"}})
        while self._next().get("type") != "control_response":
            pass

    def _interrupt(self) -> None:
        self._process.send({"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}})

    def _play(self, task: str) -> Iterator[Event]:
        content: Json = [{"type": "text", "text": f"\n{task}" if task.startswith("/") else task}]
        self._process.forget()  # messages from between the turns are no answer to this one
        self._process.send({"type": "user", "message": {"role": "user", "content": content}})
        started = False
        while True:
            message = self._next()
            match message.get("type"):
                case "system" if message.get("subtype") == "init" and not started:
                    started = True
                    self.session = text(message.get("session_id")) or self.session
                    self._driver.check_version(text(message.get("claude_code_version")))
                    yield Event(EventKind.STARTED, data={"session": self.session, "model": message.get("model")})
                case "control_request":
                    self._permit(message)
                case "result":
                    if not started:
                        raise self._refused(message)
                    yield from self._finish(message)
                    return
                case "assistant" if message.get("parent_tool_use_id") is None:
                    yield from self._unstreamed(mapping(message.get("message")))
                    yield from _events(message)
                case _:
                    yield from _events(message)

    def _unstreamed(self, said: Mapping[str, Json]) -> Iterator[Event]:
        """Yield the text of a message that did not come in pieces; not what claude says itself, of an error."""
        if said.get("id") != self._message and said.get("model") != "<synthetic>":
            texts = "".join(text(block.get("text")) for block in map(mapping, items(said.get("content"))))
            if texts:
                yield Event(EventKind.TEXT, texts, {"message": said.get("id")})

    def _permit(self, message: Mapping[str, Json]) -> None:
        request = mapping(message.get("request"))
        response: dict[str, Json] = {"subtype": "error", "error": "not offered"}
        if request.get("subtype") == "can_use_tool":
            given = mapping(request.get("input"))
            answer: dict[str, Json] = {"behavior": "deny", "message": "The user did not allow this."}
            if self._allows(_permission(request)):
                answer = {"behavior": "allow", "updatedInput": given}
            response = {"subtype": "success", "response": answer}
        response["request_id"] = message.get("request_id")
        self._process.send({"type": "control_response", "response": response})

    def _finish(self, result: Mapping[str, Json]) -> Iterator[Event]:
        usage = mapping(result.get("usage"))
        read = sum(number(usage.get(part)) or 0 for part in _INPUT_TOKENS)
        used = {"input": read, "output": usage.get("output_tokens"), "cost": result.get("total_cost_usd")}
        yield Event(EventKind.USAGE, data=used)
        if result.get("is_error"):
            raise self._refused(result)
        said = text(result.get("result"))
        for denial in map(mapping, items(result.get("permission_denials"))):
            self._denied.append(_permission({**denial, "input": denial.get("tool_input")}))
        if said and not self._said:  # a command of its own answered, and no model
            yield Event(EventKind.TEXT, said)
        subtype, stop = text(result.get("subtype")), text(result.get("stop_reason"))
        if subtype == "success":
            self._answer = said
        if subtype != "success":
            self._cut = subtype
        elif stop in {"max_tokens", "refusal"}:
            self._cut = stop

    def _refused(self, result: Mapping[str, Json]) -> Exception:
        listed = map(text, items(result.get("errors")))
        words = text(result.get("result")) or "; ".join(filter(None, listed)) or text(result.get("subtype"))
        return self._failed(words, number(result.get("api_error_status")))


def _permission(asked: Mapping[str, Json]) -> Permission:
    """What a person must see of a call: the command or the path if there is one, else all of it."""
    given = mapping(asked.get("input"))
    named = (text(given.get(name)) for name in ("command", "file_path", "url"))
    says = next(filter(None, named), "") or shortened(str(dict(given)))
    return Permission(text(asked.get("tool_name")), says)


def _events(message: Mapping[str, Json]) -> Iterator[Event]:
    match message.get("type"):
        case "system" if message.get("subtype") == "api_retry":
            words = f"{text(message.get('error')) or 'the model failed'}, trying again"
            status, attempt, attempts = map(message.get, ("error_status", "attempt", "max_retries"))
            data: dict[str, Json] = {"status": status, "retrying": True, "attempt": attempt, "attempts": attempts}
            yield Event(EventKind.ERROR, words, data)
        case "stream_event" if message.get("parent_tool_use_id") is None:
            event = mapping(message.get("event"))
            delta = mapping(event.get("delta"))
            if event.get("type") == "content_block_delta" and delta.get("type") == "text_delta":
                yield Event(EventKind.TEXT, text(delta.get("text")), {"message": message.get("api_message_id")})
            if "abandoned_blocks" in message:
                yield Event(EventKind.ERROR, "the answer broke off", {"retrying": True})
        case "assistant" | "user":
            for block in map(mapping, items(mapping(message.get("message")).get("content"))):
                if block.get("type") == "tool_use":
                    yield tool_call(block.get("id"), text(block.get("name")), block.get("input"))
                elif block.get("type") == "tool_result":
                    content = block.get("content")
                    output = text(content) or joined(content)
                    yield tool_result(block.get("tool_use_id"), output, ok=not block.get("is_error"))


BACKEND: Final = ClaudeCode
