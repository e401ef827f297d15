"""Reads what came with a clone: a file where there should be one, and no more of it than anybody needs.

A pipe in its place would keep us waiting for ever, a device would never end.
"""

import errno
import os
import stat
from pathlib import Path

#: Without waiting for somebody at the other end of a pipe, and without a terminal becoming ours.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def read_plain(path: Path, most_bytes: int) -> bytes:
    """At most so many bytes, and one more where there are more. OSError where it is no file."""
    handle = os.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most_bytes + 1)
    finally:
        os.close(handle)


def read_whole(path: Path, most_bytes: int) -> str:
    """All of it, as UTF-8. OSError also where it is larger; UnicodeDecodeError where it is no text."""
    content = read_plain(path, most_bytes)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))
    return content.decode()
