"""The process that stands beside one run: starts it, watches the clock, ends all of it, says how it went.

With namespaces it stands inside, as their first process, confined like the program itself: when it ends, for
whatever reason, the kernel ends everybody in there. Without, it stands outside as a child subreaper.

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
from typing import Any, Final

from skillyard.sandbox import bubblewrap, confine, executable, namespaces, seccomp, tree
from skillyard.sandbox.cgroup import Cgroup
from skillyard.sandbox.executable import Streams
from skillyard.sandbox.fd_message import LISTENER, Letter
from skillyard.sandbox.hosts import proxy_variables
from skillyard.sandbox.layers import Way
from skillyard.sandbox.namespaces import Layout
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.spawn_request import Order, send
from skillyard.sandbox.syscalls import (
    MACHINE,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    fork,
    prctl,
)
from skillyard.sandbox.process_tree import Watch

#: Connections that wait for the proxy to take them.
_PROXY_BACKLOG: Final = 256


def failure(stage: str, error: OSError) -> dict[str, Any]:
    """An error about a path is the caller's, whichever stage meets it."""
    why = error.strerror or str(error)
    if error.filename:
        return {"stage": "path", "errno": error.errno or 0, "text": f"{os.fsdecode(error.filename)}: {why}"}
    return {"stage": stage, "errno": error.errno or 0, "text": why}


def supervise_inside(
    channel: socket.socket, view: Layout, group: Cgroup | None, uid: int, gid: int, *, own_network: bool
) -> None:
    """Serve one order, as the first process of new namespaces; nothing of it outlives this process.

    Everything that does not depend on the order is done before it comes. `uid` and `gid` are those outside.
    """
    trouble: OSError | None = None
    old = -1
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        old = namespaces.begin(view, uid=uid, gid=gid, own_network=own_network)
    except OSError as error:
        trouble = error
    letter = Letter.receive(channel)
    if letter is None:
        return
    with socket.socket(fileno=letter.control) as control, contextlib.suppress(ConnectionError):
        if trouble:
            send(control, {"failed": failure("layers", trouble)})
        else:
            send(control, _inside(Order.from_json(letter.read()), letter.streams, old, group, control))


def serve_outside(channel: socket.socket) -> None:
    """Serve one order after the other, until the starter lets us go or something of a run cannot be ended."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)
    watch = Watch()
    while letter := Letter.receive(channel):
        order = Order.from_json(letter.read())
        os.close(letter.sheet)
        with socket.socket(fileno=letter.control) as control:
            run = _Outside(order, letter.streams, watch)
            report = run.serve(control)
            run.clean()
            with contextlib.suppress(ConnectionError):
                send(control, report)
        if watch.reap():
            return
        channel.send(b".")


def _report(watch: Watch, group: Cgroup | None) -> dict[str, Any]:
    status = signal.SIGKILL if watch.status is None else watch.status
    return {
        "failed": None,
        "code": os.waitstatus_to_exitcode(status),
        "timed_out": watch.timed_out,
        "hit": group.hit() if group else "",
    }


def _close(streams: Streams) -> None:
    for stream in streams:
        os.close(stream)


# -- inside


def _inside(order: Order, streams: Streams, old: int, group: Cgroup | None, control: socket.socket) -> dict[str, Any]:
    stage = "layers"
    policy = order.policy or Policy()
    try:
        own = _open_proxy(policy, control)
        sealed = confine.finish_root(old, policy, order.plan.layers, order.cwd)
        confine.restrict(order.plan.way, policy, order.plan.layers, "", sealed=sealed)
        prctl(PR_SET_DUMPABLE, 0)
        watch = Watch()
        stage = "program"
        os.chdir(order.cwd)
        home = {"TMPDIR": namespaces.temp_folder(policy), "HOME": f"{namespaces.PRIVATE}/home"}
        main = executable.spawn(order.argv, order.env | own | home, streams)
    except OSError as error:
        return {"failed": failure(stage, error)}
    _close(streams)
    watch.wait(main, control, order.limit_seconds)
    watch.end(lambda: _signal_everybody(signal.SIGTERM), lambda: _signal_everybody(signal.SIGKILL))
    return _report(watch, group) | {"sealed": sealed}


def _open_proxy(policy: Policy, control: socket.socket) -> dict[str, str]:
    """Hand a listening socket of this net namespace out to the runtime; return the variables that name it."""
    if policy.network or not policy.hosts:
        return {}
    with socket.create_server(("127.0.0.1", 0), backlog=_PROXY_BACKLOG) as listener:
        socket.send_fds(control, [LISTENER], [listener.fileno()])
        return proxy_variables(policy.hosts, listener.getsockname()[1])


def _signal_everybody(which: signal.Signals) -> None:
    """All in this pid namespace but us."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, which)


