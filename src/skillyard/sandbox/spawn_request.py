"""What our processes tell each other: a request to start a program, its report, and how both travel.

A request goes to the starter and on to a supervisor as an `FdMessage`: one byte for its kind, and open files. A report
comes back on the control socket of the run: one line of JSON.
"""

import array
import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from skillyard.sandbox.layers import LayerPlan, Layers, Level
from skillyard.sandbox.policy import Guard, Mount, Policy

#: The kinds of messages: a probe, a run in namespaces, every other run, a proxy for the hosts of a run.
PROBE, INSIDE, OUTSIDE, PROXY = b"p", b"i", b"o", b"x"
#: Sent by a supervisor, with a listening socket, before the run starts. No report starts with it.
LISTENER: Final = b"L"
#: The descriptor on which the starter receives messages.
STARTER_SOCKET: Final = 3

_FD_BYTES: Final = array.array("i").itemsize
_FD_COUNT: Final = 5


class SpawnRequest(NamedTuple):
    """What a supervisor must know to run one program."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    limit_seconds: float
    plan: LayerPlan
    policy: Policy | None

    def as_json(self) -> dict[str, Any]:
        """What `FdMessage.make` can write."""
        plan = {"level": self.plan.level, "layers": self.plan.layers.as_json()}
        return self._asdict() | {"plan": plan, "policy": self.policy and self.policy._asdict()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        plan = LayerPlan(Level(data["plan"]["level"]), Layers.from_json(data["plan"]["layers"]))
        policy = None
        if given := data["policy"]:
            paths = {name: tuple(map(Path, given[name])) for name in ("read", "write", "tools", "hide")}
            mounts = tuple(Mount(Path(source), Path(target)) for source, target in given["mounts"])
            demand = frozenset(map(Guard, given["demand"]))
            policy = Policy(**(given | paths | {"mounts": mounts, "demand": demand, "hosts": tuple(given["hosts"])}))
        return cls(**(data | {"argv": tuple(data["argv"]), "plan": plan, "policy": policy}))


class FdMessage(NamedTuple):
    """A message that carries file descriptors."""

    kind: bytes
    #: A file in memory with the content as JSON, however long it is.
    body: int
    #: The supervisor's side of the run's control socket.
    control: int
    streams: tuple[int, int, int]

    @classmethod
    def make(cls, kind: bytes, content: dict[str, Any], control: socket.socket, streams: tuple[int, int, int]) -> Self:
        body = os.memfd_create("request")
        with open(body, "wb", closefd=False) as file:
            text = json.dumps(content, default=lambda value: [*value] if isinstance(value, frozenset) else str(value))
            file.write(text.encode())
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
        space = socket.CMSG_SPACE(_FD_COUNT * _FD_BYTES)
        kind, ancillary, _, _ = channel.recvmsg(1, space, socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        for level, what, data in ancillary:
            if (level, what) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) - len(data) % _FD_BYTES])
        if not kind or len(fds) != _FD_COUNT:
            return None
        return cls(kind, fds[0], fds[1], (fds[2], fds[3], fds[4]))

    def close(self) -> None:
        """Close all received descriptors. Call only on the receiving side."""
        for file in (self.body, self.control, *self.streams):
            os.close(file)


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
