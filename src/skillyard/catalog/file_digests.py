"""The files of a skill with their digests, and its frontmatter word for word: what Skills over MCP publishes.

Both are kept in the index with the stamp of every file and folder: an unchanged skill costs one `stat` for each.
Hidden files, links and caches are no files of a published skill: they are neither listed nor served.
"""

import codecs
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.catalog.files import is_utf8, read_below
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import is_settled, stamp_of
from skillyard.core.messages import Message
from skillyard.core.values import Json

if TYPE_CHECKING:
    from skillyard.catalog.index import Index

#: What every client must take; a larger skill is not published.
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
MAX_DESCRIPTION = 1024
_MAX_COMPATIBILITY = 500
_MAX_FOLDERS = 2_000
_MAX_FRONTMATTER = 64 * 1024
_CHUNK = 1 << 20
_LEFT_OUT = frozenset({"__pycache__"})
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
#: `(path, mtime, ctime, size, inode)` of each file, and of each folder with "" or a slash at its end.
_Stamps = list[list[Any]]


class FileDigest(NamedTuple):
    #: Relative to the skill's folder.
    path: str
    #: `sha256:` and 64 hexadecimal digits, of the bytes as they are.
    digest: str
    size: int


class PublishedFiles(NamedTuple):
    """What there is to publish of one skill; if it cannot be published, `reason` says why."""

    frontmatter: Mapping[str, Json] = {}
    files: tuple[FileDigest, ...] = ()
    reason: str = ""

    def as_text(self) -> str:
        return json.dumps([self.frontmatter, self.files, self.reason], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "PublishedFiles":
        frontmatter, files, reason = json.loads(text)
        return cls(frontmatter, tuple(map(FileDigest._make, files)), reason)


class _NotPublishedError(Exception):
    """The message is the reason."""


def published_files(index: "Index", skill_files: Sequence[str]) -> dict[str, PublishedFiles]:
    """Return what each SKILL.md that is there publishes, by its path. Only what changed since the last call is read."""
    known, found, fresh = index.published(skill_files), dict[str, PublishedFiles](), list[tuple[str, str, str]]()
    now_ns = time.time_ns()
    for file in skill_files:
        stamps, text = known.get(file, ("", ""))
        if text and _is_unchanged(os.path.dirname(file), json.loads(stamps)):  # noqa: PTH120  (thousands of them)
            found[file] = PublishedFiles.from_text(text)
            continue
        try:
            found[file], read = read_published(Path(file))
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone in the meantime
        except OSError as error:
            found[file] = PublishedFiles(reason=Message("it cannot be read: {reason}", reason=error.strerror or error))
            continue
        # What changed a moment ago could change again within the same tick of the clock.
        if all(is_settled((stamp[1], stamp[2], stamp[3], stamp[4]), now_ns) for stamp in read):
            fresh.append((file, json.dumps(read, separators=(",", ":")), found[file].as_text()))
    if fresh:
        index.put_published(fresh)
    return found


def _is_unchanged(folder: str, stamps: _Stamps) -> bool:
    return all(stamp_of(f"{folder}/{path}") == tuple(stamp) for path, *stamp in stamps)


def read_published(skill_file: Path) -> tuple[PublishedFiles, _Stamps]:
    """Read and hash a skill's files. Raise OSError for what cannot be read."""
    stamps: _Stamps = []
    folder = skill_file.parent
    try:
        files = tuple(_digest(folder, path) for path in _list_files(str(folder), stamps))
        frontmatter = read_frontmatter(read_below(folder, skill_file.name, _MAX_FRONTMATTER * 2))
    except _NotPublishedError as error:
        return PublishedFiles(reason=str(error)), stamps
    return PublishedFiles(frontmatter, files, check_skill(skill_file, frontmatter, files)), stamps


def check_skill(skill_file: Path, frontmatter: Mapping[str, Json], files: Sequence[FileDigest]) -> str:
    """Return why a skill is not published, or an empty text."""
    if skill_file.name != SKILL_FILE:
        return Message("its file is called {name}, not SKILL.md", name=skill_file.name)
    if sum(file.size for file in files) > MAX_BYTES:
        return Message("its files have more than {most:,} bytes", most=MAX_BYTES)
    if reason := check_fields(frontmatter):
        return reason
    name, folder = frontmatter["name"], skill_file.parent.name
    if name != folder:
        return Message("its name {name} is not that of its folder, {folder}", name=name, folder=folder)
    return ""


def is_published(entry: "os.DirEntry[str]") -> bool:
    """Whether a file or folder is one of a published skill."""
    if entry.name.startswith(".") or entry.name in _LEFT_OUT or not is_utf8(entry.name):
        return False
    return entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)


