"""Starts git. No other module does, and a test holds it.

Covered: git runs in a folder of ours with an explicit, empty repository of ours, so no configuration of the current
folder, of a project or of the repository that is read applies (`insteadOf`, `credential.helper`, `remote.*`, `include`,
`core.*`). The program is found once, through absolute entries of the PATH that lie outside the project. Of the user's
global configuration only what fetching needs is taken: `credential.*`, `http.*`, `url.*.insteadOf`, `core.sshCommand`
and `ssh.variant`. Hooks, filters, attributes, submodules, templates, prompts, bundle addresses and lazy fetches are
off; only files, ssh and http(s) are spoken; one deadline and a size limit hold for everything.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from skillyard.catalog.roots import find_project
from skillyard.core.child_process import absolute_entries
from skillyard.core.errors import SourceFailed, SourceRefused
from skillyard.core.messages import Message
from skillyard.install.deadline import Deadline
from skillyard.install.source import Limits, Tell
from skillyard.sandbox.launch import is_inside

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.fsmonitor=false",
    "core.askPass=true",
    "credential.interactive=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "protocol.http.allow=always",
    "protocol.https.allow=always",
    "protocol.ssh.allow=always",
    "safe.bareRepository=explicit",
    "init.templateDir=",
    "fetch.unpackLimit=1",
    "fetch.fsckObjects=true",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "transfer.bundleURI=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_PROTOCOLS = "file:http:https:ssh"
#: Variables of the caller that say how to reach a server. Every other GIT_* variable is dropped.
_KEPT_VARIABLES = frozenset(
    {
        *("GIT_SSH_COMMAND", "GIT_SSH", "GIT_SSH_VARIANT"),
        *("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY"),
        *("GIT_PROXY_SSL_CAINFO", "GIT_PROXY_SSL_CERT", "GIT_PROXY_SSL_KEY", "GIT_HTTP_PROXY_AUTHMETHOD"),
    }
)
#: Keys of the user's global configuration that fetching needs.
_KEPT_SETTINGS = re.compile(r"(?:credential|http)\..+|url\..+\.insteadof|core\.sshcommand|ssh\.variant", re.DOTALL)
_SSH = "ssh -oBatchMode=yes"
_SHELL = "/bin/sh"
_EMPTY_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
_PROGRESS = re.compile(r"[\r\n]")
_MOST_OUTPUT_BYTES = 64 * 1024 * 1024
_MOST_LINE_CHARACTERS = 4096
_MOST_COMPLAINTS = 20
#: How long to listen to stderr after git has ended: an ssh that stays for the next connection keeps it open.
_LAST_WORDS_SECONDS = 2.0


def safe_path(env: Mapping[str, str]) -> str:
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


def make_empty_repository(folder: Path) -> None:
    """A bare repository without objects, refs, hooks or settings, as `git init` with an empty template makes it."""
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n", "ascii")
    (folder / "config").write_text(_EMPTY_CONFIG, "ascii")


class GitProcesses:
    """Runs git in a folder of its own below `staging`, with one time limit for all processes together."""

    def __init__(self, staging: Path, limits: Limits, env: Mapping[str, str] = os.environ) -> None:
        #: For other files of this fetch, too.
        self.folder = Path(tempfile.mkdtemp(prefix="git-", dir=staging.absolute()))
        self._limits, self._deadline = limits, Deadline(limits.seconds)
        found = shutil.which("git", path=safe_path(env))
        if found is None:
            raise SourceFailed(Message("git is not installed"))
        self._program = found
        make_empty_repository(self.folder / "repository")
        config = self.folder / "gitconfig"
        config.touch(mode=0o600)
        self._env = _environment(env, config)
        settings = self._user_settings(env)
        # In a file, because other users can read arguments, and a header may be a password.
        ours = [(key, value) for key, _, value in (setting.partition("=") for setting in _SETTINGS)]
        lines = [line for key, value in (*settings, *ours) for line in _as_config(key, value)]
        config.write_text("\n".join([*lines, ""]), "utf-8", "surrogateescape")
        if "GIT_SSH_COMMAND" not in self._env and "GIT_SSH" not in self._env:
            commands = [value for key, value in settings if key == "core.sshcommand" and value]
            self._env["GIT_SSH_COMMAND"] = commands[-1] if commands else _SSH

    def run(self, *words: str, tell: Tell | None = None) -> str:
        """Return what git printed. SourceFailed, with its first error, if it fails."""
        pieces, complaints = list[bytes](), list[str]()
        with self._start(words, subprocess.DEVNULL) as process:
            output = threading.Thread(target=_collect, args=(process, pieces), daemon=True)
            errors = threading.Thread(target=_listen, args=(process, tell, complaints), daemon=True)
            output.start()
            errors.start()
            try:
                # Its output ends when it does: no need to look again and again, as `wait` with a limit does.
                output.join(self._deadline.left())
                process.wait(self._deadline.left())
            except subprocess.TimeoutExpired:
                raise self._too_late() from None
            finally:
                _kill(process)
                output.join(_LAST_WORDS_SECONDS)
                errors.join(_LAST_WORDS_SECONDS)
        printed = b"".join(pieces)
        if len(printed) > _MOST_OUTPUT_BYTES:
            raise SourceRefused(Message("git printed more than {most} bytes", most=_MOST_OUTPUT_BYTES))
        if process.returncode:
            raise SourceFailed(complaints[0] if complaints else f"git {words[0]} ended with {process.returncode}")
        return printed.decode("utf-8", "surrogateescape")

    @contextmanager
    def open_objects(self, names: Sequence[str]) -> Iterator[IO[bytes]]:
        """The answers of `cat-file --batch` for these objects, in their order."""
        with self._start(("cat-file", "--batch"), subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            if process.stdin is None or process.stdout is None:
                raise SourceFailed(Message("git gives no pipes"))
            feeder = threading.Thread(target=_feed, args=(process.stdin, names), daemon=True)
            late = threading.Timer(self._deadline.left(), _kill, (process,))
            late.daemon = True
            for thread in (feeder, late):
                thread.start()
            try:
                yield process.stdout
            except SourceFailed as error:
                raise (error if self._deadline.left() else self._too_late()) from None
            finally:
                late.cancel()
                _kill(process)
                feeder.join()

    def _start(self, words: Sequence[str], stdin: int, stderr: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        # The shell sets the largest size of a file, a pack for example, and then is git itself.
        bound = [_SHELL, "-c", 'ulimit -f "$0" && exec "$@"', str(self._limits.total_bytes // 512)]
        if not self._deadline.left():
            raise self._too_late()
        return subprocess.Popen(
            [*bound, self._program, f"--git-dir={self.folder / 'repository'}", *settings, *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=self.folder,
            env=self._env,
            start_new_session=True,
        )

    def _too_late(self) -> SourceFailed:
        return SourceFailed(Message("git took longer than {seconds:g} s", seconds=self._limits.seconds))

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


def _environment(env: Mapping[str, str], global_config: Path) -> dict[str, str]:
    """The caller's environment without what would point git elsewhere, run something, or ask."""
    kept = {name: value for name, value in env.items() if not name.startswith("GIT_") or name in _KEPT_VARIABLES}
    return {
        **kept,
        "PATH": safe_path(env),
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        "GIT_ASKPASS": "true",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(global_config),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GCM_INTERACTIVE": "never",
        "SSH_ASKPASS_REQUIRE": "never",
        "LC_ALL": "C.UTF-8",
    }


