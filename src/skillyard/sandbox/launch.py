"""Starts one program and waits for it: the values and calls that other rooms use.

The paths of a `Policy` are literal: absolute, and without a symlink on the way. A skill can swap a folder for a symlink
between two runs; so the caller resolves a path once, while it is still trusted, and the layers never follow another."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from skillyard.core.cancel_token import CancelToken
    from skillyard.sandbox.launcher import Launcher
    from skillyard.sandbox.layers import Layers
    from skillyard.sandbox.portable import LocalSandbox

_GIB: Final = 1 << 30


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
    below: Path | None = None  # an upper layer of earlier runs, which this one sees and does not write
    #: Written directly where it cannot be copy-on-write: paths in the folder that a person granted.
    granted: tuple[Path, ...] = ()


#: Where the private temp and home are; /tmp is the same place unless the policy names /tmp itself.
PRIVATE: Final = "/run/private"
PRIVATE_HOME: Final = Path(f"{PRIVATE}/home")  # where there is a mount namespace, a run's HOME


class Policy(NamedTuple):
    """Reads the system and `read`, writes `write` and a private temp. `hide` wins over everything.

    A read path inside a write path stays read-only only where there are namespaces: Landlock cannot say it.
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    #: Folders of interpreters that we chose ourselves: read without an overlay, which costs each start milliseconds.
    tools: tuple[Path, ...] = ()
    hide: tuple[Path, ...] = ()  # invisible, whatever else says; also what lies inside
    #: Needs a mount namespace. Nobody outside can swap what is seen at a target, unless it is inside `write`.
    mounts: tuple[Mount, ...] = ()
    #: Of a folder in `read`. Needs our own namespaces and overlayfs; elsewhere the folder is only read.
    copy_on_write: CopyOnWrite | None = None
    #: Names in the person's home, which a run does not see: whether it looks for one is noted.
    home_names: tuple[str, ...] = ()
    #: TCP and UDP over IP. False: with namespaces only a private loopback, without no internet socket at all.
    network: bool = False
    #: The hosts that may be reached through our proxy (see `hosts`), where `network` is False.
    hosts: tuple[str, ...] = ()
    #: For each process (RLIMIT_DATA), and for all together where there is a cgroup.
    memory_bytes: int = 4 * _GIB
    processes: int = 512
    file_bytes: int = 4 * _GIB
    open_files: int = 4096
    temp_bytes: int = _GIB  # the private temp lives in memory where there are namespaces

    def without_copy_on_write(self) -> "Policy":
        """Return what holds where a folder cannot be seen copy-on-write: it is only read, but for what was granted."""
        over = self.copy_on_write
        return self._replace(copy_on_write=None, write=(*self.write, *over.granted)) if over else self

    def check(self) -> None:
        """Raise ValueError for a path that is not literal, or a host that cannot be parsed."""
        mounted = (path for mount in self.mounts for path in mount)
        over = self.copy_on_write
        layers = (*filter(None, over[:4]), *over.granted) if over else ()
        for path in (*self.read, *self.write, *self.tools, *self.hide, *mounted, *layers):
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
#: What libraries read of /etc.
_ETC: Final = (
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
    return tuple(path for path in (*PROGRAM_PLACES, *_ETC, *(_NETWORK if network else ())) if os.path.lexists(path))


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


def is_hidden(path: str, hidden: Iterable[Path]) -> bool:
    return any(is_inside(path, str(secret)) for secret in hidden)


OUTPUT_BYTES: Final = 10_485_760  # how much a program may print on stdout
#: How much is kept of the beginning and of the end of stderr, for the log and the error message.
STDERR_BYTES: Final = 131_072


class Launch(NamedTuple):
    """Everything about a run before it starts."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = {}
    stdin: bytes = b""
    limit_seconds: float = 60.0
    output_bytes: int = OUTPUT_BYTES
    #: Called with each piece of stderr, between two reads: a slow callback delays the run.
    on_stderr: Callable[[bytes], None] | None = None
    #: None means no sandbox: still a deadline, a clean environment and an end for the whole process tree.
    policy: Policy | None = None
    cancel: "CancelToken | None" = None
    #: Asked about once a second while it runs: True stops it.
    is_too_much: Callable[[], bool] | None = None


class Exit(NamedTuple):
    """Everything about a run after it ended. `code` is the exit code, or minus the signal that ended it."""

    code: int
    stdout: bytes
    stderr: bytes  # its beginning and its end, with a line between them where something was left out
    seconds: float
    stdout_bytes: int
    timed_out: bool = False
    #: The level that was really applied, for `meta.sandbox`: "full", "bubblewrap", "landlock+seccomp", "none".
    sandbox: str = "none"
    #: What could not be guarded in this run, for `meta.not_covered`: guards of the policy, and `NOT_COVERED`.
    missing: tuple[str, ...] = ()
    hit: str = ""  # the limit of the policy that was reached: "memory", "processes", or nothing
    #: The capabilities (`network:HOST`) of the hosts that the run tried to reach and that were refused.
    refused: tuple[str, ...] = ()
    #: Whether `Policy.copy_on_write` was applied, and why not where it was wanted.
    copied_on_write: bool = False
    read_only: str = ""
    home_files: tuple[str, ...] = ()  # files that it left in its private home, which is gone now
    #: Whether it tried to reach an address that it may not; None where that is not known.
    tried_network: bool | None = None
    #: What is kept from it and it looked for: `~/NAME` of `Policy.home_names`, hidden paths of a copy-on-write folder.
    looked_for: tuple[str, ...] = ()
    stdout_tail: bytes = b""  # the last bytes of stdout if there was too much of it
    #: Filled in by the caller: the files in the output folder, each with (mtime, size, inode).
    files: Mapping[str, tuple[int, int, int]] | None = None

    @property
    def overflowed(self) -> bool:
        return self.stdout_bytes > len(self.stdout)


class Sandbox(Protocol):
    def __call__(self, launch: Launch) -> Exit:
        """Start a program and wait for it. Raise OSError, or SandboxUnavailable if this machine cannot guard it."""
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
