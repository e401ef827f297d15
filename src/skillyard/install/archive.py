"""Safe extraction of .skill, .zip, .tar and .tar.gz: the whole archive is read and checked before anything is written.

Covered: paths that lead out, absolute and Windows paths, links that lead out, devices, duplicates and names that are
one file on some systems, bombs by size, count and ratio; setuid bits are dropped, execute bits kept.
Not covered: what the files say. The scan looks at that.
"""

import errno
import io
import lzma
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple

from skillyard.core.errors import SourceRefused
from skillyard.core.messages import Message
from skillyard.install.names import as_safe_path, check_apart, link_stays_inside, shown
from skillyard.install.source import LIMITS, Limits

_CHUNK = 1 << 20
#: Finder's and tar's own bookkeeping; no file of a skill.
_NOISE = frozenset({"__MACOSX", ".DS_Store"})
#: What the standard library raises for bytes that are no archive: each was found by a fuzzer.
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, ValueError, KeyError, NotImplementedError, RuntimeError),
)


class Member(NamedTuple):
    """One entry, as it would be written."""

    path: PurePosixPath
    size: int = 0
    is_program: bool = False
    is_folder: bool = False
    #: Where a symbolic link leads; None for a file.
    link: str | None = None


class _Planned(NamedTuple):
    member: Member
    open: Callable[[], IO[bytes]]


def is_archive(name: str) -> bool:
    return name.lower().endswith((".skill", ".zip", ".tar.gz", ".tgz", ".tar"))


def extract(archive: Path, into: Path, limits: Limits = LIMITS) -> tuple[Member, ...]:
    """Write what the archive holds below `into`. SourceRefused, with nothing written, if any of it is unsafe."""
    try:
        with archive.open("rb") as file:
            packed = os.fstat(file.fileno()).st_size
            start = file.read(2)
            file.seek(0)
            if start == b"PK":
                return _extract_zip(file, packed, into, limits)
            with tempfile.TemporaryFile() as plain:
                _gunzip(file, plain, limits.total_bytes + limits.files * 2048)
                return _extract_tar(plain, packed, into, limits)
    except zlib.error as error:
        raise SourceRefused(Message("{name} is broken: {error}", name=shown(archive.name), error=error)) from None


@contextmanager
def _reading() -> Iterator[None]:
    """SourceRefused for what the standard library raises for bytes that are no archive; the disk's errors pass."""
    try:
        yield
    except _BROKEN as error:
        raise SourceRefused(Message("the archive cannot be read: {error}", error=error)) from None
    except OSError as error:
        # A wrong offset in an archive makes seek fail with EINVAL, bad bzip2 data has no errno.
        if error.errno in {None, errno.EINVAL}:
            raise SourceRefused(Message("the archive cannot be read: {error}", error=error)) from None
        raise


def _extract_zip(file: BinaryIO, packed: int, into: Path, limits: Limits) -> tuple[Member, ...]:
    with _reading(), zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        if len(infos) > limits.files:
            raise SourceRefused(Message("more than {files} files", files=limits.files))
        planned = [_zip_member(archive, info, limits) for info in infos]
        return _checked_and_written(planned, packed, into, limits)


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limits: Limits) -> _Planned:
    if info.flag_bits & 0x1:
        raise SourceRefused(Message("the archive is encrypted"))
    path = as_safe_path(_zip_name(info))
    mode = info.external_attr >> 16 if info.create_system == 3 else 0  # 3: made on Unix
    kind = stat.S_IFMT(mode)
    if info.is_dir() or kind == stat.S_IFDIR:
        return _Planned(Member(path, is_folder=True), io.BytesIO)
    if kind not in {0, stat.S_IFREG, stat.S_IFLNK}:
        raise SourceRefused(Message("{path} is a device or a pipe", path=shown(str(path))))
    if kind == stat.S_IFLNK:
        if info.file_size > limits.path_bytes:
            raise SourceRefused(Message("{filename} is a link that leads nowhere", filename=shown(info.filename)))
        return _Planned(Member(path, link=archive.read(info).decode("utf-8", "surrogateescape")), io.BytesIO)
    return _Planned(Member(path, info.file_size, bool(mode & 0o111)), lambda: archive.open(info))


def _zip_name(info: zipfile.ZipInfo) -> str:
    """UTF-8 if the flag says so; else guess between UTF-8, GBK and the encoding of the first PCs."""
    if info.flag_bits & 0x800 or info.orig_filename.isascii():
        return info.orig_filename
    raw = info.orig_filename.encode("cp437")
    return _guessed(raw) or info.orig_filename


