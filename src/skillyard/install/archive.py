"""Safe extraction of .skill, .zip, .tar and .tar.gz: the whole archive is read and checked before anything is written.

Covered: paths that lead out, absolute and Windows paths, links that lead out, devices, duplicates and names that are
one file on some systems, bombs by size, count and ratio; setuid bits are dropped, execute bits kept.
Not covered: what the files say. The scan looks at that.
"""

import errno
import lzma
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple

from skillyard.catalog.files import is_utf8
from skillyard.core.errors import SourceRefused
from skillyard.core.messages import Message
from skillyard.install.names import as_safe_path, check_apart, check_link, shown
from skillyard.install.source import LIMITS, Limits

_CHUNK = 1 << 20
#: Finder's and tar's own bookkeeping; no file of a skill.
_NOISE = frozenset({"__MACOSX", ".DS_Store"})
#: What the standard library raises for bytes that are no archive: each was found by a fuzzer.
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, ValueError, KeyError, NotImplementedError, RuntimeError),
)


class _Member(NamedTuple):
    """One entry as it would be written: a folder, a symbolic link, or a file that `open` reads."""

    path: PurePosixPath
    open: Callable[[], IO[bytes] | None] | None = None
    size: int = 0
    is_program: bool = False
    #: Where a symbolic link leads.
    link: str | None = None

    @property
    def shown(self) -> str:
        return shown(str(self.path))


def is_archive(name: str) -> bool:
    return name.lower().endswith((".skill", ".zip", ".tar.gz", ".tgz", ".tar"))


def extract(archive: Path, into: Path, limits: Limits = LIMITS) -> None:
    """Write what the archive holds below `into`. SourceRefused, with nothing written, if any of it is unsafe."""
    try:
        with archive.open("rb") as file:
            packed, start = os.fstat(file.fileno()).st_size, file.read(2)
            file.seek(0)
            if start == b"PK":
                with zipfile.ZipFile(file) as zipped:
                    limits.check(files=len(zipped.infolist()))
                    members = [_zip_member(zipped, info, limits) for info in zipped.infolist()]
                    _write_checked(members, packed, into, limits)
                return
            with tempfile.TemporaryFile() as plain:
                unzip = zlib.decompressobj(wbits=31) if start == b"\x1f\x8b" else None
                _unpack(file, plain, unzip, limits.total_bytes + limits.files * 2048)
                with tarfile.open(fileobj=plain, mode="r:", errors="surrogateescape") as tar:
                    _write_checked(list(_tar_members(tar, limits)), packed, into, limits)
    except (*_BROKEN, OSError) as error:
        # A wrong offset in an archive makes seek fail with EINVAL, bad bzip2 data has no errno; the disk's errors pass.
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise
        raise SourceRefused(Message("the archive cannot be read: {error}", error=error)) from None


def _unpack(packed: BinaryIO, into: BinaryIO, unzip: "zlib._Decompress | None", most: int) -> None:
    """Write the bytes of a tar, gunzipped if they are zipped, and never more than `most`."""
    total = 0
    while chunk := packed.read(1 << 16):
        piece = unzip.decompress(chunk, _CHUNK) if unzip else chunk
        while piece or (unzip and unzip.unconsumed_tail):
            total += len(piece)
            if total > most:
                raise SourceRefused(Message("it unpacks to more than {most} bytes", most=most))
            into.write(piece)
            piece = unzip.decompress(unzip.unconsumed_tail, _CHUNK) if unzip else b""
    if unzip and not unzip.eof:
        raise SourceRefused(Message("the archive ends too early"))
    into.seek(0)


def _guessed(raw: bytes, name: str) -> str:
    """A name that is not marked as UTF-8: it may be, or Chinese Windows wrote it."""
    for encoding in ("utf-8", "gbk"):
        with suppress(UnicodeDecodeError):
            return raw.decode(encoding)
    return name


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limits: Limits) -> _Member:
    if info.flag_bits & 0x1:
        raise SourceRefused(Message("the archive is encrypted"))
    name = info.orig_filename
    if not info.flag_bits & 0x800 and not name.isascii():  # the flag says UTF-8
        name = _guessed(name.encode("cp437"), name)
    member = _Member(as_safe_path(name))
    mode = info.external_attr >> 16 if info.create_system == 3 else 0  # 3: made on Unix
    kind = stat.S_IFMT(mode)
    if info.is_dir() or kind == stat.S_IFDIR:
        return member
    if kind not in {0, stat.S_IFREG, stat.S_IFLNK}:
        raise SourceRefused(Message("{path} is a device or a pipe", path=member.shown))
    if kind == stat.S_IFLNK:
        if info.file_size > limits.path_bytes:
            raise SourceRefused(Message("{filename} is a link that leads nowhere", filename=member.shown))
        return member._replace(link=archive.read(info).decode("utf-8", "surrogateescape"))
    return _Member(member.path, lambda: archive.open(info), info.file_size, bool(mode & 0o111))


def _tar_members(archive: tarfile.TarFile, limits: Limits) -> Iterator[_Member]:
    def decoded(name: str) -> str:
        return name if is_utf8(name) else _guessed(name.encode("utf-8", "surrogateescape"), name)

    files: dict[str, tarfile.TarInfo] = {}
    for count, info in enumerate(archive, 1):
        limits.check(files=count)
        if info.name in {".", "./", ""}:
            continue
        member = _Member(as_safe_path(decoded(info.name)))
        if info.isdir():
            yield member
        elif info.issym():
            yield member._replace(link=decoded(info.linkname))
        else:
            # A hard link is a second name of a file before it, and we write a second file.
            found = files.get(info.linkname) if info.islnk() else info
            if found is None:
                raise SourceRefused(Message("{name} is a hard link to no earlier file", name=member.shown))
            if not found.isreg():
                raise SourceRefused(Message("{path} is a device or a pipe", path=member.shown))
            files[found.name] = found
            is_program = bool(found.mode & 0o111)
            yield _Member(member.path, partial(archive.extractfile, found), found.size, is_program)


def _write_checked(members: list[_Member], packed: int, into: Path, limits: Limits) -> None:
    """Check the archive as a whole, then write it; each path was checked when it was read."""
    members = [member for member in members if not _NOISE.intersection(member.path.parts)]
    total = sum(member.size for member in members)
    limits.check(total_bytes=total)
    if total > limits.free_bytes and total > packed * limits.ratio:
        raise SourceRefused(Message("it unpacks to {total} times its size", total=total // max(packed, 1)))
    folders = [member.path for member in members if not member.open and member.link is None]
    check_apart((member.path for member in members if member.open or member.link is not None), folders)
    links = [(member, member.link) for member in members if member.link is not None]
    for member, link in links:
        check_link(member.path, link)
    for folder in folders:
        (into / folder).mkdir(parents=True, exist_ok=True)
    for member in members:
        if member.open:
            _write(member, member.open(), into / member.path, limits)
    for member, link in links:  # last, so that nothing is ever written through one
        (into / member.path).parent.mkdir(parents=True, exist_ok=True)
        (into / member.path).symlink_to(link)


def _write(member: _Member, content: IO[bytes] | None, target: Path, limits: Limits) -> None:
    if content is None:
        raise SourceRefused(Message("{name} has no content", name=member.shown))
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with content, os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        written = 0
        while chunk := content.read(_CHUNK):
            written += len(chunk)
            if written > min(member.size, limits.total_bytes):
                raise SourceRefused(Message("{path} is longer than the archive says", path=member.shown))
            file.write(chunk)
    target.chmod(0o755 if member.is_program else 0o644)
