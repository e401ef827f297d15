"""The extension `io.modelcontextprotocol/skills` (SEP-2640): skills with the digests of all their files.

Functions of a project, its surface and the params of a request; no transport and no SDK. A SkillError is the client's
mistake (-32602), an OSError ours (-32603).

Listed is what follows the standard: clients refuse anything else, and some with it the page that holds it. The other
skills stay reachable by the tools and as resources, and `_meta` says why each was left out. Skills inside a skill are
its files; `skills/get` answers for each of them.
"""

import json
import mimetypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote, unquote

from skillyard.app.project import Project
from skillyard.app.published import list_folder, nested_skill, published
from skillyard.core.envelope import encodes
from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message
from skillyard.core.values import Json
from skillyard.faces.mcp.listing import Shown, Surface, cursor_after, page_of

if TYPE_CHECKING:
    from skillyard.app.published import FolderEntry
    from skillyard.catalog.file_digests import PublishedFiles

SCHEME: Final = "skill://"
SKILL_FILE: Final = "SKILL.md"
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
    found = published(project, [shown.entry.file for shown in page])
    entries, left_out, total = list[Json](), list[Json](), 0
    for position, shown in enumerate(page):
        known = found.get(shown.entry.file)
        if known is None:
            continue  # gone in the meantime
        if known.reason:
            left_out.append({"name": shown.address, "reason": known.reason})
            continue
        total += _weight(shown.address, known)
        if entries and total > _PAGE_BYTES:
            cursor = cursor_after(page[position - 1])
            break
        entries.append(_as_entry(shown.address, known))
    answer: Answer = {**_COMPLETE, "skills": entries}
    answer |= cursor
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
            known = published(project, [shown.entry.file]).get(shown.entry.file)
            if known and nested:
                known = nested_skill(shown.entry.folder, known, nested)
            if known and known.reason:
                raise InvalidArgs(Message("{uri} is not published: {reason}", uri=uri[:200], reason=known.reason))
            if known:
                address = f"{shown.address}/{nested}" if nested else shown.address
                return {**_COMPLETE, "skill": _as_entry(address, known)}
    raise InvalidArgs(Message("no skill is served at {uri}", uri=uri[:200]))


def read_directory(_: Project, surface: Surface, params: Params) -> Answer:
    """`resources/directory/read`: the direct children of a folder, as they are now."""
    uri, after = _text(params, "uri") or "", _text(params, "cursor") or ""
    found = split_uri(surface, uri)
    if found is None or found[0].entry.role or uri != uri_of(found[0].address, found[1]):
        raise InvalidArgs(Message("no folder of a skill is served at {uri}", uri=uri[:200]))
    shown, inner = found
    children = [child for child in list_folder(shown.entry.folder, inner) if child.name > after]
    page = children[:_PAGE_FILES]
    answer: Answer = {
        "resultType": "complete",
        "resources": [_as_child(shown, f"{inner}/{child.name}" if inner else child.name, child) for child in page],
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
    if value is not None and not (isinstance(value, str) and encodes(value, "utf-8")):
        raise InvalidArgs(Message("{key} must be a text", key=key))
    return value


def _weight(address: str, published: "PublishedFiles") -> int:
    """About how many bytes the entry has."""
    files = sum(_FILE_BYTES + len(address) + len(file.path) for file in published.files)
    return files + len(json.dumps(published.frontmatter))


def _as_entry(address: str, published: "PublishedFiles") -> Answer:
    return {
        "uri": uri_of(address, SKILL_FILE),
        "frontmatter": published.frontmatter,
        "resources": [
            {"uri": uri_of(address, path), "digest": digest, "size": size} for path, digest, size in published.files
        ],
    }


def _as_child(shown: Shown, path: str, child: "FolderEntry") -> Answer:
    fields: Answer = {"uri": uri_of(shown.address, path), "name": child.name}
    if path == SKILL_FILE:
        fields |= {"name": shown.entry.name, "description": shown.entry.description}
    kind = FOLDER_TYPE if child.is_folder else type_of(path)
    return {**fields, "mimeType": kind} if kind else fields


def type_of(name: str) -> str | None:
    return "text/markdown" if name.lower().endswith(".md") else mimetypes.guess_type(name)[0]
