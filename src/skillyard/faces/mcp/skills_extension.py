"""The extension `io.modelcontextprotocol/skills` (SEP-2640): skills with the digests of all their files.

Functions of a project, its surface and the params of a request; no transport and no SDK. A SkillError is the client's
mistake (-32602), an OSError ours (-32603).

Listed is what follows the standard: clients refuse anything else, and some with it the page that holds it. The other
skills stay reachable by the tools and as resources, and `_meta` says why each was left out. Skills inside a skill are
its files; `skills/get` answers for each of them.
"""

import json
import mimetypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from skillyard.app.project import Project
from skillyard.catalog.file_digests import FileDigest, PublishedFiles, check_skill, published_files, read_frontmatter
from skillyard.catalog.files import is_utf8, read_plain
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.mcp.listing import Shown, Surface, cursor_after, page_of

EXTENSION: Final = "io.modelcontextprotocol/skills"
SETTINGS: Final = {"directoryRead": True}
SCHEME: Final = "skill://"
FOLDER_TYPE: Final = "inode/directory"
#: An entry is never split, so a page ends where it has one of both.
_PAGE_SKILLS, _PAGE_BYTES = 500, 4_000_000
_PAGE_FILES = 500
#: Of a file in an entry, without its address and path.
_FILE_BYTES = 130
_MOST_TOLD = 20
_LEFT_OUT = "skillyard/leftOut"
#: The answer is of this moment: what changes is found by a stat.
_COMPLETE: Mapping[str, Json] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
Params: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = dict[str, Any]


def uri_of(address: str, path: str = "") -> str:
    return SCHEME + quote(f"{address}/{path}" if path else address, safe="/")


def split_uri(surface: Surface, uri: str) -> tuple[Shown, str] | None:
    """Return the skill that a URI lies in, and the path inside it. None if no skill of this address is here."""
    parts = unquote(uri.removeprefix(SCHEME)).split("/") if uri.startswith(SCHEME) else []
    addresses = {shown.address: shown for shown in surface.skills} if parts else {}
    for end in range(len(parts), 0, -1):
        if shown := addresses.get("/".join(parts[:end])):
            return shown, "/".join(parts[end:])
    return None


def list_skills(project: Project, surface: Surface, params: Params) -> Answer:
    """`skills/list`: a page of the skills that follow the standard, each with all of its files."""
    listed = [shown for shown in surface.skills if not shown.entry.role]
    page, cursor = page_of(listed, _text(params, "cursor"), _PAGE_SKILLS)
    found = _published(project, page)
    entries, left_out, total = list[Json](), list[Json](), 0
    for position, shown in enumerate(page):
        published = found.get(shown.entry.file)
        if published is None:
            continue  # gone in the meantime
        if published.reason:
            left_out.append({"name": shown.address, "reason": published.reason})
            continue
        total += _weight(shown.address, published)
        if entries and total > _PAGE_BYTES:
            cursor = cursor_after(page[position - 1])
            break
        entries.append(_as_entry(shown.address, published))
    answer: Answer = {**_COMPLETE, "skills": entries}
    if cursor:
        answer["nextCursor"] = cursor
    if left_out:
        answer["_meta"] = {_LEFT_OUT: left_out[:_MOST_TOLD]}
    return answer


def get_skill(project: Project, surface: Surface, params: Params) -> Answer:
    """`skills/get`: the entry of one skill, also of one that lies inside another."""
    uri = _text(params, "uri") or ""
    if found := split_uri(surface, uri):
        shown, path = found
        nested = path.removesuffix(SKILL_FILE).rstrip("/")
        if uri == uri_of(shown.address, path) and path == (f"{nested}/{SKILL_FILE}" if nested else SKILL_FILE):
            published = _published(project, [shown]).get(shown.entry.file)
            if published and nested:
                published = _nested(shown.entry.folder, published, nested)
            if published and not published.reason:
                address = f"{shown.address}/{nested}" if nested else shown.address
                return {**_COMPLETE, "skill": _as_entry(address, published)}
            if published:
                why = {"uri": uri[:200], "reason": published.reason}
                raise InvalidArgs(Message("{uri} is not published: {reason}", **why))
    raise InvalidArgs(Message("no skill is served at {uri}", uri=uri[:200]))


