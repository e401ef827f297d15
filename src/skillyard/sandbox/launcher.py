"""Runs programs on Linux: asks the starter for a supervisor, tells it what to do, collects what comes."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

from skillyard.core.errors import SandboxUnavailable
from skillyard.core.messages import Message
from skillyard.sandbox.attached import Supervised, pipes
from skillyard.sandbox.fd_message import INSIDE, LISTENER, OUTSIDE, PROBE, PROXY, Letter
from skillyard.sandbox.layers import APART, FIFO, Layers, Plan, plan
from skillyard.sandbox.spawn_request import Order, receive
from skillyard.sandbox.starter import Starter
from skillyard.sandbox.streams import Streams
from skillyard.sandbox.types import Exit, Launch

#: What we say when the supervisor ended without a word: somebody killed it, and its tree with it.
_SILENCE: dict[str, Any] = {"code": -9, "timed_out": False, "hit": "", "failed": None}


class Launcher:
    """Runs programs through a starter of its own. Any number of threads may call it at once.

    Covered: what each layer's module says, for the layers named in `Exit.sandbox`; the deadline, the output
    and the end of the whole tree at every level, also when this process is killed.
    Not covered: a copy of this process made by fork keeps the control sockets of runs in flight open.
    """

    def __init__(self, layers: Layers | None = None, *, assumed: Layers | None = None, weak: bool = False) -> None:
        """`layers` are taken as given; `assumed` ones only until they turn out to be wrong.

        `weak`: as after `accept_weak`.
        """
        self._weak = weak
        self._layers = layers or assumed
        self._assumed = assumed is not None
        self.probed = False
        self._starter: Starter | None = None
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
        """What this machine has, looked up once."""
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
        chosen = plan(self.layers if launch.policy else Layers(), launch.policy, weak=self._weak)
        started = time.monotonic()
        control, theirs = socket.socketpair()
        with control, Streams(launch) as streams:
            with theirs:
                kind = INSIDE if chosen.way in APART else OUTSIDE
                self._begin(kind, _order(launch, chosen).as_json(), theirs, streams.inner)
            streams.close_inner()
            with _stopping(launch, control), self._proxy(launch, control) as refused:
                streams.collect(control)
            report = receive(control) or _SILENCE
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
            sandbox=chosen.way.value,
            missing=_missing(chosen, report),
            hit=report["hit"],
            refused=tuple(refused),
        )

    @contextlib.contextmanager
    def _proxy(self, launch: Launch, control: socket.socket) -> Iterator[list[str]]:
        """Serve the run's hosts during the block; afterwards the list holds the capabilities that it lacked."""
        refused: list[str] = []
        listener = _listener(control) if launch.policy and launch.policy.hosts and not launch.policy.network else -1
        if listener < 0 or launch.policy is None:
            yield refused
            return
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                try:
                    self._begin(PROXY, {"hosts": launch.policy.hosts}, theirs, (listener, listener, listener))
                finally:
                    os.close(listener)
            yield refused
            ours.shutdown(socket.SHUT_WR)
            refused += (receive(ours) or {}).get("refused", ())

    def attach(self, launch: Launch) -> Supervised:
        """Start it outside every layer and leave its streams to the caller; its deadline is the caller's too."""
        control, theirs = socket.socketpair()
        inner, outer = pipes()
        try:
            with theirs:
                self._begin(OUTSIDE, _order(launch, plan(Layers(), None)).as_json(), theirs, inner)
        except (OSError, ValueError):
            control.close()
            for stream in outer:
                os.close(stream)
            raise
        finally:
            for stream in inner:
                os.close(stream)
        return Supervised(control, outer)

    def _begin(self, kind: bytes, order: dict[str, Any], control: socket.socket, streams: tuple[int, int, int]) -> None:
        letter = Letter.write(kind, order, control, streams)
        try:
            self._started().begin(letter)
        except ConnectionError:
            self.close()  # somebody killed the starter; the next one serves as well
            self._started().begin(letter)
        finally:
            os.close(letter.sheet)

    def _started(self) -> Starter:
        with self._lock:
            if self._starter and self._starter.owner != os.getpid():
                self._starter.close()
                self._starter = None
            if self._starter is None:
                self._starter = Starter()
            return self._starter

    def _probe(self) -> Layers:
        control, theirs = socket.socketpair()
        with control:
            with theirs, open(os.devnull, "r+b") as nothing:
                self._begin(PROBE, {}, theirs, (nothing.fileno(), nothing.fileno(), nothing.fileno()))
            answer = receive(control)
        if answer is None:
            raise SandboxUnavailable(Message("The layers could not be probed"), missing="probe")
        return Layers.from_json(answer)


def _listener(control: socket.socket) -> int:
    """The socket that the supervisor hands out for the proxy; -1 where it failed before that."""
    if control.recv(1, socket.MSG_PEEK) != LISTENER:
        return -1
    _, files, _, _ = socket.recv_fds(control, 1, 1)
    return files[0] if files else -1


def _stopping(launch: Launch, control: socket.socket) -> contextlib.AbstractContextManager[None]:
    """The supervisor takes any word from us as the wish to stop."""

    def tell() -> None:
        with contextlib.suppress(ConnectionError):  # it has ended already
            control.send(b"!")

    return launch.stop.acting(tell) if launch.stop else contextlib.nullcontext()


def _order(launch: Launch, chosen: Plan) -> Order:
    """Raises ValueError for words that no program can be given."""
    words = (*launch.argv, *launch.env, *launch.env.values(), os.fspath(launch.cwd))
    if not launch.argv or any(b"\0" in os.fsencode(word) for word in words) or any("=" in name for name in launch.env):
        raise ValueError("a program needs a name, and no word of it may hold a NUL")
    return Order(
        argv=launch.argv,
        cwd=os.path.abspath(launch.cwd),
        env=dict(launch.env),
        limit_seconds=launch.limit_seconds,
        plan=chosen,
        policy=launch.policy,
    )


def _missing(chosen: Plan, report: dict[str, Any]) -> tuple[str, ...]:
    """What the plan expected, corrected by what the supervisor met: an overlay can fail for one folder only."""
    sealed = report.get("sealed")  # not there without namespaces, and if the supervisor was killed
    if sealed is None:
        return chosen.missing
    others = tuple(word for word in chosen.missing if word != FIFO)
    return others if sealed else (*others, FIFO)


def _raise_failure(failed: dict[str, Any] | None, chosen: Plan) -> None:
    if not failed:
        return
    if failed["stage"] == "layers":
        raise SandboxUnavailable(
            Message("The sandbox could not be set up: {text}", text=failed["text"]), missing=chosen.way.value
        )
    raise OSError(failed["errno"], failed["text"])
