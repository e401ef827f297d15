"""Explains a name: every skill that has it, which one wins and why, and what each agent does with it.

Where each backend agent looks for skills by itself, and which it leaves out, was learnt from what the real programs
send to their models, and the tests compare it with them: `agent_paths.json` has it, with the version of each. All
follow symlinks. What an agent's own settings switch off is read from its settings.
"""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from skillyard.catalog.agent_settings import AgentSettings, Refusal, read_agent_settings
from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import CatalogEntry
from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import AmbiguousName, SkillNotFound
from skillyard.core.messages import Message


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
    #: The version that all of this was learnt from.
    learnt_from: str
    #: The findings of ours with which it leaves a skill out.
    hides: Sequence[str]
    #: Whether it keeps `disable-model-invocation` from its model.
    hides_from_model: bool

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


#: How to mend what stands in the way, by finding; for the rest `validate` says where it is.
_MENDS: Mapping[str, str] = {
    "encoding-bom": "sed -i '1s/^\\xEF\\xBB\\xBF//' {file}",
    "encoding-gbk": "iconv -f GB18030 -t UTF-8 {file} > {file}.new && mv {file}.new {file}",
    "encoding-utf16": "iconv -f UTF-16 -t UTF-8 {file} > {file}.new && mv {file}.new {file}",
}
_OFF_FOR_MODEL = "disable-model-invocation"


def refusal(paths: AgentPaths, file: Path, settings: AgentSettings | None = None) -> Refusal | None:
    """Return why the agent leaves out a skill wherever it is, or None if it does not."""
    if file.is_symlink() and not file.exists():
        why = Message("the link leads to {target}, where nothing is", target=file.readlink())
        return Refusal(why, f"rm {_quoted(file)}")
    if file.name != SKILL_FILE:
        why = Message("it reads only {skill_file}, not {name}", skill_file=SKILL_FILE, name=file.name)
        return Refusal(why, f"mv {_quoted(file)} {_quoted(file.with_name(SKILL_FILE))}")
    reading = read_skill(file)
    if settings and (off := settings.find(file, {file.parent.name, reading.skill.name if reading.skill else ""})):
        return off
    for finding in reading.findings:
        if finding.code in paths.hides:
            why = Message("it leaves out such a file: {reason}", reason=finding.message)
            mend = _MENDS.get(finding.code, "skillyard validate {file}")
            return Refusal(why, mend.format(file=_quoted(file)))
    if paths.hides_from_model and reading.skill and reading.skill.fields.get(_OFF_FOR_MODEL) is True:
        why = Message("`{field}` keeps it from the model; a person calls it by its name", field=_OFF_FOR_MODEL)
        return Refusal(why, f"sed -i '/^{_OFF_FOR_MODEL}:/d' {_quoted(file)}")
    return None


def _quoted(file: Path) -> str:
    return shlex.quote(str(file))


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
    #: The version of the agent that this was learnt from.
    learnt_from: str = ""


class Explanation(NamedTuple):
    candidates: tuple[ExplainedEntry, ...]
    views: tuple[AgentView, ...]


def explain(
    catalog: Catalog, name: str, project: Path | None, user_home: Path, env: Mapping[str, str] = os.environ
) -> Explanation:
    """Raise SkillNotFound if neither we nor any of the agents know the name."""
    found, winner = catalog.candidates(name), None
    try:
        with suppress(AmbiguousName):
            winner = catalog.choose(name)
    except SkillNotFound:
        if not any(_elsewhere(paths, name, project, user_home) for paths in list_agent_paths(env)):
            raise
    return Explanation(
        tuple(ExplainedEntry(entry, entry == winner, _why(entry, winner, catalog.labels)) for entry in found),
        tuple(
            _view(paths, name, found, project, user_home)._replace(learnt_from=paths.learnt_from)
            for paths in list_agent_paths(env)
        ),
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
    settings = read_agent_settings(paths, project, home)
    below = [Path(entry.file) for entry in found if any(entry.file.startswith(f"{root}/") for root in roots)]
    files = list(dict.fromkeys([*below, *map(Path, _elsewhere(paths, name, project, home))]))
    seen: list[str] = []
    refused: list[Refusal] = []
    for file in files:
        wrong = refusal(paths, file, settings)
        if wrong is None and not paths.nested and file.parent.parent not in roots:
            above = next(root for root in roots if file.is_relative_to(root))
            only = Message("it reads only folders directly below its own")
            into = above / (name if file.parent == above else file.parent.name)
            wrong = Refusal(only, f"mkdir -p {_quoted(into)} && mv {_quoted(file)} {_quoted(into)}/")
        if wrong:
            refused.append(wrong)
        else:
            seen.append(str(file))
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
    roots = paths.roots(project, user_home)
    found = [str(file) for root in roots if (file := root / name / SKILL_FILE).is_file()]
    broken = [str(folder) for root in roots if (folder := root / name).is_symlink() and not folder.exists()]
    direct = [str(file) for root in roots if (file := root / SKILL_FILE).is_file() and _name_of(file) == name]
    return [*found, *broken, *direct]


def _name_of(file: Path) -> str:
    skill = read_skill(file).skill
    return skill.name if skill else ""
