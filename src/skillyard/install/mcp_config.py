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
#: Codex gives a server ten seconds by default, and a cold disk can take as long to import the SDK.
_START_SECONDS = 30
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


def make_config(root: Path, agent: str, command: Sequence[str], env: Mapping[str, str]) -> AgentConfig:
    if agent not in AGENTS:
        raise InvalidArgs(Message("no agent {agent!r}; there are {agents}", agent=agent, agents=", ".join(AGENTS)))
    words = (*command, "mcp")
    if agent == "codex":
        return _codex(root, words, env)
    if agent == "claude-code":
        mine = {"type": "stdio", "command": words[0], "args": list(words[1:]), **({"env": dict(env)} if env else {})}
        return _json(root, agent, ".mcp.json", "mcpServers", mine, {})
    local = {"type": "local", "command": list(words), "enabled": True, **({"environment": dict(env)} if env else {})}
    schema = {"$schema": "https://opencode.ai/config.json"}
    name = "opencode.jsonc" if (root / "opencode.jsonc").exists() else "opencode.json"
    return _json(root, agent, name, "mcp", local, schema)


AGENTS = ("claude-code", "codex", "opencode")


def write(root: Path, config: AgentConfig) -> AgentConfig:
    """Write the merged file, whole or not at all."""
    path = root / config.path
    if path.is_symlink() or path.parent.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
        raise InvalidArgs(Message("{path} is a link; paste the text where it leads", path=path.relative_to(root)))
    write_whole(path, config.merged, path.stat().st_mode & 0o777 if path.exists() else None)
    return config._replace(entry=EntryState.WRITTEN)


def _json(
    root: Path, agent: str, name: str, table: str, mine: Mapping[str, Any], more: Mapping[str, Any]
) -> AgentConfig:
    text = _as_json({**more, table: {SERVER: mine}})
    try:
        content = read_whole(root / name, _MOST_BYTES, follow=True)
        known = json.loads(content, object_pairs_hook=_without_twins) if content.strip() else {}
    except FileNotFoundError:
        return AgentConfig(agent, name, text, EntryState.MISSING, text)
    except (ValueError, RecursionError):
        return AgentConfig(agent, name, text, EntryState.UNREADABLE)
    servers = known.get(table, {}) if isinstance(known, dict) else None
    if not isinstance(servers, dict):
        return AgentConfig(agent, name, text, EntryState.UNREADABLE)
    if SERVER in servers:
        return AgentConfig(agent, name, text, EntryState.KEPT if servers[SERVER] == mine else EntryState.DIFFERS)
    merged = _as_json({**known, table: {**servers, SERVER: mine}})
    return AgentConfig(agent, name, text, EntryState.MISSING, merged)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: one of them would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _as_json(value: Mapping[str, Any]) -> str:
    plain = json.dumps(value, indent=2, ensure_ascii=False)
    shown = plain if plain.replace("\n", "").isprintable() else json.dumps(value, indent=2)
    return f"{shown}\n"


def _codex(root: Path, words: Sequence[str], env: Mapping[str, str]) -> AgentConfig:
    name = ".codex/config.toml"
    lines = [
        f"[mcp_servers.{SERVER}]",
        f"command = {quoted(words[0])}",
        f"args = [{', '.join(map(quoted, words[1:]))}]",
        f"startup_timeout_sec = {_START_SECONDS}",
        "required = true",  # without it Codex does not wait for a server before its first turn
    ]
    if env:
        lines.append(f"env = {{ {', '.join(f'{key} = {quoted(value)}' for key, value in env.items())} }}")
    text = "".join(f"{line}\n" for line in lines)
    try:
        content = read_whole(root / name, _MOST_BYTES, follow=True)
        known = tomllib.loads(content)
    except FileNotFoundError:
        return AgentConfig("codex", name, text, EntryState.MISSING, text)
    except (ValueError, RecursionError):
        return AgentConfig("codex", name, text, EntryState.UNREADABLE)
    servers, mine = known.get("mcp_servers", {}), tomllib.loads(text)["mcp_servers"][SERVER]
    if isinstance(servers, dict) and SERVER in servers:
        return AgentConfig("codex", name, text, EntryState.KEPT if servers[SERVER] == mine else EntryState.DIFFERS)
    gap = "" if not content else "\n" if content.endswith("\n") else "\n\n"
    merged = f"{content}{gap}{text}"
    try:
        complete = tomllib.loads(merged) == {**known, "mcp_servers": {**servers, SERVER: mine}}
    except (ValueError, TypeError):  # `mcp_servers` is written in a way that a table cannot follow
        complete = False
    if not complete:
        return AgentConfig("codex", name, text, EntryState.UNREADABLE)
    return AgentConfig("codex", name, text, EntryState.MISSING, merged)
