"""Where each backend agent looks for skills by itself, and which it leaves out.

Measured with the real programs (claude 2.1, codex 0.166, opencode 1.18): all of them follow symlinks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.index import CatalogEntry
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.messages import Message
from skillyard.core.skill import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPaths:
    """Where an agent looks for skills by itself, and how it chooses between two of one name."""

    agent: str
    project: tuple[str, ...]
    #: Below the home folder, or absolute. The agent's own folder, where `link` puts links, is the last of each.
    user: tuple[str, ...]
    choice: str
    #: Reads skills in folders of folders too.
    nested: bool
    needs_description: bool
    #: Leaves out what its strict YAML reader refuses.
    strict: bool

    def roots(self, project: Path | None, user_home: Path) -> Iterator[Path]:
        if project is not None:
            yield from (project / folder for folder in self.project)
        yield from (user_home / folder for folder in self.user)


AGENT_PATHS = (
    AgentPaths(
        agent="claude-code",
        project=(".claude/skills",),
        user=(".claude/skills",),
        choice=Message("lists all of them; the personal one (~/.claude/skills) wins over the project's"),
        nested=False,
        needs_description=False,
        strict=False,
    ),
    AgentPaths(
        agent="codex",
        project=(".codex/skills", ".agents/skills"),
        user=(".codex/skills", ".agents/skills"),
        choice=Message("lists all of them, without choosing"),
        nested=True,
        needs_description=True,
        strict=True,
    ),
    AgentPaths(
        agent="opencode",
        project=(".claude/skills", ".agents/skills", ".opencode/skills"),
        user=(".claude/skills", ".agents/skills", ".config/opencode/skills"),
        choice=Message("takes one of them, and not the same one at each start"),
        nested=True,
        needs_description=True,
        strict=True,
    ),
)


def list_agent_paths(env: Mapping[str, str]) -> tuple[AgentPaths, ...]:
    """Return AGENT_PATHS with the folders that the agents' own variables move."""
    return tuple(
        replace(paths, user=tuple(_moved(paths.agent, path, env) for path in paths.user)) for paths in AGENT_PATHS
    )


def _moved(agent: str, path: str, env: Mapping[str, str]) -> str:
    moves = {
        ("claude-code", ".claude"): env.get("CLAUDE_CONFIG_DIR"),
        ("codex", ".codex"): env.get("CODEX_HOME"),
        ("opencode", ".config"): env.get("XDG_CONFIG_HOME"),
    }
    first, rest = path.split("/", 1)
    moved = moves.get((agent, first))
    return f"{moved}/{rest}" if moved and Path(moved).is_absolute() else path


class Refusal(NamedTuple):
    why: str
    fix: str


def refusal(paths: AgentPaths, entry: CatalogEntry) -> Refusal | None:
    """Return why the agent leaves out a skill wherever it is, or None if it does not."""
    path = Path(entry.file)
    if path.name != SKILL_FILE:
        return Refusal(
            Message("it reads only {skill_file}, not {name}", skill_file=SKILL_FILE, name=path.name),
            f"mv '{path}' '{path.with_name(SKILL_FILE)}'",
        )
    if paths.needs_description and not entry.description:
        return Refusal(Message("it leaves out skills without a description"), f"skillyard validate '{path}'")
    if paths.strict and entry.severity == Severity.ERROR:
        return Refusal(Message("its YAML reader may refuse the frontmatter"), f"skillyard validate '{path}'")
    return None
