"""What may happen to a place: install, restore, remove, compare. No socket is opened here, and nothing is asked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import InvalidArgs, SkillNotFound, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.lock import Installed, Lock, as_text, read_lock
from skillyard.install.swap import Exchange, exchange
from skillyard.install.target import Place, apply, new_staging, open_place
from skillyard.install.tree import Drift, copy_checked, copy_file, drift_between, marks_of


class Addition(NamedTuple):
    """A skill to be put in, and where its files are now."""

    skill: Installed
    at: Path
    #: Its files are ours and hold what was scanned: they can be moved instead of copied.
    is_ours: bool = False


def install(
    place: Place, additions: Sequence[Addition], *, swap: Exchange = exchange, keep: bool = False, theirs: bool = False
) -> None:
    """All of them, or none. Local edits are never overwritten: InvalidArgs, unless `keep` or `theirs` says how.

    Files that the user added stay in any case. `keep` leaves edited files as they are, `theirs` replaces them.
    """
    with open_place(place, swap):
        lock = read_lock(place.lock_file)
        moves: list[tuple[str, Path | None]] = []
        for addition in additions:
            _check_free(place, lock, addition.skill)
            moves.append((addition.skill.folder, _staged(place, lock, addition, keep=keep, theirs=theirs)))
        changed = lock.with_changes(addition.skill for addition in additions)
        apply(place, moves, as_text(changed), swap)


def _check_free(place: Place, lock: Lock, skill: Installed) -> None:
    known, target = lock.skills.get(skill.folder), place.skills / skill.folder
    if known is None and (target.exists() or target.is_symlink()):
        raise InvalidArgs(
            Message(
                "{target} is there already and was not installed by us: use --as NAME, or remove it first",
                target=target,
            )
        )
    if known and (known.source, known.path) != (skill.source, skill.path):
        raise InvalidArgs(
            Message(
                "{folder} was installed from {source}: use --as NAME, or remove it first",
                folder=skill.folder,
                source=known.source,
            )
        )


def _staged(place: Place, lock: Lock, addition: Addition, *, keep: bool, theirs: bool) -> Path:
    """The new folder, complete: what comes, and what of the user's stays."""
    skill, staged = addition.skill, new_staging(place)
    if addition.is_ours and addition.at.stat().st_dev == staged.parent.stat().st_dev:
        addition.at.rename(staged)
    else:
        copy_checked(addition.at, staged)
        if marks_of(staged) != skill.files:
            raise SourceRefused(Message("{name} changed while it was being installed", name=skill.name))
    target, known = place.skills / skill.folder, lock.skills.get(skill.folder)
    if known is None or not target.is_dir():
        return staged
    found = marks_of(target)
    drift = drift_between(known.files, found)
    edited = [path for path in drift.changed if found[path] != skill.files.get(path)]
    if edited and not keep and not theirs:
        raise edits_error(skill.folder, edited)
    stay = [path for path in drift.added if path not in skill.files] + (edited if keep else [])
    for path in stay:
        (staged / path).unlink(missing_ok=True)
        copy_file(target / path, staged / path)
    return staged


def edits_error(folder: str, edited: Sequence[str]) -> InvalidArgs:
    return InvalidArgs(
        Message(
            "{folder} was changed here: {edited}; `skillyard update {folder}` shows the difference, "
            "--keep keeps yours, --theirs takes the source's",
            folder=folder,
            edited=", ".join(edited[:5]),
        ),
        details={"edited": list(edited)},
    )


def compare(place: Place) -> Mapping[str, Drift]:
    """How each installed skill differs from the lock. Waits for whoever is changing the place."""
    with open_place(place):
        lock = read_lock(place.lock_file)
        return {folder: drift_of(place, skill) for folder, skill in sorted(lock.skills.items())}


def drift_of(place: Place, skill: Installed) -> Drift:
    target = place.skills / skill.folder
    return drift_between(skill.files, marks_of(target) if target.is_dir() else {})


def find_installed(lock: Lock, names: Sequence[str], source: str = "") -> tuple[Installed, ...]:
    """By folder or by name, or all of one source; SkillNotFound where nothing of ours is called so."""
    found: dict[str, Installed] = {}
    for name in names:
        matches = [skill for skill in lock.skills.values() if name in {skill.folder, skill.name}]
        if not matches:
            raise SkillNotFound(name, tuple(lock.skills))
        found.update((skill.folder, skill) for skill in matches)
    if source:
        matches = [skill for skill in lock.skills.values() if skill.source == source]
        if not matches:
            raise InvalidArgs(Message("nothing was installed from {source}", source=source))
        found.update((skill.folder, skill) for skill in matches)
    return tuple(found.values())


def remove(place: Place, folders: Sequence[str], swap: Exchange = exchange) -> Mapping[str, tuple[str, ...]]:
    """Takes away what was installed. Files that the user made or edited stay; they are returned, by folder."""
    kept: dict[str, tuple[str, ...]] = {}
    with open_place(place, swap):
        lock = read_lock(place.lock_file)
        moves: list[tuple[str, Path | None]] = []
        for folder in folders:
            skill = lock.skills.get(folder)
            if skill is None:
                raise SkillNotFound(folder, tuple(lock.skills))
            drift = drift_of(place, skill)
            kept[folder] = tuple(sorted((*drift.changed, *drift.added)))
            moves.append((folder, _remains(place, folder, kept[folder])))
        apply(place, moves, as_text(lock.with_changes(removed=folders)), swap)
    return {folder: files for folder, files in kept.items() if files}


def _remains(place: Place, folder: str, files: Sequence[str]) -> Path | None:
    if not files:
        return None
    staged = new_staging(place)
    staged.mkdir()
    for path in files:
        copy_file(place.skills / folder / path, staged / path)
    return staged
