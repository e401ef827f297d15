"""The process beside one run: starts the program, watches the clock, ends the whole tree, reports how it went.

With namespaces it is their first process, confined like the program itself, and the kernel ends everybody in there with
it. Without, it runs outside as a child subreaper: whoever loses its parent becomes its own child, and is found.

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
from skillyard.sandbox.syscalls import MACHINE, fork, prctl

_GRACE_SECONDS: Final = 0.2  # how a run is stopped: SIGTERM, this long, SIGKILL
_STUCK_SECONDS: Final = 5.0  # how long we wait for killed processes to be gone before we report anyway
_LONGEST_POLL_SECONDS: Final = 3600.0
#: Processes reaped at once: a program whose children end without pause must not keep us from the clock.
_MOST_REAPED: Final = 1000
_PROXY_BACKLOG: Final = 256  # connections that wait for the proxy to accept them
#: Python ignores some of these, and our own processes others; a program expects the defaults.
_RESTORED: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


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
        self._status = -1  # as waitpid gives it; negative while it runs
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler the pipe is not written

    def follow(
        self, main: int, control: socket.socket, limit_seconds: float, signal_tree: Callable[[signal.Signals], None]
    ) -> dict[str, Any]:
        """Wait for the program, then end its whole tree. Return the report."""
        self._main = main
        timed_out = self._wait(control, time.monotonic() + limit_seconds)
        if self._status < 0:
            signal_tree(signal.SIGTERM)
            self._wait_until(lambda: not self._reap() or self._status >= 0, _GRACE_SECONDS)
        self._wait_until(lambda: not self._reap(), _STUCK_SECONDS, partial(signal_tree, signal.SIGKILL))
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

    def _wait_until(self, done: Callable[[], bool], seconds: float, act: Callable[[], None] = lambda: None) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            act()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            select.select([self._woken], [], [], min(left, 0.05))


def as_failure(stage: str, error: OSError) -> dict[str, Any]:
    """Return the report of a run that could not start. An error about a path is the caller's, whichever stage it is."""
    why = error.strerror or str(error)
    if error.filename:
        stage, why = "path", f"{os.fsdecode(error.filename)}: {why}"
    return {"failed": {"stage": stage, "errno": error.errno or 0, "text": why}}


