"""The skills of a source, looked at before anything is installed: what they are, what they hold, what a scan says."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from skillyard.catalog.discover import IGNORED, MAX_DEPTH
from skillyard.catalog.manifest import read_skill
from skillyard.core.errors import InvalidArgs, SkillNotFound
from skillyard.core.messages import Message
from skillyard.install.examine import Scan, scanned
from skillyard.install.lock import Installed
from skillyard.install.slug import MAX_CHARACTERS, as_slug
from skillyard.install.source import Fetched, Source
from skillyard.install.threats.verdict import Verdict
from skillyard.install.tree import check_tree, find_skill_file, hash_of, marks_of


class Offer(NamedTuple):
    """A skill that a source holds."""

    name: str
    description: str
    #: The folder that it would be installed as.
    folder: str
    #: Its folder inside the source; nothing where the source is the skill.
    path: str
    at: Path


class Candidate(NamedTuple):
    """An offer that was checked and scanned: what would be installed, exactly."""

    skill: Installed
    at: Path
    verdict: Verdict
    is_ours: bool = False


@contextmanager
def open_staging(own_home: Path) -> Iterator[Path]:
    """A folder for one fetch. Those of processes that died are cleaned first: nobody holds their lock."""
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


def find_offers(fetched: Fetched, path: str, source: str) -> tuple[Offer, ...]:
    """Every skill at or below the path, in the order of their paths; folders get names of their own."""
    base = fetched.folder / path if path else fetched.folder
    if not base.is_dir() or _leads_elsewhere(fetched.folder, base):
        raise InvalidArgs(Message("there is no folder {path!r} with a skill in {source}", path=path, source=source))
    taken: set[str] = set()
    offers: list[Offer] = []
    for folder, file in _skill_files(base):
        inner = folder.relative_to(fetched.folder)
        skill = read_skill(file).skill
        named = skill.name if skill and "name" in skill.fields else ""
        name = named or inner.name or _stem(source)
        offers.append(Offer(name, skill.description if skill else "", unique_slug(name, taken), _posix(inner), folder))
        taken.add(offers[-1].folder)
    return tuple(offers)


def _leads_elsewhere(root: Path, folder: Path) -> bool:
    return folder.resolve() != root.resolve() / folder.relative_to(root)


def _posix(path: Path) -> str:
    return path.as_posix() if path.parts else ""


def _stem(source: str) -> str:
    """The last part of a path or an address, without its ending."""
    last = re.split(r"[/:\\]", source.rstrip("/"))[-1]
    return re.sub(r"\.(?:git|skill|zip|tar|tgz|tar\.gz)$", "", last) or "skill"


def _skill_files(base: Path) -> Iterator[tuple[Path, Path]]:
    """Links are not followed: what is offered is what the source itself holds."""
    for parent, folders, _ in os.walk(base):
        folder = Path(parent)
        if file := find_skill_file(folder):
            yield folder, file
            folders.clear()
        elif len(folder.relative_to(base).parts) >= MAX_DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in IGNORED)


def unique_slug(name: str, taken: set[str]) -> str:
    """The name's slug, with a number where another skill has it already."""
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
    """Those that were named, each once; SkillNotFound with what there is."""
    found: dict[str, Offer] = {}
    for name in names:
        matches = [offer for offer in offers if name in {offer.name, offer.folder, offer.path}]
        if not matches:
            raise SkillNotFound(name, tuple(offer.name for offer in offers[:20]))
        found.update((offer.path, offer) for offer in matches)
    return tuple(found.values())


def as_candidate(offer: Offer, source: Source, commit: str, scan: Scan, folder: str = "") -> Candidate:
    """Checks every file, notes what it holds, and scans it. SourceRefused where it may not be installed at all."""
    check_tree(offer.at)
    files = marks_of(offer.at)
    skill = Installed(
        folder=folder or offer.folder,
        name=offer.name,
        source=source.text,
        ref=source.ref,
        commit=commit,
        path=offer.path,
        reviewed="",
        hash=hash_of(files),
        files=files,
    )
    return Candidate(skill, offer.at, scanned(scan, offer.at))
