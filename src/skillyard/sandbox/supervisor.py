"""The process that stands beside one run: starts it, watches the clock, ends all of it, says how it went.

Covered: whoever the program leaves behind dies when it ends, at the limit, and when the runtime goes away
however suddenly, because then the control socket closes. If this process itself is killed, the program's
first process dies with it (and all of it where there are namespaces).
Not covered: a process that the kernel cannot end, stuck in a device; we stop waiting for it after a while.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from skillyard.sandbox import bubblewrap, confine, namespaces, seccomp, tree
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.layers import Way
from skillyard.sandbox.order import Order, receive, send
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.probe import probe
from skillyard.sandbox.syscalls import (
    MACHINE,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    prctl,
)

#: The contract's Stop: SIGTERM, this long, SIGKILL.
GRACE_SECONDS: Final = 0.2
#: How long we wait for killed processes to be gone before we say so anyway.
_STUCK_SECONDS: Final = 5.0
_RESTORED: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT)

Streams = tuple[int, int, int]


def supervise(control: socket.socket, streams: Streams) -> None:
    """Serve one order and return when nothing is left of it."""
    message = receive(control)
    if message is None:
        return
    if message.get("probe"):
        send(control, probe().as_json())
        return
    run = _Run(Order.from_json(message), control)
    try:
        run.start(streams)
        run.watch()
    except OSError as error:
        run.failed = {"stage": "start", "errno": error.errno or 0, "text": str(error)}
    run.end()
    with contextlib.suppress(ConnectionError):
        send(control, run.report())
    run.clean()


class _Run:
    def __init__(self, order: Order, control: socket.socket) -> None:
        self.order = order
        self.failed: dict[str, Any] = {}
        self._control = control
        self._group: Cgroup | None = None
        self._temp = ""
        self._main = 0
        self._status: int | None = None
        self._timed_out = False
        self._stopped = False
        self._told = -1
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    # -- start

    def start(self, streams: Streams) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if self.order.policy is None:
            os.chdir(self.order.cwd)
            self._main = spawn(self.order.argv, self.order.env, streams)
        else:
            self._start_confined(self.order.policy, streams)
        for stream in streams:
            os.close(stream)

    def _start_confined(self, policy: Policy, streams: Streams) -> None:
        plan = self.order.plan
        apart = plan.way in {Way.FULL, Way.NAMESPACES}
        if plan.layers.cgroup.folders:
            self._group = Cgroup.make(plan.layers.cgroup, _unique(), policy)
        if not apart:
            self._temp = f"{os.environ.get('TMPDIR') or '/tmp'}/{_unique()}"
            os.mkdir(self._temp, 0o700)
        if os.getuid() == 0:
            os.setgroups([])
        self._told, tell = os.pipe()
        gate, opened = os.pipe()
        cell = _Cell(self.order, policy, streams, tell, gate, self._temp)
        self._main = namespaces.clone(network=policy.network) if apart else os.fork()
        if self._main == 0:
            cell.run()
        os.close(tell)
        os.close(gate)
        if self._group:
            self._group.take(self._main)
        os.write(opened, b"!")
        os.close(opened)

    # -- watch

    def watch(self) -> None:
        """Until the program ended, the limit passed, or the runtime asked to stop or went away."""
        deadline = time.monotonic() + self.order.limit_seconds
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while self._status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self._timed_out = True
                break
            ready = {file for file, _ in poll.poll(min(left, 86400) * 1000)}
            if self._woken in ready:
                self._reap()
            if self._control.fileno() in ready:
                self._stopped = True
                break

    def _reap(self) -> bool:
        """Take in whoever ended; False when there is nobody left to wait for."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = status

    # -- end

    def end(self) -> None:
        """After this nothing of the tree is left."""
        if self._main and self._status is None:
            self._ask()
        if self._main:
            self._until(_STUCK_SECONDS, lambda: not self._reap(), self._kill)

    def _ask(self) -> None:
        """SIGTERM to everybody, and the moment it takes the well-behaved to end."""
        tree.signal_all(tree.descendants(os.getpid()), signal.SIGTERM)
        self._until(GRACE_SECONDS, lambda: not self._reap() or self._status is not None, lambda: None)

    def _until(self, seconds: float, done: Callable[[], bool], act: Callable[[], None]) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            act()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            select.select([self._woken], [], [], min(left, 0.05))

    def _kill(self) -> None:
        if self.order.plan.way in {Way.FULL, Way.NAMESPACES}:
            tree.signal_all((self._main,), signal.SIGKILL)
        elif not (self._group and self._group.kill()):
            tree.kill_descendants()

    # -- report

    def report(self) -> dict[str, Any]:
        said = self._said()
        status = said.get("status", self._status)
        return {
            "failed": self.failed or said.get("failed"),
            "code": os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL,
            "timed_out": self._timed_out,
            "stopped": self._stopped,
            "hit": self._group.hit() if self._group else "",
        }

    def _said(self) -> dict[str, Any]:
        """What the confined side told us: why it failed, or how the program inside ended."""
        if self._told < 0:
            return {}
        with contextlib.suppress(OSError):
            os.set_blocking(self._told, False)
            text = os.read(self._told, 65536)
            if text:
                said: dict[str, Any] = json.loads(text)
                return said
        return {}

    def clean(self) -> None:
        if self._group:
            self._group.remove()
        if self._temp:
            shutil.rmtree(self._temp, ignore_errors=True)


