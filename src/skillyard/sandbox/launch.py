"""Starts one program and waits for it: the call that everybody above uses.

with open_sandbox() as sandbox:
    done = sandbox(Launch(argv=("python3", "x.py"), cwd=root, env={"PATH": "/usr/bin"}, policy=Policy(...)))
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skillyard.sandbox.attached import Attached
from skillyard.sandbox.layers import MOUNTING, Layers, choose
from skillyard.sandbox.policy import Guard, Mount, Policy
from skillyard.sandbox.types import OUTPUT_BYTES, STDERR_BYTES, Exit, Launch, Sandbox

if sys.platform == "linux":
    from skillyard.sandbox.launcher import Launcher
if TYPE_CHECKING:
    from skillyard.sandbox.portable import LocalSandbox

__all__ = [
    "OUTPUT_BYTES",
    "STDERR_BYTES",
    "Attached",
    "Exit",
    "Guard",
    "Launch",
    "Layers",
    "Mount",
    "Policy",
    "Sandbox",
    "can_mount",
    "make_sandbox",
    "open_sandbox",
]


def make_sandbox(layers: Layers | None = None, *, assumed: Layers | None = None) -> "Launcher | LocalSandbox":
    """The best this system has; `close` ends it. `layers` stands in for what a probe would find."""
    if sys.platform == "linux":
        return Launcher(layers, assumed=assumed)
    else:  # noqa: RET505  (so that a type checker skips it where it is not true)
        from skillyard.sandbox.portable import LocalSandbox  # noqa: PLC0415  (brings subprocess)

        return LocalSandbox()


def can_mount(sandbox: Sandbox) -> bool:
    """Whether it can show a folder at another path: `Policy.mounts`."""
    layers = getattr(sandbox, "layers", None)
    return isinstance(layers, Layers) and choose(layers) in MOUNTING


@contextlib.contextmanager
def open_sandbox(layers: Layers | None = None) -> Iterator[Sandbox]:
    """The same, ended with the block."""
    sandbox = make_sandbox(layers)
    try:
        yield sandbox
    finally:
        sandbox.close()
