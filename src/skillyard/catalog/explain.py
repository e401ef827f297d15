"""Explains a name: every candidate, who wins and why, and what each agent would make of it.

What the agents do was measured with the real programs (claude 2.1, codex 0.166, opencode 1.18).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import Entry
from skillyard.core.errors import AmbiguousName, SkillNotFound
from skillyard.core.skill import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """Where an agent looks for skills by itself, and how it chooses between two of one name."""

    agent: str
    project: tuple[str, ...]
    user: tuple[str, ...]
    choice: str
    #: Reads skills in folders of folders too.
    nested: bool
    needs_description: bool
    #: Leaves out what its strict YAML reader refuses.
    strict: bool


LOOKERS = (
    Looker(
        agent="claude-code",
        project=(".claude/skills",),
        user=(".claude/skills",),
        choice="lists all of them; the personal one (~/.claude/skills) wins over the project's",
        nested=False,
        needs_description=False,
        strict=False,
    ),
    Looker(
        agent="codex",
        project=(".agents/skills", ".codex/skills"),
        user=(".agents/skills", ".codex/skills"),
        choice="lists all of them, without choosing",
        nested=True,
        needs_description=True,
        strict=True,
    ),
    Looker(
        agent="opencode",
        project=(".claude/skills", ".agents/skills", ".opencode/skills"),
        user=(".claude/skills", ".agents/skills", ".config/opencode/skills"),
        choice="takes one of them, and not the same one at each start",
        nested=True,
        needs_description=True,
        strict=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    entry: Entry
    wins: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one agent sees: the files it reads, best first, or why it reads none and what mends that."""

    agent: str
    sees: tuple[str, ...] = ()
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    candidates: tuple[Candidate, ...]
    views: tuple[View, ...]


def explain(catalog: Catalog, name: str, project: Path | None, user_home: Path) -> Explanation:
    """SkillNotFound where neither we nor any of the agents know the name."""
    found = catalog.candidates(name)
    try:
        winner = catalog.choose(name)
    except AmbiguousName:
        winner = None
    except SkillNotFound:
        if not any(_elsewhere(looker, name, project, user_home) for looker in LOOKERS):
            raise
        winner = None
    candidates = tuple(
        Candidate(entry=entry, wins=entry == winner, why=_why(entry, winner, catalog.labels)) for entry in found
    )
    views = tuple(_view(looker, name, found, project, user_home) for looker in LOOKERS)
    return Explanation(candidates=candidates, views=views)


def _why(entry: Entry, winner: Entry | None, labels: dict[str, str]) -> str:
    if winner is None:
        return "as strong as another of the same name: say which"
    if entry == winner:
        return f"first in the order of roots: {labels[entry.root]}"
    if entry.root != winner.root and entry.folder_name == winner.folder_name:
        return f"shadowed: {labels[winner.root]} comes before {labels[entry.root]}"
    return "a folder of that name comes before a skill of that name"


def _view(looker: Looker, name: str, found: tuple[Entry, ...], project: Path | None, user_home: Path) -> View:
    roots = list(_roots_of(looker, project, user_home))
    inside = [entry for entry in found if any(_is_below(entry.file, root) for root in roots)]
    seen = [entry.file for entry in inside if not _refusal(looker, entry, roots)]
    seen += [path for path in _elsewhere(looker, name, project, user_home) if path not in {e.file for e in found}]
    if seen:
        return View(
            agent=looker.agent, sees=tuple(seen), why=looker.choice if len(seen) > 1 else "the only one it reads"
        )
    for refusal in (_refusal(looker, entry, roots) for entry in inside):
        if refusal:
            return View(agent=looker.agent, why=refusal.why, fix=refusal.fix)
    if not found or found[0].role:
        return View(agent=looker.agent, why="a role's skill: agents reach it only through Skillyard")
    return View(
        agent=looker.agent,
        why=f"it looks only in {', '.join(looker.project)} and in the same folders of your home",
        fix=_link(found[0], looker, project),
    )


class _Refusal(NamedTuple):
    why: str
    fix: str


def _refusal(looker: Looker, entry: Entry, roots: list[Path]) -> _Refusal | None:
    """Why the agent leaves out a skill that lies where it looks; None where it does not."""
    path = Path(entry.file)
    if path.name != "SKILL.md":
        return _Refusal(f"it reads only SKILL.md, not {path.name}", f"mv '{path}' '{path.with_name('SKILL.md')}'")
    if not looker.nested and path.parent.parent not in roots:
        return _Refusal("it reads only folders directly below its own", f"mv '{path.parent}' '{_above(path, roots)}/'")
    if looker.needs_description and not entry.description:
        return _Refusal("it leaves out skills without a description", f"skillyard validate '{path}'")
    if looker.strict and entry.severity == Severity.ERROR:
        return _Refusal("its YAML reader may refuse the frontmatter", f"skillyard validate '{path}'")
    return None


def _above(path: Path, roots: list[Path]) -> Path:
    return next(root for root in roots if path.is_relative_to(root))


def _roots_of(looker: Looker, project: Path | None, user_home: Path) -> Iterator[Path]:
    if project is not None:
        yield from (project / folder for folder in looker.project)
    yield from (user_home / folder for folder in looker.user)


def _elsewhere(looker: Looker, name: str, project: Path | None, user_home: Path) -> list[str]:
    """Skills of that folder name in the agent's own folders, ours or not."""
    if "/" in name or name in {"", ".", ".."}:
        return []
    files = (root / name / "SKILL.md" for root in _roots_of(looker, project, user_home))
    return [str(file) for file in files if file.is_file()]


def _is_below(file: str, root: Path) -> bool:
    return file.startswith(f"{root}/")


def _link(entry: Entry, looker: Looker, project: Path | None) -> str:
    folder = Path(entry.file).parent
    if project is None or not folder.is_relative_to(project):
        target = f"~/{looker.user[0]}"
        return f"mkdir -p {target} && ln -s '{folder}' {target}/"
    target = looker.project[0]
    up = "../" * len(Path(target).parts)
    return f"mkdir -p {target} && ln -s '{up}{folder.relative_to(project)}' {target}/"
