"""Starts one program and waits for it: the values and calls that other rooms use.

with contextlib.closing(make_sandbox()) as sandbox:
    done = sandbox(Launch(argv=("python3", "x.py"), cwd=root, env={"PATH": "/usr/bin"}, policy=Policy(...)))
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from skillyard.sandbox.policy import Policy

if TYPE_CHECKING:
    from skillyard.sandbox.cancel_token import CancelToken
    from skillyard.sandbox.launcher import Launcher
    from skillyard.sandbox.layers import Layers
    from skillyard.sandbox.portable import LocalSandbox

#: How much a program may print on stdout.
OUTPUT_BYTES: Final = 10_485_760
#: How much is kept of the beginning and of the end of stderr, for the log and the error message.
STDERR_BYTES: Final = 131_072

_NO_VARIABLES: Final[Mapping[str, str]] = {}


class Launch(NamedTuple):
    """Everything about a run before it starts."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = _NO_VARIABLES
    stdin: bytes = b""
    limit_seconds: float = 60.0
    output_bytes: int = OUTPUT_BYTES
    #: Called with each piece of stderr, between two reads: a slow callback delays the run.
    on_stderr: Callable[[bytes], None] | None = None
    #: None means no sandbox: still a deadline, a clean environment and an end for the whole process tree.
    policy: Policy | None = None
    cancel: "CancelToken | None" = None


class Exit(NamedTuple):
    """Everything about a run after it ended. `code` is the exit code, or minus the signal that ended it."""

    code: int
    stdout: bytes
    #: Its beginning and its end, with a line between them where something was left out.
    stderr: bytes
    seconds: float
    stdout_bytes: int
    timed_out: bool = False
    #: The level that was really applied, for `meta.sandbox`: "full", "bubblewrap", "landlock+seccomp", "none".
    sandbox: str = "none"
    #: What could not be guarded in this run, for `meta.not_covered`: guards of the policy, and `NOT_COVERED`.
    missing: tuple[str, ...] = ()
    #: The limit of the policy that was reached: "memory", "processes", or nothing.
    hit: str = ""
    #: The capabilities (`network:HOST`) of the hosts that the run tried to reach and that were refused.
    refused: tuple[str, ...] = ()
    #: The last bytes of stdout if there was too much of it.
    stdout_tail: bytes = b""
    #: Filled in by the caller: the files in the output folder, each with (mtime, size, inode).
    files: Mapping[str, tuple[int, int, int]] | None = None

    @property
    def overflowed(self) -> bool:
        return self.stdout_bytes > len(self.stdout)


class Sandbox(Protocol):
    """Starts a program and waits for it. Never prints, knows no skills.

    Raises OSError if the program cannot start, SandboxUnavailable if the policy demands more than there is.
    """

    def __call__(self, launch: Launch) -> Exit: ...


class AttachedProcess(Protocol):
    """A program that the caller talks to while it runs. The caller closes `stdin`, `stdout` and `stderr` (descriptors).

    Covered: when it ends, when it is stopped and when the caller dies however suddenly, the whole tree ends.
    Not covered: files, network; outside Linux also children that leave the group, and the caller's death.
    """

    stdin: int
    stdout: int
    stderr: int

    def wait(self, seconds: float) -> int | None:
        """Return its exit code, or None while it runs. Raise OSError if it could not start."""
        ...

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL, to the whole tree and return the exit code. A second call does nothing."""
        ...


def make_sandbox(layers: "Layers | None" = None, *, assumed: "Layers | None" = None) -> "Launcher | LocalSandbox":
    """Return the best sandbox of this system; `close` ends it. `layers` replaces what a probe would find."""
    # Only here: these modules cost more than all values of this room, and most commands start nothing.
    if sys.platform == "linux":
        from skillyard.sandbox.launcher import Launcher  # noqa: PLC0415

        return Launcher(layers, assumed=assumed)
    else:  # noqa: RET505  (so that a type checker skips it where it is not true)
        from skillyard.sandbox.portable import LocalSandbox  # noqa: PLC0415

        return LocalSandbox()


def can_mount(sandbox: Sandbox) -> bool:
    """Whether it can show a folder at another path: `Policy.mounts`."""
    layers: Layers | None = getattr(sandbox, "layers", None)
    return layers is not None and layers.can_mount