def _find_program(name: str, env: dict[str, str]) -> str:
    """Find it as a shell does; a name with a slash is a path."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(errno.ENOENT, f"no such program: {name}")


def _spawn(argv: tuple[str, ...], env: dict[str, str], streams: StreamFds) -> int:
    """Start it beside this process, in a session of its own and with the usual signals."""
    dups = [(os.POSIX_SPAWN_DUP2, stream, at) for at, stream in enumerate(streams)]
    program = _find_program(argv[0], env)
    return os.posix_spawn(program, argv, env, file_actions=dups, setsid=True, setsigdef=_RESTORED)


def _exec(argv: tuple[str, ...], env: dict[str, str], streams: StreamFds) -> NoReturn:
    """Replace this process by it."""
    os.setsid()
    for which in _RESTORED:
        signal.signal(which, signal.SIG_DFL)
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    os.execve(_find_program(argv[0], env), argv, env)  # noqa: S606


def _serve(channel: socket.socket, run: Callable[[SpawnRequest, StreamFds, socket.socket], dict[str, Any]]) -> None:
    """Receive one request, run it and send the report. Return at once if no request is coming any more."""
    if message := FdMessage.receive(channel):
        with socket.socket(fileno=message.control) as control, contextlib.suppress(ConnectionError):
            send(control, run(SpawnRequest.from_json(message.content()), message.streams, control))


def supervise_inside(channel: socket.socket, begin: Callable[[], namespaces.BegunRoot], group: Cgroup) -> None:
    """Serve one request, as the first process of new namespaces; nothing of it outlives this process.

    `begin` is `namespaces.begin`: whatever does not depend on the request is done before it comes.
    """
    try:
        prctl("PDEATHSIG", signal.SIGKILL)
        group.enter()
        begun = begin()
    except OSError as error:
        failure = as_failure("layers", error)
        _serve(channel, lambda *_: failure)
    else:
        _serve(channel, partial(_run_inside, begun, group))


def _run_inside(
    begun: namespaces.BegunRoot, group: Cgroup, request: SpawnRequest, streams: StreamFds, control: socket.socket
) -> dict[str, Any]:
    stage = "layers"
    policy, layers = request.policy or Policy(), request.layers
    try:
        proxy = _open_proxy(policy, control)
        pid_limit = layers.pid_limit and not layers.process_limit
        root = namespaces.finish(begun, policy, request.cwd, pid_limit=pid_limit)
        sealed = root.sealed and layers.overlay
        confine.restrict(policy, layers, "", sealed=sealed)
        prctl("DUMPABLE", 0)
        watcher = _ChildWatcher()
        stage = "program"
        os.chdir(request.cwd)
        main = _spawn(request.argv, request.env | proxy | namespaces.home_variables(policy), streams)
    except OSError as error:
        return as_failure(stage, error)
    close_all(streams)
    # In a pid namespace, -1 is everybody else in it.
    report = watcher.follow(main, control, request.limit_seconds, partial(_signal_all, (-1,)))
    report |= {"sealed": sealed, "read_only": root.read_only, "home": namespaces.list_home(policy), "hit": group.hit()}
    report |= {"looked_for": begun.lookups.read() if begun.lookups else ()}
    with contextlib.suppress(OSError, ValueError):  # a kernel that counts otherwise: nothing is known then
        report |= {"tried_network": not policy.network and namespaces.tried_network()}
    return report


def _open_proxy(policy: Policy, control: socket.socket) -> dict[str, str]:
    """Hand a listening socket of this net namespace out to the runtime; return the variables that name it."""
    if policy.network or not policy.hosts:
        return {}
    with socket.create_server(("127.0.0.1", 0), backlog=_PROXY_BACKLOG) as listener:
        socket.send_fds(control, [LISTENER], [listener.fileno()])
        return proxy_variables(policy.hosts, listener.getsockname()[1])


def supervise_outside(channel: socket.socket) -> None:
    """Serve one request with the other layers, with bubblewrap, or with none."""
    prctl("CHILD_SUBREAPER", 1)
    prctl("DUMPABLE", 0)
    _serve(channel, _run_outside)


def _run_outside(request: SpawnRequest, streams: StreamFds, control: socket.socket) -> dict[str, Any]:
    temp = f"{os.environ.get('TMPDIR') or '/tmp'}/skillyard-{os.urandom(8).hex()}"
    try:
        with contextlib.closing(Cgroup(request.layers.cgroup)) as group:
            return _follow_outside(request, streams, control, group, temp)
    except OSError as error:
        return as_failure("program", error)
    finally:
        if os.path.lexists(temp):
            from shutil import rmtree  # noqa: PLC0415  (after the run)

            rmtree(temp, ignore_errors=True)


def _follow_outside(
    request: SpawnRequest, streams: StreamFds, control: socket.socket, group: Cgroup, temp: str
) -> dict[str, Any]:
    def signal_tree(which: signal.Signals) -> None:
        if which is signal.SIGTERM:
            _signal_all(_descendants(os.getpid()), which)
        elif not group.kill():
            kill_descendants()

    watcher = _ChildWatcher()
    failures, failure_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    if request.policy:
        for folder in ("", "/tmp", "/home"):
            os.mkdir(temp + folder, 0o700)
        group.limit(request.policy)
        main = fork()
        if main == 0:
            _exec_confined(request, request.policy, streams, group, temp, failure_writer)
    else:
        os.chdir(request.cwd)
        main = _spawn(request.argv, request.env, streams)
    close_all((failure_writer, *streams))
    report = watcher.follow(main, control, request.limit_seconds, signal_tree)
    with contextlib.suppress(BlockingIOError):  # empty, and kept open by a process that the kernel cannot end
        if failure := os.read(failures, 65536):
            return dict(json.loads(failure))
    return report | {"hit": group.hit()}


def _exec_confined(
    request: SpawnRequest, policy: Policy, streams: StreamFds, group: Cgroup, temp: str, failures: int
) -> NoReturn:
    """In the child: apply the layers and exec the program, or write to `failures` why it could not start."""
    stage = "layers"
    try:
        signal.set_wakeup_fd(-1)
        prctl("PDEATHSIG", signal.SIGKILL)
        group.enter(also_unified=True)
        if request.layers.level is Level.BUBBLEWRAP:
            _exec_bubblewrap(request, policy, streams)
        confine.restrict(policy, request.layers, temp)
        stage = "program"
        os.chdir(request.cwd)
        _exec(request.argv, request.env | {"TMPDIR": f"{temp}/tmp", "HOME": f"{temp}/home"}, streams)
    except OSError as error:
        os.write(failures, json.dumps(as_failure(stage, error)).encode())
    finally:
        os._exit(1)


def _exec_bubblewrap(request: SpawnRequest, policy: Policy, streams: StreamFds) -> NoReturn:
    sockets = confine.sockets(policy, request.layers, sealed=False)
    filter_file = _inheritable_file("seccomp", seccomp.as_bytes(seccomp.assemble(MACHINE, sockets)))
    words = bubblewrap.arguments(policy, request.cwd, filter_file)
    options = _inheritable_file("options", b"".join(os.fsencode(word) + b"\0" for word in words))
    confine.limit(policy, own_namespaces=False)
    command = (request.layers.bubblewrap, "--args", str(options), "--", *request.argv)
    _exec(command, request.env | namespaces.home_variables(policy), streams)


def _inheritable_file(name: str, content: bytes) -> int:
    """A file in memory that the next program gets, at its start."""
    file = os.memfd_create(name, 0)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
