"""Links skills into the agents' own folders: which skills, for which agents, and which of them the agents see."""

import os
import shlex
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.backends.driver import VisibleSkill
from skillyard.backends.visible_skills import list_visible_skills
from skillyard.catalog.catalog import Catalog
from skillyard.catalog.explain import AgentPaths, list_agent_paths, refusal
from skillyard.catalog.index import CatalogEntry
from skillyard.catalog.roots import Scope
from skillyard.core.errors import AgentNotInstalled, AmbiguousName, InvalidArgs, SkillError, SkillNotFound
from skillyard.core.messages import Message
from skillyard.install.links import LinkRequest, LinkStep, link, link_scope, path_of, read_record, unlink
from skillyard.install.lock import read_lock
from skillyard.install.target import Target


class Visibility(StrEnum):
    SEEN = "seen"
    NOT_SEEN = "not seen"
    SHADOWED = "shadowed"
    NOT_INSTALLED = "not installed"
    #: The agent was asked and did not say.
    UNKNOWN = "unknown"


class LinkView(NamedTuple):
    """What one agent says of one skill."""

    name: str
    agent: str
    standing: Visibility
    path: str = ""
    note: str = ""


class Linker:
    """Links for one scope: the skills of a project in it, or the user's own for all projects."""

    def __init__(
        self, target: Target, user_home: Path, catalog: Callable[[], Catalog], env: Mapping[str, str] = os.environ
    ) -> None:
        self._scope = link_scope(target, user_home, env)
        self._user_home, self._catalog, self._env = user_home, catalog, env

    def link(
        self, names: Sequence[str], agents: Collection[str], *, copy: bool = False, dry_run: bool = False
    ) -> tuple[LinkStep, ...]:
        """Link the named skills, or all installed ones, for these agents."""
        lookers = self._lookers(agents)
        requests = [self._request(entry, looker) for entry in self._chosen(names) for looker in lookers]
        return link(self._scope, requests, copy=copy, dry_run=dry_run)

    def unlink(
        self, names: Collection[str] | None = None, agents: Collection[str] | None = None, *, dry_run: bool = False
    ) -> tuple[LinkStep, ...]:
        """Undo what `link` made: all of it, or that of some names or agents."""
        return unlink(self._scope, names, agents, dry_run=dry_run)

    def check(self, names: Sequence[str], agents: Collection[str], tell: Callable[[str], None]) -> tuple[LinkView, ...]:
        """Ask the real programs which skills they list: every skill for every agent."""
        entries, views = self._chosen(names, with_linked=True), list[LinkView]()
        for looker in self._lookers(agents):
            tell(Message("asking {text}", text=looker.agent))
            views += self._views(entries, looker)
        return tuple(views)

    def _lookers(self, agents: Collection[str]) -> list[AgentPaths]:
        return [looker for looker in list_agent_paths(self._env) if looker.agent in agents]

    def _chosen(self, names: Sequence[str], *, with_linked: bool = False) -> tuple[CatalogEntry, ...]:
        """The named skills of this scope; without names, all that were installed, and with `with_linked` linked."""
        scope, catalog = self._scope, self._catalog()
        catalog.sync()
        if names:
            return tuple(dict.fromkeys(self._named(catalog, name.removeprefix("@")) for name in names))
        folders = [scope.target.skills / folder for folder in sorted(read_lock(scope.target.lock_file).skills)]
        if with_linked:
            folders += [scope.base / link.source for link in read_record(scope).links.values()]
        found = (entry for folder in folders for entry in catalog.candidates(folder.name) if entry.folder == folder)
        entries = tuple(dict.fromkeys(found))
        if not entries:
            raise InvalidArgs(Message("nothing is installed here: name the skills to link, or use `skillyard add`"))
        return entries

    def _named(self, catalog: Catalog, name: str) -> CatalogEntry:
        """As a run would choose it, among the skills of this scope; never something that link itself made."""
        is_project = self._scope.is_project
        ours = {path_of(self._scope, link) for link in read_record(self._scope).links.values()}
        scope = Scope.PROJECT if is_project else Scope.USER
        roots = {str(root.path) for root in catalog.roots if root.scope is scope}
        everywhere = [entry for entry in catalog.candidates(name) if entry.folder not in ours]
        found = [entry for entry in everywhere if entry.root in roots]
        if not found and everywhere:
            if is_project:
                raise InvalidArgs(Message("{name} is one of your own skills: add --user", name=name))
            raise InvalidArgs(Message("{name} is a skill of this project: leave out --user", name=name))
        plain = name.rpartition("/")[2]
        matches = [entry for entry in found if entry.folder_name == plain] or found
        if not matches:
            raise SkillNotFound(name, catalog.nearest(name))
        strongest = [entry for entry in matches if entry.root == matches[0].root]
        if len(strongest) > 1:
            raise AmbiguousName(name, tuple(str(entry.folder.relative_to(entry.root)) for entry in strongest))
        if strongest[0].role:
            raise InvalidArgs(Message("{name} is a role's skill: agents reach it only through Skillyard", name=name))
        return strongest[0]

    def _request(self, entry: CatalogEntry, looker: AgentPaths) -> LinkRequest:
        """What the agent would leave out or take from elsewhere is linked all the same, with a note."""
        roots = self._roots(looker)
        seen = [root / entry.folder_name for root in roots]
        if looker.nested and any(entry.folder.is_relative_to(root) for root in roots):
            seen.append(entry.folder)
        refused = refusal(looker, entry)
        target = self._scope.base / self._scope.folders[looker.agent] / entry.folder_name
        rivals = [path for path in seen if _is_skill(path) and path.resolve() != entry.folder.resolve()]
        rivals = [path for path in rivals if path != target]
        note, mend = (refused.why, refused.fix) if refused else ("", "")
        if rivals and not refused:
            said = {"path": rivals[0], "agent": looker.agent, "choice": looker.choice}
            note = Message("there is another of that name at {path}; {agent} {choice}", **said)
            name = shlex.quote(entry.folder_name)
            mend = Message("skillyard link {name} --check tells which one it takes", name=name)
        return LinkRequest(entry.folder_name, entry.folder, looker.agent, tuple(seen), note, mend)

    def _roots(self, looker: AgentPaths) -> list[Path]:
        """The user's links serve every project, so what one project holds does not count for them."""
        return list(looker.roots(self._scope.base if self._scope.is_project else None, self._user_home))

    def _views(self, entries: Sequence[CatalogEntry], looker: AgentPaths) -> list[LinkView]:
        try:
            with tempfile.TemporaryDirectory() as empty:  # the user's skills are those of no project
                at = self._scope.base if self._scope.is_project else Path(empty)
                sights = list_visible_skills(looker.agent, at, self._env)
        except SkillError as error:
            standing, note = Visibility.UNKNOWN, error.msg
            if isinstance(error, AgentNotInstalled):
                standing, note = Visibility.NOT_INSTALLED, str(error.values.get("command", ""))
            return [LinkView(entry.folder_name, looker.agent, standing, note=note) for entry in entries]
        return [self._view(entry, looker, sights) for entry in entries]

    def _view(self, entry: CatalogEntry, looker: AgentPaths, sights: tuple[VisibleSkill, ...]) -> LinkView:
        scope = self._scope
        links = [link for link in read_record(scope).links.values() if link.name == entry.folder_name]
        ours = {entry.folder.resolve(), *(path_of(scope, link).resolve() for link in links)}
        paths = [path for sight in sights if (path := self._path(entry, looker, sight))]
        mine = [path for path in paths if path.resolve() in ours]
        others = [path for path in paths if path.resolve() not in ours]
        if mine:
            note = Message("also {others}", others=", ".join(map(str, others))) if others else ""
            return LinkView(entry.folder_name, looker.agent, Visibility.SEEN, str(mine[0]), note)
        if others:
            note = Message("another of that name: rename or remove one of them")
            return LinkView(entry.folder_name, looker.agent, Visibility.SHADOWED, str(others[0]), note)
        refused = refusal(looker, entry)
        flag = "" if scope.is_project else " --user"
        mend = refused.why if refused else f"skillyard link {shlex.quote(entry.folder_name)} --to {looker.agent}{flag}"
        return LinkView(entry.folder_name, looker.agent, Visibility.NOT_SEEN, note=mend)

    def _path(self, entry: CatalogEntry, looker: AgentPaths, sight: VisibleSkill) -> Path | None:
        """The folder of a listed skill if it has this one's name. Claude Code tells a folder's name and whose it is."""
        if sight.path:
            folder = Path(sight.path).parent
            return folder if sight.name == entry.name or folder.name == entry.folder_name else None
        if sight.name != entry.folder_name:
            return None
        users = [self._user_home / looker.user[0]]
        projects = [root for root in self._roots(looker) if root not in users]
        roots = {"user": users, "project": projects}.get(sight.owner, [*users, *projects])
        return next((root / sight.name for root in roots if _is_skill(root / sight.name)), None)


def _is_skill(folder: Path) -> bool:
    return (folder / "SKILL.md").is_file()
