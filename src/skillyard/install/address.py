"""Turns a text into a source: a path of this machine, an address, or the shorthand `owner/repo`.

`run` takes more: one skill of a source, `SOURCE[@skill][#ref][:program]`.
"""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from skillyard.catalog.files import exists, expand_home
from skillyard.core.errors import InvalidArgs, SourceFailed
from skillyard.core.messages import Message
from skillyard.install.archive import extract, is_archive
from skillyard.install.git import GitSource, is_bare
from skillyard.install.mcp_source import McpSource, parse_mcp
from skillyard.install.names import as_safe_path
from skillyard.install.source import Fetched, Tell
from skillyard.install.web import INDEX_PATH, WebArchive, WebIndex
from skillyard.trust.mcp_servers import NO_SERVERS, PREFIX, McpServers


class LocalSource(NamedTuple):
    """A folder, scanned in place (what is installed is compared with what was scanned), or an archive."""

    text: str
    path: Path
    ref: str = ""

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        if self.path.is_dir():
            return Fetched(self.path)
        tell(Message("unpacking {name}", name=self.path.name))
        extract(self.path, staging / "files")
        return Fetched(staging / "files")


#: Where skills come from. Writes only below the staging folder; never runs anything that it fetched.
SkillSource: TypeAlias = LocalSource | GitSource | WebArchive | WebIndex | McpSource
FORGE = "https://github.com"
_SHORTHAND = re.compile(r"([A-Za-z0-9][\w.-]*)/([A-Za-z0-9_][\w.-]*)((?:/[^@#]+)?)(?:@([^#]+))?")
_SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!//)")
_TREE = re.compile(r"(?:/-)?/tree/([^/]+)(?:/(.+))?$")
#: The part of an address that never names a skill, a ref or a program: `https://host:8080/`, `git@host:`.
_HEAD = re.compile(r"[A-Za-z][A-Za-z+.-]*://[^/]*/?|[\w.-]+@[\w.-]+:(?!//)")
_TAIL = re.compile(r"(?:@(?P<skill>[^@#:]+))?(?:#(?P<ref>[^#:]+))?(?::(?P<script>.+))?")
_COMMIT = re.compile(r"(?:sha256:)?[0-9a-f]{40,64}")
_REF = re.compile(r"(?!-)[\w.+@/-]{1,200}")
_FORMS = Message(
    "a folder, a .skill, .zip or .tar.gz file, a git address, owner/repo[/path][@skill][#ref], "
    "an http(s) archive, …{index}, or mcp:SERVER[/skill]",
    index=INDEX_PATH,
)


class ParsedSource(NamedTuple):
    """A source, the folder inside it, and the one skill that the text names, if any."""

    source: SkillSource
    path: str = ""
    skill: str = ""


def narrowed(source: SkillSource, names: Sequence[str]) -> SkillSource:
    """Fetch only the skills of these names or paths, if the source can fetch less than all."""
    if isinstance(source, McpSource):
        return source._replace(only=(*source.only, *names))
    entries = tuple(name.partition("/")[0] for name in names)
    return source._replace(only=entries) if isinstance(source, WebIndex) else source


def parse_source(
    text: str, ref: str = "", *, cwd: Path, root: Path, forge: str = "", servers: McpServers = NO_SERVERS
) -> ParsedSource:
    """Return the source that a text names. InvalidArgs, with the accepted forms, if it names none."""
    if text.startswith(PREFIX):
        if ref:
            raise InvalidArgs(Message("{text} is no git repository: --ref means nothing there", text=text[:200]))
        source, skill = parse_mcp(text, servers)
        return ParsedSource(source, skill=skill)
    local = _local(text, ref, cwd / expand_home(text), root) if text and "\0" not in text else None
    if local:
        return ParsedSource(local)
    plain, _, fragment = text.partition("#")
    if ref and fragment and ref != fragment:
        raise InvalidArgs(Message("--ref {ref} and #{fragment} say different things", ref=ref, fragment=fragment))
    ref = ref or fragment
    _check_ref(ref)
    if "://" in plain or _SCP.match(plain):
        return _address(plain, ref)
    if found := _SHORTHAND.fullmatch(plain):
        owner, repo, path, skill = found.groups()
        url = f"{(forge or FORGE).rstrip('/')}/{owner}/{repo.removesuffix('.git')}"
        return ParsedSource(GitSource(url, ref), _inner(path), skill or "")
    raise InvalidArgs(Message("{text!r} names no source: give {forms}", text=text, forms=_FORMS))


def locked_source(
    source: str, ref: str, commit: str, root: Path, servers: McpServers = NO_SERVERS, *, is_mine: bool = False
) -> SkillSource:
    """The source that a lock names. Never a shorthand: a missing path is not looked up elsewhere.

    `is_mine` says that the lock is the user's own, not one that came with a project.
    """
    if source.startswith(PREFIX):
        return parse_mcp(source, servers, typed=is_mine)[0]
    _check_ref(ref)
    if commit and not _COMMIT.fullmatch(commit):
        raise InvalidArgs(Message("the lock names no commit: {commit!r}", commit=commit))
    if source.startswith(("./", "../", "/")):
        found = _local(source, ref, root / source, root, commit)
        if found is None:
            raise SourceFailed(Message("{source} is not there any more", source=source))
        return found
    if "://" not in source and not _SCP.match(source):
        raise InvalidArgs(Message("the lock names no source: {source!r}", source=source))
    found = _address(source, ref).source
    return found._replace(commit=commit) if isinstance(found, GitSource) else found


