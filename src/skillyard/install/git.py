"""Git sources, through the real git: nothing that a repository holds is ever run.

Covered: files are written from the objects, so there is no checkout, no filter and no hook; submodules are never
fetched; a repository of this machine is read without its settings; time and size are bounded. `git_process.py` says how
git is started.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple
from urllib.parse import quote, unquote

from skillyard.catalog.files import read_plain
from skillyard.catalog.roots import SKILL_FILE
from skillyard.catalog.scan import IGNORED as NEVER_SEARCHED
from skillyard.core.errors import SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.git_process import GitProcesses, make_empty_repository
from skillyard.install.names import as_safe_path, check_apart, shown
from skillyard.install.source import LIMITS, Fetched, Limits, Tell
from skillyard.install.tree import IGNORED as NEVER_INSTALLED

_LINK, _PROGRAM = "120000", "100755"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FILE_URL = "file://"


class Blob(NamedTuple):
    """One file of a commit."""

    mode: str
    object: str
    size: int
    path: str


class GitSource(NamedTuple):
    """A git repository at `commit` (from a lock), else at `ref`, else at its HEAD."""

    text: str
    ref: str = ""
    commit: str = ""
    local: Path | None = None
    limits: Limits = LIMITS

    def fetch(self, staging: Path, tell: Tell) -> Fetched:
        git, files = GitProcesses(staging, self.limits), staging / "files"
        url, wanted = self._url(git), self.commit or self.ref or "HEAD"
        options = ("fetch", "--progress", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph")
        try:
            git.run(*options, "--depth=1", "--", url, wanted, tell=tell)
        except SourceFailed:
            if not self.commit:
                raise
            # A server that serves no commit by its name: fetch the whole branch.
            git.run(*options, "--", url, self.ref or "HEAD", tell=tell)
        found = f"{self.commit or 'FETCH_HEAD'}^{{commit}}"
        commit = git.run("rev-parse", "--verify", "--end-of-options", found).strip()
        blobs = _list_blobs(git.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit), self.limits)
        tell(Message("writing {count} files", count=len(blobs)))
        files.mkdir()
        for folder in {(files / blob.path).parent for blob in blobs}:
            folder.mkdir(parents=True, exist_ok=True)
        with git.open_objects([blob.object for blob in blobs]) as answers:
            for blob in blobs:
                _write(blob, answers, files / blob.path)
        return Fetched(files, commit, is_ours=True)

    def resolve(self, staging: Path, tell: Tell) -> str:
        """The commit that a fetch would give now; empty if the repository does not say."""
        if _COMMIT.fullmatch(self.commit or self.ref):
            return self.commit or self.ref
        ref = self.ref or "HEAD"
        tell(Message("asking {text}", text=self.text))
        git = GitProcesses(staging, self.limits)
        said = git.run("ls-remote", "--", self._url(git), ref, f"{ref}^{{}}")
        known = {name: commit for commit, _, name in (line.partition("\t") for line in said.splitlines())}
        names = (ref, f"refs/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}")
        return next((known[name] for name in names if name in known), "")

    def _url(self, git: GitProcesses) -> str:
        """The address to fetch from; for a repository of this machine, that of a view of it without its settings."""
        local = self.local
        if local is None and self.text.startswith(_FILE_URL):
            local = Path(unquote(self.text.removeprefix(_FILE_URL)))
            if not local.is_absolute() or "\0" in str(local):
                raise SourceFailed(Message("{text} names no absolute path after file://", text=shown(self.text)))
        if local is None:
            return self.text
        make_view(local.absolute(), git.folder / "view")
        return f"{_FILE_URL}{quote(str(git.folder / 'view'))}"


def _list_blobs(listing: str, limits: Limits) -> list[Blob]:
    """The files that belong to a skill. SourceRefused if one may not be written."""
    lines = (line.partition("\t") for line in filter(None, listing.split("\0")))
    entries = [(about.split(), path) for about, _, path in lines]
    # A submodule is a commit, not a blob: never fetched.
    blobs = [Blob(about[0], about[2], int(about[3]), path) for about, path in entries if about[1] == "blob"]
    paths = [PurePosixPath(blob.path) for blob in blobs]
    skill_files = [path for path in paths if path.name.lower() == SKILL_FILE.lower()]
    homes = {path.parent for path in skill_files if NEVER_SEARCHED.isdisjoint(path.parts)}
    blobs = [
        blob
        for blob, path in zip(blobs, paths, strict=True)
        if NEVER_INSTALLED.isdisjoint(path.parts) and not homes.isdisjoint(path.parents)
    ]
    limits.check(len(blobs), sum(blob.size for blob in blobs))
    check_apart(as_safe_path(blob.path) for blob in blobs)
    for blob in blobs:
        if blob.mode == _LINK and blob.size > limits.path_bytes:
            raise SourceRefused(Message("{filename} is a link that leads nowhere", filename=shown(blob.path)))
    return blobs


def _write(blob: Blob, answers: IO[bytes], target: Path) -> None:
    """Write a file from the answer of git's batch reader."""
    header = answers.readline().split()
    is_blob = len(header) == 3 and header[1] == b"blob" and int(header[2]) == blob.size
    content = answers.read(blob.size) if is_blob else b""
    if not is_blob or len(content) != blob.size or answers.read(1) != b"\n":
        raise SourceFailed(Message("git does not give {path}", path=shown(blob.path)))
    if blob.mode == _LINK:
        target.symlink_to(content.decode("utf-8", "surrogateescape"))
        return
    with target.open("xb") as file:
        file.write(content)
    target.chmod(0o755 if blob.mode == _PROGRAM else 0o644)


