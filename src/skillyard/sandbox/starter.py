"""A small process with one thread, beside the runtime, whose only work is to fork a supervisor for each run.

Forking a process that has threads is a gamble, and starting a fresh Python for each run takes too long. So
the runtime starts this one once: by fork while it has a single thread itself, else as a program of its own.
It ends when the runtime's end of the socket has closed and the last run is over. Whatever all runs need is
worked out here, before the fork: each page that a copy touches costs it a copy of that page.

It is also the second clock over each run, where the program cannot see or reach it: a supervisor that has not
ended its run some seconds after the limit, after a stop or after the end of the runtime is not waited for.
"""

import contextlib
import errno
import gc
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from skillyard.sandbox import confine, namespaces, tree
from skillyard.sandbox.cgroup import Cgroup, Hierarchies
from skillyard.sandbox.fd_message import INSIDE, PROBE, PROXY, Letter
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.spawn_request import Order, send
from skillyard.sandbox.supervisor import failure, serve_outside, supervise_inside
from skillyard.sandbox.syscalls import PR_SET_CHILD_SUBREAPER, fork, hide_arguments, prctl

_HERE: Final = 3
#: Supervisors kept for the next run; more than this many run at once only now and then.
_MOST_IDLE: Final = 16
_LONGEST_POLL: Final = 3_600_000.0
#: How long a supervisor may take to end its run before we do it: it needs a fraction of a second.
_OVERDUE_SECONDS: Final = 3.0
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
    """Hold nothing of the runtime: no file, no lock, no terminal, no signal handler, no words of its caller."""
    hide_arguments("skillyard")
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
        self._crew_pids: dict[int, int] = {}
        self._outside: set[int] = set()
        #: The runs in flight, by the pid of their supervisor and by the descriptor of their control socket here.
        self._runs: dict[int, _Run] = {}
        self._controls: dict[int, _Run] = {}
        self._idle: list[socket.socket] = []
        self._spare: _Spare | None = None
        self._orders_inside = 0
        self._last_kind: tuple[Hierarchies, bool] | None = None
        self._poll = select.poll()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        gc.disable()
        gc.freeze()

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for file in (_HERE, self._woken):
            self._poll.register(file, select.POLLIN)
        # Whoever loses its supervisor becomes our child, where we find it.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        while self._channel.fileno() >= 0 or self._groups:
            for file, _ in self._poll.poll(self._poll_milliseconds()):
                if file == self._woken:
                    self._reap()
                elif file == _HERE:
                    self._take_letter()
                elif file in self._crew:
                    self._hear(self._crew[file])
                elif file in self._controls:
                    self._expect_end(self._controls[file])
            self._end_overdue_runs()

    def _reap(self) -> None:
        os.read(self._woken, 4096)
        alone = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                alone = alone or pid in self._outside or pid not in self._groups
                self._outside.discard(pid)
                group = self._groups.pop(pid, None)
                if run := self._runs.get(pid):
                    self._forget(run, self._last_words(run, status, group))
                if group:
                    group.let_go()
                    group.remove()
        if alone:  # a supervisor outside was killed: its program's children are ours now
            tree.kill_descendants(keep=self._groups)

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
        if letter.kind == INSIDE:  # only now: a copy of us would keep the letter's files open
            self._prepare_spare()

    # -- the second clock

    def _follow(self, pid: int, letter: Letter, limit_seconds: float, *, inside: bool) -> None:
        """Watch over a run that a supervisor was given, with a copy of its end of the control socket."""
        control = socket.socket(fileno=os.dup(letter.control))
        run = _Run(pid, control, time.monotonic() + limit_seconds + _OVERDUE_SECONDS, inside=inside)
        self._runs[pid] = self._controls[control.fileno()] = run
        self._poll.register(control, select.POLLIN)

    def _expect_end(self, run: "_Run") -> None:
        """The runtime asked to stop, or is gone, or has its report already."""
        self._poll.unregister(run.control)
        del self._controls[run.control.fileno()]
        run.deadline = min(run.deadline, time.monotonic() + _OVERDUE_SECONDS)
        run.asked = True

    def _poll_milliseconds(self) -> float | None:
        first = min((run.deadline for run in self._runs.values()), default=math.inf)
        return None if first == math.inf else min(max(0.0, first - time.monotonic()) * 1000 + 1, _LONGEST_POLL)

    def _end_overdue_runs(self) -> None:
        now = time.monotonic()
        for run in self._runs.values():
            if run.deadline <= now:
                run.deadline = now + _OVERDUE_SECONDS
                run.end()

    def _last_words(self, run: "_Run", status: int, group: Cgroup | None) -> dict[str, object] | None:
        """The report of a supervisor that was killed. If it sent one itself, that one is read."""
        if not os.WIFSIGNALED(status):
            return None
        hit = group.hit() if group else ""
        return {"failed": None, "code": -signal.SIGKILL, "timed_out": run.ended_here and not run.asked, "hit": hit}

    def _forget(self, run: "_Run", report: dict[str, object] | None = None) -> None:
        del self._runs[run.pid]
        if self._controls.pop(run.control.fileno(), None):
            self._poll.unregister(run.control)
        with run.control, contextlib.suppress(OSError):
            if report:
                send(run.control, report)

    # -- starting

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
            waiting = self._prepare(groups, letter, network=policy.network)
            if not waiting.hand(letter, policy):
                raise ConnectionResetError(errno.ECONNRESET, "the supervisor ended before it had its order")
        self._follow(waiting.pid, letter, order.limit_seconds, inside=True)
        self._orders_inside += 1
        self._last_kind = (groups, policy.network)

    def _prepare_spare(self) -> None:
        """One for the next order, if it is like the last."""
        if self._orders_inside > 1 and self._last_kind and not self._spare:
            groups, network = self._last_kind
            with contextlib.suppress(OSError):  # the next order will tell why
                self._spare = self._prepare(groups, None, network=network)

    def _prepare(self, groups: Hierarchies, letter: Letter | None, *, network: bool) -> "_Spare":
        """`letter` is the one in hand: the new process closes its copy of it, so that the end of that run is seen."""
        confine.warm_up()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        group = Cgroup.make(groups)
        view = namespaces.system_layout(network=network)
        uid, gid = os.getuid(), os.getgid()

        def work() -> None:
            ours.close()
            if letter:
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
        return _Spare(pid, ours, group, groups, network)

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
            for group in self._groups.values():  # of the others; ours is not among them yet
                if group:
                    group.let_go()
            controls = (run.control for run in self._runs.values())
            for channel in (self._channel, self._spare, *self._crew.values(), *controls):
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
                break
        else:
            channel = self._hire(letter)
            letter.send(channel)
        self._follow(self._crew_pids[channel.fileno()], letter, letter.read()["limit_seconds"], inside=False)

    def _hire(self, letter: Letter) -> socket.socket:
        """`letter` is the one in hand: a copy of us has its files too, and would keep the program's streams open."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def work() -> None:
            letter.close()
            serve_outside(theirs)

        with theirs:
            self._crew[ours.fileno()] = ours
            self._crew_pids[ours.fileno()] = pid = self._start(fork, work, None)
            self._outside.add(pid)
        self._poll.register(ours, select.POLLIN)
        return ours

    def _hear(self, channel: socket.socket) -> None:
        """It says that it is free, or is gone."""
        if run := self._runs.get(self._crew_pids[channel.fileno()]):
            self._forget(run)
        wanted = self._channel.fileno() >= 0 and len(self._idle) < _MOST_IDLE
        if channel.recv(1) and wanted:
            self._idle.append(channel)
        else:
            self._dismiss(channel)

    def _dismiss(self, channel: socket.socket) -> None:
        self._poll.unregister(channel)
        del self._crew[channel.fileno()], self._crew_pids[channel.fileno()]
        channel.close()


def _answer_probe(letter: Letter) -> None:
    from skillyard.sandbox.probe import probe  # noqa: PLC0415  (once a boot; it brings subprocess)

    send(socket.socket(fileno=letter.control), probe().as_json())


def _serve_proxy(letter: Letter) -> None:
    from skillyard.sandbox.proxy import serve  # noqa: PLC0415  (brings threading; only a run with hosts needs it)

    listener = socket.socket(fileno=letter.streams[0])
    serve(listener, socket.socket(fileno=letter.control), letter.read()["hosts"])


class _Run:
    """A run in flight: who supervises it, its control socket, and until when we wait for its end."""

    def __init__(self, pid: int, control: socket.socket, deadline: float, *, inside: bool) -> None:
        self.pid, self.control, self.deadline, self._inside = pid, control, deadline, inside
        self.asked = False
        self.ended_here = False

    def end(self) -> None:
        """With namespaces the kernel ends all with the supervisor. Without, the supervisor still cleans up."""
        self.ended_here = True
        if self._inside:
            os.kill(self.pid, signal.SIGKILL)
        else:
            tree.kill_descendants(self.pid)
            os.kill(self.pid, signal.SIGCONT)


class _Spare:
    """A supervisor in its namespaces and its cgroup, ready for an order."""

    def __init__(
        self, pid: int, channel: socket.socket, group: Cgroup | None, groups: Hierarchies, network: bool
    ) -> None:
        self.pid = pid
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
