"""Skills as resources: what each says of itself, and its files when somebody asks for one."""

import base64
import mimetypes

import mcp_types as types
from mcp.shared.exceptions import MCPError

from skillyard.app.project import Project
from skillyard.core.errors import SkillError
from skillyard.faces.mcp import files
from skillyard.faces.mcp.surface import Shown
from skillyard.faces.mcp.text import clean

_MARKDOWN = "text/markdown"
TEMPLATE = types.ResourceTemplate(
    name="skill-file",
    title="A file of a skill",
    uri_template=files.TEMPLATE,
    description="Any file that a skill ships; skill_show lists them.",
)


def as_resource(shown: Shown) -> types.Resource:
    path = shown.entry.file.rpartition("/")[2]
    return types.Resource(
        name=clean(shown.address, 100) or shown.name,
        uri=files.uri_of(shown.address, path),
        description=clean(shown.entry.description, 300) or None,
        mime_type=_type_of(path),
    )


def read(yard: Project, uri: str) -> types.ReadResourceResult:
    try:
        address, path = files.parse_uri(uri)
        yard.catalog.sync()
        found = files.read_file(yard.catalog.resolve(address), path)
    except SkillError as error:
        raise MCPError(types.INVALID_PARAMS, error.msg, {"uri": uri, "type": error.type}) from None
    except OSError as error:
        raise MCPError(types.INTERNAL_ERROR, f"it cannot be read: {error.strerror}", {"uri": uri}) from None
    return types.ReadResourceResult(contents=[_contents(uri, found)])


def _contents(uri: str, found: files.Content) -> types.TextResourceContents | types.BlobResourceContents:
    kind = _type_of(found.name)
    try:
        return types.TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=found.content.decode())
    except UnicodeDecodeError:
        blob = base64.b64encode(found.content).decode("ascii")
        return types.BlobResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=blob)


def _type_of(name: str) -> str | None:
    return _MARKDOWN if name.lower().endswith(".md") else mimetypes.guess_type(name)[0]
