"""A system call filter, assembled here and loaded by the process that it confines.

Covered: calls that reach into other processes, change mounts or namespaces, load code into the kernel or open
wide kernel surfaces; other machines' call tables; sockets that the policy does not give; setuid and setgid bits;
the priority, CPUs, limits and signals of the supervisor, which has the program's uid. Without namespaces also
System V IPC, POSIX message queues, extended attributes and inotify, because those reach beyond the program there.
Not covered: which files a call touches (Landlock and the mounts do that), and arguments behind pointers.
"""

import ctypes
import errno
import socket
import stat
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

from skillyard.sandbox.syscalls import call, numbers, prctl, refused_calls

AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Refused whatever the policy and the arguments: name to error. The others only where there are no namespaces.
REFUSED, REFUSED_WHEN_SHARED = refused_calls(shared=False), refused_calls(shared=True)

#: Calls that change the process named by their first argument.
_ON_A_PROCESS: Final = ("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity", "prlimit64")
#: Calls that send a signal to the process named by their first argument, besides kill.
_SIGNALS: Final = ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
#: Which argument of a call is the mode of a file. The first two come often; the argument before their mode are flags.
_MODE_ARGUMENT: Final = {
    "openat": 3,
    "open": 2,
    **dict.fromkeys(("chmod", "fchmod", "creat", "mkdir", "mknod"), 1),
    **dict.fromkeys(("fchmodat", "fchmodat2", "mkdirat", "mknodat"), 2),
}
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, and the bit of O_TMPFILE that is not O_DIRECTORY
_SUPERVISOR: Final = 1  # the number of the supervisor where it is the first process of a pid namespace

#: New mount, cgroup, uts, ipc, user, pid and net namespaces, as clone knows them.
_NAMESPACE_FLAGS: Final = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
#: Typing into a terminal that we share with the person.
_TERMINAL_REQUESTS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_TYPE_MASK: Final = 0xF  # the type of a socket without SOCK_NONBLOCK and SOCK_CLOEXEC

_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _JUMP_AT_LEAST, _RETURN, _AND = 0x20, 0x15, 0x45, 0x35, 0x06, 0x54
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _FIRST = 0, 4, 16  # offsets in struct seccomp_data
_X32 = 0x40000000


class Sockets(NamedTuple):
    """Which sockets may be opened. Nothing else is: no raw, packet, netlink, vsock or crypto sockets.

    A connected socketpair reaches nobody else and is always given. A datagram pair is not connected for good
    (`sendto` a path works on it), so it is given only together with `unix`.
    """

    internet: bool = False  # TCP and UDP over IPv4 and IPv6
    unix: bool = True


Instruction = tuple[int, int, int, int]  # (code, jump if true, jump if false, value)
_Steps = tuple[Instruction, ...]
_PASS: Final[Instruction] = (_RETURN, 0, 0, _ALLOW)


@cache
def assemble(machine: str, sockets: Sockets, *, shared: bool = False) -> _Steps:
    """Return the filter. `shared`: the program has no namespaces, so it can name what belongs to others."""
    known = numbers(machine)
    types = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, *([socket.SOCK_DGRAM] if sockets.unix else ()))
    pair = (_argument(1), (_AND, 0, 0, _TYPE_MASK), *_allow_only(*types))
    return (
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        _fail(errno.ENOSYS),
        *_modes(known),
        *_each(known, REFUSED),
        *_other_processes(known, shared=shared),
        *_each(known, REFUSED_WHEN_SHARED if shared else {}),
        *_on(known["clone"], _NO_NEW_NAMESPACES),
        *_on(known["ioctl"], (_argument(1), *_fail_on(_TERMINAL_REQUESTS, errno.EPERM))),
        *_on(known["socket"], _socket(sockets)),
        *_on(known["socketpair"], (_argument(0), *_if(socket.AF_UNIX, pair), _fail(errno.EACCES))),
        _PASS,
    )


def refuse(machine: str, names: Iterable[str], *, namespaces: bool = True) -> _Steps:
    """Return a filter that refuses only these calls, to see how a machine without them behaves."""
    known = numbers(machine)
    no_namespaces = () if namespaces else _on(known["clone"], _NO_NEW_NAMESPACES)
    return ((_LOAD, 0, 0, _NUMBER), *_each(known, dict.fromkeys(names, errno.EPERM)), *no_namespaces, _PASS)


def _fail(code: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | code)


def _argument(index: int) -> Instruction:
    """Load the low half of an argument: modes, flags and process numbers are never wider."""
    return (_LOAD, 0, 0, _FIRST + 8 * index)


