"""Sources on the web: an archive, and the index that a site publishes at /.well-known/agent-skills/index.json.

The index is that of the Agent Skills discovery draft 0.2.0: each entry one artifact, a SKILL.md or an archive, with its
SHA-256. Only http(s), never from https down to http; a wrong digest refuses the source. One deadline holds for
everything that is fetched, from the first name lookup to the last chunk, and one limit for its size.
"""

import hashlib
import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from skillyard.catalog.roots import SKILL_FILE
from skillyard.core.errors import InvalidArgs, SkillNotFound, SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.archive import extract
from skillyard.install.names import as_slug, shown
from skillyard.install.source import LIMITS, Deadline, Fetched, Limits, Tell

INDEX_PATH = "/.well-known/agent-skills/index.json"
_MAX_INDEX_BYTES = 1 << 20
_MAX_ENTRIES = 500
_CHUNK = 1 << 16
_SECONDS_BETWEEN_BYTES = 30.0


class WebArchive(NamedTuple):
    text: str
    ref: str = ""
    limits: Limits = LIMITS

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        file = staging / "archive"
        digest = download(self.text, file, self.limits, tell)
        extract(file, staging / "files", self.limits)
        return Fetched(staging / "files", f"sha256:{digest}")


class WebIndex(NamedTuple):
    text: str
    ref: str = ""
    limits: Limits = LIMITS
    #: Only these entries are downloaded, by name or folder; all where nothing is said.
    only: tuple[str, ...] = ()

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        file, artifact, folder = staging / "index.json", staging / "artifact", staging / "files"
        deadline, left = Deadline(self.limits.seconds), self.limits.total_bytes
        limits = self.limits._replace(total_bytes=_MAX_INDEX_BYTES)
        digest = download(self.text, file, limits, tell, deadline=deadline)
        entries = parse_index(file.read_bytes())
        names = {name for entry in entries for name in (entry.name, as_slug(entry.name))}
        for name in self.only:
            if name not in names:
                raise SkillNotFound(name, tuple(entry.name for entry in entries[:20]))
        folder.mkdir()
        for entry in entries:
            if self.only and not {entry.name, as_slug(entry.name)} & {*self.only}:
                continue
            url, limits = urljoin(self.text, entry.url), self.limits._replace(total_bytes=left)
            found = download(url, artifact, limits, tell, above=self.text, deadline=deadline)
            left -= artifact.stat().st_size
            if f"sha256:{found}" != entry.digest:
                values = {"name": shown(entry.name), "found": found}
                raise SourceRefused(Message("{name} has not the index's digest but sha256:{found}", **values))
            into = folder / as_slug(entry.name)
            if entry.is_archive:
                extract(artifact, into, self.limits)
            else:
                into.mkdir()
                artifact.rename(into / SKILL_FILE)
        return Fetched(folder, f"sha256:{digest}")


class PublishedSkill(NamedTuple):
    """One skill of an index."""

    name: str
    url: str
    digest: str
    is_archive: bool


def parse_index(content: bytes) -> tuple[PublishedSkill, ...]:
    """SourceRefused if it is not the format. Entries of unknown types are left out, as the draft says."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SourceRefused(Message("the index is not JSON: {error}", error=error)) from None
    skills = fields.get("skills") if isinstance(fields, dict) else None
    if not isinstance(skills, list) or len(skills) > _MAX_ENTRIES:
        raise SourceRefused(Message("the index lists no skills, or more than {max_entries}", max_entries=_MAX_ENTRIES))
    entries: dict[str, PublishedSkill] = {}
    for entry in skills:
        if not isinstance(entry, dict) or entry.get("type") not in {"skill-md", "archive"}:
            continue
        name, url, digest = (entry.get(key) for key in ("name", "url", "digest"))
        if not isinstance(name, str) or not isinstance(url, str) or not isinstance(digest, str):
            raise SourceRefused(Message("an entry of the index has no name, url or digest"))
        try:
            folder = as_slug(name)
        except InvalidArgs as error:
            raise SourceRefused(error.msg) from None
        if folder in entries:
            raise SourceRefused(Message("the index lists a name twice"))
        entries[folder] = PublishedSkill(name, url, digest.lower(), entry["type"] == "archive")
    return tuple(entries.values())


def download(
    url: str, into: Path, limits: Limits, tell: Tell, above: str = "", deadline: Deadline | None = None
) -> str:
    """Download a file and return its SHA-256. `above` is the address that named this one: https may not lead to http.

    The deadline is that of everything this belongs to; without one `limits.seconds` are for this download.
    """
    _check_address(url, above or url)
    tell(Message("fetching {url}", url=url))
    ends = deadline or Deadline(limits.seconds)
    try:
        return ends.run(lambda: _saved(url, into, limits, ends))
    except urllib.error.HTTPError as error:
        error.close()
        raise SourceFailed(f"{url}: {error.code} {error.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        if not ends.left():
            raise SourceFailed(Message("it took longer than {seconds:g} s", seconds=ends.seconds)) from None
        if isinstance(error, urllib.error.URLError | http.client.HTTPException | TimeoutError | ConnectionError):
            raise SourceFailed(f"{url}: {getattr(error, 'reason', error)}") from None
        raise


def _check_address(url: str, above: str) -> None:
    scheme = urlsplit(url).scheme
    if scheme not in {"http", "https"} or (scheme == "http" and urlsplit(above).scheme == "https"):
        raise SourceRefused(Message("{above} leads to {url}", above=above, url=shown(url)))


def _handler(deadline: Deadline) -> urllib.request.BaseHandler:
    """Check redirects before they are followed: a request alone can tell too much. Sockets end at the deadline."""

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class Encrypted(Plain, http.client.HTTPSConnection):
        pass

    class Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler, urllib.request.HTTPRedirectHandler):
        def http_open(self, req: Any) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

        def https_open(self, req: Any) -> http.client.HTTPResponse:
            return self.do_open(Encrypted, req)

        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            fp.close()  # or its body would be read to the end, however long
            deadline.check()
            _check_address(newurl, req.full_url)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    return Handler()


def _saved(url: str, into: Path, limits: Limits, deadline: Deadline) -> str:
    digest, total = hashlib.sha256(), 0
    request = urllib.request.Request(url, headers={"User-Agent": "skillyard"})  # noqa: S310  (the caller checked it)
    opener = urllib.request.build_opener(_handler(deadline))
    seconds = min(_SECONDS_BETWEEN_BYTES, deadline.left() or 0.001)
    with opener.open(request, timeout=seconds) as answer, into.open("wb") as file:
        while chunk := answer.read1(_CHUNK):
            deadline.check()
            total += len(chunk)
            limits.check(total_bytes=total)
            digest.update(chunk)
            file.write(chunk)
        deadline.check()
        most = answer.headers.get("Content-Length", "")
        if not answer.chunked and most.isdecimal() and int(most) != total:
            why = Message("{url}: it ended after {total} of {most} bytes", url=answer.url, total=total, most=most)
            raise SourceFailed(why)
    return digest.hexdigest()
