"""A skill of a source, for one run: `SOURCE[@skill][#ref][:program]`, staged, scanned and installed nowhere."""

import fcntl
import hashlib
import json
import os
import re
import shlex
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from skillyard.catalog.plainfile import exists, expand_home
from skillyard.core.errors import InvalidArgs, SourceRefused
from skillyard.install.candidates import Offer, ScannedOffer, choose, open_staging, scanned
from skillyard.install.git import GitSource
from skillyard.install.installer import SCAN, inner_folder, is_held_back, look, place_of, wanted_from
from skillyard.install.lock import InstalledSkill
from skillyard.install.review import HeldSkill
from skillyard.install.source import Tell
from skillyard.install.target import write_whole
from skillyard.install.tree import copy_checked, digests_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillyard.app.project import Project
    from skillyard.install.address import ParsedSource

FOLDER = "adhoc"
UNUSED_SECONDS = 30 * 24 * 3600.0
_ABOUT, _LOCK, _SKILL = "skill.json", "lock", "skill"


class StagedCopy(NamedTuple):
    """A skill and where its files are; `lease` is the lock, held as long as somebody holds it."""

    skill: InstalledSkill
    at: Path
    lease: IO[bytes]


def key_of(source: str, state: str, path: str, skill: str) -> str:
    """What was asked for, in this state of it: a commit, or a content hash."""
    return hashlib.sha256(json.dumps([source, state, path, skill]).encode()).hexdigest()[:32]


def find_staged(own_home: Path, key: str) -> StagedCopy | None:
    """None where there is none, or where it is not what was staged any more: then it goes."""
    home = own_home / FOLDER / key
    try:
        lease = (home / _LOCK).open("rb")
    except FileNotFoundError:
        return None
    found = None
    try:
        fcntl.flock(lease, fcntl.LOCK_SH)
        os.utime(home / _LOCK)
        fields = json.loads((home / _ABOUT).read_text("utf-8"))
        skill = InstalledSkill(**{name: fields[name] for name in InstalledSkill._fields})
        is_held = (home / _LOCK).stat().st_ino == os.fstat(lease.fileno()).st_ino
        if is_held and digests_of(home / _SKILL / skill.folder) == skill.files:
            found = StagedCopy(skill, home / _SKILL / skill.folder, lease)
    except (OSError, ValueError, KeyError, TypeError):
        found = None  # gone or broken in the meantime: it is fetched again
    if found is None:
        lease.close()
    return found


def stage(own_home: Path, key: str, candidate: ScannedOffer, unused_seconds: float = UNUSED_SECONDS) -> StagedCopy:
    """A copy of its own; on the way, what nobody used for long is taken away."""
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
        raise SourceRefused(f"{candidate.skill.name} changed while it was being staged")
    return found


def _prune(base: Path, unused_seconds: float) -> None:
    before = time.time() - unused_seconds
    for lock in base.glob(f"*/{_LOCK}"):
        try:
            if lock.stat().st_mtime >= before:
                continue
            with lock.open("rb") as file, open_staging(base.parent) as staging:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.parent.rename(staging / "unused")
        except (BlockingIOError, FileNotFoundError):
            continue  # somebody uses it, or was faster


#: What of an address is never a skill, a ref or a program: `https://host:8080/`, `git@host:`.
_HEAD = re.compile(r"[A-Za-z][A-Za-z+.-]*://[^/]*/?|[\w.-]+@[\w.-]+:(?!//)")
_TAIL = re.compile(r"(?:@(?P<skill>[^@#:]+))?(?:#(?P<ref>[^#:]+))?(?::(?P<script>.+))?")


class SkillAddress(NamedTuple):
    """What was typed, taken apart."""

    source: str
    skill: str = ""
    ref: str = ""
    script: str = ""

    @property
    def name(self) -> str:
        """As the caller named it, without the program."""
        return self.source + (f"@{self.skill}" if self.skill else "") + (f"#{self.ref}" if self.ref else "")

    def add_command(self, skill: str) -> str:
        ref = f" --ref {shlex.quote(self.ref)}" if self.ref else ""
        return f"skillyard add {shlex.quote(self.source)} --skill {shlex.quote(skill)}{ref}"


class SourceRun(NamedTuple):
    """StagedCopy and scanned. `is_held` says that a person must decide before it runs."""

    asked: SkillAddress
    staged: StagedCopy
    held: HeldSkill
    is_held: bool
    reused: bool


def split_source(text: str, cwd: Path) -> SkillAddress:
    """The longest start of it that is a path here; else an address or the shorthand."""
    ends = [len(text), *(at for at in range(len(text) - 1, 0, -1) if text[at] in "@#:")]
    for end in ends:
        tail = _TAIL.fullmatch(text[end:])
        if tail and exists(cwd / expand_home(text[:end])):
            return SkillAddress(text[:end], *(tail[name] or "" for name in ("skill", "ref", "script")))
    head = _HEAD.match(text)
    start = head.end() if head else 0
    end = next((at for at in range(start, len(text)) if text[at] in "@#:"), len(text))
    tail = _TAIL.fullmatch(text[end:])
    if tail is None:
        raise InvalidArgs(f"{text!r} is not SOURCE[@skill][#ref][:program]")
    return SkillAddress(text[:end], *(tail[name] or "" for name in ("skill", "ref", "script")))


def make_ready(yard: "Project", asked: SkillAddress, tell: Tell) -> SourceRun:
    """From the copy of the same commit where there is one; else fetched. Scanned in any case: rules change."""
    own_home = yard.places.own_home
    wanted = wanted_from(yard, place_of(yard, is_global=False), asked.source, asked.ref)
    wanted = wanted._replace(skill=asked.skill or wanted.skill)
    wanted = wanted.narrowed([wanted.skill] if wanted.skill else [])
    with open_staging(own_home) as staging:
        known = _known(wanted, inner_folder(staging), own_home, tell)
        staged = known or _fetched(wanted, asked, inner_folder(staging), own_home, tell)
    verdict = scanned(SCAN, staged.at)
    candidate = ScannedOffer(staged.skill, staged.at, verdict)
    return SourceRun(
        asked,
        staged,
        HeldSkill(staged.skill, verdict, staged.at),
        is_held_back(yard, candidate),
        reused=known is not None,
    )


def _known(wanted: "ParsedSource", staging: Path, own_home: Path, tell: Tell) -> StagedCopy | None:
    """Only git can tell its state without giving everything."""
    if not isinstance(wanted.source, GitSource):
        return None
    commit = wanted.source.resolve(staging, tell)
    return find_staged(own_home, _key(wanted, commit)) if commit else None


def _fetched(wanted: "ParsedSource", asked: SkillAddress, staging: Path, own_home: Path, tell: Tell) -> StagedCopy:
    def pick(offers: "Sequence[Offer]") -> "Sequence[Offer]":
        if wanted.skill:
            offers = choose(offers, [wanted.skill])
        if len(offers) == 1:
            return offers
        names = ", ".join(offer.name for offer in offers[:20]) + (", …" if len(offers) > 20 else "")
        if not offers:
            raise InvalidArgs(f"{asked.source} holds no skill: there is no SKILL.md in it")
        raise InvalidArgs(
            f"{asked.source} holds {len(offers)} skills: say which, {asked.source}@NAME. They are: {names}"
        )

    (candidate,) = look(wanted, staging, pick, tell)
    return stage(own_home, _key(wanted, candidate.skill.commit or candidate.skill.hash), candidate)


def _key(wanted: "ParsedSource", state: str) -> str:
    return key_of(wanted.source.text, state, wanted.path, wanted.skill)
