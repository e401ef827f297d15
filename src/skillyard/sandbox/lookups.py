"""Notes which of the names that are kept from a run it looked for: a small file system, served by a process of its own.

It has two folders, both lower layers of overlays. `home` stands below the private home: empty, but each name that a
program looks up there arrives here. `hidden` stands above a folder that is seen copy-on-write: its whiteouts take the
hidden names out of sight. What is noted is the name's place in a list that the runtime made, so that a program cannot
have anything noted that is not on the list. It is served before a run's names are known, so that no run waits for it.

Not covered: names in a home folder that was looked up as a whole (its first name is noted), and machines without
/dev/fuse, where nothing is noted.
"""

import contextlib
import json
import os
import signal
import stat
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from skillyard.sandbox.syscalls import call, drop_capabilities, make_mount, prctl

_HOME: Final = "home"
_HIDDEN: Final = "hidden"
#: Folders of a home in which many programs have their own; they are there, and what is looked up in them is noted.
SHARED_FOLDERS: Final = (".config", ".local", ".local/share")

# The protocol of /dev/fuse, version 7.31: linux/fuse.h.
_VERSION: Final = (7, 31)
_LOOKUP, _FORGET, _GETATTR, _STATFS, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 1, 2, 3, 17, 26, 27, 28, 29
_INTERRUPT, _DESTROY, _BATCH_FORGET = 36, 38, 42
_UNANSWERED: Final = frozenset({_FORGET, _BATCH_FORGET, _INTERRUPT})
_NOT_KNOWN: Final = -38
_MOST_WRITTEN: Final = 4096
_ALWAYS_SAME: Final = {
    _INIT: struct.pack("=4I2H4I2H", *_VERSION, 0, 0, 1, 1, _MOST_WRITTEN, 1, 0, 0, 0, 0).ljust(64, b"\0"),
    _STATFS: struct.pack("=5Q4I", 0, 0, 0, 0, 0, 4096, 255, 4096, 0).ljust(80, b"\0"),
    _DESTROY: b"",
}
_REQUEST: Final = struct.Struct("=IIQQIIII")
_REPLY: Final = struct.Struct("=IiQ")
_ATTRIBUTES: Final = struct.Struct("=6Q10I")
_ENTRY: Final = struct.Struct("=4Q2I")
_DIRECTORY_ENTRY: Final = struct.Struct("=QQII")
_REQUEST_BYTES: Final = 65_536
_FOREVER: Final = 1 << 30
_WHITEOUT: Final = stat.S_IFCHR
_NOTE: Final = struct.Struct("=I")


class _Node:
    """A folder, or a whiteout; its number is its place in the list of all."""

    def __init__(self, number: int, mode: int, changed: int = 0) -> None:
        self.number, self.mode, self.changed = number, mode, changed
        self.children: dict[bytes, _Node] = {}
        self.notes: dict[bytes, int] = {}  # for the names that are noted: their place in the list

    def attributes(self) -> bytes:
        seconds, rest = divmod(self.changed, 1_000_000_000)
        times = (seconds, seconds, seconds, rest, rest, rest)
        return _ATTRIBUTES.pack(self.number, 0, 0, *times, self.mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)

    def list(self, offset: int, size: int) -> bytes:
        """Return directory entries from `offset` on, as many as fit."""
        content = b""
        for at, (name, child) in list(enumerate(self.children.items(), 1))[offset:]:
            entry = _DIRECTORY_ENTRY.pack(child.number, at, len(name), child.mode >> 12) + name
            entry += bytes(-len(entry) % 8)
            if len(content) + len(entry) > size:
                break
            content += entry
        return content


class Watched(NamedTuple):
    """The names that are noted: in the home, and hidden in a folder, with the folders on the way: mode and mtime."""

    home: Sequence[str] = ()
    hidden: Sequence[str] = ()
    folders: Mapping[str, tuple[int, int]] = {}

    def tree(self) -> list[_Node]:
        """Return all nodes. The first ones, down to the shared folders of a home, are the same whatever is watched."""
        hidden = [f"{_HIDDEN}/{path}" for path in self.hidden]
        known = dict.fromkeys((_HOME, _HIDDEN), (stat.S_IFDIR | 0o755, 0)) | dict.fromkeys(hidden, (_WHITEOUT, 0))
        known |= {f"{_HIDDEN}/{path}": (stat.S_IFDIR | mode, time) for path, (mode, time) in self.folders.items()}
        nodes = {"": _Node(1, stat.S_IFDIR | 0o755)}

        def node(path: str) -> _Node:
            if path not in nodes:
                above, _, name = path.rpartition("/")
                siblings = node(above).children
                mode, changed = known.get(path, (stat.S_IFDIR | 0o700, 0))
                nodes[path] = siblings[os.fsencode(name)] = _Node(len(nodes) + 1, mode, changed)
            return nodes[path]

        for path in (_HOME, _HIDDEN, *(f"{_HOME}/{path}" for path in SHARED_FOLDERS)):
            node(path)
        for note, path in enumerate((*(f"{_HOME}/{path}" for path in self.home), *hidden)):
            above, _, name = path.rpartition("/")
            node(above).notes[os.fsencode(name)] = note
        for path in hidden:
            node(path)
        return list(nodes.values())


