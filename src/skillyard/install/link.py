"""Makes skills visible in the agents' own folders, and undoes that exactly.

Each change is written down first and made second, so that after kill -9 at any point `unlink` still knows everything,
and the same `link` again ends what was begun. Nothing that somebody else put there is overwritten or taken away.

Covered: kill -9, two at once (the lock of the place), links in a project that lead elsewhere, edited copies.
Not covered: somebody who changes the same folder within the moment between the look and the change.
"""

import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from skillyard.catalog.dirfd import refuse_links
from skillyard.core.errors import PermissionDenied, SkillNotFound
from skillyard.core.messages import Message
from skillyard.install.links import Ledger, Link, Record, read_record, write_record
from skillyard.install.swap import exchange
from skillyard.install.target import delete_tree, open_place
from skillyard.install.tree import check_tree, copy_checked, marks_of


class Outcome(StrEnum):
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


class Step(NamedTuple):
    """What happens to one skill for one agent."""

    name: str
    agent: str
    outcome: Outcome
    path: Path
    note: str = ""
    #: What to do about it.
    next: str = ""


class Wish(NamedTuple):
    """One skill for one agent."""

    name: str
    source: Path
    agent: str
    #: Where the agent would find it already.
    seen_at: tuple[Path, ...] = ()
    #: What the agent has against it, and what mends that.
    note: str = ""
    next: str = ""

    def step(self, outcome: Outcome, path: Path) -> Step:
        return Step(self.name, self.agent, outcome, path, self.note, self.next)


def link(ledger: Ledger, wishes: Sequence[Wish], *, copy: bool = False, dry_run: bool = False) -> tuple[Step, ...]:
    """What came of each wish. A dry run takes no lock and writes nothing."""
    if dry_run:
        return _plan(ledger, read_record(ledger), wishes, copy=copy)[0]
    with open_place(ledger.place):
        record = _tidied(ledger, read_record(ledger))
        steps, planned = _plan(ledger, record, wishes, copy=copy)
        _make(ledger, record, planned, steps)
    return steps


def unlink(
    ledger: Ledger,
    names: Collection[str] | None = None,
    agents: Collection[str] | None = None,
    *,
    dry_run: bool = False,
) -> tuple[Step, ...]:
    """Takes away what link made: all of it, or that of some names or agents. SkillNotFound for a name it never made."""
    record = read_record(ledger)
    known = tuple(sorted({link.name for link in record.links.values()}))
    for name in names or ():
        if name not in known:
            raise SkillNotFound(name, known)
    if dry_run or record == Record():
        return tuple(step for undo in _undoing(ledger, record, names, agents) for step in undo.steps())
    with open_place(ledger.place):
        record = _tidied(ledger, read_record(ledger))
        undone = list(_undoing(ledger, record, names, agents))
        for undo in undone:
            record = _undo(ledger, record, undo)
        _prune(ledger, record)
    return tuple(step for undo in undone for step in undo.steps())


def unlink_sources(ledger: Ledger, sources: Collection[Path]) -> tuple[Step, ...]:
    """The same for skills that are about to go."""
    wanted = {_stored(ledger, source) for source in sources}
    names = [link.name for link in read_record(ledger).links.values() if link.source in wanted]
    return unlink(ledger, names) if names else ()


def refresh(ledger: Ledger, sources: Collection[Path]) -> tuple[Step, ...]:
    """Copies of these skills become what the skills are now; an edited copy stays as it is, and is told."""
    wanted = {_stored(ledger, source) for source in sources}
    if not any(link.is_copy and link.source in wanted for link in read_record(ledger).links.values()):
        return ()
    with open_place(ledger.place):
        record = _tidied(ledger, read_record(ledger))
        copies = [link for link in record.links.values() if link.is_copy and link.source in wanted]
        wishes = [Wish(link.name, ledger.base / link.source, agent) for link in copies for agent in link.agents]
        steps, planned = _plan(ledger, record, wishes, copy=True)
        _make(ledger, record, planned, steps)
    return tuple(step for step in steps if step.outcome is not Outcome.VISIBLE)


def path_of(ledger: Ledger, link: Link) -> Path:
    return ledger.base / link.folder / link.name


def is_intact(ledger: Ledger, link: Link) -> bool:
    """Whether what stands there is still what we made."""
    path = path_of(ledger, link)
    if not link.is_copy:
        return path.is_symlink() and str(path.readlink()) == link.to
    if path.is_symlink() or not path.is_dir() or _holds_repository(path):
        return False
    found = marks_of(path)
    return found in (link.files, link.before) and bool(found)


def _holds_repository(folder: Path) -> bool:
    """The marks leave it out, and it would go with the rest."""
    return any(".git" in names for _, folders, files in os.walk(folder) for names in (folders, files))


def _plan(ledger: Ledger, record: Record, wishes: Sequence[Wish], *, copy: bool) -> tuple[tuple[Step, ...], Record]:
    """Pure but for looking: what will happen, and the record as it will be."""
    steps: list[Step] = []
    for wish in wishes:
        step, record = _plan_one(ledger, record, wish, copy=copy)
        steps.append(step)
    return tuple(steps), record


