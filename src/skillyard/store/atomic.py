"""Writes and renames that survive a crash: a reader sees the old file or the new one, never a part."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from skillyard.store.locks import give_to_owner_of

#: In the names of damaged files that were set aside.
DAMAGED = ".damaged-"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file with mode 0600. Call under a lock: the temporary name is fixed, a crash leaves one at most."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            give_to_owner_of(path.parent, file)
            os.fsync(file)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    sync(path.parent)


def put_in_place(fresh: Path, path: Path) -> None:
    """Rename a finished file, once its owner is set and its content is on disk."""
    give_to_owner_of(path.parent, fresh)
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make the content of a file durable, or the renames in a folder."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def damaged_name(path: Path) -> Path:
    """Return a free name beside the file, such as `state.db.damaged-20261118T004512Z`."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name, number = path.with_name(f"{path.name}{DAMAGED}{stamp}"), 1
    while os.path.lexists(name):
        number += 1
        name = path.with_name(f"{path.name}{DAMAGED}{stamp}.{number}")
    return name


def list_damaged(path: Path) -> tuple[Path, ...]:
    """The damaged versions of this file that were set aside, the oldest first."""
    return tuple(sorted(path.parent.glob(f"{path.name}{DAMAGED}*")))
