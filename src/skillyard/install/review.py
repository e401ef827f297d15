"""Skills that are held back until somebody decides: for each review a staged folder and its review.json.

Fails closed: a missing, unknown or broken decision keeps nothing; what changed since it was shown is scanned and shown
again; a keep above the limit of whoever decides is refused. Any process can resume a review at any time.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple
from uuid import uuid4

from skillyard.catalog.files import read_below, remove_below, write_below
from skillyard.core.child_process import DEPTH
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.address import locked_source
from skillyard.install.links import AgentLinks
from skillyard.install.offers import Scan, open_staging, scanned, threat_scan
from skillyard.install.target import (
    InstalledSkill,
    ScannedSkill,
    Target,
    copy_checked,
    digests_of,
    tree_hash,
    write_whole,
)
from skillyard.install.threats.rule import ScanVerdict, ThreatHit, ThreatLevel

_ID = re.compile(r"[0-9a-f]{12}")
KEEP, UNINSTALL = "keep", "uninstall"
_MOST_INTERRUPT_BYTES = 4_000_000


class Review(NamedTuple):
    """Everything of one install that waits, by the folder that each would get."""

    id: str
    home: Path
    target: Target
    held: Mapping[str, ScannedSkill]

    @property
    def resume_command(self) -> str:
        return f"skillyard review resume {self.id}"

    def as_data(self, resume_command: str = "") -> dict[str, Json]:
        """What results and the interrupt file say of it, and what a decider needs."""
        return {
            "interrupted_skills": sorted(self.held),
            "resume_command": resume_command or self.resume_command,
            "review": self.id,
            "project": str(self.target.bounds) if self.target.is_project else "",
            "sources": {name: held.skill.source for name, held in sorted(self.held.items())},
            "severities": {name: str(held.verdict.severity) for name, held in sorted(self.held.items())},
            "findings": {name: [hit.as_dict() for hit in held.verdict.hits[:20]] for name, held in self.held.items()},
        }


class Resumed(NamedTuple):
    """The outcome of a resume; what is left in the review still waits."""

    review: Review
    kept: tuple[ScannedSkill, ...] = ()
    uninstalled: tuple[str, ...] = ()
    #: Not what was shown before: scanned again, and not decided.
    changed: tuple[str, ...] = ()

    @property
    def installed(self) -> tuple[str, ...]:
        return tuple(held.skill.folder for held in self.kept)


def keep_limit(*, on_terminal: bool, env: Mapping[str, str] = os.environ) -> ThreatLevel | None:
    """The worst that may be kept: by a person anything, off a terminal MEDIUM, inside an agent nothing."""
    if env.get(DEPTH):
        return None
    return ThreatLevel.CRITICAL if on_terminal else ThreatLevel.MEDIUM


class Reviews:
    """All reviews of this machine. `project` is the current one, if any; in it `interrupt_file` tells what waits."""

    def __init__(
        self, own_home: Path, user_home: Path, project: Path | None, interrupt_file: str, scan: Scan = threat_scan
    ) -> None:
        self._own_home, self._user_home, self._project = own_home, user_home, project
        self._interrupt_file, self._scan = interrupt_file, scan
        self._folder = own_home / "reviews"

    def hold(self, target: Target, skills: Sequence[ScannedSkill]) -> Review:
        """Store a copy of each with its verdict, whole or not at all. The same skills again are the same review."""
        hashes = {each.skill.folder: each.skill.hash for each in skills}
        for known in self.list():
            if known.target == target and {name: held.skill.hash for name, held in known.held.items()} == hashes:
                return known
        name = uuid4().hex[:12]
        home = self._folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        placed = [each._replace(at=home / "skills" / each.skill.folder, is_ours=False) for each in skills]
        review = Review(name, home, target, {each.skill.folder: each for each in placed})
        with open_staging(self._own_home) as staging:
            made = staging / name
            for each in skills:
                copy_checked(each.at, made / "skills" / each.skill.folder)
            _write(review, made)
            made.rename(home)
        return review

    def holds_back(self, found: ScannedSkill) -> bool:
        """What a lock says of a review comes with the project, so only what was decided on this machine counts."""
        if not found.verdict.held:
            return False
        file = self._kept_file(found.skill)
        severity = file.read_text("utf-8") if file.is_file() else ""
        return severity not in ThreatLevel.__members__ or ThreatLevel[severity] < found.verdict.severity

    def _kept_file(self, skill: InstalledSkill) -> Path:
        """One file for each content that a person kept, with the severity that it was kept in spite of."""
        return self._own_home / "kept" / skill.hash.removeprefix("sha256:")

    def list(self) -> tuple[Review, ...]:
        return tuple(map(self.read, self._names()))

    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in self._folder.glob("*") if _ID.fullmatch(path.name)))

    def find(self, name: str) -> Review | None:
        return self.read(name) if name in self._names() else None

    def read(self, name: str) -> Review:
        """InvalidArgs if there is none of that name."""
        home, names = self._folder / name, self._names()
        file = home / "review.json"
        if name not in names or not file.is_file():
            raise InvalidArgs(Message("no review {name!r}", name=name), details={"reviews": [*names]})
        try:
            fields, held = json.loads(file.read_text("utf-8")), dict[str, ScannedSkill]()
            target = Target(**{key: Path(path) for key, path in fields["place"].items()})
            for folder, about in fields["skills"].items():
                skill = InstalledSkill(
                    **{"uri": "", **{key: about[key] for key in InstalledSkill._fields if key in about}}
                )
                verdict = ScanVerdict(tuple(map(ThreatHit.of, about["hits"])))
                held[folder] = ScannedSkill(skill, home / "skills" / folder, verdict, moved_from=about["moved_from"])
        except (ValueError, KeyError, TypeError) as error:
            drop = f"skillyard review drop {name}"
            why = Message("{file} is broken: {error!r}; `{drop}`", file=file, error=error, drop=drop)
            raise InvalidArgs(why) from None
        return Review(name, home, target, held)

    def drop(self, name: str) -> None:
        """Delete a review. Nothing of it is installed."""
        if name not in self._names():
            raise InvalidArgs(Message("no review {name!r}", name=name))
        self._discard(self._folder / name)
        self.forget(name)

    def _discard(self, home: Path) -> None:
        with open_staging(self._own_home) as staging:
            home.rename(staging / "gone")

    def check(self, review: Review, decisions: Mapping[str, Json], *, on_terminal: bool) -> None:
        """PermissionDenied if something would be kept that whoever decides may not keep."""
        kept = [name for name in review.held if decisions.get(name) == KEEP]
        limit = keep_limit(on_terminal=on_terminal)
        if kept and limit is None:
            raise PermissionDenied(Message("an agent cannot keep what a scan held back: a person must do it, outside"))
        if over := [name for name in kept if limit is not None and review.held[name].verdict.severity > limit]:
            names = ", ".join(over)
            why = Message("only a person at a terminal keeps what is above {limit}: {over}", limit=limit, over=names)
            raise PermissionDenied(why, details={"above_limit": list(over)})

    def resume(self, review: Review, decisions: Mapping[str, Json], *, on_terminal: bool) -> Resumed:
        """Do what was decided, for what is still what was shown; the interrupt file and linked copies follow."""
        if not (bounds := review.target.bounds).is_dir():
            why = Message("{bounds} is not there any more: `skillyard review drop {id}`", bounds=bounds, id=review.id)
            raise InvalidArgs(why)
        with (review.home / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            review, changed = self._refreshed(self.read(review.id))
            kept = [name for name in review.held if decisions.get(name) == KEEP and name not in changed]
            self.check(review, dict.fromkeys(kept, KEEP), on_terminal=on_terminal)
            installed = tuple(review.held[name] for name in kept)
            review.target.install(installed)
            gone = [name for name in review.held if decisions.get(name) == UNINSTALL]
            left = {name: held for name, held in review.held.items() if name not in {*kept, *gone}}
            review = review._replace(held=left)
            if left:
                _write(review)
                for name in (*kept, *gone):
                    shutil.rmtree(review.home / "skills" / name, ignore_errors=True)
            else:
                self._discard(review.home)
        for held in installed:
            write_whole(self._kept_file(held.skill), str(held.verdict.severity))
        AgentLinks(review.target, self._user_home).refresh([held.skill.folder for held in installed])
        self.write_interrupt(review)
        return Resumed(review, installed, tuple(gone), changed)

    def _refreshed(self, review: Review) -> tuple[Review, tuple[str, ...]]:
        """Scan every skill again. Return the names of those that are not what was shown, too."""
        held, changed = dict[str, ScannedSkill](), list[str]()
        with open_staging(self._own_home) as staging:
            for name, old in review.held.items():
                found = _source_now(old.skill, review.target, staging)
                if found and digests_of(found) != old.skill.files:
                    staged = review.home / f"again-{name}"
                    shutil.rmtree(staged, ignore_errors=True)
                    copy_checked(found, staged)
                    shutil.rmtree(old.at, ignore_errors=True)
                    staged.rename(old.at)
                files = digests_of(old.at) if old.at.is_dir() else {}
                verdict = scanned(old.at, self._scan)
                now = old.skill._replace(files=files, hash=tree_hash(files))
                held[name] = old._replace(skill=now, verdict=verdict)
                if files != old.skill.files or verdict.severity > old.verdict.severity:
                    changed.append(name)
        review = review._replace(held=held)
        _write(review)
        return review, tuple(changed)

    def write_interrupt(self, review: Review, resume_command: str = "") -> str:
        """Write the interrupt file and return its digest; remove it and return nothing if no skill waits any more.

        It goes where the skills are to be installed; for the user's own skills, where the command was given. Never
        through a link. Runs can write in that folder: whoever reads the file back compares the digest.
        """
        root = review.target.bounds if review.target.is_project else self._project
        if root is None:
            return ""
        if not review.held:
            self.forget(review.id, root)
            return ""
        text = json.dumps(review.as_data(resume_command), ensure_ascii=False, indent=2) + "\n"
        write_below(root, self._interrupt_file, text.encode())
        return hashlib.sha256(text.encode()).hexdigest()

    def forget(self, review_id: str, root: Path | None = None) -> None:
        """Remove the interrupt file of a review that is over; another one's stays. `root` is the current project."""
        root = root or self._project
        if root is None:
            return
        with suppress(OSError, PermissionDenied):  # not there, or not ours: a link, a pipe
            content = read_below(root, self._interrupt_file, _MOST_INTERRUPT_BYTES)
            if f'"review": "{review_id}"' in content.decode("utf-8", "replace"):
                remove_below(root, self._interrupt_file)


def _source_now(skill: InstalledSkill, target: Target, staging: Path) -> Path | None:
    """The files of a held skill as its source has them now; None if that cannot be told from here.

    A folder or file of this machine may have changed since; a commit or a digest has not.
    """
    if skill.commit or not skill.source.startswith(("./", "../", "/")):
        return None
    try:
        source = locked_source(skill.source, skill.ref, "", target.bounds)
        fetched = source.fetch(Path(mkdtemp(dir=staging)), lambda _: None)
    except (SkillError, OSError):
        return None  # gone: what was staged is what there is
    folder = fetched.folder / skill.path
    return folder if folder.is_dir() else None


def _write(review: Review, folder: Path | None = None) -> None:
    """Write review.json, also before the review's own folder is there."""
    skills = {
        name: {
            **held.skill._asdict(),
            "moved_from": held.moved_from,
            "severity": str(held.verdict.severity),
            "hits": [hit.as_dict() for hit in held.verdict.hits],
        }
        for name, held in sorted(review.held.items())
    }
    fields = {"place": {name: os.fspath(path) for name, path in review.target._asdict().items()}, "skills": skills}
    write_whole((folder or review.home) / "review.json", json.dumps(fields, ensure_ascii=False, indent=2) + "\n")
