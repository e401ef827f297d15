"""Where skills are installed: the folder, its lock file, and the changes to both, whole or not at all.

A change is written down first (the journal), then done: whoever finds a journal ends it. Before the journal is there
nothing has happened; after it, the change will be. So a kill at any point leaves the old state or the new one.

Covered: kill -9, two processes at once, links in the project that lead elsewhere.
Not covered: a power cut within the seconds that a disk keeps things to itself; `verify` tells.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from skillyard.catalog.dirfd import refuse_links
from skillyard.catalog.plainfile import read_whole
from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.messages import Message
from skillyard.install.slug import as_slug
from skillyard.install.swap import Exchange, exchange, swap_in

_JOURNAL = "journal.json"
_MOST_BYTES = 64 * 1024 * 1024
_HEX = re.compile(r"[0-9a-f]{32}")


class Place(NamedTuple):
    """One folder of installed skills. Everything in it changes only through `Change`, under the lock."""

    skills: Path
    lock_file: Path
    #: Ours: staging, trash, journal. On the same file system as `skills`.
    state: Path
    #: Nothing is written outside of it, whatever links say.
    bounds: Path

    @property
    def staging(self) -> Path:
        return self.state / "staging"

    @property
    def trash(self) -> Path:
        return self.state / "trash"


class Move(NamedTuple):
    """One folder's change. Without `staged` it is taken away; without `inode` nothing of ours stands there yet."""

    name: str
    staged: str
    inode: int


def project_place(root: Path) -> Place:
    return Place(root / ".claude" / "skills", root / "skillyard.lock", root / ".skillyard" / "install", root)


def global_place(own_home: Path) -> Place:
    return Place(own_home / "skills", own_home / "skillyard.lock", own_home / "install", own_home)


@contextmanager
def open_place(place: Place, swap: Exchange = exchange) -> Iterator[None]:
    """Alone in the place; what an earlier process left behind is ended and cleaned first."""
    _check_bounds(place)
    place.state.mkdir(parents=True, exist_ok=True)
    _hide(place)
    with (place.state / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        recover(place, swap)
        yield


def _check_bounds(place: Place) -> None:
    """A link in a cloned project must not make us write or clean up elsewhere."""
    for path in (place.skills, place.state):
        refuse_links(place.bounds, path)
    for path in (place.staging, place.trash, place.state / "lock", place.state.parent / ".gitignore"):
        if path.is_symlink():
            raise PermissionDenied(Message("{path} is a link, and we never made it: delete it", path=path))


def _hide(place: Place) -> None:
    """What is ours in a project is nobody's commit."""
    ignore = place.state.parent / ".gitignore"
    if place.state.parent.name == ".skillyard" and not ignore.exists():
        ignore.write_text("*\n", "utf-8")


def is_unfinished(place: Place) -> bool:
    return (place.state / _JOURNAL).exists()


def new_staging(place: Place) -> Path:
    folder = place.staging / uuid4().hex
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def apply(place: Place, moves: Sequence[tuple[str, Path | None]], lock_text: str, swap: Exchange = exchange) -> None:
    """Each named folder becomes the staged one, or goes; then the lock file says so. To be called in `open_place`."""
    planned = [
        Move(name, staged.name if staged else "", staged.stat().st_ino if staged else 0) for name, staged in moves
    ]
    _check_writable(place, [name for name, _ in moves])
    journal = {"moves": [list(move) for move in planned], "lock": lock_text, "id": uuid4().hex}
    write_whole(place.state / _JOURNAL, json.dumps(journal, ensure_ascii=False))
    _finish(place, swap)


def _check_writable(place: Place, names: Sequence[str]) -> None:
    """What cannot be ended must not be begun."""
    place.skills.mkdir(parents=True, exist_ok=True)
    if place.skills.stat().st_dev != place.state.stat().st_dev:
        raise PermissionDenied(
            Message("{skills} and {state} must be on one file system", skills=place.skills, state=place.state)
        )
    targets = [place.skills / name for name in names]
    for folder in (place.skills, place.lock_file.parent, *(target for target in targets if target.is_dir())):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionDenied(Message("{existing} cannot be written to", existing=folder))


def recover(place: Place, swap: Exchange = exchange) -> None:
    """End what was begun, then throw away what nobody will ever need."""
    if is_unfinished(place):
        _finish(place, swap)
    for leftovers in (place.staging, place.trash):
        delete_tree(leftovers)
    for folder, name in ((place.state, _JOURNAL), (place.lock_file.parent, place.lock_file.name)):
        for temporary in folder.glob(f"{name}.tmp-*"):
            temporary.unlink(missing_ok=True)


def _finish(place: Place, swap: Exchange) -> None:
    change, moves, lock_text = _read_journal(place.state / _JOURNAL)
    place.trash.mkdir(parents=True, exist_ok=True)
    place.skills.mkdir(parents=True, exist_ok=True)
    for move in moves:
        _do(place, move, change, swap)
    _sync(place.skills)
    write_whole(place.lock_file, lock_text)
    (place.state / _JOURNAL).unlink()
    _sync(place.state)
    delete_tree(place.trash)


def _read_journal(file: Path) -> tuple[str, list[Move], str]:
    """A project can come with one that we never wrote: no name in it may be more than a name."""
    try:
        fields = json.loads(read_whole(file, _MOST_BYTES))
        moves = [Move(str(name), str(staged), int(inode)) for name, staged, inode in fields["moves"]]
        change, lock_text = str(fields["id"]), str(fields["lock"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgs(Message("{file} is broken, and not by us: delete it", file=file)) from None
    known = all(as_slug(move.name) == move.name and _HEX.fullmatch(move.staged or change) for move in moves)
    if not known or not _HEX.fullmatch(change):
        raise InvalidArgs(Message("{file} was not written by us: delete it", file=file))
    return change, moves, lock_text


def _do(place: Place, move: Move, change: str, swap: Exchange) -> None:
    target, trash = place.skills / move.name, place.trash / f"{change}-{move.name}"
    if not move.staged:
        if os.path.lexists(target) and not os.path.lexists(trash):
            target.rename(trash)
        return
    staged = place.staging / move.staged
    if not (os.path.lexists(target) and target.lstat().st_ino == move.inode):
        swap_in(staged, target, trash, swap)


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """There is the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp-{uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def delete_tree(folder: Path) -> None:
    """What strangers made may forbid its own deletion."""
    if not folder.exists():
        return
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            inner = Path(parent, name)
            if not inner.is_symlink():
                with suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(folder)
