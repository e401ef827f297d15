"""Writes and renames that survive a crash: a reader sees the old file or the new one, never a part."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

#: In the name of whatever was set aside because it was damaged.
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
    sync_folder(path.parent)


def give_to_owner_of(folder: Path, file: int | Path) -> None:
    """What root writes into a user's home stays readable for that user."""
    owner = folder.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(file, owner.st_uid, owner.st_gid)


def put_in_place(fresh: Path, path: Path) -> None:
    """Rename a finished file. Its content and owner are final before it gets its name."""
    give_to_owner_of(path.parent, fresh)
    sync_file(fresh)
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def damaged_name(path: Path) -> Path:
    """A name beside the file that is not taken: `state.db.damaged-20261118T004512Z`."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name, number = path.with_name(f"{path.name}{DAMAGED}{stamp}"), 1
    while os.path.lexists(name):
        number += 1
        name = path.with_name(f"{path.name}{DAMAGED}{stamp}.{number}")
    return name


def list_damaged(path: Path) -> tuple[Path, ...]:
    """What was set aside of this file, the oldest first."""
    return tuple(sorted(path.parent.glob(f"{path.name}{DAMAGED}*")))
