"""Skills that are held back until somebody decides (S1 §4.1): a staged folder and its review.json, and nothing else.

Fails closed: a missing, unknown or broken decision keeps nothing; what changed since it was shown is scanned and shown
again; a keep above the limit of whoever decides is refused. Any process can go on with it at any time.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from skillyard.catalog.dirfd import read_below, remove_below, write_below
from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.install.candidates import Candidate, open_staging
from skillyard.install.changes import Addition, install
from skillyard.install.examine import Scan, scanned
from skillyard.install.lock import Installed
from skillyard.install.target import Place, write_whole
from skillyard.install.threats.severity import Severity
from skillyard.install.threats.verdict import Hit, Verdict
from skillyard.install.tree import copy_checked, hash_of, marks_of

_ID = re.compile(r"[0-9a-f]{12}")
KEEP, UNINSTALL = "keep", "uninstall"
_MOST_INTERRUPT_BYTES = 4_000_000


class Held(NamedTuple):
    """One skill that waits."""

    skill: Installed
    verdict: Verdict
    #: Its staged files.
    at: Path


class Review(NamedTuple):
    """Everything of one install that waits, by the folder that each would get."""

    id: str
    home: Path
    place: Place
    held: Mapping[str, Held]

    @property
    def resume_command(self) -> str:
        return f"skillyard review resume {self.id}"


class Resumed(NamedTuple):
    """What came of a resume; the rest still waits."""

    review: Review
    kept: tuple[Held, ...] = ()
    uninstalled: tuple[str, ...] = ()
    #: Not what was shown before: scanned again, and not decided.
    changed: tuple[str, ...] = ()

    @property
    def installed(self) -> tuple[str, ...]:
        return tuple(held.skill.folder for held in self.kept)


#: The files of a held skill as its source has them now; None where that cannot be told from here.
LookAgain = Callable[[Installed], Path | None]


def _folder(own_home: Path) -> Path:
    return own_home / "reviews"


def hold(own_home: Path, place: Place, candidates: Sequence[Candidate]) -> Review:
    """Keeps a copy of each, and what the scan said; there whole or not at all. The same again is the same review."""
    hashes = {each.skill.folder: each.skill.hash for each in candidates}
    for known in list_reviews(own_home):
        if known.place == place and {name: held.skill.hash for name, held in known.held.items()} == hashes:
            return known
    base, name = _folder(own_home), uuid4().hex[:12]
    base.mkdir(parents=True, exist_ok=True)
    held = {
        each.skill.folder: Held(each.skill, each.verdict, base / name / "skills" / each.skill.folder)
        for each in candidates
    }
    review = Review(name, base / name, place, held)
    with open_staging(own_home) as staging:
        made = staging / name
        for candidate in candidates:
            copy_checked(candidate.at, made / "skills" / candidate.skill.folder)
        write_whole(made / "review.json", _as_text(review))
        made.rename(base / name)
    return review


def list_reviews(own_home: Path) -> tuple[Review, ...]:
    base = _folder(own_home)
    names = sorted(path.name for path in base.iterdir()) if base.is_dir() else []
    return tuple(read_review(own_home, name) for name in names if _ID.fullmatch(name))


def read_review(own_home: Path, name: str) -> Review:
    """InvalidArgs where there is none of that name."""
    home = _folder(own_home) / name
    if not _ID.fullmatch(name) or not (home / "review.json").is_file():
        known = [path.name for path in _folder(own_home).glob("*") if _ID.fullmatch(path.name)]
        raise InvalidArgs(Message("no review {name!r}", name=name), details={"reviews": sorted(known)})
    try:
        fields = json.loads((home / "review.json").read_text("utf-8"))
        return _parsed(name, home, fields)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgs(
            Message(
                "{home} is broken: {error!r}; `skillyard review drop {name}`",
                home=home / "review.json",
                error=error,
                name=name,
            )
        ) from None


def find_review(own_home: Path, name: str) -> Review | None:
    return read_review(own_home, name) if _ID.fullmatch(name) and (_folder(own_home) / name).is_dir() else None


def drop(own_home: Path, name: str) -> None:
    """Whatever it holds is gone, and nothing of it was installed."""
    home = _folder(own_home) / name
    if not _ID.fullmatch(name) or not home.is_dir():
        raise InvalidArgs(Message("no review {name!r}", name=name))
    _discard(home)


def _discard(home: Path) -> None:
    with open_staging(home.parent.parent) as staging:
        home.rename(staging / "gone")


def resume(
    review: Review,
    decisions: Mapping[str, Json],
    limit: Severity | None,
    scan: Scan,
    look_again: LookAgain,
) -> Resumed:
    """Do what was decided, for what is still what was shown. `limit` is the worst that may be kept; None: nothing."""
    with _alone(review):
        review = read_review(review.home.parent.parent, review.id)
        review, changed = _refreshed(review, scan, look_again)
        kept = [name for name in _kept(review, decisions) if name not in changed]
        check_limit(review, dict.fromkeys(kept, KEEP), limit)
        install(review.place, [_addition(review.held[name]) for name in kept])
        installed = tuple(review.held[name] for name in kept)
        gone = [name for name in review.held if decisions.get(name) == UNINSTALL]
        review = _without(review, {*kept, *gone})
        return Resumed(review, installed, tuple(gone), changed)


@contextmanager
def _alone(review: Review) -> Iterator[None]:
    with (review.home / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _kept(review: Review, decisions: Mapping[str, Json]) -> list[str]:
    return [name for name in review.held if decisions.get(name) == KEEP]


def check_limit(review: Review, decisions: Mapping[str, Json], limit: Severity | None) -> None:
    """PermissionDenied where something would be kept that is worse than `limit`; None: anything."""
    kept = _kept(review, decisions)
    if kept and limit is None:
        raise PermissionDenied(Message("an agent cannot keep what a scan held back: a person must do it, outside"))
    over = [name for name in kept if limit is not None and review.held[name].verdict.severity > limit]
    if over:
        raise PermissionDenied(
            Message(
                "only a person at a terminal keeps what is above {limit}: {over}", limit=limit, over=", ".join(over)
            ),
            details={"above_limit": list(over)},
        )


def _addition(held: Held) -> Addition:
    return Addition(held.skill._replace(reviewed=str(held.verdict.severity)), held.at)


def _refreshed(review: Review, scan: Scan, look_again: LookAgain) -> tuple[Review, tuple[str, ...]]:
    """Every skill scanned again; those that are not, or not only, what was shown are named."""
    held: dict[str, Held] = {}
    changed: list[str] = []
    for name, old in review.held.items():
        _take_over(old, look_again(old.skill), review.home / f"again-{name}")
        files = marks_of(old.at) if old.at.is_dir() else {}
        verdict = scanned(scan, old.at)
        held[name] = Held(old.skill._replace(files=files, hash=hash_of(files)), verdict, old.at)
        if files != old.skill.files or verdict.severity > old.verdict.severity:
            changed.append(name)
    refreshed = review._replace(held=held)
    write_whole(review.home / "review.json", _as_text(refreshed))
    return refreshed, tuple(changed)


def _take_over(old: Held, found: Path | None, staged: Path) -> None:
    """What the source has now stands in the place of what it had."""
    if found is None or marks_of(found) == old.skill.files:
        return
    shutil.rmtree(staged, ignore_errors=True)
    copy_checked(found, staged)
    shutil.rmtree(old.at, ignore_errors=True)
    staged.rename(old.at)


def _without(review: Review, decided: set[str]) -> Review:
    left = review._replace(held={name: held for name, held in review.held.items() if name not in decided})
    if not left.held:
        _discard(review.home)
        return left
    write_whole(review.home / "review.json", _as_text(left))
    for name in decided:
        shutil.rmtree(review.home / "skills" / name, ignore_errors=True)
    return left


def interrupt_data(review: Review, resume_command: str = "") -> dict[str, Json]:
    """What S1 wants to see of it, and what a decider needs."""
    return {
        "interrupted_skills": sorted(review.held),
        "resume_command": resume_command or review.resume_command,
        "review": review.id,
        "severities": {name: str(held.verdict.severity) for name, held in sorted(review.held.items())},
        "findings": {name: [hit.as_dict() for hit in held.verdict.hits[:20]] for name, held in review.held.items()},
    }


def write_interrupt(root: Path, file: str, review: Review, resume_command: str = "") -> str:
    """Write the interrupt file and return its digest; remove it and return nothing if no skill waits any more.

    Never through a link. Runs can write in that folder: whoever reads the file back compares the digest.
    """
    if not review.held:
        forget_interrupt(root, file, review.id)
        return ""
    import hashlib

    text = json.dumps(interrupt_data(review, resume_command), ensure_ascii=False, indent=2) + "\n"
    write_below(root, file, text.encode())
    return hashlib.sha256(text.encode()).hexdigest()


def forget_interrupt(root: Path, file: str, review_id: str) -> None:
    """Where it tells of this review: another one's stays."""
    try:
        content = read_below(root, file, _MOST_INTERRUPT_BYTES)
        if f'"review": "{review_id}"' in content.decode("utf-8", "replace"):
            remove_below(root, file)
    except (OSError, PermissionDenied):
        return  # not there, or not ours: a link, a pipe


def _as_text(review: Review) -> str:
    fields = {
        "state": "interrupted",
        "interrupted_skills": sorted(review.held),
        "resume_command": review.resume_command,
        "place": {name: os.fspath(path) for name, path in review.place._asdict().items()},
        "skills": {
            name: {
                **held.skill._asdict(),
                "severity": str(held.verdict.severity),
                "hits": [hit.as_dict() for hit in held.verdict.hits],
            }
            for name, held in sorted(review.held.items())
        },
    }
    return json.dumps(fields, ensure_ascii=False, indent=2) + "\n"


def _parsed(name: str, home: Path, fields: Mapping[str, Any]) -> Review:
    place = Place(**{key: Path(path) for key, path in fields["place"].items()})
    held: dict[str, Held] = {}
    for folder, about in fields["skills"].items():
        skill = Installed(**{key: about[key] for key in Installed._fields})
        held[folder] = Held(skill, Verdict(tuple(map(Hit.of, about["hits"]))), home / "skills" / folder)
    return Review(name, home, place, held)
