"""What a payload could harm, one for each try: secrets, files, listeners, a process and IPC objects, all throw-away."""

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

#: An ordinary user without an account, who owns nothing but what the harness gives.
ORDINARY = 12345
LIBC = ctypes.CDLL(None, use_errno=True)
_VICTIM = """
import ctypes, os, sys
held = ctypes.create_string_buffer(os.environ["VICTIM_SECRET"].encode(), 256)
file = os.open(sys.argv[1], os.O_RDONLY)
print(ctypes.addressof(held), file, flush=True)
sys.stdin.read()
"""


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    argv: tuple[str, ...]


def processes() -> Iterator[Process]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                yield Process(int(folder.name), int(fields[1]), tuple(words))


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process.pid)
    found, ahead = [], [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def marked(mark: str) -> list[int]:
    """Payloads of this try, wherever they hang in the process tree."""
    return [p.pid for p in processes() if Path(p.argv[0]).name.startswith("python") and any(mark in w for w in p.argv)]


def kill_marked(mark: str) -> None:
    """End what a successful payload left running; nothing but our own payload carries the mark."""
    for _ in range(50):
        left = marked(mark)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        if not left:
            return


@contextlib.contextmanager
def crowd() -> Iterator[Path | None]:
    """A cgroup of its own for the processor, as a container or a service has; None where it cannot be made.

    Outside of one the kernel's autogroup gives every session its share, which hides whether somebody can be starved.
    """
    for place in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup")):
        if os.getuid() == 0 and ((place / "cpu.shares").exists() or (place / "cgroup.subtree_control").exists()):
            group = place / f"attack-{secrets.token_hex(6)}"
            try:
                group.mkdir()
            except OSError:
                continue
            try:
                yield group / "cgroup.procs"
            finally:
                for _ in range(100):
                    with contextlib.suppress(OSError):
                        group.rmdir()
                        break
                    time.sleep(0.05)
            return
    yield None


class Victim:
    """A process of the same user outside the sandbox, with a secret in every place where one can be."""

    def __init__(self, python: str, uid: int, file: Path, secret: str) -> None:
        self.process = subprocess.Popen(
            [python, "-I", "-S", "-c", _VICTIM, str(file), f"--password={secret}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"VICTIM_SECRET": secret},
            cwd=file.parent,
            user=uid,
            group=uid,
            extra_groups=[] if os.getuid() == 0 else None,
        )
        assert self.process.stdout is not None
        self.address, self.file = map(int, self.process.stdout.readline().split())

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


class Ipc:
    """System V and POSIX objects that everybody may use, as careless programs leave them."""

    def __init__(self, secret: str) -> None:
        self.shm = LIBC.shmget(0, 4096, 0o1666)
        LIBC.shmat.restype = ctypes.c_void_p
        self._at = LIBC.shmat(self.shm, None, 0)
        ctypes.memmove(self._at, secret.encode(), len(secret))
        self.msg = LIBC.msgget(0, 0o1666)
        self.sem = LIBC.semget(0, 1, 0o1666)
        self.posix = f"attack-{secrets.token_hex(6)}"
        shared = Path("/dev/shm") / self.posix
        shared.write_text(secret)
        shared.chmod(0o666)
        attributes = struct.pack("8l", 0, 4, 256, 0, 0, 0, 0, 0)
        before = os.umask(0)
        try:
            self._queue = LIBC.mq_open(
                f"/{self.posix}".encode(), os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o666, attributes
            )
        finally:
            os.umask(before)

    def changed(self, token: str) -> str:
        if token.encode() in ctypes.string_at(self._at, 4096):
            return "wrote the shared memory"
        held = ctypes.create_string_buffer(512)
        if LIBC.msgrcv(self.msg, held, 256, 0, 0o4000) >= 0:
            return "sent to the message queue"
        if LIBC.semctl(self.sem, 0, 12) == 77:
            return "changed the semaphore"
        if self._queue >= 0 and LIBC.mq_receive(self._queue, held, 512, None) >= 0:
            return "sent to the POSIX queue"
        return ""

    def close(self) -> None:
        LIBC.shmdt(ctypes.c_void_p(self._at))
        LIBC.shmctl(self.shm, 0, None)
        LIBC.msgctl(self.msg, 0, None)
        LIBC.semctl(self.sem, 0, 0)
        (Path("/dev/shm") / self.posix).unlink(missing_ok=True)
        if self._queue >= 0:
            LIBC.mq_unlink(f"/{self.posix}".encode())
            os.close(self._queue)


class Listeners:
    """Everything outside that could hear a payload."""

    def __init__(self, root: Path) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.tcp6 = socket.create_server(("::1", 0), family=socket.AF_INET6) if socket.has_ipv6 else None
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.free = int(free.getsockname()[1])
        self.name = f"attack-{secrets.token_hex(6)}"
        self.unix: list[socket.socket] = []
        for address in (f"\0{self.name}", f"{root}/outside/stream", f"{root}/open/stream"):
            self.unix.append(self._bound(socket.SOCK_STREAM, address))
            self.unix[-1].listen()
        for address in (f"\0{self.name}-d", f"{root}/outside/dgram", f"{root}/open/dgram"):
            self.unix.append(self._bound(socket.SOCK_DGRAM, address))
        os.mkfifo(root / "open/fifo")
        (root / "open/fifo").chmod(0o666)
        self.fifo = os.open(root / "open/fifo", os.O_RDWR | os.O_NONBLOCK)

    @staticmethod
    def _bound(kind: int, address: str) -> socket.socket:
        bound = socket.socket(socket.AF_UNIX, kind)
        bound.bind(address)
        if not address.startswith("\0"):
            Path(address).chmod(0o777)
        return bound

    @property
    def sockets(self) -> dict[str, socket.socket]:
        names = ("abstract socket", "socket outside", "socket in a readable folder")
        both = [f"{kind}{name}" for kind in ("", "datagram ") for name in names]
        known = {"TCP": self.tcp, "UDP": self.udp, **dict(zip(both, self.unix, strict=True))}
        return known | ({"TCP over IPv6": self.tcp6} if self.tcp6 else {})

    def heard(self, token: str) -> str:
        for name, listener in self.sockets.items():
            listener.setblocking(False)
            with contextlib.suppress(OSError):
                if listener.type == socket.SOCK_DGRAM:
                    said = listener.recv(1000)
                else:
                    client, _ = listener.accept()
                    with client:
                        client.settimeout(1)
                        said = client.recv(1000)
                if token.encode() in said:
                    return f"was heard by {name}"
        with contextlib.suppress(OSError):
            if token.encode() in os.read(self.fifo, 1000):
                return "wrote to the FIFO"
        return ""

    def close(self) -> None:
        for listener in self.sockets.values():
            listener.close()
        os.close(self.fifo)


class Ground:
    """One fresh folder for one try of one payload. Leave it with `close`."""

    def __init__(self, base: Path, python: str, uid: int) -> None:
        self.uid = uid
        self.token = secrets.token_hex(12)
        #: Only an escape can carry it to where the harness finds it.
        self.secret = f"secret-{secrets.token_hex(12)}"
        self.root = Path(tempfile.mkdtemp(prefix="ground-", dir=base)).resolve()
        self.root.chmod(0o755)
        for folder in ("home/.ssh", "outside", "open/hidden", "out"):
            (self.root / folder).mkdir(parents=True)
        files = {
            "home/.ssh/id": self.secret,
            f"home/{self.secret}": "",
            "outside/victim": "untouched",
            "open/file": "welcome",
            "open/hidden/token": self.secret,
            f"open/hidden/{self.secret}": "",
            "open/payloads.py": (Path(__file__).parent / "payloads.py").read_text(),
        }
        for name, text in files.items():
            (self.root / name).write_text(text)
        self.listeners = Listeners(self.root)
        if os.getuid() == 0:
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, uid, uid)
        self.victim = Victim(python, uid, self.root / "home/.ssh/id", self.secret)
        self.ipc = Ipc(self.secret)
        self._before = self._outside()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        kill_marked(self.token)
        self.victim.close()
        self.listeners.close()
        self.ipc.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def write_given(self, **more: Any) -> Path:
        """What a payload must know, in a file that it may read."""
        ears = self.listeners
        given = {
            "ground": str(self.root),
            "token": self.token,
            "tcp": ears.tcp.getsockname()[1],
            "tcp6": ears.tcp6.getsockname()[1] if ears.tcp6 else 0,
            "udp": ears.udp.getsockname()[1],
            "free": ears.free,
            "abstract": ears.name,
            "abstract_dgram": f"{ears.name}-d",
            "victim": self.victim.pid,
            "victim_file": self.victim.file,
            "address": self.victim.address,
            "shm": self.ipc.shm,
            "msg": self.ipc.msg,
            "sem": self.ipc.sem,
            "posix": self.ipc.posix,
            "handle": _handle(self.root / "home/.ssh/id"),
            "init": Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19],
            **more,
        }
        file = self.root / f"open/given-{self.token}.json"
        file.write_text(json.dumps(given))
        file.chmod(0o644)
        return file

    def _outside(self) -> list[tuple[Any, ...]]:
        """What must be the same afterwards: everything that the payload may not write."""
        found: list[tuple[Any, ...]] = []
        for place in ("outside", "open", "home"):
            for path in sorted((self.root / place).rglob("*")):
                if path.name.startswith("given-"):
                    continue
                about = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                named = os.listxattr(path, follow_symlinks=False) if path.is_file() else []
                found.append((str(path), about.st_mode, about.st_uid, int(about.st_mtime), content, tuple(named)))
        return found

    def changed(self) -> str:
        now = self._outside()
        if now == self._before:
            return ""
        difference = [entry[0] for entry in {*now} ^ {*self._before}]
        return f"changed {Path(difference[0]).relative_to(self.root)}"


def _handle(path: Path) -> tuple[int, str]:
    """The kernel's handle of a file, as a person who once saw it could know it."""
    held = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    if LIBC.name_to_handle_at(-100, os.fsencode(path), held, ctypes.byref(mount), 0) != 0:
        return 0, ""
    size, kind = struct.unpack_from("Ii", held.raw)
    return kind, held.raw[8 : 8 + size].hex()
