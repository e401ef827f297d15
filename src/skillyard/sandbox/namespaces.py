"""User, pid, net, ipc, uts, cgroup and mount namespaces for a run, with a fresh root.

`clone` makes the process that is the first one in there; that process calls `begin` and `finish` to build its
root. Whatever it starts next is inside, and dies with it.

A readable folder is shown through overlayfs. A read-only bind mount does not stop `connect` to a unix socket in it, nor
opening a FIFO. Seen through an overlay they are other inodes: nobody listens on that socket, and the other end of that
FIFO is not the host's. Regular files are read from the same page cache as before.

Covered: only what the policy names exists; no other process, host, socket or mount can be named at all. Sockets and
FIFOs in readable folders, whenever they appear; devices, by nodev.
Not covered: what the named files hold, and the kernel that everybody shares. Sockets and FIFOs where an overlay fails:
on a folder that lies on two overlays already, or a file system that cannot be a lower layer.
"""

import contextlib
import ctypes
import os
import re
import signal
import stat
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from skillyard.sandbox.launch import DEVICES, Policy, is_inside, outside, refuse_special, system_paths
from skillyard.sandbox.syscalls import (
    AT_FDCWD,
    PR_SET_DUMPABLE,
    RESOLVE_IN_ROOT,
    RESOLVE_NO_SYMLINKS,
    buffer,
    call,
    open_path,
    prctl,
    write_file,
)

_NEW_MOUNT, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_ALWAYS: Final = _NEW_USER | _NEW_PID | _NEW_MOUNT | _NEW_CGROUP | _NEW_UTS | _NEW_IPC

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_REC = 2, 4, 8, 32, 0x4000
_MS_PRIVATE, _MS_SLAVE = 1 << 18, 1 << 19
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_FROM_EMPTY_PATH, _MNT_DETACH = 1, 4, 2
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC = 1, 1
_SET_FLAG, _SET_STRING, _SET_FD, _CREATE = 0, 1, 5, 6
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1

#: Where the private temp and home are; /tmp is the same place unless the policy names /tmp itself.
PRIVATE: Final = "/run/private"
_NOBODY: Final = 65534
#: The second layer of every overlay.
_EMPTY: Final = "/.empty"
_HIDING: Final = "/.hiding"
#: Folders of a home that programs fill for themselves.
_CACHES: Final = frozenset({".cache", ".npm", "__pycache__"})
_MOST_LISTED: Final = 20
#: How mountinfo writes spaces, tabs, newlines and backslashes.
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
#: The kernel never reuses the first 300 numbers.
_RESERVED_PIDS: Final = 300


class SystemPath(NamedTuple):
    """A part of the system, which nobody but root changes: what it is was looked up while the old root was seen."""

    path: str
    source: str
    #: A link to `source`, which lies in /usr. Everything else is bound.
    is_link: bool
    is_folder: bool


