"""Hashes everything in a skill's folder, and copies exactly the hashed bytes: a grant is for these bytes.

Every file of a clone counts, whatever its name: Python runs what is in `__pycache__`, and a command may name a file
there, or `.DS_Store`. `.git` does not count, so that a checkout keeps its hash; therefore it is never part of a copy,
and no run with a grant sees it.

The trust in a role leaves out more (`in_role`): caches and editor files, which are not part of the copy either, and
documents, which are.

Files are opened without following links and never by a second path lookup: what is hashed is what is copied.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from skillyard.core.errors import FolderChanging, InvalidArgs, PermissionDenied
from skillyard.core.messages import Message

#: A larger folder is not a skill.
MAX_FILES = 20_000
MAX_BYTES = 2 << 30
_MAX_DEPTH = 100
_CHUNK = 1 << 20
#: How often a folder that changes while it is read is read.
_ATTEMPTS = 5
_MOVED = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ESTALE})

#: Of a role: neither trusted nor shown to its programs.
_CACHES = frozenset(
    {
        *("__pycache__", ".ds_store", "thumbs.db", "desktop.ini", ".idea", ".vscode", ".ipynb_checkpoints", ".cache"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".nyc_output"),
        *(".coverage", "coverage.xml", "htmlcov", "junit.xml", "test-results", "test-reports"),
    }
)
_EDITOR_ENDINGS = ("~", ".swp", ".swo", ".tmp", ".bak", ".orig")
#: Of a role: shown to its programs, and free to change.
_DOCUMENTS = (
    ".md",
    ".markdown",
    ".rst",
    ".txt",
    ".adoc",
    ".pdf",
    ".doc",
    ".docx",
    ".odt",
    ".png",
    ".jpg",
    ".svg",
    ".log",
)
_TRUSTED_TEXTS = frozenset({"claude.md", "agent.yaml", "requirements.txt"})


class FolderHashes(NamedTuple):
    """`approved` is what a grant is for, `content` names the copy. They differ only for a role."""

    approved: str
    content: str
    #: The digest of each file and link by its path.
    digests: Mapping[str, str]
    #: The files and links that `approved` is for.
    covered: tuple[str, ...] = ()


def fingerprint(folder: Path, *, in_role: bool = False) -> str:
    """Return a digest over every path, link and byte below the folder; any change changes it."""
    return hash_folder(folder, in_role=in_role).approved


def hash_folder(folder: Path, copy_to: Path | None = None, *, in_role: bool = False) -> FolderHashes:
    """Hash a folder, and copy exactly the hashed bytes to `copy_to`, which must not exist yet.

    Raise PermissionDenied for what cannot be read and FolderChanging if the folder keeps changing.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _FolderHasher(folder, copy_to, in_role=in_role).read()
        except PermissionError as error:
            unread = Message("{filename}: it cannot be read, so nothing can be granted to it", filename=error.filename)
            raise PermissionDenied(unread) from None
        except OSError as error:
            if error.errno not in _MOVED:
                raise
            if not folder.is_dir():
                break
        if copy_to is not None:
            from shutil import rmtree  # noqa: PLC0415  (only for a folder that changes right now)

            rmtree(copy_to, ignore_errors=True)
    raise FolderChanging(Message("{folder} changed while it was read", folder=folder))


