"""Installs skills from sources into one target: what is clean goes in, what a scan holds back waits for a decision."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, SkillNotFound, SourceFailed
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.address import FORGE, ParsedSource, locked_source, narrowed, parse_source
from skillyard.install.git import GitSource
from skillyard.install.links import LinkStep, link_scope, refresh, unlink_sources
from skillyard.install.lock import InstalledSkill, read_lock
from skillyard.install.offers import (
    Offer,
    ScannedSkill,
    choose,
    find_offers,
    new_subfolder,
    open_staging,
    scan_offer,
    scanned,
)
from skillyard.install.review import Review, Reviews
from skillyard.install.source import Tell
from skillyard.install.source_run import SkillAddress, SourceRun, copy_key, find_staged, stage
from skillyard.install.target import Addition, Target, compare, drift_of, find_installed, install, open_target, remove
from skillyard.install.tree import Drift
from skillyard.install.update import UpdatePlan, UpdateState, plan_update

#: Chooses among the offers of a source; a face asks a person.
Choose = Callable[[Sequence[Offer]], Sequence[Offer]]


class InstallResult(NamedTuple):
    installed: tuple[InstalledSkill, ...]
    #: What waits for a decision; None if nothing does.
    review: Review | None
    #: Copies of the skills in agents' folders that were refreshed.
    links: tuple[LinkStep, ...] = ()


class Installer:
    """Add, restore, update, remove and compare the skills of one target. `forge` is where `owner/repo` is looked up."""

    def __init__(
        self, target: Target, own_home: Path, user_home: Path, reviews: Reviews, forge: Callable[[], str]
    ) -> None:
        self.target = target
        self._own_home, self._user_home, self._reviews, self._forge = own_home, user_home, reviews, forge

    def open_staging(self) -> AbstractContextManager[Path]:
        """A folder for what is fetched; it goes with the context."""
        return open_staging(self._own_home)

    def look(
        self,
        text: str,
        staging: Path,
        tell: Tell,
        *,
        ref: str = "",
        names: Sequence[str] = (),
        everything: bool = False,
        folder: str = "",
        ask: Choose | None = None,
    ) -> tuple[ScannedSkill, ...]:
        """Fetch a source, choose, check and scan. Nothing is installed. `ask` chooses if nothing else says which."""
        wanted = self._parsed(text, ref)
        names = [*names, *([wanted.skill] if wanted.skill else [])]

        def pick(offers: Sequence[Offer]) -> Sequence[Offer]:
            if ask and len(offers) > 1 and not names and not everything:
                return ask(offers)
            how = Message("say which with --skill, or --all")
            return _pick(
                text, choose(offers, names) if names and offers else offers, how, several=bool(names) or everything
            )

        return _fetched(wanted.narrowed(names), staging, pick, tell, folder)

    def add(self, text: str, names: Sequence[str], tell: Tell, *, everything: bool) -> InstallResult:
        """Install from the text of one source, without asking."""
        with self.open_staging() as staging:
            return self.bring_in(self.look(text, staging, tell, names=names, everything=everything))

    def bring_in(self, found: Iterable[ScannedSkill], *, keep: bool = False, theirs: bool = False) -> InstallResult:
        """Install what is clean; hold back the rest, unless a person kept exactly these bytes before."""
        held, clean = list[ScannedSkill](), list[ScannedSkill]()
        for each in found:
            (held if self._reviews.holds_back(each) else clean).append(each)
        skills = tuple(each.reviewed_skill for each in clean)
        if clean:
            additions = [Addition(skill, each.at, each.is_ours) for skill, each in zip(skills, clean, strict=True)]
            install(self.target, additions, keep=keep, theirs=theirs)
        review = self._reviews.hold(self.target, held) if held else None
        if review:
            self._reviews.write_interrupt(review)
        folders = [self.target.skills / skill.folder for skill in skills]
        return InstallResult(skills, review, refresh(link_scope(self.target, self._user_home), folders))

    def restore(self, tell: Tell, *, theirs: bool = False) -> InstallResult:
        """Install all that the lock names and that is missing. SourceFailed if a source has other bytes now."""
        with open_target(self.target):
            lock = read_lock(self.target.lock_file)
            drifts = [(skill, drift_of(self.target, skill)) for skill in lock.skills.values()]
        groups: dict[tuple[str, str, str], list[InstalledSkill]] = {}
        for skill, drift in drifts:
            # Edited files are there, unless they are to be replaced; files that the user added never matter.
            if drift.missing or (theirs and drift.changed):
                groups.setdefault((skill.source, skill.ref, skill.commit), []).append(skill)
        with self.open_staging() as staging:
            found = [each for group in groups.values() for each in self._locked(group, staging, tell)]
            return self.bring_in(found, keep=not theirs, theirs=theirs)

    def _locked(self, group: Sequence[InstalledSkill], staging: Path, tell: Tell) -> list[ScannedSkill]:
        """The very bytes of the lock, or an error: a restore is exact."""
        first = group[0]
        source = locked_source(first.source, first.ref, first.commit, self.target.bounds)
        source = narrowed(source, [skill.path for skill in group])
        fetched = source.fetch(new_subfolder(staging), tell)
        found: list[ScannedSkill] = []
        for skill in group:
            offers = find_offers(fetched, skill.path, source.text)
            offer = next((each for each in offers if each.path == skill.path), None)
            if offer is None:
                raise SkillNotFound(skill.name)
            candidate = scan_offer(offer, source, fetched, tell, skill.folder)
            if candidate.skill.hash != skill.hash:
                name, now = skill.folder, skill.source
                raise SourceFailed(Message("{now} has other files for {name} than the lock says", now=now, name=name))
            found.append(candidate._replace(skill=skill))
        return found

    def plan_update(self, names: Sequence[str] | None, staging: Path, tell: Tell) -> UpdatePlan:
        """What the sources have now for these skills, or for all. Nothing is changed."""
        lock = read_lock(self.target.lock_file)
        skills = tuple(lock.skills.values()) if names is None else find_installed(lock, names)
        return plan_update(self.target, skills, staging, tell)

    def apply_update(self, plan: UpdatePlan, *, keep: bool = False, theirs: bool = False) -> InstallResult:
        found = (step.candidate for step in plan.steps if step.state is UpdateState.CHANGED)
        return self.bring_in(filter(None, found), keep=keep, theirs=theirs)

    def find(self, names: Sequence[str], source: str = "") -> tuple[InstalledSkill, ...]:
        """Installed skills by folder or name, and all of one source. SkillNotFound or InvalidArgs if there is none."""
        return find_installed(read_lock(self.target.lock_file), names, source)

    def is_installed(self, folder: str, content_hash: str) -> bool:
        known = read_lock(self.target.lock_file).skills.get(folder)
        return known is not None and known.hash == content_hash

    def unlink(self, folders: Sequence[str]) -> tuple[LinkStep, ...]:
        """Remove what `link` made of these skills."""
        scope = link_scope(self.target, self._user_home)
        return unlink_sources(scope, [self.target.skills / folder for folder in folders])

    def remove(self, folders: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Remove installed skills. Return the files that the user made or edited, which stay, by folder."""
        return remove(self.target, folders)

    def compare(self) -> Mapping[str, Drift]:
        """How each installed skill differs from the lock."""
        return compare(self.target)

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
        skill = address.skill or wanted.skill
        wanted = wanted.narrowed([skill] if skill else [])

        def key(state: str) -> str:
            return copy_key(wanted.source.text, state, wanted.path, skill)

        def pick(offers: Sequence[Offer]) -> Sequence[Offer]:
            how = Message("say which, {source}@NAME", source=address.source)
            return _pick(address.source, choose(offers, [skill]) if skill else offers, how)

        with self.open_staging() as staging:
            git = wanted.source if isinstance(wanted.source, GitSource) else None
            commit = git.resolve(new_subfolder(staging), tell) if git else ""  # others cannot tell without a fetch
            known = find_staged(self._own_home, key(commit)) if commit else None
            copy = known
            if copy is None:
                (offer,) = _fetched(wanted, staging, pick, tell)
                copy = stage(self._own_home, key(offer.skill.commit or offer.skill.hash), offer)
        found = ScannedSkill(copy.skill, copy.at, scanned(copy.at))
        return SourceRun(address, copy, found, self._reviews.holds_back(found), reused=known is not None)

    def _parsed(self, text: str, ref: str) -> ParsedSource:
        return parse_source(text, ref, cwd=Path.cwd(), root=self.target.bounds, forge=self._forge() or FORGE)


def _fetched(
    wanted: ParsedSource, staging: Path, pick: Choose, tell: Tell, folder: str = ""
) -> tuple[ScannedSkill, ...]:
    fetched = wanted.source.fetch(new_subfolder(staging), tell)
    offers = pick(find_offers(fetched, wanted.path, wanted.source.text))
    return tuple(scan_offer(offer, wanted.source, fetched, tell, folder) for offer in offers)


def _pick(text: str, offers: Sequence[Offer], how: Message, *, several: bool = False) -> Sequence[Offer]:
    """The only offer, or `several`. Otherwise they are listed, never guessed."""
    if not offers:
        raise InvalidArgs(Message("{text} holds no skill: there is no SKILL.md in it", text=text))
    if len(offers) == 1 or several:
        return offers
    listed: list[Json] = [{"name": offer.name, "description": offer.description} for offer in offers]
    count, names = len(offers), ", ".join(offer.name for offer in offers[:20]) + (", …" if len(offers) > 20 else "")
    said = {"text": text, "count": count, "how": how, "names": names}
    told = Message("{text} holds {count} skills: {how}. They are: {names}", **said)
    raise InvalidArgs(told, details={"skills": listed})
