"""The skills that a source offers, checked and scanned in a staging folder before anything is installed."""

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import uuid4

from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import IGNORED, MAX_DEPTH
from skillyard.core.errors import InvalidArgs, SkillNotFound
from skillyard.core.messages import Message
from skillyard.install.lock import InstalledSkill
from skillyard.install.names import MAX_CHARACTERS, as_slug
from skillyard.install.source import Fetched, SkillSource, Tell
from skillyard.install.threats.scan import scan_skill
from skillyard.install.threats.verdict import ScanVerdict, ThreatHit, ThreatLevel
from skillyard.install.tree import check_tree, digests_of, find_skill_file, tree_hash

#: Looks at a staged folder and never runs anything of it.
Scan: TypeAlias = Callable[[Path], ScanVerdict]


def threat_scan(folder: Path) -> ScanVerdict:
    """Scan by the threat rules. A folder without a readable SKILL.md is unknown."""
    verdict = scan_skill(folder)
    reading = read_skill(find_skill_file(folder) or folder / SKILL_FILE)
    if reading.skill is not None:
        return verdict
    hit = _unreadable(reading.findings[0].message if reading.findings else "it is no skill")
    return ScanVerdict(tuple(sorted((hit, *verdict.hits), key=lambda each: -each.severity)))


def scanned(folder: Path, scan: Scan = threat_scan) -> ScanVerdict:
    """Scan a folder. A scan that fails makes the verdict unknown, never clean."""
    try:
        return scan(folder)
    except (OSError, ValueError, RecursionError) as error:
        return ScanVerdict((_unreadable(f"the scan failed: {error}"),))


def _unreadable(reason: str) -> ThreatHit:
    return ThreatHit("unreadable", ThreatLevel.UNKNOWN, SKILL_FILE, excerpt=reason)


class Offer(NamedTuple):
    """A skill that a source holds."""

    name: str
    description: str
    #: The folder that it would be installed as.
    folder: str
    #: Its folder inside the source; empty if the source is the skill.
    path: str
    at: Path


class ScannedSkill(NamedTuple):
    """A skill that was checked and scanned: what would be installed, exactly."""

    skill: InstalledSkill
    at: Path
    verdict: ScanVerdict
    is_ours: bool = False

    @property
    def reviewed_skill(self) -> InstalledSkill:
        """As the lock records it: with the severity that it is installed in spite of."""
        return self.skill._replace(reviewed=str(self.verdict.severity) if self.verdict.held else "")


@contextmanager
def open_staging(own_home: Path) -> Iterator[Path]:
    """A folder for one fetch. Folders of processes that died are deleted first: nobody holds their lock."""
    base = own_home / "staging"
    base.mkdir(parents=True, exist_ok=True)
    _clean(base)
    name = uuid4().hex
    with (base / f"{name}.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        folder = base / name
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            (base / f"{name}.lock").unlink(missing_ok=True)


def _clean(base: Path) -> None:
    for lock in base.glob("*.lock"):
        try:
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock.stat().st_ino == os.fstat(file.fileno()).st_ino:
                    shutil.rmtree(base / lock.stem, ignore_errors=True)
                    lock.unlink(missing_ok=True)
        except (BlockingIOError, FileNotFoundError):
            continue  # somebody works there, or has just left


def new_subfolder(staging: Path) -> Path:
    folder = staging / str(sum(1 for _ in staging.iterdir()))
    folder.mkdir()
    return folder


def find_offers(fetched: Fetched, path: str, source: str) -> tuple[Offer, ...]:
    """Every skill at or below the path, in the order of their paths; each gets a folder name of its own."""
    base = fetched.folder / path if path else fetched.folder
    root = fetched.folder.resolve()
    if not base.is_dir() or base.resolve() != root / base.relative_to(fetched.folder):  # a link that leads elsewhere
        raise InvalidArgs(Message("there is no folder {path!r} with a skill in {source}", path=path, source=source))
    # The last part of a path or an address, without its ending.
    stem = re.sub(r"\.(?:git|skill|zip|tar|tgz|tar\.gz)$", "", re.split(r"[/:\\]", source.rstrip("/"))[-1]) or "skill"
    offers: dict[str, Offer] = {}
    for parent, folders, _ in os.walk(base):  # follows no links: only what the source itself holds is offered
        folder = Path(parent)
        file = find_skill_file(folder)
        if file or len(folder.relative_to(base).parts) >= MAX_DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        if file:
            inner, skill = folder.relative_to(fetched.folder), read_skill(file).skill
            name = (skill.name if skill and "name" in skill.fields else "") or inner.name or stem
            slug, inside = _unique_slug(name, offers), inner.as_posix() if inner.parts else ""
            offers[slug] = Offer(name, skill.description if skill else "", slug, inside, folder)
    return tuple(offers.values())


def _unique_slug(name: str, taken: Container[str]) -> str:
    """The name's slug, with a number if another skill has it already."""
    try:
        slug = as_slug(name)
    except InvalidArgs:
        slug = "skill"  # nothing but signs
    number, found = 2, slug
    while found in taken:
        ending = f"-{number}"
        found = slug[: MAX_CHARACTERS - len(ending)].rstrip("-") + ending
        number += 1
    return found


def choose(offers: Sequence[Offer], names: Sequence[str]) -> tuple[Offer, ...]:
    """The named offers, each once. SkillNotFound, with the known names, if there is none."""
    found: dict[str, Offer] = {}
    for name in names:
        matches = [offer for offer in offers if name in {offer.name, offer.folder, offer.path}]
        if not matches:
            raise SkillNotFound(name, tuple(offer.name for offer in offers[:20]))
        found.update((offer.path, offer) for offer in matches)
    return tuple(found.values())


def scan_offer(
    offer: Offer, source: SkillSource, fetched: Fetched, tell: Tell, folder: str = "", scan: Scan = threat_scan
) -> ScannedSkill:
    """Check and scan every file, and record what it holds. SourceRefused if it may not be installed at all."""
    tell(Message("scanning {name}", name=offer.name))
    check_tree(offer.at)
    files = digests_of(offer.at)
    skill = InstalledSkill(
        folder=folder or offer.folder,
        name=offer.name,
        source=source.text,
        ref=source.ref,
        commit=fetched.commit,
        path=offer.path,
        reviewed="",
        hash=tree_hash(files),
        files=files,
    )
    return ScannedSkill(skill, offer.at, scanned(offer.at, scan), fetched.is_ours)
