"""Runs programs on Linux: asks the starter for a supervisor, sends it the request, collects output and report."""

import contextlib
import os
import select
import socket
import sys
from _thread import allocate_lock
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from skillyard.core.errors import SandboxUnavailable
from skillyard.core.messages import Message
from skillyard.sandbox import ipc
from skillyard.sandbox.launch import CopyOnWrite, Exit, Launch
from skillyard.sandbox.layers import FIFO, NO_LAYERS, Hierarchies, Layers, check_guards

#: The report if the supervisor sent none: somebody killed it, and its tree with it.
_KILLED: dict[str, Any] = {"code": -9, "timed_out": False, "hit": "", "failed": None}
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from skillyard.sandbox.starter import main; main()"
#: For the end of a program that was told to stop: the supervisor bounds this itself.
_STOP_SECONDS: Final = 60.0


class Launcher:
    """Runs programs through a starter of its own. Any number of threads may call it at once.

    Covered: what the layers named in `Exit.sandbox` cover; the deadline, the output and the end of the whole tree at
    every level, also when this process is killed.
    Not covered: a copy of this process made by fork keeps the control sockets of active runs open.
    """

    def __init__(self, layers: Layers | None = None, *, assumed: Layers | None = None, weak: bool = False) -> None:
        """`layers` are taken as given; `assumed` ones only until they turn out to be wrong."""
        self._weak = weak
        self._layers = layers or assumed
        self._assumed = assumed is not None
        self.probed = False
        self._starter: _Starter | None = None
        self._lock = allocate_lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._starter:
                self._starter.close()
            self._starter = None

    def accept_weak(self) -> None:
        """From now on, run without namespaces even as root. Only for what a person said on the command line."""
        self._weak = True

    def expect(self, *, sandboxed: bool) -> None:
        """Start the starter and a supervisor for the first run, which get ready while the caller prepares that run.

        Nothing happens if they are there already, the layers are not known yet, or this process has several threads.
        """
        with self._lock:
            if self._starter is None and (self._layers or not sandboxed) and _count_threads() == 1:
                layers = self._layers if sandboxed and self._layers else NO_LAYERS
                self._starter = _Starter((_kind_for(layers), layers.cgroup))

    @property
    def layers(self) -> Layers:
        """The layers of this machine, probed once."""
        if self._layers is None:
            with open(os.devnull, "r+b") as nothing, self._send(ipc.PROBE, {}, (nothing.fileno(),) * 3) as control:
                answer = ipc.receive(control)
            if answer is None:
                raise SandboxUnavailable(Message("The layers could not be probed"), missing="probe")
            self._layers, self.probed = Layers.from_json(answer), True
        return self._layers

    def __call__(self, launch: Launch) -> Exit:
        try:
            return self._run(launch)
        except SandboxUnavailable:
            if not self._assumed:
                raise
        self._assumed, self._layers = False, None
        return self._run(launch)

    def _run(self, launch: Launch) -> Exit:
        read_only = ""
        if launch.policy and (over := launch.policy.copy_on_write) and (read_only := self._why_read_only(over)):
            launch = launch._replace(policy=launch.policy.without_copy_on_write())
        layers = self.layers if launch.policy else NO_LAYERS
        missing = check_guards(layers, launch.policy, weak=self._weak) if launch.policy else ()
        kind = _kind_for(layers)
        request = _as_request(launch, layers)
        with ipc.RunStreams(launch) as streams, self._send(kind, request, streams.inner) as control:
            streams.close_inner()

            def stop() -> None:
                with contextlib.suppress(ConnectionError):  # it has ended already
                    control.send(b"!")  # the supervisor takes any byte from us as the request to stop

            cancelling = launch.cancel.on_cancel(stop) if launch.cancel else contextlib.nullcontext()
            with cancelling, self._proxy(launch, control) as refused:
                streams.collect(control, stop)
            report = ipc.receive(control) or _KILLED
            streams.drain()
        if failed := report["failed"]:
            if failed["stage"] != "layers":
                raise OSError(failed["errno"], failed["text"])
            what = Message("The sandbox could not be set up: {text}", text=failed["text"])
            raise SandboxUnavailable(what, missing=layers.level.value)
        sealed = report.get("sealed")  # not there without namespaces, and if the supervisor was killed
        if sealed is not None:  # an overlay can fail for one folder only
            missing = (*(word for word in missing if word != FIFO), *(() if sealed else (FIFO,)))
        wanted = launch.policy is not None and launch.policy.copy_on_write is not None
        if wanted:
            read_only = report.get("read_only", "" if report is _KILLED else layers.level.value)
        return streams.as_exit(
            report["code"],
            timed_out=report["timed_out"],
            missing=missing,
            sandbox=layers.level.value,
            hit=report["hit"],
            refused=tuple(refused),
            home_files=tuple(report.get("home", ())),
            looked_for=tuple(report.get("looked_for", ())),
            tried_network=report.get("tried_network"),
            copied_on_write=wanted and not read_only,
            read_only=read_only,
        )

    def _why_read_only(self, over: CopyOnWrite) -> str:
        """Return why a folder cannot be seen copy-on-write here, as far as that is known before the run."""
        if not self.layers.own_namespaces:
            return str(self.layers.level)
        if not self.layers.overlay:
            return self.layers.reasons.get("overlay", "overlayfs")
        owner = over.folder.stat()
        # Nobody else's number means anything in the run's user namespace, so the kernel refuses to copy such a file.
        if (owner.st_uid, owner.st_gid) != (os.getuid(), os.getgid()):
            return "its files belong to another user or group"
        return ""

    @contextlib.contextmanager
    def _proxy(self, launch: Launch, control: socket.socket) -> Iterator[list[str]]:
        """Serve the run's hosts during the block; afterwards the list holds the capabilities that it lacked."""
        refused: list[str] = []
        hosts = launch.policy.hosts if launch.policy and not launch.policy.network else ()
        # The supervisor hands out a socket for the proxy, or has failed before that.
        if not hosts or control.recv(1, socket.MSG_PEEK) != ipc.LISTENER:
            yield refused
            return
        _, (listener, *_), _, _ = socket.recv_fds(control, 1, 1)
        try:
            ours = self._send(ipc.PROXY, {"hosts": hosts}, (listener, listener, listener))
        finally:
            os.close(listener)
        with ours:
            yield refused
            ours.shutdown(socket.SHUT_WR)
            refused += (ipc.receive(ours) or {}).get("refused", ())

    def attach(self, launch: Launch) -> "SupervisedProcess":
        """Start it outside every layer and leave its streams to the caller; its deadline is the caller's too."""
        request = _as_request(launch, NO_LAYERS)
        with ipc.attached_pipes() as (inner, outer):
            return SupervisedProcess(self._send(ipc.OUTSIDE, request, inner), outer)

    def _send(self, kind: bytes, content: dict[str, Any], streams: ipc.StreamFds) -> socket.socket:
        """Send a request to the starter. Return our end of its control socket."""
        control, theirs = socket.socketpair()
        with theirs:
            message = ipc.FdMessage.make(kind, content, theirs, streams)
            try:
                try:
                    message.send(self._channel())
                except ConnectionError:
                    self.close()  # somebody killed the starter; the next one serves as well
                    message.send(self._channel())
            except OSError:
                control.close()
                raise
            finally:
                os.close(message.body)
        return control

    def _channel(self) -> socket.socket:
        with self._lock:
            if self._starter and self._starter.owner != os.getpid():
                self._starter.close()
                self._starter = None
            if self._starter is None:
                self._starter = _Starter()
            return self._starter.channel