def _plan_one(ledger: Ledger, record: Record, wish: Wish, *, copy: bool) -> tuple[Step, Record]:
    folder = ledger.folders[wish.agent]
    path = ledger.base / folder / wish.name
    ours = {path_of(ledger, known) for known in record.links.values()}
    seen = [where for where in wish.seen_at if where not in ours and where.resolve() == wish.source.resolve()]
    if seen:
        return wish.step(Outcome.VISIBLE, seen[0]), record
    known = record.links.get(f"{folder}/{wish.name}")
    if known and known.source == _stored(ledger, wish.source) and not _is_taken(ledger, known):
        return _again(ledger, record, known, wish)
    shared = _shared(ledger, record, wish)
    if shared:
        return wish.step(Outcome.VISIBLE, path_of(ledger, shared)), record.with_link(_for_agent(shared, wish.agent))
    if os.path.lexists(path):
        return _conflict(wish, path, known), record
    _check_folder(ledger, folder)
    made = _new_link(ledger, wish, folder, copy=copy)
    return wish.step(Outcome.COPIED if copy else Outcome.LINKED, path), record.with_link(made)


def _is_taken(ledger: Ledger, link: Link) -> bool:
    return os.path.lexists(path_of(ledger, link)) and not is_intact(ledger, link)


def _shared(ledger: Ledger, record: Record, wish: Wish) -> Link | None:
    """What was made for another agent, in a folder that this one reads too."""
    folders = {str(where.parent) for where in wish.seen_at}
    for known in sorted(record.links.values(), key=lambda link: (wish.agent not in link.agents, link.key)):
        is_same = known.name == wish.name and known.source == _stored(ledger, wish.source)
        if is_same and known.folder != ledger.folders[wish.agent] and str(path_of(ledger, known).parent) in folders:
            return known if not _is_taken(ledger, known) else None
    return None


def _again(ledger: Ledger, record: Record, known: Link, wish: Wish) -> tuple[Step, Record]:
    """It was made before: kept, made again where it went missing, refreshed where the skill has changed."""
    known, path = _for_agent(known, wish.agent), path_of(ledger, known)
    there = os.path.lexists(path)
    if not known.is_copy:
        return wish.step(Outcome.VISIBLE if there else Outcome.LINKED, path), record.with_link(known)
    check_tree(wish.source)
    here, now = marks_of(path) if there else {}, marks_of(wish.source)
    if here == now:
        return wish.step(Outcome.VISIBLE, path), record.with_link(known)
    renewed = known._replace(files=now, before=here, staged=_staging_name())
    return wish.step(Outcome.COPIED, path), record.with_link(renewed)


def _for_agent(link: Link, agent: str) -> Link:
    return link._replace(agents=tuple(sorted({*link.agents, agent})))


def _conflict(wish: Wish, path: Path, known: Link | None) -> Step:
    quoted = shlex.quote(str(path))
    note, mend = (
        Message("something else of that name stands there"),
        Message("move it away, then link again: mv {quoted} …", quoted=quoted),
    )
    if known and known.is_copy:
        note = Message("the copy was edited here, and stays")
    elif path.is_symlink() and not path.exists():
        note, mend = (
            Message("a link that leads nowhere stands there, to {path}", path=path.readlink()),
            Message("rm {quoted}, then link again", quoted=quoted),
        )
    return Step(wish.name, wish.agent, Outcome.CONFLICT, path, note, mend)


def _new_link(ledger: Ledger, wish: Wish, folder: str, *, copy: bool) -> Link:
    made = Link(folder, wish.name, (wish.agent,), _stored(ledger, wish.source))
    if copy:
        check_tree(wish.source)
        return made._replace(files=marks_of(wish.source), staged=_staging_name())
    return made._replace(to=_target(ledger, wish.source, folder))


def _target(ledger: Ledger, source: Path, folder: str) -> str:
    """Relative inside a project, which moves as a whole; absolute for the user's."""
    if not (ledger.is_project and source.is_relative_to(ledger.base)):
        return str(source)
    base = ledger.base.resolve()
    return os.path.relpath(base / source.relative_to(ledger.base), (base / folder).resolve())


def _stored(ledger: Ledger, source: Path) -> str:
    return str(source.relative_to(ledger.base) if source.is_relative_to(ledger.base) else source)


def _staging_name() -> str:
    return f".skillyard-{uuid4().hex}"


