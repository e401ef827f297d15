"""Starts one program and waits for it: the values and calls that other rooms use.

with open_sandbox() as sandbox:
    done = sandbox(Launch(argv=("python3", "x.py"), cwd=root, env={"PATH": "/usr/bin"}, policy=Policy(...)))

A `Policy` says what a program may touch: made by the caller who knows the skill and the grants, enforced by the layers.
Its paths are literal: absolute, and without a symlink on the way. A skill can swap a folder for a symlink between two
runs; so the caller resolves a path once, while it is still trusted, and the layers never follow another."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from skillyard.sandbox.cancel_token import CancelToken
    from skillyard.sandbox.launcher import Launcher
    from skillyard.sandbox.layers import Layers
    from skillyard.sandbox.portable import LocalSandbox

_GIB: Final = 1 << 30


class Guard(StrEnum):
    """What is protected from a program, by whichever layers this machine has."""

    #: It reads and writes only what the policy names.
    FILES = "files"
    #: It reaches no other host, no local port and no local socket.
    NETWORK = "network"
    #: It cannot signal, trace or read the processes outside.
    PROCESSES = "processes"
    #: What the whole tree holds in memory is bounded (one process always is).
    MEMORY = "memory"
    #: How many processes it can have is bounded.
    FORKS = "forks"


#: Without these a run must not start; the two bounds are named in the result when they do not hold.
DEMAND: Final = frozenset({Guard.FILES, Guard.NETWORK, Guard.PROCESSES})


class Mount(NamedTuple):
    """A folder that a run sees, read-only, at the path of another one."""

    source: Path
    target: Path


class CopyOnWrite(NamedTuple):
    """A folder that a run sees writable while its changes go to `upper`: the folder itself stays as it is.

    `upper` and `work` are empty folders on one file system, which the run does not see.
    """

    folder: Path
    upper: Path
    work: Path


class Policy(NamedTuple):
    """Reads the system and `read`, writes `write` and a private temp. `hide` wins over everything.

    A read path inside a write path stays read-only only where there are namespaces: Landlock cannot say it.
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    #: Folders of interpreters that we chose ourselves: read like the system, without an overlay, because that would
    #: cost each start of an interpreter some milliseconds.
    tools: tuple[Path, ...] = ()
    #: Invisible, whatever else says; also what lies inside.
    hide: tuple[Path, ...] = ()
    #: Needs a mount namespace. Nobody outside can swap what is seen at a target, unless it is inside `write`.
    mounts: tuple[Mount, ...] = ()
    #: Of a folder in `read`. Needs our own namespaces and overlayfs; elsewhere the folder is only read.
    copy_on_write: CopyOnWrite | None = None
    #: TCP and UDP over IP. False: with namespaces only a private loopback, without no internet socket at all.
    network: bool = False
    #: The hosts that may be reached through our proxy (see `hosts`), where `network` is False.
    hosts: tuple[str, ...] = ()
    #: For each process (RLIMIT_DATA), and for all together where there is a cgroup.
    memory_bytes: int = 4 * _GIB
    processes: int = 512
    file_bytes: int = 4 * _GIB
    open_files: int = 4096
    #: The private temp lives in memory where there are namespaces.
    temp_bytes: int = _GIB
    demand: frozenset[Guard] = DEMAND

    def check(self) -> None:
        """Raise ValueError for a path that is not literal, or a host that cannot be parsed."""
        mounted = (path for mount in self.mounts for path in mount)
        for path in (*self.read, *self.write, *self.tools, *self.hide, *mounted, *(self.copy_on_write or ())):
            if not path.is_absolute() or ".." in path.parts or path == Path("/"):
                raise ValueError(f"a policy names absolute paths below the root, not {path}")
        if self.hosts:
            from skillyard.sandbox.hosts import parse_rule  # noqa: PLC0415  (brings socket; few runs name hosts)

            for host in self.hosts:
                parse_rule(host)


def refuse_special(path: str, mode: int) -> None:
    """Raise OSError for a socket, FIFO or device: whoever names one would open what is behind it."""
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is neither a regular file nor a folder", path)


