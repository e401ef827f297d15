"""The configuration with which each agent starts `skillyard mcp`, merged into a file that is in use.

Nothing in it approves a call: that is up to the person. An entry of ours that was changed is left alone.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from skillyard.catalog.files import read_whole
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.install.names import quoted
from skillyard.install.target import write_whole

SERVER = "skillyard"
AGENTS = ("claude-code", "codex", "opencode")
#: Codex gives a server ten seconds by default, and a cold disk can take as long to start it.
_START_SECONDS = 30
#: A silent call is ended by Codex after five minutes, by OpenCode after one. A skill has a limit of its own.
_CALL_SECONDS = 3_600
_MOST_BYTES = 10_000_000


class EntryState(StrEnum):
    """The state of our entry in an agent's file."""

    MISSING = "missing"
    WRITTEN = "written"
    KEPT = "kept"
    DIFFERS = "differs"
    #: The file is there and is not what we could change without losing something: with comments, or broken.
    UNREADABLE = "unreadable"


class AgentConfig(NamedTuple):
    """One agent's file: our entry, and the whole file with it."""

    agent: str
    path: str
    #: What a person can paste: a whole file by itself.
    text: str
    entry: EntryState
    merged: str = ""


def make_config(
    root: Path, agent: str, command: Sequence[str], env: Mapping[str, str] | None = None, passed: Sequence[str] = ()
) -> AgentConfig:
    """Our entry for an agent, and its file with the entry merged in: MISSING if `merged` can be written.

    `passed` are variables of the agent that the server needs; Codex alone must be told to pass them on.
    """
    env = env or {}
    if agent not in AGENTS:
        raise InvalidArgs(Message("no agent {agent!r}; there are {agents}", agent=agent, agents=", ".join(AGENTS)))
    program, *args = (*command, "mcp")
    name, table, first = ".mcp.json", "mcpServers", dict[str, Any]()
    mine: dict[str, Any] = {"type": "stdio", "command": program, "args": args, **({"env": {**env}} if env else {})}
    if agent == "opencode":
        name, table = "opencode.jsonc" if (root / "opencode.jsonc").exists() else "opencode.json", "mcp"
        first = {"$schema": "https://opencode.ai/config.json"}
        more = {"environment": {**env}} if env else {}
        mine = {"type": "local", "command": [program, *args], "enabled": True, "timeout": _CALL_SECONDS * 1000, **more}
    text = _as_json({**first, table: {SERVER: mine}})
    if agent == "codex":
        name, table, text = ".codex/config.toml", "mcp_servers", _as_toml(program, args, env, passed)
        mine = tomllib.loads(text)[table][SERVER]
    unreadable = AgentConfig(agent, name, text, EntryState.UNREADABLE)
    try:
        content = read_whole(root / name, _MOST_BYTES, follow=True)
        known = tomllib.loads(content) if agent == "codex" else _read_json(content)
    except FileNotFoundError:
        return AgentConfig(agent, name, text, EntryState.MISSING, text)
    except (ValueError, RecursionError):
        return unreadable
    servers = known.get(table, {}) if isinstance(known, dict) else None
    if not isinstance(servers, dict):
        return unreadable
    if SERVER in servers:
        return AgentConfig(agent, name, text, EntryState.KEPT if servers[SERVER] == mine else EntryState.DIFFERS)
    whole = {**known, table: {**servers, SERVER: mine}}
    if agent != "codex":
        return AgentConfig(agent, name, text, EntryState.MISSING, _as_json(whole))
    merged = content + ("" if not content else "\n" if content.endswith("\n") else "\n\n") + text
    try:
        is_complete = tomllib.loads(merged) == whole
    except ValueError:  # `mcp_servers` is written in a way that a table cannot follow
        is_complete = False
    return AgentConfig(agent, name, text, EntryState.MISSING, merged) if is_complete else unreadable


def write(root: Path, config: AgentConfig) -> AgentConfig:
    """Write the merged file, whole or not at all."""
    path = root / config.path
    if path.is_symlink() or path.parent.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
        raise InvalidArgs(Message("{path} is a link; paste the text where it leads", path=path.relative_to(root)))
    write_whole(path, config.merged, path.stat().st_mode & 0o777 if path.exists() else None)
    return config._replace(entry=EntryState.WRITTEN)


def _read_json(content: str) -> Any:
    def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Refuse a key that is there twice: one of them would be lost."""
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError("a key stands twice")
        return found

    return json.loads(content, object_pairs_hook=without_twins) if content.strip() else {}


def _as_json(value: Mapping[str, Any]) -> str:
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    return (plain if plain.replace("\n", "").isprintable() else json.dumps(value, indent=2)) + "\n"


def _as_toml(program: str, args: Sequence[str], env: Mapping[str, str], passed: Sequence[str]) -> str:
    lines = [
        f"[mcp_servers.{SERVER}]",
        f"command = {quoted(program)}",
        f"args = [{', '.join(map(quoted, args))}]",
        f"startup_timeout_sec = {_START_SECONDS}",
        f"tool_timeout_sec = {_CALL_SECONDS}",
        "required = true",  # without it Codex does not wait for a server before its first turn
    ]
    if passed:
        lines.append(f"env_vars = [{', '.join(map(quoted, passed))}]")
    if env:
        lines.append(f"env = {{ {', '.join(f'{key} = {quoted(value)}' for key, value in env.items())} }}")
    return "".join(f"{line}\n" for line in lines)
