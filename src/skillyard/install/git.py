"""Git sources, through the real git: nothing that a repository holds is ever run.

Covered: hooks, submodules, filters, attributes, templates and prompts are off; files are written from the objects, so
there is no checkout; only files, ssh and http(s) are spoken; time and size are bounded.
Not covered: what the user's own git settings do (credential helpers, address rewrites). They are the user's.
"""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from skillyard.catalog.discover import IGNORED as NEVER_SEARCHED
from skillyard.catalog.discover import SKILL_FILE
from skillyard.core.errors import SourceFailed, SourceRefused
from skillyard.install.limits import LIMITS, Limits
from skillyard.install.names import as_safe_path, check_apart, shown
from skillyard.install.source import Fetched, Tell
from skillyard.install.tree import IGNORED as NEVER_INSTALLED

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.fsmonitor=false",
    "protocol.file.allow=user",
    "fetch.unpackLimit=1",
    "fetch.fsckObjects=true",
    "transfer.bundleURI=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_LINK, _PROGRAM, _FILE = "120000", "100755", "100644"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PROGRESS = re.compile(r"[\r\n]")


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
        url = str(self.local.absolute()) if self.local else self.text
        store, files = staging / "git", staging / "files"
        git = _Git(store, self.limits)
        git.run("init", "--quiet", "--bare", "--template=", str(store), inside=False)
        self._get(git, url, tell)
        commit = git.run(
            "rev-parse", "--verify", "--end-of-options", f"{self.commit or 'FETCH_HEAD'}^{{commit}}"
        ).strip()
        blobs = _of_skills(list(_blobs(git.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit))))
        _check(blobs, self.limits)
        tell(f"writing {len(blobs)} files")
        files.mkdir()
        git.write(blobs, files)
        return Fetched(files, commit, is_ours=True)

    def resolve(self, staging: Path, tell: Tell) -> str:
        """The commit that a fetch would give now; nothing where the repository does not say."""
        if _COMMIT.fullmatch(self.commit or self.ref):
            return self.commit or self.ref
        url, ref = str(self.local.absolute()) if self.local else self.text, self.ref or "HEAD"
        tell(f"asking {self.text}")
        said = _Git(staging, self.limits).run("ls-remote", "--", url, ref, f"{ref}^{{}}", inside=False)
        known = {name: commit for commit, _, name in (line.partition("\t") for line in said.splitlines())}
        names = (ref, f"refs/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}")
        return next((known[name] for name in names if name in known), "")

    def _get(self, git: "_Git", url: str, tell: Tell) -> None:
        """One commit alone; a server that gives no commit by its name gives the whole branch."""
        options = ("--progress", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph")
        try:
            git.run("fetch", *options, "--depth=1", "--", url, self.commit or self.ref or "HEAD", tell=tell)
        except SourceFailed:
            if not self.commit:
                raise
            git.run("fetch", *options, "--", url, self.ref or "HEAD", tell=tell)


def is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def git_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The user's own, without what would point git elsewhere, run something, or ask."""
    kept = {name: value for name, value in env.items() if not name.startswith("GIT_") or name == "GIT_SSH_COMMAND"}
    return {
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        **kept,
        "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
        "GIT_ASKPASS": "true",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "SSH_ASKPASS_REQUIRE": "never",
        "LC_ALL": "C.UTF-8",
    }


class _Git:
    """git in a repository of our own that is empty but for what it fetched."""

    def __init__(self, store: Path, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    def _words(self, *words: str, inside: bool = True) -> list[str]:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        where = [f"--git-dir={self._store}"] if inside else []
        # The shell sets the largest size of a file, a pack for example, and then is git itself.
        bound = ["sh", "-c", 'ulimit -f "$0" && exec "$@"', str(self._limits.total_bytes // 512)]
        return [*bound, "git", *where, *settings, *words]

    def run(self, *words: str, tell: Tell | None = None, inside: bool = True) -> str:
        """What it printed, or SourceFailed with the first thing that went wrong."""
        try:
            process = subprocess.Popen(
                self._words(*words, inside=inside),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=git_environment(),
                start_new_session=True,
            )
        except FileNotFoundError:
            raise SourceFailed("git is not installed") from None
        with process:
            out, said = self._watched(process, tell)
        if process.returncode:
            raise SourceFailed(said[0] if said else f"git {words[0]} ended with {process.returncode}")
        return out.decode("utf-8", "surrogateescape")

    def _watched(self, process: "subprocess.Popen[bytes]", tell: Tell | None) -> tuple[bytes, list[str]]:
        said: list[str] = []
        out: list[bytes] = []
        readers = [
            threading.Thread(target=_collect, args=(process.stdout, out), daemon=True),
            threading.Thread(target=_listen, args=(process.stderr, said, tell), daemon=True),
        ]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + self._limits.seconds
        try:
            # Its output ends when it does: no need to look again and again, as `wait` with a limit does.
            readers[0].join(self._limits.seconds)
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SourceFailed(f"git took longer than {self._limits.seconds:g} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            for reader in readers:
                reader.join()
        return b"".join(out), said

    def write(self, blobs: Sequence[Blob], into: Path) -> None:
        """The files from the objects, by git's own batch reader."""
        words = self._words("cat-file", "--batch")
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=git_environment()) as process:
            if process.stdin is None or process.stdout is None:
                raise SourceFailed("git gives no pipes")
            feeder = threading.Thread(target=_feed, args=(process.stdin, blobs), daemon=True)
            feeder.start()
            for folder in {(into / blob.path).parent for blob in blobs}:
                folder.mkdir(parents=True, exist_ok=True)
            try:
                for blob in blobs:
                    _write(blob, _read_object(process.stdout, blob), into / blob.path)
            finally:
                process.kill()
                feeder.join()


def _feed(stream: IO[bytes], blobs: Sequence[Blob]) -> None:
    """All names at once: git answers while we write."""
    with suppress(OSError):  # it has gone; whoever reads its answers will say so
        stream.write("".join(f"{blob.object}\n" for blob in blobs).encode())
        stream.close()


def _collect(stream: IO[bytes], into: list[bytes]) -> None:
    into.append(stream.read())


def _listen(stream: IO[bytes], said: list[str], tell: Tell | None) -> None:
    """Progress comes with carriage returns, what went wrong on lines of its own."""
    rest = ""
    while piece := os.read(stream.fileno(), 4096):
        *lines, rest = _PROGRESS.split(rest + piece.decode("utf-8", "replace"))
        for line in filter(None, map(str.strip, lines)):
            if tell:
                tell(line)
            if line.startswith(("fatal:", "error:")):
                said.append(line.partition(":")[2].strip())


def _read_object(stream: IO[bytes], blob: Blob) -> bytes:
    header = stream.readline().split()
    if len(header) != 3 or header[1] != b"blob" or int(header[2]) != blob.size:
        raise SourceFailed(f"git does not give {shown(blob.path)}")
    content = stream.read(blob.size)
    stream.read(1)
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
        raise SourceRefused(f"more than {limits.files} files")
    if sum(blob.size for blob in blobs) > limits.total_bytes:
        raise SourceRefused(f"more than {limits.total_bytes} bytes")
    check_apart(as_safe_path(blob.path) for blob in blobs)
    for blob in blobs:
        if blob.mode == _LINK and blob.size > limits.path_bytes:
            raise SourceRefused(f"{shown(blob.path)} is a link that leads nowhere")
