"""A program that is talked to while it runs: its streams are the caller's, its end is the supervisor's."""

import os
import select
import socket
from typing import Any, Protocol

from skillyard.sandbox.spawn_request import receive

#: What a supervisor that was killed itself would have said.
_KILLED = -9


class Attached(Protocol):
    """`stdin`, `stdout` and `stderr` are descriptors, and the caller's to close.

    Covered: when it ends, when it is stopped and when the caller dies however suddenly, the whole tree ends.
    Not covered: files, network; outside Linux also children that leave the group, and the caller's death.
    """

    stdin: int
    stdout: int
    stderr: int

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None while it runs. Raises OSError if it could not start."""
        ...

    def stop(self) -> int:
        """SIGTERM, a moment, SIGKILL, to all of the tree; its exit code. Again does nothing."""
        ...


class Supervised:
    """On Linux: a supervisor watches the other end of `control`."""

    def __init__(self, control: socket.socket, streams: tuple[int, int, int]) -> None:
        self.stdin, self.stdout, self.stderr = streams
        self._control = control
        self._report: dict[str, Any] | None = None

    def wait(self, seconds: float) -> int | None:
        if self._report is None:
            if not select.select([self._control], [], [], seconds)[0]:
                return None
            self._report = receive(self._control) or {"failed": None, "code": _KILLED}
            self._control.close()
        if failed := self._report["failed"]:
            raise OSError(failed["errno"], failed["text"])
        code: int = self._report["code"]
        return code

    def stop(self) -> int:
        if self._report is None:
            self._control.shutdown(socket.SHUT_WR)
        code = self.wait(_FOR_EVER)
        return _KILLED if code is None else code


#: The supervisor bounds this itself.
_FOR_EVER = 60.0


def pipes() -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The program's ends of its three streams, and ours."""
    (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
    return (their_in, their_out, their_err), (our_in, our_out, our_err)