_NO_NEW_NAMESPACES: Final[_Steps] = (_argument(0), (_JUMP_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), _fail(errno.EPERM))


def _each(known: dict[str, int], refused: Mapping[str, int]) -> _Steps:
    return tuple(step for name, code in refused.items() if name in known for step in _fail_on((known[name],), code))


def _fail_on(values: Iterable[int], code: int) -> _Steps:
    return tuple(step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), _fail(code)))


def _allow_only(*values: int) -> _Steps:
    """Let the loaded value pass if it is one of these, else fail. Always returns."""
    return (*(step for value in values for step in ((_JUMP_EQUAL, 0, 1, value), _PASS)), _fail(errno.EACCES))


def _if(value: int, body: _Steps) -> _Steps:
    """Run `body` if the loaded value is this."""
    return ((_JUMP_EQUAL, 0, len(body), value), *body)


def _on(number: int, body: _Steps) -> _Steps:
    """Run `body` for this call only, with the call's number loaded again behind it."""
    return _if(number, (*body, (_LOAD, 0, 0, _NUMBER)))


def _modes(known: dict[str, int]) -> _Steps:
    """No call may give a file a setuid or setgid bit. First in the filter, because opening files is frequent.

    Where a call opens a file, its mode counts only if the flags create one.
    """
    steps: list[Instruction] = []
    for name, index in _MODE_ARGUMENT.items():
        body: _Steps = (_argument(index), (_JUMP_ANY_BIT, 0, 1, stat.S_ISUID | stat.S_ISGID), _fail(errno.EPERM))
        if name.startswith("open"):
            body = (_argument(index - 1), (_JUMP_ANY_BIT, 0, len(body), _CREATES), *body)
        steps += _on(known[name], body) if name in known else ()
    return tuple(steps)


def _other_processes(known: dict[str, int], *, shared: bool) -> _Steps:
    """Nobody touches the process that enforces the limits.

    In a pid namespace that is number 1, and every other process is the program's own: pthread_setaffinity_np
    names its own threads by number. Where numbers are shared with the machine, only 0 (the caller) is safe.
    """
    steps: list[Instruction] = []
    only_zero = ((_JUMP_EQUAL, 1, 0, 0), _fail(errno.EPERM))
    only_own = only_zero if shared else _fail_on((_SUPERVISOR,), errno.EPERM)
    # Where numbers are shared, Landlock keeps signals inside.
    for name in _ON_A_PROCESS if shared else (*_ON_A_PROCESS, *_SIGNALS, "pidfd_open"):
        steps += _on(known[name], (_argument(0), *only_own))
    if not shared:  # signal 0 only asks whether a parent is still there
        steps += _on(known["kill"], (_argument(0), *_if(_SUPERVISOR, (_argument(1), *only_zero))))
    # For (kind, number, …): a process, then a process group (only our own, 0), then a whole user (never).
    for name, process in (("setpriority", 0), ("ioprio_set", 1)):
        one, group = (_argument(1), *only_own, _PASS), (_argument(1), *only_zero, _PASS)
        user = _fail_on((process + 2,), errno.EPERM)
        steps += _on(known[name], (_argument(0), *_if(process, one), *_if(process + 1, group), *user))
    return tuple(steps)


def _socket(sockets: Sockets) -> _Steps:
    """The body for `socket`: always returns. A stream is TCP and a datagram is UDP, by name or by default (0)."""
    internet = (
        *(_argument(1), (_AND, 0, 0, _TYPE_MASK)),
        *_if(socket.SOCK_STREAM, (_argument(2), *_allow_only(0, socket.IPPROTO_TCP))),
        *_if(socket.SOCK_DGRAM, (_argument(2), *_allow_only(0, socket.IPPROTO_UDP))),
        _fail(errno.EACCES),
    )
    return (
        _argument(0),
        *(_if(socket.AF_UNIX, (_PASS,)) if sockets.unix else ()),
        *(((_JUMP_EQUAL, 1, 0, socket.AF_INET), *_if(socket.AF_INET6, internet)) if sockets.internet else ()),
        _fail(errno.EACCES),
    )


@cache
def as_bytes(program: _Steps) -> bytes:
    """The filter as the kernel and bubblewrap read it: an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def load(program: _Steps) -> None:
    """Confine this process and all that it starts, for good."""
    prctl("NO_NEW_PRIVS", 1)
    code = as_bytes(program)
    held = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(held)))
    call("seccomp", 1, 0, header)
