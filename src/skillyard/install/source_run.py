"""One skill of a source for one run, `SOURCE[@skill][#ref][:program]`: staged and scanned, installed nowhere.

Copies are kept in SKILLYARD_HOME/adhoc, one folder for each content. A copy is there whole or not at all, is compared
with its digests whenever it is used, and is deleted after a month without use. Who uses one holds its lock until the
process ends: what runs is never deleted.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import time
from pathlib import Path
from typing import IO, NamedTuple

from skillyard.catalog.files import exists, expand_home
from skillyard.core.errors import InvalidArgs, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.lock import InstalledSkill
from skillyard.install.offers import ScannedSkill, open_staging
from skillyard.install.target import write_whole
from skillyard.install.tree import copy_checked, digests_of

FOLDER = "adhoc"
UNUSED_SECONDS = 30 * 24 * 3600.0
_ABOUT, _LOCK, _SKILL = "skill.json", "lock", "skill"
#: The part of an address that never names a skill, a ref or a program: `https://host:8080/`, `git@host:`.
_HEAD = re.compile(r"[A-Za-z][A-Za-z+.-]*://[^/]*/?|[\w.-]+@[\w.-]+:(?!//)")
_TAIL = re.compile(r"(?:@(?P<skill>[^@#:]+))?(?:#(?P<ref>[^#:]+))?(?::(?P<script>.+))?")


class SkillAddress(NamedTuple):
    """`SOURCE[@skill][#ref][:program]`, split."""

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


class StagedCopy(NamedTuple):
    """A skill and where its files are. `lease` is the lock, held as long as the file is open."""

    skill: InstalledSkill
    at: Path
    lease: IO[bytes]


class SourceRun(NamedTuple):
    """Staged and scanned. If `is_held`, a person must decide before it runs."""

    asked: SkillAddress
    staged: StagedCopy
    held: ScannedSkill
    is_held: bool
    reused: bool


def split_source(text: str, cwd: Path) -> SkillAddress:
    """The longest start of the text that is a path here is the source; else an address or the shorthand."""
    ends = [len(text), *(at for at in range(len(text) - 1, 0, -1) if text[at] in "@#:")]
    for end in ends:
        tail = _TAIL.fullmatch(text[end:])
        if tail and exists(cwd / expand_home(text[:end])):
            return SkillAddress(text[:end], **tail.groupdict(default=""))
    head = _HEAD.match(text)
    start = head.end() if head else 0
    end = next((at for at in range(start, len(text)) if text[at] in "@#:"), len(text))
    tail = _TAIL.fullmatch(text[end:])
    if tail is None:
        raise InvalidArgs(Message("{text!r} is not SOURCE[@skill][#ref][:program]", text=text))
    return SkillAddress(text[:end], **tail.groupdict(default=""))


def copy_key(source: str, state: str, path: str, skill: str) -> str:
    """What was asked for, in this state of it: a commit, or a content hash."""
    return hashlib.sha256(json.dumps([source, state, path, skill]).encode()).hexdigest()[:32]


def find_staged(own_home: Path, key: str) -> StagedCopy | None:
    """None if there is none, or if its files are not what was staged: then it is staged again."""
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
        try:
            if lock.stat().st_mtime >= before:
                continue
            with lock.open("rb") as file, open_staging(base.parent) as staging:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.parent.rename(staging / "unused")
        except (BlockingIOError, FileNotFoundError):
            continue  # somebody uses it, or was faster
