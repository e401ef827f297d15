"""What an agent's own settings say about skills: those that the person, or the project, switched off.

A file that cannot be read says nothing: the agent itself tells its user of that.
"""

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.catalog.files import read_plain
from skillyard.core.messages import Message

if TYPE_CHECKING:
    from skillyard.catalog.explain import AgentPaths

_MOST_BYTES = 1_000_000
#: Claude Code's words for a skill that its model is not told of.
_OFF = frozenset({"off", "user-invocable-only"})


class Refusal(NamedTuple):
    """Why an agent leaves a skill out, and the command that mends it."""

    why: str
    fix: str


class Switch(NamedTuple):
    """One entry of an agent's settings that switches skills off or on; the last one that matches counts."""

    settings: Path
    #: Where it stands in the file.
    key: str
    #: A name or a pattern of names; or a path of a SKILL.md or its folder.
    name: str
    is_off: bool

    def matches(self, file: Path, names: Collection[str]) -> bool:
        if self.name.startswith("/"):
            return Path(self.name) in {file, file.parent}
        return any(fnmatchcase(name, self.name) for name in names if name)


class AgentSettings(NamedTuple):
    switches: tuple[Switch, ...] = ()

    def find(self, file: Path, names: Collection[str]) -> Refusal | None:
        """Return what switches the skill off, if its last word does."""
        last = next((switch for switch in reversed(self.switches) if switch.matches(file, names)), None)
        if last is None or not last.is_off:
            return None
        why = Message("its own settings switch it off: {key} in {file}", key=last.key, file=last.settings)
        return Refusal(why, f"${{EDITOR:-vi}} '{last.settings}'")


def read_agent_settings(paths: "AgentPaths", project: Path | None, user_home: Path) -> AgentSettings:
    """Read the settings in the agent's own folders, the user's first."""
    own = (user_home / paths.user[0]).parent
    within = [project] if project else []
    match paths.agent:
        case "claude-code":
            files = [own / "settings.json", *(each / ".claude/settings.json" for each in within)]
            files += [each / ".claude/settings.local.json" for each in within]
            return AgentSettings(tuple(switch for file in files for switch in _of_claude(file, _read(file))))
        case "codex":
            return AgentSettings(tuple(_of_codex(own / "config.toml", _read(own / "config.toml"))))
        case "opencode":
            folders = [(user_home / paths.user[-1]).parent, *within, *(each / ".opencode" for each in within)]
            files = [folder / name for folder in folders for name in ("opencode.json", "opencode.jsonc")]
            return AgentSettings(tuple(switch for file in files for switch in _of_opencode(file, _read(file))))
    return AgentSettings()


def _of_claude(file: Path, found: Mapping[str, Any]) -> Iterator[Switch]:
    for name, value in _table(found, "skillOverrides").items():
        yield Switch(file, f"skillOverrides.{name}", name, value in _OFF)


def _of_codex(file: Path, found: Mapping[str, Any]) -> Iterator[Switch]:
    listed = _table(found, "skills").get("config")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(named := entry.get("path") or entry.get("name"), str):
            yield Switch(file, "[[skills.config]] enabled", named, entry.get("enabled") is False)


def _of_opencode(file: Path, found: Mapping[str, Any]) -> Iterator[Switch]:
    for name, value in _table(_table(found, "permission"), "skill").items():
        yield Switch(file, f"permission.skill.{name}", name, value == "deny")


def _table(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = found.get(name)
    return table if isinstance(table, dict) else {}


def _read(file: Path) -> Mapping[str, Any]:
    try:
        text = read_plain(file, _MOST_BYTES, follow=True).decode()
        found = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
