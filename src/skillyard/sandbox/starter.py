"""A small process with one thread, beside the runtime, whose only work is to fork a supervisor for each run.

Forking a process that has threads is unsafe, and starting a fresh Python for each run takes too long. So the runtime
starts this one once: by fork while it has a single thread itself, else as a program of its own. It ends when the
runtime's end of the socket has closed and the last run is over. Whatever all runs need is computed here, before the
fork: each page that a copy touches costs it a copy of that page.

It also watches the time limit of each run, where the program cannot see or reach it: a supervisor that has not ended
its run some seconds after the limit, after a stop or after the end of the runtime is not waited for.
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
from collections.abc import Callable
from typing import Final, NamedTuple

from skillyard.sandbox import confine, namespaces
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.layers import Hierarchies
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.process_tree import kill_descendants
from skillyard.sandbox.spawn_request import INSIDE, PROBE, PROXY, STARTER_SOCKET, FdMessage, SpawnRequest, send
from skillyard.sandbox.supervisor import as_failure, serve_outside, supervise_inside
from skillyard.sandbox.syscalls import PR_SET_CHILD_SUBREAPER, fork, hide_arguments, prctl

#: Idle supervisors kept for the next run; more runs than this at once are rare.
_MOST_IDLE: Final = 16
_LONGEST_POLL: Final = 3_600_000.0
#: How long a supervisor may take to end its run before we do it: it needs a fraction of a second.
_OVERDUE_SECONDS: Final = 3.0


def main() -> None:
    """Run the starter. Never returns."""
    code = 1
    try:
        _detach()
        _Service().serve()
        code = 0
    finally:
        os._exit(code)


def _detach() -> None:
    """Keep nothing of the runtime: no file, lock, terminal or signal handler, and no arguments that /proc shows."""
    hide_arguments("skillyard")
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
        os.setgroups([])
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(-1)
    for which in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(which, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _ActiveRun:
    """Who supervises a run, our copy of its control socket, and until when we wait for its end."""

    def __init__(self, pid: int, control: socket.socket, deadline: float, *, inside: bool) -> None:
        self.pid, self.control, self.deadline, self._inside = pid, control, deadline, inside
        self.stop_requested = False
        self.ended_here = False

    def end(self) -> None:
        """With namespaces the kernel ends all with the supervisor. Without, the supervisor still cleans up."""
        self.ended_here = True
        if self._inside:
            os.kill(self.pid, signal.SIGKILL)
        else:
            kill_descendants(self.pid)
            os.kill(self.pid, signal.SIGCONT)

    def report_if_killed(self, status: int, group: Cgroup | None) -> dict[str, object] | None:
        """The report for a supervisor that was killed. If it sent one itself, that one is read."""
        if not os.WIFSIGNALED(status):
            return None
        timed_out = self.ended_here and not self.stop_requested
        hit = group.hit() if group else ""
        return {"failed": None, "code": -signal.SIGKILL, "timed_out": timed_out, "hit": hit}


class _InsideSupervisor(NamedTuple):
    """A supervisor in its namespaces and its cgroup, ready for a request."""

    pid: int
    channel: socket.socket
    group: Cgroup | None
    #: What it was made for: its cgroup hierarchies, and whether it shares the network.
    made_for: tuple[Hierarchies, bool]

    def send(self, message: FdMessage, policy: Policy) -> bool:
        """Send it its only request, once its cgroup has the limits. Return False if somebody killed it."""
        try:
            if self.group:
                self.group.limit(policy)
            message.send(self.channel)
        except ConnectionError:
            return False
        finally:
            self.close()
        return True

    def close(self) -> None:
        """Without a request it ends now."""
        self.channel.close()


class _Service:
    """The loop of the starter."""

    def __init__(self) -> None:
        self._channel = socket.socket(fileno=STARTER_SOCKET)
        #: Every child, with its cgroup.
        self._groups: dict[int, Cgroup | None] = {}
        #: The supervisors outside namespaces: channels and pids by descriptor, all pids, and the idle channels.
        self._outside: dict[int, socket.socket] = {}
        self._outside_pids: dict[int, int] = {}
        self._unreaped_outside: set[int] = set()
        self._idle: list[socket.socket] = []
        #: The active runs, by the pid of their supervisor and by the descriptor of their control socket here.
        self._runs: dict[int, _ActiveRun] = {}
        self._controls: dict[int, _ActiveRun] = {}
        #: An inside supervisor for the next request, from the second request on.
        self._spare: _InsideSupervisor | None = None
        self._inside_requests = 0
        self._last_made_for: tuple[Hierarchies, bool] | None = None
        self._poll = select.poll()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        gc.disable()
        gc.freeze()

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for file in (STARTER_SOCKET, self._woken):
            self._poll.register(file, select.POLLIN)
        # Whoever loses its supervisor becomes our child, where we find it.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        while self._channel.fileno() >= 0 or self._groups:
            for file, _ in self._poll.poll(self._poll_milliseconds()):
                if file == self._woken:
                    self._reap()
                elif file == STARTER_SOCKET:
                    self._receive()
                elif file in self._outside:
                    self._release(self._outside[file])
                elif file in self._controls:
                    self._expect_end(self._controls[file])
            self._end_overdue_runs()

    def _reap(self) -> None:
        os.read(self._woken, 4096)
        orphans = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                orphans = orphans or pid in self._unreaped_outside or pid not in self._groups
                self._unreaped_outside.discard(pid)
                group = self._groups.pop(pid, None)
                if run := self._runs.get(pid):
                    self._forget(run, run.report_if_killed(status, group))
                if group:
                    group.close()
                    group.remove()
        if orphans:  # a supervisor outside was killed: its program's children are ours now
            kill_descendants(keep=self._groups)

    def _receive(self) -> None:
        message = FdMessage.receive(self._channel)
        if message is None:  # the runtime is gone
            self._poll.unregister(STARTER_SOCKET)
            self._channel.close()
            while self._idle:
                self._dismiss(self._idle.pop())
            if self._spare:
                self._spare.close()
            return
        try:
            self._handle(message)
        except OSError as error:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(message.control)) as control:
                send(control, {"failed": as_failure("layers", error)})
        message.close()
        if message.kind == INSIDE:  # only now: a copy of us would keep the message's files open
            self._prepare_spare()

    def _handle(self, message: FdMessage) -> None:
        if message.kind == INSIDE:
            self._run_inside(message)
        elif message.kind == PROBE:
            self._start(fork, lambda: _answer_probe(message), None)
        elif message.kind == PROXY:
            # With Python's own hooks: the proxy starts threads.
            self._start(os.fork, lambda: _serve_proxy(message), None)
        else:
            self._run_outside(message)

    # -- the second clock

    def _follow(self, pid: int, message: FdMessage, limit_seconds: float, *, inside: bool) -> None:
        """Watch over a run that a supervisor was given, with a copy of its end of the control socket."""
        control = socket.socket(fileno=os.dup(message.control))
        run = _ActiveRun(pid, control, time.monotonic() + limit_seconds + _OVERDUE_SECONDS, inside=inside)
        self._runs[pid] = self._controls[control.fileno()] = run
        self._poll.register(control, select.POLLIN)

    def _expect_end(self, run: _ActiveRun) -> None:
        """The runtime asked to stop, or is gone, or has its report already."""
        self._poll.unregister(run.control)
        del self._controls[run.control.fileno()]
        run.deadline = min(run.deadline, time.monotonic() + _OVERDUE_SECONDS)
        run.stop_requested = True

    def _poll_milliseconds(self) -> float | None:
        first = min((run.deadline for run in self._runs.values()), default=math.inf)
        return None if first == math.inf else min(max(0.0, first - time.monotonic()) * 1000 + 1, _LONGEST_POLL)

    def _end_overdue_runs(self) -> None:
        now = time.monotonic()
        for run in self._runs.values():
            if run.deadline <= now:
                run.deadline = now + _OVERDUE_SECONDS
                run.end()

    def _forget(self, run: _ActiveRun, report: dict[str, object] | None = None) -> None:
        del self._runs[run.pid]
        if self._controls.pop(run.control.fileno(), None):
            self._poll.unregister(run.control)
        with run.control, contextlib.suppress(OSError):
            if report:
                send(run.control, report)

    # -- inside namespaces: a supervisor serves one run

    def _run_inside(self, message: FdMessage) -> None:
        """Use the spare supervisor if there is one that fits."""
        request = SpawnRequest.from_json(message.content())
        policy = request.policy or Policy()
        made_for = (request.plan.layers.cgroup.without_kill(), policy.network)
        supervisor, self._spare = self._spare, None
        if supervisor and supervisor.made_for != made_for:
            supervisor.close()
            supervisor = None
        if not (supervisor and supervisor.send(message, policy)):
            supervisor = self._prepare(made_for, message)
            if not supervisor.send(message, policy):
                raise ConnectionResetError(errno.ECONNRESET, "the supervisor ended before it had its order")
        self._follow(supervisor.pid, message, request.limit_seconds, inside=True)
        self._inside_requests += 1
        self._last_made_for = made_for

    def _prepare_spare(self) -> None:
        """Prepare for a next request that is like the last."""
        if self._inside_requests > 1 and self._last_made_for and not self._spare:
            with contextlib.suppress(OSError):  # the next request will tell why
                self._spare = self._prepare(self._last_made_for, None)

    def _prepare(self, made_for: tuple[Hierarchies, bool], message: FdMessage | None) -> _InsideSupervisor:
        """The new process closes its copy of the present `message`, so that the end of that run is seen."""
        confine.warm_up()
        hierarchies, network = made_for
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        group = Cgroup.make(hierarchies)
        layout = namespaces.system_layout(network=network)
        uid, gid = os.getuid(), os.getgid()

        def work() -> None:
            ours.close()
            if message:
                message.close()
            supervise_inside(theirs, layout, group, uid, gid, own_network=not network)

        with theirs:
            pid = self._start(lambda: namespaces.clone(network=network), work, group)
        try:
            if group:
                group.add(pid)
        except OSError:
            ours.close()  # it ends without a request
            raise
        return _InsideSupervisor(pid, ours, group, made_for)

    # -- outside: a supervisor there is as good as new after a run, and a new one costs

    def _run_outside(self, message: FdMessage) -> None:
        while self._idle:
            channel = self._idle.pop()
            try:
                message.send(channel)
            except ConnectionError:  # somebody killed it
                self._dismiss(channel)
            else:
                break
        else:
            channel = self._start_outside(message)
            message.send(channel)
        self._follow(self._outside_pids[channel.fileno()], message, message.content()["limit_seconds"], inside=False)

    def _start_outside(self, message: FdMessage) -> socket.socket:
        """The new process closes its copy of the present `message`: it would keep the program's streams open."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def work() -> None:
            message.close()
            serve_outside(theirs)

        with theirs:
            self._outside[ours.fileno()] = ours
            self._outside_pids[ours.fileno()] = pid = self._start(fork, work, None)
            self._unreaped_outside.add(pid)
        self._poll.register(ours, select.POLLIN)
        return ours

    def _release(self, channel: socket.socket) -> None:
        """A supervisor said that its run is over, or is gone."""
        if run := self._runs.get(self._outside_pids[channel.fileno()]):
            self._forget(run)
        wanted = self._channel.fileno() >= 0 and len(self._idle) < _MOST_IDLE
        if channel.recv(1) and wanted:
            self._idle.append(channel)
        else:
            self._dismiss(channel)

    def _dismiss(self, channel: socket.socket) -> None:
        self._poll.unregister(channel)
        del self._outside[channel.fileno()], self._outside_pids[channel.fileno()]
        channel.close()

    # -- forking

    def _start(self, copy: Callable[[], int], work: Callable[[], None], group: Cgroup | None) -> int:
        """Do `work` in a copy of this process; return its pid."""
        try:
            pid = copy()
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
            for group in self._groups.values():  # of the others; ours is not among them yet
                if group:
                    group.close()
            controls = (run.control for run in self._runs.values())
            for channel in (self._channel, self._spare, *self._outside.values(), *controls):
                if channel:
                    channel.close()
            work()
            code = 0
        finally:
            os._exit(code)


def _answer_probe(message: FdMessage) -> None:
    from skillyard.sandbox.probe import probe  # noqa: PLC0415  (once a boot; it brings subprocess)

    send(socket.socket(fileno=message.control), probe().as_json())


def _serve_proxy(message: FdMessage) -> None:
    from skillyard.sandbox.proxy import serve  # noqa: PLC0415  (brings threading; only a run with hosts needs it)

    listener = socket.socket(fileno=message.streams[0])
    serve(listener, socket.socket(fileno=message.control), message.content()["hosts"])
