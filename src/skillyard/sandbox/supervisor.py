"""The process beside one run: starts the program, watches the clock, ends the whole tree, reports how it went.

With namespaces it runs inside, as their first process, confined like the program itself: when it ends, for
whatever reason, the kernel ends everybody in there. Without, it runs outside as a child subreaper: whoever loses its
parent becomes its own child, and is found.

Covered: whoever the program leaves behind (daemons, double forks, those that ignore SIGTERM) dies when it ends, at the
limit, and when the runtime goes away however suddenly, because then the control socket closes.
Not covered: without namespaces, somebody who kills this process itself: then only the program's first process
dies with it. A process that the kernel cannot end, stuck in a device: we stop waiting after a while.
"""

import contextlib
import errno
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from skillyard.sandbox import bubblewrap, confine, namespaces, seccomp
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.hosts import proxy_variables
from skillyard.sandbox.ipc import LISTENER, FdMessage, SpawnRequest, StreamFds, close_all, send
from skillyard.sandbox.launch import Policy
from skillyard.sandbox.layers import Level
from skillyard.sandbox.syscalls import (
    MACHINE,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    fork,
    prctl,
)

#: How a run is stopped: SIGTERM, this long, SIGKILL.
_GRACE_SECONDS: Final = 0.2
#: How long we wait for killed processes to be gone before we report anyway.
_STUCK_SECONDS: Final = 5.0
_LONGEST_POLL_SECONDS: Final = 3600.0
#: Processes reaped at once: a program whose children end without pause must not keep us from the clock.
_MOST_REAPED: Final = 1000
#: Connections that wait for the proxy to accept them.
_PROXY_BACKLOG: Final = 256
#: Python ignores some of these, and our own processes others; a program expects the defaults.
_RESTORED: Final = (
    *(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD),
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP),
)

#: Signals everybody in the tree of a run.
_Signal = Callable[[], None]


# -- the process tree


def _descendants(root: int, keep: Container[int] = ()) -> Iterator[int]:
    """All below `root`, parents first. Zombies are among them until somebody reaps them."""
    waiting = [pid for pid in _children(root) if pid not in keep]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += _children(pid)


def _children(pid: int) -> Iterator[int]:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except OSError:
        return  # it ended while we looked


def _signal_all(pids: Iterable[int], which: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, which)


def kill_descendants(root: int | None = None, keep: Container[int] = ()) -> None:
    """End everybody below `root` (by default this process) except `keep` and those below them.

    Stop first, so that nobody forks while we look; kill when nobody new turns up.
    """
    seen: set[int] = set()
    while fresh := set(_descendants(root or os.getpid(), keep)) - seen:
        _signal_all(fresh, signal.SIGSTOP)
        seen |= fresh
    _signal_all(seen, signal.SIGKILL)


