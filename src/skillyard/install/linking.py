"""Skills in the agents' own folders: which skills, whose folders, and what the agents themselves say."""

import os
import shlex
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.catalog.agent_paths import Looker, lookers_of, refusal
from skillyard.catalog.index import Entry
from skillyard.catalog.roots import Scope
from skillyard.core.errors import AgentNotInstalled, AmbiguousName, InvalidArgs, SkillError, SkillNotFound
from skillyard.core.messages import Message
from skillyard.install.link import Wish, path_of
from skillyard.install.links import Ledger, read_record
from skillyard.install.lock import read_lock
from skillyard.install.target import Place, global_place, project_place

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.backends.driver import VisibleSkill


def ledger_of(yard: "Project", *, is_user: bool, env: Mapping[str, str] = os.environ) -> Ledger:
    lookers = lookers_of(env)
    own_home = yard.places.own_home
    if is_user:
        folders = {looker.agent: looker.user[-1] for looker in lookers}
        return Ledger(global_place(own_home), own_home / "links.json", yard.places.user_home, folders, is_project=False)
    folders = {looker.agent: looker.project[-1] for looker in lookers}
    record = yard.root / ".skillyard" / "links.json"
    return Ledger(project_place(yard.root), record, yard.root, folders, is_project=True)


def ledger_for(yard: "Project", place: Place) -> Ledger:
    """The one whose links follow what is installed in this place."""
    return ledger_of(yard, is_user=place.bounds == yard.places.own_home)


def chosen_skills(
    yard: "Project", ledger: Ledger, names: Sequence[str], *, with_linked: bool = False
) -> tuple[Entry, ...]:
    """The named skills of this scope; without names, all that were installed here, and those that were linked."""
    yard.catalog.sync()
    if names:
        return tuple(dict.fromkeys(_named(yard, ledger, name.removeprefix("@")) for name in names))
    folders = [ledger.place.skills / folder for folder in sorted(read_lock(ledger.place.lock_file).skills)]
    if with_linked:
        folders += [ledger.base / link.source for link in read_record(ledger).links.values()]
    found = (entry for folder in folders for entry in yard.catalog.candidates(folder.name) if entry.folder == folder)
    return tuple(dict.fromkeys(found))


def _named(yard: "Project", ledger: Ledger, name: str) -> Entry:
    """As a run would choose it, among the skills of this scope; never something that link itself made."""
    record = read_record(ledger)
    ours = {path_of(ledger, link) for link in record.links.values()}
    scope = Scope.PROJECT if ledger.is_project else Scope.USER
    roots = {str(root.path) for root in yard.catalog.roots if root.scope is scope}
    everywhere = [entry for entry in yard.catalog.candidates(name) if entry.folder not in ours]
    found = [entry for entry in everywhere if entry.root in roots]
    if not found and everywhere:
        where = (
            Message("{name} is one of your own skills: add --user", name=name)
            if ledger.is_project
            else Message("{name} is a skill of this project: leave out --user", name=name)
        )
        raise InvalidArgs(where)
    plain = name.rpartition("/")[2]
    matches = [entry for entry in found if entry.folder_name == plain] or found
    if not matches:
        raise SkillNotFound(name, yard.catalog.nearest(name))
    strongest = [entry for entry in matches if entry.root == matches[0].root]
    if len(strongest) > 1:
        raise AmbiguousName(name, tuple(str(entry.folder.relative_to(entry.root)) for entry in strongest))
    if strongest[0].role:
        raise InvalidArgs(Message("{name} is a role's skill: agents reach it only through Skillyard", name=name))
    return strongest[0]


def wishes_of(
    yard: "Project",
    ledger: Ledger,
    entries: Sequence[Entry],
    agents: Collection[str],
    env: Mapping[str, str] = os.environ,
) -> tuple[Wish, ...]:
    lookers = [looker for looker in lookers_of(env) if looker.agent in agents]
    return tuple(_wish(yard, ledger, entry, looker) for entry in entries for looker in lookers)


def _wish(yard: "Project", ledger: Ledger, entry: Entry, looker: Looker) -> Wish:
    """What the agent would leave out or take from elsewhere is linked all the same, and told."""
    roots = _roots(yard, ledger, looker)
    seen = [root / entry.folder_name for root in roots]
    if looker.nested and any(entry.folder.is_relative_to(root) for root in roots):
        seen.append(entry.folder)
    refused = refusal(looker, entry)
    rivals = [path for path in seen if _is_skill(path) and path.resolve() != entry.folder.resolve()]
    target = ledger.base / ledger.folders[looker.agent] / entry.folder_name
    rivals = [path for path in rivals if path != target]
    note, mend = (refused.why, refused.fix) if refused else ("", "")
    if rivals and not refused:
        note = Message(
            "there is another of that name at {rivals}; {agent} {choice}",
            rivals=rivals[0],
            agent=looker.agent,
            choice=looker.choice,
        )
        mend = Message("skillyard link {shlex} --check tells which one it takes", shlex=shlex.quote(entry.folder_name))
    return Wish(entry.folder_name, entry.folder, looker.agent, tuple(seen), note, mend)


