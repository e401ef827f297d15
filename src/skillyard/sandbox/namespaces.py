"""User, pid, net, ipc, uts, cgroup and mount namespaces for a run, with a fresh root.

`clone` makes the first process in there, which builds its root with `begin` and `finish`. Whatever it starts next is
inside, and dies with it. A readable folder is shown through overlayfs: a read-only bind mount stops neither `connect`
to a unix socket in it nor opening a FIFO, but seen through an overlay they are other inodes, which lead nowhere.

Covered: only what the policy names exists; no other process, host, socket or mount can be named at all. Sockets and
FIFOs in readable folders, whenever they appear; devices, by nodev.
Not covered: what the named files hold, and the kernel that everybody shares. Sockets and FIFOs where an overlay fails:
on a folder that lies on two overlays already, or a file system that cannot be a lower layer.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.ipc import close_all
from skillyard.sandbox.launch import DEVICES, PRIVATE, Policy, is_hidden, is_inside, refuse_special, system_paths
from skillyard.sandbox.lookups import Lookups, Watched
from skillyard.sandbox.syscalls import AT_FDCWD, buffer, call, closing_fd, make_mount, open_path, prctl, write_file

_NEW_MOUNT, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_ALWAYS: Final = _NEW_USER | _NEW_PID | _NEW_MOUNT | _NEW_CGROUP | _NEW_UTS | _NEW_IPC

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_REC = 2, 4, 8, 32, 0x4000
_MS_PRIVATE, _MS_SLAVE = 1 << 18, 1 << 19
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_FROM_EMPTY_PATH, _MNT_DETACH = 1, 4, 2
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1

_NOBODY: Final = 65534
_EMPTY: Final = "/.empty"  # the second layer of every overlay
_HIDING: Final = "/.hiding"
#: What a run writes to its home, where lookups in there are noted.
_HOME_CHANGES: Final = f"{PRIVATE}/home.changes"
#: Folders of a home that programs fill for themselves.
_CACHES: Final = frozenset({".cache", ".npm", "__pycache__"})
_MOST_LISTED: Final = 20
#: How mountinfo writes spaces, tabs, newlines and backslashes.
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_RESERVED_PIDS: Final = 300  # the kernel never reuses the first 300 numbers


class SystemPath(NamedTuple):
    """A part of the system, looked up while the old root was seen: nobody but root changes it."""

    path: str
    source: str
    is_link: bool  # a link to `source`, which lies in /usr; everything else is bound
    is_folder: bool


class Bind(NamedTuple):
    """A path that a policy names: looked at when it is bound, and never followed through a symlink."""

    path: str
    writable: bool = False
    source: str = ""  # what is shown at the path; empty for the path itself
    is_tool: bool = False  # bound as it is, like the system, and not through an overlay
    #: A mount point inside a named folder, not a path that the policy names itself.
    is_mount: bool = False
    is_copied: bool = False  # a folder that is seen copy-on-write

    @property
    def is_plain(self) -> bool:
        """Whether it is read, and shown through an overlay if it is a folder."""
        return not (self.writable or self.is_tool or self.source)


class BegunRoot(NamedTuple):
    """A new root that still lacks what a policy names."""

    old: int  # the old root
    lookups: Lookups | None = None


class NewRoot(NamedTuple):
    sealed: bool  # no socket or FIFO of the host is reached through a readable folder
    #: Why a folder that should be copy-on-write is only read; empty if it is copy-on-write, or was not wanted.
    read_only: str
    #: The paths that were bound, but for those from a folder that is seen copy-on-write.
    bound: tuple[str, ...]


@cache
def system_layout(*, network: bool) -> tuple[SystemPath, ...]:
    """What every new root shows of the system."""
    return tuple(
        SystemPath(path, real, real != path and real.startswith("/usr/"), os.path.isdir(real))
        for path in system_paths(network=network)
        if os.path.exists(real := os.path.realpath(path)) or real.startswith("/usr/")
    )


def named(policy: Policy) -> tuple[Bind, ...]:
    """What the policy adds: outer places first, so that inner ones win."""
    copied = policy.copy_on_write.folder if policy.copy_on_write else None
    binds = (
        *(Bind(str(path), is_tool=True) for path in policy.tools),
        *(Bind(str(path), is_copied=path == copied) for path in policy.read),
        *(Bind(str(path), writable=True) for path in policy.write),
        *(Bind(str(mount.target), source=str(mount.source)) for mount in policy.mounts),
    )
    shown = {bind.path: bind for bind in binds if not is_hidden(bind.path, policy.hide)}
    return tuple(sorted(shown.values(), key=lambda bind: bind.path.count("/")))


def pinned_inside(bind: Bind, binds: tuple[Bind, ...]) -> tuple[str, ...]:
    """The paths inside `bind` that need a mount point which nobody outside can move or remove.

    A mount goes with its directory when somebody outside renames that, and what is put in its place is seen instead. So
    the folders on the way to such a path are made in the new root, and everything beside them is bound one by one. A
    writable bind stays whole, because renames in it must work.
    """
    if bind.writable:
        return ()
    inner = [other for other in binds if other.path.startswith(f"{bind.path}/")]
    return tuple(other.path for other in inner if bind.source or other.source)


def home_variables(policy: Policy) -> dict[str, str]:
    """The variables that name the private temp and home."""
    is_taken = Path("/tmp") in (*policy.read, *policy.write)
    return {"TMPDIR": f"{PRIVATE}/tmp" if is_taken else "/tmp", "HOME": f"{PRIVATE}/home"}


def clone(group: Cgroup, *, network: bool) -> int:
    """Like `fork`, but the child is the first process of new namespaces, and everything in them dies with it."""
    return group.clone(_ALWAYS | (0 if network else _NEW_NET))


def begin(layout: Iterable[SystemPath], *, uid: int, gid: int, own_network: bool) -> BegunRoot:
    """Build what every new root has, and move into it. `finish` needs what is returned.

    `uid` and `gid` are those outside. `own_network` says whether `clone` made a net namespace; its loopback interface
    is brought up. Between `begin` and `finish` a process can wait for its request.
    """
    # The same person inside and outside, so what it writes is theirs; only root is nobody inside.
    prctl("DUMPABLE", 1)  # a runtime that changed its user does not own its own files in /proc
    write_file("/proc/self/setgroups", "deny")
    write_file("/proc/self/uid_map", f"{uid or _NOBODY} {uid} 1")
    write_file("/proc/self/gid_map", f"{gid or _NOBODY} {gid} 1")
    if own_network:
        _raise_loopback()
    # As a slave, so that what the machine mounts while we wait appears here too.
    call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
    # Any folder does to stand the new root on; no policy names /proc.
    _mount_small_tmpfs("/proc")
    os.chdir("/proc")
    os.mkdir(".old")
    call("pivot_root", b".", b".old")
    os.chdir("/")
    old = open_path(AT_FDCWD, "/.old")
    lookups: Lookups | None = None
    with contextlib.suppress(OSError):  # no /dev/fuse: a run does not learn what it missed, and sees the same
        # First, so that its process starts while we go on.
        lookups = Lookups(os.open("dev/fuse", os.O_RDWR | os.O_CLOEXEC, dir_fd=old))
    _furnish(old)
    for part in layout:
        if part.is_link:
            _make_folder(os.path.dirname(part.path))
            os.symlink(part.source, part.path)
        else:
            _graft_if_there(old, part.source, part.path, _SYSTEM_ATTRIBUTES, is_folder=part.is_folder)
    call("sethostname", b"localhost", 9)  # a name that resolves, without a file of ours
    try:
        if lookups:
            _note_home(lookups)
    except OSError:  # its process is gone: the same as without /dev/fuse
        lookups = None
    return BegunRoot(old, lookups)


def finish(begun: BegunRoot, policy: Policy, cwd: str, *, pid_limit: bool) -> NewRoot:
    """Add what the policy names, take away what it hides, and let go of the old root."""
    size = b"size=%d" % policy.temp_bytes
    call("mount", b"none", PRIVATE.encode(), None, _MS_REMOUNT | _MS_NOSUID | _MS_NODEV, size)
    if not policy.home_names and os.path.isdir(_HOME_CHANGES):
        call("umount2", f"{PRIVATE}/home".encode(), _MNT_DETACH)
    #: Folders made here, each a mount of its own, that become read-only at the end.
    made = _folders_in_temp(policy, cwd)
    for folder in made:
        os.mkdir(folder)
        _mount_small_tmpfs(folder)
    root = _bind_all(begun, policy, made)
    if begun.lookups:
        begun.lookups.watch(Watched(policy.home_names))
        begun.lookups.detach()
    _hide(policy, root)
    _make_folder(cwd)
    for folder in made:
        _set_attributes(AT_FDCWD, folder, 0, _SYSTEM_ATTRIBUTES)
    os.close(begun.old)
    call("umount2", b"/.old", _MNT_DETACH)
    os.rmdir("/.old")
    if pid_limit:
        # Since Linux 6.14 each pid namespace has its own highest number: a bound that holds for root too.
        write_file("/proc/sys/kernel/pid_max", str(_RESERVED_PIDS + policy.processes))
    # As root outside, the files under /proc/sys are ours to write: read-only is what stops that.
    _set_attributes(AT_FDCWD, "/proc", 0, _PROC_ATTRIBUTES)
    _set_attributes(AT_FDCWD, "/", 0, _SYSTEM_ATTRIBUTES)
    return root


def _note_home(lookups: Lookups) -> None:
    """Show the private home through an overlay above the folder in which lookups are noted."""
    home = lookups.open_home()
    layers = (_HOME_CHANGES, f"{PRIVATE}/home.work")
    for layer in layers:
        os.mkdir(layer, 0o700)
    changes, work = (open_path(AT_FDCWD, layer) for layer in layers)
    try:
        _attach(_make_overlay((home,), (changes, work)), f"{PRIVATE}/home")
    except OSError:  # an older kernel: the home stays as it is, without notes
        os.rmdir(_HOME_CHANGES)
    close_all((home, changes, work))


def list_home(policy: Policy) -> tuple[str, ...]:
    """Return the files that were left in the private home, some of them if there are many; caches are nobody's loss."""
    found: list[str] = []
    home = _HOME_CHANGES if policy.home_names and os.path.isdir(_HOME_CHANGES) else f"{PRIVATE}/home"
    shown = {os.path.relpath(mount.target, f"{PRIVATE}/home") for mount in policy.mounts}
    for folder, folders, names in os.walk(home):
        folders[:] = [name for name in folders if name not in _CACHES]
        paths = (os.path.relpath(os.path.join(folder, name), home) for name in names)
        found += (path for path in paths if path not in shown)
        if len(found) > _MOST_LISTED:
            break
    return tuple(sorted(found)[:_MOST_LISTED])


