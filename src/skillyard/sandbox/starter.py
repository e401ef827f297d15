"""A small process with one thread, beside the runtime, whose only work is to fork a supervisor for each run.

Forking a process that has threads is a gamble, and starting a fresh Python for each run takes too long. So
the runtime starts this one once: by fork while it has a single thread itself, else as a program of its own.
It ends when the runtime's end of the socket has closed and the last run is over. Whatever all runs need is
worked out here, before the fork: each page that a copy touches costs it a copy of that page.
"""

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from skillyard.sandbox import confine, namespaces
from skillyard.sandbox.cgroup import Cgroup, Hierarchies
from skillyard.sandbox.letter import INSIDE, PROBE, PROXY, Letter
from skillyard.sandbox.order import Order, send
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.supervisor import failure, serve_outside, supervise_inside
from skillyard.sandbox.syscalls import fork

_HERE: Final = 3
#: Supervisors kept for the next run; more than this many run at once only now and then.
_MOST_IDLE: Final = 16
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from skillyard.sandbox.starter import main; main()"


class Starter:
    """The runtime's side: one for each process, started when it is first needed."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        self._channel = ours
        with theirs:
            self._pid = _fork(theirs) if _has_one_thread() else _spawn(theirs)

    def begin(self, letter: Letter) -> None:
        """Have a supervisor take this. BrokenPipeError where the starter is gone."""
        letter.send(self._channel)

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
    for file in map(int, os.listdir("/proc/self/fd")):
        if file > _HERE:
            with contextlib.suppress(OSError):  # the listing's own is closed already
                os.close(file)
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
        #: The supervisors that stand outside, by their descriptor here, and those that have nothing to do.
        self._crew: dict[int, socket.socket] = {}
        self._idle: list[socket.socket] = []
        self._spare: _Spare | None = None
        self._orders_inside = 0
        self._poll = select.poll()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        gc.disable()
        gc.freeze()

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for file in (_HERE, self._woken):
            self._poll.register(file, select.POLLIN)
        while self._channel.fileno() >= 0 or self._groups:
            for file, _ in self._poll.poll():
                if file == self._woken:
                    self._reap()
                elif file == _HERE:
                    self._take_letter()
                elif file in self._crew:
                    self._hear(self._crew[file])

    def _reap(self) -> None:
        os.read(self._woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                group = self._groups.pop(pid, None)
                if group:
                    group.remove()

    def _take_letter(self) -> None:
        letter = Letter.receive(self._channel)
        if letter is None:  # the runtime is gone
            self._poll.unregister(_HERE)
            self._channel.close()
            while self._idle:
                self._dismiss(self._idle.pop())
            if self._spare:
                self._spare.close()
            return
        try:
            self._pass_on(letter)
        except OSError as error:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(letter.control)) as control:
                send(control, {"failed": failure("layers", error)})
        letter.close()

    def _pass_on(self, letter: Letter) -> None:
        if letter.kind == INSIDE:
            self._start_inside(letter)
        elif letter.kind == PROBE:
            self._start(fork, lambda: _answer_probe(letter), None)
        elif letter.kind == PROXY:
            # With Python's own hooks: the proxy starts threads.
            self._start(os.fork, lambda: _serve_proxy(letter), None)
        else:
            self._hand_over(letter)

    def _start_inside(self, letter: Letter) -> None:
        """By the one that waits, if there is one; from the second order on there will be one for the next."""
        order = Order.from_json(letter.read())
        policy = order.policy or Policy()
        groups = order.plan.layers.cgroup.without_kill()
        waiting, self._spare = self._spare, None
        if waiting and not waiting.fits(groups, network=policy.network):
            waiting.close()
            waiting = None
        if not (waiting and waiting.hand(letter, policy)):
            fresh = self._prepare(letter, groups, network=policy.network)
            if not fresh.hand(letter, policy):
                raise ConnectionResetError(errno.ECONNRESET, "the supervisor ended before it had its order")
        self._orders_inside += 1
        if self._orders_inside > 1:
            with contextlib.suppress(OSError):  # the next order will tell why
                self._spare = self._prepare(letter, groups, network=policy.network)

    def _prepare(self, letter: Letter, groups: Hierarchies, *, network: bool) -> "_Spare":
        """`letter` is the one in hand: the new process closes its copy of it, so that the end of that run is seen."""
        confine.warm_up()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        group = Cgroup.make(groups)
        view = namespaces.system_layout(network=network)
        uid, gid = os.getuid(), os.getgid()

        def work() -> None:
            ours.close()
            letter.close()
            supervise_inside(theirs, view, group, uid, gid, own_network=not network)

        with theirs:
            pid = self._start(lambda: namespaces.clone(network=network), work, group)
        try:
            if group:
                group.take(pid)
        except OSError:
            ours.close()  # it ends without an order
            raise
        return _Spare(ours, group, groups, network)

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
            for channel in (self._channel, self._spare, *self._crew.values()):
                if channel:
                    channel.close()
            work()
            code = 0
        finally:
            os._exit(code)

    # -- the crew outside: a supervisor there is as good as new after a run, and a new one costs

    def _hand_over(self, letter: Letter) -> None:
        while self._idle:
            channel = self._idle.pop()
            try:
                letter.send(channel)
            except ConnectionError:  # somebody killed it
                self._dismiss(channel)
            else:
                return
        letter.send(self._hire(letter))

    def _hire(self, letter: Letter) -> socket.socket:
        """`letter` is the one in hand: a copy of us has its files too, and would keep the program's streams open."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def work() -> None:
            letter.close()
            serve_outside(theirs)

        with theirs:
            self._crew[ours.fileno()] = ours
            self._start(fork, work, None)
        self._poll.register(ours, select.POLLIN)
        return ours

    def _hear(self, channel: socket.socket) -> None:
        """It says that it is free, or is gone."""
        wanted = self._channel.fileno() >= 0 and len(self._idle) < _MOST_IDLE
        if channel.recv(1) and wanted:
            self._idle.append(channel)
        else:
            self._dismiss(channel)

    def _dismiss(self, channel: socket.socket) -> None:
        self._poll.unregister(channel)
        del self._crew[channel.fileno()]
        channel.close()


def _answer_probe(letter: Letter) -> None:
    from skillyard.sandbox.probe import probe  # noqa: PLC0415  (once a boot; it brings subprocess)

    send(socket.socket(fileno=letter.control), probe().as_json())


def _serve_proxy(letter: Letter) -> None:
    from skillyard.sandbox.proxy import serve  # noqa: PLC0415  (brings threading; only a run with hosts needs it)

    listener = socket.socket(fileno=letter.streams[0])
    serve(listener, socket.socket(fileno=letter.control), letter.read()["hosts"])


class _Spare:
    """A supervisor in its namespaces and its cgroup, ready for an order."""

    def __init__(self, channel: socket.socket, group: Cgroup | None, groups: Hierarchies, network: bool) -> None:
        self._channel, self._group, self._groups, self._network = channel, group, groups, network

    def fits(self, groups: Hierarchies, *, network: bool) -> bool:
        return (self._groups, self._network) == (groups, network)

    def hand(self, letter: Letter, policy: Policy) -> bool:
        """Give it its order, once its cgroup has the limits. False where somebody killed it."""
        try:
            if self._group:
                self._group.limit(policy)
            letter.send(self._channel)
        except ConnectionError:
            return False
        finally:
            self.close()
        return True

    def close(self) -> None:
        """From here on it is on its own; without an order it ends."""
        self._channel.close()
        if self._group:
            self._group.let_go()
