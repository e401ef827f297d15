"""What our processes exchange: a request to start a program, its report, the streams of a run, and how they travel.

A request goes to the starter and on to a supervisor as an `FdMessage`; a report comes back on the control socket of the
run as one line of JSON. The three pipes of a run are fed and drained together by the thread that waits for it.

Covered: a program that does not read, or writes without end, or leaves a pipe open, blocks nobody and fills no memory;
the wait ends with the supervisor's report and not with the pipes; bytes stay bytes."""

import array
import contextlib
import fcntl
import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from skillyard.sandbox.launch import STDERR_BYTES, CopyOnWrite, Exit, Launch, Mount, Policy
from skillyard.sandbox.layers import Layers

#: The kinds of messages: a probe, a run in namespaces, every other run, a proxy for the hosts of a run.
PROBE, INSIDE, OUTSIDE, PROXY = b"p", b"i", b"o", b"x"
#: Sent by a supervisor, with a listening socket, before the run starts. No report starts with it.
LISTENER: Final = b"L"
STARTER_SOCKET: Final = 3  # the descriptor on which the starter receives messages

_FD_COUNT: Final = 5


class SpawnRequest(NamedTuple):
    """What a supervisor must know to run one program."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    limit_seconds: float
    layers: Layers
    policy: Policy | None

    def as_json(self) -> dict[str, Any]:
        """What `FdMessage.make` can write."""
        return self._asdict() | {"layers": self.layers.as_json(), "policy": self.policy and self.policy._asdict()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        policy = _as_policy(data["policy"]) if data["policy"] else None
        return cls(**data | {"argv": tuple(data["argv"]), "layers": Layers.from_json(data["layers"]), "policy": policy})


def _as_policy(data: dict[str, Any]) -> Policy:
    over = None
    if layers := data["copy_on_write"]:
        folder, upper, work, below = (place and Path(place) for place in layers[:4])
        over = CopyOnWrite(folder, upper, work, below, tuple(map(Path, layers[4])))
    paths = {name: tuple(map(Path, data[name])) for name in ("read", "write", "tools", "hide")}
    names = {name: tuple(data[name]) for name in ("hosts", "home_names")}
    mounts = tuple(Mount(Path(source), Path(target)) for source, target in data["mounts"])
    return Policy(**data | paths | names | {"copy_on_write": over, "mounts": mounts})


def close_all(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


class FdMessage(NamedTuple):
    """A message that carries file descriptors."""

    kind: bytes
    body: int  # a file in memory with the content as JSON, however long it is
    control: int  # the supervisor's side of the run's control socket
    streams: tuple[int, int, int]

    @classmethod
    def make(cls, kind: bytes, content: dict[str, Any], control: socket.socket, streams: tuple[int, int, int]) -> Self:
        body = os.memfd_create("request")
        os.write(body, json.dumps(content, default=str).encode())  # to memory: all of it
        return cls(kind, body, control.fileno(), streams)

    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(os.pread(self.body, os.fstat(self.body).st_size, 0))
        return content

    def send(self, channel: socket.socket) -> None:
        """Raise BrokenPipeError if nobody is left to read it. One packet: threads need no lock."""
        rights = array.array("i", (self.body, self.control, *self.streams))
        channel.sendmsg([self.kind], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_NOSIGNAL)

    @classmethod
    def receive(cls, channel: socket.socket) -> Self | None:
        """Return None when the other side is gone."""
        # Not `socket.recv_fds`: it ignores its flags, and what is received must never be inherited.
        fds = array.array("i")
        kind, sent, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(_FD_COUNT * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
        for _, _, rights in sent:
            fds.frombytes(rights[: len(rights) - len(rights) % fds.itemsize])
        return cls(kind, fds[0], fds[1], (fds[2], fds[3], fds[4])) if kind and len(fds) == _FD_COUNT else None

    def close(self) -> None:
        """Close all received descriptors. Call only on the receiving side."""
        close_all((self.body, self.control, *self.streams))


def send(channel: socket.socket, report: dict[str, Any]) -> None:
    channel.sendall(json.dumps(report).encode() + b"\n")


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """Return None if the other side ended before it had said everything."""
    with contextlib.suppress(ConnectionError), channel.makefile("rb") as stream:
        line = stream.readline()
        if line.endswith(b"\n"):
            report: dict[str, Any] = json.loads(line)
            return report
    return None


_TAIL_BYTES: Final = 65_536  # how much is kept of the end when there is too much
_PIECE_BYTES: Final = 262_144  # how much is read at once
_PIPE_BYTES: Final = 1 << 20  # a wide pipe means fewer turns for ten megabytes
_F_SETPIPE_SZ: Final = 1031
_LOOK_SECONDS: Final = 1.0  # how often `Launch.is_too_much` is asked
_LAST_PIECES: Final = 64  # how many pieces can still be in the pipes when every writer is gone

StreamFds = tuple[int, int, int]


class Capture:
    """Keeps the first `head_bytes`, counts everything, and past the head remembers the last `tail_bytes`."""

    def __init__(self, head_bytes: int, tail_bytes: int = _TAIL_BYTES) -> None:
        self.total = 0
        self._head_bytes, self._tail_bytes = head_bytes, tail_bytes
        self.head, self.tail = bytearray(), bytearray()

    @property
    def overflowed(self) -> bool:
        return self.total > self._head_bytes

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = self._head_bytes - len(self.head)
        self.head += piece[:room]
        self.tail = (self.tail + piece[room:])[-self._tail_bytes :]

    def shortened(self) -> bytes:
        """Head and tail, with a line between them that says how much was left out."""
        left_out = self.total - len(self.head) - len(self.tail)
        return bytes(self.head + (b"\n[... %d bytes left out ...]\n" % left_out if left_out else b"") + self.tail)


@contextlib.contextmanager
def attached_pipes() -> Iterator[tuple[StreamFds, StreamFds]]:
    """Yield the program's ends of its streams and ours. Closes the first after the block; ours only if it failed."""
    (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
    try:
        yield (their_in, their_out, their_err), (our_in, our_out, our_err)
    except BaseException:
        close_all((our_in, our_out, our_err))
        raise
    finally:
        close_all((their_in, their_out, their_err))


class RunStreams:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._started = time.monotonic()
        self._stdout = Capture(launch.output_bytes)
        self._stderr = Capture(STDERR_BYTES, STDERR_BYTES)
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        with contextlib.suppress(OSError):  # more than this person may have in pipes
            fcntl.fcntl(out, _F_SETPIPE_SZ, _PIPE_BYTES)
        inner, self._in = os.pipe() if launch.stdin else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1)
        if launch.stdin:
            os.set_blocking(self._in, False)
        self._unfed = memoryview(launch.stdin)
        self.inner = (inner, out, err)
        self._open = {*self.inner, self._out, self._err, self._in} - {-1}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close_all(self._open)

    def _close(self, file: int) -> None:
        self._open.discard(file)
        os.close(file)

    def close_inner(self) -> None:
        for file in self.inner:
            self._close(file)

    def collect(self, control: socket.socket, stop: Callable[[], None]) -> None:
        """Move bytes until the supervisor speaks, or is gone. Call `stop` once if there is too much of anything."""
        poll = select.poll()
        for file in (control.fileno(), self._out, self._err):
            poll.register(file, select.POLLIN)
        if self._launch.stdin:
            poll.register(self._in, select.POLLOUT)
        stopping, next_look = False, time.monotonic() + _LOOK_SECONDS
        while True:
            for file, _ in poll.poll(_LOOK_SECONDS * 1000 if self._launch.is_too_much else None):
                if file == control.fileno():
                    return
                if not (self._feed() if file == self._in else self._take(file)):
                    poll.unregister(file)
            is_too_much, started = self._stdout.overflowed, time.monotonic()
            if self._launch.is_too_much and not stopping and started >= next_look:
                is_too_much = self._launch.is_too_much() or is_too_much
                # A look that takes long is taken rarely.
                next_look = time.monotonic() + max(_LOOK_SECONDS, 10 * (time.monotonic() - started))
            if is_too_much and not stopping:
                stopping = True
                stop()

    def _take(self, file: int) -> bool:
        """Read one piece; return False at the end."""
        piece = os.read(file, _PIECE_BYTES)
        (self._stdout if file == self._out else self._stderr).add(piece)
        if piece and file == self._err and self._launch.on_stderr:
            self._launch.on_stderr(piece)
        return bool(piece)

    def _feed(self) -> bool:
        """Write what fits; return False when all is written or nobody reads any more."""
        try:
            self._unfed = self._unfed[os.write(self._in, self._unfed[:_PIECE_BYTES]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self._unfed = memoryview(b"")
        if not self._unfed:
            self._close(self._in)
        return bool(self._unfed)

    def drain(self) -> None:
        """Read what the pipes still hold, without waiting for anybody."""
        for file in (self._out, self._err):
            os.set_blocking(file, False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(_LAST_PIECES):
                    if not self._take(file):
                        break

    def as_exit(self, code: int, **facts: Any) -> Exit:
        """Return a run that ended now; `facts` are what else is known about it, as in `Exit`."""
        seconds, stdout, tail = time.monotonic() - self._started, self._stdout, bytes(self._stdout.tail)
        return Exit(
            code, bytes(stdout.head), self._stderr.shortened(), seconds, stdout.total, stdout_tail=tail, **facts
        )