class _FolderHasher:
    def __init__(self, folder: Path, copy_to: Path | None, *, in_role: bool) -> None:
        import hashlib  # noqa: PLC0415  (most runs have no grant to check)

        self._folder, self._target, self._in_role = folder, copy_to, in_role
        self._blake = partial(hashlib.blake2b, digest_size=20)
        self._approved, self._content = self._blake(), self._blake()
        self._digests: dict[str, str] = {}
        self._covered: list[str] = []
        self._count = self._bytes = 0

    def read(self) -> FolderHashes:
        top = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._enter(top, "", 0)
        finally:
            os.close(top)
        content = self._content.hexdigest()
        approved = self._approved.hexdigest() if self._in_role else content
        return FolderHashes(approved, content, self._digests, tuple(self._covered))

    def _enter(self, folder: int, inner: str, depth: int) -> bool:
        """Read an open folder, sorted by name. Return False if nothing in it counts."""
        if depth > _MAX_DEPTH:
            deep = Message("{folder} is nested too deeply: nothing can be granted to it", folder=self._folder)
            raise InvalidArgs(deep)
        if self._target:
            (self._target / inner).mkdir(mode=0o755)
        names = [name for name in sorted(os.listdir(folder)) if not self._is_left_out(name)]
        counted = [self._take(folder, name, f"{inner}/{name}" if inner else name, depth) for name in names]
        return any(counted)

    def _is_left_out(self, name: str) -> bool:
        name = name.lower()
        is_temporary = name in _CACHES or name.endswith(_EDITOR_ENDINGS) or name.startswith((".#", "#"))
        return name == ".git" or (self._in_role and is_temporary)

    def _take(self, folder: int, name: str, path: str, depth: int) -> bool:
        """Return False for pipes, sockets and devices: they are not part of a copy, so no run sees them."""
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            with _opened(folder, name, os.O_DIRECTORY, self._folder / path) as inner:
                if not self._enter(inner, path, depth + 1):
                    self._add(path, b"folder", b"")
            return True
        self._count += 1
        if self._count > MAX_FILES:
            about = {"folder": self._folder, "max_files": MAX_FILES}
            many = Message("{folder} holds more than {max_files} files: nothing can be granted to it", **about)
            raise InvalidArgs(many)
        if stat.S_ISLNK(mode):
            leads_to = os.readlink(os.fsencode(name), dir_fd=folder)
            self._add(path, b"link", leads_to)
            if self._target:
                (self._target / path).symlink_to(os.fsdecode(leads_to))
        elif stat.S_ISREG(mode):
            with _opened(folder, name, os.O_NONBLOCK, self._folder / path) as file:
                self._take_file(file, path)
        return stat.S_ISLNK(mode) or stat.S_ISREG(mode)

    def _take_file(self, file: int, path: str) -> None:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.ENXIO, "it became something else")
        digest = self._blake()
        target = f"{self._target}/{path}" if self._target else ""
        is_program = bool(status.st_mode & 0o111)
        copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600) if target else -1
        is_code, at_start = is_program, True
        try:
            while chunk := os.read(file, _CHUNK):
                is_code, at_start = is_code or (at_start and chunk.startswith(b"#!")), False
                digest.update(chunk)
                self._bytes += len(chunk)
                if self._bytes > MAX_BYTES:
                    about = {"folder": self._folder, "max_bytes": MAX_BYTES >> 30}
                    large = Message("{folder} holds more than {max_bytes} GiB: nothing can be granted to it", **about)
                    raise InvalidArgs(large)
                view = memoryview(chunk if copy >= 0 else b"")
                while view:
                    view = view[os.write(copy, view) :]
            if copy >= 0:
                os.fchmod(copy, 0o555 if is_program else 0o444)
                os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            if copy >= 0:
                os.close(copy)
        self._add(path, b"program" if is_program else b"file", digest.digest(), is_code=is_code)

    def _add(self, path: str, kind: bytes, content: bytes, *, is_code: bool = True) -> None:
        name = path.rpartition("/")[2].lower()
        is_document = name.endswith(_DOCUMENTS) and name not in _TRUSTED_TEXTS
        is_covered = is_code or not is_document or not self._in_role
        counted = [self._content, self._approved] if is_covered else [self._content]
        if is_covered and kind != b"folder":
            self._covered.append(path)
        for part in (kind, path.encode("utf-8", "surrogateescape"), content):
            for digest in counted:
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        self._digests[path] = f"{kind.decode()}:{content.hex()}"


@contextlib.contextmanager
def _opened(folder: int, name: str, flags: int, path: Path) -> Iterator[int]:
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except PermissionError as error:
        raise PermissionError(error.errno, error.strerror, str(path)) from None
    try:
        yield opened
    finally:
        os.close(opened)
