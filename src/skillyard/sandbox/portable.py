"""The sandbox outside Linux: a child process with a deadline, and nothing else.

Covered: the process group dies at the deadline and when the program ends; no inherited environment; the
output is bounded. `Exit.sandbox` says "none" and `Exit.missing` names every guard.
Not covered: network, files, children that leave the group, the death of the runtime itself.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, Final

from skillyard.sandbox.launch import STDERR_BYTES, Exit, Launch
from skillyard.sandbox.layers import NO_LAYERS, plan
from skillyard.sandbox.streams import Capture, StreamFds, open_pipes

_GRACE_SECONDS: Final = 0.2
_READ_BYTES: Final = 65_536


class LocalSandbox:
    """Raises SandboxUnavailable for a policy that demands anything: here nothing can be guarded."""

    def close(self) -> None:
        """Nothing stays open between two runs."""

    def __call__(self, launch: Launch) -> Exit:
        chosen = plan(NO_LAYERS, launch.policy)
        started = time.monotonic()
        child = _start(launch, (subprocess.PIPE,) * 3)
        assert child.stdin and child.stdout and child.stderr  # noqa: S101, PT018  (all three are pipes)
        kept = Capture(launch.output_bytes)
        out = _Drain(child.stdout, kept, _stop_if_over(child, kept))
        err = _Drain(child.stderr, Capture(STDERR_BYTES, STDERR_BYTES), launch.on_stderr)
        feeder = threading.Thread(target=_feed, args=(child.stdin, launch.stdin), daemon=True)
        feeder.start()
        timed_out = False
        with launch.cancel.on_cancel(lambda: _stop_soon(child)) if launch.cancel else contextlib.nullcontext():
            try:
                child.wait(launch.limit_seconds)
            except subprocess.TimeoutExpired:
                timed_out = True
        _stop_group(child)
        for drain in (out, err):
            drain.finish(_GRACE_SECONDS)
        return Exit(
            code=child.returncode,
            stdout=out.capture.head,
            stdout_tail=out.capture.tail,
            stderr=err.capture.shortened(),
            seconds=time.monotonic() - started,
            stdout_bytes=out.capture.total,
            timed_out=timed_out,
            missing=chosen.missing,
        )

    def attach(self, launch: Launch) -> "_LocalProcess":
        """Start it and leave its streams to the caller; its deadline is the caller's too."""
        inner, outer = open_pipes()
        try:
            child = _start(launch, inner)
        except OSError:
            for stream in outer:
                os.close(stream)
            raise
        finally:
            for stream in inner:
                os.close(stream)
        return _LocalProcess(child, outer)


def _start(launch: Launch, streams: StreamFds) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        launch.argv,
        cwd=launch.cwd,
        env=dict(launch.env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


class _LocalProcess:
    """An `AttachedProcess` that is ended by its process group alone."""

    def __init__(self, child: subprocess.Popen[bytes], streams: StreamFds) -> None:
        self.stdin, self.stdout, self.stderr = streams
        self._child = child

    def wait(self, seconds: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
            _stop_group(self._child)
        return self._child.returncode

    def stop(self) -> int:
        _stop_group(self._child)
        return self._child.returncode


class _Drain:
    """Reads one pipe in a thread of its own."""

    def __init__(self, stream: IO[bytes], capture: Capture, tell: Callable[[bytes], None] | None) -> None:
        self.capture = capture
        self._stream, self._tell = stream, tell
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while piece := os.read(self._stream.fileno(), _READ_BYTES):
            self.capture.add(piece)
            if self._tell:
                self._tell(piece)

    def finish(self, seconds: float) -> None:
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self._stream.close()


def _stop_if_over(child: subprocess.Popen[bytes], kept: Capture) -> Callable[[bytes], None]:
    def look(_: bytes) -> None:
        if kept.overflowed:
            _signal_group(child, signal.SIGKILL)

    return look


def _feed(stream: IO[bytes], content: bytes) -> None:
    for act in (lambda: stream.write(content), stream.close):
        with contextlib.suppress(BrokenPipeError):  # it ended, or closed its stdin, before it read everything
            act()


def _signal_group(child: subprocess.Popen[bytes], which: signal.Signals) -> bool:
    try:
        os.killpg(child.pid, which)
    except (ProcessLookupError, PermissionError):  # nobody left; on macOS, only a zombie
        return False
    return True


def _stop_soon(child: subprocess.Popen[bytes]) -> None:
    """For whoever must not wait: SIGTERM now, SIGKILL after the grace."""
    if _signal_group(child, signal.SIGTERM):
        late = threading.Timer(_GRACE_SECONDS, _signal_group, (child, signal.SIGKILL))
        late.daemon = True
        late.start()


def _stop_group(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a moment, SIGKILL, to whatever is left of the group."""
    if _signal_group(child, signal.SIGTERM):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_SECONDS)
        _signal_group(child, signal.SIGKILL)
    child.wait()