class _ChildWatcher:
    """Waits for a program, the clock and the runtime at once, and ends the tree. Make it before the program starts."""

    def __init__(self) -> None:
        self._main = 0
        #: As waitpid gives it; negative while it runs.
        self._status = -1
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler the pipe is not written

    def follow(
        self, main: int, control: socket.socket, limit_seconds: float, terminate: _Signal, kill: _Signal
    ) -> dict[str, Any]:
        """Wait for the program, then end its whole tree. Return the report."""
        self._main = main
        timed_out = self._wait(control, time.monotonic() + limit_seconds)
        if self._status < 0:
            terminate()
            self._wait_until(lambda: not self._reap() or self._status >= 0, _GRACE_SECONDS)
        self._wait_until(lambda: not self._reap(), _STUCK_SECONDS, kill)
        code = os.waitstatus_to_exitcode(self._status) if self._status >= 0 else -signal.SIGKILL
        return {"failed": None, "code": code, "timed_out": timed_out, "hit": ""}

    def _wait(self, control: socket.socket, deadline: float) -> bool:
        """Wait until it ended, or the runtime asked to stop or went away. Return True if the limit came first."""
        poll = select.poll()
        poll.register(control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while self._reap() and self._status < 0:
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            ready = poll.poll(min(left, _LONGEST_POLL_SECONDS) * 1000)
            if any(file != self._woken for file, _ in ready):
                return False
        # Killed after the limit: the starter's clock was faster than ours.
        return self._status == signal.SIGKILL and time.monotonic() >= deadline

    def _reap(self) -> bool:
        """Reap whoever ended; return False when there is nobody left to wait for."""
        with contextlib.suppress(BlockingIOError):  # nobody ended since we looked last
            os.read(self._woken, 4096)
        for _ in range(_MOST_REAPED):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = status
        with contextlib.suppress(BlockingIOError):  # it is full: we wake up anyway
            os.write(self._wake, b".")
        return True

    def _wait_until(self, done: Callable[[], bool], seconds: float, act: _Signal | None = None) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if act:
                act()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            select.select([self._woken], [], [], min(left, 0.05))


def as_failure(stage: str, error: OSError) -> dict[str, Any]:
    """Report an error as the value of `failed`. One about a path is the caller's, whichever stage meets it."""
    why = error.strerror or str(error)
    if error.filename:
        stage, why = "path", f"{os.fsdecode(error.filename)}: {why}"
    return {"stage": stage, "errno": error.errno or 0, "text": why}


# -- the program itself, with its three streams, in a session of its own and with the usual signals


def _find_program(name: str, path: str) -> str:
    """Find it as a shell does; a name with a slash is a path."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(errno.ENOENT, f"no such program: {name}")


def _spawn(argv: tuple[str, ...], env: dict[str, str], streams: StreamFds) -> int:
    """Start it beside this process, without copying this process."""
    return os.posix_spawn(
        _find_program(argv[0], env.get("PATH", os.defpath)),
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, stream, at) for at, stream in enumerate(streams)],
        setsid=True,
        setsigdef=_RESTORED,
    )


def _exec(argv: tuple[str, ...], env: dict[str, str], streams: StreamFds) -> NoReturn:
    """Replace this process by it."""
    os.setsid()
    for which in _RESTORED:
        signal.signal(which, signal.SIG_DFL)
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    os.execve(_find_program(argv[0], env.get("PATH", os.defpath)), argv, env)  # noqa: S606


# -- inside


def supervise_inside(channel: socket.socket, begin: Callable[[], int], group: Cgroup | None) -> None:
    """Serve one request, as the first process of new namespaces; nothing of it outlives this process.

    `begin` is `namespaces.begin`: whatever does not depend on the request is done before it comes.
    """
    failed: dict[str, Any] | None = None
    old = -1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        old = begin()
    except OSError as error:
        failed = as_failure("layers", error)
    message = FdMessage.receive(channel)
    if message is None:
        return
    with socket.socket(fileno=message.control) as control, contextlib.suppress(ConnectionError):
        request = SpawnRequest.from_json(message.content())
        send(control, {"failed": failed} if failed else _run_inside(request, message.streams, old, group, control))


def _run_inside(
    request: SpawnRequest, streams: StreamFds, old: int, group: Cgroup | None, control: socket.socket
) -> dict[str, Any]:
    stage = "layers"
    policy = request.policy or Policy()
    try:
        proxy = _open_proxy(policy, control)
        layers = request.plan.layers
        pid_limit = layers.pid_limit and not layers.process_limit
        root = namespaces.finish(old, policy, request.cwd, pid_limit=pid_limit)
        sealed = root.sealed and layers.overlay
        confine.restrict(request.plan.level, policy, layers, "", sealed=sealed)
        prctl(PR_SET_DUMPABLE, 0)
        watcher = _ChildWatcher()
        stage = "program"
        os.chdir(request.cwd)
        main = _spawn(request.argv, request.env | proxy | namespaces.home_variables(policy), streams)
    except OSError as error:
        return {"failed": as_failure(stage, error)}
    close_all(streams)
    # In a pid namespace, -1 is everybody else in it.
    terminate, kill = partial(_signal_all, (-1,), signal.SIGTERM), partial(_signal_all, (-1,), signal.SIGKILL)
    report = watcher.follow(main, control, request.limit_seconds, terminate, kill)
    facts = {"sealed": sealed, "read_only": root.read_only, "home": namespaces.list_home()}
    return report | {"hit": group.hit() if group else "", **facts}


def _open_proxy(policy: Policy, control: socket.socket) -> dict[str, str]:
    """Hand a listening socket of this net namespace out to the runtime; return the variables that name it."""
    if policy.network or not policy.hosts:
        return {}
    with socket.create_server(("127.0.0.1", 0), backlog=_PROXY_BACKLOG) as listener:
        socket.send_fds(control, [LISTENER], [listener.fileno()])
        return proxy_variables(policy.hosts, listener.getsockname()[1])


# -- outside


def supervise_outside(channel: socket.socket) -> None:
    """Serve one request with the other layers, with bubblewrap, or with none."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)
    message = FdMessage.receive(channel)
    if message is None:
        return
    request = SpawnRequest.from_json(message.content())
    temp = f"{os.environ.get('TMPDIR') or '/tmp'}/skillyard-{os.urandom(8).hex()}"
    group: Cgroup | None = None
    with socket.socket(fileno=message.control) as control, contextlib.suppress(ConnectionError):
        try:
            group = Cgroup.make(request.plan.layers.cgroup)
            report = _run_outside(request, message.streams, group, temp, control)
        except OSError as error:
            report = {"failed": as_failure("program", error)}
        if group:
            group.remove()
        if os.path.lexists(temp):
            from shutil import rmtree  # noqa: PLC0415  (after the run)

            rmtree(temp, ignore_errors=True)
        send(control, report)


def _run_outside(
    request: SpawnRequest, streams: StreamFds, group: Cgroup | None, temp: str, control: socket.socket
) -> dict[str, Any]:
    def terminate() -> None:
        _signal_all(_descendants(os.getpid()), signal.SIGTERM)

    def kill() -> None:
        if not (group and group.kill()):
            kill_descendants()

    watcher = _ChildWatcher()
    failures, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    if request.policy:
        for folder in ("", "/tmp", "/home"):
            os.mkdir(temp + folder, 0o700)
        if group:
            group.limit(request.policy)
        main = fork()
        if main == 0:
            _exec_confined(request, request.policy, streams, group, temp, tell)
    else:
        os.chdir(request.cwd)
        main = _spawn(request.argv, request.env, streams)
    close_all((tell, *streams))
    report = watcher.follow(main, control, request.limit_seconds, terminate, kill)
    with contextlib.suppress(BlockingIOError):  # empty, and kept open by a process that the kernel cannot end
        if failed := os.read(failures, 65536):
            return {"failed": json.loads(failed)}
    return report | {"hit": group.hit() if group else ""}


def _exec_confined(
    request: SpawnRequest, policy: Policy, streams: StreamFds, group: Cgroup | None, temp: str, tell: int
) -> NoReturn:
    """In the child: apply the layers and exec the program, or tell why it could not start."""
    stage = "layers"
    try:
        signal.set_wakeup_fd(-1)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if group:
            group.add(os.getpid())
        if request.plan.level is Level.BUBBLEWRAP:
            _exec_bubblewrap(request, policy, streams)
        confine.restrict(request.plan.level, policy, request.plan.layers, temp)
        stage = "program"
        os.chdir(request.cwd)
        home = {"TMPDIR": f"{temp}/tmp", "HOME": f"{temp}/home"}
        _exec(request.argv, request.env | home, streams)
    except OSError as error:
        os.write(tell, json.dumps(as_failure(stage, error)).encode())
    finally:
        os._exit(1)


def _exec_bubblewrap(request: SpawnRequest, policy: Policy, streams: StreamFds) -> NoReturn:
    sockets = confine.sockets(policy, request.plan.level, request.plan.layers, sealed=False)
    filter_file = _inheritable_file("seccomp", seccomp.as_bytes(seccomp.assemble(MACHINE, sockets)))
    words = bubblewrap.arguments(policy, request.cwd, filter_file)
    options = _inheritable_file("options", b"".join(os.fsencode(word) + b"\0" for word in words))
    confine.limit(policy, own_namespaces=False)
    command = (request.plan.layers.bubblewrap, "--args", str(options), "--", *request.argv)
    _exec(command, request.env | namespaces.home_variables(policy), streams)


def _inheritable_file(name: str, content: bytes) -> int:
    """A file in memory that the next program gets, at its start."""
    file = os.memfd_create(name, 0)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
