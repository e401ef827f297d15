"""Git sources, through the real git: nothing that a repository holds is ever run.

Covered: files are written from the objects, so there is no checkout, no filter and no hook; submodules are never
fetched; a repository of this machine is read without its settings; time and size are bounded. `gitprocess.py` says how
git is started.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple
from urllib.parse import quote, unquote

from skillyard.catalog.discover import IGNORED as NEVER_SEARCHED
from skillyard.catalog.discover import SKILL_FILE
from skillyard.core.errors import SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.gitprocess import GitProcesses
from skillyard.install.limits import LIMITS, Limits
from skillyard.install.localgit import make_view
from skillyard.install.names import as_safe_path, check_apart, shown
from skillyard.install.source import Fetched, Tell
from skillyard.install.tree import IGNORED as NEVER_INSTALLED

_LINK, _PROGRAM, _FILE = "120000", "100755", "100644"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FILE_URL = "file://"


class Blob(NamedTuple):
    """One file of a commit."""

    mode: str
    object: str
    size: int
    path: str


class GitSource(NamedTuple):
    """`commit` pins a state that a lock remembers; else `ref`, else what the repository calls HEAD."""

    text: str
    ref: str = ""
    commit: str = ""
    local: Path | None = None
    limits: Limits = LIMITS

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        git, files = GitProcesses(staging, self.limits), staging / "files"
        self._get(git, tell)
        commit = git.run(
            "rev-parse", "--verify", "--end-of-options", f"{self.commit or 'FETCH_HEAD'}^{{commit}}"
        ).strip()
        blobs = _of_skills(list(_blobs(git.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit))))
        _check(blobs, self.limits)
        tell(Message("writing {count} files", count=len(blobs)))
        files.mkdir()
        _write_all(git, blobs, files)
        return Fetched(files, commit, is_ours=True)

    def resolve(self, staging: Path, tell: Tell) -> str:
        """The commit that a fetch would give now; nothing where the repository does not say."""
        if _COMMIT.fullmatch(self.commit or self.ref):
            return self.commit or self.ref
        ref = self.ref or "HEAD"
        tell(Message("asking {text}", text=self.text))
        git = GitProcesses(staging, self.limits)
        said = git.run("ls-remote", "--", _url(git, self.text, self.local), ref, f"{ref}^{{}}")
        known = {name: commit for commit, _, name in (line.partition("\t") for line in said.splitlines())}
        names = (ref, f"refs/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}")
        return next((known[name] for name in names if name in known), "")

    def _get(self, git: GitProcesses, tell: Tell) -> None:
        """One commit alone; a server that gives no commit by its name gives the whole branch."""
        url = _url(git, self.text, self.local)
        options = ("--progress", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph")
        try:
            git.run("fetch", *options, "--depth=1", "--", url, self.commit or self.ref or "HEAD", tell=tell)
        except SourceFailed:
            if not self.commit:
                raise
            git.run("fetch", *options, "--", url, self.ref or "HEAD", tell=tell)


def _url(git: GitProcesses, text: str, local: Path | None) -> str:
    """What git is to fetch from: for a repository of this machine a view of it, without its settings."""
    if local is None and text.startswith(_FILE_URL):
        path = unquote(text.removeprefix(_FILE_URL))
        if not path.startswith("/") or "\0" in path:
            raise SourceFailed(
                Message("{text} names no folder: file:// is followed by an absolute path", text=shown(text))
            )
        local = Path(path)
    if local is None:
        return text
    view = git.folder / "view"
    if not view.exists():
        make_view(local.absolute(), view)
    return f"{_FILE_URL}{quote(str(view))}"


def _write_all(git: GitProcesses, blobs: Sequence[Blob], into: Path) -> None:
    """The files from the objects, by git's own batch reader."""
    for folder in {(into / blob.path).parent for blob in blobs}:
        folder.mkdir(parents=True, exist_ok=True)
    with git.open_objects([blob.object for blob in blobs]) as answers:
        for blob in blobs:
            _write(blob, _read_object(answers, blob), into / blob.path)


def _read_object(stream: IO[bytes], blob: Blob) -> bytes:
    header = stream.readline().split()
    if len(header) != 3 or header[1] != b"blob" or int(header[2]) != blob.size:
        raise SourceFailed(Message("git does not give {path}", path=shown(blob.path)))
    content = stream.read(blob.size)
    if len(content) != blob.size or stream.read(1) != b"\n":
        raise SourceFailed(Message("git does not give {path}", path=shown(blob.path)))
    return content


def _write(blob: Blob, content: bytes, target: Path) -> None:
    if blob.mode == _LINK:
        target.symlink_to(content.decode("utf-8", "surrogateescape"))
        return
    with target.open("xb") as file:
        file.write(content)
    target.chmod(0o755 if blob.mode == _PROGRAM else 0o644)


def _blobs(listing: str) -> Iterator[Blob]:
    for line in filter(None, listing.split("\0")):
        about, _, path = line.partition("\t")
        mode, kind, name, size = about.split()
        if kind == "blob":  # a submodule is a commit: never fetched
            yield Blob(mode, name, int(size), path)


def _of_skills(blobs: Sequence[Blob]) -> list[Blob]:
    """Only what belongs to a skill: the rest of a repository is nobody's business."""
    paths = (PurePosixPath(blob.path) for blob in blobs)
    homes = {
        str(path.parent)
        for path in paths
        if path.name.lower() == SKILL_FILE.lower() and NEVER_SEARCHED.isdisjoint(path.parts)
    }
    return [blob for blob in blobs if _is_below(PurePosixPath(blob.path), homes)]


def _is_below(path: PurePosixPath, homes: set[str]) -> bool:
    return NEVER_INSTALLED.isdisjoint(path.parts) and any(str(parent) in homes for parent in path.parents)


def _check(blobs: Sequence[Blob], limits: Limits) -> None:
    if len(blobs) > limits.files:
        raise SourceRefused(Message("more than {files} files", files=limits.files))
    if sum(blob.size for blob in blobs) > limits.total_bytes:
        raise SourceRefused(Message("more than {total_bytes} bytes", total_bytes=limits.total_bytes))
    check_apart(as_safe_path(blob.path) for blob in blobs)
    for blob in blobs:
        if blob.mode == _LINK and blob.size > limits.path_bytes:
            raise SourceRefused(Message("{filename} is a link that leads nowhere", filename=shown(blob.path)))
