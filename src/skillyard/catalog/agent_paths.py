"""Where each agent looks for skills by itself, and what it leaves out.

Measured with the real programs (claude 2.1, codex 0.166, opencode 1.18): all of them follow symlinks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.discover import SKILL_FILE
from skillyard.catalog.index import Entry
from skillyard.core.messages import Message
from skillyard.core.skill import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """Where an agent looks for skills by itself, and how it chooses between two of one name."""

    agent: str
    project: tuple[str, ...]
    #: Below the home folder, or absolute. The agent's own, where `link` puts things, is the last of each.
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


LOOKERS = (
    Looker(
        agent="claude-code",
        project=(".claude/skills",),
        user=(".claude/skills",),
        choice=Message("lists all of them; the personal one (~/.claude/skills) wins over the project's"),
        nested=False,
        needs_description=False,
        strict=False,
    ),
    Looker(
        agent="codex",
        project=(".codex/skills", ".agents/skills"),
        user=(".codex/skills", ".agents/skills"),
        choice=Message("lists all of them, without choosing"),
        nested=True,
        needs_description=True,
        strict=True,
    ),
    Looker(
        agent="opencode",
        project=(".claude/skills", ".agents/skills", ".opencode/skills"),
        user=(".claude/skills", ".agents/skills", ".config/opencode/skills"),
        choice=Message("takes one of them, and not the same one at each start"),
        nested=True,
        needs_description=True,
        strict=True,
    ),
)


def lookers_of(env: Mapping[str, str]) -> tuple[Looker, ...]:
    """LOOKERS, with the folders that the agents' own variables move."""
    return tuple(
        replace(looker, user=tuple(_moved(looker.agent, path, env) for path in looker.user)) for looker in LOOKERS
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


def refusal(looker: Looker, entry: Entry) -> Refusal | None:
    """Why the agent leaves out a skill wherever it lies; None where it does not."""
    path = Path(entry.file)
    if path.name != SKILL_FILE:
        return Refusal(
            Message("it reads only {skill_file}, not {name}", skill_file=SKILL_FILE, name=path.name),
            f"mv '{path}' '{path.with_name(SKILL_FILE)}'",
        )
    if looker.needs_description and not entry.description:
        return Refusal(Message("it leaves out skills without a description"), f"skillyard validate '{path}'")
    if looker.strict and entry.severity == Severity.ERROR:
        return Refusal(Message("its YAML reader may refuse the frontmatter"), f"skillyard validate '{path}'")
    return None
