"""What a program may touch: a value, made by whoever knows the skill and the grants, kept by the layers.

Paths in a policy are literal: absolute, and without a symlink on the way. A skill can swap a folder for a
symlink between two runs; who names a path resolves it once, while it is still trusted, and the layers never
follow another.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_GIB: Final = 1 << 30


class Guard(StrEnum):
    """A thing that is kept from harm, by whichever layers this machine has."""

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


class Policy(NamedTuple):
    """Reads the system and `read`, writes `write` and a private temp. `hide` wins over everything.

    A read path inside a write path stays read-only only where there are namespaces: Landlock cannot say it.
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    #: Invisible, whatever else says; also what lies inside.
    hide: tuple[Path, ...] = ()
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
        """ValueError for a path that no layer could take at its word."""
        for path in (*self.read, *self.write, *self.hide):
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


#: The system as programs need it: tools, libraries, and of /etc what the libraries themselves read.
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    *(
        "/etc/ld.so.cache",
        "/etc/alternatives",
        "/etc/passwd",
        "/etc/group",
        "/etc/nsswitch.conf",
        "/etc/hosts",
    ),
    *("/etc/os-release", "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/mime.types"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ssl/cert.pem", "/etc/ca-certificates", "/etc/pki"),
    *("/etc/crypto-policies", "/etc/services", "/etc/protocols", "/etc/fonts"),
    *("/etc/ImageMagick-6", "/etc/ImageMagick-7", "/etc/java-17-openjdk", "/etc/java-21-openjdk"),
)
_NETWORK: Final = ("/etc/resolv.conf", "/etc/gai.conf", "/etc/host.conf")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@cache
def system_paths(*, network: bool = False) -> tuple[str, ...]:
    """What every program may read, of what this machine has."""
    return tuple(path for path in (*_SYSTEM, *(_NETWORK if network else ())) if os.path.lexists(path))


def interpreter_paths(program: Path) -> tuple[Path, ...]:
    """Where an interpreter lives with its libraries: its own prefix, and the one it really comes from.

    `/home/me/venv/bin/python` gives the environment and the installation behind it; a program in `/usr/bin`
    gives nothing, because the system is readable anyway.
    """
    found: list[Path] = []
    step = Path(os.path.abspath(program))
    for _ in range(_LINKS):
        found += _prefix(step)
        if not step.is_symlink():
            break
        step = Path(os.path.normpath(step.parent / step.readlink()))
    found += _prefix(step.resolve())
    return tuple(dict.fromkeys(real for path in found if not _is_system(real := path.resolve())))


def python_paths() -> tuple[Path, ...]:
    """The interpreter that runs us, with the packages it sees."""
    named = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    return tuple(dict.fromkeys(real for path in named if not _is_system(real := Path(path).resolve())))


#: As many symlinks as the kernel itself would follow.
_LINKS: Final = 40


def _prefix(program: Path) -> list[Path]:
    """The folder that holds bin/ and lib/; the program's own folder where it is laid out otherwise."""
    place = program.parent
    if place.name in {"bin", "Scripts", "sbin"} and not _too_wide(place.parent):
        place = place.parent
    return [place, *_behind(place)] if not _too_wide(place) else [program]


def _behind(prefix: Path) -> list[Path]:
    """The installation that a virtual environment was made from."""
    try:
        lines = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip() == "home" and Path(value.strip()).is_absolute():
            home = Path(value.strip())
            return [home.parent if home.name == "bin" and not _too_wide(home.parent) else home]
    return []


def _too_wide(place: Path) -> bool:
    """A prefix that would open a home folder (`~/bin/tool`, `~/.local/bin/tool`) or the root."""
    home = str(Path(os.path.expanduser("~")))
    return is_inside(home, str(place)) or str(place) == f"{home}/.local"


def _is_system(path: Path) -> bool:
    return any(is_inside(str(path), place) for place in ("/usr", "/bin", "/lib", "/lib64", "/opt", "/nix/store"))


def is_inside(path: str, place: str) -> bool:
    """The place itself too. For absolute, normal paths: what `Path.is_relative_to` says, twenty times faster."""
    return path == place or path.startswith("/" if place == "/" else f"{place}/")


def outside(paths: Iterable[Path], hidden: Iterable[Path]) -> tuple[Path, ...]:
    """Those that are not inside something hidden."""
    secrets = tuple(map(str, hidden))
    return tuple(path for path in paths if not any(is_inside(str(path), secret) for secret in secrets))