def _roots(yard: "Project", ledger: Ledger, looker: Looker) -> list[Path]:
    """The user's links serve every project, so what one project holds does not count for them."""
    return list(looker.roots(yard.places.project if ledger.is_project else None, yard.places.user_home))


def _is_skill(folder: Path) -> bool:
    return (folder / "SKILL.md").is_file()


class Standing(StrEnum):
    SEEN = "seen"
    NOT_SEEN = "not seen"
    SHADOWED = "shadowed"
    NOT_INSTALLED = "not installed"
    #: The agent was asked and did not say.
    UNKNOWN = "unknown"


class View(NamedTuple):
    """What one agent says of one skill."""

    name: str
    agent: str
    standing: Standing
    path: str = ""
    note: str = ""


def ask_agents(
    yard: "Project",
    ledger: Ledger,
    entries: Sequence[Entry],
    agents: Collection[str],
    tell: Callable[[str], None],
    env: Mapping[str, str] = os.environ,
) -> tuple[View, ...]:
    """Every skill for every agent, from what the real programs list."""
    views: list[View] = []
    for looker in lookers_of(env):
        if looker.agent in agents:
            tell(Message("asking {text}", text=looker.agent))
            views += _views(yard, ledger, entries, looker, env)
    return tuple(views)


def _views(
    yard: "Project", ledger: Ledger, entries: Sequence[Entry], looker: Looker, env: Mapping[str, str]
) -> Iterator[View]:
    from skillyard.backends.visible_skills import list_visible_skills

    try:
        with tempfile.TemporaryDirectory() as empty:  # the user's skills are those of no project
            sights = list_visible_skills(looker.agent, ledger.base if ledger.is_project else Path(empty), env)
    except AgentNotInstalled as error:
        hint = str(error.values.get("command", ""))
        yield from (View(e.folder_name, looker.agent, Standing.NOT_INSTALLED, note=hint) for e in entries)
        return
    except SkillError as error:
        yield from (View(e.folder_name, looker.agent, Standing.UNKNOWN, note=error.msg) for e in entries)
        return
    for entry in entries:
        yield _view(yard, ledger, entry, looker, sights)


def _view(yard: "Project", ledger: Ledger, entry: Entry, looker: Looker, sights: "tuple[VisibleSkill, ...]") -> View:
    links = [link for link in read_record(ledger).links.values() if link.name == entry.folder_name]
    ours = {entry.folder.resolve(), *(path_of(ledger, link).resolve() for link in links)}
    paths = [path for sight in sights if (path := _path(yard, ledger, entry, looker, sight))]
    mine = [path for path in paths if path.resolve() in ours]
    others = [path for path in paths if path.resolve() not in ours]
    if mine:
        note = Message("also {others}", others=", ".join(map(str, others))) if others else ""
        return View(entry.folder_name, looker.agent, Standing.SEEN, str(mine[0]), note)
    if others:
        note = Message("another of that name: rename or remove one of them")
        return View(entry.folder_name, looker.agent, Standing.SHADOWED, str(others[0]), note)
    refused = refusal(looker, entry)
    flag = "" if ledger.is_project else " --user"
    mend = refused.why if refused else f"skillyard link {shlex.quote(entry.folder_name)} --to {looker.agent}{flag}"
    return View(entry.folder_name, looker.agent, Standing.NOT_SEEN, note=mend)


def _path(yard: "Project", ledger: Ledger, entry: Entry, looker: Looker, sight: "VisibleSkill") -> Path | None:
    """The folder of a listed skill, where it has this one's name. Claude Code tells a folder's name and whose it is."""
    if sight.path:
        folder = Path(sight.path).parent
        return folder if sight.name == entry.name or folder.name == entry.folder_name else None
    if sight.name != entry.folder_name:
        return None
    users = [yard.places.user_home / looker.user[0]]
    projects = [root for root in _roots(yard, ledger, looker) if root not in users]
    roots = {"user": users, "project": projects}.get(sight.owner, [*users, *projects])
    return next((root / sight.name for root in roots if _is_skill(root / sight.name)), None)
