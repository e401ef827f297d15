"""Makes skills visible in the agents' own folders, by symlinks or copies, and undoes that exactly.

links.json records what was made. Each change is recorded first and made second, so that after kill -9 at any point
`unlink` still knows everything, and the same `link` again finishes what was begun. Nothing that somebody else put there
is overwritten or removed. In a project the file may come with a clone, so everything in it is checked: no name in it
can be a path, and every folder in it must be one that agents read.

Covered: kill -9, two at once (the lock of the target), links in a project that lead elsewhere, edited copies.
Not covered: somebody who changes the same folder between our look and our change.
"""

import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

from skillyard.catalog.agent_paths import lookers_of
from skillyard.catalog.dirfd import refuse_links
from skillyard.catalog.plainfile import read_whole
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillNotFound
from skillyard.install.target import Target, delete_tree, exchange, open_target, write_whole
from skillyard.install.tree import FileDigests, check_tree, copy_checked, digests_of

VERSION = 1
_MOST_BYTES = 64 * 1024 * 1024
_STAGED = re.compile(r"\.skillyard-[0-9a-f]{32}")


class LinkScope(NamedTuple):
    """One scope of links: a project's, or the user's."""

    #: Where the skills of this scope are installed; its lock guards the links too.
    target: Target
    file: Path
    #: What relative paths in the record are relative to: the project, or the home folder.
    base: Path
    #: Each agent's own folder, relative to the base; absolute where the user moved it.
    folders: Mapping[str, str]
    #: A project comes from strangers: nothing is written through a link out of it.
    is_project: bool


def link_scope(target: Target, user_home: Path, env: Mapping[str, str] = os.environ) -> LinkScope:
    """The links that follow what is installed in this target."""
    lookers, root = lookers_of(env), target.bounds
    if target.is_project:
        folders = {looker.agent: looker.project[-1] for looker in lookers}
        return LinkScope(target, root / ".skillyard" / "links.json", root, folders, is_project=True)
    folders = {looker.agent: looker.user[-1] for looker in lookers}
    return LinkScope(target, root / "links.json", user_home, folders, is_project=False)


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
    #: By their path.
    links: Mapping[str, Link] = MappingProxyType({})
    #: Folders that were not there before us.
    made: tuple[str, ...] = ()

    def with_link(self, link: Link) -> "LinkRecord":
        return self._replace(links={**self.links, link.key: link})

    def without(self, key: str) -> "LinkRecord":
        return self._replace(links={other: link for other, link in self.links.items() if other != key})


def read_record(scope: LinkScope) -> LinkRecord:
    """Read links.json. InvalidArgs if it is not what we write."""
    try:
        fields = json.loads(read_whole(scope.file, _MOST_BYTES))
    except FileNotFoundError:
        return LinkRecord()
    except (ValueError, RecursionError):
        raise _broken(scope) from None
    try:
        if fields["version"] != VERSION:
            raise InvalidArgs(f"{scope.file}: another skillyard wrote it")
        links = [_link(entry) for entry in fields["links"]]
        made = tuple(map(str, fields["made"]))
    except (KeyError, TypeError, AttributeError):
        raise _broken(scope) from None
    if not all(map(_is_plain, links)) or (scope.is_project and not _is_within(scope, links, made)):
        raise _broken(scope)
    return LinkRecord({link.key: link for link in links}, made)


def write_record(scope: LinkScope, record: LinkRecord) -> None:
    if not record.links and not record.made:
        scope.file.unlink(missing_ok=True)
        return
    links = [
        {key: value for key, value in record.links[path]._asdict().items() if value} for path in sorted(record.links)
    ]
    fields = {"version": VERSION, "links": links, "made": list(record.made)}
    write_whole(scope.file, json.dumps(fields, indent=1) + "\n")


def _broken(scope: LinkScope) -> InvalidArgs:
    return InvalidArgs(f"{scope.file} was not written by us: look at it, and delete it")


def _link(entry: Mapping[str, Any]) -> Link:
    return Link(
        folder=str(entry["folder"]),
        name=str(entry["name"]),
        agents=tuple(map(str, entry["agents"])),
        source=str(entry["source"]),
        to=str(entry.get("to", "")),
        files=_marks(entry.get("files", {})),
        before=_marks(entry.get("before", {})),
        staged=str(entry.get("staged", "")),
    )


def _marks(fields: Mapping[str, Any]) -> FileDigests:
    return {str(path): str(mark) for path, mark in fields.items()}


def _is_plain(link: Link) -> bool:
    name = link.name
    is_name = "/" not in name and "\0" not in name and name not in {"", ".", ".."}
    return is_name and (not link.staged or bool(_STAGED.fullmatch(link.staged)))


