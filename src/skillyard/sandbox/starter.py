"""A small process with one thread, beside the runtime, whose only work is to fork a supervisor for each run.

Forking a process that has threads is a gamble, and starting a fresh Python for each run takes too long. So
the runtime starts this one once: by fork while it has a single thread itself, else as a program of its own.
It ends when the runtime's end of the socket has closed and the last run is over. Whatever all runs need is
worked out here, before the fork: each page that a copy touches costs it a copy of that page.
"""

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from skillyard.sandbox import confine, namespaces
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.order import Order, send
from skillyard.sandbox.probe import probe
from skillyard.sandbox.supervisor import APART, Job, failure, supervise
from skillyard.sandbox.syscalls import fork

_HERE: Final = 3
_RIGHTS: Final = 5
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from skillyard.sandbox.starter import main; main()"
)


class Starter:
    """The runtime's side: one for each process, started when it is first needed."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        self._channel = ours
        with theirs:
            self._pid = _fork(theirs) if _has_one_thread() else _spawn(theirs)

    def begin(self, message: dict[str, Any], control: socket.socket, streams: tuple[int, int, int]) -> None:
        """Have a supervisor started that serves `control`. BrokenPipeError where the starter is gone.

        A message stands alone, so threads may send without a lock.
        """
        letter = os.memfd_create("order")
        try:
            with open(letter, "wb", closefd=False) as file:
                file.write(json.dumps(message).encode())
            rights = array.array("i", (letter, control.fileno(), *streams))
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
            self._channel.sendmsg([b"!"], ancillary, socket.MSG_NOSIGNAL)
        finally:
            os.close(letter)

    def close(self) -> None:
        """Returns when every run is over and cleaned up after."""
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
    if pid == 0:
        os.dup2(channel.fileno(), _HERE)
        main()
    return pid


def _spawn(channel: socket.socket) -> int:
    source = str(Path(__file__).parents[2])
    return os.posix_spawn(
        sys.executable,
        (sys.executable, "-I", "-S", "-c", _PROGRAM, source),
        {name: os.environ[name] for name in ("TMPDIR", "LD_LIBRARY_PATH") if name in os.environ},
        file_actions=[(os.POSIX_SPAWN_DUP2, channel.fileno(), _HERE)],
    )


def main() -> None:
    """Never returns."""
    code = 1
    try:
        _settle()
        _Service().serve()
        code = 0
    finally:
        os._exit(code)


def _settle() -> None:
    """Hold nothing of the runtime: no file, no lock, no terminal, no signal handler."""
    os.closerange(_HERE + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(_HERE, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    with contextlib.suppress(PermissionError):  # already the leader of a session
        os.setsid()
    os.chdir("/")
    if os.getuid() == 0:
        os.setgroups([])
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)
    for which in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(which, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Service:
    """The starter's side."""

    def __init__(self) -> None:
        self._channel = socket.socket(fileno=_HERE)
        self._groups: dict[int, Cgroup | None] = {}
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        confine.warm_up()
        gc.collect()
        gc.disable()
        gc.freeze()

    def serve(self) -> None:
        self._listen()
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        open_to_orders = True
        while open_to_orders or self._groups:
            for file, _ in poll.poll():
                if file == self._woken:
                    self._reap()
                elif not self._take_order():
                    open_to_orders = False
                    poll.unregister(self._channel)

    def _listen(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def _reap(self) -> None:
        os.read(self._woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                group = self._groups.pop(pid, None)
                if group:
                    group.remove()

    def _take_order(self) -> bool:
        message, rights = _receive(self._channel)
        if len(rights) == _RIGHTS:
            letter, control = rights[0], socket.socket(fileno=rights[1])
            order = json.loads(os.pread(letter, os.fstat(letter).st_size, 0))
            os.close(letter)
            self._begin(order, control, (rights[2], rights[3], rights[4]))
            control.close()
        for right in rights[2:]:
            os.close(right)
        return bool(message)

    def _begin(self, message: dict[str, Any], control: socket.socket, streams: tuple[int, int, int]) -> None:
        try:
            if message.get("probe"):
                self._start(fork, lambda: send(control, probe().as_json()), None)
            else:
                self._run(Order.from_json(message), control, streams)
        except OSError as error:
            with contextlib.suppress(ConnectionError):
                send(control, {"failed": failure("layers", error)})

    def _run(self, order: Order, control: socket.socket, streams: tuple[int, int, int]) -> None:
        groups = order.plan.layers.cgroup
        group = Cgroup.make(groups, order.policy) if order.policy and groups.folders else None
        gate, opened = os.pipe()
        job = Job(
            order=order,
            control=control,
            streams=streams,
            view=namespaces.layout(order.policy) if order.policy else namespaces.Layout(),
            group=group,
            gate=gate,
            uid=os.getuid(),
            gid=os.getgid(),
        )
        apart = order.plan.way in APART
        begin = (lambda: namespaces.clone(network=job.policy.network)) if apart else fork
        try:
            pid = self._start(begin, lambda: supervise(job), group)
            if apart:
                _let_in(pid, group, opened)
        finally:
            os.close(opened)
            os.close(gate)
            if group:
                group.let_go()

    def _start(self, begin: Callable[[], int], work: Callable[[], None], group: Cgroup | None) -> int:
        try:
            pid = begin()
        except OSError:
            if group:
                group.remove()
            raise
        if pid == 0:
            self._work(work)
        self._groups[pid] = group
        return pid

    def _work(self, work: Callable[[], None]) -> None:
        """In the child. Never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            self._channel.close()
            work()
            code = 0
        finally:
            os._exit(code)


def _let_in(pid: int, group: Cgroup | None, opened: int) -> None:
    """Open the gate when the process is in its cgroup; one that cannot get there never runs anything."""
    try:
        if group:
            group.take(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        raise
    os.write(opened, b"!")


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    message, extra, _, _ = channel.recvmsg(16, socket.CMSG_SPACE(_RIGHTS * size), socket.MSG_CMSG_CLOEXEC)
    rights = array.array("i")
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            rights.frombytes(data[: len(data) - len(data) % size])
    return message, list(rights)
