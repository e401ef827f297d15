"""The system calls that Python does not wrap, by number, for x86-64 and aarch64.

Everything here is a thin call that raises OSError; what the calls mean is said where they are used.
"""

import contextlib
import ctypes
import errno
import os
import signal
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

MACHINE: Final = os.uname().machine if hasattr(os, "uname") else ""

#: The columns of the table with the numbers of each machine.
_COLUMNS: Final = {"x86_64": 1, "aarch64": 2}


@cache
def _table() -> list[list[str]]:
    lines = Path(__file__).with_name("syscalls.txt").read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def numbers(machine: str) -> dict[str, int]:
    """Name to number on this machine; empty if we do not know the machine."""
    column = _COLUMNS.get(machine)
    return {row[0]: int(row[column]) for row in _table() if row[column] != "-"} if column else {}


def refused_calls(*, shared: bool) -> dict[str, int]:
    """Name to error of the calls that the table refuses always, or only to programs without namespaces."""
    return {row[0]: getattr(errno, row[3]) for row in _table() if row[3:] and ("shared" in row[4:]) == shared}


NUMBERS: Final = numbers(MACHINE)

Argument = int | bytes | ctypes.Array[ctypes.c_char] | None

# PyDLL keeps the interpreter's lock, so a raw clone returns in the child as it left in the parent.
_SYSCALL: Final = ctypes.PyDLL(None, use_errno=True).syscall if NUMBERS else None
if _SYSCALL is not None:
    _SYSCALL.argtypes = (ctypes.c_long, *(ctypes.c_void_p,) * 6)  # takes numbers, bytes and arrays alike
    _SYSCALL.restype = ctypes.c_long


def call(name: str, *args: Argument) -> int:
    """Make one system call. ENOSYS where this machine's numbers are not known."""
    if _SYSCALL is None or name not in NUMBERS:
        raise OSError(errno.ENOSYS, f"{name}: not known on {MACHINE or 'this system'}")
    answer: int = _SYSCALL(NUMBERS[name], *args, *(0,) * (6 - len(args)))
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return answer


@contextlib.contextmanager
def closing_fd(file: int) -> Iterator[int]:
    """Close a descriptor after the block."""
    try:
        yield file
    finally:
        os.close(file)


def buffer(form: str, *values: int) -> ctypes.Array[ctypes.c_char]:
    """A packed struct at an address that a call can be given."""
    packed = struct.pack(form, *values)
    return ctypes.create_string_buffer(packed, len(packed))


_PRCTL: Final = {"PDEATHSIG": 1, "DUMPABLE": 4, "NAME": 15, "SECUREBITS": 28, "CHILD_SUBREAPER": 36, "NO_NEW_PRIVS": 38}


def prctl(option: str, value: int | bytes) -> None:
    """Set an attribute of this process: PR_SET_`option`."""
    call("prctl", _PRCTL[option], value)


def hide_arguments(title: bytes) -> None:
    """Overwrite the command line and environment of this process, which /proc shows to others.

    A copy of the runtime has the runtime's: what the person typed, and their keys. `os.environ` stays as it is.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()
    first, last, first_variable, last_variable = map(int, fields[45:49])  # fields 48 to 51, see proc_pid_stat(5)
    ctypes.PyDLL(None).clearenv()
    for start, end in ((first, last), (first_variable, last_variable)):
        if 0 < start < end:
            ctypes.memset(start, 0, end - start)
    name = title[: max(0, last - first - 1)]
    if first > 0 and name:
        ctypes.memmove(first, name, len(name))
    prctl("NAME", title)


def drop_capabilities() -> None:
    """Give up every capability for good: root's special treatment, then the sets. After no_new_privs."""
    with contextlib.suppress(PermissionError):  # without CAP_SETPCAP there was nothing to lose
        prctl("SECUREBITS", 0b0010_1111)  # NOROOT, NO_SETUID_FIXUP and their locks; KEEP_CAPS locked off
    version_3 = buffer("=Ii", 0x20080522, 0)
    call("capset", version_3, buffer("=6I", 0, 0, 0, 0, 0, 0))


#: For calls that take a folder's descriptor: paths start at the working directory.
AT_FDCWD: Final = -100
_NO_SYMLINKS, _IN_ROOT, _O_PATH = 0x04, 0x10, 0o10000000


def open_path(root: int, path: str, *, literal: bool = True) -> int:
    """A handle on a place, not on its content, found below `root`; a `literal` path is not followed through links."""
    resolve = (_NO_SYMLINKS if literal else 0) | (0 if root == AT_FDCWD else _IN_ROOT)
    how = buffer("=QQQ", _O_PATH | os.O_CLOEXEC, 0, resolve)
    try:
        return call("openat2", root, os.fsencode(path), how, 24)
    except OSError as error:
        why = "there is a symlink on the way" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        raise OSError(error.errno, why, path) from None


_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = 1
_SET_FLAG, _SET_STRING, _SET_FD, _CREATE = 0, 1, 5, 6


def make_mount(kind: bytes, options: Iterable[tuple[bytes, bytes | int | None]], *, read_only: bool) -> int:
    """Return a new file system, mounted nowhere yet. An option is a flag, or it has a text or a descriptor."""
    with closing_fd(call("fsopen", kind, _FSOPEN_CLOEXEC)) as context:
        for key, value in options:
            if isinstance(value, int):
                call("fsconfig", context, _SET_FD, key, None, value)
            else:
                call("fsconfig", context, _SET_FLAG if value is None else _SET_STRING, key, value)
        call("fsconfig", context, _CREATE)
        attributes = _NO_SUID | _NO_DEVICES | (_READ_ONLY if read_only else 0)
        return call("fsmount", context, _FSMOUNT_CLOEXEC, attributes)


def fork() -> int:
    """Copy this process, which must have a single thread, without the hooks that Python runs around a fork."""
    return call("clone", signal.SIGCHLD)


def write_file(path: str, content: str) -> None:
    """One write to one of the kernel's files, which take all or nothing."""
    with closing_fd(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as file:
        os.write(file, content.encode())
