"""Runs programs on Linux: asks the starter for a supervisor, sends it the request, collects output and report."""

import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from skillyard.core.errors import SandboxUnavailable
from skillyard.core.messages import Message
from skillyard.sandbox.launch import Exit, Launch
from skillyard.sandbox.layers import FIFO, NO_LAYERS, OWN_NAMESPACES, LayerPlan, Layers, plan
from skillyard.sandbox.spawn_request import (
    INSIDE,
    LISTENER,
    OUTSIDE,
    PROBE,
    PROXY,
    STARTER_SOCKET,
    FdMessage,
    SpawnRequest,
    receive,
)
from skillyard.sandbox.streams import RunStreams, StreamFds, open_pipes

#: The report that we assume if the supervisor sent none: somebody killed it, and its tree with it.
_KILLED: dict[str, Any] = {"code": -9, "timed_out": False, "hit": "", "failed": None}
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv[1]); from skillyard.sandbox.starter import main; main()"
#: For the end of a program that was told to stop: the supervisor bounds this itself.
_STOP_SECONDS: Final = 60.0


class Launcher:
    """Runs programs through a starter of its own. Any number of threads may call it at once.

    Covered: what each layer's module says, for the layers named in `Exit.sandbox`; the deadline, the output
    and the end of the whole tree at every level, also when this process is killed.
    Not covered: a copy of this process made by fork keeps the control sockets of active runs open.
    """

    def __init__(self, layers: Layers | None = None, *, assumed: Layers | None = None, weak: bool = False) -> None:
        """`layers` are taken as given; `assumed` ones only until they turn out to be wrong.

        `weak`: as after `accept_weak`.
        """
        self._weak = weak
        self._layers = layers or assumed
        self._assumed = assumed is not None
        self.probed = False
        self._starter: _Starter | None = None
        self._lock = threading.Lock()

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

    @property
    def layers(self) -> Layers:
        """The layers of this machine, probed once."""
        if self._layers is None:
            self._layers = self._probe()
            self.probed = True
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
        chosen = plan(self.layers if launch.policy else NO_LAYERS, launch.policy, weak=self._weak)
        started = time.monotonic()
        control, theirs = socket.socketpair()
        with control, RunStreams(launch) as streams:
            with theirs:
                kind = INSIDE if chosen.level in OWN_NAMESPACES else OUTSIDE
                self._send(kind, _as_request(launch, chosen).as_json(), theirs, streams.inner)
            streams.close_inner()
            with _cancelling(launch, control), self._proxy(launch, control) as refused:
                streams.collect(control)
            report = receive(control) or _KILLED
            streams.drain()
        _raise_failure(report["failed"], chosen)
        return Exit(
            code=report["code"],
            stdout=streams.out.head,
            stdout_tail=streams.out.tail,
            stderr=streams.err.shortened(),
            seconds=time.monotonic() - started,
            stdout_bytes=streams.out.total,
            timed_out=report["timed_out"],
            sandbox=chosen.level.value,
            missing=_missing(chosen, report),
            hit=report["hit"],
            refused=tuple(refused),
        )

    @contextlib.contextmanager
    def _proxy(self, launch: Launch, control: socket.socket) -> Iterator[list[str]]:
        """Serve the run's hosts during the block; afterwards the list holds the capabilities that it lacked."""
        refused: list[str] = []
        hosts = launch.policy.hosts if launch.policy and not launch.policy.network else ()
        listener = _receive_listener(control) if hosts else -1
        if listener < 0:
            yield refused
            return
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                try:
                    self._send(PROXY, {"hosts": hosts}, theirs, (listener, listener, listener))
                finally:
                    os.close(listener)
            yield refused
            ours.shutdown(socket.SHUT_WR)
            refused += (receive(ours) or {}).get("refused", ())

    def attach(self, launch: Launch) -> "SupervisedProcess":
        """Start it outside every layer and leave its streams to the caller; its deadline is the caller's too."""
        control, theirs = socket.socketpair()
        inner, outer = open_pipes()
        try:
            with theirs:
                self._send(OUTSIDE, _as_request(launch, plan(NO_LAYERS, None)).as_json(), theirs, inner)
        except (OSError, ValueError):
            control.close()
            for stream in outer:
                os.close(stream)
            raise
        finally:
            for stream in inner:
                os.close(stream)
        return SupervisedProcess(control, outer)

    def _probe(self) -> Layers:
        control, theirs = socket.socketpair()
        with control:
            with theirs, open(os.devnull, "r+b") as nothing:
                self._send(PROBE, {}, theirs, (nothing.fileno(),) * 3)
            answer = receive(control)
        if answer is None:
            raise SandboxUnavailable(Message("The layers could not be probed"), missing="probe")
        return Layers.from_json(answer)

    def _send(self, kind: bytes, content: dict[str, Any], control: socket.socket, streams: StreamFds) -> None:
        message = FdMessage.make(kind, content, control, streams)
        try:
            message.send(self._channel())
        except ConnectionError:
            self.close()  # somebody killed the starter; the next one serves as well
            message.send(self._channel())
        finally:
            os.close(message.body)

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

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        with theirs:
            self._pid = _fork_starter(theirs) if _has_one_thread() else _spawn_starter(theirs)

    def close(self) -> None:
        """Return when every run is over and cleaned up after."""
        self.channel.close()
        if self.owner == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


