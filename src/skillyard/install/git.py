"""Git sources, through the real git: nothing that a repository holds is ever run. No other module starts git.

Covered: files are written from the objects, so there is no checkout, no filter and no hook; submodules are never
fetched; a repository of this machine is read without its settings. git runs in a folder of ours with an explicit, empty
repository of ours, so no configuration of the current folder, of a project or of the repository that is read applies
(`insteadOf`, `credential.helper`, `remote.*`, `include`, `core.*`). The program is found once, through absolute entries
of the PATH that lie outside the project. Of the user's global configuration only what fetching needs is taken:
`credential.*`, `http.*`, `url.*.insteadOf`, `core.sshCommand` and `ssh.variant`. Hooks, filters, attributes,
submodules, templates, prompts, bundle addresses and lazy fetches are off; only files, ssh and http(s) are spoken; one
deadline and a size limit hold for everything.
Not covered: what these settings of the user do, and the user's ~/.ssh/config. The system's git configuration is not
read: a proxy or a credential helper that is set only there must be copied to the user's. git before 2.32 reads the
user's global configuration as a whole.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import quote, unquote

from skillyard.catalog.files import read_plain
from skillyard.catalog.roots import SKILL_FILE, find_project
from skillyard.catalog.scan import IGNORED as NEVER_SEARCHED
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.names import as_safe_path, check_apart, shown
from skillyard.install.source import LIMITS, Deadline, Fetched, Limits, Tell
from skillyard.install.target import IGNORED as NEVER_INSTALLED
from skillyard.sandbox.launch import is_inside

#: The settings and variables of every git process, and the variables of the caller that are kept.
_CONFIG: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
#: Keys of the user's global configuration that fetching needs.
_KEPT_SETTINGS = re.compile(r"(?:credential|http)\..+|url\..+\.insteadof|core\.sshcommand|ssh\.variant", re.DOTALL)
_MOST_OUTPUT_BYTES = 64 * 1024 * 1024
_MOST_LINE_CHARACTERS = 4096
_MOST_COMPLAINTS = 20
_MOST_REFS = 200_000
#: How long to listen to stderr after git has ended: an ssh that stays for the next connection keeps it open.
_LAST_WORDS_SECONDS = 2.0
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
        blobs, refused = _list_blobs(git.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit), self.limits)
        tell(Message("writing {count} files", count=len(blobs)))
        files.mkdir()
        for folder in {(files / blob.path).parent for blob in blobs}:
            folder.mkdir(parents=True, exist_ok=True)
        with git.open_objects([blob.object for blob in blobs]) as answers:
            for blob in blobs:
                _write(blob, answers, files / blob.path)
        return Fetched(files, commit, is_ours=True, refused=refused)

    def resolve(self, staging: Path, tell: Tell) -> str:
        """The commit that a fetch would give now; empty if the repository does not say."""
        if _COMMIT.fullmatch(self.commit or self.ref):
            return self.commit or self.ref
        ref = self.ref or "HEAD"
        tell(Message("asking {text}", text=self.text))
        git = GitProcesses(staging, self.limits)
        listing = git.run("ls-remote", "--", self._url(git), ref, f"{ref}^{{}}")
        known = {name: commit for commit, _, name in (line.partition("\t") for line in listing.splitlines())}
        names = (ref, f"refs/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}")
        return next((known[name] for name in names if name in known), "")

    def _url(self, git: "GitProcesses") -> str:
        """The address to fetch from; for a repository of this machine, that of a view of it without its settings."""
        local = self.local
        if local is None and self.text.startswith(_FILE_URL):
            local = Path(unquote(self.text.removeprefix(_FILE_URL)))
            if not local.is_absolute() or "\0" in str(local):
                raise SourceFailed(Message("{text} names no absolute path after file://", text=shown(self.text)))
        if local is None:
            return self.text
        _make_view(local.absolute(), git.folder / "view")
        return f"{_FILE_URL}{quote(str(git.folder / 'view'))}"


def _list_blobs(listing: str, limits: Limits) -> tuple[list[Blob], dict[str, str]]:
    """The files that belong to a skill, and the folders of skills that may not be written, with the reason."""
    found: list[tuple[PurePosixPath, Blob]] = []
    for line in filter(None, listing.split("\0")):
        about, _, name = line.partition("\t")
        mode, kind, identity, size = about.split()
        if kind == "blob":  # a submodule is a commit: never fetched
            found.append((PurePosixPath(name), Blob(mode, identity, int(size), name)))
    skill_files = [path for path, _ in found if path.name.lower() == SKILL_FILE.lower()]
    homes = {path.parent for path in skill_files if NEVER_SEARCHED.isdisjoint(path.parts)}
    skills: dict[str, list[Blob]] = {}
    for path, blob in found:
        home = next((folder for folder in reversed(path.parents) if folder in homes), None)
        if home is not None and NEVER_INSTALLED.isdisjoint(path.parts):  # the outermost folder is the skill
            skills.setdefault("" if home == PurePosixPath() else str(home), []).append(blob)
    sizes = [blob.size for inside in skills.values() for blob in inside]
    limits.check(len(sizes), sum(sizes))
    kept, refused = list[Blob](), dict[str, str]()
    for folder, inside in skills.items():
        long = [blob for blob in inside if blob.mode == _LINK and blob.size > limits.path_bytes]
        why = Message("{filename} is a link that leads nowhere", filename=shown(long[0].path)) if long else ""
        try:
            check_apart(as_safe_path(blob.path) for blob in inside)
        except SourceRefused as error:
            why = error.msg
        if why:
            refused[folder] = why
        else:
            kept += inside
    check_apart(as_safe_path(blob.path) for blob in kept)
    return kept, refused


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


def is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _make_view(of: Path, view: Path) -> None:
    """Make a bare repository with the refs of `of` and a link to its objects. SourceFailed if there is none at `of`.

    git runs programs that a repository's own configuration names, also when it only serves a fetch (the lazy fetches of
    a partial clone; in older versions more). So it never opens the repository itself, but this view of it.

    Covered: the configuration, hooks, attributes and grafts of the repository are never read; of its refs only plain
    files are, up to a limit.
    Not covered: objects that it borrows from others (`objects/info/alternates`) can be read, as files can.
    """
    for candidate in (of / ".git", of, of.with_name(f"{of.name}.git")):
        git_dir = _named_in(candidate) if candidate.is_file() else candidate  # a worktree has a file
        common = _named_in(git_dir / "commondir")
        if (git_dir / "HEAD").exists() and is_bare(common):
            break
    else:
        raise SourceFailed(Message("{folder} is no git repository", folder=of))
    if (common / "reftable").exists():
        raise SourceFailed(Message("{of} keeps its refs in another format: clone it, or give its address", of=of))
    _make_empty_repository(view)
    (view / "objects").rmdir()
    (view / "objects").symlink_to(os.path.realpath(common / "objects"))
    (view / "HEAD").write_bytes(_read_file(git_dir / "HEAD"))
    for name in ("packed-refs", "shallow"):
        if content := _read_file(common / name, _MOST_OUTPUT_BYTES):
            (view / name).write_bytes(content)
    refs = (Path(folder, file) for folder, _, names in os.walk(common / "refs") for file in names)
    for count, ref in enumerate(refs):
        if count >= _MOST_REFS:
            raise SourceFailed(Message("{common} has more than {most} refs", common=common, most=_MOST_REFS))
        if content := _read_file(ref):
            copy = view / ref.relative_to(common)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _named_in(file: Path) -> Path:
    """The folder that a `.git` or `commondir` file names; where the file is, if it names none."""
    named = _read_file(file).decode("utf-8", "surrogateescape").removeprefix("gitdir:").strip()
    return file.parent if "\0" in named else file.parent / named


def _read_file(file: Path, most_bytes: int = 4096) -> bytes:
    """The content; empty if it is no plain file."""
    try:
        content = read_plain(file, most_bytes)
    except (OSError, ValueError):
        return b""
    if len(content) > most_bytes:
        raise SourceFailed(Message("{path} is larger than {max_bytes} bytes", path=file, max_bytes=most_bytes))
    return content


def _make_empty_repository(folder: Path) -> None:
    """A bare repository without objects, refs, hooks or settings, as `git init` with an empty template makes it."""
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n", "ascii")
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n", "ascii")


class GitProcesses:
    """Runs git in a folder of its own below `staging`, with one time limit for all processes together."""

    def __init__(self, staging: Path, limits: Limits, env: Mapping[str, str] = os.environ) -> None:
        #: For other files of this fetch, too.
        self.folder = Path(tempfile.mkdtemp(prefix="git-", dir=staging.absolute()))
        self._limits, self._deadline = limits, Deadline(limits.seconds)
        path, config = _safe_path(env), self.folder / "gitconfig"
        found = shutil.which("git", path=path)
        if found is None:
            raise SourceFailed(Message("git is not installed"))
        self._program = found
        _make_empty_repository(self.folder / "repository")
        config.touch(mode=0o600)
        wanted = _CONFIG["kept"]["variables"]
        kept = {name: value for name, value in env.items() if not name.startswith("GIT_") or name in wanted}
        self._env = {**kept, **_CONFIG["variables"], "PATH": path, "GIT_CONFIG_GLOBAL": str(config)}
        settings = self._user_settings(env)
        # In a file, because other users can read arguments, and a header may be a password.
        everything = (*settings, *_CONFIG["settings"].items())
        lines = [line for key, value in everything for line in _as_config(key, value)]
        config.write_text("\n".join([*lines, ""]), "utf-8", "surrogateescape")
        if "GIT_SSH_COMMAND" not in self._env and "GIT_SSH" not in self._env:
            commands = [value for key, value in settings if key == "core.sshcommand" and value]
            self._env["GIT_SSH_COMMAND"] = commands[-1] if commands else "ssh -oBatchMode=yes"

    def run(self, *words: str, tell: Tell | None = None) -> str:
        """Return what git printed. SourceFailed, with its first error, if it fails."""
        printed, complaints = bytearray(), list[str]()
        with self._started(words) as process:
            listener = threading.Thread(target=_listen, args=(process.stderr, tell, complaints), daemon=True)
            listener.start()
            for piece in _pieces(process.stdout):
                printed += piece
                if len(printed) > _MOST_OUTPUT_BYTES:  # a server can name refs without end
                    raise SourceRefused(Message("git printed more than {most} bytes", most=_MOST_OUTPUT_BYTES))
            process.wait()
            listener.join(_LAST_WORDS_SECONDS)
            if process.returncode:
                raise SourceFailed(complaints[0] if complaints else f"git {words[0]} ended with {process.returncode}")
        return printed.decode("utf-8", "surrogateescape")

    @contextmanager
    def open_objects(self, names: Sequence[str]) -> Iterator[IO[bytes]]:
        """The answers of `cat-file --batch` for these objects, in their order."""
        with tempfile.TemporaryFile(dir=self.folder) as asked:
            asked.write("".join(f"{name}\n" for name in names).encode())
            asked.seek(0)
            with self._started(("cat-file", "--batch"), asked, subprocess.DEVNULL) as process:
                if process.stdout is None:
                    raise SourceFailed(Message("git gives no pipes"))
                yield process.stdout

    @contextmanager
    def _started(
        self, words: Sequence[str], stdin: IO[bytes] | int = subprocess.DEVNULL, stderr: int = subprocess.PIPE
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """One git process. With everything that it started it is killed at the deadline, and at the end."""
        settings = [word for key, value in _CONFIG["settings"].items() for word in ("-c", f"{key}={value}")]
        # The shell sets the largest size of a file, a pack for example, and then is git itself.
        bound = ["/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', str(self._limits.total_bytes // 512)]
        too_late = SourceFailed(Message("git took longer than {seconds:g} s", seconds=self._limits.seconds))
        if not self._deadline.left():
            raise too_late
        process = subprocess.Popen(
            [*bound, self._program, f"--git-dir={self.folder / 'repository'}", *settings, *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=self.folder,
            env=self._env,
            start_new_session=True,
        )
        late = threading.Timer(self._deadline.left(), _kill, (process,))
        late.daemon = True
        late.start()
        with process:
            try:
                yield process
            except SourceFailed as error:
                raise (error if self._deadline.left() else too_late) from None
            finally:
                late.cancel()
                _kill(process)

    def _user_settings(self, env: Mapping[str, str]) -> list[tuple[str, str | None]]:
        """The user's own. Read with our empty repository, so that a condition on its folder or remotes never holds."""
        home = env.get("HOME", "")
        config = env.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
        files = [Path(config, "git", "config"), Path(home, ".gitconfig")]  # in git's order
        if named := env.get("GIT_CONFIG_GLOBAL"):
            files = [Path(named)]
        found: list[tuple[str, str | None]] = []
        for file in files:
            if file.is_absolute() and file.is_file():
                with suppress(SourceFailed):  # a file that git cannot read means nothing
                    listing = self.run("config", "--file", str(file), "--includes", "--null", "--list")
                    for entry in filter(None, listing.split("\0")):
                        key, separator, value = entry.partition("\n")
                        found.append((key, value if separator else None))  # without a value it means true
        return [(key, value) for key, value in found if _KEPT_SETTINGS.fullmatch(key)]


