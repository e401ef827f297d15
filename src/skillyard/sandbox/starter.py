"""A small process with one thread, beside the runtime, whose only work is to fork a supervisor for each run.

Forking a process that has threads is a gamble, and starting a fresh Python for each run takes too long. So
the runtime starts this one once: by fork while it has a single thread itself, else as a program of its own.
It ends when the runtime's end of the socket closes. Each order stands alone, so threads may send without a lock.
"""

import array
import contextlib
import gc
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from skillyard.sandbox.namespaces import system_layout
from skillyard.sandbox.supervisor import supervise

_HERE: Final = 3
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from skillyard.sandbox.starter import main; main()"


class Starter:
    """The runtime's side: one for each process, started when it is first needed."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        self._channel = ours
        with theirs:
            self._pid = _fork(theirs) if _has_one_thread() else _spawn(theirs)

    def begin(self, control: socket.socket, streams: tuple[int, int, int]) -> None:
        """Have a supervisor forked that serves `control`. BrokenPipeError where the starter is gone."""
        rights = array.array("i", (control.fileno(), *streams))
        self._channel.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], socket.MSG_NOSIGNAL)

    def close(self) -> None:
        self._channel.close()
        if self.owner == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


def _has_one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _fork(channel: socket.socket) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.dup2(channel.fileno(), _HERE)
        serve()
        code = 0
    finally:
        os._exit(code)


def _spawn(channel: socket.socket) -> int:
    source = str(Path(__file__).parents[2])
    return os.posix_spawn(
        sys.executable,
        (sys.executable, "-I", "-S", "-c", _PROGRAM, source),
        {name: os.environ[name] for name in ("TMPDIR", "LD_LIBRARY_PATH") if name in os.environ},
        file_actions=[(os.POSIX_SPAWN_DUP2, channel.fileno(), _HERE)],
    )


def main() -> None:
    serve()
    os._exit(0)


def serve() -> None:
    """The starter's side. Holds nothing of the runtime: no file, no lock, no terminal."""
    os.closerange(_HERE + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(_HERE, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    with contextlib.suppress(PermissionError):  # already the leader of a session
        os.setsid()
    os.chdir("/")
    _calm_signals()
    system_layout(network=False)  # looked up once, for all
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=_HERE)
    while True:
        message, rights = _receive(channel)
        if not message:
            return
        _begin(channel, rights)


def _calm_signals() -> None:
    """Ours to die is when the socket closes; children are forgotten as they end."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)
    for which in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(which, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    message, extra, _, _ = channel.recvmsg(16, socket.CMSG_SPACE(4 * size), socket.MSG_CMSG_CLOEXEC)
    rights = array.array("i")
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(data[: len(data) - len(data) % size])
    return message, list(rights)


def _begin(channel: socket.socket, rights: list[int]) -> None:
    try:
        pid = os.fork()
    except OSError:
        pid = -1  # the runtime sees its control socket close without a report
    if pid == 0:
        code = 1
        try:
            channel.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise(socket.socket(fileno=rights[0]), (rights[1], rights[2], rights[3]))
            code = 0
        finally:
            os._exit(code)
    for right in rights:
        os.close(right)
