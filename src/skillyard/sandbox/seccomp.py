"""A system call filter, assembled here and loaded by the process that it confines.

Covered: calls that reach into other processes, change mounts or namespaces, load code into the kernel or open
wide kernel surfaces; other machines' call tables; sockets that the policy does not give; setuid and setgid bits;
the priority, CPUs, limits and signals of the supervisor, which has the program's uid. Without namespaces also
System V IPC, POSIX message queues, extended attributes and inotify, because those reach beyond the program there.
Not covered: which files a call touches (Landlock and the mounts do that), and arguments behind pointers.
"""

import ctypes
import errno
import struct
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

from skillyard.sandbox.syscalls import PR_SET_NO_NEW_PRIVS, call, numbers, prctl

AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Refused with EPERM, whatever the policy.
REFUSED: Final = (
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease"),
    *("pidfd_getfd", "kcmp", "move_pages", "migrate_pages"),
    # mounts, namespaces, roots
    *("mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree"),
    *("open_tree_attr", "move_mount", "mount_setattr", "unshare", "setns"),
    # files by handle, past every path rule
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init"),
    # keys and kernel code
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    # the machine itself
    *("reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "sethostname"),
    *("setdomainname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "vhangup"),
    *("modify_ldt", "iopl", "ioperm", "uselib", "ustat", "_sysctl"),
)
#: Refused with ENOSYS, so that programs fall back: clone3 hides its flags behind a pointer, openat2 its mode.
UNKNOWN: Final = ("clone3", "pidfd_send_signal", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register")

#: Without namespaces: refused with EPERM, because they name things of the whole machine.
REFUSED_WHEN_SHARED: Final = (
    *("shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("semget", "semop", "semtimedop", "semctl", "mq_open", "mq_unlink", "inotify_add_watch"),
)
#: Without namespaces: refused with ENOTSUP, like a file system that has no extended attributes.
UNSUPPORTED_WHEN_SHARED: Final = (
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
#: Without namespaces: refused with ENOSYS; asyncio, Go and Rust then wait for their children in another way.
UNKNOWN_WHEN_SHARED: Final = ("pidfd_open",)

#: Calls that change the process named by their first argument.
_ON_A_PROCESS: Final = ("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity", "prlimit64")
#: Calls that send a signal to the process named by their first argument, besides kill.
_SIGNALS: Final = ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
#: Which argument of a call is the mode of a file.
_MODE_ARGUMENT: Final = dict.fromkeys(("chmod", "fchmod", "creat", "mkdir", "mknod"), 1) | dict.fromkeys(
    ("fchmodat", "fchmodat2", "mkdirat", "mknodat"), 2
)
#: Calls whose mode counts only if their flags create a file: name to the argument with the flags; the mode follows.
_FLAGS_ARGUMENT: Final = {"openat": 2, "open": 1}
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, and the bit of O_TMPFILE that is not O_DIRECTORY
SPECIAL_BITS: Final = 0o6000  # S_ISUID, S_ISGID
#: The number of the supervisor where it is the first process of a pid namespace.
_SUPERVISOR: Final = 1

#: New mount, cgroup, uts, ipc, user, pid and net namespaces, as clone knows them.
NAMESPACE_FLAGS: Final = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
#: Typing into a terminal that we share with the person.
_TERMINAL_REQUESTS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_DGRAM = 1, 5, 2
_IPPROTO_TCP, _IPPROTO_UDP = 6, 17
#: The type of a socket without SOCK_NONBLOCK and SOCK_CLOEXEC.
_TYPE_MASK: Final = 0xF

_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _JUMP_AT_LEAST, _RETURN, _AND = 0x20, 0x15, 0x45, 0x35, 0x06, 0x54
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _FIRST = 0, 4, 16  # offsets in struct seccomp_data
_X32 = 0x40000000


class Sockets(NamedTuple):
    """Which sockets may be opened. Nothing else is: no raw, packet, netlink, vsock or crypto sockets.

    A connected socketpair reaches nobody else and is always given. A datagram pair is not connected for good
    (`sendto` a path works on it), so it is given only together with `unix`.
    """

    #: TCP and UDP over IPv4 and IPv6.
    internet: bool = False
    unix: bool = True


#: (code, jump if true, jump if false, value)
Instruction = tuple[int, int, int, int]
_Steps = tuple[Instruction, ...]
_PASS: Final[Instruction] = (_RETURN, 0, 0, _ALLOW)


@cache
def assemble(machine: str, sockets: Sockets, *, shared: bool = False) -> _Steps:
    """Return the filter. `shared`: the program has no namespaces, so it can name what belongs to others."""
    known = numbers(machine)
    return (
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32),
        _fail(errno.ENOSYS),
        *_modes(known),
        *_each(known, REFUSED, errno.EPERM),
        *_each(known, UNKNOWN, errno.ENOSYS),
        *_other_processes(known, shared=shared),
        *(_each(known, REFUSED_WHEN_SHARED, errno.EPERM) if shared else ()),
        *(_each(known, UNSUPPORTED_WHEN_SHARED, errno.ENOTSUP) if shared else ()),
        *(_each(known, UNKNOWN_WHEN_SHARED, errno.ENOSYS) if shared else ()),
        *_on(known["clone"], _NO_NEW_NAMESPACES),
        *_on(known["ioctl"], (_argument(1), *_fail_on(_TERMINAL_REQUESTS, errno.EPERM))),
        *_on(known["socket"], _socket(sockets)),
        *_on(known["socketpair"], _socketpair(sockets)),
        _PASS,
    )


def refuse(machine: str, names: Iterable[str], *, namespaces: bool = True) -> _Steps:
    """Return a filter that refuses only these calls, to see how a machine without them behaves."""
    known = numbers(machine)
    no_namespaces = () if namespaces else _on(known["clone"], _NO_NEW_NAMESPACES)
    return ((_LOAD, 0, 0, _NUMBER), *_each(known, names, errno.EPERM), *no_namespaces, _PASS)


def _fail(code: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | code)


def _argument(index: int) -> Instruction:
    """Load the low half of an argument: modes, flags and process numbers are never wider."""
    return (_LOAD, 0, 0, _FIRST + 8 * index)


_NO_NEW_NAMESPACES: Final[_Steps] = (_argument(0), (_JUMP_ANY_BIT, 0, 1, NAMESPACE_FLAGS), _fail(errno.EPERM))


def _each(known: dict[str, int], names: Iterable[str], code: int) -> _Steps:
    return _fail_on((known[name] for name in names if name in known), code)


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
    """No call may give a file a setuid or setgid bit. First in the filter, because opening files is frequent."""
    steps: list[Instruction] = []
    refused = ((_JUMP_ANY_BIT, 0, 1, SPECIAL_BITS), _fail(errno.EPERM))
    for name, flags in _FLAGS_ARGUMENT.items():
        if name in known:
            mode = (_argument(flags + 1), *refused)
            steps += _on(known[name], (_argument(flags), (_JUMP_ANY_BIT, 0, len(mode), _CREATES), *mode))
    for name, index in _MODE_ARGUMENT.items():
        if name in known:
            steps += _on(known[name], (_argument(index), *refused))
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
    streams, datagrams = (_argument(2), *_allow_only(0, _IPPROTO_TCP)), (_argument(2), *_allow_only(0, _IPPROTO_UDP))
    internet = (
        *(_argument(1), (_AND, 0, 0, _TYPE_MASK)),
        *_if(_SOCK_STREAM, streams),
        *_if(_SOCK_DGRAM, datagrams),
        _fail(errno.EACCES),
    )
    return (
        _argument(0),
        *(_if(AF_UNIX, (_PASS,)) if sockets.unix else ()),
        *(((_JUMP_EQUAL, 1, 0, _AF_INET), *_if(_AF_INET6, internet)) if sockets.internet else ()),
        _fail(errno.EACCES),
    )


def _socketpair(sockets: Sockets) -> _Steps:
    types = (_SOCK_STREAM, _SOCK_SEQPACKET, *((_SOCK_DGRAM,) if sockets.unix else ()))
    unix = (_argument(1), (_AND, 0, 0, _TYPE_MASK), *_allow_only(*types))
    return (_argument(0), *_if(AF_UNIX, unix), _fail(errno.EACCES))


@cache
def as_bytes(program: _Steps) -> bytes:
    """The filter as the kernel and bubblewrap read it: an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def load(program: _Steps) -> None:
    """Confine this process and all that it starts, for good."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    code = as_bytes(program)
    held = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(held)))
    call("seccomp", 1, 0, header)
