"""The system calls that Python does not wrap, by number, for x86-64 and aarch64.

Everything here is a thin call that raises OSError; what the calls mean is said where they are used.
"""

import contextlib
import ctypes
import errno
import os
import signal
import struct
from pathlib import Path
from typing import Final

MACHINE: Final = os.uname().machine if hasattr(os, "uname") else ""

#: Calls whose number differs between the two machines: name, x86-64, aarch64.
_DIFFERENT: Final = """
    acct 163 89, add_key 248 217, adjtimex 159 171, bpf 321 280, capset 126 91, chroot 161 51, clock_adjtime 305 266,
    clock_settime 227 112, clone 56 220, delete_module 176 106, fanotify_init 300 262, fchmod 91 52, fchmodat 268 53,
    finit_module 313 273, fremovexattr 199 16, fsetxattr 190 7, init_module 175 105, inotify_add_watch 254 27,
    ioctl 16 29, ioprio_set 251 30, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219,
    kill 62 129, lremovexattr 198 15, lsetxattr 189 6, migrate_pages 256 238, mkdirat 258 34, mknodat 259 33,
    mount 165 40, move_pages 279 239, mq_open 240 180, mq_unlink 241 181, msgctl 71 187, msgget 68 186, msgrcv 70 188,
    msgsnd 69 189, name_to_handle_at 303 264, open_by_handle_at 304 265, openat 257 56, perf_event_open 298 241,
    pivot_root 155 41, prctl 157 167, prlimit64 302 261, process_vm_readv 310 270, process_vm_writev 311 271,
    ptrace 101 117, quotactl 179 60, reboot 169 142, removexattr 197 14, request_key 249 218, rt_sigqueueinfo 129 138,
    rt_tgsigqueueinfo 297 240, sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118,
    sched_setscheduler 144 119, seccomp 317 277, semctl 66 191, semget 64 190, semop 65 193, semtimedop 220 192,
    setdomainname 171 162, sethostname 170 161, setns 308 268, setpriority 141 140, settimeofday 164 170,
    setxattr 188 5, shmat 30 196, shmctl 31 195, shmget 29 194, socket 41 198, socketpair 53 199, swapoff 168 225,
    swapon 167 224, syslog 103 116, tgkill 234 131, tkill 200 130, umount2 166 39, unshare 272 97,
    userfaultfd 323 282, vhangup 153 58
"""
#: Since Linux 5.1 new calls have the same number everywhere.
_SAME: Final = """
    pidfd_send_signal 424, io_uring_setup 425, io_uring_enter 426, io_uring_register 427, open_tree 428,
    move_mount 429, fsopen 430, fsconfig 431, fsmount 432, fspick 433, pidfd_open 434, clone3 435, openat2 437,
    pidfd_getfd 438, process_madvise 440, mount_setattr 442, quotactl_fd 443, landlock_create_ruleset 444,
    landlock_add_rule 445, landlock_restrict_self 446, process_mrelease 448, fchmodat2 452, setxattrat 463,
    removexattrat 466, open_tree_attr 467
"""
#: Only on x86-64; aarch64 does not have these calls.
_X86_ONLY: Final = """
    _sysctl 156, chmod 90, creat 85, ioperm 173, iopl 172, mkdir 83, mknod 133, modify_ldt 154, open 2, uselib 134,
    ustat 136
"""


def numbers(machine: str) -> dict[str, int]:
    """Name to number on this machine; empty if we do not know the machine."""
    tables = {"x86_64": ((_DIFFERENT, 1), (_SAME, 1), (_X86_ONLY, 1)), "aarch64": ((_DIFFERENT, 2), (_SAME, 1))}
    rows = ((row.split(), column) for table, column in tables.get(machine, ()) for row in table.split(","))
    return {fields[0]: int(fields[column]) for fields, column in rows}


NUMBERS: Final = numbers(MACHINE)

Argument = int | bytes | ctypes.Array[ctypes.c_char] | None

