"""A world of its own: user, pid, net, ipc, uts, cgroup and mount namespaces, with a fresh root.

Covered: only what the policy names exists; no other process, host, socket or mount can be named at all.
Not covered: what the named files hold, and the kernel that everybody shares.

Two steps. `clone` makes the process that is the first one in there; `enter`, called by that process, builds
the root. Whatever that process starts next is inside, and dies with it.
"""

import os
import signal
import stat
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from skillyard.sandbox.policy import DEVICES, Policy, outside, system_paths
from skillyard.sandbox.syscalls import (
    RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    buffer,
    call,
    open_path,
)

_NEW_MOUNT, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_ALWAYS: Final = _NEW_USER | _NEW_PID | _NEW_MOUNT | _NEW_CGROUP | _NEW_UTS | _NEW_IPC

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x4000, 1 << 18
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_FROM_EMPTY_PATH, _MNT_DETACH = 1, 4, 2

#: Where the private temp and home are; /tmp is the same place unless the policy names /tmp itself.
PRIVATE: Final = "/run/private"
_OLD: Final = "/.old"
_NOBODY: Final = 65534
#: The kernel never reuses the first 300 numbers.
_RESERVED_PIDS: Final = 300


@dataclass(frozen=True, slots=True)
class Bind:
    path: str
    writable: bool = False
    #: A path that others may have changed is never followed through a symlink.
    literal: bool = True


@dataclass(frozen=True, slots=True)
class Layout:
    """What the new root shows, decided while the old one can still be seen."""

    links: tuple[tuple[str, str], ...]
    #: Outer places first, so that inner ones win.
    binds: tuple[Bind, ...]


@cache
def system_layout(*, network: bool) -> Layout:
    """A link into /usr stays a link, everything else is bound."""
    links, binds = [], []
    for path in system_paths(network=network):
        if os.path.islink(path) and os.path.realpath(path).startswith("/usr/"):
            links.append((path, os.path.realpath(path)))
        else:
            binds.append(Bind(path, literal=False))
    return Layout(tuple(links), tuple(binds))


def layout(policy: Policy) -> Layout:
    system = system_layout(network=policy.network)
    named = {str(path): Bind(str(path)) for path in outside(policy.read, policy.hide)}
    named |= {str(path): Bind(str(path), writable=True) for path in outside(policy.write, policy.hide)}
    rest = [bind for bind in system.binds if bind.path not in named]
    binds = sorted((*rest, *named.values()), key=lambda bind: bind.path.count("/"))
    return Layout(system.links, tuple(binds))


def temp_folder(policy: Policy) -> str:
    taken = any(path == Path("/tmp") for path in (*policy.read, *policy.write))
    return f"{PRIVATE}/tmp" if taken else "/tmp"


def clone(*, network: bool) -> int:
    """Like fork, but the child is the first process of new namespaces, and everything in them dies with it.

    This process must have a single thread: the child is a raw copy of it.
    """
    return call("clone", _ALWAYS | (0 if network else _NEW_NET) | signal.SIGCHLD, 0, 0, 0, 0)


