"""Installs and updates the skills of one target: what is clean goes in, what a scan holds back waits for a decision."""

import difflib
import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import NamedTuple

from skillyard.catalog.roots import SKILL_FILE, list_roots
from skillyard.core.errors import InvalidArgs, SkillError, SkillNotFound, SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.address import ParsedSource, SkillAddress, SkillSource, locked_source, narrowed, parse_source
from skillyard.install.git import GitSource
from skillyard.install.links import AgentLinks, LinkStep
from skillyard.install.mcp_source import McpSource
from skillyard.install.names import as_slug
from skillyard.install.offers import (
    Offer,
    SourceRun,
    choose,
    find_offers,
    find_staged,
    open_staging,
    scan_offer,
    scanned,
    stage,
    unique_slug,
)
from skillyard.install.review import Review, Reviews
from skillyard.install.source import Fetched, Tell
from skillyard.install.target import Drift, InstalledSkill, ScannedSkill, Target, as_text, copy_file, drift_between
from skillyard.trust.mcp_servers import NO_SERVERS, McpServers

#: Returns the names or paths of those that a person chose among the offers of a source.
AskWhich = Callable[[str, Sequence[Offer]], Sequence[str]]
_MAX_DIFF_BYTES = 64 * 1024
_MAX_DIFF_LINES = 200


class LeftOut(NamedTuple):
    """A skill of a source that is not installed with the others: why, and the command that would install it."""

    name: str
    path: str
    source: str
    reason: str
    command: str = ""


class SkillSelection(NamedTuple):
    """The skills of some sources that can be installed, and those that cannot."""

    skills: tuple[ScannedSkill, ...]
    left_out: tuple[LeftOut, ...] = ()
    #: How many have the name and the bytes of another one.
    copies: int = 0


class InstallResult(NamedTuple):
    installed: tuple[InstalledSkill, ...]
    #: What waits for a decision; None if nothing does.
    review: Review | None
    #: Copies of the skills in agents' folders that were refreshed.
    links: tuple[LinkStep, ...] = ()


class UpdateState(StrEnum):
    CURRENT = "current"
    CHANGED = "changed"
    #: The same bytes at another commit, or at another path of the source.
    MOVED = "moved"
    #: The source does not have it any more; it stays installed.
    GONE = "gone"
    FAILED = "failed"


class UpdateStep(NamedTuple):
    """One installed skill, and what its source has for it now."""

    skill: InstalledSkill
    state: UpdateState
    candidate: ScannedSkill | None = None
    #: From what was installed to what would be.
    drift: Drift = Drift()
    #: Files that were changed here and that the update would overwrite.
    edited: tuple[str, ...] = ()
    #: These files line by line: what is here against what would come.
    diff: tuple[str, ...] = ()
    reason: str = ""


class UpdatePlan(NamedTuple):
    steps: tuple[UpdateStep, ...]
    #: Skills of the same sources that are not installed: (source, name).
    new: tuple[tuple[str, str], ...]


