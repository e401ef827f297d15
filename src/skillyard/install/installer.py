"""Installs from outside: which place, which sources, which scan; what is clean goes in, what is doubtful waits."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.core.depth import DEPTH
from skillyard.core.errors import InvalidArgs, SkillError, SkillNotFound, SourceFailed
from skillyard.install.address import FORGE, ParsedSource, locked_source, narrowed, parse_source
from skillyard.install.candidates import (
    Offer,
    Scan,
    ScannedOffer,
    as_candidate,
    choose,
    find_offers,
    open_staging,
    threat_scan,
)
from skillyard.install.linker import ledger_for
from skillyard.install.links import LinkStep, refresh
from skillyard.install.lock import InstalledSkill, read_lock
from skillyard.install.review import Resumed, Review, forget_interrupt, hold, resume, write_interrupt
from skillyard.install.source import Fetched, SkillSource, Tell
from skillyard.install.target import (
    Addition,
    Target,
    drift_of,
    global_target,
    install,
    open_target,
    project_target,
    write_whole,
)
from skillyard.install.threats.verdict import ThreatLevel
from skillyard.scripts.interrupt import FILE

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.core.values import Json

#: Who looks at what comes from outside. The threat rules go here: one line.
SCAN: Scan = threat_scan

#: Which of the offers to take; a face asks, where there is somebody.
Pick = Callable[[Sequence[Offer]], Sequence[Offer]]


class InstallResult(NamedTuple):
    """What came of an install."""

    installed: tuple[InstalledSkill, ...]
    #: What waits for a decision; None where nothing does.
    review: Review | None
    #: Copies of them in agents' folders, that follow.
    links: tuple[LinkStep, ...] = ()


def place_of(yard: "Project", *, is_global: bool) -> Target:
    return global_target(yard.places.own_home) if is_global else project_target(yard.root)


def keep_limit(*, on_terminal: bool, env: Mapping[str, str] = os.environ) -> ThreatLevel | None:
    """The worst that may be kept: by a person anything, off a terminal MEDIUM, inside an agent nothing."""
    if env.get(DEPTH):
        return None
    return ThreatLevel.CRITICAL if on_terminal else ThreatLevel.MEDIUM


def wanted_from(yard: "Project", place: Target, text: str, ref: str) -> ParsedSource:
    return parse_source(text, ref, cwd=Path.cwd(), root=place.bounds, forge=yard.settings.forge or FORGE)


def pick_named(text: str, names: Sequence[str], *, everything: bool = False) -> Pick:
    """Those that were named; else the only one, or everything. Several are listed, never guessed."""

    def pick(offers: Sequence[Offer]) -> Sequence[Offer]:
        if not offers:
            raise InvalidArgs(f"{text} holds no skill: there is no SKILL.md in it")
        if names:
            return choose(offers, names)
        if len(offers) == 1 or everything:
            return offers
        listed: list[Json] = [{"name": offer.name, "description": offer.description} for offer in offers]
        shown = ", ".join(offer.name for offer in offers[:20]) + (", …" if len(offers) > 20 else "")
        raise InvalidArgs(
            f"{text} holds {len(offers)} skills: say which with --skill, or --all. They are: {shown}",
            details={"skills": listed},
        )

    return pick


def look(wanted: ParsedSource, staging: Path, pick: Pick, tell: Tell, folder: str = "") -> tuple[ScannedOffer, ...]:
    """Fetch, list, let somebody pick, check and scan. Nothing is installed."""
    fetched = wanted.source.fetch(staging, tell)
    offers = pick(find_offers(fetched, wanted.path, wanted.source.text))
    return tuple(scanned_offer(offer, wanted.source, fetched, tell, folder) for offer in offers)


def scanned_offer(offer: Offer, source: SkillSource, fetched: Fetched, tell: Tell, folder: str) -> ScannedOffer:
    tell(f"scanning {offer.name}")
    return as_candidate(offer, source, fetched.commit, SCAN, folder)._replace(is_ours=fetched.is_ours)


def bring_in(
    yard: "Project", place: Target, found: Sequence[ScannedOffer], *, keep: bool = False, theirs: bool = False
) -> InstallResult:
    """Install what is clean; hold back what is not, unless a person kept exactly these bytes before."""
    held = [each for each in found if is_held_back(yard, each)]
    clean = [_as_decided(each) for each in found if each not in held]
    if clean:
        install(place, [Addition(each.skill, each.at, each.is_ours) for each in clean], keep=keep, theirs=theirs)
    review = hold(yard.places.own_home, place, held) if held else None
    if review:
        tell_project(yard, review)
    skills = tuple(each.skill for each in clean)
    return InstallResult(skills, review, _refresh_links(yard, place, skills))


def _refresh_links(yard: "Project", place: Target, skills: Sequence[InstalledSkill]) -> tuple[LinkStep, ...]:
    return refresh(ledger_for(yard, place), [place.skills / skill.folder for skill in skills])


def is_held_back(yard: "Project", candidate: ScannedOffer) -> bool:
    """What a lock says of a review comes with the project, so only what was decided on this machine counts."""
    if not candidate.verdict.held:
        return False
    file = _kept_file(yard, candidate.skill.hash)
    said = file.read_text("utf-8") if file.is_file() else ""
    return said not in ThreatLevel.__members__ or ThreatLevel[said] < candidate.verdict.severity


def _as_decided(candidate: ScannedOffer) -> ScannedOffer:
    said = str(candidate.verdict.severity) if candidate.verdict.held else ""
    return candidate._replace(skill=candidate.skill._replace(reviewed=said))


def _kept_file(yard: "Project", content_hash: str) -> Path:
    """One file for each content that a person kept, with the severity that it was kept in spite of."""
    return yard.places.own_home / "kept" / content_hash.removeprefix("sha256:")


def restore(yard: "Project", place: Target, tell: Tell, *, theirs: bool = False) -> InstallResult:
    """Everything that the lock names and that is not there. SourceFailed where a source has other bytes now."""
    with open_target(place):
        lock = read_lock(place.lock_file)
        missing = [skill for skill in lock.skills.values() if not _is_there(place, skill, theirs=theirs)]
    with open_staging(yard.places.own_home) as staging:
        found = [each for group in _by_source(missing) for each in _again(group, place, staging, tell)]
        return bring_in(yard, place, found, keep=not theirs, theirs=theirs)


def _is_there(place: Target, skill: InstalledSkill, *, theirs: bool) -> bool:
    """Files that the user edited are there, unless they are to be replaced; files beside ours never matter."""
    drift = drift_of(place, skill)
    return not drift.missing and not (theirs and drift.changed)


def _by_source(skills: Sequence[InstalledSkill]) -> list[list[InstalledSkill]]:
    groups: dict[tuple[str, str, str], list[InstalledSkill]] = {}
    for skill in skills:
        groups.setdefault((skill.source, skill.ref, skill.commit), []).append(skill)
    return list(groups.values())


def _again(group: Sequence[InstalledSkill], place: Target, staging: Path, tell: Tell) -> list[ScannedOffer]:
    """The very bytes of the lock, or an error: a restore is exact."""
    first = group[0]
    source = locked_source(first.source, first.ref, first.commit, place.bounds)
    source = narrowed(source, [skill.path for skill in group])
    fetched = source.fetch(inner_folder(staging), tell)
    found: list[ScannedOffer] = []
    for skill in group:
        candidate = _at_path(skill, source, fetched, tell)
        if candidate.skill.hash != skill.hash:
            raise SourceFailed(f"{skill.source} has other files for {skill.folder} now than the lock says")
        found.append(candidate._replace(skill=skill))
    return found


def inner_folder(staging: Path) -> Path:
    folder = staging / str(sum(1 for _ in staging.iterdir()))
    folder.mkdir()
    return folder


def _at_path(skill: InstalledSkill, source: SkillSource, fetched: Fetched, tell: Tell) -> ScannedOffer:
    for offer in find_offers(fetched, skill.path, source.text):
        if offer.path == skill.path:
            return scanned_offer(offer, source, fetched, tell, skill.folder)
    raise SkillNotFound(skill.name)


def resume_review(yard: "Project", review: Review, decisions: "Mapping[str, Json]", *, on_terminal: bool) -> Resumed:
    """Do what was decided, within what the one who decides may; the interrupt file follows."""
    if not review.place.bounds.is_dir():
        raise InvalidArgs(f"{review.place.bounds} is not there any more: `skillyard review drop {review.id}`")
    with open_staging(yard.places.own_home) as staging:
        resumed = resume(
            review,
            decisions,
            keep_limit(on_terminal=on_terminal),
            SCAN,
            lambda skill: _local_again(skill, review.place, staging),
        )
    for held in resumed.kept:
        write_whole(_kept_file(yard, held.skill.hash), str(held.verdict.severity))
    _refresh_links(yard, review.place, [held.skill for held in resumed.kept])
    tell_project(yard, resumed.review)
    return resumed


def tell_project(yard: "Project", review: Review, resume_command: str = "") -> str:
    """Write the interrupt file where the skills are to be installed; for the user's own skills, where the command was
    given. Return its digest, or nothing where none was written."""
    is_global = review.place.bounds == yard.places.own_home
    root = yard.places.project if is_global else review.place.bounds
    return write_interrupt(root, FILE, review, resume_command) if root else ""


def forget_review(yard: "Project", review_id: str) -> None:
    """A review that is over has nothing to tell any more, also where a crash came before the file was gone."""
    if yard.places.project:
        forget_interrupt(yard.places.project, FILE, review_id)


def _local_again(skill: InstalledSkill, place: Target, staging: Path) -> Path | None:
    """A folder or file of this machine may have changed since; a commit or a digest has not."""
    if skill.commit or not skill.source.startswith(("./", "../", "/")):
        return None
    try:
        source = locked_source(skill.source, skill.ref, "", place.bounds)
        fetched = source.fetch(inner_folder(staging), lambda _: None)
    except (SkillError, OSError):
        return None  # gone: what was staged is what there is
    folder = fetched.folder / skill.path
    return folder if folder.is_dir() else None