def _is_within(scope: LinkScope, links: list[Link], made: tuple[str, ...]) -> bool:
    known = set(scope.folders.values())
    above = known | {str(parent) for folder in known for parent in Path(folder).parents} - {"."}
    return all(link.folder in known for link in links) and all(folder in above for folder in made)


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


def link(
    scope: LinkScope, wishes: Sequence[LinkRequest], *, copy: bool = False, dry_run: bool = False
) -> tuple[LinkStep, ...]:
    """Return the outcome for each request. A dry run takes no lock and writes nothing."""
    if dry_run:
        return _plan(scope, read_record(scope), wishes, copy=copy)[0]
    with open_target(scope.target):
        record = _tidied(scope, read_record(scope))
        steps, planned = _plan(scope, record, wishes, copy=copy)
        _make(scope, record, planned, steps)
    return steps


def unlink(
    scope: LinkScope,
    names: Collection[str] | None = None,
    agents: Collection[str] | None = None,
    *,
    dry_run: bool = False,
) -> tuple[LinkStep, ...]:
    """Remove what link made: all of it, or that of some names or agents. SkillNotFound for a name it never made."""
    record = read_record(scope)
    known = tuple(sorted({link.name for link in record.links.values()}))
    for name in names or ():
        if name not in known:
            raise SkillNotFound(name, known)
    if dry_run or record == LinkRecord():
        return tuple(step for undo in _undoing(scope, record, names, agents) for step in undo.steps())
    with open_target(scope.target):
        record = _tidied(scope, read_record(scope))
        undone = list(_undoing(scope, record, names, agents))
        for undo in undone:
            record = _undo(scope, record, undo)
        _prune(scope, record)
    return tuple(step for undo in undone for step in undo.steps())


def unlink_sources(scope: LinkScope, sources: Collection[Path]) -> tuple[LinkStep, ...]:
    """Remove the links to skills that are about to be removed."""
    wanted = {_stored(scope, source) for source in sources}
    names = [link.name for link in read_record(scope).links.values() if link.source in wanted]
    return unlink(scope, names) if names else ()


def refresh(scope: LinkScope, sources: Collection[Path]) -> tuple[LinkStep, ...]:
    """Bring copies of these skills up to date. An edited copy stays and is reported."""
    wanted = {_stored(scope, source) for source in sources}
    if not any(link.is_copy and link.source in wanted for link in read_record(scope).links.values()):
        return ()
    with open_target(scope.target):
        record = _tidied(scope, read_record(scope))
        copies = [link for link in record.links.values() if link.is_copy and link.source in wanted]
        wishes = [LinkRequest(link.name, scope.base / link.source, agent) for link in copies for agent in link.agents]
        steps, planned = _plan(scope, record, wishes, copy=True)
        _make(scope, record, planned, steps)
    return tuple(step for step in steps if step.outcome is not LinkOutcome.VISIBLE)


def path_of(scope: LinkScope, link: Link) -> Path:
    return scope.base / link.folder / link.name


def is_intact(scope: LinkScope, link: Link) -> bool:
    """Whether it is still what we made."""
    path = path_of(scope, link)
    if not link.is_copy:
        return path.is_symlink() and str(path.readlink()) == link.to
    if path.is_symlink() or not path.is_dir() or _holds_repository(path):
        return False
    found = digests_of(path)
    return found in (link.files, link.before) and bool(found)


def _holds_repository(folder: Path) -> bool:
    """The digests leave a repository out, and it would be deleted with the rest."""
    return any(".git" in names for _, folders, files in os.walk(folder) for names in (folders, files))


def _plan(
    scope: LinkScope, record: LinkRecord, wishes: Sequence[LinkRequest], *, copy: bool
) -> tuple[tuple[LinkStep, ...], LinkRecord]:
    """What will happen, and the record as it will be. Only reads."""
    steps: list[LinkStep] = []
    for wish in wishes:
        step, record = _plan_one(scope, record, wish, copy=copy)
        steps.append(step)
    return tuple(steps), record


def _plan_one(scope: LinkScope, record: LinkRecord, wish: LinkRequest, *, copy: bool) -> tuple[LinkStep, LinkRecord]:
    folder = scope.folders[wish.agent]
    path = scope.base / folder / wish.name
    ours = {path_of(scope, known) for known in record.links.values()}
    seen = [where for where in wish.seen_at if where not in ours and where.resolve() == wish.source.resolve()]
    if seen:
        return wish.step(LinkOutcome.VISIBLE, seen[0]), record
    known = record.links.get(f"{folder}/{wish.name}")
    if known and known.source == _stored(scope, wish.source) and not _is_taken(scope, known):
        return _again(scope, record, known, wish)
    shared = _shared(scope, record, wish)
    if shared:
        return wish.step(LinkOutcome.VISIBLE, path_of(scope, shared)), record.with_link(_for_agent(shared, wish.agent))
    if os.path.lexists(path):
        return _conflict(wish, path, known), record
    _check_folder(scope, folder)
    made = _new_link(scope, wish, folder, copy=copy)
    return wish.step(LinkOutcome.COPIED if copy else LinkOutcome.LINKED, path), record.with_link(made)


