"""The skills that a source offers, checked and scanned in a staging folder; copies of those that run uninstalled.

Copies are kept in SKILLYARD_HOME/adhoc, one folder for each content. A copy is there whole or not at all, is compared
with its digests whenever it is used, and is deleted after a month without use. Who uses one holds its lock until the
process ends: what runs is never deleted.
"""

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias
from uuid import uuid4

from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import IGNORED, MAX_DEPTH
from skillyard.core.errors import InvalidArgs, SkillNotFound, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.address import SkillAddress, SkillSource
from skillyard.install.names import MAX_CHARACTERS, as_slug
from skillyard.install.source import Fetched, ListedSkill, Tell
from skillyard.install.target import (
    FileDigests,
    InstalledSkill,
    ScannedSkill,
    check_tree,
    copy_checked,
    digests_of,
    find_skill_file,
    tree_hash,
    write_whole,
)
from skillyard.install.threats.rule import ScanVerdict, ThreatHit, ThreatLevel
from skillyard.install.threats.scan import scan_skill

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


#: Folders of a skill whose own SKILL.md is an example, a template or a document.
_PARTS_OF_A_SKILL = {"assets", "docs", "example", "examples", "references", "template", "templates", "test", "tests"}


class Offer(NamedTuple):
    """A skill that a source holds."""

    name: str
    description: str
    #: The folder that it would be installed as.
    folder: str
    #: Its folder inside the source; empty if the source is the skill.
    path: str
    at: Path
    #: Of a source that tells what it has before it is fetched: its name for the skill, and its files.
    uri: str = ""
    files: FileDigests | None = None


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
        with suppress(BlockingIOError, FileNotFoundError), lock.open("rb") as file:  # in use, or just deleted
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.stat().st_ino == os.fstat(file.fileno()).st_ino:
                shutil.rmtree(base / lock.stem, ignore_errors=True)
                lock.unlink(missing_ok=True)


def find_offers(fetched: Fetched, path: str, source: str) -> tuple[Offer, ...]:
    """Every skill at or below the path, in the order of their paths; each gets a folder name of its own."""
    if fetched.listed is not None:
        return _listed_offers(fetched.folder, fetched.listed)
    base = fetched.folder / path if path else fetched.folder
    root = fetched.folder.resolve()
    if not base.is_dir() or base.resolve() != root / base.relative_to(fetched.folder):  # a link that leads elsewhere
        raise InvalidArgs(Message("there is no folder {path!r} with a skill in {source}", path=path, source=source))
    # The last part of a path or an address, without its ending.
    stem = re.sub(r"\.(?:git|skill|zip|tar|tgz|tar\.gz)$", "", re.split(r"[/:\\]", source.rstrip("/"))[-1]) or "skill"
    offers: dict[str, Offer] = {}
    for parent, folders, _ in os.walk(base):  # follows no links: only what the source itself holds is offered
        folder = Path(parent)
        file, inner = find_skill_file(folder), folder.relative_to(fetched.folder)
        if (file and inner.parts) or len(folder.relative_to(base).parts) >= MAX_DEPTH:
            folders.clear()
        # A collection may have a SKILL.md of its own at its root, which then hides no other skill.
        unsearched = {*IGNORED, *_PARTS_OF_A_SKILL} if file else IGNORED
        folders[:] = sorted(name for name in folders if name not in unsearched)
        if file:
            skill = read_skill(file).skill
            name = (skill.name if skill and "name" in skill.fields else "") or inner.name or stem
            slug, inside = unique_slug(name, offers), inner.as_posix() if inner.parts else ""
            offers[slug] = Offer(name, skill.description if skill else "", slug, inside, folder)
    return tuple(offers.values())


def _listed_offers(folder: Path, skills: Sequence[ListedSkill]) -> tuple[Offer, ...]:
    offers: dict[str, Offer] = {}
    for listed in sorted(skills, key=lambda skill: skill.path):
        slug, at = unique_slug(listed.name, offers), folder / listed.folder
        offers[slug] = Offer(listed.name, listed.description, slug, listed.path, at, listed.uri, listed.files)
    return tuple(offers.values())