_WORDS: Final = 6
# PyDLL keeps the interpreter's lock, so a raw clone returns in the child as it left in the parent.
_SYSCALL: Final = ctypes.PyDLL(None, use_errno=True).syscall if NUMBERS else None
if _SYSCALL is not None:
    _SYSCALL.argtypes = (ctypes.c_long,) * (_WORDS + 1)
    _SYSCALL.restype = ctypes.c_long


def call(name: str, *args: Argument) -> int:
    """Make one system call. ENOSYS where this machine's numbers are not known."""
    if _SYSCALL is None or name not in NUMBERS:
        raise OSError(38, f"{name}: not known on {MACHINE or 'this system'}")
    words = [arg if type(arg) is int else _address(arg) for arg in args]
    answer: int = _SYSCALL(NUMBERS[name], *words, *_PADDING[len(words) :])
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return answer


_PADDING: Final = (0,) * _WORDS


def _address(arg: Argument) -> int:
    """Where the bytes are; whoever passes them keeps them alive during the call."""
    if isinstance(arg, bytes):
        return ctypes.cast(ctypes.c_char_p(arg), ctypes.c_void_p).value or 0
    if isinstance(arg, ctypes.Array):
        return ctypes.addressof(arg)
    return int(arg or 0)


def buffer(form: str, *values: int) -> ctypes.Array[ctypes.c_char]:
    """A packed struct at an address that a call can be given."""
    packed = struct.pack(form, *values)
    return ctypes.create_string_buffer(packed, len(packed))


# prctl options
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


def prctl(option: int, value: int = 0, third: int = 0) -> None:
    call("prctl", option, value, third, 0, 0)


def hide_arguments(title: str) -> None:
    """Overwrite the command line and environment of this process, which /proc shows to others.

    A copy of the runtime has the runtime's: what the person typed, and their keys. `os.environ` stays as it is.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()
    first, last, first_variable, last_variable = map(int, fields[45:49])  # fields 48 to 51, see proc_pid_stat(5)
    ctypes.PyDLL(None).clearenv()
    for start, end in ((first, last), (first_variable, last_variable)):
        if 0 < start < end:
            ctypes.memset(start, 0, end - start)
    name = title.encode()[: max(0, last - first - 1)]
    if first > 0 and name:
        ctypes.memmove(first, name, len(name))
    held = ctypes.create_string_buffer(title.encode())
    call("prctl", PR_SET_NAME, ctypes.addressof(held), 0, 0, 0)


_CAPABILITY_VERSION_3: Final = 0x20080522
_SECURE_NOROOT_LOCKED: Final = 0b0010_1111  # NOROOT, NO_SETUID_FIXUP and their locks; KEEP_CAPS locked off


def drop_capabilities() -> None:
    """Give up every capability for good: root's special treatment, then the sets. After no_new_privs."""
    with contextlib.suppress(PermissionError):  # without CAP_SETPCAP there was nothing to lose
        prctl(PR_SET_SECUREBITS, _SECURE_NOROOT_LOCKED)
    call("capset", buffer("=Ii", _CAPABILITY_VERSION_3, 0), buffer("=6I", 0, 0, 0, 0, 0, 0))


#: For calls that take a folder's descriptor: paths start at the working directory.
AT_FDCWD: Final = -100
# openat2 resolve flags
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_IN_ROOT = 0x10
_O_PATH = 0o10000000


def open_path(root: int, path: str, resolve: int) -> int:
    """A handle on a place, not on its content, found below `root` under the rules of `resolve`."""
    how = buffer("=QQQ", _O_PATH | os.O_CLOEXEC, 0, resolve)
    try:
        return call("openat2", root, os.fsencode(path), how, 24)
    except OSError as error:
        why = "there is a symlink on the way" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        raise OSError(error.errno, why, path) from None


def fork() -> int:
    """A copy of this process, without the hooks that Python and its modules run around a fork.

    Only for a process with a single thread: what the hooks repair cannot be broken there.
    """
    return call("clone", signal.SIGCHLD, 0, 0, 0, 0)


def write_file(path: str, content: str) -> None:
    """One write to one of the kernel's files, which take all or nothing."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, content.encode())
    finally:
        os.close(file)
