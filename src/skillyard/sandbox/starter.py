"""A small process with one thread, beside the runtime, whose only work is to fork a supervisor for each run.

Forking a process that has threads is unsafe, and starting a fresh Python for each run takes too long. Whatever all runs
need is computed here, before the fork: each page that a copy touches costs it a copy of that page. The starter also
watches the time limit of each run, where the program cannot see or reach it; see "Processes" in the README.
"""

import contextlib
import errno
import gc
import math
import os
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from skillyard.sandbox import confine, namespaces
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.ipc import INSIDE, PROBE, PROXY, STARTER_SOCKET, FdMessage, send
from skillyard.sandbox.launch import Policy
from skillyard.sandbox.layers import Hierarchies
from skillyard.sandbox.supervisor import as_failure, kill_descendants, supervise_inside, supervise_outside
from skillyard.sandbox.syscalls import fork, hide_arguments, prctl

_LONGEST_POLL: Final = 3600.0
#: How long a supervisor may take to end its run before we do it: it needs a fraction of a second.
_OVERDUE_SECONDS: Final = 3.0
#: When the next supervisor is prepared, unless the run ends before: not while a run starts, which needs the processors.
_SPARE_SECONDS: Final = 0.03

_LIMITS: Final = ("network", "memory_bytes", "processes")  # what the starter must know of a policy
#: The cgroup hierarchies of a supervisor inside namespaces, and whether it shares the network. None is one outside.
_MadeFor = tuple[Hierarchies, bool] | None


def main(*expected: tuple[bytes, Hierarchies]) -> None:
    """Run the starter. Never returns. For each `expected` run (INSIDE or OUTSIDE) a supervisor is prepared at once."""
    try:
        _detach()
        _Service().serve(*(_as_made_for(kind, hierarchies, network=False) for kind, hierarchies in expected))
        os._exit(0)
    finally:
        os._exit(1)