class Bind(NamedTuple):
    """A path that a policy names: looked at when it is bound, and never followed through a symlink."""

    path: str
    writable: bool = False
    #: What is shown at the path; empty for the path itself.
    source: str = ""
    #: Bound as it is, like the system, and not through an overlay.
    is_tool: bool = False
    #: A mount point inside a named folder, not a path that the policy names itself.
    is_mount: bool = False
    #: The layers that take the changes of a folder which is seen copy-on-write.
    layers: tuple[str, str] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is read, and shown through an overlay if it is a folder."""
        return not (self.writable or self.is_tool or self.source)


class NewRoot(NamedTuple):
    """What came out when a root was built."""

    #: No socket or FIFO of the host is reached through a readable folder.
    sealed: bool
    #: Why a folder that should be copy-on-write is only read; empty if it is copy-on-write, or was not wanted.
    read_only: str = ""


@cache
def system_layout(*, network: bool) -> tuple[SystemPath, ...]:
    """What every new root shows of the system."""
    real_paths = [(path, os.path.realpath(path)) for path in system_paths(network=network)]
    return tuple(
        SystemPath(path, real, real != path and real.startswith("/usr/"), os.path.isdir(real))
        for path, real in real_paths
        if os.path.exists(real) or real.startswith("/usr/")
    )


def named(policy: Policy) -> tuple[Bind, ...]:
    """What the policy adds: outer places first, so that inner ones win."""
    binds = {str(path): Bind(str(path), is_tool=True) for path in outside(policy.tools, policy.hide)}
    binds |= {str(path): Bind(str(path)) for path in outside(policy.read, policy.hide)}
    if (over := policy.copy_on_write) and str(over.folder) in binds:
        binds[str(over.folder)] = Bind(str(over.folder), layers=(str(over.upper), str(over.work)))
    binds |= {str(path): Bind(str(path), writable=True) for path in outside(policy.write, policy.hide)}
    targets = set(outside((mount.target for mount in policy.mounts), policy.hide))
    mounts = (mount for mount in policy.mounts if mount.target in targets)
    binds |= {str(mount.target): Bind(str(mount.target), source=str(mount.source)) for mount in mounts}
    return tuple(sorted(binds.values(), key=lambda bind: bind.path.count("/")))


def pinned_inside(bind: Bind, binds: tuple[Bind, ...]) -> tuple[str, ...]:
    """The paths inside `bind` that need a mount point which nobody outside can move or remove.

    A mount is attached to a directory, not to a path: when somebody outside renames that directory, the mount goes
    with it and whatever is put in its place is seen instead. So the folders on the way to such a path are made in
    the new root, and everything beside them is bound one by one. A writable bind stays whole, because renames in it
    must work.
    """
    if bind.writable:
        return ()
    inner = [other for other in binds if other.path.startswith(f"{bind.path}/")]
    return tuple(other.path for other in inner if bind.source or other.source)


def home_variables(policy: Policy) -> dict[str, str]:
    """The variables that name the private temp and home."""
    is_taken = Path("/tmp") in (*policy.read, *policy.write)
    return {"TMPDIR": f"{PRIVATE}/tmp" if is_taken else "/tmp", "HOME": f"{PRIVATE}/home"}


def clone(*, network: bool) -> int:
    """Like fork, but the child is the first process of new namespaces, and everything in them dies with it.

    Call it only in a process with a single thread: the child is a raw copy of it.
    """
    return call("clone", _ALWAYS | (0 if network else _NEW_NET) | signal.SIGCHLD, 0, 0, 0, 0)


def begin(layout: Iterable[SystemPath], *, uid: int, gid: int, own_network: bool) -> int:
    """Build what every new root has, and move into it. Return the old root, which `finish` needs.

    `uid` and `gid` are those outside. `own_network` says whether `clone` made a net namespace; its loopback interface
    is brought up. Between `begin` and `finish` a process can wait for its request.
    """
    _map_ids(uid, gid)
    if own_network:
        _raise_loopback()
    # As a slave, so that what the machine mounts while we wait appears here too.
    call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
    # Any folder does to stand the new root on; no policy names /proc.
    _mount(b"tmpfs", b"/proc", _MS_NOSUID | _MS_NODEV, b"size=1m,mode=755")
    os.chdir("/proc")
    os.mkdir(".old")
    call("pivot_root", b".", b".old")
    os.chdir("/")
    old = os.open("/.old", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _furnish(old)
    for part in layout:
        if part.is_link:
            _make_folder(os.path.dirname(part.path))
            os.symlink(part.source, part.path)
            continue
        _make_place(part.path, is_folder=part.is_folder)
        with contextlib.suppress(FileNotFoundError):  # removed since we looked
            _graft(old, os.fsencode(part.source[1:]), part.path, _SYSTEM_ATTRIBUTES)
    call("sethostname", b"localhost", 9)  # a name that resolves, without a file of ours
    return old


def finish(old: int, policy: Policy, cwd: str, *, pid_limit: bool) -> NewRoot:
    """Add what the policy names, take away what it hides, and let go of the old root."""
    size = b"size=%d" % policy.temp_bytes
    call("mount", b"none", PRIVATE.encode(), None, _MS_REMOUNT | _MS_NOSUID | _MS_NODEV, size)
    #: Folders made here, each a mount of its own, that become read-only at the end.
    made = _folders_in_temp(policy, cwd)
    for folder in made:
        os.mkdir(folder)
        _mount_small_tmpfs(folder)
    root = _bind_all(old, policy, made)
    _hide(policy)
    _make_folder(cwd)
    for folder in made:
        _set_attributes(AT_FDCWD, folder, 0, _SYSTEM_ATTRIBUTES)
    os.close(old)
    call("umount2", b"/.old", _MNT_DETACH)
    os.rmdir("/.old")
    if pid_limit:
        # Since Linux 6.14 each pid namespace has its own highest number: a bound that holds for root too.
        write_file("/proc/sys/kernel/pid_max", str(_RESERVED_PIDS + policy.processes))
    # As root outside, the files under /proc/sys are ours to write: read-only is what stops that.
    _set_attributes(AT_FDCWD, "/proc", 0, _PROC_ATTRIBUTES)
    _set_attributes(AT_FDCWD, "/", 0, _SYSTEM_ATTRIBUTES)
    return root


def list_home() -> tuple[str, ...]:
    """Return the files in the private home, some of them if there are many; caches are nobody's loss."""
    found: list[str] = []
    home = f"{PRIVATE}/home"
    for folder, folders, names in os.walk(home):
        folders[:] = [name for name in folders if name not in _CACHES]
        found += (os.path.relpath(os.path.join(folder, name), home) for name in names)
        if len(found) > _MOST_LISTED:
            break
    return tuple(sorted(found)[:_MOST_LISTED])