class _Starter:
    """Our side of the starter: one for each process, started when it is first needed."""

    def __init__(self, *expected: tuple[bytes, Hierarchies]) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        with theirs:
            self._pid = _start(theirs, *expected)

    def close(self) -> None:
        """Return when every run is over and cleaned up after."""
        self.channel.close()
        if self.owner == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


def _kind_for(layers: Layers) -> bytes:
    return ipc.INSIDE if layers.own_namespaces else ipc.OUTSIDE


def _count_threads() -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/task"))
    return 0


def _start(channel: socket.socket, *expected: tuple[bytes, Hierarchies]) -> int:
    """Fork the starter if this process has one thread, else start it as a program. Return its pid."""
    if _count_threads() != 1:
        argv = (sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parents[2]))
        env = {name: os.environ[name] for name in ("TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        dup = (os.POSIX_SPAWN_DUP2, channel.fileno(), ipc.STARTER_SOCKET)
        return os.posix_spawn(sys.executable, argv, env, file_actions=[dup])
    if pid := os.fork():
        return pid
    try:
        from skillyard.sandbox.starter import main  # noqa: PLC0415  (this process never needs the layers)

        os.dup2(channel.fileno(), ipc.STARTER_SOCKET)
        main(*expected)
    finally:
        os._exit(1)


class SupervisedProcess:
    """A program that the caller talks to while it runs. The caller closes `stdin`, `stdout` and `stderr` (descriptors).

    Covered: when it ends, when it is stopped and when the caller dies however suddenly, the whole tree ends: a
    supervisor watches the other end of `control`. Not covered: files, network.
    """

    def __init__(self, control: socket.socket, streams: ipc.StreamFds) -> None:
        self.stdin, self.stdout, self.stderr = streams
        self._control = control
        self._report: dict[str, Any] | None = None

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, or None while it runs. Raise OSError if it could not start."""
        if self._report is None:
            if not select.select([self._control], [], [], seconds)[0]:
                return None
            self._report = ipc.receive(self._control) or _KILLED
            self._control.close()
        if failed := self._report["failed"]:
            raise OSError(failed["errno"], failed["text"])
        code: int = self._report["code"]
        return code

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL, to the whole tree and return the exit code. A second call does nothing."""
        if self._report is None:
            self._control.shutdown(socket.SHUT_WR)
        code = self.wait(_STOP_SECONDS)
        return _KILLED["code"] if code is None else code


def _as_request(launch: Launch, layers: Layers) -> dict[str, Any]:
    """Raise ValueError for words that no program can be given."""
    words = (*launch.argv, *launch.env, *launch.env.values(), os.fspath(launch.cwd))
    if not launch.argv or any(b"\0" in os.fsencode(word) for word in words) or any("=" in name for name in launch.env):
        raise ValueError("a program needs a name, and no word of it may hold a NUL")
    cwd = os.path.abspath(launch.cwd)
    return ipc.SpawnRequest(launch.argv, cwd, dict(launch.env), launch.limit_seconds, layers, launch.policy).as_json()