def _detach() -> None:
    """Keep nothing of the runtime: no file, lock, terminal or signal handler, and no arguments that /proc shows."""
    hide_arguments(b"skillyard")
    for file in map(int, os.listdir("/proc/self/fd")):
        if file > STARTER_SOCKET:
            with contextlib.suppress(OSError):  # the listing's own is closed already
                os.close(file)
    os.set_inheritable(STARTER_SOCKET, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    with contextlib.suppress(PermissionError):  # already the leader of a session
        os.setsid()
    os.chdir("/")
    if os.getuid() == 0:
        with contextlib.suppress(PermissionError):  # in a user namespace that was made without this right
            os.setgroups([])
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)
    for which in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(which, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Supervisor:
    """A supervisor, our end of its channel, and the run that it was given."""

    def __init__(self, pid: int, channel: socket.socket, group: Cgroup, *, is_inside: bool) -> None:
        self.pid, self.channel, self.group, self.is_inside = pid, channel, group, is_inside
        #: Our copy of its end of the run's control socket, and until when we wait for its end.
        self.control: socket.socket | None = None
        self.deadline = math.inf
        self.stop_requested = self.ended_here = False

    def send(self, message: FdMessage, policy: Policy) -> bool:
        """Send it its only request, once its cgroup has the limits. Return False if somebody killed it."""
        try:
            self.group.limit(policy)
            message.send(self.channel)
        except ConnectionError:
            return False
        finally:
            self.channel.close()
        return True

    def end(self) -> None:
        """With namespaces the kernel ends all with the supervisor. Without, the supervisor still cleans up."""
        self.ended_here = True
        if self.is_inside:
            os.kill(self.pid, signal.SIGKILL)
        else:
            kill_descendants(self.pid)
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Close our descriptors."""
        self.channel.close()
        if self.control:
            self.control.close()
        self.group.close_counters()


class _Service:
    """The loop of the starter."""

    def __init__(self) -> None:
        self._channel = socket.socket(fileno=STARTER_SOCKET)
        #: Every child, by its pid; None is a probe or a proxy.
        self._children: dict[int, _Supervisor | None] = {}
        #: How many runs of each sort there were. From the second on, a supervisor waits for the next one.
        self._requests: Counter[_MadeFor] = Counter()
        self._spares: dict[_MadeFor, _Supervisor] = {}
        self._spares_due = math.inf
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}  # what to do when a descriptor can be read
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        gc.disable()
        gc.freeze()

    def _watch(self, file: int, handler: Callable[[], None]) -> None:
        self._handlers[file] = handler
        self._poll.register(file, select.POLLIN)

    def _unwatch(self, file: int) -> None:
        if self._handlers.pop(file, None):
            self._poll.unregister(file)

    def serve(self, *expected: _MadeFor) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        # First, so that no new descriptor takes the number of one that was closed in the same round.
        self._watch(STARTER_SOCKET, self._receive)
        self._watch(self._woken, self._reap)
        # Whoever loses its supervisor becomes our child, where we find it.
        prctl("CHILD_SUBREAPER", 1)
        for made_for in expected:
            self._prepare_spare(made_for)
        while self._channel.fileno() >= 0 or self._children:
            deadlines = (child.deadline for child in self._children.values() if child)
            left = min(self._spares_due, *deadlines, _LONGEST_POLL + time.monotonic()) - time.monotonic()
            for file, _ in self._poll.poll(max(0.0, left) * 1000 + 1):
                if handler := self._handlers.get(file):
                    handler()
            now = time.monotonic()
            for child in self._children.values():
                if child and child.deadline <= now:
                    child.deadline = now + _OVERDUE_SECONDS
                    child.end()
            if self._spares_due <= now:
                self._prepare_spares()

    def _reap(self) -> None:
        os.read(self._woken, 4096)
        orphans = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                orphans = orphans or pid not in self._children
                if supervisor := self._children.pop(pid, None):
                    orphans = orphans or not supervisor.is_inside
                    self._forget_run(supervisor, was_killed=os.WIFSIGNALED(status))
                    supervisor.group.close()
        if self._spares_due < math.inf:
            self._spares_due = 0.0
        if orphans:  # a supervisor outside was killed: its program's children are ours now
            kill_descendants(keep=self._children)

    def _receive(self) -> None:
        message = FdMessage.receive(self._channel)
        if message is None:  # the runtime is gone
            self._unwatch(STARTER_SOCKET)
            self._channel.close()
            self._requests.clear()
            for spare in self._spares.values():
                spare.channel.close()  # without a request it ends now
            return
        try:
            if message.kind == PROBE:
                self._fork(fork, partial(_answer_probe, message))
            elif message.kind == PROXY:
                # With Python's own hooks: the proxy starts threads.
                self._fork(os.fork, partial(_serve_proxy, message))
            else:
                self._run(message)
        except OSError as error:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(message.control)) as control:
                send(control, as_failure("layers", error))
        message.close()
        self._spares_due = time.monotonic() + _SPARE_SECONDS

    def _prepare_spares(self) -> None:
        """Have a supervisor wait for the next run of each sort that comes often."""
        self._spares_due = math.inf
        for made_for, count in self._requests.items():
            if count > 1 and made_for not in self._spares:
                self._prepare_spare(made_for)

    def _prepare_spare(self, made_for: _MadeFor) -> None:
        with contextlib.suppress(OSError):  # the next request will tell why
            self._spares[made_for] = self._prepare(made_for, None)

    def _follow(self, supervisor: _Supervisor, message: FdMessage, limit_seconds: float) -> None:
        """Watch over a run that a supervisor was given, with a copy of its end of the control socket."""
        control = supervisor.control = socket.socket(fileno=os.dup(message.control))
        supervisor.deadline = time.monotonic() + limit_seconds + _OVERDUE_SECONDS

        def expect_end() -> None:
            """The runtime asked to stop, or is gone, or has its report already."""
            self._unwatch(control.fileno())
            supervisor.deadline = min(supervisor.deadline, time.monotonic() + _OVERDUE_SECONDS)
            supervisor.stop_requested = True

        self._watch(control.fileno(), expect_end)

    def _forget_run(self, supervisor: _Supervisor, *, was_killed: bool) -> None:
        """Report in place of a supervisor that was killed. If it sent a report itself, that one is read."""
        control, supervisor.control = supervisor.control, None
        if control:
            self._unwatch(control.fileno())
            with control, contextlib.suppress(OSError):
                if was_killed:
                    timed_out = supervisor.ended_here and not supervisor.stop_requested
                    hit = supervisor.group.hit()
                    send(control, {"failed": None, "code": -signal.SIGKILL, "timed_out": timed_out, "hit": hit})

    def _run(self, message: FdMessage) -> None:
        """Give a run to the supervisor that waits for its sort, or to a new one."""
        request = message.content()
        # Only what is needed here: this is done for each run, before its supervisor learns of it.
        policy = Policy(**{name: request["policy"][name] for name in _LIMITS if request["policy"]})
        hierarchies = Hierarchies(**request["layers"]["cgroup"])
        made_for = _as_made_for(message.kind, hierarchies, network=policy.network)
        supervisor = self._spares.pop(made_for, None)
        if not (supervisor and supervisor.send(message, policy)):
            supervisor = self._prepare(made_for, message)
            if not supervisor.send(message, policy):
                raise ConnectionResetError(errno.ECONNRESET, "the supervisor ended before it had its order")
        self._follow(supervisor, message, request["limit_seconds"])
        self._requests[made_for] += 1

    def _prepare(self, made_for: _MadeFor, message: FdMessage | None) -> _Supervisor:
        """The new process closes its copy of the present `message`, so that the end of that run is seen."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hierarchies, network = made_for or (Hierarchies(), False)
        copy, serve = fork, partial(supervise_outside, theirs)
        if made_for:
            confine.warm_up()
            layout = namespaces.system_layout(network=network)
        group = Cgroup(hierarchies)
        if made_for:
            begin = partial(namespaces.begin, layout, uid=os.getuid(), gid=os.getgid(), own_network=not network)
            copy = partial(namespaces.clone, group, network=network)
            serve = partial(supervise_inside, theirs, begin, group)

        def work() -> None:
            ours.close()
            if message:
                message.close()
            serve()

        try:
            with theirs:
                pid = self._fork(copy, work)
        except OSError:
            ours.close()  # without a request it ends, if there is one
            group.close()
            raise
        supervisor = self._children[pid] = _Supervisor(pid, ours, group, is_inside=made_for is not None)
        return supervisor

    def _fork(self, copy: Callable[[], int], work: Callable[[], None]) -> int:
        """Do `work` in a copy of this process; return its pid."""
        pid = copy()
        if pid:
            self._children[pid] = None
            return pid
        try:
            signal.set_wakeup_fd(-1)
            self._channel.close()
            for other in self._children.values():
                if other:
                    other.close()
            work()
            os._exit(0)
        finally:
            os._exit(1)


def _as_made_for(kind: bytes, hierarchies: Hierarchies, *, network: bool) -> _MadeFor:
    if hierarchies.unified not in {hierarchies.memory, hierarchies.pids}:
        hierarchies = hierarchies._replace(unified="")  # it costs a move, and the pid namespace ends everybody
    return (hierarchies, network) if kind == INSIDE else None


def _answer_probe(message: FdMessage) -> None:
    from skillyard.sandbox.probe import probe  # noqa: PLC0415  (once a boot; it brings subprocess)

    send(socket.socket(fileno=message.control), probe().as_json())


def _serve_proxy(message: FdMessage) -> None:
    from skillyard.sandbox.proxy import serve  # noqa: PLC0415  (brings threading; only a run with hosts needs it)

    listener = socket.socket(fileno=message.streams[0])
    serve(listener, socket.socket(fileno=message.control), message.content()["hosts"])
