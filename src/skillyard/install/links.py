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
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

from skillyard.catalog.explain import list_agent_paths
from skillyard.catalog.files import read_whole, refuse_links
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillNotFound
from skillyard.core.messages import Message
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
    lookers, root = list_agent_paths(env), target.bounds
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

    def for_agent(self, agent: str) -> "Link":
        return self._replace(agents=tuple(sorted({*self.agents, agent})))


class LinkRecord(NamedTuple):
    #: By their path.
    links: Mapping[str, Link] = MappingProxyType({})
    #: Folders that were not there before us.
    made: tuple[str, ...] = ()

    def with_link(self, link: Link) -> "LinkRecord":
        return self._replace(links={**self.links, link.key: link})

    def without(self, key: str) -> "LinkRecord":
        return self._replace(links={other: link for other, link in self.links.items() if other != key})


def path_of(scope: LinkScope, link: Link) -> Path:
    return scope.base / link.folder / link.name


def read_record(scope: LinkScope) -> LinkRecord:
    """Read links.json. InvalidArgs if it is not what we write."""
    try:
        fields = json.loads(read_whole(scope.file, _MOST_BYTES))
        if fields["version"] != VERSION:
            raise InvalidArgs(Message("{file}: another skillyard wrote it", file=scope.file))
        links, made = [_link(entry, scope) for entry in fields["links"]], tuple(map(str, fields["made"]))
    except FileNotFoundError:
        return LinkRecord()
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise _broken(scope) from None
    known = scope.folders.values()
    above = {str(path) for folder in known for path in (Path(folder), *Path(folder).parents)} - {"."}
    if scope.is_project and not above.issuperset(made):
        raise _broken(scope)
    return LinkRecord({link.key: link for link in links}, made)


def write_record(scope: LinkScope, record: LinkRecord) -> None:
    if not record.links and not record.made:
        scope.file.unlink(missing_ok=True)
        return
    links = [{key: value for key, value in link._asdict().items() if value} for _, link in sorted(record.links.items())]
    fields = {"version": VERSION, "links": links, "made": list(record.made)}
    write_whole(scope.file, json.dumps(fields, indent=1) + "\n")


def _broken(scope: LinkScope) -> InvalidArgs:
    return InvalidArgs(Message("{file} was not written by us: look at it, and delete it", file=scope.file))


def _link(entry: Mapping[str, Any], scope: LinkScope) -> Link:
    link = Link(
        folder=str(entry["folder"]),
        name=str(entry["name"]),
        agents=tuple(map(str, entry["agents"])),
        source=str(entry["source"]),
        to=str(entry.get("to", "")),
        files={str(path): str(digest) for path, digest in entry.get("files", {}).items()},
        before={str(path): str(digest) for path, digest in entry.get("before", {}).items()},
        staged=str(entry.get("staged", "")),
    )
    is_name = link.name not in {"", ".", ".."} and "/" not in link.name and "\0" not in link.name
    is_known = link.folder in scope.folders.values() or not scope.is_project
    if not is_name or not is_known or (link.staged and not _STAGED.fullmatch(link.staged)):
        raise _broken(scope)
    return link


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
    scope: LinkScope, requests: Sequence[LinkRequest], *, copy: bool = False, dry_run: bool = False
) -> tuple[LinkStep, ...]:
    """Return the outcome for each request. A dry run takes no lock and writes nothing."""
    if dry_run:
        return _plan(scope, read_record(scope), requests, copy=copy)[0]
    with open_target(scope.target):
        record = _tidied(scope, read_record(scope))
        steps, planned = _plan(scope, record, requests, copy=copy)
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
    linked = tuple(sorted({link.name for link in record.links.values()}))
    for name in names or ():
        if name not in linked:
            raise SkillNotFound(name, linked)
    if dry_run or record == LinkRecord():
        return tuple(step for known in _chosen(record, names, agents) for step in _undo_steps(scope, known, agents))
    steps: list[LinkStep] = []
    with open_target(scope.target):
        record = _tidied(scope, read_record(scope))
        for known in _chosen(record, names, agents):
            undone = _undo_steps(scope, known, agents)
            record = _undo(scope, record, known, undone)
            steps += undone
        _prune(scope, record)
    return tuple(steps)


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
        requests = [LinkRequest(link.name, scope.base / link.source, agent) for link in copies for agent in link.agents]
        steps, planned = _plan(scope, record, requests, copy=True)
        _make(scope, record, planned, steps)
    return tuple(step for step in steps if step.outcome is not LinkOutcome.VISIBLE)


def _is_intact(scope: LinkScope, link: Link) -> bool:
    """Whether it is still what we made."""
    path = path_of(scope, link)
    if not link.is_copy:
        return path.is_symlink() and str(path.readlink()) == link.to
    if path.is_symlink() or not path.is_dir():
        return False
    # The digests leave a repository out, and it would be deleted with the rest.
    if any(".git" in names for _, folders, files in os.walk(path) for names in (folders, files)):
        return False
    found = digests_of(path)
    return found in (link.files, link.before) and bool(found)


def _plan(
    scope: LinkScope, record: LinkRecord, requests: Sequence[LinkRequest], *, copy: bool
) -> tuple[tuple[LinkStep, ...], LinkRecord]:
    """What will happen, and the record as it will be. Only reads."""
    steps: list[LinkStep] = []
    for request in requests:
        step, record = _plan_one(scope, record, request, copy=copy)
        steps.append(step)
    return tuple(steps), record


