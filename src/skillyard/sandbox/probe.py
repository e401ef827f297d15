"""Finds out which layers this machine has, by trying each one in a process that ends at once.

Runs only where there is a single thread (the starter's child), because it forks.
"""

import os
from collections.abc import Callable

from skillyard.sandbox import bubblewrap, cgroup, landlock, namespaces, seccomp
from skillyard.sandbox.layers import Layers
from skillyard.sandbox.policy import Policy
from skillyard.sandbox.syscalls import MACHINE


def probe() -> Layers:
    """A few milliseconds; bubblewrap is tried only where our own namespaces are refused."""
    reasons: dict[str, str] = {}
    abi = landlock.version()
    if not abi:
        reasons["landlock"] = "this kernel has none"
    filtered = _tried(reasons, "seccomp", _try_seccomp)
    pid_limit = not _try_namespaces(pid_limit=True)
    apart = pid_limit or _tried(reasons, "namespaces", lambda: _try_namespaces(pid_limit=False))
    wrapper = ""
    if not apart:
        wrapper, reason = bubblewrap.find()
        reasons |= {"bubblewrap": reason} if reason else {}
    groups = cgroup.find()
    cgroup.sweep(groups)
    if not groups.memory:
        reasons["cgroup"] = "none is writable for us"
    return Layers(
        namespaces=apart,
        landlock=abi,
        seccomp=filtered,
        bubblewrap=wrapper,
        cgroup=groups,
        pid_limit=pid_limit,
        process_limit=os.getuid() != 0,
        root=os.getuid() == 0,
        reasons=reasons,
    )


def _tried(reasons: dict[str, str], name: str, attempt: Callable[[], str]) -> bool:
    reason = attempt()
    if reason:
        reasons[name] = reason
    return not reason


def _try_seccomp() -> str:
    if MACHINE not in seccomp.AUDIT_ARCH:
        return f"not known on {MACHINE or 'this system'}"
    program = seccomp.assemble(MACHINE, seccomp.Sockets())
    return _in_child(os.fork, lambda: seccomp.load(program))


def _try_namespaces(*, pid_limit: bool) -> str:
    """Who we are is asked before the child is somebody else."""
    uid, gid = os.getuid(), os.getgid()

    def enter() -> None:
        old = namespaces.begin(namespaces.Layout(), uid=uid, gid=gid)
        namespaces.finish(old, Policy(), "/", pid_limit=pid_limit)

    return _in_child(_clone, enter)


def _clone() -> int:
    return namespaces.clone(network=False)


def _in_child(start: Callable[[], int], attempt: Callable[[], None]) -> str:
    """Why it failed, in a child that does nothing else; empty if it worked."""
    answers, say = os.pipe()
    try:
        pid = start()
    except OSError as error:
        os.close(answers)
        os.close(say)
        return str(error)
    if pid == 0:
        _answer(say, attempt)
    os.close(say)
    with os.fdopen(answers, "rb") as stream:
        reason = stream.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return "" if reason == "ok" else reason or "it ended before it could say why"


def _answer(say: int, attempt: Callable[[], None]) -> None:
    reason = "ok"
    try:
        attempt()
    except OSError as error:
        reason = str(error) or type(error).__name__
    finally:
        os.write(say, reason.encode())
        os._exit(0)
