"""The sandbox outside Linux: a child process with a deadline, and nothing else.

Covered: the process group dies at the deadline and when the program ends; no inherited environment; the output is
bounded. Not covered: network, files, children that leave the group, the death of the runtime itself.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from typing import Final

from skillyard.sandbox.ipc import RunStreams, StreamFds, attached_pipes
from skillyard.sandbox.launch import Exit, Launch
from skillyard.sandbox.layers import NO_LAYERS, check_guards

_GRACE_SECONDS: Final = 0.2


class LocalSandbox:
    """Raises SandboxUnavailable for a launch with a policy: here nothing can be guarded."""

    def close(self) -> None:
        """Nothing stays open between two runs."""

    def __call__(self, launch: Launch) -> Exit:
        if launch.policy:
            check_guards(NO_LAYERS, launch.policy)
        timed_out = False
        control, theirs = socket.socketpair()

        def supervise() -> None:
            nonlocal timed_out
            with theirs:  # whoever collects the output waits for its end
                timed_out = process.wait(launch.limit_seconds) is None
                process.stop()

        with control, theirs, RunStreams(launch) as streams:
            process = _LocalProcess(launch, streams.inner)
            streams.close_inner()
            supervisor = threading.Thread(target=supervise, daemon=True)
            supervisor.start()
            with launch.cancel.on_cancel(process.stop_soon) if launch.cancel else contextlib.nullcontext():
                streams.collect(control, process.stop_soon)
            supervisor.join()
            streams.drain()
            return streams.as_exit(process.stop(), timed_out=timed_out)

    def attach(self, launch: Launch) -> "_LocalProcess":
        """Start it and leave its streams to the caller; its deadline is the caller's too."""
        with attached_pipes() as (inner, outer):
            return _LocalProcess(launch, inner, outer)


class _LocalProcess:
    """A program that is ended by its process group alone; see `launcher.SupervisedProcess`."""

    def __init__(self, launch: Launch, inner: StreamFds, outer: StreamFds = (-1, -1, -1)) -> None:
        self.stdin, self.stdout, self.stderr = outer
        self._child = subprocess.Popen(
            launch.argv,
            cwd=launch.cwd,
            env=dict(launch.env),
            stdin=inner[0],
            stdout=inner[1],
            stderr=inner[2],
            start_new_session=True,
        )

    def wait(self, seconds: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
            self.stop()
        return self._child.returncode

    def stop(self) -> int:
        """SIGTERM, a moment, SIGKILL, to whatever is left of the group."""
        if self._signal(signal.SIGTERM):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_GRACE_SECONDS)
            self._signal(signal.SIGKILL)
        return self._child.wait()

    def stop_soon(self) -> None:
        """Like `stop`, for whoever must not wait."""
        threading.Thread(target=self.stop, daemon=True).start()

    def _signal(self, which: signal.Signals) -> bool:
        try:
            os.killpg(self._child.pid, which)
        except (ProcessLookupError, PermissionError):  # nobody left; on macOS, only a zombie
            return False
        return True
