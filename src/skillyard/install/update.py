"""What a newer state of the sources would change, skill by skill, before anything is changed."""

import difflib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import SkillError
from skillyard.install.address import locked_source
from skillyard.install.candidates import Offer, ScannedOffer, find_offers
from skillyard.install.installer import inner_folder, scanned_offer
from skillyard.install.lock import InstalledSkill, read_lock
from skillyard.install.source import Fetched, SkillSource, Tell
from skillyard.install.target import Target, drift_of
from skillyard.install.tree import Drift, drift_between

_MAX_DIFF_BYTES = 64 * 1024
_MAX_DIFF_LINES = 200


class UpdateState(StrEnum):
    CURRENT = "current"
    CHANGED = "changed"
    #: The source does not have it any more; it stays installed.
    GONE = "gone"
    FAILED = "failed"


class UpdateStep(NamedTuple):
    """One installed skill, and what its source has for it now."""

    skill: InstalledSkill
    standing: UpdateState
    candidate: ScannedOffer | None = None
    #: From what was installed to what would be.
    drift: Drift = Drift()
    #: Files that were changed here and that the update would overwrite.
    edited: tuple[str, ...] = ()
    reason: str = ""


class UpdatePlan(NamedTuple):
    steps: tuple[UpdateStep, ...]
    #: Skills of the same sources that are not installed: (source, name).
    new: tuple[tuple[str, str], ...]


def plan_update(place: Target, skills: Sequence[InstalledSkill], staging: Path, tell: Tell) -> UpdatePlan:
    """Fetches each source once. A source that fails is told, and the others go on."""
    steps: list[UpdateStep] = []
    new: list[tuple[str, str]] = []
    known = read_lock(place.lock_file).skills.values()
    groups: dict[tuple[str, str], list[InstalledSkill]] = {}
    for skill in skills:
        groups.setdefault((skill.source, skill.ref), []).append(skill)
    for (text, ref), group in groups.items():
        try:
            source = locked_source(text, ref, "", place.bounds)
            fetched = source.fetch(inner_folder(staging), tell)
            offers = {offer.path: offer for offer in find_offers(fetched, "", text)}
            steps += [_step(place, skill, offers.get(skill.path), source, fetched, tell) for skill in group]
        except SkillError as error:
            steps += [UpdateStep(skill, UpdateState.FAILED, reason=error.msg) for skill in group]
            continue
        have = {skill.path for skill in known if skill.source == text}
        new += [(text, offer.name) for path, offer in offers.items() if path not in have]
    return UpdatePlan(tuple(steps), tuple(new))


def _step(
    place: Target, skill: InstalledSkill, offer: Offer | None, source: SkillSource, fetched: Fetched, tell: Tell
) -> UpdateStep:
    if offer is None:
        return UpdateStep(skill, UpdateState.GONE)
    candidate = scanned_offer(offer, source, fetched, tell, skill.folder)
    if candidate.skill.hash == skill.hash:
        return UpdateStep(skill, UpdateState.CURRENT, candidate)
    here = drift_of(place, skill)
    drift = drift_between(skill.files, candidate.skill.files)
    touched = {*drift.changed, *drift.missing}
    return UpdateStep(
        skill, UpdateState.CHANGED, candidate, drift, tuple(path for path in here.changed if path in touched)
    )


def differences(place: Target, step: UpdateStep) -> Iterator[str]:
    """The edited files, line by line: what is here against what would come."""
    for path in step.edited:
        here = place.skills / step.skill.folder / path
        there = step.candidate.at / path if step.candidate else None
        lines = difflib.unified_diff(_lines(here), _lines(there), f"here/{path}", f"theirs/{path}", lineterm="")
        for count, line in enumerate(lines):
            if count == _MAX_DIFF_LINES:
                yield "…"
                break
            yield line


def _lines(file: Path | None) -> list[str]:
    if file is None or file.is_symlink() or not file.is_file():
        return []
    with file.open("rb") as content:
        text = content.read(_MAX_DIFF_BYTES)
    return text.decode("utf-8", "replace").splitlines()
