"""Explains a name: every candidate, who wins and why, and what each agent would make of it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from skillyard.catalog.agent_paths import LOOKERS, Looker, Refusal, refusal
from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import Entry
from skillyard.core.errors import AmbiguousName, SkillNotFound
from skillyard.core.messages import Message


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
        return Message("as strong as another of the same name: say which")
    if entry == winner:
        return Message("first in the order of roots: {labels}", labels=labels[entry.root])
    if entry.folder.resolve() == winner.folder.resolve():
        return Message("a link to the skill in {labels}", labels=labels[winner.root])
    if entry.root != winner.root and entry.folder_name == winner.folder_name:
        return Message(
            "shadowed: {labels} comes before {labels2}", labels=labels[winner.root], labels2=labels[entry.root]
        )
    return Message("a folder of that name comes before a skill of that name")


def _view(looker: Looker, name: str, found: tuple[Entry, ...], project: Path | None, user_home: Path) -> View:
    roots = list(looker.roots(project, user_home))
    inside = [entry for entry in found if any(_is_below(entry.file, root) for root in roots)]
    seen = [entry.file for entry in inside if not _refusal(looker, entry, roots)]
    seen += [path for path in _elsewhere(looker, name, project, user_home) if path not in {e.file for e in found}]
    if seen:
        different = {Path(path).resolve() for path in seen}  # a link to a skill is the same skill
        why = looker.choice if len(different) > 1 else Message("the only one it reads")
        return View(agent=looker.agent, sees=tuple(seen), why=why)
    for refused in (_refusal(looker, entry, roots) for entry in inside):
        if refused:
            return View(agent=looker.agent, why=refused.why, fix=refused.fix)
    if not found or found[0].role:
        return View(agent=looker.agent, why=Message("a role's skill: agents reach it only through Skillyard"))
    return View(
        agent=looker.agent,
        why=Message(
            "it looks only in {project} and in the same folders of your home", project=", ".join(looker.project)
        ),
        fix=_link(found[0], looker, project),
    )


def _refusal(looker: Looker, entry: Entry, roots: list[Path]) -> Refusal | None:
    """Why the agent leaves out a skill that lies where it looks; None where it does not."""
    path = Path(entry.file)
    if not looker.nested and path.parent.parent not in roots:
        return Refusal(
            Message("it reads only folders directly below its own"), f"mv '{path.parent}' '{_above(path, roots)}/'"
        )
    return refusal(looker, entry)


def _above(path: Path, roots: list[Path]) -> Path:
    return next(root for root in roots if path.is_relative_to(root))


def _elsewhere(looker: Looker, name: str, project: Path | None, user_home: Path) -> list[str]:
    """Skills of that folder name in the agent's own folders, ours or not."""
    if "/" in name or name in {"", ".", ".."}:
        return []
    files = (root / name / "SKILL.md" for root in looker.roots(project, user_home))
    return [str(file) for file in files if file.is_file()]


def _is_below(file: str, root: Path) -> bool:
    return file.startswith(f"{root}/")


def _link(entry: Entry, looker: Looker, project: Path | None) -> str:
    is_ours = project is not None and Path(entry.file).is_relative_to(project)
    return f"skillyard link {shlex.quote(entry.folder_name)} --to {looker.agent}{'' if is_ours else ' --user'}"