def _list_files(top: str, stamps: _Stamps) -> list[str]:
    """Return the paths of the files, sorted, and append the stamps that tell whether this changes."""
    found: list[str] = []
    queue = [""]
    total = folders = 0
    while queue:
        inner = queue.pop()
        folders += 1
        stamps.append([inner, *(stamp_of(f"{top}/{inner}") or (0, 0, 0, 0))])
        with os.scandir(f"{top}/{inner}") as entries:
            for entry in entries:
                path = inner + entry.name
                if not is_published(entry):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    queue.append(f"{path}/")
                else:
                    status = entry.stat(follow_symlinks=False)
                    stamps.append([path, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino])
                    found.append(path)
                    total += status.st_size
        if len(found) > MAX_FILES or folders > _MAX_FOLDERS:
            raise _NotPublishedError(Message("it has more than {most} files", most=MAX_FILES))
        if total > MAX_BYTES:
            raise _NotPublishedError(Message("its files have more than {most:,} bytes", most=MAX_BYTES))
    return sorted(found)


def _digest(folder: Path, path: str) -> FileDigest:
    digest, size = hashlib.sha256(), 0
    file = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as content:
        while size <= MAX_BYTES and (chunk := content.read(_CHUNK)):
            digest.update(chunk)
            size += len(chunk)
    return FileDigest(path, f"sha256:{digest.hexdigest()}", size)


def read_frontmatter(content: bytes) -> Mapping[str, Json]:
    """Return the frontmatter of a SKILL.md, every field as YAML has it; nothing if it is none that YAML can read."""
    from skillyard.catalog.frontmatter import read_verbatim  # noqa: PLC0415  (brings YAML; only what changed needs it)

    block = _block(content)
    return read_verbatim(block) if block else {}


def has_frontmatter(content: bytes, told: Mapping[str, Json]) -> bool:
    """Whether a SKILL.md has exactly these fields. A plain scalar may be told as text: YAML 1.2 reads some so."""
    from skillyard.catalog.frontmatter import read_verbatim  # noqa: PLC0415

    block = _block(content)
    return bool(block) and _is_same(read_verbatim(block), read_verbatim(block, str), told)


def _is_same(value: Json, text: Json, told: Json) -> bool:
    match value, text, told:
        case dict(), dict(), dict():
            return value.keys() == told.keys() and all(_is_same(value[key], text[key], told[key]) for key in value)
        case list(), list(), list():
            return len(value) == len(told) and all(map(_is_same, value, text, told))
    return ((type(value) is bool) == (type(told) is bool) and value == told) or (isinstance(told, str) and told == text)


def _block(content: bytes) -> str:
    from skillyard.catalog.skill_text import plain_fence  # noqa: PLC0415

    start = content[: 2 * _MAX_FRONTMATTER].removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    fence = plain_fence(start + b"\n")
    return fence.block if fence and len(fence.block.encode()) <= _MAX_FRONTMATTER else ""


def check_fields(fields: Mapping[str, Json]) -> str:
    """Return what in the frontmatter breaks the standard, or an empty text. Clients refuse such a skill, and some with
    it the whole page that holds it."""
    if not fields:
        return Message("its frontmatter is not the YAML that the standard asks for")
    name, description, metadata = fields.get("name"), fields.get("description"), fields.get("metadata", {})
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return Message("its name {name!r} breaks the standard's rules", name=str(name)[:80])
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        return Message("its description is missing, no text, or longer than {most}", most=MAX_DESCRIPTION)
    for field in ("license", "allowed-tools", "compatibility"):
        if not isinstance(fields.get(field, ""), str):
            return Message("{field} is no text", field=field)
    if "compatibility" in fields and not 1 <= len(str(fields["compatibility"])) <= _MAX_COMPATIBILITY:
        return Message("{field} is empty or longer than {most}", field="compatibility", most=_MAX_COMPATIBILITY)
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        return Message("metadata holds something else than texts")
    return ""