def unique_slug(name: str, taken: Container[str]) -> str:
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
        matches = [offer for offer in offers if name in {offer.path, offer.uri or None}]
        matches = matches or [offer for offer in offers if name in {offer.name, offer.folder}]
        if not matches:
            raise SkillNotFound(name, tuple(offer.name for offer in offers[:20]))
        found.update((offer.path, offer) for offer in matches)
    return tuple(found.values())


def scan_offer(offer: Offer, source: SkillSource, fetched: Fetched, tell: Tell, folder: str = "") -> ScannedSkill:
    """Check and scan every file, and record what it holds. SourceRefused if it may not be installed at all."""
    if offer.files is not None and (why := fetched.bring([offer.path]).get(offer.path)):
        raise SourceRefused(why)
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
        uri=offer.uri,
    )
    return ScannedSkill(skill, offer.at, scanned(offer.at), fetched.is_ours)


FOLDER = "adhoc"
UNUSED_SECONDS = 30 * 24 * 3600.0
_ABOUT, _LOCK, _SKILL = "skill.json", "lock", "skill"


class StagedCopy(NamedTuple):
    """A skill, where its files are, and the lock that keeps them as long as the file is open."""

    skill: InstalledSkill
    at: Path
    lease: IO[bytes]


class SourceRun(NamedTuple):
    """Staged and scanned. If `is_held`, a person must decide before it runs."""

    asked: SkillAddress
    found: ScannedSkill
    is_held: bool
    reused: bool
    lease: IO[bytes]


def find_staged(own_home: Path, key: str) -> StagedCopy | None:
    """None if there is none, or if its files are not what was staged: then it is staged again."""
    home = own_home / FOLDER / key
    try:
        lease = (home / _LOCK).open("rb")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lease, fcntl.LOCK_SH)
        os.utime(home / _LOCK)
        fields = json.loads((home / _ABOUT).read_text("utf-8"))
        skill = InstalledSkill(**{name: fields[name] for name in InstalledSkill._fields})
        is_held = (home / _LOCK).stat().st_ino == os.fstat(lease.fileno()).st_ino
        if is_held and digests_of(home / _SKILL / skill.folder) == skill.files:
            return StagedCopy(skill, home / _SKILL / skill.folder, lease)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # gone or broken in the meantime: it is fetched again
    lease.close()
    return None


def stage(own_home: Path, key: str, candidate: ScannedSkill, unused_seconds: float = UNUSED_SECONDS) -> StagedCopy:
    """Make a copy, and delete those that nobody used for long."""
    base = own_home / FOLDER
    base.mkdir(parents=True, exist_ok=True)
    with (base / _LOCK).open("ab") as gate, open_staging(own_home) as staging:
        fcntl.flock(gate, fcntl.LOCK_EX)  # two that want the same must not take it from each other
        _prune(base, unused_seconds)
        if found := find_staged(own_home, key):
            return found
        made = staging / key
        copy_checked(candidate.at, made / _SKILL / candidate.skill.folder)
        (made / _LOCK).touch()
        write_whole(made / _ABOUT, json.dumps(candidate.skill._asdict(), ensure_ascii=False, indent=2) + "\n")
        if (base / key).exists():  # changed by somebody since
            (base / key).rename(staging / "changed")
        made.rename(base / key)
        found = find_staged(own_home, key)
    if found is None:
        raise SourceRefused(Message("{name} changed while it was being staged", name=candidate.skill.name))
    return found


def _prune(base: Path, unused_seconds: float) -> None:
    before = time.time() - unused_seconds
    for lock in base.glob(f"*/{_LOCK}"):
        with suppress(BlockingIOError, FileNotFoundError), lock.open("rb") as file:  # in use, or just deleted
            if os.fstat(file.fileno()).st_mtime < before:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with open_staging(base.parent) as staging:
                    lock.parent.rename(staging / "unused")