def _is_taken(scope: LinkScope, link: Link) -> bool:
    return os.path.lexists(path_of(scope, link)) and not is_intact(scope, link)


def _shared(scope: LinkScope, record: LinkRecord, wish: LinkRequest) -> Link | None:
    """What was made for another agent, in a folder that this one reads too."""
    folders = {str(where.parent) for where in wish.seen_at}
    for known in sorted(record.links.values(), key=lambda link: (wish.agent not in link.agents, link.key)):
        is_same = known.name == wish.name and known.source == _stored(scope, wish.source)
        if is_same and known.folder != scope.folders[wish.agent] and str(path_of(scope, known).parent) in folders:
            return known if not _is_taken(scope, known) else None
    return None


def _again(scope: LinkScope, record: LinkRecord, known: Link, wish: LinkRequest) -> tuple[LinkStep, LinkRecord]:
    """A link that was made before: kept, made again if missing, refreshed if the skill has changed."""
    known, path = _for_agent(known, wish.agent), path_of(scope, known)
    there = os.path.lexists(path)
    if not known.is_copy:
        return wish.step(LinkOutcome.VISIBLE if there else LinkOutcome.LINKED, path), record.with_link(known)
    check_tree(wish.source)
    here, now = digests_of(path) if there else {}, digests_of(wish.source)
    if here == now:
        return wish.step(LinkOutcome.VISIBLE, path), record.with_link(known)
    renewed = known._replace(files=now, before=here, staged=_staging_name())
    return wish.step(LinkOutcome.COPIED, path), record.with_link(renewed)


def _for_agent(link: Link, agent: str) -> Link:
    return link._replace(agents=tuple(sorted({*link.agents, agent})))


def _conflict(wish: LinkRequest, path: Path, known: Link | None) -> LinkStep:
    quoted = shlex.quote(str(path))
    note, mend = "something else of that name stands there", f"move it away, then link again: mv {quoted} …"
    if known and known.is_copy:
        note = "the copy was edited here, and stays"
    elif path.is_symlink() and not path.exists():
        note, mend = f"a link that leads nowhere stands there, to {path.readlink()}", f"rm {quoted}, then link again"
    return LinkStep(wish.name, wish.agent, LinkOutcome.CONFLICT, path, note, mend)


def _new_link(scope: LinkScope, wish: LinkRequest, folder: str, *, copy: bool) -> Link:
    made = Link(folder, wish.name, (wish.agent,), _stored(scope, wish.source))
    if copy:
        check_tree(wish.source)
        return made._replace(files=digests_of(wish.source), staged=_staging_name())
    return made._replace(to=_target(scope, wish.source, folder))


def _target(scope: LinkScope, source: Path, folder: str) -> str:
    """Relative inside a project, which may be moved; absolute for the user's."""
    if not (scope.is_project and source.is_relative_to(scope.base)):
        return str(source)
    base = scope.base.resolve()
    return os.path.relpath(base / source.relative_to(scope.base), (base / folder).resolve())


def _stored(scope: LinkScope, source: Path) -> str:
    return str(source.relative_to(scope.base) if source.is_relative_to(scope.base) else source)


def _staging_name() -> str:
    return f".skillyard-{uuid4().hex}"


def _check_folder(scope: LinkScope, folder: str) -> None:
    """Do not begin what cannot be finished."""
    path = scope.base / folder
    # One folder for all agents is a usual way to keep skills: a link that stays in the project is used.
    if scope.is_project and not path.resolve().is_relative_to(scope.base.resolve()):
        refuse_links(scope.base, path)
    existing = next(above for above in (path, *path.parents) if os.path.lexists(above))
    if not existing.is_dir():
        raise PermissionDenied(f"{existing} is no folder: move it away, then link again")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionDenied(f"{existing} cannot be written to")


