"""Installs from outside: which place, which sources, which scan; what is clean goes in, what is doubtful waits."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillyard.core.depth import DEPTH
from skillyard.core.errors import InvalidArgs, SkillError, SkillNotFound, SourceFailed
from skillyard.core.messages import Message
from skillyard.install.address import FORGE, Wanted, locked_source, narrowed, parse_source
from skillyard.install.candidates import Candidate, Offer, as_candidate, choose, find_offers, open_staging
from skillyard.install.changes import Addition, drift_of, install
from skillyard.install.examine import Scan, threat_scan
from skillyard.install.link import Step, refresh
from skillyard.install.linking import ledger_for
from skillyard.install.lock import Installed, read_lock
from skillyard.install.review import Resumed, Review, forget_interrupt, hold, resume, write_interrupt
from skillyard.install.source import Fetched, Source, Tell
from skillyard.install.target import Place, global_place, open_place, project_place, write_whole
from skillyard.install.threats.severity import Severity
from skillyard.scripts.interrupt import FILE

if TYPE_CHECKING:
    from skillyard.app.project import Project
    from skillyard.core.values import Json

#: Who looks at what comes from outside. The threat rules go here: one line.
SCAN: Scan = threat_scan

#: Which of the offers to take; a face asks, where there is somebody.
Pick = Callable[[Sequence[Offer]], Sequence[Offer]]


class Brought(NamedTuple):
    """What came of an install."""

    installed: tuple[Installed, ...]
    #: What waits for a decision; None where nothing does.
    review: Review | None
    #: Copies of them in agents' folders, that follow.
    links: tuple[Step, ...] = ()


def place_of(yard: "Project", *, is_global: bool) -> Place:
    return global_place(yard.places.own_home) if is_global else project_place(yard.root)


def keep_limit(*, on_terminal: bool, env: Mapping[str, str] = os.environ) -> Severity | None:
    """The worst that may be kept: by a person anything, off a terminal MEDIUM, inside an agent nothing."""
    if env.get(DEPTH):
        return None
    return Severity.CRITICAL if on_terminal else Severity.MEDIUM


def wanted_from(yard: "Project", place: Place, text: str, ref: str) -> Wanted:
    return parse_source(text, ref, cwd=Path.cwd(), root=place.bounds, forge=yard.settings.forge or FORGE)


def pick_named(text: str, names: Sequence[str], *, everything: bool = False) -> Pick:
    """Those that were named; else the only one, or everything. Several are listed, never guessed."""

    def pick(offers: Sequence[Offer]) -> Sequence[Offer]:
        if not offers:
            raise InvalidArgs(Message("{text} holds no skill: there is no SKILL.md in it", text=text))
        if names:
            return choose(offers, names)
        if len(offers) == 1 or everything:
            return offers
        listed: list[Json] = [{"name": offer.name, "description": offer.description} for offer in offers]
        shown = ", ".join(offer.name for offer in offers[:20]) + (", …" if len(offers) > 20 else "")
        raise InvalidArgs(
            Message(
                "{text} holds {count} skills: say which with --skill, or --all. They are: {shown}",
                text=text,
                count=len(offers),
                shown=shown,
            ),
            details={"skills": listed},
        )

    return pick


def look(wanted: Wanted, staging: Path, pick: Pick, tell: Tell, folder: str = "") -> tuple[Candidate, ...]:
    """Fetch, list, let somebody pick, check and scan. Nothing is installed."""
    fetched = wanted.source.fetch(staging, tell)
    offers = pick(find_offers(fetched, wanted.path, wanted.source.text))
    return tuple(scanned_offer(offer, wanted.source, fetched, tell, folder) for offer in offers)


def scanned_offer(offer: Offer, source: Source, fetched: Fetched, tell: Tell, folder: str) -> Candidate:
    tell(Message("scanning {name}", name=offer.name))
    return as_candidate(offer, source, fetched.commit, SCAN, folder)._replace(is_ours=fetched.is_ours)


def bring_in(
    yard: "Project", place: Place, found: Sequence[Candidate], *, keep: bool = False, theirs: bool = False
) -> Brought:
    """Install what is clean; hold back what is not, unless a person kept exactly these bytes before."""
    held = [each for each in found if is_held_back(yard, each)]
    clean = [_as_decided(each) for each in found if each not in held]
    if clean:
        install(place, [Addition(each.skill, each.at, each.is_ours) for each in clean], keep=keep, theirs=theirs)
    review = hold(yard.places.own_home, place, held) if held else None
    if review:
        tell_project(yard, review)
    skills = tuple(each.skill for each in clean)
    return Brought(skills, review, _refresh_links(yard, place, skills))


def _refresh_links(yard: "Project", place: Place, skills: Sequence[Installed]) -> tuple[Step, ...]:
    return refresh(ledger_for(yard, place), [place.skills / skill.folder for skill in skills])


def is_held_back(yard: "Project", candidate: Candidate) -> bool:
    """What a lock says of a review comes with the project, so only what was decided on this machine counts."""
    if not candidate.verdict.held:
        return False
    file = _kept_file(yard, candidate.skill.hash)
    said = file.read_text("utf-8") if file.is_file() else ""
    return said not in Severity.__members__ or Severity[said] < candidate.verdict.severity


def _as_decided(candidate: Candidate) -> Candidate:
    said = str(candidate.verdict.severity) if candidate.verdict.held else ""
    return candidate._replace(skill=candidate.skill._replace(reviewed=said))


def _kept_file(yard: "Project", content_hash: str) -> Path:
    """One file for each content that a person kept, with the severity that it was kept in spite of."""
    return yard.places.own_home / "kept" / content_hash.removeprefix("sha256:")


def restore(yard: "Project", place: Place, tell: Tell, *, theirs: bool = False) -> Brought:
    """Everything that the lock names and that is not there. SourceFailed where a source has other bytes now."""
    with open_place(place):
        lock = read_lock(place.lock_file)
        missing = [skill for skill in lock.skills.values() if not _is_there(place, skill, theirs=theirs)]
    with open_staging(yard.places.own_home) as staging:
        found = [each for group in _by_source(missing) for each in _again(group, place, staging, tell)]
        return bring_in(yard, place, found, keep=not theirs, theirs=theirs)


def _is_there(place: Place, skill: Installed, *, theirs: bool) -> bool:
    """Files that the user edited are there, unless they are to be replaced; files beside ours never matter."""
    drift = drift_of(place, skill)
    return not drift.missing and not (theirs and drift.changed)


def _by_source(skills: Sequence[Installed]) -> list[list[Installed]]:
    groups: dict[tuple[str, str, str], list[Installed]] = {}
    for skill in skills:
        groups.setdefault((skill.source, skill.ref, skill.commit), []).append(skill)
    return list(groups.values())


def _again(group: Sequence[Installed], place: Place, staging: Path, tell: Tell) -> list[Candidate]:
    """The very bytes of the lock, or an error: a restore is exact."""
    first = group[0]
    source = locked_source(first.source, first.ref, first.commit, place.bounds)
    source = narrowed(source, [skill.path for skill in group])
    fetched = source.fetch(inner_folder(staging), tell)
    found: list[Candidate] = []
    for skill in group:
        candidate = _at_path(skill, source, fetched, tell)
        if candidate.skill.hash != skill.hash:
            raise SourceFailed(
                Message(
                    "{source} has other files for {folder} now than the lock says",
                    source=skill.source,
                    folder=skill.folder,
                )
            )
        found.append(candidate._replace(skill=skill))
    return found


def inner_folder(staging: Path) -> Path:
    folder = staging / str(sum(1 for _ in staging.iterdir()))
    folder.mkdir()
    return folder


def _at_path(skill: Installed, source: Source, fetched: Fetched, tell: Tell) -> Candidate:
    for offer in find_offers(fetched, skill.path, source.text):
        if offer.path == skill.path:
            return scanned_offer(offer, source, fetched, tell, skill.folder)
    raise SkillNotFound(skill.name)


def resume_review(yard: "Project", review: Review, decisions: "Mapping[str, Json]", *, on_terminal: bool) -> Resumed:
    """Do what was decided, within what the one who decides may; the interrupt file follows."""
    if not review.place.bounds.is_dir():
        raise InvalidArgs(
            Message(
                "{bounds} is not there any more: `skillyard review drop {id}`", bounds=review.place.bounds, id=review.id
            )
        )
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


def _local_again(skill: Installed, place: Place, staging: Path) -> Path | None:
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