def _folders_in_temp(policy: Policy, cwd: str) -> list[str]:
    """Folders of the private temp that lead to something real: read-only, or a write beside it would be lost unseen."""
    temp = home_variables(policy)["TMPDIR"]
    binds = {bind.path for bind in named(policy)}
    below = [PurePosixPath(path).relative_to(temp) for path in (*binds, cwd) if path.startswith(f"{temp}/")]
    tops = dict.fromkeys(f"{temp}/{path.parts[0]}" for path in below)
    return [top for top in tops if top not in binds]


def _map_ids(uid: int, gid: int) -> None:
    """The same person inside and outside, so what it writes is theirs; only root is nobody inside."""
    prctl(PR_SET_DUMPABLE, 1)  # a runtime that changed its user does not own its own files in /proc
    write_file("/proc/self/setgroups", "deny")
    write_file("/proc/self/uid_map", f"{uid or _NOBODY} {uid} 1")
    write_file("/proc/self/gid_map", f"{gid or _NOBODY} {gid} 1")


def _raise_loopback() -> None:
    """Bring `lo` up, which gives 127.0.0.1 and ::1 to the programs inside. It leads nowhere else."""
    file = call("socket", 2, 2, 0)  # AF_INET, SOCK_DGRAM
    try:
        call("ioctl", file, _SIOCSIFFLAGS, ctypes.create_string_buffer(struct.pack("=16sH22x", b"lo", _IFF_UP), 40))
    finally:
        os.close(file)


def _mount(kind: bytes, target: bytes, flags: int, options: bytes | None = None) -> None:
    call("mount", kind, target, kind, flags, options)


def _mount_small_tmpfs(target: str) -> None:
    _mount(b"tmpfs", os.fsencode(target), _MS_NOSUID | _MS_NODEV, b"size=1m,mode=755")


def _attributes(value: int) -> ctypes.Array[ctypes.c_char]:
    """Private, too: what the machine mounts there later would come without these attributes."""
    return buffer("=4Q", value, 0, _MS_PRIVATE, 0)