def _has_one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _fork_starter(channel: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            from skillyard.sandbox.starter import main  # noqa: PLC0415  (this process never needs the layers)

            os.dup2(channel.fileno(), STARTER_SOCKET)
            main()
        finally:
            os._exit(1)
    return pid


def _spawn_starter(channel: socket.socket) -> int:
    source = str(Path(__file__).parents[2])
    return os.posix_spawn(
        sys.executable,
        (sys.executable, "-I", "-S", "-c", _PROGRAM, source),
        {name: os.environ[name] for name in ("TMPDIR", "LD_LIBRARY_PATH") if name in os.environ},
        file_actions=[(os.POSIX_SPAWN_DUP2, channel.fileno(), STARTER_SOCKET)],
    )


class SupervisedProcess:
    """An `AttachedProcess` on Linux: a supervisor watches the other end of `control`."""

    def __init__(self, control: socket.socket, streams: StreamFds) -> None:
        self.stdin, self.stdout, self.stderr = streams
        self._control = control
        self._report: dict[str, Any] | None = None

    def wait(self, seconds: float) -> int | None:
        if self._report is None:
            if not select.select([self._control], [], [], seconds)[0]:
                return None
            self._report = receive(self._control) or _KILLED
            self._control.close()
        if failed := self._report["failed"]:
            raise OSError(failed["errno"], failed["text"])
        code: int = self._report["code"]
        return code

    def stop(self) -> int:
        if self._report is None:
            self._control.shutdown(socket.SHUT_WR)
        code = self.wait(_STOP_SECONDS)
        return _KILLED["code"] if code is None else code


def _receive_listener(control: socket.socket) -> int:
    """The socket that the supervisor hands out for the proxy; -1 if it failed before that."""
    if control.recv(1, socket.MSG_PEEK) != LISTENER:
        return -1
    _, files, _, _ = socket.recv_fds(control, 1, 1)
    return files[0] if files else -1


def _cancelling(launch: Launch, control: socket.socket) -> contextlib.AbstractContextManager[None]:
    """The supervisor takes any byte from us as the request to stop."""

    def request_stop() -> None:
        with contextlib.suppress(ConnectionError):  # it has ended already
            control.send(b"!")

    return launch.cancel.on_cancel(request_stop) if launch.cancel else contextlib.nullcontext()


def _as_request(launch: Launch, chosen: LayerPlan) -> SpawnRequest:
    """Raise ValueError for words that no program can be given."""
    words = (*launch.argv, *launch.env, *launch.env.values(), os.fspath(launch.cwd))
    if not launch.argv or any(b"\0" in os.fsencode(word) for word in words) or any("=" in name for name in launch.env):
        raise ValueError("a program needs a name, and no word of it may hold a NUL")
    cwd = os.path.abspath(launch.cwd)
    return SpawnRequest(launch.argv, cwd, dict(launch.env), launch.limit_seconds, chosen, launch.policy)


def _missing(chosen: LayerPlan, report: dict[str, Any]) -> tuple[str, ...]:
    """What the plan expected, corrected by what the supervisor met: an overlay can fail for one folder only."""
    sealed = report.get("sealed")  # not there without namespaces, and if the supervisor was killed
    if sealed is None:
        return chosen.missing
    others = tuple(word for word in chosen.missing if word != FIFO)
    return others if sealed else (*others, FIFO)


def _raise_failure(failed: dict[str, Any] | None, chosen: LayerPlan) -> None:
    if not failed:
        return
    if failed["stage"] == "layers":
        raise SandboxUnavailable(
            Message("The sandbox could not be set up: {text}", text=failed["text"]), missing=chosen.level.value
        )
    raise OSError(failed["errno"], failed["text"])
