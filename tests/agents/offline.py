"""Programs that reach the stub and nothing else: a network of their own, with only loopback in it."""

import functools
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.stub import Stub

ENTER = Path(__file__).with_name("enter.py")


@functools.cache
def refusal() -> str:
    """Why this machine gives no network of one's own; empty where it does."""
    if sys.platform != "linux":
        return f"{sys.platform} has no network namespaces"
    tried = subprocess.run(
        [sys.executable, "-I", ENTER, "", "0", "/bin/true"], capture_output=True, text=True, timeout=60
    )
    return tried.stderr.strip().splitlines()[-1] if tried.returncode else ""


def need_namespaces() -> None:
    if why := refusal():
        pytest.skip(f"no network of its own can be made here ({why}), and this program would look for other hosts")


def wrapped(program: Path, stub: Stub, folder: Path) -> Path:
    """A program that stands for this one, to be started by its path with any arguments, and is alone with the stub."""
    wrapper = folder / program.name
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join([sys.executable, "-I", str(ENTER), str(stub.door), str(stub.port), str(program)])
    wrapper.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    return wrapper