_SYSTEM_ATTRIBUTES: Final = _attributes(_READ_ONLY | _NO_SUID | _NO_DEVICES)
_WRITE_ATTRIBUTES: Final = _attributes(_NO_SUID | _NO_DEVICES)
_DEVICE_ATTRIBUTES: Final = _attributes(_NO_SUID | _NO_EXEC)
_PROC_ATTRIBUTES: Final = _attributes(_READ_ONLY)
_CLONE: Final = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE


def _set_attributes(folder: int, path: str, flags: int, attributes: ctypes.Array[ctypes.c_char]) -> None:
    call("mount_setattr", folder, os.fsencode(path), flags, attributes, ctypes.sizeof(attributes))


def _graft(root: int, source: bytes, target: str, attributes: ctypes.Array[ctypes.c_char]) -> None:
    """Show `source`, with all that is mounted below it, at `target` too. An empty source is `root` itself."""
    tree = call("open_tree", root, source, _CLONE | (0 if source else _AT_EMPTY_PATH))
    _set_attributes(tree, "", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes)
    _attach(tree, target)


def _attach(tree: int, target: str) -> None:
    """Mount a detached tree at `target`, and close it."""
    call("move_mount", tree, b"", AT_FDCWD, os.fsencode(target), _MOVE_FROM_EMPTY_PATH)
    os.close(tree)