def tried_network() -> bool:
    """Whether a program in here asked for an address outside, or for a name server, as the kernel counted."""
    lines = [line.split() for line in Path("/proc/self/net/snmp").read_text().splitlines()]
    tables = zip(lines[::2], lines[1::2], strict=True)
    old = {names[0] + name: value for names, values in tables for name, value in zip(names, values, strict=True)}
    new = dict(line.split() for line in Path("/proc/self/net/snmp6").read_text().splitlines())
    asked = (old.get("Ip:OutNoRoutes"), old.get("Udp:NoPorts"), new.get("Ip6OutNoRoutes"), new.get("Udp6NoPorts"))
    return any(int(count or 0) for count in asked)


def _folders_in_temp(policy: Policy, cwd: str) -> list[str]:
    """Folders of the private temp that lead to something real: read-only, or a write beside it would be lost unseen."""
    temp = home_variables(policy)["TMPDIR"]
    binds = {bind.path for bind in named(policy)}
    below = [PurePosixPath(path).relative_to(temp) for path in (*binds, cwd) if path.startswith(f"{temp}/")]
    tops = dict.fromkeys(f"{temp}/{path.parts[0]}" for path in below)
    return [top for top in tops if top not in binds]


def _raise_loopback() -> None:
    """Bring `lo` up, which gives 127.0.0.1 and ::1 to the programs inside. It leads nowhere else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("=16sH22x", b"lo", _IFF_UP))


def _mount_small_tmpfs(target: str) -> None:
    call("mount", b"tmpfs", os.fsencode(target), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"size=1m,mode=755")


# Private, too: what the machine mounts there later would come without these attributes.
_SYSTEM_ATTRIBUTES, _WRITE_ATTRIBUTES, _DEVICE_ATTRIBUTES, _PROC_ATTRIBUTES = (
    buffer("=4Q", value, 0, _MS_PRIVATE, 0)
    for value in (_READ_ONLY | _NO_SUID | _NO_DEVICES, _NO_SUID | _NO_DEVICES, _NO_SUID | _NO_EXEC, _READ_ONLY)
)
_Attributes = ctypes.Array[ctypes.c_char]
_CLONE: Final = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE


def _set_attributes(folder: int, path: str, flags: int, attributes: _Attributes) -> None:
    call("mount_setattr", folder, os.fsencode(path), flags, attributes, ctypes.sizeof(attributes))


def _graft(root: int, source: bytes, target: str, attributes: _Attributes) -> None:
    """Show `source`, with all that is mounted below it, at `target` too. An empty source is `root` itself."""
    tree = call("open_tree", root, source, _CLONE | (0 if source else _AT_EMPTY_PATH))
    _set_attributes(tree, "", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes)
    _attach(tree, target)


def _graft_if_there(old: int, source: str, target: str, attributes: _Attributes, *, is_folder: bool) -> None:
    """Show a path of the old root; it may have been removed, and not every container has all devices."""
    _make_place(target, is_folder=is_folder)
    with contextlib.suppress(FileNotFoundError):
        _graft(old, os.fsencode(source[1:]), target, attributes)


def _attach(tree: int, target: str) -> None:
    """Mount a detached tree at `target`, and close it."""
    call("move_mount", tree, b"", AT_FDCWD, os.fsencode(target), _MOVE_FROM_EMPTY_PATH)
    os.close(tree)


def _furnish(old: int) -> None:
    """The private temp and home, /tmp, /dev and /proc."""
    for folder in ("/run", PRIVATE, "/tmp", "/dev", "/dev/shm", "/dev/pts", "/proc"):
        os.mkdir(folder)
    call("mount", b"tmpfs", PRIVATE.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755")
    for name, target in (("home", ""), ("tmp", "/tmp"), ("shm", "/dev/shm")):
        os.mkdir(f"{PRIVATE}/{name}", 0o700)
        if target:
            _graft(AT_FDCWD, f"{PRIVATE}/{name}".encode(), target, _WRITE_ATTRIBUTES)
    for device in DEVICES:
        _graft_if_there(old, device, device, _DEVICE_ATTRIBUTES, is_folder=False)
    options = b"newinstance,ptmxmode=0666,mode=620"
    call("mount", b"devpts", b"/dev/pts", b"devpts", _MS_NOSUID | _MS_NOEXEC, options)
    os.symlink("pts/ptmx", "/dev/ptmx")
    os.symlink("/proc/self/fd", "/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
    call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _bind_all(begun: BegunRoot, policy: Policy, made: list[str]) -> NewRoot:
    """Bind what the policy names. Add to `made` the folders around mounts that must still become read-only."""
    os.mkdir(_EMPTY, 0o755)
    empty = open_path(AT_FDCWD, _EMPTY)
    sealed, read_only, top, bound = True, "", "", list[str]()
    try:
        over = _make_copy_on_write(begun, policy, empty)
    except OSError as error:
        over, read_only, policy = None, error.strerror or str(error), policy.without_copy_on_write()
        if error.errno == errno.EINVAL:
            read_only = f"the folder for its changes cannot be an upper layer: {read_only}"
    binds, mounts = named(policy), _mount_points()
    for bind in with_mounts_below(binds, policy.hide, mounts):
        if over is not None and bind.is_copied:
            _make_place(bind.path, is_folder=True)
            call("move_mount", over, b"", AT_FDCWD, os.fsencode(bind.path), _MOVE_FROM_EMPTY_PATH)
            top = bind.path
            continue
        is_guarded = bool(top) and _is_guarded(bind, top, mounts)
        try:
            path = bind.path[len(top) + 1 :] if is_guarded else (bind.source or bind.path)[1:]
            place = open_path(over if over is not None and is_guarded else begun.old, path)
        except FileNotFoundError:
            if bind.writable or bind.source:
                raise
            continue  # what is not there cannot be read either
        bound += [] if is_guarded else [bind.path]
        with closing_fd(place):
            sealed &= _bind(place, bind, binds, None if is_guarded else empty, made)
    close_all((empty,) if over is None else (empty, over))
    return NewRoot(sealed, read_only, tuple(bound))


def _is_guarded(bind: Bind, top: str, mounts: Iterable[str]) -> bool:
    """Whether it is bound, read-only, from the copy-on-write folder `top`: nothing is mounted at it or on the way."""
    if not bind.is_plain or bind.is_mount or not bind.path.startswith(f"{top}/"):
        return False
    return not any(is_inside(bind.path, mount) and mount.startswith(f"{top}/") for mount in mounts)


def _bind(place: int, bind: Bind, binds: tuple[Bind, ...], empty: int | None, made: list[str]) -> bool:
    """Bind one path; see `_bind_all`. Without `empty`, the second layer of an overlay, it comes from one already.

    An overlay keeps the mounts inside it by itself; without one the folders that lead to them are made here, and what
    lies beside them is bound one by one.
    """
    mode = os.stat(place).st_mode
    is_folder = stat.S_ISDIR(mode)
    if not bind.is_mount:
        refuse_special(bind.path, mode)
    around = _around(bind.path, binds)
    is_shown = around is not None and not (around.writable or around.is_tool or around.is_copied)
    if not (is_folder or stat.S_ISREG(mode)) or (is_shown and bind.is_plain and not bind.is_mount):
        return True
    _make_place(bind.path, is_folder=is_folder)
    to_seal = is_folder and bind.is_plain and empty is not None
    if to_seal and empty is not None:
        with contextlib.suppress(OSError):
            _attach(_make_overlay((place, empty)), bind.path)
            return True
    pinned = pinned_inside(bind, binds)
    if pinned and is_folder and (to_seal or bind.source):
        _mount_small_tmpfs(bind.path)
        _bind_children(place, bind.path, pinned)
        made.append(bind.path)
    else:
        _graft(place, b"", bind.path, _WRITE_ATTRIBUTES if bind.writable else _SYSTEM_ATTRIBUTES)
    return not to_seal


def _make_overlay(lower: Sequence[int], upper: tuple[int, int] | None = None) -> int:
    """Return a detached overlay mount of folders, the top one first; all are O_PATH descriptors.

    `upper` is the layer that takes the changes, with its work folder. Without one overlayfs wants two lower layers: an
    empty one stands at the bottom, so that the folder's own attributes are seen. Layers go by descriptor, because names
    may hold commas and colons, and because a path could be swapped. Does not show what is mounted below the folders.
    """
    options: list[tuple[bytes, bytes | int | None]] = [
        # Without it the marks of overlayfs are trusted.* attributes, which a user namespace may not read.
        (b"userxattr", None),
        # One device number for files and folders, where inode numbers leave room for that.
        (b"xino", b"auto"),
    ]
    if upper:  # nobody mounts this upper layer again, so nothing needs to wait for the disk
        options += ((b"upperdir", upper[0]), (b"workdir", upper[1]), (b"volatile", None))
    options += ((b"lowerdir+", folder) for folder in lower)
    return make_mount(b"overlay", options, read_only=upper is None)


def _make_copy_on_write(begun: BegunRoot, policy: Policy, empty: int) -> int | None:
    """Return a detached mount of a folder whose changes go to the upper layer; None if the policy wants none."""
    over = policy.copy_on_write
    if over is None:
        return None
    opened: list[int] = []
    try:
        opened += (open_path(begun.old, str(path)[1:]) for path in over[:4] if path)
        folder, changes, work, *earlier = opened
        watched = Watched(policy.home_names, *_hidden_in(folder, str(over.folder), policy.hide))
        hiding: tuple[int, ...] = ()
        if begun.lookups:
            begun.lookups.watch(watched)
            hiding = (begun.lookups.hidden,) if watched.hidden else ()
        elif watched.hidden:
            opened.append(_make_hiding_layer(watched))
            hiding = (opened[-1],)
        return _make_overlay((*earlier, *hiding, folder, empty), (changes, work))
    finally:
        close_all(opened)


def _make_hiding_layer(watched: Watched) -> int:
    """Make a layer in which every hidden path inside a folder is a whiteout: not listed, not there.

    The folders on the way have the modes of those below, because the upper ones are seen.
    """
    for inner, (mode, _) in watched.folders.items():
        os.mkdir(f"{_HIDING}/{inner}".rstrip("/"), mode)
    for name in watched.hidden:
        os.mknod(f"{_HIDING}/{name}", stat.S_IFCHR, 0)
    return open_path(AT_FDCWD, _HIDING)


def _hidden_in(folder: int, path: str, hidden: Sequence[Path]) -> tuple[tuple[str, ...], dict[str, tuple[int, int]]]:
    """Return the hidden paths inside a folder, relative to it, and mode and mtime of the folders that lead to them."""
    names, seen = dict[str, None](), {"": os.stat(folder)}
    for secret in sorted(map(str, hidden)):
        if not secret.startswith(f"{path}/"):
            continue
        name = secret[len(path) + 1 :]
        above = [name[:at] for at, letter in enumerate(name) if letter == "/"]
        if any(inner in names for inner in above):
            continue  # inside another one
        try:
            found = {inner: os.stat(inner, dir_fd=folder, follow_symlinks=False) for inner in above}
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is gone
        if all(stat.S_ISDIR(each.st_mode) for each in found.values()):
            seen |= found
            names[name] = None
    return tuple(names), {path: (stat.S_IMODE(each.st_mode) | 0o300, each.st_mtime_ns) for path, each in seen.items()}


def _bind_children(place: int, path: str, pinned: tuple[str, ...]) -> None:
    """Everything in a folder but the pinned paths, which get their own mounts later."""
    with closing_fd(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)) as listed:
        for name in os.listdir(listed):
            if f"{path}/{name}" not in pinned:
                with contextlib.suppress(FileNotFoundError):  # removed since we listed it
                    _bind_child(listed, name, f"{path}/{name}", pinned)


def _bind_child(folder: int, name: str, child: str, pinned: tuple[str, ...]) -> None:
    with closing_fd(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as place:
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
        and not is_hidden(mount, hidden)
    }
    return tuple(sorted((*binds, *more.values()), key=lambda bind: bind.path.count("/")))


def _mount_points() -> tuple[str, ...]:
    """Where something is mounted in the old root, as paths there."""
    with open("/proc/self/mountinfo", "rb") as lines:
        points = [line.split(b" ", 5)[4] for line in lines]
    found = (_ESCAPED.sub(lambda part: bytes((int(part[1], 8),)), point) for point in points if b"/.old/" in point)
    return tuple(os.fsdecode(point[len(b"/.old") :]) for point in found if point.startswith(b"/.old/"))


def _hide(policy: Policy, root: NewRoot) -> None:
    """Cover what is hidden and yet lies inside something named. A layer hides what is inside a copy-on-write folder."""
    over = policy.copy_on_write
    layered = str(over.folder) if over and not root.read_only else ""
    inner = [path for path in root.bound if is_inside(path, layered)]
    for path in policy.hide:
        if layered and is_inside(str(path), layered) and not any(is_inside(str(path), other) for other in inner):
            continue
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