class Lookups:
    """The file system while it is served. Make it in the user namespace of the run, in a process with one thread."""

    def __init__(self, device: int) -> None:
        """Mount it, detached, and start its process. `device` is /dev/fuse, opened in this user namespace."""
        self._watched: Watched | None = None
        #: O_PATH descriptor of the folder of whiteouts, as soon as `open_home` was called.
        self.hidden = -1
        owner = (b"user_id", b"%d" % os.getuid()), (b"group_id", b"%d" % os.getgid())
        self._mount = make_mount(b"fuse", ((b"fd", b"%d" % device), (b"rootmode", b"40000"), *owner), read_only=True)
        self._notes, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names = os.memfd_create("names", os.MFD_CLOEXEC)
        # Without SIGCHLD it is none of the children that `waitpid` waits for; it ends with the namespaces.
        if call("clone", 0) == 0:
            _LookupServer(device, told, self._names).serve()
        os.close(device)
        os.close(told)

    def watch(self, watched: Watched) -> None:
        """Say which names are noted, before anybody else can look something up. Only the first call counts."""
        if self._watched is None:
            self._watched = watched
            os.write(self._names, json.dumps(watched).encode())
            os.close(self._names)

    def open_home(self) -> int:
        """Wait until it is served, and return an O_PATH descriptor of the home."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        home, self.hidden = (os.open(name, flags, dir_fd=self._mount) for name in (_HOME, _HIDDEN))
        with contextlib.suppress(OSError):  # the kernel asks once; overlayfs would ask in each run
            os.getxattr(f"/proc/self/fd/{self.hidden}", "user.overlay.opaque")
        return home

    def detach(self) -> None:
        """Let go of the file system itself, when the overlays are mounted: they keep what they use."""
        os.close(self._mount)
        os.close(self.hidden)

    def read(self) -> tuple[str, ...]:
        """Return what was looked for until now, as in `Exit.looked_for`."""
        content = b""
        with contextlib.suppress(BlockingIOError):  # no more
            while piece := os.read(self._notes, 1 << 16):
                content += piece
        found = {note for (note,) in _NOTE.iter_unpack(content[: len(content) // _NOTE.size * _NOTE.size])}
        home, hidden, _ = self._watched or Watched()
        names = (*(f"~/{name}" for name in home), *hidden)
        return tuple(name for note, name in enumerate(names) if note in found)


class _LookupServer:
    def __init__(self, device: int, told: int, names: int) -> None:
        self._device, self._told = device, told
        #: The names to note, as soon as the process that made us has written them.
        self._names: int | None = names
        self._nodes = Watched().tree()
        self._noted: set[int] = set()
        #: Who lists a folder at the moment: overlayfs looks up the whiteouts that it finds there by itself. The process
        #: that made us, which builds the root, is never meant.
        self._listing = {0: os.getppid()}
        self._handles = 0

    def serve(self) -> NoReturn:
        """Answer until the last user is gone, or we are killed."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.set_wakeup_fd(-1)
            keep = sorted((self._device, self._told, self._names or 0))
            for low, high in zip((0, *(file + 1 for file in keep)), (*keep, 65_536), strict=True):
                os.closerange(low, high)
            prctl("DUMPABLE", 0)
            drop_capabilities()
            while request := os.read(self._device, _REQUEST_BYTES):
                self._answer(request)
        finally:
            os._exit(0)

    def _answer(self, request: bytes) -> None:
        _, operation, unique, number, _, _, process, _ = _REQUEST.unpack_from(request)
        if operation in _UNANSWERED:
            return
        if self._names is not None and (size := os.fstat(self._names).st_size):
            self._nodes = Watched(*json.loads(os.pread(self._names, size, 0))).tree()
            os.close(self._names)
            self._names = None
        body, error = b"", 0
        content = request[_REQUEST.size :]
        if operation in _ALWAYS_SAME:
            body = _ALWAYS_SAME[operation]
        elif not 0 < number <= len(self._nodes):
            error = _NOT_KNOWN
        elif operation == _LOOKUP:
            body = self._look_up(self._nodes[number - 1], content.rstrip(b"\0"), process)
        elif operation == _GETATTR:
            body = struct.pack("=QII", _FOREVER, 0, 0) + self._nodes[number - 1].attributes()
        elif operation == _OPENDIR:
            self._handles += 1
            self._listing[self._handles] = process
            body = struct.pack("=QII", self._handles, 0, 0)
        elif operation == _READDIR:
            body = self._nodes[number - 1].list(*struct.unpack_from("=8xQI", content))
        elif operation == _RELEASEDIR:
            self._listing.pop(struct.unpack_from("=Q", content)[0], None)
        else:
            error = _NOT_KNOWN
        os.write(self._device, _REPLY.pack(_REPLY.size + len(body), error, unique) + body)

    def _look_up(self, place: _Node, name: bytes, process: int) -> bytes:
        note = place.notes.get(name)
        if note is not None and note not in self._noted and process not in self._listing.values():
            self._noted.add(note)
            with contextlib.suppress(BlockingIOError):  # thousands of notes: the first ones must do
                os.write(self._told, _NOTE.pack(note))
        found = place.children.get(name)
        if found is None:
            return _ENTRY.pack(0, 0, _FOREVER, 0, 0, 0) + bytes(_ATTRIBUTES.size)
        # A whiteout is asked for anew each time: the first one to look may have been overlayfs.
        keep = 0 if found.mode == _WHITEOUT else _FOREVER
        return _ENTRY.pack(found.number, 0, keep, _FOREVER, 0, 0) + found.attributes()