def _furnish(old: int) -> None:
    """The private temp and home, /tmp, /dev and /proc."""
    for folder in ("/run", PRIVATE, "/tmp", "/dev", "/dev/shm", "/dev/pts", "/proc"):
        os.mkdir(folder)
    _mount(b"tmpfs", PRIVATE.encode(), _MS_NOSUID | _MS_NODEV, b"mode=755")
    for name, target in (("home", ""), ("tmp", "/tmp"), ("shm", "/dev/shm")):
        os.mkdir(f"{PRIVATE}/{name}", 0o700)
        if target:
            _graft(AT_FDCWD, f"{PRIVATE}/{name}".encode(), target, _WRITE_ATTRIBUTES)
    for device in DEVICES:
        _make_place(device, is_folder=False)
        with contextlib.suppress(FileNotFoundError):  # not every container has all of them
            _graft(old, device[1:].encode(), device, _DEVICE_ATTRIBUTES)
    _mount(b"devpts", b"/dev/pts", _MS_NOSUID | _MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")
    os.symlink("pts/ptmx", "/dev/ptmx")
    os.symlink("/proc/self/fd", "/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
    _mount(b"proc", b"/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _bind_all(old: int, policy: Policy, made: list[str]) -> NewRoot:
    """Bind what the policy names.

    Adds to `made` the folders that were made around mounts and must still become read-only.
    """
    binds = named(policy)
    os.mkdir(_EMPTY, 0o755)
    empty = os.open(_EMPTY, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sealed, read_only = True, ""
    for bind in with_mounts_below(binds, policy.hide, _mount_points()):
        if bind.layers and not (read_only := _bind_copy_on_write(old, bind, policy.hide)):
            continue
        try:
            place = open_path(old, (bind.source or bind.path)[1:], RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)
        except FileNotFoundError:
            if bind.writable or bind.source:
                raise
            continue  # what is not there cannot be read either
        try:
            sealed &= _bind(place, bind, binds, empty, made)
        finally:
            os.close(place)
    os.close(empty)
    return NewRoot(sealed, read_only)


def _bind(place: int, bind: Bind, binds: tuple[Bind, ...], empty: int, made: list[str]) -> bool:
    """Bind one path; see `_bind_all`.

    An overlay keeps the mounts inside it by itself; without one the folders that lead to them are made here, and what
    lies beside them is bound one by one.
    """
    mode = os.stat(place).st_mode
    is_folder = stat.S_ISDIR(mode)
    if not bind.is_mount:
        refuse_special(bind.path, mode)
    if not (is_folder or stat.S_ISREG(mode)) or _is_shown_by_another(bind, binds):
        return True
    _make_place(bind.path, is_folder=is_folder)
    to_seal = is_folder and bind.is_plain
    if to_seal:
        try:
            tree = _make_overlay(place, empty)
        except OSError:
            pass
        else:
            _attach(tree, bind.path)
            return True
    pinned = pinned_inside(bind, binds)
    if pinned and is_folder and (to_seal or bind.source):
        _mount_small_tmpfs(bind.path)
        _bind_children(place, bind.path, pinned)
        made.append(bind.path)
    else:
        _graft(place, b"", bind.path, _WRITE_ATTRIBUTES if bind.writable else _SYSTEM_ATTRIBUTES)
    return not to_seal


class _Upper(NamedTuple):
    """The layers above a folder that is seen copy-on-write, as O_PATH descriptors; see `Policy.copy_on_write`."""

    changes: int
    work: int
    #: Marks what is hidden in the folder as deleted.
    hiding: int


def _make_overlay(folder: int, below: int, upper: _Upper | None = None) -> int:
    """Return a detached overlay mount that shows `folder`; both are O_PATH descriptors of folders.

    Overlayfs wants two layers; an empty one stands `below`, so that the folder's own attributes are seen. Layers go by
    descriptor, because names may hold commas and colons, and because a path could be swapped. Does not show what is
    mounted below the folder.
    """
    context = call("fsopen", b"overlay", _FSOPEN_CLOEXEC)
    try:
        # Without it the marks of overlayfs are trusted.* attributes, which a user namespace may not read.
        call("fsconfig", context, _SET_FLAG, b"userxattr", None, 0)
        # One device number for files and folders, where inode numbers leave room for that.
        call("fsconfig", context, _SET_STRING, b"xino", b"auto", 0)
        if upper:
            call("fsconfig", context, _SET_FD, b"upperdir", None, upper.changes)
            call("fsconfig", context, _SET_FD, b"workdir", None, upper.work)
            # Nobody mounts this upper layer again, so nothing needs to wait for the disk.
            call("fsconfig", context, _SET_FLAG, b"volatile", None, 0)
            call("fsconfig", context, _SET_FD, b"lowerdir+", None, upper.hiding)
        call("fsconfig", context, _SET_FD, b"lowerdir+", None, folder)
        call("fsconfig", context, _SET_FD, b"lowerdir+", None, below)
        call("fsconfig", context, _CREATE, None, None, 0)
        return call("fsmount", context, _FSMOUNT_CLOEXEC, (0 if upper else _READ_ONLY) | _NO_SUID | _NO_DEVICES)
    finally:
        os.close(context)


def _bind_copy_on_write(old: int, bind: Bind, hidden: Sequence[Path]) -> str:
    """Mount a folder whose changes go to its upper layer. Return why it could not be; it is read-only then."""
    opened: list[int] = []

    def opening(path: str) -> int:
        opened.append(open_path(old, path[1:], RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS))
        return opened[-1]

    changes, work = bind.layers or ("", "")
    try:
        folder = opening(bind.path)
        hiding = _make_hiding_layer(folder, bind.path, hidden)
        opened.append(hiding)
        below = os.open(_EMPTY, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.append(below)
        tree = _make_overlay(folder, below, _Upper(opening(changes), opening(work), hiding))
        _make_place(bind.path, is_folder=True)
        _attach(tree, bind.path)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        for place in opened:
            os.close(place)
    return ""


def _make_hiding_layer(folder: int, path: str, hidden: Sequence[Path]) -> int:
    """Make a layer in which every hidden path inside the folder is a whiteout: not listed, not there.

    The folders on the way have the modes of those below, because the upper ones are seen.
    """
    os.mkdir(_HIDING, stat.S_IMODE(os.stat(folder).st_mode))
    for secret in hidden:
        if not is_inside(str(secret), path) or str(secret) == path:
            continue
        *folders, name = str(secret)[len(path) + 1 :].split("/")
        place, inner = _HIDING, ""
        try:
            for each in folders:
                inner = f"{inner}{each}/"
                place = f"{place}/{each}"
                if not os.path.isdir(place):
                    os.mkdir(place, stat.S_IMODE(os.stat(inner, dir_fd=folder, follow_symlinks=False).st_mode) | 0o300)
            os.mknod(f"{place}/{name}", stat.S_IFCHR, 0)
        except (FileNotFoundError, NotADirectoryError, FileExistsError):
            continue  # it is gone, or inside another hidden path
    return os.open(_HIDING, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _bind_children(place: int, path: str, pinned: tuple[str, ...]) -> None:
    """Everything in a folder but the pinned paths, which get their own mounts later."""
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
    try:
        for name in os.listdir(listed):
            child = f"{path}/{name}"
            if child in pinned:
                continue
            with contextlib.suppress(FileNotFoundError):  # removed since we listed it
                _bind_child(listed, name, child, pinned)
    finally:
        os.close(listed)


def _bind_child(folder: int, name: str, child: str, pinned: tuple[str, ...]) -> None:
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.stat(place).st_mode
        if any(inner.startswith(f"{child}/") for inner in pinned):
            os.mkdir(child, 0o755)
            if stat.S_ISDIR(mode):
                _bind_children(place, child, pinned)
        elif stat.S_ISLNK(mode):
            os.symlink(os.readlink(b"", dir_fd=place), child)
        elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            _make_place(child, is_folder=stat.S_ISDIR(mode))
            _graft(place, b"", child, _SYSTEM_ATTRIBUTES)
    finally:
        os.close(place)


def _is_shown_by_another(bind: Bind, binds: tuple[Bind, ...]) -> bool:
    around = _around(bind.path, binds)
    if around is None or around.writable or around.is_tool or around.layers:
        return False
    return bind.is_plain and not bind.is_mount


def _around(path: str, binds: Iterable[Bind]) -> Bind | None:
    """The innermost bind that contains `path` and is not it."""
    outer = [bind for bind in binds if bind.path != path and is_inside(path, bind.path)]
    return max(outer, key=lambda bind: len(bind.path), default=None)


def with_mounts_below(binds: tuple[Bind, ...], hidden: Sequence[Path], mounts: Iterable[str]) -> tuple[Bind, ...]:
    """`binds`, and what is mounted inside the read-only ones: an overlay does not show what is mounted below it."""
    known = {bind.path for bind in binds}
    more = {
        mount: Bind(mount, is_mount=True)
        for mount in mounts
        if mount not in known
        and (around := _around(mount, binds)) is not None
        and around.is_plain
        and not any(is_inside(mount, str(secret)) for secret in hidden)
    }
    return tuple(sorted((*binds, *more.values()), key=lambda bind: bind.path.count("/")))


def _mount_points() -> tuple[str, ...]:
    """Where something is mounted in the old root, as paths there."""
    with open("/proc/self/mountinfo", "rb") as lines:
        points = [line.split(b" ", 5)[4] for line in lines]
    found = (_ESCAPED.sub(lambda part: bytes((int(part[1], 8),)), point) for point in points if b"/.old/" in point)
    return tuple(os.fsdecode(point[len(b"/.old") :]) for point in found if point.startswith(b"/.old/"))


def _hide(policy: Policy) -> None:
    """Cover what is hidden and yet lies inside something named."""
    for path in policy.hide:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        cover = "/.folder" if stat.S_ISDIR(mode) else "/.file"
        _make_place(cover, is_folder=stat.S_ISDIR(mode))
        _graft(AT_FDCWD, cover.encode(), str(path), _SYSTEM_ATTRIBUTES)


def _make_place(path: str, *, is_folder: bool) -> None:
    """Something to mount on. Inside another bind it is there already."""
    if is_folder:
        _make_folder(path)
    elif not os.path.lexists(path):
        _make_folder(os.path.dirname(path))
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))


def _make_folder(path: str) -> None:
    if not os.path.lexists(path):
        _make_folder(os.path.dirname(path))
        os.mkdir(path, 0o755)
