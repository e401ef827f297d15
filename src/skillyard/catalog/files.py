"""Opens files and folders that a clone brought or a run could change, without being led elsewhere.

Reading: a pipe in the place of a file would keep us waiting for ever, a device would never end, and a link could make
us show the person's own files to a clone. `read_plain` reads a limited part of a regular file and nothing else.
Writing: a run may have replaced any folder that it can write with a link. The functions on `anchor` open each folder
below it by descriptor, so they reach the folder of exactly this name or raise.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.messages import Message

_CLOEXEC, _DIRECTORY, _NOFOLLOW = (getattr(os, name, 0) for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW"))
#: Without waiting for the other end of a pipe, and without making a terminal ours.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC
_FOLDER = os.O_RDONLY | _DIRECTORY | _CLOEXEC
#: Passing through a folder needs no permission to list it.
_PASS = (getattr(os, "O_PATH", 0) or os.O_RDONLY) | _DIRECTORY | _CLOEXEC
_TOML_BYTES = 1_000_000


def read_plain(path: Path, most_bytes: int, *, follow: bool = False) -> bytes:
    """Return at most so many bytes, and one more if there are more. Raise OSError if it is no regular file.

    A link is followed only to a file in the same folder; `follow` is for files that the person wrote.
    """
    try:
        file = os.open(path, _READ if follow else _READ | _NOFOLLOW)
    except OSError as error:
        if follow or error.errno != errno.ELOOP:
            raise
        real, folder = os.path.realpath(path), os.path.realpath(path.parent)
        if not real.startswith(f"{folder}/"):
            raise OSError(errno.ELOOP, "it is a link that leads out of its folder", str(path)) from None
        file = os.open(real, _READ | _NOFOLLOW)
    return _read(file, path, most_bytes)


def _read(file: int, path: Path, most_bytes: int) -> bytes:
    with os.fdopen(file, "rb") as content:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        return content.read(most_bytes + 1)


def read_whole(path: Path, most_bytes: int, *, follow: bool = False) -> str:
    """Return the whole file as UTF-8. Raise OSError also if it is larger, UnicodeDecodeError if it is no text."""
    content = read_plain(path, most_bytes, follow=follow)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, Message("it has more than {max_bytes} bytes", max_bytes=most_bytes), str(path))
    return content.decode()


def read_toml(file: Path, *, follow: bool = False) -> dict[str, Any]:
    """Return the tables of a file, none if it does not exist. Raise InvalidArgs if it is not TOML. `follow` links."""
    if not os.path.lexists(file):
        return {}
    import tomllib  # noqa: PLC0415  (most people have no such file)

    try:
        return tomllib.loads(read_whole(file, _TOML_BYTES, follow=follow))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgs(Message("{place}: {reason}", place=file, reason=error)) from None


def expand_home(text: str) -> str:
    """Replace `~` and `~/x` by the home folder. `~nouser/x` stays as it is, without an error."""
    try:
        return os.path.expanduser(text)  # noqa: PTH111  (Path.expanduser raises for a user that does not exist)
    except ValueError:  # NUL, or half a character, in the user's name
        return text


def is_utf8(path: str | Path) -> bool:
    """Whether the path can be stored and shown: file systems take any bytes, our tables and results only text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def exists(path: Path) -> bool:
    """Like `Path.exists`, but False for what no file can be called: too long, a NUL, half a character."""
    return os.path.exists(path)  # noqa: PTH110  (pathlib raises for these)


def is_folder(path: Path) -> bool:
    """Like `Path.is_dir`, but False for what no folder can be called."""
    return os.path.isdir(path)  # noqa: PTH112  (pathlib raises for these)


def linked(path: Path) -> PermissionDenied:
    """Return the error for a link, or another file, where a folder of ours must be."""
    import shlex  # noqa: PLC0415  (only an error needs it)

    if not path.is_symlink():
        return PermissionDenied(Message("{place} is in the way: a folder must stand there", place=path))
    real = os.path.realpath(path)
    denied = PermissionDenied(Message("{place} is a link to {path}: a folder must stand there", place=path, path=real))
    denied.extra_hint = Message(
        "it is a link, and nothing is read or written through it; look at it, then remove it: rm {path}"
    )
    denied.values = {**denied.values, "path": shlex.quote(str(path))}
    return denied


