"""Makes skills visible in the agents' own folders, by symlinks or copies, and undoes that exactly.

links.json records what was made. In a project it may come with a clone, so everything in it is checked: no name in it
can be a path, and every folder in it must be one that agents read. Each change is recorded first and made second, so
that after kill -9 at any point `unlink` still knows everything, and the same `link` again finishes what was begun.
Nothing that somebody else put there is overwritten or removed.

Covered: kill -9, two at once (the lock of the target), links in a project that lead elsewhere, edited copies.
Not covered: somebody who changes the same folder between our look and our change.
"""

import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

from skillyard.backends.driver import VisibleSkill
from skillyard.backends.registry import list_visible_skills
from skillyard.catalog.agent_settings import AgentSettings, read_agent_settings
from skillyard.catalog.catalog import Catalog
from skillyard.catalog.explain import AgentPaths, list_agent_paths, refusal
from skillyard.catalog.files import read_whole, refuse_links
from skillyard.catalog.index import CatalogEntry
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import (
    AgentNotInstalled,
    AmbiguousName,
    InvalidArgs,
    PermissionDenied,
    SkillError,
    SkillNotFound,
)
from skillyard.core.messages import Message
from skillyard.install.target import (
    FileDigests,
    Target,
    check_tree,
    copy_checked,
    delete_tree,
    digests_of,
    exchange,
    write_whole,
)

VERSION = 1
_MOST_BYTES = 64 * 1024 * 1024
_STAGED = re.compile(r"\.skillyard-[0-9a-f]{32}")


class Link(NamedTuple):
    """One symlink or copy in an agent's folder."""

    folder: str
    name: str
    #: The agents that it was made for.
    agents: tuple[str, ...]
    #: The skill's own folder, relative to the base where it lies in it.
    source: str
    #: What the symlink says; nothing for a copy.
    to: str = ""
    #: What a copy holds.
    files: FileDigests = MappingProxyType({})
    #: What it held before, while it is being refreshed.
    before: FileDigests = MappingProxyType({})
    #: The name beside it of a copy that is on its way in or out.
    staged: str = ""

    @property
    def is_copy(self) -> bool:
        return not self.to

    @property
    def key(self) -> str:
        return f"{self.folder}/{self.name}"


class LinkRecord(NamedTuple):
    """What links.json holds; it is changed in place."""

    links: dict[str, Link]
    #: Folders that were not there before us.
    made: list[str]

    def put(self, link: Link) -> None:
        self.links[link.key] = link


class LinkOutcome(StrEnum):
    LINKED = "linked"
    COPIED = "copied"
    #: The agent sees it without anything being written.
    VISIBLE = "visible"
    #: Something else stands there.
    CONFLICT = "conflict"
    REMOVED = "removed"
    #: Still there for another agent.
    SHARED = "shared"
    #: Not what we made any more: it stays, and is the user's now.
    KEPT = "kept"
    #: Somebody took it away already.
    GONE = "gone"


class LinkStep(NamedTuple):
    """What happens to one skill for one agent."""

    name: str
    agent: str
    outcome: LinkOutcome
    path: Path
    note: str = ""
    #: What to do about it.
    next: str = ""


class LinkRequest(NamedTuple):
    """One skill for one agent."""

    name: str
    source: Path
    agent: str
    #: Where the agent would find it already.
    seen_at: tuple[Path, ...] = ()
    #: What the agent has against it, and what mends that.
    note: str = ""
    next: str = ""

    def step(self, outcome: LinkOutcome, path: Path) -> LinkStep:
        return LinkStep(self.name, self.agent, outcome, path, self.note, self.next)