_HASH = re.compile(rb"[0-9a-f]{40}")
_SYMREF = re.compile(rb"ref: *(refs/[^\s]+)\s*")
_PACKED = re.compile(rb"^([0-9a-f]{40}) (refs/[^\s]+)$", re.MULTILINE)
#: As `git check-ref-format` wants them.
_REF_NAME = re.compile(r"refs(?:/(?!\.)(?:(?!\.\.|@\{)[^\x00-\x20\x7f~^:?*\[\\/])+(?<!\.lock)(?<!\.))+")
_PACKED_BYTES = 64 * 1024 * 1024
_MOST_REFS = 200_000
_MAX_SYMREFS = 5


def is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def make_view(of: Path, view: Path) -> None:
    """Make a bare repository with the refs of `of` and a link to its objects. SourceFailed if there is none at `of`.

    git runs programs that a repository's own configuration names, also when it only serves a fetch (the lazy fetches of
    a partial clone; in older versions more). So it never opens the repository itself, but this view of it.

    Covered: the configuration, hooks, attributes and grafts of the repository are never read; refs are read as data,
    and what is not a ref is left out.
    Not covered: objects that it borrows from others (`objects/info/alternates`) can be read, as files can.
    """
    git_dir = _find_git_dir(of)
    common = _named_in(git_dir / "commondir")
    if (common / "reftable").exists():
        raise SourceFailed(Message("{of} keeps its refs in another format: clone it, or give its address", of=of))
    make_empty_repository(view)
    (view / "objects").rmdir()
    (view / "objects").symlink_to(os.path.realpath(common / "objects"))
    refs = _refs(common)
    (view / "packed-refs").write_bytes(b"".join(b"%s %s\n" % (refs[name], name) for name in sorted(refs)))
    if head := _ref_target(_read_file(git_dir / "HEAD")):
        (view / "HEAD").write_bytes((b"ref: %s\n" if head.startswith(b"refs/") else b"%s\n") % head)
    if shallow := _HASH.findall(_read_file(common / "shallow", _PACKED_BYTES)):
        (view / "shallow").write_bytes(b"".join(b"%s\n" % commit for commit in shallow))


def _find_git_dir(folder: Path) -> Path:
    """The folder with HEAD. A worktree has a file that says where it is."""
    for candidate in (folder / ".git", folder, folder.with_name(f"{folder.name}.git")):
        git_dir = _named_in(candidate) if candidate.is_file() else candidate
        if (git_dir / "HEAD").exists() and is_bare(_named_in(git_dir / "commondir")):
            return git_dir
    raise SourceFailed(Message("{folder} is no git repository", folder=folder))


def _named_in(file: Path) -> Path:
    """The folder that a `.git` or `commondir` file names; where the file is, if it names none."""
    named = _read_file(file).decode("utf-8", "surrogateescape").removeprefix("gitdir:").strip()
    return file.parent if "\0" in named else file.parent / named


def _refs(common: Path) -> dict[bytes, bytes]:
    packed = _PACKED.findall(_read_file(common / "packed-refs", _PACKED_BYTES))
    known = {name: commit for commit, name in packed if _is_name(name)}
    links: dict[bytes, bytes] = {}
    files = (Path(folder, file) for folder, _, names in os.walk(common / "refs") for file in names)
    for count, path in enumerate(files):
        if count >= _MOST_REFS:
            raise SourceFailed(Message("{common} has more than {most} refs", common=common, most=_MOST_REFS))
        name = os.fsencode(path.relative_to(common).as_posix())
        if _is_name(name) and (target := _ref_target(_read_file(path))):
            (links if target.startswith(b"refs/") else known)[name] = target
    for _ in range(_MAX_SYMREFS):
        known |= {name: known[target] for name, target in links.items() if target in known}
    return known


def _ref_target(content: bytes) -> bytes:
    """The commit or the other ref that a ref names; empty if it names neither."""
    if _HASH.fullmatch(content.strip()):
        return content.strip()
    link = _SYMREF.fullmatch(content)
    return link[1] if link and _is_name(link[1]) else b""


def _is_name(name: bytes) -> bool:
    return _REF_NAME.fullmatch(name.decode("utf-8", "surrogateescape")) is not None


def _read_file(file: Path, most_bytes: int = 4096) -> bytes:
    """The content; empty if it is no plain file."""
    try:
        content = read_plain(file, most_bytes)
    except (OSError, ValueError):
        return b""
    if len(content) > most_bytes:
        raise SourceFailed(Message("{path} is larger than {max_bytes} bytes", path=file, max_bytes=most_bytes))
    return content