def _make(scope: LinkScope, before: LinkRecord, planned: LinkRecord, steps: Sequence[LinkStep]) -> None:
    """Record the links, make them, then record that they are made."""
    new = {step.path for step in steps if step.outcome in {LinkOutcome.LINKED, LinkOutcome.COPIED}}
    links = [known for known in planned.links.values() if path_of(scope, known) in new]
    planned = _with_folders(scope, planned, links)
    if planned != before:
        write_record(scope, planned)
    for known in links:
        path = path_of(scope, known)
        path.parent.mkdir(parents=True, exist_ok=True)
        if known.is_copy:
            _put_copy(scope, known)
            planned = planned.with_link(known._replace(staged="", before={}))
        else:
            path.symlink_to(known.to, target_is_directory=True)
    if any(known.is_copy for known in links):
        write_record(scope, planned)


def _with_folders(scope: LinkScope, record: LinkRecord, links: Sequence[Link]) -> LinkRecord:
    """Record the folders that will have to be made, too."""
    new = dict.fromkeys(record.made)
    for folder in (Path(known.folder) for known in links):
        missing = [part for part in (folder, *folder.parents) if not (scope.base / part).exists()]
        new.update(dict.fromkeys(str(part) for part in reversed(missing)))
    return record._replace(made=tuple(new))


def _put_copy(scope: LinkScope, link: Link) -> None:
    """Copy beside the path, then rename or exchange: whole or not at all."""
    path = path_of(scope, link)
    staged = path.with_name(link.staged)
    copy_checked(scope.base / link.source, staged)
    if os.path.lexists(path) and not exchange(staged, path):
        delete_tree(path)
    if not os.path.lexists(path):
        staged.rename(path)
    delete_tree(staged)


def _tidied(scope: LinkScope, record: LinkRecord) -> LinkRecord:
    """Delete what a crash left half made or half removed."""
    for key, known in record.links.items():
        if known.staged:
            delete_tree(path_of(scope, known).with_name(known.staged))
            record = record.with_link(record.links[key]._replace(staged=""))
    return record


class _Undo(NamedTuple):
    """One link, for some of its agents."""

    link: Link
    path: Path
    leaving: tuple[str, ...]
    staying: tuple[str, ...]
    outcome: LinkOutcome
    note: str = ""
    next: str = ""

    def steps(self) -> Iterator[LinkStep]:
        for agent in self.leaving:
            yield LinkStep(self.link.name, agent, self.outcome, self.path, self.note, self.next)


def _undoing(
    scope: LinkScope, record: LinkRecord, names: Collection[str] | None, agents: Collection[str] | None
) -> Iterator[_Undo]:
    for known in record.links.values():
        leaving = tuple(agent for agent in known.agents if agents is None or agent in agents)
        if (names is None or known.name in names) and leaving:
            yield _undo_of(scope, known, leaving)


def _undo_of(scope: LinkScope, link: Link, leaving: tuple[str, ...]) -> _Undo:
    path = path_of(scope, link)
    staying = tuple(agent for agent in link.agents if agent not in leaving)
    if staying:
        others = ", ".join(staying)
        return _Undo(
            link, path, leaving, staying, LinkOutcome.SHARED, f"still there, because it was linked for {others} too"
        )
    if not os.path.lexists(path):
        return _Undo(link, path, leaving, (), LinkOutcome.GONE, "it was not there any more")
    if is_intact(scope, link):
        return _Undo(link, path, leaving, (), LinkOutcome.REMOVED)
    what = "the copy was edited" if link.is_copy else "it is not the link that was made"
    mend = f"rm -r {shlex.quote(str(path))}"
    return _Undo(link, path, leaving, (), LinkOutcome.KEPT, f"{what}: it stays, and is yours now", mend)


def _undo(scope: LinkScope, record: LinkRecord, undo: _Undo) -> LinkRecord:
    """Remove the link first, then strike it out: the record may name what is gone, but never miss what is there."""
    known, path = undo.link, undo.path
    if undo.staying:
        record = record.with_link(known._replace(agents=undo.staying))
    else:
        if undo.outcome is LinkOutcome.REMOVED and known.is_copy:
            leaving = path.with_name(_staging_name())
            write_record(scope, record.with_link(known._replace(staged=leaving.name)))
            path.rename(leaving)
            delete_tree(leaving)
        elif undo.outcome is LinkOutcome.REMOVED:
            path.unlink()
        record = record.without(known.key)
    write_record(scope, record)
    return record


def _prune(scope: LinkScope, record: LinkRecord) -> None:
    """Delete folders that we made and that are empty; one that somebody else uses is theirs."""
    needed = {part for known in record.links.values() for part in (known.folder, *map(str, Path(known.folder).parents))}
    kept: list[str] = []
    for folder in sorted(record.made, key=lambda name: -len(Path(name).parts)):
        path = scope.base / folder
        if folder in needed:
            kept.append(folder)
        elif path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
    if set(kept) != set(record.made):
        write_record(scope, record._replace(made=tuple(reversed(kept))))
