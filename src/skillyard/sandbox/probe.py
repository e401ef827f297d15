"""Finds out which layers this machine has, by trying each one in a process that ends at once.

Call it only in a process with a single thread (the starter's child), because it forks.
"""

import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from skillyard.core.messages import Message
from skillyard.sandbox import bubblewrap, cgroup, namespaces, seccomp
from skillyard.sandbox.confine import counts_by_namespace, landlock_version
from skillyard.sandbox.launch import Policy
from skillyard.sandbox.layers import Hierarchies, Layers
from skillyard.sandbox.syscalls import MACHINE, closing_fd


def probe() -> Layers:
    """Takes a few milliseconds; bubblewrap is tried only if our own namespaces are refused."""
    reasons: dict[str, str] = {}
    abi = landlock_version()
    if not abi:
        reasons["landlock"] = Message("this kernel has none")
    reasons["seccomp"] = _try_seccomp()
    pid_limit = not _try_namespaces(Policy(), pid_limit=True)
    reasons["namespaces"] = "" if pid_limit else _try_namespaces(Policy())
    apart, wrapper = not reasons["namespaces"], ""
    if apart:
        reasons["overlay"] = _try_overlay()
    else:
        wrapper, reasons["bubblewrap"] = bubblewrap.find()
    groups = cgroup.find()
    cgroup.sweep(groups)
    if not groups.memory:
        reasons["cgroup"] = Message("none is writable for us")
    return Layers(
        namespaces=apart,
        landlock=abi,
        seccomp=not reasons["seccomp"],
        bubblewrap=wrapper,
        overlay=apart and not reasons["overlay"],
        cgroup=groups,
        pid_limit=pid_limit,
        process_limit=os.getuid() != 0 and counts_by_namespace(),
        root=os.getuid() == 0,
        reasons={name: reason for name, reason in reasons.items() if reason},
    )


def _try_seccomp() -> str:
    if MACHINE not in seccomp.AUDIT_ARCH:
        return Message("not known on {machine}", machine=MACHINE or Message("this system"))
    program = seccomp.assemble(MACHINE, seccomp.Sockets())
    return _in_child(os.fork, lambda: seccomp.load(program))


def _try_namespaces(policy: Policy, *, pid_limit: bool = False, check: Callable[[bool], None] = lambda _: None) -> str:
    uid, gid = os.getuid(), os.getgid()  # before the child is somebody else

    def enter() -> None:
        begun = namespaces.begin((), uid=uid, gid=gid, own_network=True)
        check(namespaces.finish(begun, policy, "/", pid_limit=pid_limit).sealed)

    return _in_child(partial(namespaces.clone, cgroup.Cgroup(Hierarchies()), network=False), enter)


def _try_overlay() -> str:
    """Try the effect: a socket in a folder that is shown through an overlay must refuse connections."""
    try:
        folder = os.path.realpath(tempfile.mkdtemp(prefix="skillyard-probe-"))
    except OSError as error:
        return f"no temporary folder to try it in: {error}"

    def check(sealed: bool) -> None:
        if not sealed:
            raise OSError(errno.EINVAL, "overlayfs cannot be mounted in a user namespace")
        os.chdir(folder)
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex("socket") != errno.ECONNREFUSED:
                raise OSError(errno.EINVAL, "a socket is reached through overlayfs")

    os.chdir(folder)  # the address of a socket has room for a short path only
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            listener.listen()
            return _try_namespaces(Policy(read=(Path(folder),)), check=check)
    except OSError as error:
        return str(error)
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _in_child(start: Callable[[], int], attempt: Callable[[], None]) -> str:
    """Try it in a child that does nothing else. Return why it failed; empty if it worked."""
    answers, say = os.pipe()
    with open(answers, "rb") as stream:
        with closing_fd(say):
            try:
                pid = start()
            except OSError as error:
                return str(error)
            if pid == 0:
                reason = "ok"
                try:
                    attempt()
                except OSError as error:
                    reason = str(error) or type(error).__name__
                finally:
                    os.write(say, reason.encode())
                    os._exit(0)
        reason = stream.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return "" if reason == "ok" else reason or Message("it ended before it could say why")
