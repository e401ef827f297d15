"""Explains a name: every skill that has it, which one wins and why, and what each agent does with it."""

import shlex
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.agent_paths import AGENT_PATHS, AgentPaths, Refusal, refusal
from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import CatalogEntry
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import AmbiguousName, SkillNotFound
from skillyard.core.messages import Message


class ExplainedEntry(NamedTuple):
    entry: CatalogEntry
    wins: bool
    why: str


class AgentView(NamedTuple):
    """The files that an agent reads, best first, or why it reads none and how to change that."""

    agent: str
    sees: tuple[str, ...] = ()
    why: str = ""
    fix: str = ""


class Explanation(NamedTuple):
    candidates: tuple[ExplainedEntry, ...]
    views: tuple[AgentView, ...]


def explain(catalog: Catalog, name: str, project: Path | None, user_home: Path) -> Explanation:
    """Raise SkillNotFound if neither we nor any of the agents know the name."""
    found = catalog.candidates(name)
    winner = None
    try:
        winner = catalog.choose(name)
    except AmbiguousName:
        pass
    except SkillNotFound:
        if not any(_elsewhere(paths, name, project, user_home) for paths in AGENT_PATHS):
            raise
    return Explanation(
        tuple(ExplainedEntry(entry, entry == winner, _why(entry, winner, catalog.labels)) for entry in found),
        tuple(_view(paths, name, found, project, user_home) for paths in AGENT_PATHS),
    )


def _why(entry: CatalogEntry, winner: CatalogEntry | None, labels: dict[str, str]) -> str:
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


def _view(
    paths: AgentPaths, name: str, found: tuple[CatalogEntry, ...], project: Path | None, user_home: Path
) -> AgentView:
    roots = list(paths.roots(project, user_home))
    inside = [(entry, _refusal(paths, entry, roots)) for entry in found if _root_of(entry, roots)]
    seen = [entry.file for entry, refused in inside if not refused]
    seen += [path for path in _elsewhere(paths, name, project, user_home) if path not in {e.file for e in found}]
    if seen:
        different = {Path(path).resolve() for path in seen}  # a link to a skill is the same skill
        why = paths.choice if len(different) > 1 else Message("the only one it reads")
        return AgentView(paths.agent, tuple(seen), why)
    for _, refused in inside:
        if refused:
            return AgentView(paths.agent, why=refused.why, fix=refused.fix)
    if not found or found[0].role:
        return AgentView(paths.agent, why=Message("a role's skill: agents reach it only through Skillyard"))
    is_ours = project is not None and Path(found[0].file).is_relative_to(project)
    link = f"skillyard link {shlex.quote(found[0].folder_name)} --to {paths.agent}{'' if is_ours else ' --user'}"
    why = Message("it looks only in {project} and in the same folders of your home", project=", ".join(paths.project))
    return AgentView(paths.agent, why=why, fix=link)


def _refusal(paths: AgentPaths, entry: CatalogEntry, roots: list[Path]) -> Refusal | None:
    """Return why the agent leaves out a skill that is where it looks, or None if it does not."""
    folder = entry.folder
    if not paths.nested and folder.parent not in roots:
        above = _root_of(entry, roots)
        return Refusal(Message("it reads only folders directly below its own"), f"mv '{folder}' '{above}/'")
    return refusal(paths, entry)


def _root_of(entry: CatalogEntry, roots: list[Path]) -> Path | None:
    return next((root for root in roots if entry.file.startswith(f"{root}/")), None)


def _elsewhere(paths: AgentPaths, name: str, project: Path | None, user_home: Path) -> list[str]:
    """Return the skills of that folder name in the agent's own folders, whether they are our roots or not."""
    if "/" in name or name in {"", ".", ".."}:
        return []
    files = (root / name / SKILL_FILE for root in paths.roots(project, user_home))
    return [str(file) for file in files if file.is_file()]
