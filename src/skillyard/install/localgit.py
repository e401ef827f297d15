"""A git repository of this machine, seen without its settings.

git runs programs that a repository's own configuration names, also when it only serves a fetch (the lazy fetches of a
partial clone; in older versions more). So it never opens the repository itself: it gets a view of it, a repository of
ours with the same refs and, through a link, the same objects.

Covered: the configuration, hooks, attributes and grafts of the repository are never read; refs are read as data, and
what is not a ref is left out.
Not covered: objects that the repository borrows from others (`objects/info/alternates`) can be read, as files can.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from skillyard.catalog.plainfile import read_plain
from skillyard.core.errors import SourceFailed
from skillyard.core.messages import Message
from skillyard.install.gitprocess import make_empty_repository

_HASH = re.compile(rb"[0-9a-f]{40}")
_LINK = re.compile(rb"ref: *(refs/[^\s]+)\s*")
_PACKED = re.compile(rb"^([0-9a-f]{40}) (refs/[^\s]+)$", re.MULTILINE)
#: As `git check-ref-format` wants them.
_NAME = re.compile(r"refs(?:/(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f~^:?*\[\\/])+(?<!\.lock)(?<!\.))+")
_SMALL_BYTES = 4096
_PACKED_BYTES = 64 * 1024 * 1024
_MOST_REFS = 200_000
_MOST_LINKS = 5


def is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def make_view(of: Path, view: Path) -> None:
    """SourceFailed if there is no repository at `of`."""
    git_dir = _find(of)
    common = _common(git_dir)
    if (common / "reftable").exists():
        raise SourceFailed(
            Message("{of} keeps its refs in a format that is not read here: clone it, or give its address", of=of)
        )
    make_empty_repository(view)
    (view / "objects").rmdir()
    (view / "objects").symlink_to(os.path.realpath(common / "objects"))
    refs = _refs(common)
    (view / "packed-refs").write_bytes(b"".join(b"%s %s\n" % (refs[name], name) for name in sorted(refs)))
    if head := _target(_small(git_dir / "HEAD")):
        (view / "HEAD").write_bytes((b"ref: %s\n" if head.startswith(b"refs/") else b"%s\n") % head)
    if shallow := _HASH.findall(_read(common / "shallow", _PACKED_BYTES)):
        (view / "shallow").write_bytes(b"".join(b"%s\n" % commit for commit in shallow))


def _find(folder: Path) -> Path:
    """The folder with HEAD. A worktree has a file that says where it is."""
    for candidate in (folder / ".git", folder, folder.with_name(f"{folder.name}.git")):
        git_dir = _named_in(candidate) if candidate.is_file() else candidate
        if (git_dir / "HEAD").exists() and is_bare(_common(git_dir)):
            return git_dir
    raise SourceFailed(Message("{folder} is no git repository", folder=folder))


def _named_in(file: Path) -> Path:
    named = _small(file).decode("utf-8", "surrogateescape").removeprefix("gitdir:").strip()
    return file if "\0" in named else file.parent / named


def _common(git_dir: Path) -> Path:
    named = _small(git_dir / "commondir").decode("utf-8", "surrogateescape").strip()
    return git_dir / named if named and "\0" not in named else git_dir


def _refs(common: Path) -> dict[bytes, bytes]:
    packed = _PACKED.findall(_read(common / "packed-refs", _PACKED_BYTES))
    known = {name: commit for commit, name in packed if _is_name(name)}
    links: dict[bytes, bytes] = {}
    for name, target in _loose(common):
        (links if target.startswith(b"refs/") else known)[name] = target
    for _ in range(_MOST_LINKS):
        known |= {name: known[target] for name, target in links.items() if target in known}
    return known


def _loose(common: Path) -> Iterator[tuple[bytes, bytes]]:
    count = 0
    for folder, _, files in os.walk(common / "refs"):
        for file in files:
            count += 1
            if count > _MOST_REFS:
                raise SourceFailed(
                    Message("{common} has more than {most_refs} refs", common=common, most_refs=_MOST_REFS)
                )
            path = Path(folder, file)
            name = os.fsencode(path.relative_to(common).as_posix())
            if _is_name(name) and (target := _target(_small(path))):
                yield name, target


def _target(content: bytes) -> bytes:
    """The commit, or the other ref, that a ref names; nothing where it is neither."""
    if _HASH.fullmatch(content.strip()):
        return content.strip()
    link = _LINK.fullmatch(content)
    return link[1] if link and _is_name(link[1]) else b""


def _is_name(name: bytes) -> bool:
    return _NAME.fullmatch(name.decode("utf-8", "surrogateescape")) is not None


def _small(file: Path) -> bytes:
    return _read(file, _SMALL_BYTES)


def _read(file: Path, most_bytes: int) -> bytes:
    """Nothing where it is no file."""
    try:
        content = read_plain(file, most_bytes)
    except (OSError, ValueError):
        return b""
    if len(content) > most_bytes:
        raise SourceFailed(Message("{path} is larger than {max_bytes} bytes", path=file, max_bytes=most_bytes))
    return content
