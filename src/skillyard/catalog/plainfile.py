"""Reads what came with a clone: a file where there should be one, and no more of it than anybody needs.

A pipe in its place would keep us waiting for ever, a device would never end.
"""

import errno
import os
import stat
from pathlib import Path

from skillyard.core.messages import Message

#: Without waiting for somebody at the other end of a pipe, and without a terminal becoming ours.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


def read_plain(path: Path, most_bytes: int, *, follow: bool = False) -> bytes:
    """At most so many bytes, and one more where there are more. OSError where it is no file.

    A link counts only if it leads to a file in the same folder: anywhere else a clone could make us read the person's
    own files to it. `follow` is for files that the person wrote.
    """
    handle = os.open(path, _READ) if follow else _open_inside(path)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most_bytes + 1)
    finally:
        os.close(handle)


def _open_inside(path: Path) -> int:
    try:
        return os.open(path, _READ | _NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    real, folder = os.path.realpath(path), os.path.realpath(path.parent)
    if not real.startswith(f"{folder}/"):
        raise OSError(errno.ELOOP, "it is a link that leads out of its folder", str(path))
    return os.open(real, _READ | _NOFOLLOW)


def read_whole(path: Path, most_bytes: int, *, follow: bool = False) -> str:
    """All of it, as UTF-8. OSError also where it is larger; UnicodeDecodeError where it is no text."""
    content = read_plain(path, most_bytes, follow=follow)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, Message("it has more than {max_bytes} bytes", max_bytes=most_bytes), str(path))
    return content.decode()


def expand_home(text: str) -> str:
    """`~` and `~/x` as the home folder. `~nouser/x` stays as it is: a name like any other, and no error."""
    try:
        return os.path.expanduser(text)  # noqa: PTH111  (Path.expanduser raises for a user that does not exist)
    except ValueError:  # NUL, or half a character, in the user's name
        return text


def is_utf8(path: str | Path) -> bool:
    """Whether the path can be kept and shown: file systems take any bytes, our tables and results only text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def exists(path: Path) -> bool:
    """Like `Path.exists`, and False for what no file can be called: too long, a NUL, half a character."""
    return os.path.exists(path)  # noqa: PTH110  (pathlib raises for these)


def is_folder(path: Path) -> bool:
    """Like `Path.is_dir`, and False for what no folder can be called."""
    return os.path.isdir(path)  # noqa: PTH112  (pathlib raises for these)