# -- outside


class _Outside:
    """One run beside us: with the other layers, with bubblewrap, or with none."""

    def __init__(self, order: Order, streams: Streams, watch: Watch) -> None:
        self._order, self._streams, self._watch = order, streams, watch
        self._group: Cgroup | None = None
        self._temp = ""
        self._told = -1

    def serve(self, control: socket.socket) -> dict[str, Any]:
        try:
            policy = self._order.policy
            main = self._start_confined(policy) if policy else self._start_free()
        except OSError as error:
            return {"failed": failure("program", error)}
        finally:
            _close(self._streams)
        self._watch.wait(main, control, self._order.limit_seconds)
        self._watch.end(self._ask, self._kill)
        said = self._said()
        return {"failed": said} if said else _report(self._watch, self._group)

    def _start_free(self) -> int:
        os.chdir(self._order.cwd)
        return executable.spawn(self._order.argv, self._order.env, self._streams)

    def _start_confined(self, policy: Policy) -> int:
        self._group = Cgroup.make(self._order.plan.layers.cgroup)
        if self._group:
            self._group.limit(policy)
        self._temp = f"{os.environ.get('TMPDIR') or '/tmp'}/skillyard-{os.urandom(8).hex()}"
        for folder in ("", "/tmp", "/home"):
            os.mkdir(self._temp + folder, 0o700)
        self._told, tell = os.pipe()
        gate, opened = os.pipe()
        main = fork()
        if main == 0:
            _become_confined(self._order, policy, self._streams, gate, tell, self._temp)
        os.close(tell)
        os.close(gate)
        try:
            if self._group:
                self._group.take(main)
            os.write(opened, b"!")
        except OSError:
            os.kill(main, signal.SIGKILL)
            self._watch.end(self._ask, self._kill)
            raise
        finally:
            os.close(opened)
        return main

    def _said(self) -> dict[str, Any] | None:
        """Why the program could not start. It is gone by now, and so is everybody who could still write."""
        if self._told < 0:
            return None
        os.set_blocking(self._told, False)
        try:
            text = os.read(self._told, 65536)
        except BlockingIOError:
            return None
        said: dict[str, Any] | None = json.loads(text) if text else None
        return said

    def _ask(self) -> None:
        tree.signal_all(tree.descendants(os.getpid()), signal.SIGTERM)

    def _kill(self) -> None:
        if not (self._group and self._group.kill()):
            tree.kill_descendants()

    def clean(self) -> None:
        os.chdir("/")
        if self._told >= 0:
            os.close(self._told)
        if self._group:
            self._group.let_go()
            self._group.remove()
        if self._temp:
            from shutil import rmtree  # noqa: PLC0415  (after the run, when nobody waits any more)

            rmtree(self._temp, ignore_errors=True)


def _become_confined(order: Order, policy: Policy, streams: Streams, gate: int, tell: int, temp: str) -> None:
    """In the child: put the layers on and turn into the program. Never returns."""
    stage = "layers"
    try:
        signal.set_wakeup_fd(-1)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if not os.read(gate, 1):
            return
        if order.plan.way is Way.BUBBLEWRAP:
            _become_wrapped(order, policy, streams)
        confine.restrict(order.plan.way, policy, order.plan.layers, temp)
        stage = "program"
        os.chdir(order.cwd)
        home = {"TMPDIR": f"{temp}/tmp", "HOME": f"{temp}/home"}
        executable.become(order.argv, order.env | home, streams)
    except OSError as error:
        os.write(tell, json.dumps(failure(stage, error)).encode())
    finally:
        os._exit(1)


def _become_wrapped(order: Order, policy: Policy, streams: Streams) -> None:
    sockets = confine.sockets(policy, order.plan.way, order.plan.layers, sealed=False)
    filtered = _inherited("seccomp", seccomp.as_bytes(seccomp.assemble(MACHINE, sockets)))
    words = bubblewrap.arguments(policy, order.cwd, filtered)
    options = _inherited("options", b"".join(os.fsencode(word) + b"\0" for word in words))
    home = {"TMPDIR": namespaces.temp_folder(policy), "HOME": f"{namespaces.PRIVATE}/home"}
    confine.limit(policy, apart=False)
    command = (order.plan.layers.bubblewrap, "--args", str(options), "--", *order.argv)
    executable.become(command, order.env | home, streams)


def _inherited(name: str, content: bytes) -> int:
    """A file in memory that the next program gets, read from its start."""
    file = os.memfd_create(name, 0)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
