"""Skills of an MCP server that declares `io.modelcontextprotocol/skills`: `mcp:NAME`, an address, or a command.

A listing tells every file with its size and digest, and nothing is fetched before it is needed. What comes is compared
with what was told: size, digest, and every field of the frontmatter. A skill is known by its server and its URI, never
by its name.

Covered: wrong digests and sizes, files that were not told, paths that lead out, names of other systems, endless lists.
Not covered: a server that tells a lie and keeps to it. The digests are its own: its skills are scanned as all others.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from skillyard.catalog.file_digests import MAX_BYTES, MAX_FILES, check_fields, has_frontmatter
from skillyard.catalog.files import is_utf8
from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import InvalidArgs, SkillError, SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.core.values import check_value
from skillyard.install.mcp_client import McpConnection, ServerError, connected
from skillyard.install.names import as_safe_path, check_apart, shown
from skillyard.install.source import Deadline, Fetched, Limits, ListedSkill, Tell
from skillyard.trust.mcp_servers import PREFIX, McpServers, is_command

_LIMITS = Limits(seconds=120.0)
_MOST_PAGES, _MOST_SKILLS = 1_000, 20_000
_MOST_URI = 2_048
_MOST_FRONTMATTER = 64 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEME = "skill"
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://([^?#]+)")
#: Never installed, see the module `target`.
_NOT_INSTALLED = frozenset({"__pycache__", ".git", ".ds_store"})


class McpSource(NamedTuple):
    """One server. `servers` finds it, and knows whether it may be started."""

    text: str
    server: str
    servers: McpServers
    #: Whether a person wrote it now; otherwise it comes from a lock.
    typed: bool = True
    ref: str = ""
    limits: Limits = _LIMITS
    #: Names, paths or URIs that are asked for one by one where the list lacks them: a list may be a part only.
    only: tuple[str, ...] = ()

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        """List the skills. Their files come when they are needed."""
        folder = staging / "files"
        tell(Message("asking {name} for its skills", name=self.server))
        skills, refused = dict[str, _Told](), dict[str, str]()
        with self._connected() as connection:
            for entry in _entries(connection, self.server):
                _take(entry, skills, refused)
            known = {name for told in skills.values() for name in (told.path, told.uri, told.frontmatter["name"])}
            for name in self.only:
                if name not in known and (entry := _one(connection, _as_uri(name))) is not None:
                    _take(entry, skills, refused)

        def bring(paths: Sequence[str]) -> Mapping[str, str]:
            return self._bring(folder, [skills[path] for path in paths if path in skills], tell)

        listed = tuple(told.as_listed() for told in skills.values())
        return Fetched(folder, is_ours=True, refused=refused, listed=listed, bring=bring)

    def _bring(self, folder: Path, wanted: Sequence["_Told"], tell: Tell) -> Mapping[str, str]:
        missing = [told for told in wanted if not (folder / told.folder).exists()]
        refused: dict[str, str] = {}
        if missing:
            with self._connected() as connection:
                for told in missing:
                    tell(Message("fetching {url}", url=told.uri))
                    try:
                        _download(connection, told, folder / told.folder)
                    except SourceRefused as error:
                        refused[told.path] = error.msg
        return refused

    def _connected(self) -> Any:
        server = self.servers.find(self.server, typed=self.typed)
        self.servers.check(server)
        deadline = Deadline(self.limits.seconds)
        return connected(self.servers.expanded(server), self.servers.project, self.servers.env, deadline)


def parse_mcp(text: str, servers: McpServers, *, typed: bool = True) -> tuple[McpSource, str]:
    """Return the source of `mcp:…`, and the one skill that it names. InvalidArgs for an address with a password."""
    server, skill = text.removeprefix(PREFIX).strip(), ""
    if server.startswith(("http://", "https://")):
        parts = urlsplit(server)
        if parts.password or parts.username:
            raise InvalidArgs(
                Message("no passwords in addresses: the lock would keep it; name the server's headers in .mcp.json")
            )
    elif not is_command(server):
        server, _, skill = server.partition("/")
    if not server or not is_utf8(server):
        raise InvalidArgs(
            Message(
                "{text!r} names no MCP server: write mcp:NAME, mcp:https://… or mcp:'COMMAND ARGS'", text=text[:200]
            )
        )
    return McpSource(PREFIX + server, server, servers, typed), skill


class _Told(NamedTuple):
    """An entry of a server that keeps to the rules."""

    path: str
    uri: str
    frontmatter: Mapping[str, Any]
    #: By path inside the skill: the URI, the digest and the size.
    files: Mapping[str, tuple[str, str, int]]

    @property
    def folder(self) -> str:
        """A folder of its own: skills may lie inside each other."""
        return hashlib.blake2b(self.uri.encode(), digest_size=16).hexdigest()

    def as_listed(self) -> ListedSkill:
        digests = {path: digest for path, (_, digest, _) in sorted(self.files.items())}
        total = sum(size for _, _, size in self.files.values())
        name, description = self.frontmatter["name"], self.frontmatter["description"]
        return ListedSkill(self.path, name, description, self.uri, self.folder, digests, total)


def _entries(connection: McpConnection, name: str) -> Iterator[Any]:
    """Yield the entries of all pages. SourceRefused if there is no end."""
    cursor, seen, count = None, set[str](), 0
    for _ in range(_MOST_PAGES):
        page = _request(connection, "skills/list", {"cursor": cursor} if cursor else {})
        entries, cursor = page.get("skills"), page.get("nextCursor")
        if not isinstance(entries, list):
            raise SourceRefused(Message("the MCP server {name} lists no skills, but something else", name=name))
        count += len(entries)
        if count > _MOST_SKILLS:
            raise SourceRefused(
                Message("the MCP server {name} lists more than {most} skills", name=name, most=_MOST_SKILLS)
            )
        yield from entries
        if not cursor:
            return
        if not isinstance(cursor, str) or cursor in seen:
            break
        seen.add(cursor)
    raise SourceRefused(Message("the list of the MCP server {name} has no end", name=name))


def _as_uri(name: str) -> str:
    return name if "://" in name else f"{_SCHEME}://{quote(name)}/{SKILL_FILE}"


def _one(connection: McpConnection, uri: str) -> Any:
    """The entry of one skill; None if the server does not serve it."""
    try:
        return connection.request("skills/get", {"uri": uri}).get("skill")
    except ServerError:
        return None


def _request(connection: McpConnection, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return connection.request(method, params)
    except ServerError as error:
        told = {"method": method, "error": error, "code": error.code}
        raise SourceFailed(Message("the server answers {method} with an error: {error} ({code})", **told)) from None


def _take(entry: Any, skills: dict[str, _Told], refused: dict[str, str]) -> None:
    """Add an entry to the skills, or why it is none to the refused ones, by a path that names it."""
    try:
        told = _as_told(entry)
        if (other := skills.get(told.path)) and other.uri != told.uri:
            raise SourceRefused(Message("{one} and {two} have one place", one=shown(other.uri), two=shown(told.uri)))
        skills[told.path] = told
    except SkillError as error:
        uri = entry.get("uri") if isinstance(entry, dict) else None
        refused[shown(str(uri)).strip("'").removesuffix(f"/{SKILL_FILE}").removeprefix("skill://") or "?"] = error.msg


def _as_told(entry: Any) -> _Told:
    """Check an entry. SourceRefused if it breaks a rule: nothing of it is fetched then."""
    if not isinstance(entry, dict):
        raise SourceRefused(Message("an entry of the list is no skill"))
    uri, frontmatter, resources = (entry.get(key) for key in ("uri", "frontmatter", "resources"))
    segments = split_skill_uri(uri)
    if segments[-1] != SKILL_FILE or len(segments) < 2:
        raise SourceRefused(Message("{uri} is not the address of a SKILL.md", uri=shown(str(uri))))
    fields = _checked_frontmatter(frontmatter, segments[-2])
    if resources == "dynamic":
        raise SourceRefused(Message("its files are made for each reading: nothing of them can be verified"))
    if not isinstance(resources, list):
        raise SourceRefused(Message("it does not tell its files"))
    if len(resources) > MAX_FILES:
        raise SourceRefused(
            Message("it has {count} files, and more than {most} are refused", count=len(resources), most=MAX_FILES)
        )
    files: dict[str, tuple[str, str, int]] = {}
    for resource in resources:
        path, told = _as_file(resource, str(uri), segments[:-1])
        if path in files:
            raise SourceRefused(Message("it tells {path} twice", path=shown(path)))
        files[path] = told
    if SKILL_FILE not in files or files[SKILL_FILE][0] != uri:
        raise SourceRefused(Message("its files lack its SKILL.md"))
    if sum(size for _, _, size in files.values()) > MAX_BYTES:
        raise SourceRefused(Message("its files have more than {most:,} bytes", most=MAX_BYTES))
    check_apart([as_safe_path(path) for path in files])
    scheme = str(uri).partition("://")[0]
    path = str(as_safe_path("/".join(segments[:-1] if scheme == _SCHEME else [scheme, *segments[:-1]])))
    return _Told(path, str(uri), fields, files)


def _checked_frontmatter(fields: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(fields, dict):
        raise SourceRefused(Message("it tells no frontmatter"))
    try:
        check_value(fields)
        too_large = len(json.dumps(fields)) > _MOST_FRONTMATTER
    except (ValueError, RecursionError) as error:
        raise SourceRefused(Message("its frontmatter cannot be read: {error}", error=error)) from None
    if too_large:
        raise SourceRefused(Message("its frontmatter has more than {most} bytes", most=_MOST_FRONTMATTER))
    if reason := check_fields(fields):
        raise SourceRefused(reason)
    if fields["name"] != name:
        raise SourceRefused(
            Message("its name {name} is not the one in its address, {other}", name=fields["name"], other=shown(name))
        )
    return fields


def split_skill_uri(uri: Any) -> list[str]:
    """Return the segments of an address, decoded. SourceRefused if one could mean anything else than a name."""
    found = _URI.fullmatch(uri) if isinstance(uri, str) and len(uri) <= _MOST_URI and uri.isprintable() else None
    if found is None:
        raise SourceRefused(Message("{uri} is no address of a skill's file", uri=shown(str(uri))))
    try:
        segments = [unquote(segment, errors="strict") for segment in found[2].split("/")]
    except UnicodeDecodeError:
        raise SourceRefused(Message("{uri} is not UTF-8", uri=shown(str(uri)))) from None
    for segment in segments:
        if segment in {"", ".", ".."} or "/" in segment or "\\" in segment or "\0" in segment:
            raise SourceRefused(Message("{uri} leads out of its folder", uri=shown(str(uri))))
    return segments


def _as_file(resource: Any, skill_uri: str, above: Sequence[str]) -> tuple[str, tuple[str, str, int]]:
    fields = resource if isinstance(resource, dict) else {}
    uri, digest, size = (fields.get(key) for key in ("uri", "digest", "size"))
    segments, count = split_skill_uri(uri), len(above)
    is_inside = str(uri).partition("://")[0] == skill_uri.partition("://")[0] and segments[:count] == [*above]
    if not is_inside or len(segments) == count:
        raise SourceRefused(Message("{uri} lies outside of the skill", uri=shown(str(uri))))
    path = "/".join(segments[count:])
    if str(as_safe_path(path)) != path or any(part.lower() in _NOT_INSTALLED for part in segments[count:]):
        raise SourceRefused(Message("{path} is no file of a skill", path=shown(path)))
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise SourceRefused(Message("{path} has no digest", path=shown(path)))
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_BYTES:
        raise SourceRefused(Message("{path} has no size, or one above {most:,}", path=shown(path), most=MAX_BYTES))
    return path, (str(uri), digest, size)


def _download(connection: McpConnection, told: _Told, folder: Path) -> None:
    """Fetch exactly the files that were told, the SKILL.md first. SourceRefused at the first that differs."""
    order = sorted(told.files, key=lambda path: (path != SKILL_FILE, path))
    contents: dict[str, bytes] = {}
    for path in order:
        uri, digest, size = told.files[path]
        content = _content(_request(connection, "resources/read", {"uri": uri}), uri)
        if len(content) != size:
            values = {"path": shown(path), "size": size, "found": len(content)}
            raise SourceRefused(
                Message(
                    "{path} has {found} bytes, not the {size} that were told; try again, or ask who runs the server",
                    **values,
                )
            )
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise SourceRefused(
                Message(
                    "{path} has not the digest that was told; try again, or ask who runs the server", path=shown(path)
                )
            )
        if path == SKILL_FILE and not has_frontmatter(content, told.frontmatter):
            raise SourceRefused(Message("the frontmatter of {path} is not the one that was told", path=shown(path)))
        contents[path] = content
    for path, content in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _content(result: Mapping[str, Any], uri: str) -> bytes:
    """The bytes of the one resource that was asked for."""
    contents = result.get("contents")
    only = contents[0] if isinstance(contents, list) and len(contents) == 1 else None
    if not isinstance(only, dict) or only.get("uri") != uri:
        raise SourceRefused(Message("the server answered {uri} with something else", uri=shown(uri)))
    text, blob = only.get("text"), only.get("blob")
    try:
        if isinstance(text, str):
            return text.encode()
        if isinstance(blob, str):
            return base64.b64decode(blob, validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        pass
    raise SourceRefused(Message("the content of {uri} cannot be read", uri=shown(uri)))
