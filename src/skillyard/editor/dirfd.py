"""A folder that is held open: reading, staging and swapping its files through its descriptor.

A write is a new file beside the old one, on the disk before it takes the old one's name: whoever reads sees the old
bytes or the new ones. The folder is locked meanwhile, so that edits of one file wait for each other.

Kept: mode, and owner and group where we may set them. Not kept: hard links and extended attributes.
"""

import errno
import os
import stat
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

from skillyard.core.errors import PermissionDenied, RuntimeFailed
from skillyard.core.messages import Message
from skillyard.editor.allowed_roots import Spot, open_folder
from skillyard.store import locks

MAX_BYTES = 64 * 1024 * 1024
_LOCK_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Found(NamedTuple):
    """A file as it was read."""

    content: bytes
    mode: int
    owner: tuple[int, int]

    @property
    def read_only(self) -> bool:
        return not self.mode & 0o222


class Folder:
    def __init__(self, handle: int, path: Path) -> None:
        self._handle = handle
        self.path = path
        status = os.fstat(handle)
        #: The same folder by another path is the same folder.
        self.identity = (status.st_dev, status.st_ino)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def lock(self, seconds: float = _LOCK_SECONDS) -> None:
        """Until the folder is closed; whoever dies lets go. A lock on the folder itself leaves no file behind."""
        deadline = time.monotonic() + seconds
        while not locks.take(self._handle):
            if time.monotonic() > deadline:
                raise RuntimeFailed(
                    Message("{path} is locked by another edit for {seconds:g} s", path=self.path, seconds=seconds)
                )
            time.sleep(_LOOK_SECONDS)

    def find(self, name: str) -> Found | None:
        """The file's bytes; None where there is none. Links, pipes and the like are refused."""
        try:
            handle = os.open(name, _READ, dir_fd=self._handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise PermissionDenied(Message("{path} is a link", path=self.path / name)) from None
            raise OSError(error.errno, error.strerror, str(self.path / name)) from None
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise PermissionDenied(Message("{path} is not a regular file", path=self.path / name))
        with os.fdopen(handle, "rb") as file:
            if status.st_size > MAX_BYTES:
                raise RuntimeFailed(
                    Message("{path} is larger than {max_bytes} bytes", path=self.path / name, max_bytes=MAX_BYTES)
                )
            return Found(file.read(), stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid))

    def check_writable(self, name: str, found: Found) -> None:
        """A file that was made read-only is not replaced, though the folder would allow it."""
        if found.read_only or not os.access(name, os.W_OK, dir_fd=self._handle):
            raise PermissionDenied(Message("{path} is read-only", path=self.path / name))

    def stage(self, name: str, content: bytes, like: Found | None) -> None:
        """A new file with these bytes, really on the disk, that nobody looks at yet."""
        handle = os.open(name, _MAKE, 0o666 if like is None else 0o600, dir_fd=self._handle)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                if like is not None:
                    _make_like(handle, like)
                os.fsync(handle)
        except OSError:
            self.remove(name)
            raise

    def swap(self, staged: str, name: str) -> None:
        os.replace(staged, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)

    def list(self) -> list[str]:
        return os.listdir(self._handle)  # noqa: PTH208  (by its descriptor)

    def sync(self) -> None:
        """The names are on the disk too."""
        os.fsync(self._handle)


def _make_like(handle: int, like: Found) -> None:
    mode, status = like.mode, os.fstat(handle)
    if (status.st_uid, status.st_gid) != like.owner:
        try:
            os.fchown(handle, *like.owner)
        except PermissionError:
            mode &= ~(stat.S_ISUID | stat.S_ISGID)  # never with another's power
    os.fchmod(handle, mode)


def open_folders(
    spots: Sequence[Spot], stack: ExitStack, *, create: Collection[Spot], lock: bool
) -> list[Folder | None]:
    """The folder of each spot, each opened once, and locked in one order for all so that nobody waits in a circle."""
    opened: dict[tuple[int, int], Folder] = {}
    folders: list[Folder | None] = []
    for spot in spots:
        try:
            folder = stack.enter_context(Folder(open_folder(spot, create=spot in create), spot.path.parent))
        except FileNotFoundError:
            folders.append(None)
        else:
            folders.append(opened.setdefault(folder.identity, folder))
    for identity in sorted(opened) if lock else ():
        opened[identity].lock()
    return folders