def _open_below(anchor: Path, parts: Sequence[str], *, create: bool) -> int:
    """Return the descriptor of a folder. Links are followed in the anchor, but not below it.

    Raise FileNotFoundError if it is missing and `create` is false, PermissionDenied for a link.
    """
    handle = os.open(anchor, _PASS if parts else _FOLDER)
    for position, name in enumerate(parts, 1):
        path = anchor.joinpath(*parts[:position])
        flags = (_FOLDER if position == len(parts) else _PASS) | _NOFOLLOW
        try:
            try:
                below = os.open(name, flags, dir_fd=handle)
            except FileNotFoundError:
                if not create:
                    raise
                with suppress(FileExistsError):  # made by another process in the meantime
                    os.mkdir(name, dir_fd=handle)
                below = os.open(name, flags, dir_fd=handle)
        except OSError as error:
            if path.is_symlink() or isinstance(error, NotADirectoryError):
                raise linked(path) from None
            raise OSError(error.errno, error.strerror, str(path)) from None
        finally:
            os.close(handle)
        handle = below
    return handle


@contextmanager
def _open_parent(anchor: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Give the descriptor of the folder that holds a file, and the name of the file."""
    handle = _open_below(anchor, parts[:-1], create=create)
    try:
        yield handle, parts[-1]
    finally:
        os.close(handle)


def make_below(anchor: Path, path: Path) -> None:
    """Make a folder below the anchor, with its parents. Raise PermissionDenied if one of them is a link."""
    os.close(_open_below(anchor, path.relative_to(anchor).parts, create=True))


def refuse_links(anchor: Path, path: Path) -> None:
    """Raise PermissionDenied if a part of the path below the anchor is a link."""
    place = anchor
    for part in path.relative_to(anchor).parts:
        place /= part
        if place.is_symlink():
            raise linked(place)


def make_file(path: Path) -> int | None:
    """Make an empty file at a resolved path and return its inode. Return None if there is a file already."""
    with _open_parent(Path(path.anchor), path.parts[1:], create=True) as (folder, name):
        try:
            file = os.open(name, _MAKE, 0o666, dir_fd=folder)
        except FileExistsError:
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise linked(path) from None
            return None
        inode = os.fstat(file).st_ino
        os.close(file)
        return inode


def remove_if_empty(path: Path, inode: int) -> None:
    """Remove the file that `make_file` made, unless somebody wrote to it or replaced it."""
    with suppress(OSError, PermissionDenied), _open_parent(Path(path.anchor), path.parts[1:]) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_ino == inode and status.st_size == 0:
            os.unlink(name, dir_fd=folder)


def read_below(anchor: Path, path: str, most_bytes: int) -> bytes:
    """Like `read_plain`, for a file below the anchor; no link is followed."""
    with _open_parent(anchor, path.split("/")) as (folder, name):
        file = os.open(name, _READ | _NOFOLLOW, dir_fd=folder)
    return _read(file, anchor / path, most_bytes)


def write_below(
    anchor: Path, path: str, content: bytes, *, mode: int = 0o666, exact_mode: int | None = None, replace: bool = True
) -> bool:
    """Write a file below the anchor atomically: there is the old one or the new one, never half of it.

    The umask takes bits from `mode`, not from `exact_mode`. Without `replace`, what is there stays, and False is
    returned.
    """
    with _open_parent(anchor, path.split("/"), create=True) as (folder, name):
        staged = f".{name}.{os.urandom(8).hex()}"
        try:
            with os.fdopen(os.open(staged, _MAKE, mode, dir_fd=folder), "wb") as file:
                if exact_mode is not None:
                    os.fchmod(file.fileno(), exact_mode)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if not replace:
                # A link replaces nothing; only file systems without links leave a moment between look and write.
                with suppress(OSError):
                    os.link(staged, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                    return True
                with suppress(FileNotFoundError):
                    os.stat(name, dir_fd=folder, follow_symlinks=False)
                    return False
            os.replace(staged, name, src_dir_fd=folder, dst_dir_fd=folder)
            return True
        finally:
            with suppress(OSError):
                os.unlink(staged, dir_fd=folder)


def remove_below(anchor: Path, path: str) -> None:
    """Remove a file, or a link itself, below the anchor."""
    with _open_parent(anchor, path.split("/")) as (folder, name):
        os.unlink(name, dir_fd=folder)


def is_repository(name: str) -> bool:
    """Whether a file or folder of this name is git's own, also where the file system ignores case."""
    return name.lower() == ".git"
