"""Landlock: restricts which files a process may touch, without any privilege and without namespaces.

Covered: reading, running, writing, making, removing, renaming and (ABI 3) truncating files; TCP (ABI 4);
device ioctls (ABI 5); signals and abstract sockets to the outside (ABI 6); tracing the outside (always).
Not covered: seeing that a file exists (stat), UDP, path sockets. seccomp and the mounts cover the last two.
"""

import os
import stat
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path
from typing import Final, NamedTuple

from skillyard.sandbox.layers import ABI_SCOPES
from skillyard.sandbox.syscalls import (
    AT_FDCWD,
    PR_SET_NO_NEW_PRIVS,
    RESOLVE_NO_SYMLINKS,
    buffer,
    call,
    open_path,
    prctl,
)


class Access(IntFlag):
    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ: Final = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
DEVICE: Final = Access.READ_FILE | Access.READ_DIR | Access.WRITE_FILE | Access.TRUNCATE | Access.IOCTL_DEV
#: Everything but making device nodes.
WRITE: Final = Access(0xFFFF) & ~(Access.MAKE_CHAR | Access.MAKE_BLOCK | Access.IOCTL_DEV)
#: What a rule on a single file can say.
_ON_A_FILE: Final = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV


class PathRule(NamedTuple):
    path: str
    access: Access
    #: A path that others may have changed is never followed through a symlink.
    literal: bool = False


def version() -> int:
    """The ABI of this kernel, 0 if it has no Landlock."""
    try:
        return call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def handled(abi: int) -> Access:
    """The rights that this ABI knows; all of them are taken away first."""
    known = Access((1 << 13) - 1)
    for since, right in ((2, Access.REFER), (3, Access.TRUNCATE), (5, Access.IOCTL_DEV)):
        if abi >= since:
            known |= right
    return known


def without(path: Path, hidden: Iterable[Path]) -> tuple[Path, ...]:
    """`path`, or if something below it is hidden, what else is in there now: a Landlock rule can only allow."""
    hidden = tuple(hidden)
    if any(path == secret or secret in path.parents for secret in hidden):
        return ()
    if not any(path in secret.parents for secret in hidden):
        return (path,)
    if not path.is_dir():
        return ()
    return tuple(kept for child in sorted(path.iterdir()) if not child.is_symlink() for kept in without(child, hidden))


def restrict(abi: int, rules: Iterable[PathRule], *, network: bool) -> None:
    """Confine this process and all that it starts to these rules, for good."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    rights = handled(abi)
    tcp = 0b11 if abi >= 4 and not network else 0
    scopes = 0b11 if abi >= ABI_SCOPES else 0
    words = (rights, tcp, scopes)[: 3 if abi >= ABI_SCOPES else 2 if abi >= 4 else 1]
    ruleset = call("landlock_create_ruleset", buffer(f"={len(words)}Q", *words), 8 * len(words), 0)
    try:
        for rule in rules:
            _add(ruleset, rule, rights)
        call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _add(ruleset: int, rule: PathRule, rights: Access) -> None:
    try:
        place = open_path(AT_FDCWD, rule.path, RESOLVE_NO_SYMLINKS if rule.literal else 0)
    except FileNotFoundError:
        if rule.literal and rule.access & Access.MAKE_REG:
            raise
        return  # what is not there cannot be read either
    try:
        mode = os.stat(place).st_mode
        is_folder = stat.S_ISDIR(mode)
        if rule.literal and not is_folder and not stat.S_ISREG(mode):
            return  # a socket, FIFO or device beside something hidden
        access = rule.access & rights & (rights if is_folder else _ON_A_FILE)
        call("landlock_add_rule", ruleset, 1, buffer("=Qi", access, place), 0)
    finally:
        os.close(place)
