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
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillyard.app.project import Project
from skillyard.core.envelope import encodes
from skillyard.core.errors import InvalidArgs, PermissionDenied, SkillError
from skillyard.core.messages import Message
from skillyard.core.skill import Skill
from skillyard.faces.mcp.listing import Shown, clean

SCHEME = "skill://"
URI_TEMPLATE = f"{SCHEME}{{name}}/{{+path}}"
LARGEST_BYTES = 1_048_576
_MOST_FILES = 200
_MOST_FOLDERS = 200


def uri_of(address: str, path: str) -> str:
    return f"{SCHEME}{quote(address, safe='')}/{quote(path)}"


def parse_uri(uri: str) -> tuple[str, str]:
    """The skill's address and the path inside it."""
    name, slash, path = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not name or not slash or not path:
        raise InvalidArgs(Message("no resource has the address {uri!r}; write skill://<name>/SKILL.md", uri=uri[:200]))
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
            if name.startswith(".") or path == skill.path or path.is_symlink() or not encodes(name, "utf-8"):
                continue
            yield uri_of(address, path.relative_to(skill.folder).as_posix())
            count += 1
            if count >= _MOST_FILES:
                return
        if number >= _MOST_FOLDERS:
            return


def read_file(skill: Skill, path: str) -> bytes:
    parts = path.split("/")
    if "\0" in path or any(part in {"", ".", ".."} or part.startswith(".") for part in parts):
        raise PermissionDenied(Message("{path!r} is no path inside the skill", path=path))
    if skill.role and path != skill.path.name:
        raise PermissionDenied(Message("of the skills of a role, only {name} can be read", name=skill.path.name))
    folder = os.path.realpath(skill.folder)
    real = os.path.realpath(f"{folder}/{path}")
    if os.path.commonpath([folder, real]) != folder:
        raise PermissionDenied(Message("{path!r} leads out of the skill's folder", path=path))
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
        sizes = {"path": path, "size": found.st_size, "largest": LARGEST_BYTES}
        raise InvalidArgs(Message("{path!r} has {size:,} bytes; up to {largest:,} can be read here", **sizes))
    return content


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


def read(project: Project, uri: str) -> types.ReadResourceResult:
    try:
        address, path = parse_uri(uri)
        project.catalog.sync()
        content = read_file(project.catalog.resolve(address), path)
    except SkillError as error:
        raise MCPError(types.INVALID_PARAMS, error.msg, {"uri": uri, "type": error.type}) from None
    except OSError as error:
        raise MCPError(types.INTERNAL_ERROR, f"it cannot be read: {error.strerror}", {"uri": uri}) from None
    kind = _type_of(path)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(content).decode("ascii")
        shown = types.BlobResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=blob)
        return types.ReadResourceResult(contents=[shown])
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=text)]
    )


def _type_of(name: str) -> str | None:
    return "text/markdown" if name.lower().endswith(".md") else mimetypes.guess_type(name)[0]
