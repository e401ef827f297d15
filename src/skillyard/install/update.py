"""What a newer state of the sources would change, skill by skill, before anything is changed."""

import difflib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import SkillError
from skillyard.install.address import locked_source
from skillyard.install.lock import InstalledSkill, read_lock
from skillyard.install.offers import Offer, ScannedSkill, find_offers, new_subfolder, scan_offer
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
    #: Where it is installed.
    folder: Path
    state: UpdateState
    candidate: ScannedSkill | None = None
    #: From what was installed to what would be.
    drift: Drift = Drift()
    #: Files that were changed here and that the update would overwrite.
    edited: tuple[str, ...] = ()
    reason: str = ""

    def diff(self) -> Iterator[str]:
        """The edited files, line by line: what is here against what would come."""
        for path in self.edited:
            there = _lines(self.candidate.at / path) if self.candidate else []
            here = _lines(self.folder / path)
            lines = difflib.unified_diff(here, there, f"here/{path}", f"theirs/{path}", lineterm="")
            for count, line in enumerate(lines):
                if count == _MAX_DIFF_LINES:
                    yield "…"
                    break
                yield line


class UpdatePlan(NamedTuple):
    steps: tuple[UpdateStep, ...]
    #: Skills of the same sources that are not installed: (source, name).
    new: tuple[tuple[str, str], ...]


def plan_update(target: Target, skills: Sequence[InstalledSkill], staging: Path, tell: Tell) -> UpdatePlan:
    """Fetch each source once. If one fails, its skills say so and the others go on."""
    steps: list[UpdateStep] = []
    new: list[tuple[str, str]] = []
    known = read_lock(target.lock_file).skills.values()
    groups: dict[tuple[str, str], list[InstalledSkill]] = {}
    for skill in skills:
        groups.setdefault((skill.source, skill.ref), []).append(skill)
    for (text, ref), group in groups.items():
        try:
            source = locked_source(text, ref, "", target.bounds)
            fetched = source.fetch(new_subfolder(staging), tell)
            offers = {offer.path: offer for offer in find_offers(fetched, "", text)}
            steps += [_step(target, skill, offers.get(skill.path), source, fetched, tell) for skill in group]
        except SkillError as error:
            failed = UpdateState.FAILED
            steps += [UpdateStep(skill, target.skills / skill.folder, failed, reason=error.msg) for skill in group]
            continue
        have = {skill.path for skill in known if skill.source == text}
        new += [(text, offer.name) for path, offer in offers.items() if path not in have]
    return UpdatePlan(tuple(steps), tuple(new))


def _step(
    target: Target, skill: InstalledSkill, offer: Offer | None, source: SkillSource, fetched: Fetched, tell: Tell
) -> UpdateStep:
    step = UpdateStep(skill, target.skills / skill.folder, UpdateState.GONE)
    if offer is None:
        return step
    candidate = scan_offer(offer, source, fetched, tell, skill.folder)
    if candidate.skill.hash == skill.hash:
        return step._replace(state=UpdateState.CURRENT, candidate=candidate)
    drift = drift_between(skill.files, candidate.skill.files)
    touched = {*drift.changed, *drift.missing}
    edited = tuple(path for path in drift_of(target, skill).changed if path in touched)
    return step._replace(state=UpdateState.CHANGED, candidate=candidate, drift=drift, edited=edited)


def _lines(file: Path) -> list[str]:
    if file.is_symlink() or not file.is_file():
        return []
    with file.open("rb") as content:
        text = content.read(_MAX_DIFF_BYTES)
    return text.decode("utf-8", "replace").splitlines()
