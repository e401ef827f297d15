"""What is asked of a sandbox and what it answers.

`Launch` says everything about a run before it starts; `Exit` everything after it ended.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from skillyard.sandbox.policy import Policy

if TYPE_CHECKING:
    from skillyard.sandbox.cancel_token import Stop

#: What a program may print on stdout: S3's 10 MB.
OUTPUT_BYTES: Final = 10_485_760
#: What is kept of the beginning and of the end of stderr, for the log and the error message.
STDERR_BYTES: Final = 131_072


NO_VARIABLES: Final[Mapping[str, str]] = {}


class Launch(NamedTuple):
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = NO_VARIABLES
    stdin: bytes = b""
    limit_seconds: float = 60.0
    output_bytes: int = OUTPUT_BYTES
    #: Called with each piece of stderr as it comes, between two reads: what takes long holds the run up.
    on_stderr: Callable[[bytes], None] | None = None
    #: None is no sandbox at all: still a deadline, a clean environment and an end for the whole tree.
    policy: Policy | None = None
    #: Whoever holds it can end the run.
    stop: "Stop | None" = None


class Exit(NamedTuple):
    """`code` is the exit code, or minus the signal that ended it."""

    code: int
    stdout: bytes
    #: Its beginning and its end, with a line between them where something was left out.
    stderr: bytes
    seconds: float
    stdout_bytes: int
    timed_out: bool = False
    #: The layers that really held, for `meta.sandbox`: "full", "bubblewrap", "landlock+seccomp", "none".
    sandbox: str = "none"
    #: What could not be guarded in this run, by name, for `meta.not_covered`: guards of the policy, and `NOT_COVERED`.
    missing: tuple[str, ...] = ()
    #: The limit of the policy that was reached: "memory", "processes", or nothing.
    hit: str = ""
    #: The capabilities (`network:HOST`) of the hosts that the run tried to reach and that were refused.
    refused: tuple[str, ...] = ()
    #: The last bytes of stdout when there was too much of it.
    stdout_tail: bytes = b""
    #: For whoever looked after the run: the files in the output folder, each with (mtime, size, inode).
    files: Mapping[str, tuple[int, int, int]] | None = None

    @property
    def overflowed(self) -> bool:
        return self.stdout_bytes > len(self.stdout)


class Sandbox(Protocol):
    """Starts a program and waits for it. Never prints, knows no skills.

    Raises OSError if the program cannot start, SandboxUnavailable if the policy demands more than there is.
    """

    def __call__(self, launch: Launch) -> Exit: ...