def enter(view: Layout, policy: Policy, cwd: str, *, uid: int, gid: int, pid_limit: bool) -> None:
    """Build this process's new root and move into it. `uid` and `gid` are those outside."""
    _map_ids(uid, gid)
    call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    # Any folder does to stand the new root on; no policy names /proc.
    _mount("tmpfs", "/proc", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    os.mkdir("/proc" + _OLD)
    os.chdir("/proc")
    call("pivot_root", b".", os.fsencode(_OLD[1:]))
    os.chdir("/")
    old = os.open(_OLD, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _furnish(old, policy, pid_limit)
        for link, target in view.links:
            _make_folder(os.path.dirname(link))
            os.symlink(target, link)
        for bind in view.binds:
            _bind(old, bind)
        _hide(policy)
        _make_folder(cwd)
    finally:
        os.close(old)
    call("umount2", os.fsencode(_OLD), _MNT_DETACH)
    os.rmdir(_OLD)
    _set_attributes(_AT_FDCWD, "/", 0, _READ_ONLY | _NO_SUID | _NO_DEVICES)
    call("sethostname", b"skillyard", 9)


def _map_ids(uid: int, gid: int) -> None:
    """The same person inside and outside, so what it writes is theirs; only root is nobody inside."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid or _NOBODY} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid or _NOBODY} {gid} 1")


def _mount(kind: str, target: str, flags: int, options: str = "") -> None:
    call("mount", kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode() or None)


def _set_attributes(folder: int, path: str, flags: int, attributes: int) -> None:
    call("mount_setattr", folder, os.fsencode(path), flags, buffer("=4Q", attributes, 0, 0, 0), 32)


def _furnish(old: int, policy: Policy, pid_limit: bool) -> None:
    """The private temp and home, /tmp, /dev and /proc."""
    _make_folder(PRIVATE)
    _mount("tmpfs", PRIVATE, _MS_NOSUID | _MS_NODEV, f"size={policy.temp_bytes},mode=755")
    for name in ("tmp", "home", "shm"):
        os.mkdir(f"{PRIVATE}/{name}", 0o700)
    os.mkdir("/tmp")
    _graft(_AT_FDCWD, f"{PRIVATE}/tmp", "/tmp", _NO_SUID | _NO_DEVICES)
    os.mkdir("/dev")
    for device in DEVICES:
        _bind_device(old, device)
    os.mkdir("/dev/shm")
    _graft(_AT_FDCWD, f"{PRIVATE}/shm", "/dev/shm", _NO_SUID | _NO_DEVICES | _NO_EXEC)
    os.mkdir("/dev/pts")
    _mount("devpts", "/dev/pts", _MS_NOSUID | _MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    for link, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        os.symlink(target, f"/dev/{link}")
    os.mkdir("/proc")
    _mount("proc", "/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    if pid_limit:
        limit_pids(policy.processes)
    # As root outside, its files under /proc/sys are ours to write: read-only is what stops that.
    _set_attributes(_AT_FDCWD, "/proc", 0, _READ_ONLY)


def limit_pids(processes: int) -> None:
    """Since Linux 6.14 each pid namespace has its own highest number: a bound that holds for root too."""
    Path("/proc/sys/kernel/pid_max").write_text(str(_RESERVED_PIDS + processes))


def _bind_device(old: int, device: str) -> None:
    try:
        tree = _clone_tree(old, device, RESOLVE_IN_ROOT)
    except OSError:
        return  # /dev/tty and its like are not everywhere
    try:
        os.close(os.open(device, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        _set_attributes(tree, "", _AT_EMPTY_PATH, _NO_SUID | _NO_EXEC)
        _attach(tree, device)
    finally:
        os.close(tree)


def _clone_tree(root: int, path: str, resolve: int) -> int:
    place = open_path(root, path, resolve | RESOLVE_NO_MAGICLINKS)
    try:
        return call("open_tree", place, b"", _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE)
    finally:
        os.close(place)


def _attach(tree: int, target: str) -> None:
    call("move_mount", tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_FROM_EMPTY_PATH)


def _graft(root: int, source: str, target: str, attributes: int) -> None:
    tree = _clone_tree(root, source, 0)
    try:
        _set_attributes(tree, "", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes)
        _attach(tree, target)
    finally:
        os.close(tree)


def _bind(old: int, bind: Bind) -> None:
    try:
        tree = _clone_tree(old, bind.path, RESOLVE_IN_ROOT | (RESOLVE_NO_SYMLINKS if bind.literal else 0))
    except FileNotFoundError:
        if bind.writable:
            raise
        return  # what is not there cannot be read either
    try:
        _make_place(bind.path, is_folder=stat.S_ISDIR(os.stat(tree).st_mode))
        only = 0 if bind.writable else _READ_ONLY
        _set_attributes(tree, "", _AT_EMPTY_PATH | _AT_RECURSIVE, only | _NO_SUID | _NO_DEVICES)
        _attach(tree, bind.path)
    finally:
        os.close(tree)


def _hide(policy: Policy) -> None:
    """Cover what is hidden and yet lies inside something named."""
    for path in policy.hide:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        cover = "/.folder" if stat.S_ISDIR(mode) else "/.file"
        _make_place(cover, is_folder=stat.S_ISDIR(mode))
        _graft(_AT_FDCWD, cover, str(path), _READ_ONLY | _NO_SUID | _NO_DEVICES)


def _make_place(path: str, *, is_folder: bool) -> None:
    """Something to mount on. Inside another bind it is there already."""
    if os.path.lexists(path):
        return
    if is_folder:
        _make_folder(path)
        return
    _make_folder(os.path.dirname(path))
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))


def _make_folder(path: str) -> None:
    for folder in (*map(str, reversed(PurePosixPath(path).parents)), path):
        if not os.path.lexists(folder):
            os.mkdir(folder, 0o755)