def read_directory(_: Project, surface: Surface, params: Params) -> Answer:
    """`resources/directory/read`: the direct children of a folder, as they are now."""
    uri, after = _text(params, "uri") or "", _text(params, "cursor") or ""
    found = split_uri(surface, uri)
    if found is None or found[0].entry.role or uri != uri_of(found[0].address, found[1]):
        raise InvalidArgs(Message("no folder of a skill is served at {uri}", uri=uri[:200]))
    shown, inner = found
    folder = os.path.realpath(shown.entry.folder)
    names = inner.split("/") if inner else []
    place = os.path.join(folder, *names)  # noqa: PTH118  (a path of the client: compared before it is used)
    if any(name in {"", ".", ".."} or name.startswith(".") or "\0" in name for name in names):
        raise InvalidArgs(Message("no folder of a skill is served at {uri}", uri=uri[:200]))
    if os.path.realpath(place) != place or not os.path.isdir(place):  # noqa: PTH112
        raise InvalidArgs(Message("{uri} is no folder", uri=uri[:200]))
    with os.scandir(place) as entries:
        kept = [entry for entry in entries if _is_served(entry) and entry.name > after]
    children = sorted(kept, key=lambda entry: entry.name)
    page = children[:_PAGE_FILES]
    answer: Answer = {
        "resultType": "complete",
        "resources": [_as_child(shown, f"{inner}/{entry.name}" if inner else entry.name, entry) for entry in page],
    }
    if len(children) > len(page):
        answer["nextCursor"] = page[-1].name
    return answer


METHODS: Final[Mapping[str, Callable[[Project, Surface, Params], Answer]]] = {
    "skills/list": list_skills,
    "skills/get": get_skill,
    "resources/directory/read": read_directory,
}


def _text(params: Params, key: str) -> str | None:
    value = params.get(key)
    if value is not None and not (isinstance(value, str) and is_utf8(value)):
        raise InvalidArgs(Message("{key} must be a text", key=key))
    return value


def _published(project: Project, page: Sequence[Shown]) -> dict[str, PublishedFiles]:
    """Return the files of each skill that is still there, by its SKILL.md."""
    files = [shown.entry.file for shown in page]
    return published_files(project.catalog.index, files)


def _weight(address: str, published: PublishedFiles) -> int:
    """About how many bytes the entry has."""
    files = sum(_FILE_BYTES + len(address) + len(file.path) for file in published.files)
    return files + len(json.dumps(published.frontmatter))


def _as_entry(address: str, published: PublishedFiles) -> Answer:
    return {
        "uri": uri_of(address, SKILL_FILE),
        "frontmatter": published.frontmatter,
        "resources": [
            {"uri": uri_of(address, path), "digest": digest, "size": size} for path, digest, size in published.files
        ],
    }


def _nested(folder: Path, outer: PublishedFiles, inner: str) -> PublishedFiles | None:
    """Return what a skill inside another publishes: its part of the files. None if there is none."""
    files = tuple(
        FileDigest(file.path.removeprefix(f"{inner}/"), file.digest, file.size)
        for file in outer.files
        if file.path.startswith(f"{inner}/")
    )
    if not any(file.path == SKILL_FILE for file in files):
        return None
    skill_file = folder / inner / SKILL_FILE
    frontmatter = read_frontmatter(read_plain(skill_file, 1 << 20))
    return PublishedFiles(frontmatter, files, check_skill(skill_file, frontmatter, files))


def _is_served(entry: "os.DirEntry[str]") -> bool:
    if entry.name.startswith(".") or entry.name == "__pycache__" or not is_utf8(entry.name):
        return False
    return entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)


def _as_child(shown: Shown, path: str, entry: "os.DirEntry[str]") -> Answer:
    child: Answer = {"uri": uri_of(shown.address, path), "name": entry.name}
    if entry.is_dir(follow_symlinks=False):
        return {**child, "mimeType": FOLDER_TYPE}
    if path == SKILL_FILE:
        child |= {"name": shown.entry.name, "description": shown.entry.description}
    kind = type_of(path)
    return {**child, "mimeType": kind} if kind else child


def type_of(name: str) -> str | None:
    return "text/markdown" if name.lower().endswith(".md") else mimetypes.guess_type(name)[0]