def _check_folder(ledger: Ledger, folder: str) -> None:
    """What cannot be ended must not be begun."""
    path = ledger.base / folder
    # One folder for all agents is a usual way to keep skills: a link that stays in the project is used.
    if ledger.is_project and not path.resolve().is_relative_to(ledger.base.resolve()):
        refuse_links(ledger.base, path)
    existing = next(above for above in (path, *path.parents) if os.path.lexists(above))
    if not existing.is_dir():
        raise PermissionDenied(Message("{existing} is no folder: move it away, then link again", existing=existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionDenied(Message("{existing} cannot be written to", existing=existing))


def _make(ledger: Ledger, before: Record, planned: Record, steps: Sequence[Step]) -> None:
    """Written down, made, and then the record without what is over."""
    new = {step.path for step in steps if step.outcome in {Outcome.LINKED, Outcome.COPIED}}
    links = [known for known in planned.links.values() if path_of(ledger, known) in new]
    planned = _with_folders(ledger, planned, links)
    if planned != before:
        write_record(ledger, planned)
    for known in links:
        path = path_of(ledger, known)
        path.parent.mkdir(parents=True, exist_ok=True)
        if known.is_copy:
            _put_copy(ledger, known)
            planned = planned.with_link(known._replace(staged="", before={}))
        else:
            path.symlink_to(known.to, target_is_directory=True)
    if any(known.is_copy for known in links):
        write_record(ledger, planned)


def _with_folders(ledger: Ledger, record: Record, links: Sequence[Link]) -> Record:
    """The folders that will have to be made are written down too."""
    new = dict.fromkeys(record.made)
    for folder in (Path(known.folder) for known in links):
        missing = [part for part in (folder, *folder.parents) if not (ledger.base / part).exists()]
        new.update(dict.fromkeys(str(part) for part in reversed(missing)))
    return record._replace(made=tuple(new))


def _put_copy(ledger: Ledger, link: Link) -> None:
    """Whole or not at all: copied beside its place, then renamed or exchanged."""
    path = path_of(ledger, link)
    staged = path.with_name(link.staged)
    copy_checked(ledger.base / link.source, staged)
    if os.path.lexists(path) and not exchange(staged, path):
        delete_tree(path)
    if not os.path.lexists(path):
        staged.rename(path)
    delete_tree(staged)


def _tidied(ledger: Ledger, record: Record) -> Record:
    """Without what a crash left on its way in or out."""
    for key, known in record.links.items():
        if known.staged:
            delete_tree(path_of(ledger, known).with_name(known.staged))
            record = record.with_link(record.links[key]._replace(staged=""))
    return record


class _Undo(NamedTuple):
    """One link, for some of its agents."""

    link: Link
    path: Path
    leaving: tuple[str, ...]
    staying: tuple[str, ...]
    outcome: Outcome
    note: str = ""
    next: str = ""

    def steps(self) -> Iterator[Step]:
        for agent in self.leaving:
            yield Step(self.link.name, agent, self.outcome, self.path, self.note, self.next)


def _undoing(
    ledger: Ledger, record: Record, names: Collection[str] | None, agents: Collection[str] | None
) -> Iterator[_Undo]:
    for known in record.links.values():
        leaving = tuple(agent for agent in known.agents if agents is None or agent in agents)
        if (names is None or known.name in names) and leaving:
            yield _undo_of(ledger, known, leaving)


def _undo_of(ledger: Ledger, link: Link, leaving: tuple[str, ...]) -> _Undo:
    path = path_of(ledger, link)
    staying = tuple(agent for agent in link.agents if agent not in leaving)
    if staying:
        others = ", ".join(staying)
        return _Undo(
            link, path, leaving, staying, Outcome.SHARED, f"still there, because it was linked for {others} too"
        )
    if not os.path.lexists(path):
        return _Undo(link, path, leaving, (), Outcome.GONE, "it was not there any more")
    if is_intact(ledger, link):
        return _Undo(link, path, leaving, (), Outcome.REMOVED)
    what = "the copy was edited" if link.is_copy else "it is not the link that was made"
    mend = f"rm -r {shlex.quote(str(path))}"
    return _Undo(link, path, leaving, (), Outcome.KEPT, f"{what}: it stays, and is yours now", mend)


def _undo(ledger: Ledger, record: Record, undo: _Undo) -> Record:
    """The thing first, the record second: what is gone may still be written down, never the other way round."""
    known, path = undo.link, undo.path
    if undo.staying:
        record = record.with_link(known._replace(agents=undo.staying))
    else:
        if undo.outcome is Outcome.REMOVED and known.is_copy:
            leaving = path.with_name(_staging_name())
            write_record(ledger, record.with_link(known._replace(staged=leaving.name)))
            path.rename(leaving)
            delete_tree(leaving)
        elif undo.outcome is Outcome.REMOVED:
            path.unlink()
        record = record.without(known.key)
    write_record(ledger, record)
    return record


def _prune(ledger: Ledger, record: Record) -> None:
    """Folders that we made and that are empty go; one that somebody else uses by now is theirs."""
    needed = {part for known in record.links.values() for part in (known.folder, *map(str, Path(known.folder).parents))}
    kept: list[str] = []
    for folder in sorted(record.made, key=lambda name: -len(Path(name).parts)):
        path = ledger.base / folder
        if folder in needed:
            kept.append(folder)
        elif path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
    if set(kept) != set(record.made):
        write_record(ledger, record._replace(made=tuple(reversed(kept))))
