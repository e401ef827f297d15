"""The process beside one run: starts the program, watches the clock, ends the whole tree, reports how it went.

With namespaces it runs inside, as their first process, confined like the program itself: when it ends, for
whatever reason, the kernel ends everybody in there. Without, it runs outside as a child subreaper.

Covered: whoever the program leaves behind dies when it ends, at the limit, and when the runtime goes away
however suddenly, because then the control socket closes.
Not covered: without namespaces, somebody who kills this process itself: then only the program's first process
dies with it. A process that the kernel cannot end, stuck in a device: we stop waiting after a while.
"""

import contextlib
import json
import os
import signal
import socket
from typing import Any, Final, NoReturn

from skillyard.sandbox import bubblewrap, confine, namespaces, seccomp
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.hosts import proxy_variables
from skillyard.sandbox.layers import Level
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.process_tree import ChildWatcher, descendants, kill_descendants, signal_all
from skillyard.sandbox.spawn_request import LISTENER, FdMessage, SpawnRequest, send
from skillyard.sandbox.streams import StreamFds
from skillyard.sandbox.syscalls import (
    MACHINE,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    fork,
    prctl,
)

#: Connections that wait for the proxy to accept them.
_PROXY_BACKLOG: Final = 256
#: Python ignores some of these, and our own processes others; a program expects the defaults.
_RESTORED: Final = (
    *(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD),
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP),
)


def as_failure(stage: str, error: OSError) -> dict[str, Any]:
    """Report an error as the value of `failed`. One about a path is the caller's, whichever stage meets it."""
    why = error.strerror or str(error)
    if error.filename:
        stage, why = "path", f"{os.fsdecode(error.filename)}: {why}"
    return {"stage": stage, "errno": error.errno or 0, "text": why}


def _as_report(watcher: ChildWatcher, group: Cgroup | None) -> dict[str, Any]:
    status = signal.SIGKILL if watcher.status is None else watcher.status
    return {
        "failed": None,
        "code": os.waitstatus_to_exitcode(status),
        "timed_out": watcher.timed_out,
        "hit": group.hit() if group else "",
    }


# -- the program itself, with its three streams, in a session of its own and with the usual signals


def _find_program(name: str, path: str) -> str:
    """Find it as a shell does; a name with a slash is a path."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(2, f"no such program: {name}")


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


def _close_all(streams: StreamFds) -> None:
    for stream in streams:
        os.close(stream)


# -- inside


def supervise_inside(
    channel: socket.socket,
    layout: namespaces.Layout,
    group: Cgroup | None,
    uid: int,
    gid: int,
    *,
    own_network: bool,
) -> None:
    """Serve one request, as the first process of new namespaces; nothing of it outlives this process.

    Everything that does not depend on the request is done before it comes. `uid` and `gid` are those outside.
    """
    trouble: OSError | None = None
    old = -1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        old = namespaces.begin(layout, uid=uid, gid=gid, own_network=own_network)
    except OSError as error:
        trouble = error
    message = FdMessage.receive(channel)
    if message is None:
        return
    with socket.socket(fileno=message.control) as control, contextlib.suppress(ConnectionError):
        if trouble:
            send(control, {"failed": as_failure("layers", trouble)})
        else:
            request = SpawnRequest.from_json(message.content())
            send(control, _run_inside(request, message.streams, old, group, control))


def _run_inside(
    request: SpawnRequest, streams: StreamFds, old: int, group: Cgroup | None, control: socket.socket
) -> dict[str, Any]:
    stage = "layers"
    policy = request.policy or Policy()
    try:
        proxy = _open_proxy(policy, control)
        sealed = confine.finish_root(old, policy, request.plan.layers, request.cwd)
        confine.restrict(request.plan.level, policy, request.plan.layers, "", sealed=sealed)
        prctl(PR_SET_DUMPABLE, 0)
        watcher = ChildWatcher()
        stage = "program"
        os.chdir(request.cwd)
        main = _spawn(request.argv, request.env | proxy | namespaces.home_variables(policy), streams)
    except OSError as error:
        return {"failed": as_failure(stage, error)}
    _close_all(streams)
    watcher.wait(main, control, request.limit_seconds)
    watcher.end(lambda: _signal_everybody(signal.SIGTERM), lambda: _signal_everybody(signal.SIGKILL))
    return _as_report(watcher, group) | {"sealed": sealed}


def _open_proxy(policy: Policy, control: socket.socket) -> dict[str, str]:
    """Hand a listening socket of this net namespace out to the runtime; return the variables that name it."""
    if policy.network or not policy.hosts:
        return {}
    with socket.create_server(("127.0.0.1", 0), backlog=_PROXY_BACKLOG) as listener:
        socket.send_fds(control, [LISTENER], [listener.fileno()])
        return proxy_variables(policy.hosts, listener.getsockname()[1])


def _signal_everybody(which: signal.Signals) -> None:
    """Signal all others in this pid namespace."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, which)