def _plan_one(scope: LinkScope, record: LinkRecord, request: LinkRequest, *, copy: bool) -> tuple[LinkStep, LinkRecord]:
    folder, source = scope.folders[request.agent], _stored(scope, request.source)
    path = scope.base / folder / request.name
    ours = {path_of(scope, known) for known in record.links.values()}
    for where in request.seen_at:
        if where not in ours and where.resolve() == request.source.resolve():
            return request.step(LinkOutcome.VISIBLE, where), record
    known = record.links.get(f"{folder}/{request.name}")
    if known is None or known.source != source or _is_taken(scope, known):
        if shared := _shared(scope, record, request):
            step = request.step(LinkOutcome.VISIBLE, path_of(scope, shared))
            return step, record.with_link(shared.for_agent(request.agent))
        if os.path.lexists(path):
            return _conflict(request, path, known), record
        _check_folder(scope, folder)
        known = Link(folder, request.name, (), source, to="" if copy else _target(scope, request.source, folder))
    known, is_there = known.for_agent(request.agent), os.path.lexists(path)
    outcome = LinkOutcome.VISIBLE if is_there else LinkOutcome.LINKED
    if known.is_copy:
        check_tree(request.source)
        here, now = digests_of(path) if is_there else {}, digests_of(request.source)
        if here != now:
            known, outcome = known._replace(files=now, before=here, staged=_staging_name()), LinkOutcome.COPIED
    return request.step(outcome, path), record.with_link(known)


def _is_taken(scope: LinkScope, link: Link) -> bool:
    return os.path.lexists(path_of(scope, link)) and not _is_intact(scope, link)


def _shared(scope: LinkScope, record: LinkRecord, request: LinkRequest) -> Link | None:
    """What was made for another agent, in a folder that this one reads too."""
    folders = {str(where.parent) for where in request.seen_at}
    for known in sorted(record.links.values(), key=lambda link: (request.agent not in link.agents, link.key)):
        is_same = known.name == request.name and known.source == _stored(scope, request.source)
        if is_same and known.folder != scope.folders[request.agent] and str(path_of(scope, known).parent) in folders:
            return known if not _is_taken(scope, known) else None
    return None


def _conflict(request: LinkRequest, path: Path, known: Link | None) -> LinkStep:
    quoted = shlex.quote(str(path))
    mend = Message("move it away, then link again: mv {quoted} …", quoted=quoted)
    if known and known.is_copy:
        note = Message("the copy was edited here, and stays")
    elif path.is_symlink() and not path.exists():
        note = Message("a link that leads nowhere stands there, to {path}", path=path.readlink())
        mend = Message("rm {quoted}, then link again", quoted=quoted)
    else:
        note = Message("something else of that name stands there")
    return LinkStep(request.name, request.agent, LinkOutcome.CONFLICT, path, note, mend)


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
        raise PermissionDenied(Message("{existing} is no folder: move it away, then link again", existing=existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionDenied(Message("{existing} cannot be written to", existing=existing))


def _make(scope: LinkScope, before: LinkRecord, planned: LinkRecord, steps: Sequence[LinkStep]) -> None:
    """Record the links and the folders that they need, make them, then record that they are made."""
    new = {step.path for step in steps if step.outcome in {LinkOutcome.LINKED, LinkOutcome.COPIED}}
    links = [known for known in planned.links.values() if path_of(scope, known) in new]
    made = dict.fromkeys(planned.made)
    for folder in (Path(known.folder) for known in links):
        missing = [part for part in (folder, *folder.parents) if not (scope.base / part).exists()]
        made.update(dict.fromkeys(str(part) for part in reversed(missing)))
    planned = planned._replace(made=tuple(made))
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


def _chosen(record: LinkRecord, names: Collection[str] | None, agents: Collection[str] | None) -> list[Link]:
    links = [link for link in record.links.values() if names is None or link.name in names]
    return [link for link in links if agents is None or not set(agents).isdisjoint(link.agents)]


def _undo_steps(scope: LinkScope, link: Link, agents: Collection[str] | None) -> list[LinkStep]:
    """What happens to a link if it is undone for these agents: one outcome for all of them."""
    path = path_of(scope, link)
    outcome, note, mend = LinkOutcome.REMOVED, "", ""
    if agents is not None and (staying := [agent for agent in link.agents if agent not in agents]):
        outcome, note = LinkOutcome.SHARED, Message("it stays for {agents}", agents=", ".join(staying))
    elif not os.path.lexists(path):
        outcome, note = LinkOutcome.GONE, Message("it was not there any more")
    elif not _is_intact(scope, link):
        outcome, mend = LinkOutcome.KEPT, f"rm -r {shlex.quote(str(path))}"
        note = Message("it is not the link that was made: it stays, and is yours now")
        if link.is_copy:
            note = Message("the copy was edited: it stays, and is yours now")
    leaving = [agent for agent in link.agents if agents is None or agent in agents]
    return [LinkStep(link.name, agent, outcome, path, note, mend) for agent in leaving]


def _undo(scope: LinkScope, record: LinkRecord, link: Link, steps: Sequence[LinkStep]) -> LinkRecord:
    """Remove the link first, then strike it out: the record may name what is gone, but never miss what is there."""
    leaving, path, outcome = {step.agent for step in steps}, steps[0].path, steps[0].outcome
    if outcome is LinkOutcome.SHARED:
        record = record.with_link(link._replace(agents=tuple(agent for agent in link.agents if agent not in leaving)))
    else:
        if outcome is LinkOutcome.REMOVED and link.is_copy:
            staged = path.with_name(_staging_name())
            write_record(scope, record.with_link(link._replace(staged=staged.name)))
            path.rename(staged)
            delete_tree(staged)
        elif outcome is LinkOutcome.REMOVED:
            path.unlink()
        record = record.without(link.key)
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