#: Where a system keeps its programs and libraries; every run can read them.
PROGRAM_PLACES: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
)
#: The system as programs need it: tools, libraries, and of /etc what the libraries themselves read.
_SYSTEM: Final = (
    *PROGRAM_PLACES,
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts"),
    *("/etc/os-release", "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/mime.types"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/ca-certificates", "/etc/pki"),
    *("/etc/crypto-policies", "/etc/services", "/etc/protocols", "/etc/fonts"),
    *("/etc/ImageMagick-6", "/etc/ImageMagick-7", "/etc/java-17-openjdk", "/etc/java-21-openjdk"),
)
_NETWORK: Final = ("/etc/resolv.conf", "/etc/gai.conf", "/etc/host.conf")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@cache
def system_paths(*, network: bool = False) -> tuple[str, ...]:
    """The paths of this machine that every program may read."""
    return tuple(path for path in (*_SYSTEM, *(_NETWORK if network else ())) if os.path.lexists(path))


#: Subfolders and files of a Python installation or virtual environment that Python itself opens.
PYTHON_PARTS: Final = ("bin", "lib", "lib32", "lib64", "include", "pyvenv.cfg")


def python_paths() -> tuple[Path, ...]:
    """The parts of the Python that runs us, with its packages; nothing if that is the system's."""
    named = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    prefixes = dict.fromkeys(real for path in named if not is_system(real := os.path.realpath(path)))
    return tuple(part for prefix in prefixes for part in existing_parts(Path(prefix), PYTHON_PARTS))


def existing_parts(prefix: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """Those that exist and are no symlink: nobody chose where a link leads."""
    return tuple(path for name in names if (path := prefix / name).exists() and not path.is_symlink())


def is_system(path: str) -> bool:
    """Whether every run can read it anyway. For a resolved path."""
    return any(is_inside(path, place) for place in PROGRAM_PLACES)


def is_inside(path: str, place: str) -> bool:
    """`Path.is_relative_to` for absolute, normal paths, twenty times faster."""
    return path == place or path.startswith("/" if place == "/" else f"{place}/")


def outside(paths: Iterable[Path], hidden: Iterable[Path]) -> tuple[Path, ...]:
    """Those that are not inside something hidden."""
    secrets = tuple(map(str, hidden))
    return tuple(path for path in paths if not any(is_inside(str(path), secret) for secret in secrets))


#: How much a program may print on stdout.
OUTPUT_BYTES: Final = 10_485_760
#: How much is kept of the beginning and of the end of stderr, for the log and the error message.
STDERR_BYTES: Final = 131_072

_NO_VARIABLES: Final[Mapping[str, str]] = {}


class Launch(NamedTuple):
    """Everything about a run before it starts."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = _NO_VARIABLES
    stdin: bytes = b""
    limit_seconds: float = 60.0
    output_bytes: int = OUTPUT_BYTES
    #: Called with each piece of stderr, between two reads: a slow callback delays the run.
    on_stderr: Callable[[bytes], None] | None = None
    #: None means no sandbox: still a deadline, a clean environment and an end for the whole process tree.
    policy: Policy | None = None
    cancel: "CancelToken | None" = None


class Exit(NamedTuple):
    """Everything about a run after it ended. `code` is the exit code, or minus the signal that ended it."""

    code: int
    stdout: bytes
    #: Its beginning and its end, with a line between them where something was left out.
    stderr: bytes
    seconds: float
    stdout_bytes: int
    timed_out: bool = False
    #: The level that was really applied, for `meta.sandbox`: "full", "bubblewrap", "landlock+seccomp", "none".
    sandbox: str = "none"
    #: What could not be guarded in this run, for `meta.not_covered`: guards of the policy, and `NOT_COVERED`.
    missing: tuple[str, ...] = ()
    #: The limit of the policy that was reached: "memory", "processes", or nothing.
    hit: str = ""
    #: The capabilities (`network:HOST`) of the hosts that the run tried to reach and that were refused.
    refused: tuple[str, ...] = ()
    #: Whether `Policy.copy_on_write` was applied, and why not where it was wanted.
    copied_on_write: bool = False
    read_only: str = ""
    #: Files that it left in its private home, which is gone now.
    home_files: tuple[str, ...] = ()
    #: The last bytes of stdout if there was too much of it.
    stdout_tail: bytes = b""
    #: Filled in by the caller: the files in the output folder, each with (mtime, size, inode).
    files: Mapping[str, tuple[int, int, int]] | None = None

    @property
    def overflowed(self) -> bool:
        return self.stdout_bytes > len(self.stdout)


class Sandbox(Protocol):
    """Starts a program and waits for it. Never prints, knows no skills.

    Raises OSError if the program cannot start, SandboxUnavailable if the policy demands more than there is.
    """

    def __call__(self, launch: Launch) -> Exit: ...


class AttachedProcess(Protocol):
    """A program that the caller talks to while it runs. The caller closes `stdin`, `stdout` and `stderr` (descriptors).

    Covered: when it ends, when it is stopped and when the caller dies however suddenly, the whole tree ends.
    Not covered: files, network; outside Linux also children that leave the group, and the caller's death.
    """

    stdin: int
    stdout: int
    stderr: int

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, or None while it runs. Raise OSError if it could not start."""
        ...

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL, to the whole tree and return the exit code. A second call does nothing."""
        ...


def make_sandbox(layers: "Layers | None" = None, *, assumed: "Layers | None" = None) -> "Launcher | LocalSandbox":
    """Return the best sandbox of this system; `close` ends it. `layers` replaces what a probe would find."""
    # Only here: these modules cost more than all values of this room, and most commands start nothing.
    if sys.platform == "linux":
        from skillyard.sandbox.launcher import Launcher  # noqa: PLC0415

        return Launcher(layers, assumed=assumed)
    else:  # noqa: RET505  (so that a type checker skips it where it is not true)
        from skillyard.sandbox.portable import LocalSandbox  # noqa: PLC0415

        return LocalSandbox()


def can_mount(sandbox: Sandbox) -> bool:
    """Whether it can show a folder at another path: `Policy.mounts`."""
    layers: Layers | None = getattr(sandbox, "layers", None)
    return layers is not None and layers.can_mount