class AgentLinks:
    """The links of one scope, a project's or the user's: they follow what is installed in this target."""

    def __init__(self, target: Target, user_home: Path, env: Mapping[str, str] = os.environ) -> None:
        #: Where the skills of this scope are installed; its lock guards the links too.
        self._target = target
        #: A project comes from strangers: nothing is written through a link out of it.
        self._is_project = target.is_project
        #: What relative paths in the record are relative to: the project, or the home folder.
        self._base = target.bounds if target.is_project else user_home
        self._file = target.bounds / (".skillyard/links.json" if target.is_project else "links.json")
        agent_paths = list_agent_paths(env)
        #: Each agent's own folder, relative to the base; absolute where the user moved it.
        self._folders = {each.agent: (each.project if self._is_project else each.user)[-1] for each in agent_paths}

    def make(
        self, requests: Sequence[LinkRequest], *, copy: bool = False, dry_run: bool = False
    ) -> tuple[LinkStep, ...]:
        """Return the outcome for each request. A dry run takes no lock and writes nothing."""
        if dry_run:
            record = self._read()
            return tuple(self._plan(record, request, copy=copy) for request in requests)
        with self._target.open():
            return self._make(self._read_tidied(), requests, copy=copy)

    def unlink(
        self, names: Collection[str] | None = None, agents: Collection[str] | None = None, *, dry_run: bool = False
    ) -> tuple[LinkStep, ...]:
        """Undo what `link` made: all of it, or that of some names or agents. SkillNotFound for a name it never made."""
        record, steps = self._read(), list[LinkStep]()
        linked = tuple(sorted({link.name for link in record.links.values()}))
        for name in names or ():
            if name not in linked:
                raise SkillNotFound(name, linked)

        def chosen() -> Iterator[tuple[Link, list[LinkStep]]]:
            for link in tuple(record.links.values()):
                is_named = names is None or link.name in names
                if is_named and (agents is None or not set(agents).isdisjoint(link.agents)):
                    yield link, self._undo_steps(link, agents)

        if dry_run or not any(record):
            return tuple(step for _, undone in chosen() for step in undone)
        with self._target.open():
            record = self._read_tidied()
            for link, undone in chosen():
                self._undo(record, link, undone)
                steps += undone
            self._prune(record)
        return tuple(steps)

    def unlink_installed(self, folders: Collection[str]) -> tuple[LinkStep, ...]:
        """Remove the links to installed skills that are about to be removed."""
        wanted = self._sources(folders)
        names = [link.name for link in self._read().links.values() if link.source in wanted]
        return self.unlink(names) if names else ()

    def refresh(self, folders: Collection[str]) -> tuple[LinkStep, ...]:
        """Bring copies of these installed skills up to date. An edited copy stays and is reported."""
        wanted = self._sources(folders)
        if not any(link.is_copy and link.source in wanted for link in self._read().links.values()):
            return ()
        with self._target.open():
            record = self._read_tidied()
            links = [link for link in record.links.values() if link.is_copy and link.source in wanted]
            agents = [(link, agent) for link in links for agent in link.agents]
            requests = [LinkRequest(link.name, self._base / link.source, agent) for link, agent in agents]
            steps = self._make(record, requests, copy=True)
        return tuple(step for step in steps if step.outcome is not LinkOutcome.VISIBLE)

    # -- the record

    def _path(self, link: Link) -> Path:
        return self._base / link.folder / link.name

    def _sources(self, folders: Collection[str]) -> set[str]:
        return {self._stored(self._target.skills / folder) for folder in folders}

    def _stored(self, source: Path) -> str:
        return str(source.relative_to(self._base) if source.is_relative_to(self._base) else source)

    def _read(self) -> LinkRecord:
        """Read links.json. InvalidArgs if it is not what we write."""
        broken = InvalidArgs(Message("{file} was not written by us: look at it, and delete it", file=self._file))
        try:
            fields = json.loads(read_whole(self._file, _MOST_BYTES))
            if fields["version"] != VERSION:
                raise InvalidArgs(Message("{file}: another skillyard wrote it", file=self._file))
            links, made = list(map(_as_link, fields["links"])), list(map(str, fields["made"]))
        except FileNotFoundError:
            return LinkRecord({}, [])
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise broken from None
        for link in links:
            is_name = link.name not in {"", ".", ".."} and "/" not in link.name and "\0" not in link.name
            is_known = link.folder in self._folders.values() or not self._is_project
            if not is_name or not is_known or (link.staged and not _STAGED.fullmatch(link.staged)):
                raise broken
        above = {str(path) for folder in self._folders.values() for path in (Path(folder), *Path(folder).parents)}
        if self._is_project and not (above - {"."}).issuperset(made):
            raise broken
        return LinkRecord({link.key: link for link in links}, made)

    def _read_tidied(self) -> LinkRecord:
        """Read links.json, and delete what a crash left half made or half removed. Call while the target is open."""
        record = self._read()
        for known in tuple(record.links.values()):
            if known.staged:
                delete_tree(self._path(known).with_name(known.staged))
                record.put(known._replace(staged=""))
        return record

    def _write(self, record: LinkRecord) -> None:
        if not any(record):
            self._file.unlink(missing_ok=True)
            return
        links = (link._asdict().items() for _, link in sorted(record.links.items()))
        kept = [{key: value for key, value in fields if value} for fields in links]
        text = json.dumps({"version": VERSION, "links": kept, "made": record.made}, indent=1)
        write_whole(self._file, text + "\n")

    # -- making

    def _is_taken(self, link: Link) -> bool:
        """Whether something is there that is not what we made any more."""
        path = self._path(link)
        if not os.path.lexists(path):
            return False
        if not link.is_copy:
            return not path.is_symlink() or str(path.readlink()) != link.to
        if path.is_symlink() or not path.is_dir():
            return True
        # The digests leave a repository out, and it would be deleted with the rest.
        if any(".git" in names for _, folders, files in os.walk(path) for names in (folders, files)):
            return True
        found = digests_of(path)
        return not found or found not in (link.files, link.before)

    def _plan(self, record: LinkRecord, request: LinkRequest, *, copy: bool) -> LinkStep:
        """What will happen; the record becomes what it will be. Reads the disk only."""
        folder, source = self._folders[request.agent], self._stored(request.source)
        path = self._base / folder / request.name
        ours = set(map(self._path, record.links.values()))
        for where in request.seen_at:
            if where not in ours and where.resolve() == request.source.resolve():
                return request.step(LinkOutcome.VISIBLE, where)
        known = record.links.get(f"{folder}/{request.name}")
        outcome = LinkOutcome.VISIBLE
        if known is None or known.source != source or self._is_taken(known):
            if shared := self._shared(record, request):
                known, path = shared, self._path(shared)
            elif os.path.lexists(path):
                return _conflict(request, path, known)
            else:
                self._check_folder(folder)
                known = Link(folder, request.name, (), source, "" if copy else self._leads_to(request.source, folder))
        if known.folder == folder:
            known, outcome = self._planned(known, request.source, path)
        record.put(known._replace(agents=tuple(sorted({*known.agents, request.agent}))))
        return request.step(outcome, path)

    def _planned(self, link: Link, source: Path, path: Path) -> tuple[Link, LinkOutcome]:
        is_there = os.path.lexists(path)
        outcome = LinkOutcome.VISIBLE if is_there else LinkOutcome.LINKED
        if link.is_copy:
            check_tree(source)
            here, now = digests_of(path) if is_there else {}, digests_of(source)
            if here != now:
                link = link._replace(files=now, before=here, staged=f".skillyard-{uuid4().hex}")
                outcome = LinkOutcome.COPIED
        return link, outcome

    def _shared(self, record: LinkRecord, request: LinkRequest) -> Link | None:
        """What was made for another agent, in a folder that this one reads too."""
        folders, source = {where.parent for where in request.seen_at}, self._stored(request.source)
        for known in sorted(record.links.values(), key=lambda link: (request.agent not in link.agents, link.key)):
            is_same = (known.name, known.source) == (request.name, source)
            if is_same and known.folder != self._folders[request.agent] and self._path(known).parent in folders:
                return known if not self._is_taken(known) else None
        return None

    def _leads_to(self, source: Path, folder: str) -> str:
        """Relative inside a project, which may be moved; absolute for the user's."""
        if not (self._is_project and source.is_relative_to(self._base)):
            return str(source)
        base = self._base.resolve()
        return os.path.relpath(base / source.relative_to(self._base), (base / folder).resolve())

    def _check_folder(self, folder: str) -> None:
        """Do not begin what cannot be finished."""
        path = self._base / folder
        # One folder for all agents is a usual way to keep skills: a link that stays in the project is used.
        if self._is_project and not path.resolve().is_relative_to(self._base.resolve()):
            refuse_links(self._base, path)
        existing = next(above for above in (path, *path.parents) if os.path.lexists(above))
        if not existing.is_dir():
            raise PermissionDenied(Message("{existing} is no folder: move it away, then link again", existing=existing))
        if not os.access(existing, os.W_OK | os.X_OK):
            raise PermissionDenied(Message("{existing} cannot be written to", existing=existing))

    def _make(self, record: LinkRecord, requests: Sequence[LinkRequest], *, copy: bool) -> tuple[LinkStep, ...]:
        """Record the links and the folders that they need, make them, then record that they are made."""
        before = LinkRecord({**record.links}, [*record.made])
        steps = tuple(self._plan(record, request, copy=copy) for request in requests)
        new = {step.path for step in steps if step.outcome in {LinkOutcome.LINKED, LinkOutcome.COPIED}}
        links = [link for link in record.links.values() if self._path(link) in new]
        for folder in (Path(link.folder) for link in links):
            missing = [part for part in (folder, *folder.parents) if not (self._base / part).exists()]
            record.made.extend(str(part) for part in reversed(missing) if str(part) not in record.made)
        if record != before:
            self._write(record)
        for link in links:
            path = self._path(link)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_copy:
                path.symlink_to(link.to, target_is_directory=True)
                continue
            # Copied beside the path, then renamed or exchanged: whole or not at all.
            staged = path.with_name(link.staged)
            copy_checked(self._base / link.source, staged)
            if os.path.lexists(path) and not exchange(staged, path):
                delete_tree(path)
            if not os.path.lexists(path):
                staged.rename(path)
            delete_tree(staged)
            record.put(link._replace(staged="", before={}))
        if any(link.is_copy for link in links):
            self._write(record)
        return steps

    # -- undoing

    def _undo_steps(self, link: Link, agents: Collection[str] | None) -> list[LinkStep]:
        """What happens to a link if it is undone for these agents: one outcome for all of them."""
        path = self._path(link)
        outcome, note, mend = LinkOutcome.REMOVED, "", ""
        leaving = [agent for agent in link.agents if agents is None or agent in agents]
        if staying := [agent for agent in link.agents if agent not in leaving]:
            outcome, note = LinkOutcome.SHARED, Message("it stays for {agents}", agents=", ".join(staying))
        elif not os.path.lexists(path):
            outcome, note = LinkOutcome.GONE, Message("it was not there any more")
        elif self._is_taken(link):
            outcome, mend = LinkOutcome.KEPT, f"rm -r {shlex.quote(str(path))}"
            note = Message("it is not the link that was made: it stays, and is yours now")
            if link.is_copy:
                note = Message("the copy was edited: it stays, and is yours now")
        return [LinkStep(link.name, agent, outcome, path, note, mend) for agent in leaving]

    def _undo(self, record: LinkRecord, link: Link, steps: Sequence[LinkStep]) -> None:
        """Remove the link first, then strike it out: the record may name what is gone, but never miss what is there."""
        leaving, path, outcome = {step.agent for step in steps}, steps[0].path, steps[0].outcome
        if outcome is LinkOutcome.REMOVED and link.is_copy:
            staged = path.with_name(f".skillyard-{uuid4().hex}")
            record.put(link._replace(staged=staged.name))
            self._write(record)
            path.rename(staged)
            delete_tree(staged)
        elif outcome is LinkOutcome.REMOVED:
            path.unlink()
        if outcome is LinkOutcome.SHARED:
            record.put(link._replace(agents=tuple(agent for agent in link.agents if agent not in leaving)))
        else:
            del record.links[link.key]
        self._write(record)

    def _prune(self, record: LinkRecord) -> None:
        """Delete folders that we made and that are empty; one that somebody else uses is theirs."""
        used = {Path(link.folder) for link in record.links.values()}
        needed = {str(part) for folder in used for part in (folder, *folder.parents)}
        for folder in sorted(record.made, key=lambda name: -len(Path(name).parts)):
            path = self._base / folder
            if folder not in needed and path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()
        if not needed.issuperset(record.made):
            self._write(record._replace(made=[folder for folder in record.made if folder in needed]))


