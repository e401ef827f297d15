"""One program, started once, with a deadline, a clean environment and a bounded output.

`Launch` says everything about it before it starts; `Exit` everything after it ended.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

#: What a program may print on stdout: S3's 10 MB.
OUTPUT_BYTES = 10_485_760
#: What is kept of stderr for the log and the error message.
STDERR_BYTES = 262_144
_GRACE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    limit_seconds: float = 60.0
    output_bytes: int = OUTPUT_BYTES
    #: Called with each piece of stderr as it comes, from another thread.
    on_stderr: Callable[[bytes], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """`code` is the exit code, or minus the signal that ended it."""

    code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    stdout_bytes: int
    timed_out: bool = False
    #: The layers that really held, for `meta.sandbox`.
    sandbox: str = "none"

    @property
    def overflowed(self) -> bool:
        return self.stdout_bytes > len(self.stdout)


class Sandbox(Protocol):
    """Starts a program and waits for it. Never prints, knows no skills, raises OSError if it cannot start."""

    def __call__(self, launch: Launch) -> Exit: ...


class _Pipe:
    """Drains one pipe in a thread of its own: keeps the head, counts the rest."""

    def __init__(self, stream: IO[bytes], keep_bytes: int, tell: Callable[[bytes], None] | None = None) -> None:
        self.kept = bytearray()
        self.total = 0
        self._stream, self._keep, self._tell = stream, keep_bytes, tell
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while piece := os.read(self._stream.fileno(), 65536):
            self.total += len(piece)
            self.kept += piece[: max(0, self._keep - len(self.kept))]
            if self._tell:
                self._tell(piece)

    def finish(self, seconds: float) -> None:
        self._thread.join(seconds)


class LocalSandbox:
    """A child process with a deadline and a clean environment.

    Covered: the process group dies at the deadline; no inherited environment; output is bounded.
    Not covered: network, file system, children that leave the group.
    """

    def __call__(self, launch: Launch) -> Exit:
        started = time.monotonic()
        child = subprocess.Popen(
            launch.argv,
            cwd=launch.cwd,
            env=dict(launch.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdin is not None  # noqa: S101  (all three are pipes)
        assert child.stdout is not None  # noqa: S101
        assert child.stderr is not None  # noqa: S101
        out = _Pipe(child.stdout, launch.output_bytes)
        err = _Pipe(child.stderr, STDERR_BYTES, launch.on_stderr)
        feeder = threading.Thread(target=_feed, args=(child.stdin, launch.stdin), daemon=True)
        feeder.start()
        timed_out = False
        try:
            child.wait(launch.limit_seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        _stop_group(child)
        for pipe in (out, err):
            pipe.finish(_GRACE_SECONDS)
        return Exit(
            code=child.returncode,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            seconds=time.monotonic() - started,
            stdout_bytes=out.total,
            timed_out=timed_out,
        )


def _feed(stream: IO[bytes], content: bytes) -> None:
    try:
        stream.write(content)
        stream.close()
    except BrokenPipeError:
        return  # it ended, or closed its stdin, before it read everything


def _stop_group(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a moment, SIGKILL, to whatever is left of the group."""
    for step in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, step)
        except ProcessLookupError:
            break
        try:
            child.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    child.wait()