class Installer:
    """Add, restore, update, remove and compare the skills of one target. `forge` is where `owner/repo` is looked up."""

    def __init__(
        self,
        target: Target,
        own_home: Path,
        user_home: Path,
        reviews: Reviews,
        forge: Callable[[], str],
        servers: McpServers = NO_SERVERS,
    ) -> None:
        self.target, self._servers = target, servers
        self._own_home, self._user_home, self._reviews, self._forge = own_home, user_home, reviews, forge

    def open_staging(self) -> AbstractContextManager[Path]:
        """A folder for what is fetched; it goes with the context."""
        return open_staging(self._own_home)

    def look(
        self,
        texts: Sequence[str],
        staging: Path,
        tell: Tell,
        *,
        ref: str = "",
        names: Sequence[str] = (),
        everything: bool = False,
        folder: str = "",
        ask: AskWhich | None = None,
    ) -> SkillSelection:
        """Fetch sources, choose, check and scan. Nothing is installed. `ask` chooses if nothing else says which.

        Of several skills those that cannot be installed are left out; if there is only one, its error is raised.
        """
        skills, left_out = list[ScannedSkill](), list[LeftOut]()
        for text in texts:
            wanted = self._parsed(text, ref)
            asked = [*names, *filter(None, [wanted.skill])]
            fetched, offers = _fetch(wanted.source, asked, wanted.path, staging, tell)
            refused = [
                LeftOut(PurePosixPath(path).name, path, wanted.source.text, why)
                for path, why in fetched.refused.items()
                if PurePosixPath(path).is_relative_to(wanted.path)
            ]
            for each in refused:
                if not offers or {each.path, each.name} & {*asked}:
                    raise SourceRefused(each.reason)
            left_out += refused if not asked else []
            chosen = _chosen(text, offers, asked, everything=everything, ask=ask)
            fetched.bring([offer.path for offer in chosen])
            for offer in chosen:
                try:
                    skills.append(scan_offer(offer, wanted.source, fetched, tell))
                except SourceRefused as error:
                    if len(chosen) == 1:
                        raise
                    left_out.append(LeftOut(offer.name, offer.path, wanted.source.text, error.msg))
        if not folder:
            return self._without_clashes(skills, left_out)
        if len(skills) != 1:
            raise InvalidArgs(Message("--as names one skill, not {count}", count=len(skills)))
        return SkillSelection((skills[0]._replace(skill=skills[0].skill._replace(folder=as_slug(folder))),))

    def _without_clashes(self, found: Sequence[ScannedSkill], left_out: list[LeftOut]) -> SkillSelection:
        """A skill that is installed already keeps its folder. If another one has the name, it is left out."""
        known, chosen = self.target.read_lock(), list[ScannedSkill]()
        folders = {(skill.source, skill.path): skill.folder for skill in known.values()}
        here = self.target.skills.iterdir() if self.target.skills.is_dir() else ()
        taken, copies, seen = {*known, *(path.name for path in here)}, 0, set[tuple[str, str]]()
        for each in found:
            skill = each.skill
            if (skill.name, skill.hash) in seen:
                copies += 1
                continue
            seen.add((skill.name, skill.hash))
            skill = skill._replace(folder=folders.get((skill.source, skill.path), skill.folder))
            clash = self.target.find_clash(known, skill) or self._find_shadowed(skill, known)
            if clash and len(found) == 1 and not left_out:
                raise InvalidArgs(clash)
            taken.add(skill.folder)
            if clash:
                free = unique_slug(skill.folder, taken)
                taken.add(free)
                left_out.append(LeftOut(skill.name, skill.path, skill.source, clash, self._add_command(skill, free)))
            else:
                known[skill.folder] = skill
                chosen.append(each._replace(skill=skill))
        return SkillSelection(tuple(chosen), tuple(left_out), copies)

    def _find_shadowed(self, skill: InstalledSkill, known: Mapping[str, InstalledSkill]) -> Message | None:
        """Why a server's skill cannot have its name: another one of the user has it. None if it can."""
        if not skill.uri or skill.folder in known:
            return None
        for root in list_roots(None, self._user_home, self._own_home):
            place = root.path / skill.folder
            if root.path != self.target.skills and (place / SKILL_FILE).is_file():
                told = {"name": skill.folder, "path": place}
                return Message("{name} is the name of {path}, which it would hide: use --as NAME", **told)
        return None

    def _add_command(self, skill: InstalledSkill, folder: str) -> str:
        source = skill.source
        if source.startswith("./") and Path.cwd() != self.target.bounds:
            source = str(self.target.bounds / source)
        options = {"--as": folder, "--skill": skill.path, "--ref": skill.ref}
        words = [word for option in options.items() if option[1] for word in option]
        return shlex.join(["skillyard", "add", source, *words, *([] if self.target.is_project else ["--global"])])

    def add(self, text: str, names: Sequence[str], tell: Tell, *, everything: bool) -> InstallResult:
        """Install from one source without asking. InvalidArgs if a skill must be left out."""
        with self.open_staging() as staging:
            found = self.look([text], staging, tell, names=names, everything=everything)
            for left in found.left_out:
                raise InvalidArgs(Message("{name}: {reason}", name=left.name, reason=left.reason))
            return self.bring_in(found.skills)

    def bring_in(self, found: Iterable[ScannedSkill], *, keep: bool = False, theirs: bool = False) -> InstallResult:
        """Install what is clean; hold back the rest, unless a person kept exactly these bytes before."""
        held, clean = list[ScannedSkill](), list[ScannedSkill]()
        for each in found:
            (held if self._reviews.holds_back(each) else clean).append(each)
        if clean:
            self.target.install(clean, keep=keep, theirs=theirs)
        review = self._reviews.hold(self.target, held) if held else None
        if review:
            self._reviews.write_interrupt(review)
        links = AgentLinks(self.target, self._user_home).refresh([each.skill.folder for each in clean])
        return InstallResult(tuple(each.reviewed_skill for each in clean), review, links)

    def restore(self, tell: Tell, *, theirs: bool = False) -> InstallResult:
        """Install all that the lock names and that is missing. SourceFailed if a source has other bytes now."""
        with self.target.open():
            skills = self.target.read_lock().values()
            drifts = [(skill, self.target.drift_of(skill)) for skill in skills]
        # Edited files are there, unless they are to be replaced; files that the user added never matter.
        wanted = [skill for skill, drift in drifts if drift.missing or (theirs and drift.changed)]
        found: list[ScannedSkill] = []
        with self.open_staging() as staging:
            for group in _by_source(wanted, exact=True):
                source, fetched, offers = self._fetch_locked(group, staging, tell, exact=True)
                for skill in group:
                    if skill.path in fetched.refused:
                        raise SourceRefused(fetched.refused[skill.path])
                    if skill.path not in offers:
                        raise SkillNotFound(skill.name)
                    candidate = scan_offer(offers[skill.path], source, fetched, tell, skill.folder)
                    if candidate.skill.hash != skill.hash:
                        values = {"name": skill.folder, "now": skill.source}
                        raise SourceFailed(Message("{now} has other files for {name} than the lock says", **values))
                    found.append(candidate._replace(skill=skill))
            return self.bring_in(found, keep=not theirs, theirs=theirs)

    def _fetch_locked(
        self, group: Sequence[InstalledSkill], staging: Path, tell: Tell, *, exact: bool
    ) -> tuple[SkillSource, Fetched, dict[str, Offer]]:
        """Fetch the source of these skills: in the state of the lock if `exact`, else as it is now."""
        first = group[0]
        ref, commit, is_mine = first.ref, first.commit if exact else "", not self.target.is_project
        source = locked_source(first.source, ref, commit, self.target.bounds, self._servers, is_mine=is_mine)
        if isinstance(source, McpSource):
            source = source._replace(only=tuple(skill.uri for skill in group if skill.uri))
        names = [skill.path for skill in group] if exact else []
        fetched, offers = _fetch(source, names, "", staging, tell)
        return source, fetched, {offer.path: offer for offer in offers}

    def plan_update(self, names: Sequence[str] | None, staging: Path, tell: Tell) -> UpdatePlan:
        """What the sources have now for these skills, or for all. Nothing is changed.

        Each source is fetched once. If one fails, its skills say so and the others go on.
        """
        lock, steps, new = self.target.read_lock(), list[UpdateStep](), list[tuple[str, str]]()
        skills = tuple(lock.values()) if names is None else self.find(names)
        for group in _by_source(skills, exact=False):
            try:
                source, fetched, offers = self._fetch_locked(group, staging, tell, exact=False)
            except SkillError as error:
                steps += [UpdateStep(skill, UpdateState.FAILED, reason=error.msg) for skill in group]
                continue
            known = [skill for skill in lock.values() if skill.source == source.text]
            have = {skill.path for skill in known}
            free = {path: offer for path, offer in offers.items() if path not in have}
            for skill in group:
                offer = offers.get(skill.path)
                if offer is None:  # one of the same name that nobody has is the same skill, at another path
                    same = [other for other in free.values() if other.name == skill.name]
                    offer = free.pop(same[0].path) if len(same) == 1 and skill.path not in fetched.refused else None
                steps.append(self._step(skill, offer, source, fetched, tell))
            named = {skill.name for skill in known}
            new += [(source.text, offer.name) for offer in free.values() if offer.name not in named]
        return UpdatePlan(tuple(steps), tuple(new))

    def _step(
        self, skill: InstalledSkill, offer: Offer | None, source: SkillSource, fetched: Fetched, tell: Tell
    ) -> UpdateStep:
        if skill.path in fetched.refused:
            return UpdateStep(skill, UpdateState.FAILED, reason=fetched.refused[skill.path])
        if offer is None:
            return UpdateStep(skill, UpdateState.GONE)
        if offer.files is not None and offer.files == skill.files and offer.path == skill.path:
            return UpdateStep(skill, UpdateState.CURRENT)
        try:
            candidate = scan_offer(offer, source, fetched, tell, skill.folder)
        except SkillError as error:
            return UpdateStep(skill, UpdateState.FAILED, reason=error.msg)
        now = candidate.skill
        if now.hash == skill.hash:
            is_moved = (now.path, now.commit) != (skill.path, skill.commit)
            return UpdateStep(skill, UpdateState.MOVED if is_moved else UpdateState.CURRENT, candidate)
        drift = drift_between(skill.files, now.files)
        touched = {*drift.changed, *drift.missing}
        edited = tuple(path for path in self.target.drift_of(skill).changed if path in touched)
        here = self.target.skills / skill.folder
        diff = tuple(line for path in edited for line in _diff(here, candidate.at, path))
        candidate = candidate._replace(moved_from=skill.path)
        return UpdateStep(skill, UpdateState.CHANGED, candidate, drift, edited, diff)

    def apply_update(self, plan: UpdatePlan, *, keep: bool = False, theirs: bool = False) -> InstallResult:
        """Bring in what changed. Of what only moved, the lock learns the new place."""
        moved = {step.skill.folder: step.candidate for step in plan.steps if step.state is UpdateState.MOVED}
        if moved:
            with self.target.open():
                lock = self.target.read_lock()
                for folder, candidate in moved.items():
                    old = lock.get(folder)
                    if old and candidate and old.hash == candidate.skill.hash:
                        lock[folder] = old._replace(path=candidate.skill.path, commit=candidate.skill.commit)
                self.target.apply([], as_text(lock))
        found = (step.candidate for step in plan.steps if step.state is UpdateState.CHANGED)
        return self.bring_in(filter(None, found), keep=keep, theirs=theirs)

    def find(self, names: Sequence[str], source: str = "") -> tuple[InstalledSkill, ...]:
        """Installed skills by folder or name, and all of one source. SkillNotFound or InvalidArgs if there is none."""
        skills, found = self.target.read_lock(), dict[str, InstalledSkill]()
        for name in names:
            matches = {skill.folder: skill for skill in skills.values() if name in {skill.folder, skill.name}}
            if not matches:
                raise SkillNotFound(name, tuple(skills))
            found |= matches
        if source:
            matches = {skill.folder: skill for skill in skills.values() if skill.source == source}
            if not matches:
                raise InvalidArgs(Message("nothing was installed from {source}", source=source))
            found |= matches
        return tuple(found.values())

    def is_installed(self, folder: str, content_hash: str) -> bool:
        known = self.target.read_lock().get(folder)
        return known is not None and known.hash == content_hash

    def unlink(self, folders: Sequence[str]) -> tuple[LinkStep, ...]:
        """Remove what `link` made of these skills."""
        return AgentLinks(self.target, self._user_home).unlink_installed(folders)

    def remove(self, folders: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Remove installed skills. Return the files that the user made or edited, which stay, by folder."""
        target, kept, moves = self.target, dict[str, tuple[str, ...]](), list[tuple[str, Path | None]]()
        with target.open():
            lock = target.read_lock()
            for folder in folders:
                if folder not in lock:
                    raise SkillNotFound(folder, tuple(lock))
                drift, staged = target.drift_of(lock[folder]), None
                if files := tuple(sorted((*drift.changed, *drift.added))):
                    kept[folder], staged = files, target.new_staging()
                    for path in files:
                        copy_file(target.skills / folder / path, staged / path)
                moves.append((folder, staged))
            target.apply(moves, as_text({name: skill for name, skill in lock.items() if name not in folders}))
        return kept

    def compare(self) -> Mapping[str, Drift]:
        """How each installed skill differs from the lock. Waits for a change that is going on."""
        with self.target.open():
            skills = self.target.read_lock()
            return {folder: self.target.drift_of(skill) for folder, skill in sorted(skills.items())}

    def read_review(self, name: str) -> Review:
        """The review of this target. InvalidArgs if there is none of that name."""
        found = self._reviews.find(name)
        if found is None or found.target != self.target:
            raise InvalidArgs(Message("no review {name!r} waits in this project", name=name))
        return found

    def prepare_run(self, address: SkillAddress, tell: Tell) -> SourceRun:
        """Stage one skill for a run, and install nothing. A copy of the same commit is used again, and scanned again:
        rules change."""
        wanted = self._parsed(address.source, address.ref)
        source, skill = wanted.source, address.skill or wanted.skill

        def key(state: str) -> str:
            """What was asked for, in this state of it: a commit, or a content hash."""
            asked = json.dumps([source.text, state, wanted.path, skill])
            return hashlib.sha256(asked.encode()).hexdigest()[:32]

        with self.open_staging() as staging:
            # Other sources cannot tell without a fetch.
            commit = source.resolve(Path(mkdtemp(dir=staging)), tell) if isinstance(source, GitSource) else ""
            known = find_staged(self._own_home, key(commit)) if commit else None
            copy = known
            if copy is None:
                fetched, offers = _fetch(source, [skill] if skill else [], wanted.path, staging, tell)
                for why in fetched.refused.values() if not offers else ():
                    raise SourceRefused(why)
                how = Message("say which, {source}@NAME", source=address.source)
                (offer,) = _pick(address.source, choose(offers, [skill]) if skill else offers, how)
                found = scan_offer(offer, source, fetched, tell)
                copy = stage(self._own_home, key(found.skill.commit or found.skill.hash), found)
        found = ScannedSkill(copy.skill, copy.at, scanned(copy.at))
        return SourceRun(address, found, self._reviews.holds_back(found), known is not None, copy.lease)

    def _parsed(self, text: str, ref: str) -> ParsedSource:
        root, forge = self.target.bounds, self._forge()
        return parse_source(text, ref, cwd=Path.cwd(), root=root, forge=forge, servers=self._servers)


def _fetch(
    source: SkillSource, names: Sequence[str], path: str, staging: Path, tell: Tell
) -> tuple[Fetched, tuple[Offer, ...]]:
    """Fetch a source, or only these skills of it if it can, and what it offers below the path."""
    fetched = narrowed(source, names).fetch(Path(mkdtemp(dir=staging)), tell)
    return fetched, find_offers(fetched, path, source.text)


def _chosen(
    text: str, offers: Sequence[Offer], names: Sequence[str], *, everything: bool, ask: AskWhich | None
) -> Sequence[Offer]:
    if names:
        return choose(offers, names)
    if ask and len(offers) > 1 and not everything:
        return choose(offers, ask(text, offers))
    return _pick(text, offers, Message("say which with --skill, or --all"), several=everything)


def _pick(text: str, offers: Sequence[Offer], how: Message, *, several: bool = False) -> Sequence[Offer]:
    """The only offer, or `several`. Otherwise they are listed, never guessed."""
    if not offers:
        raise InvalidArgs(Message("{text} holds no skill: there is no SKILL.md in it", text=text))
    if several:
        return [offer for offer in offers if not _is_nested(offer, offers)]
    if len(offers) == 1:
        return offers
    listed: list[Json] = [{"name": offer.name, "description": offer.description} for offer in offers]
    names = ", ".join(offer.name for offer in offers[:20]) + (", …" if len(offers) > 20 else "")
    values = {"text": text, "count": len(offers), "how": how, "names": names}
    why = Message("{text} holds {count} skills: {how}. They are: {names}", **values)
    raise InvalidArgs(why, details={"skills": listed})


def _is_nested(offer: Offer, offers: Sequence[Offer]) -> bool:
    """Whether it is a part of another skill of a server: it is installed on its own only if somebody names it."""
    return bool(offer.uri) and any(offer.path.startswith(f"{other.path}/") for other in offers)


def _by_source(skills: Iterable[InstalledSkill], *, exact: bool) -> Iterable[Sequence[InstalledSkill]]:
    """The skills that one fetch gives: of one source and ref; if `exact`, of one commit."""
    groups: dict[tuple[str, str, str], list[InstalledSkill]] = {}
    for skill in skills:
        groups.setdefault((skill.source, skill.ref, skill.commit if exact else ""), []).append(skill)
    return groups.values()


def _diff(here: Path, there: Path, path: str) -> Iterable[str]:
    def read(file: Path) -> list[str]:
        if file.is_symlink() or not file.is_file():
            return []
        with file.open("rb") as content:
            return content.read(_MAX_DIFF_BYTES).decode("utf-8", "replace").splitlines()

    diff = difflib.unified_diff(read(here / path), read(there / path), f"here/{path}", f"theirs/{path}", lineterm="")
    lines = list(diff)
    return [*lines[:_MAX_DIFF_LINES], *(["…"] if len(lines) > _MAX_DIFF_LINES else [])]