def _as_link(entry: Mapping[str, Any]) -> Link:
    files, before = (
        {str(path): str(digest) for path, digest in entry.get(key, {}).items()} for key in ("files", "before")
    )
    folder, name, source = (str(entry[key]) for key in ("folder", "name", "source"))
    to, staged = (str(entry.get(key, "")) for key in ("to", "staged"))
    return Link(folder, name, tuple(map(str, entry["agents"])), source, to, files, before, staged)


def _conflict(request: LinkRequest, path: Path, known: Link | None) -> LinkStep:
    quoted = shlex.quote(str(path))
    mend = Message("move it away, then link again: mv {quoted} …", quoted=quoted)
    note = Message("something else of that name stands there")
    if known and known.is_copy:
        note = Message("the copy was edited here, and stays")
    elif path.is_symlink() and not path.exists():
        note = Message("a link that leads nowhere stands there, to {path}", path=path.readlink())
        mend = Message("rm {quoted}, then link again", quoted=quoted)
    return LinkStep(request.name, request.agent, LinkOutcome.CONFLICT, path, note, mend)


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


class Linker(AgentLinks):
    """Links for one scope: the skills of a project in it, or the user's own for all projects."""

    def __init__(
        self, target: Target, user_home: Path, catalog: Callable[[], Catalog], env: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(target, user_home, env)
        self._user_home, self._catalog, self._env = user_home, catalog, env

    def link(
        self, names: Sequence[str], agents: Collection[str], *, copy: bool = False, dry_run: bool = False
    ) -> tuple[LinkStep, ...]:
        """Link the named skills, or all installed ones, for these agents."""
        agent_paths = self._agent_paths(agents)
        requests = [self._request(entry, paths) for entry in self._chosen(names) for paths in agent_paths]
        return self.make(requests, copy=copy, dry_run=dry_run)

    def check(self, names: Sequence[str], agents: Collection[str], tell: Callable[[str], None]) -> tuple[LinkView, ...]:
        """Ask the real programs which skills they list: every skill for every agent."""
        entries, views = self._chosen(names, with_linked=True), list[LinkView]()
        for paths in self._agent_paths(agents):
            tell(Message("asking {text}", text=paths.agent))
            views += self._views(entries, paths)
        return tuple(views)

    def _agent_paths(self, agents: Collection[str]) -> list[AgentPaths]:
        return [paths for paths in list_agent_paths(self._env) if paths.agent in agents]

    def _chosen(self, names: Sequence[str], *, with_linked: bool = False) -> tuple[CatalogEntry, ...]:
        """The named skills of this scope; without names, all that were installed, and with `with_linked` linked."""
        catalog = self._catalog()
        catalog.sync()
        if names:
            return tuple(dict.fromkeys(self._named(catalog, name.removeprefix("@")) for name in names))
        folders = [self._target.skills / folder for folder in sorted(self._target.read_lock())]
        if with_linked:
            folders += [self._base / link.source for link in self._read().links.values()]
        found = (entry for folder in folders for entry in catalog.candidates(folder.name) if entry.folder == folder)
        entries = tuple(dict.fromkeys(found))
        if not entries:
            raise InvalidArgs(Message("nothing is installed here: name the skills to link, or use `skillyard add`"))
        return entries

    def _named(self, catalog: Catalog, name: str) -> CatalogEntry:
        """As a run would choose it, among the skills of this scope; never something that link itself made."""
        ours = set(map(self._path, self._read().links.values()))
        roots = {str(root.path) for root in catalog.roots if root.in_project == self._is_project}
        everywhere = [entry for entry in catalog.candidates(name) if entry.folder not in ours]
        found = [entry for entry in everywhere if entry.root in roots]
        if not found and everywhere:
            if self._is_project:
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

    def _settings(self, paths: AgentPaths) -> AgentSettings:
        return read_agent_settings(paths, self._base if self._is_project else None, self._user_home)

    def _request(self, entry: CatalogEntry, paths: AgentPaths) -> LinkRequest:
        """What the agent would leave out or take from elsewhere is linked all the same, with a note."""
        name, roots = entry.folder_name, self._roots(paths)
        seen = [root / name for root in roots]
        if paths.nested and any(entry.folder.is_relative_to(root) for root in roots):
            seen.append(entry.folder)
        refused = refusal(paths, Path(entry.file), self._settings(paths))
        note, mend = (refused.why, refused.fix) if refused else ("", "")
        target = self._base / self._folders[paths.agent] / name
        others = [path for path in seen if path != target and _is_skill(path)]
        rivals = [path for path in others if path.resolve() != entry.folder.resolve()]
        if rivals and not refused:
            values = {"path": rivals[0], "agent": paths.agent, "choice": paths.choice}
            note = Message("there is another of that name at {path}; {agent} {choice}", **values)
            mend = Message("skillyard link {name} --check tells which one it takes", name=shlex.quote(name))
        return LinkRequest(name, entry.folder, paths.agent, tuple(seen), note, mend)

    def _roots(self, paths: AgentPaths) -> list[Path]:
        """The user's links serve every project, so what one project holds does not count for them."""
        return list(paths.roots(self._base if self._is_project else None, self._user_home))

    def _views(self, entries: Sequence[CatalogEntry], paths: AgentPaths) -> list[LinkView]:
        try:
            with tempfile.TemporaryDirectory() as empty:  # the user's skills are those of no project
                sights = list_visible_skills(paths.agent, self._base if self._is_project else Path(empty), self._env)
        except SkillError as error:
            standing, note = Visibility.UNKNOWN, error.msg
            if isinstance(error, AgentNotInstalled):
                standing, note = Visibility.NOT_INSTALLED, str(error.values.get("command", ""))
            return [LinkView(entry.folder_name, paths.agent, standing, note=note) for entry in entries]
        return [self._view(entry, paths, sights) for entry in entries]

    def _view(self, entry: CatalogEntry, paths: AgentPaths, sights: tuple[VisibleSkill, ...]) -> LinkView:
        name, links = entry.folder_name, self._read().links.values()
        ours = {entry.folder.resolve(), *(self._path(link).resolve() for link in links if link.name == name)}
        found = [path for sight in sights if (path := self._sighted(entry, paths, sight))]
        mine = [path for path in found if path.resolve() in ours]
        others = [path for path in found if path.resolve() not in ours]
        if mine:
            note = Message("also {others}", others=", ".join(map(str, others))) if others else ""
            return LinkView(name, paths.agent, Visibility.SEEN, str(mine[0]), note)
        if others:
            note = Message("another of that name: rename or remove one of them")
            return LinkView(name, paths.agent, Visibility.SHADOWED, str(others[0]), note)
        refused = refusal(paths, Path(entry.file), self._settings(paths))
        flag = "" if self._is_project else " --user"
        mend = refused.why if refused else f"skillyard link {shlex.quote(name)} --to {paths.agent}{flag}"
        return LinkView(name, paths.agent, Visibility.NOT_SEEN, note=mend)

    def _sighted(self, entry: CatalogEntry, paths: AgentPaths, sight: VisibleSkill) -> Path | None:
        """The folder of a listed skill if it has this one's name. Claude Code tells a folder's name and whose it is."""
        if sight.path:
            folder = Path(sight.path).parent
            return folder if sight.name == entry.name or folder.name == entry.folder_name else None
        if sight.name != entry.folder_name:
            return None
        users = [self._user_home / paths.user[0]]
        projects = [root for root in self._roots(paths) if root not in users]
        roots = {"user": users, "project": projects}.get(sight.owner, [*users, *projects])
        return next((root / sight.name for root in roots if _is_skill(root / sight.name)), None)


def _is_skill(folder: Path) -> bool:
    return (folder / SKILL_FILE).is_file()