def _guessed(raw: bytes) -> str:
    for encoding in ("utf-8", "gbk"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return ""


def _extract_tar(file: BinaryIO, packed: int, into: Path, limits: Limits) -> tuple[Member, ...]:
    with _reading(), tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as archive:
        files: dict[str, tarfile.TarInfo] = {}
        planned = [_tar_member(archive, info, files) for info in _tar_infos(archive, limits)]
        return _checked_and_written(planned, packed, into, limits)


def _tar_infos(archive: tarfile.TarFile, limits: Limits) -> Iterator[tarfile.TarInfo]:
    for count, info in enumerate(archive):
        if count >= limits.files:
            raise SourceRefused(Message("more than {files} files", files=limits.files))
        if info.name not in {".", "./", ""}:
            yield info


def _tar_member(archive: tarfile.TarFile, info: tarfile.TarInfo, files: dict[str, tarfile.TarInfo]) -> _Planned:
    """`files` holds the plain files so far: a hard link is a second name of one, and we write a second file."""
    path = as_safe_path(_tar_name(info.name))
    if info.isdir():
        return _Planned(Member(path, is_folder=True), io.BytesIO)
    if info.issym():
        return _Planned(Member(path, link=_tar_name(info.linkname)), io.BytesIO)
    if info.islnk():
        if info.linkname not in files:
            raise SourceRefused(
                Message(
                    "{name} is a hard link to something that is not in the archive before it", name=shown(info.name)
                )
            )
        info = files[info.linkname]
    if not info.isreg():
        raise SourceRefused(Message("{path} is a device or a pipe", path=shown(str(path))))
    files[info.name] = info
    return _Planned(Member(path, info.size, bool(info.mode & 0o111)), lambda: _opened(archive, info))


def _opened(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(info)
    if content is None:
        raise SourceRefused(Message("{name} has no content", name=shown(info.name)))
    return content


def _tar_name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return _guessed(name.encode("utf-8", "surrogateescape")) or name
    return name


def _gunzip(packed: BinaryIO, into: BinaryIO, most: int) -> None:
    """Write the bytes of a tar, gunzipped if they are zipped, and never more than `most`."""
    start = packed.read(2)
    packed.seek(0)
    unzip = zlib.decompressobj(wbits=31) if start == b"\x1f\x8b" else None
    total = 0
    while chunk := packed.read(_CHUNK if unzip is None else 1 << 16):
        for piece in _unzipped(unzip, chunk) if unzip else (chunk,):
            total += len(piece)
            if total > most:
                raise SourceRefused(Message("it unpacks to more than {most} bytes", most=most))
            into.write(piece)
    if unzip and not unzip.eof:
        raise SourceRefused(Message("the archive ends too early"))
    into.seek(0)


def _unzipped(unzip: "zlib._Decompress", chunk: bytes) -> Iterator[bytes]:
    piece = unzip.decompress(chunk, _CHUNK)
    while piece or unzip.unconsumed_tail:
        yield piece
        piece = unzip.decompress(unzip.unconsumed_tail, _CHUNK)


def _checked_and_written(planned: list[_Planned], packed: int, into: Path, limits: Limits) -> tuple[Member, ...]:
    kept = [plan for plan in planned if not _NOISE.intersection(plan.member.path.parts)]
    members = tuple(plan.member for plan in kept)
    check_members(members, packed, limits)
    for plan in kept:
        _write(plan, into, limits)
    for member in members:
        if member.link is not None:  # last, so that nothing is ever written through one
            (into / member.path).parent.mkdir(parents=True, exist_ok=True)
            (into / member.path).symlink_to(member.link)
    return members


def check_members(members: tuple[Member, ...], packed: int, limits: Limits = LIMITS) -> None:
    """Check the archive as a whole; each path was checked when it was read."""
    total = sum(member.size for member in members)
    if total > limits.total_bytes:
        raise SourceRefused(
            Message("it unpacks to {total} bytes, more than {total_bytes}", total=total, total_bytes=limits.total_bytes)
        )
    if total > limits.free_bytes and total > packed * limits.ratio:
        raise SourceRefused(Message("it unpacks to {total} times its size", total=total // max(packed, 1)))
    folders = [member.path for member in members if member.is_folder]
    check_apart((member.path for member in members if not member.is_folder), folders)
    for member in members:
        if member.link is not None and not link_stays_inside(member.path, member.link):
            raise SourceRefused(
                Message(
                    "{path} is a link that leads out, to {link}", path=shown(str(member.path)), link=shown(member.link)
                )
            )


def _write(plan: _Planned, into: Path, limits: Limits) -> None:
    member, target = plan.member, into / plan.member.path
    if member.link is not None:
        return
    if member.is_folder:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with plan.open() as content, os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        written = 0
        while chunk := content.read(_CHUNK):
            written += len(chunk)
            if written > min(member.size, limits.total_bytes):
                raise SourceRefused(Message("{path} is longer than the archive says", path=shown(str(member.path))))
            file.write(chunk)
    target.chmod(0o755 if member.is_program else 0o644)