def _safe_path(env: Mapping[str, str]) -> str:
    """The PATH without relative or empty entries, and without those inside the current project."""
    try:
        inside = find_project(Path.cwd(), Path(env.get("HOME") or "/"))
    except OSError:  # the current folder was removed
        inside = None
    entries = [entry for entry in absolute_entries(env).split(os.pathsep) if entry]
    if inside:
        root = os.path.realpath(inside)
        entries = [entry for entry in entries if not is_inside(os.path.realpath(entry), root)]
    return os.pathsep.join(entries)


def _as_config(key: str, value: str | None) -> tuple[str, str]:
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    inner, text = (each.replace("\\", "\\\\").replace('"', '\\"') for each in (subsection, value or ""))
    header = f'[{section} "{inner}"]' if subsection else f"[{section}]"
    return header, f"\t{name}" if value is None else f'\t{name} = "{text}"'.replace("\n", "\\n")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _listen(stream: IO[bytes] | None, tell: Tell | None, complaints: list[str]) -> None:
    """Read stderr: progress comes with carriage returns, errors on lines of their own."""
    rest = ""
    for piece in _pieces(stream):
        *lines, rest = re.split(r"[\r\n]", rest + piece.decode("utf-8", "replace"))
        rest = rest[-_MOST_LINE_CHARACTERS:]
        for line in filter(None, map(str.strip, lines)):
            if tell:
                tell(line)
            if line.startswith(("fatal:", "error:")) and len(complaints) < _MOST_COMPLAINTS:
                complaints.append(line.partition(":")[2].strip())


def _pieces(stream: IO[bytes] | None) -> Iterator[bytes]:
    with suppress(ValueError, OSError):  # closed by whoever stopped waiting
        while stream and (piece := os.read(stream.fileno(), 1 << 16)):
            yield piece
