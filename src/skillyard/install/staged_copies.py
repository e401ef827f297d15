"""Skills that were staged for a run and installed nowhere: SKILLYARD_HOME/adhoc, one folder for each content.

An entry is there whole or not at all, is looked at again whenever it is used, and goes after a month without use.
Whoever uses one holds its lock until the process ends: what runs is never taken away.
"""

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import IO, NamedTuple

from skillyard.core.errors import SourceRefused
from skillyard.core.messages import Message
from skillyard.install.candidates import Candidate, open_staging
from skillyard.install.lock import Installed
from skillyard.install.target import write_whole
from skillyard.install.tree import copy_checked, marks_of

FOLDER = "adhoc"
UNUSED_SECONDS = 30 * 24 * 3600.0
_ABOUT, _LOCK, _SKILL = "skill.json", "lock", "skill"


class Staged(NamedTuple):
    """A skill and where its files are; `lease` is the lock, held as long as somebody holds it."""

    skill: Installed
    at: Path
    lease: IO[bytes]


def key_of(source: str, state: str, path: str, skill: str) -> str:
    """What was asked for, in this state of it: a commit, or a content hash."""
    return hashlib.sha256(json.dumps([source, state, path, skill]).encode()).hexdigest()[:32]


def find_staged(own_home: Path, key: str) -> Staged | None:
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
        skill = Installed(**{name: fields[name] for name in Installed._fields})
        is_held = (home / _LOCK).stat().st_ino == os.fstat(lease.fileno()).st_ino
        if is_held and marks_of(home / _SKILL / skill.folder) == skill.files:
            found = Staged(skill, home / _SKILL / skill.folder, lease)
    except (OSError, ValueError, KeyError, TypeError):
        found = None  # gone or broken in the meantime: it is fetched again
    if found is None:
        lease.close()
    return found


def stage(own_home: Path, key: str, candidate: Candidate, unused_seconds: float = UNUSED_SECONDS) -> Staged:
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
