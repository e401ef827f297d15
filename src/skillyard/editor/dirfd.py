"""Files reached through open folders: where an edit may go, and reading, staging and swapping files there.

A path is resolved first, with every link and `..` in it, and must lie below an allowed root. Then its folder is opened
step by step from the root, following no link: what was swapped for a link in the meantime is refused, and everything
after that goes through the open folder. A write is a new file beside the old one, on the disk before it takes the old
one's name: a reader sees the old bytes or the new ones.

Kept: mode, and owner and group where we may set them. Not kept: hard links and extended attributes.
Not covered: a folder that is moved out of a root while it is open takes the edit with it.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from skillyard.core.errors import InvalidArgs, NotGranted, PermissionDenied, RuntimeFailed
from skillyard.core.messages import Message

#: A project cannot open these folders for edits: its code, its skills, our state.
CLOSED = frozenset({".git", ".claude", ".skillyard", "agents", "bin"})
MAX_BYTES = 64 * 1024 * 1024
_LOCK_SECONDS = 30.0
_POLL_SECONDS = 0.01
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MORE_ROOTS = Message("edits stay in mybox/ and in the [editor] roots of SKILLYARD_HOME/config.toml")


class EditRoot(NamedTuple):
    """A folder that edits may reach. The anchor is taken as it stands; below it no link is followed."""

    anchor: Path
    inside: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()

    def contains(self, real: Path) -> bool:
        folder = self.anchor.joinpath(*self.inside)
        if real == folder or not real.is_relative_to(folder):
            return False
        parts = real.relative_to(self.anchor).parts
        return not self.closed or (parts[0].lower() not in self.closed and ".git" not in map(str.lower, parts))


def user_root(folder: Path) -> EditRoot:
    """Return the root of a folder that the user named: links in its path are meant."""
    return EditRoot(Path(os.path.realpath(folder)))


def project_root(project: Path, folder: Path) -> EditRoot:
    """Return the root of a folder that the project named: a link does not lead out of the project."""
    real = Path(os.path.realpath(project))
    meant = Path(os.path.normpath(real / folder))
    if meant.is_relative_to(real):
        return EditRoot(real, meant.relative_to(real).parts, CLOSED)
    return EditRoot(Path(os.path.realpath(meant)))


class FileLocation(NamedTuple):
    """A file below an anchor: its folders, and its name in the last of them."""

    anchor: Path
    folders: tuple[str, ...]
    name: str

    @property
    def path(self) -> Path:
        return self.anchor.joinpath(*self.folders, self.name)


def locate(file: str, roots: Sequence[EditRoot], asked: Sequence[EditRoot], forbidden: Path) -> FileLocation:
    """Return where a file is. `asked` are roots that nobody has allowed yet; nothing below `forbidden` is reached."""
    if not file or "\0" in file:
        raise InvalidArgs(Message("a file has a name"))
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(forbidden)):
        for root in roots:
            if root.contains(real):
                *folders, name = real.relative_to(root.anchor).parts
                return FileLocation(root.anchor, tuple(folders), name)
        if any(root.contains(real) for root in asked):
            raise NotGranted(Message("edit {file}", file=file), "skillyard trust")
    denied = PermissionDenied(Message("{file} is outside the folders that may be edited", file=file))
    denied.extra_hint = _MORE_ROOTS
    raise denied


class FileContent(NamedTuple):
    """A file as it was read."""

    content: bytes
    mode: int
    owner: tuple[int, int]


class OpenFolder:
    """A folder that is held open; its files are reached through its descriptor."""

    def __init__(self, location: FileLocation, *, create: bool) -> None:
        """Open the folder of a file. Raise FileNotFoundError if it is missing and `create` is not set."""
        anchor = os.open(location.anchor, FOLDER)
        try:
            self._handle = descend(anchor, location.folders, create=create)
        except NotADirectoryError as error:
            link = Message("{path}: {name} is a link or no folder", path=location.path, name=error.filename)
            raise PermissionDenied(link) from None
        except FileNotFoundError:
            raise FileNotFoundError(2, os.strerror(2), str(location.path)) from None
        self.path = location.path.parent
        status = os.fstat(self._handle)
        #: The same folder by another path has the same identity.
        self.identity = (status.st_dev, status.st_ino)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def lock(self, seconds: float = _LOCK_SECONDS) -> None:
        """Hold the folder's lock until it is closed. A lock on the folder itself leaves no file behind."""
        deadline = time.monotonic() + seconds
        while not try_lock(self._handle):
            if time.monotonic() > deadline:
                locked = Message("{path} is locked by another edit for {seconds:g} s", path=self.path, seconds=seconds)
                raise RuntimeFailed(locked)
            time.sleep(_POLL_SECONDS)

    def find(self, name: str) -> FileContent | None:
        """Return the file's bytes, or None if there is none. Links, pipes and the like are refused."""
        try:
            handle = os.open(name, READ, dir_fd=self._handle)
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
                path = self.path / name
                raise RuntimeFailed(Message("{path} is larger than {max_bytes} bytes", path=path, max_bytes=MAX_BYTES))
            return FileContent(file.read(), stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid))

    def check_writable(self, name: str, found: FileContent) -> None:
        """Refuse to replace a file that was made read-only, though the folder would allow it."""
        if not found.mode & 0o222 or not os.access(name, os.W_OK, dir_fd=self._handle):
            raise PermissionDenied(Message("{path} is read-only", path=self.path / name))

    def stage(self, name: str, content: bytes, like: FileContent | None) -> None:
        """Write a new file and sync it to the disk. If that fails, the caller removes it."""
        handle = os.open(name, _MAKE, 0o600 if like else 0o666, dir_fd=self._handle)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if like:
                mode, status = like.mode, os.fstat(handle)
                if (status.st_uid, status.st_gid) != like.owner:
                    try:
                        os.fchown(handle, *like.owner)
                    except PermissionError:
                        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # never with another user's rights
                os.fchmod(handle, mode)
            os.fsync(handle)

    def swap(self, staged: str, name: str) -> None:
        os.replace(staged, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)

    def list(self) -> list[str]:
        return os.listdir(self._handle)  # noqa: PTH208  (by its descriptor)

    def sync(self) -> None:
        """Bring the names to the disk too."""
        os.fsync(self._handle)


def open_folders(
    locations: Sequence[FileLocation], stack: ExitStack, *, create: Collection[FileLocation], lock: bool
) -> list[OpenFolder | None]:
    """Open the folder of each file once, and lock them in one order for all so that nobody waits in a circle."""
    opened: dict[tuple[int, int], OpenFolder] = {}
    folders: list[OpenFolder | None] = []
    for location in locations:
        try:
            folder = stack.enter_context(OpenFolder(location, create=location in create))
        except FileNotFoundError:
            folders.append(None)
        else:
            folders.append(opened.setdefault(folder.identity, folder))
    for identity in sorted(opened) if lock else ():
        opened[identity].lock()
    return folders


def try_lock(handle: int) -> bool:
    """Take the lock if it is free. The kernel releases it with the descriptor, also when its process is killed."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def descend(handle: int, folders: Iterable[str], *, create: bool = False) -> int:
    """Return the descriptor of a folder below an open one, which is closed; follow no link."""
    for name in folders:
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            below = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=handle)
        finally:
            os.close(handle)
        handle = below
    return handle


@contextmanager
def open_fd(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    handle = os.open(path, flags, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)
