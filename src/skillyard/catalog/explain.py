"""Explains a name: every skill that has it, which one wins and why, and what each agent does with it.

Where each backend agent looks for skills by itself, and which it leaves out, was measured with the real programs
(claude 2.1, codex 0.166, opencode 1.18): all of them follow symlinks.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import CatalogEntry
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import AmbiguousName, SkillNotFound
from skillyard.core.messages import Message
from skillyard.core.skill import Severity


class AgentPaths(NamedTuple):
    """Where an agent looks for skills by itself, and how it chooses between two of one name."""

    agent: str
    project: Sequence[str]
    #: Below the home folder, or absolute. The agent's own folder, where `link` puts links, is the last of each.
    user: Sequence[str]
    #: The environment variable that moves a folder of the home.
    moved: Mapping[str, str]
    choice: str
    #: Reads skills in folders of folders too.
    nested: bool
    #: Leaves out skills without a description, and what its strict YAML reader refuses.
    strict: bool

    def roots(self, project: Path | None, user_home: Path) -> list[Path]:
        in_project = [project / folder for folder in self.project] if project else []
        return in_project + [user_home / folder for folder in self.user]


#: As measured: agent_paths.json.
AGENT_PATHS = tuple(
    AgentPaths(**{**fields, "choice": Message(fields["choice"])})
    for fields in json.loads(Path(__file__).with_name("agent_paths.json").read_text("utf-8"))
)


def list_agent_paths(env: Mapping[str, str]) -> tuple[AgentPaths, ...]:
    """Return AGENT_PATHS with the folders that the agents' own variables move."""

    def moved(path: str, variables: Mapping[str, str]) -> str:
        first, rest = path.split("/", 1)
        folder = env.get(variables.get(first, ""), "")
        return f"{folder}/{rest}" if Path(folder).is_absolute() else path

    return tuple(each._replace(user=[moved(path, each.moved) for path in each.user]) for each in AGENT_PATHS)


class Refusal(NamedTuple):
    why: str
    fix: str


def refusal(paths: AgentPaths, entry: CatalogEntry) -> Refusal | None:
    """Return why the agent leaves out a skill wherever it is, or None if it does not."""
    path = Path(entry.file)
    if path.name != SKILL_FILE:
        why = Message("it reads only {skill_file}, not {name}", skill_file=SKILL_FILE, name=path.name)
        return Refusal(why, f"mv '{path}' '{path.with_name(SKILL_FILE)}'")
    if paths.strict and not entry.description:
        return Refusal(Message("it leaves out skills without a description"), f"skillyard validate '{path}'")
    if paths.strict and entry.severity == Severity.ERROR:
        return Refusal(Message("its YAML reader may refuse the frontmatter"), f"skillyard validate '{path}'")
    return None


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
    found, winner = catalog.candidates(name), None
    try:
        with suppress(AmbiguousName):
            winner = catalog.choose(name)
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
        stronger, weaker = labels[winner.root], labels[entry.root]
        return Message("shadowed: {labels} comes before {labels2}", labels=stronger, labels2=weaker)
    return Message("a folder of that name comes before a skill of that name")


def _view(paths: AgentPaths, name: str, found: Sequence[CatalogEntry], project: Path | None, home: Path) -> AgentView:
    roots = paths.roots(project, home)
    seen: list[str] = []
    refused: list[Refusal] = []
    for entry in found:
        above = next((root for root in roots if entry.file.startswith(f"{root}/")), None)
        if above is None:
            continue
        wrong = refusal(paths, entry)
        if not paths.nested and entry.folder.parent not in roots:
            only = Message("it reads only folders directly below its own")
            wrong = Refusal(only, f"mv '{entry.folder}' '{above}/'")
        if wrong:
            refused.append(wrong)
        else:
            seen.append(entry.file)
    known = {entry.file for entry in found}
    seen += [path for path in _elsewhere(paths, name, project, home) if path not in known]
    if seen:
        different = {Path(path).resolve() for path in seen}  # a link to a skill is the same skill
        why = paths.choice if len(different) > 1 else Message("the only one it reads")
        return AgentView(paths.agent, tuple(seen), why)
    if refused:
        return AgentView(paths.agent, (), *refused[0])
    if not found or found[0].role:
        return AgentView(paths.agent, why=Message("a role's skill: agents reach it only through Skillyard"))
    is_ours = project is not None and Path(found[0].file).is_relative_to(project)
    link = f"skillyard link {shlex.quote(found[0].folder_name)} --to {paths.agent}{'' if is_ours else ' --user'}"
    why = Message("it looks only in {project} and in the same folders of your home", project=", ".join(paths.project))
    return AgentView(paths.agent, (), why, link)


def _elsewhere(paths: AgentPaths, name: str, project: Path | None, user_home: Path) -> list[str]:
    """Return the skills of that folder name in the agent's own folders, whether they are our roots or not."""
    if "/" in name or name in {"", ".", ".."}:
        return []
    files = (root / name / SKILL_FILE for root in paths.roots(project, user_home))
    return [str(file) for file in files if file.is_file()]
