"""Opens folders step by step through descriptors, following no link.

A run may have swapped any folder that it can write for a link. What we open here, with all that the person may do, is
the folder of exactly this name, or an error.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from skillyard.core.errors import PermissionDenied
from skillyard.core.messages import Message

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
#: Passing through a folder needs no permission to list it.
_PASS = (getattr(os, "O_PATH", 0) or os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
REMOVE_LINK = Message("it is a link, and nothing is read or written through it; look at it, then remove it: rm {path}")


def linked(place: Path) -> PermissionDenied:
    """The error for a link, or something else that is no folder, where a folder of ours must be."""
    import shlex  # noqa: PLC0415  (only an error needs it)

    if not place.is_symlink():
        return PermissionDenied(Message("{place} is in the way: a folder must stand there", place=place))
    denied = PermissionDenied(
        Message("{place} is a link to {path}: a folder must stand there", place=place, path=os.path.realpath(place))
    )
    denied.extra_hint = REMOVE_LINK
    denied.values = {**denied.values, "path": shlex.quote(str(place))}
    return denied


def open_below(anchor: Path, parts: Sequence[str], *, create: bool) -> int:
    """The descriptor of a folder below the anchor. The anchor is taken as it stands; below it no link is followed.

    FileNotFoundError where there is none and none is to be made; PermissionDenied for a link.
    """
    handle = os.open(anchor, _FOLDER if not parts else _PASS)
    for position, name in enumerate(parts):
        place = anchor.joinpath(*parts[: position + 1])
        try:
            below = _step(handle, name, last=position == len(parts) - 1, create=create)
        except FileNotFoundError:
            raise FileNotFoundError(2, os.strerror(2), str(place)) from None
        except OSError as error:
            if place.is_symlink() or isinstance(error, NotADirectoryError):
                raise linked(place) from None
            raise OSError(error.errno, error.strerror, str(place)) from None
        finally:
            os.close(handle)
        handle = below
    return handle


def _step(handle: int, name: str, *, last: bool, create: bool) -> int:
    flags = (_FOLDER if last else _PASS) | _NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=handle)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # made by another process in the meantime
        os.mkdir(name, dir_fd=handle)
    return os.open(name, flags, dir_fd=handle)


def make_below(anchor: Path, path: Path) -> None:
    """Make a folder below the anchor, with its parents. PermissionDenied if a link stands on the way."""
    os.close(open_below(anchor, path.relative_to(anchor).parts, create=True))


def refuse_links(anchor: Path, path: Path) -> None:
    """PermissionDenied if a part of the path below the anchor is a link. What is not there is no link."""
    for count in range(1, len(path.relative_to(anchor).parts) + 1):
        place = anchor.joinpath(*path.relative_to(anchor).parts[:count])
        if place.is_symlink():
            raise linked(place)


def open_resolved(folder: Path, *, create: bool) -> int:
    """The descriptor of a folder whose path was resolved before: a link anywhere on it came later, and is refused."""
    return open_below(Path(folder.anchor), folder.parts[1:], create=create)


def make_file(path: Path) -> int | None:
    """Make an empty file at a resolved path and return its inode; None if a file is there already."""
    handle = open_resolved(path.parent, create=True)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
        try:
            made = os.open(path.name, flags, 0o666, dir_fd=handle)
        except FileExistsError:
            if stat.S_ISLNK(os.stat(path.name, dir_fd=handle, follow_symlinks=False).st_mode):
                raise linked(path) from None
            return None
        inode = os.fstat(made).st_ino
        os.close(made)
        return inode
    finally:
        os.close(handle)


def remove_if_empty(path: Path, inode: int) -> None:
    """Remove the file that `make_file` made, if nobody wrote to it or put another in its place."""
    try:
        handle = open_resolved(path.parent, create=False)
    except (OSError, PermissionDenied):
        return
    try:
        status = os.stat(path.name, dir_fd=handle, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_ino == inode and status.st_size == 0:
            os.unlink(path.name, dir_fd=handle)
    except OSError:
        return
    finally:
        os.close(handle)


def read_below(anchor: Path, path: str, most_bytes: int) -> bytes:
    """At most so many bytes of a plain file below the anchor, and one more if there are more. OSError if it is none."""
    *folders, name = path.split("/")
    handle = open_below(anchor, folders, create=False)
    try:
        file = os.open(name, os.O_RDONLY | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0), dir_fd=handle)
    finally:
        os.close(handle)
    with os.fdopen(file, "rb") as content:
        if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
            raise OSError(22, "it is no file", str(anchor / path))
        return content.read(most_bytes + 1)


def write_below(anchor: Path, path: str, content: bytes) -> None:
    """Replace a file below the anchor: there is the old one or the new one, never half of it."""
    *folders, name = path.split("/")
    handle = open_below(anchor, folders, create=True)
    staged = f".{name}.{os.urandom(8).hex()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
        with os.fdopen(os.open(staged, flags, 0o666, dir_fd=handle), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, name, src_dir_fd=handle, dst_dir_fd=handle)
    except OSError:
        with suppress(OSError):
            os.unlink(staged, dir_fd=handle)
        raise
    finally:
        os.close(handle)


def remove_below(anchor: Path, path: str) -> None:
    """Remove a file, or a link itself, below the anchor."""
    *folders, name = path.split("/")
    handle = open_below(anchor, folders, create=False)
    try:
        os.unlink(name, dir_fd=handle)
    finally:
        os.close(handle)
