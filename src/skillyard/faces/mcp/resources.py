"""Skills as resources: what each says of itself, and its files when somebody asks for one.

Covered: nothing outside the skill's own folder is read, whatever the path says and wherever a link leads; nothing but
plain files; nothing hidden (`.env`, `.git`); nothing larger than the limit.
"""

import base64
import mimetypes
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillyard.app.project import Project
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.faces.mcp.listing import Shown, clean

SCHEME = "skill://"
URI_TEMPLATE = f"{SCHEME}{{name}}/{{+path}}"
LARGEST_BYTES = 1_048_576
_MOST_FILES = 200
_MOST_FOLDERS = 200


class Content(NamedTuple):
    name: str
    content: bytes


def uri_of(address: str, path: str) -> str:
    return f"{SCHEME}{quote(address, safe='')}/{quote(path)}"


def parse_uri(uri: str) -> tuple[str, str]:
    """The skill's address and the path inside it."""
    name, slash, path = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not name or not slash or not path:
        raise InvalidArgs(
            Message(
                "no resource here has the address {uri!r}; they look like {scheme}<name>/SKILL.md",
                uri=uri[:200],
                scheme=SCHEME,
            )
        )
    return unquote(name), unquote(path)


def list_files(skill: Skill, address: str) -> Iterator[str]:
    """The addresses of its files, its own first. The skills of a role share a folder: of them it is the one that
    declares them."""
    yield uri_of(address, skill.path.name)
    if skill.role:
        return
    count = 1
    for number, (folder, folders, files) in enumerate(os.walk(skill.folder)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith(".") or path == skill.path or path.is_symlink() or not _is_text(name):
                continue
            yield uri_of(address, path.relative_to(skill.folder).as_posix())
            count += 1
            if count >= _MOST_FILES:
                return
        if number >= _MOST_FOLDERS:
            return


def _is_text(name: str) -> bool:
    """A name that an address can carry."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_file(skill: Skill, path: str) -> Content:
    parts = path.split("/")
    if "\0" in path or any(part in {"", ".", ".."} or part.startswith(".") for part in parts):
        raise PermissionDenied(Message("{path!r} is no path inside the skill", path=path))
    if skill.role and path != skill.path.name:
        raise PermissionDenied(Message("of the skills of a role, only {name} can be read", name=skill.path.name))
    folder = os.path.realpath(skill.folder)
    real = os.path.realpath(f"{folder}/{path}")
    if os.path.commonpath([folder, real]) != folder:
        raise PermissionDenied(Message("{path!r} leads out of the skill's folder", path=path))
    return Content(parts[-1], _read(real, path))


def _read(real: str, path: str) -> bytes:
    try:
        file = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InvalidArgs(Message("the skill has no file {path!r}", path=path)) from None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionDenied(Message("{path!r} is not a plain file", path=path))
        content = opened.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise InvalidArgs(
            Message(
                "{path!r} has {st_size:,} bytes; up to {largest_bytes:,} can be read here",
                path=path,
                st_size=found.st_size,
                largest_bytes=LARGEST_BYTES,
            )
        )
    return content


_MARKDOWN = "text/markdown"
TEMPLATE = types.ResourceTemplate(
    name="skill-file",
    title="A file of a skill",
    uri_template=URI_TEMPLATE,
    description="Any file that a skill ships; skill_show lists them.",
)


def as_resource(shown: Shown) -> types.Resource:
    path = shown.entry.file.rpartition("/")[2]
    return types.Resource(
        name=clean(shown.address, 100) or shown.name,
        uri=uri_of(shown.address, path),
        description=clean(shown.entry.description, 300) or None,
        mime_type=_type_of(path),
    )


def read(yard: Project, uri: str) -> types.ReadResourceResult:
    try:
        address, path = parse_uri(uri)
        yard.catalog.sync()
        found = read_file(yard.catalog.resolve(address), path)
    except SkillError as error:
        raise MCPError(types.INVALID_PARAMS, error.msg, {"uri": uri, "type": error.type}) from None
    except OSError as error:
        raise MCPError(types.INTERNAL_ERROR, f"it cannot be read: {error.strerror}", {"uri": uri}) from None
    return types.ReadResourceResult(contents=[_contents(uri, found)])


def _contents(uri: str, found: Content) -> types.TextResourceContents | types.BlobResourceContents:
    kind = _type_of(found.name)
    try:
        return types.TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=found.content.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(found.content).decode("ascii")
        return types.BlobResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=blob)


def _type_of(name: str) -> str | None:
    return _MARKDOWN if name.lower().endswith(".md") else mimetypes.guess_type(name)[0]
