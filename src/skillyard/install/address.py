"""Turns a text into a source: a path of this machine, an address, or the shorthand `owner/repo`."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from skillyard.catalog.files import exists, expand_home
from skillyard.core.errors import InvalidArgs, SourceFailed
from skillyard.core.messages import Message
from skillyard.install.archive import extract, is_archive
from skillyard.install.git import GitSource, is_bare
from skillyard.install.names import as_safe_path
from skillyard.install.source import Fetched, SkillSource, Tell
from skillyard.install.web import INDEX_PATH, WebArchive, WebIndex


class FolderSource(NamedTuple):
    """A folder, scanned in place; what is installed is compared with what was scanned."""

    text: str
    folder: Path
    ref: str = ""

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        del staging, tell
        return Fetched(self.folder)


class ArchiveSource(NamedTuple):
    text: str
    file: Path
    ref: str = ""

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        tell(Message("unpacking {name}", name=self.file.name))
        extract(self.file, staging / "files")
        return Fetched(staging / "files")


FORGE = "https://github.com"
_SHORTHAND = re.compile(r"([A-Za-z0-9][\w.-]*)/([A-Za-z0-9_][\w.-]*)((?:/[^@#]+)?)(?:@([^#]+))?")
_SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!//)")
_TREE = re.compile(r"(?:/-)?/tree/([^/]+)(?:/(.+))?$")
_COMMIT = re.compile(r"(?:sha256:)?[0-9a-f]{40,64}")
_REF = re.compile(r"(?!-)[\w.+@/-]{1,200}")
_FORMS = Message(
    "a folder, a .skill, .zip or .tar.gz file, a git address, owner/repo[/path][@skill][#ref], "
    "an http(s) archive, or …{index}",
    index=INDEX_PATH,
)


class ParsedSource(NamedTuple):
    """A source, the folder inside it, and the one skill that the text names, if any."""

    source: SkillSource
    path: str = ""
    skill: str = ""

    def narrowed(self, names: Sequence[str]) -> "ParsedSource":
        """Fetch only these skills, if the source can fetch less than all."""
        return self._replace(source=narrowed(self.source, names))


def narrowed(source: SkillSource, names: Sequence[str]) -> SkillSource:
    return source._replace(only=tuple(names)) if isinstance(source, WebIndex) else source


def parse_source(text: str, ref: str = "", *, cwd: Path, root: Path, forge: str = FORGE) -> ParsedSource:
    """Return the source that a text names. InvalidArgs, with the accepted forms, if it names none."""
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
        url = f"{forge.rstrip('/')}/{owner}/{repo.removesuffix('.git')}"
        return ParsedSource(GitSource(url, ref), _inner(path), skill or "")
    raise InvalidArgs(Message("{text!r} names no source: give {forms}", text=text, forms=_FORMS))


def _inner(path: str) -> str:
    path = (path or "").strip("/")
    return str(as_safe_path(path)) if path else ""


def locked_source(source: str, ref: str, commit: str, root: Path) -> SkillSource:
    """The source that a lock names. Never a shorthand: a missing path is not looked up elsewhere."""
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
        return ArchiveSource(kept, path)
    if not path.is_dir():
        raise InvalidArgs(Message("{text} is a file, but no .skill, .zip or .tar.gz", text=text))
    if is_bare(path) or ((ref or commit) and (path / ".git").exists()):
        return GitSource(kept, ref, commit, path)
    if ref:
        raise InvalidArgs(Message("{text} is no git repository: --ref means nothing there", text=text))
    return FolderSource(kept, path)


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
        return ParsedSource(GitSource(url[: found.start()], found[1]), _inner(found[2] or ""))
    return ParsedSource(GitSource(url, ref))


def _parts(url: str) -> SplitResult:
    """Split an address. InvalidArgs if a program could read more than an address in it.

    git passes the host to ssh as an argument of its own, and the address to credential helpers as lines.
    """
    plain = unquote(url)
    if any(ord(letter) < 33 or ord(letter) == 127 for letter in plain.replace(" ", "")) or " " in url:
        raise InvalidArgs(Message("an address has no spaces or control characters"))
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.port == 0:
            raise InvalidArgs(Message("{url!r} is no address: {error}", url=url, error="port 0"))
    except ValueError as error:
        raise InvalidArgs(Message("{url!r} is no address: {error}", url=url, error=error)) from None
    user, _, rest = url.partition("@") if not parts.scheme or not parts.netloc else ("", "", "")
    names = (host, parts.username or "", unquote(parts.netloc), user, rest)
    if any(name.startswith("-") for name in names):
        raise InvalidArgs(Message("no host or user starts with '-'"))
    return parts


def _check_ref(ref: str) -> None:
    if ref and (not _REF.fullmatch(ref) or ".." in ref):
        raise InvalidArgs(Message("{ref!r} is no branch, tag or commit", ref=ref))