def _as_config(key: str, value: str | None) -> tuple[str, str]:
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    inner = subsection.replace("\\", "\\\\").replace('"', '\\"')
    header = f'[{section} "{inner}"]' if subsection else f"[{section}]"
    if value is None:
        return header, f"\t{name}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return header, f'\t{name} = "{escaped}"'


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill it with everything that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _feed(stream: IO[bytes], names: Sequence[str]) -> None:
    """Write all names at once: git answers while we write."""
    with suppress(OSError):  # it has ended; whoever reads its answers will say so
        stream.write("".join(f"{name}\n" for name in names).encode())
        stream.close()


def _collect(process: "subprocess.Popen[bytes]", pieces: list[bytes]) -> None:
    """Collect stdout, up to a limit: a server can name refs without end."""
    total = 0
    for piece in _pieces(process.stdout):
        pieces.append(piece)
        total += len(piece)
        if total > _MOST_OUTPUT_BYTES:
            _kill(process)
            return


def _listen(process: "subprocess.Popen[bytes]", tell: Tell | None, complaints: list[str]) -> None:
    """Read stderr: progress comes with carriage returns, errors on lines of their own."""
    rest = ""
    for piece in _pieces(process.stderr):
        *lines, rest = _PROGRESS.split(rest + piece.decode("utf-8", "replace"))
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