class _Cell:
    """The confined side: the process between the supervisor and the program."""

    def __init__(self, order: Order, policy: Policy, streams: Streams, tell: int, gate: int, temp: str) -> None:
        self.order, self.policy, self.streams = order, policy, streams
        self._tell, self._gate, self._temp = tell, gate, temp
        self._ids = (os.getuid(), os.getgid())
        self._view = namespaces.layout(policy)

    def run(self) -> None:
        """Never returns."""
        code = 1
        stage = "layers"
        try:
            signal.set_wakeup_fd(-1)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            way = self.order.plan.way
            if way in {Way.FULL, Way.NAMESPACES}:
                self._enter()
                stage = "program"
                code = self._first()
            elif way is Way.BUBBLEWRAP:
                self._wrap()
            else:
                self._pass_gate()
                confine.restrict(way, self.policy, self.order.plan.layers, self._temp)
                stage = "program"
                os.chdir(self.order.cwd)
                become(self.order.argv, self._env(f"{self._temp}/tmp", f"{self._temp}/home"), self.streams)
        except OSError as error:
            self._say({"failed": {"stage": stage, "errno": error.errno or 0, "text": str(error)}})
        finally:
            os._exit(code)

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._tell, json.dumps(message).encode())

    def _env(self, temp: str, home: str) -> dict[str, str]:
        return self.order.env | {"TMPDIR": temp, "HOME": home}

    def _pass_gate(self) -> None:
        """Wait until the supervisor has put us into the cgroup; nothing is started before."""
        os.read(self._gate, 1)
        for folder in ("tmp", "home") if self._temp else ():
            os.mkdir(f"{self._temp}/{folder}", 0o700)

    def _enter(self) -> None:
        uid, gid = self._ids
        plan = self.order.plan
        confine.build_root(self._view, self.policy, plan.layers, self.order.cwd, uid=uid, gid=gid)
        self._pass_gate()
        confine.restrict(plan.way, self.policy, plan.layers, "")
        prctl(PR_SET_DUMPABLE, 0)

    def _first(self) -> int:
        """Be the first process of the namespace: start the program, reap orphans, end with the program."""
        os.chdir(self.order.cwd)
        env = self._env(namespaces.temp_folder(self.policy), f"{namespaces.PRIVATE}/home")
        program = spawn(self.order.argv, env, self.streams)
        for stream in self.streams:
            os.close(stream)
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == program:
                self._say({"status": status})
                return 0

    def _wrap(self) -> None:
        program = seccomp.assemble(MACHINE, confine.sockets(self.policy, apart=True))
        filtered = os.memfd_create("seccomp", 0)
        os.write(filtered, seccomp.as_bytes(program))
        os.lseek(filtered, 0, os.SEEK_SET)
        wrapper = self.order.plan.layers.bubblewrap
        words = bubblewrap.arguments(self._view, self.policy, self.order.cwd, filtered)
        env = self._env(namespaces.temp_folder(self.policy), f"{namespaces.PRIVATE}/home")
        self._pass_gate()
        confine.limit(self.policy, apart=False)
        become((wrapper, *words, *self.order.argv), env, self.streams)


def _unique() -> str:
    return f"skillyard-{os.urandom(8).hex()}"


def find_program(name: str, path: str) -> str:
    """As a shell finds it; a name with a slash is a path."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(2, f"no such program: {name}")


def spawn(argv: tuple[str, ...], env: dict[str, str], streams: Streams) -> int:
    """Start the program in a session of its own, without copying ourselves."""
    return os.posix_spawn(
        find_program(argv[0], env.get("PATH", os.defpath)),
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, stream, at) for at, stream in enumerate(streams)],
        setsid=True,
        setsigdef=_RESTORED,
    )


def become(argv: tuple[str, ...], env: dict[str, str], streams: Streams) -> None:
    """Turn this process into the program."""
    os.setsid()
    for which in _RESTORED:
        signal.signal(which, signal.SIG_DFL)
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    os.execve(find_program(argv[0], env.get("PATH", os.defpath)), argv, env)  # noqa: S606