def _local(text: str, ref: str, path: Path, root: Path, commit: str = "") -> SkillSource | None:
    if not exists(path):
        return None
    # A lock names a path relative inside the project, absolute outside; never like an address or a shorthand.
    absolute = Path(os.path.normpath(path.absolute()))
    kept = f"./{absolute.relative_to(root).as_posix()}" if absolute.is_relative_to(root) else str(absolute)
    if path.is_file() and is_archive(path.name):
        return LocalSource(kept, path)
    if not path.is_dir():
        raise InvalidArgs(Message("{text} is a file, but no .skill, .zip or .tar.gz", text=text))
    if is_bare(path) or ((ref or commit) and (path / ".git").exists()):
        return GitSource(kept, ref, commit, path)
    if ref:
        raise InvalidArgs(Message("{text} is no git repository: --ref means nothing there", text=text))
    return LocalSource(kept, path)


def _address(url: str, ref: str) -> ParsedSource:
    parts = _parts(url)
    if parts.password:
        raise InvalidArgs(Message("no passwords in addresses: the lock would keep it; use git's credential helper"))
    if parts.scheme in {"http", "https"}:
        if parts.path.endswith(INDEX_PATH):
            return ParsedSource(WebIndex(url))
        if is_archive(parts.path):
            return ParsedSource(WebArchive(url))
    elif parts.scheme not in {"", "file", "ssh"}:
        raise InvalidArgs(Message("{scheme}:// is not spoken here: give {forms}", scheme=parts.scheme, forms=_FORMS))
    if found := _TREE.search(url):
        if ref and ref != found[1]:
            raise InvalidArgs(Message("the address says {found}, --ref says {ref}", found=found[1], ref=ref))
        return ParsedSource(GitSource(url[: found.start()], found[1]), _inner(found[2]))
    return ParsedSource(GitSource(url, ref))


def _parts(url: str) -> SplitResult:
    """Split an address. InvalidArgs if a program could read more than an address in it.

    git passes the host to ssh as an argument of its own, and the address to credential helpers as lines.
    """
    if " " in url or any(ord(letter) < 33 or ord(letter) == 127 for letter in unquote(url).replace(" ", "")):
        raise InvalidArgs(Message("an address has no spaces or control characters"))
    try:
        parts = urlsplit(url)
        host, reason = parts.hostname or "", "port 0" if parts.port == 0 else ""
    except ValueError as error:
        reason = str(error) or type(error).__name__
    if reason:
        raise InvalidArgs(Message("{url!r} is no address: {error}", url=url, error=reason))
    user, _, rest = url.partition("@") if not parts.scheme or not parts.netloc else ("", "", "")
    names = (host, parts.username or "", unquote(parts.netloc), user, rest)
    if any(name.startswith("-") for name in names):
        raise InvalidArgs(Message("no host or user starts with '-'"))
    return parts


def _check_ref(ref: str) -> None:
    if ref and (not _REF.fullmatch(ref) or ".." in ref):
        raise InvalidArgs(Message("{ref!r} is no branch, tag or commit", ref=ref))


def _inner(path: str | None) -> str:
    inside = (path or "").strip("/")
    return str(as_safe_path(inside)) if inside else ""


class SkillAddress(NamedTuple):
    """`SOURCE[@skill][#ref][:program]`, split."""

    source: str
    skill: str = ""
    ref: str = ""
    script: str = ""

    @property
    def name(self) -> str:
        """As the caller named it, without the program."""
        return self.source + (f"@{self.skill}" if self.skill else "") + (f"#{self.ref}" if self.ref else "")

    def add_command(self, skill: str) -> str:
        ref = ["--ref", self.ref] if self.ref else []
        return shlex.join(["skillyard", "add", self.source, "--skill", skill, *ref])


def split_source(text: str, cwd: Path) -> SkillAddress:
    """The longest start of the text that is a path here is the source; else an address or the shorthand."""
    for end in [len(text), *(at for at in range(len(text) - 1, 0, -1) if text[at] in "@#:")]:
        tail = _TAIL.fullmatch(text[end:])
        if tail and exists(cwd / expand_home(text[:end])):
            break
    else:
        head = _HEAD.match(text)
        end = next((at for at in range(head.end() if head else 0, len(text)) if text[at] in "@#:"), len(text))
        tail = _TAIL.fullmatch(text[end:])
    if tail is None:
        raise InvalidArgs(Message("{text!r} is not SOURCE[@skill][#ref][:program]", text=text))
    return SkillAddress(text[:end], **tail.groupdict(default=""))
