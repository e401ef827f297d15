"""How an order travels between our processes: a byte that says what it is, the order, and open files."""

import array
import json
import os
import socket
from typing import Any, Final, NamedTuple, Self

#: What a letter asks for. `INSIDE` is a run in namespaces, `OUTSIDE` every other run, `PROXY` a run's way to its hosts.
PROBE, INSIDE, OUTSIDE, PROXY = b"p", b"i", b"o", b"x"

#: What a supervisor says, with a listening socket, before the run starts: no report starts with it.
LISTENER: Final = b"L"

_SIZE: Final = array.array("i").itemsize
_RIGHTS: Final = 5


class Letter(NamedTuple):
    kind: bytes
    #: Holds the order, however long it is.
    sheet: int
    #: Our side of the run's control socket.
    control: int
    streams: tuple[int, int, int]

    @classmethod
    def write(cls, kind: bytes, order: dict[str, Any], control: socket.socket, streams: tuple[int, int, int]) -> Self:
        sheet = os.memfd_create("order")
        with open(sheet, "wb", closefd=False) as file:
            file.write(json.dumps(order).encode())
        return cls(kind, sheet, control.fileno(), streams)

    def read(self) -> dict[str, Any]:
        order: dict[str, Any] = json.loads(os.pread(self.sheet, os.fstat(self.sheet).st_size, 0))
        return order

    def send(self, channel: socket.socket) -> None:
        """BrokenPipeError where nobody is left to read it. Stands alone: threads need no lock."""
        rights = array.array("i", (self.sheet, self.control, *self.streams))
        channel.sendmsg([self.kind], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_NOSIGNAL)

    @classmethod
    def receive(cls, channel: socket.socket) -> Self | None:
        """None when the other side is gone."""
        space = socket.CMSG_SPACE(_RIGHTS * _SIZE)
        kind, extra, _, _ = channel.recvmsg(1, space, socket.MSG_CMSG_CLOEXEC)
        rights = array.array("i")
        for level, what, data in extra:
            if (level, what) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                rights.frombytes(data[: len(data) - len(data) % _SIZE])
        if not kind or len(rights) != _RIGHTS:
            return None
        return cls(kind, rights[0], rights[1], (rights[2], rights[3], rights[4]))

    def close(self) -> None:
        """Everything that came with it; only for who received it."""
        for file in (self.sheet, self.control, *self.streams):
            os.close(file)