# -- outside


def serve_outside(channel: socket.socket) -> None:
    """Serve one request after the other, until the starter lets us go or something of a run cannot be ended."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)
    watcher = ChildWatcher()
    while message := FdMessage.receive(channel):
        request = SpawnRequest.from_json(message.content())
        os.close(message.body)
        with socket.socket(fileno=message.control) as control:
            run = _OutsideRun(request, message.streams, watcher)
            report = run.serve(control)
            run.clean_up()
            with contextlib.suppress(ConnectionError):
                send(control, report)
        if watcher.reap():
            return
        channel.send(b".")


class _OutsideRun:
    """A run with the other layers, with bubblewrap, or with none."""

    def __init__(self, request: SpawnRequest, streams: StreamFds, watcher: ChildWatcher) -> None:
        self._request, self._streams, self._watcher = request, streams, watcher
        self._group: Cgroup | None = None
        self._temp = ""
        #: The reading end of the pipe on which the child reports why the program could not start.
        self._failures = -1

    def serve(self, control: socket.socket) -> dict[str, Any]:
        try:
            policy = self._request.policy
            main = self._start_confined(policy) if policy else self._start_free()
        except OSError as error:
            return {"failed": as_failure("program", error)}
        finally:
            _close_all(self._streams)
        self._watcher.wait(main, control, self._request.limit_seconds)
        self._watcher.end(self._terminate, self._kill)
        failed = self._read_failure()
        return {"failed": failed} if failed else _as_report(self._watcher, self._group)

    def _start_free(self) -> int:
        os.chdir(self._request.cwd)
        return _spawn(self._request.argv, self._request.env, self._streams)

    def _start_confined(self, policy: Policy) -> int:
        self._group = Cgroup.make(self._request.plan.layers.cgroup)
        if self._group:
            self._group.limit(policy)
        self._temp = f"{os.environ.get('TMPDIR') or '/tmp'}/skillyard-{os.urandom(8).hex()}"
        for folder in ("", "/tmp", "/home"):
            os.mkdir(self._temp + folder, 0o700)
        self._failures, failures = os.pipe()
        gate, opened = os.pipe()
        main = fork()
        if main == 0:
            _exec_confined(self._request, policy, self._streams, gate, failures, self._temp)
        os.close(failures)
        os.close(gate)
        try:
            if self._group:
                self._group.add(main)
            os.write(opened, b"!")
        except OSError:
            os.kill(main, signal.SIGKILL)
            self._watcher.end(self._terminate, self._kill)
            raise
        finally:
            os.close(opened)
        return main

    def _read_failure(self) -> dict[str, Any] | None:
        """Why the program could not start. It is gone by now, and so is everybody who could still write."""
        if self._failures < 0:
            return None
        os.set_blocking(self._failures, False)
        try:
            text = os.read(self._failures, 65536)
        except BlockingIOError:
            return None
        failed: dict[str, Any] | None = json.loads(text) if text else None
        return failed

    def _terminate(self) -> None:
        signal_all(descendants(os.getpid()), signal.SIGTERM)

    def _kill(self) -> None:
        if not (self._group and self._group.kill()):
            kill_descendants()

    def clean_up(self) -> None:
        os.chdir("/")
        if self._failures >= 0:
            os.close(self._failures)
        if self._group:
            self._group.close()
            self._group.remove()
        if self._temp:
            from shutil import rmtree  # noqa: PLC0415  (after the run, when nobody waits any more)

            rmtree(self._temp, ignore_errors=True)


def _exec_confined(
    request: SpawnRequest, policy: Policy, streams: StreamFds, gate: int, failures: int, temp: str
) -> None:
    """In the child: apply the layers and exec the program. Never returns."""
    stage = "layers"
    try:
        signal.set_wakeup_fd(-1)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if not os.read(gate, 1):
            return
        if request.plan.level is Level.BUBBLEWRAP:
            _exec_bubblewrap(request, policy, streams)
        confine.restrict(request.plan.level, policy, request.plan.layers, temp)
        stage = "program"
        os.chdir(request.cwd)
        home = {"TMPDIR": f"{temp}/tmp", "HOME": f"{temp}/home"}
        _exec(request.argv, request.env | home, streams)
    except OSError as error:
        os.write(failures, json.dumps(as_failure(stage, error)).encode())
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
