"""Runs inside the sandbox and tries to get out. Prints what it managed, as JSON: nothing is what we want.

A program on its own: standard library only, no import of ours, because it runs where our code cannot be read.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

GIVEN: dict[str, Any] = json.loads(sys.argv[1])
GROUND = pathlib.Path(GIVEN["ground"])
LIBC = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *args: int) -> None:
    if LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, args)) == -1:
        raise OSError(ctypes.get_errno(), "refused")


def address(content: bytes) -> int:
    """Where the kernel finds these bytes; they stay there for good."""
    _KEPT.append(ctypes.create_string_buffer(content, len(content)))
    return ctypes.addressof(_KEPT[-1])


_KEPT: list[Any] = []


class Escape(Exception):
    """It worked, and this is what was reached."""


def read_ssh_key() -> None:
    (GROUND / "home/.ssh/id").read_text()


def list_home() -> None:
    list((GROUND / "home").iterdir())


def read_hidden_in_a_readable_folder() -> None:
    (GROUND / "open/hidden/token").read_text()


def list_hidden() -> None:
    if not list((GROUND / "open/hidden").iterdir()):
        raise FileNotFoundError


def read_through_a_symlink() -> None:
    link = GROUND / "out/key"
    link.symlink_to(GROUND / "home/.ssh/id")
    link.read_text()


def read_the_shadow_file() -> None:
    pathlib.Path("/etc/shadow").read_bytes()


def make_a_file_outside() -> None:
    (GROUND / "outside/new").write_text("escaped")


def change_a_file_outside() -> None:
    (GROUND / "outside/victim").write_text("escaped")


def truncate_a_file_outside() -> None:
    os.truncate(GROUND / "outside/victim", 0)


def remove_a_file_outside() -> None:
    (GROUND / "outside/victim").unlink()


def write_through_a_symlink() -> None:
    link = GROUND / "out/link"
    link.symlink_to(GROUND / "outside/victim")
    link.write_text("escaped")


def write_through_a_symlinked_folder() -> None:
    link = GROUND / "out/folder"
    link.symlink_to(GROUND / "outside")
    (link / "new").write_text("escaped")


def pull_a_file_in_by_hard_link() -> None:
    os.link(GROUND / "outside/victim", GROUND / "out/hard")
    (GROUND / "out/hard").write_text("escaped")


def pull_a_file_in_by_rename() -> None:
    (GROUND / "outside/victim").rename(GROUND / "out/moved")


def write_what_may_only_be_read() -> None:
    (GROUND / "open/file").write_text("escaped")


def connect_by_tcp() -> None:
    socket.create_connection(("127.0.0.1", GIVEN["tcp"]), timeout=5)


def listen_on_tcp() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


def send_by_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", GIVEN["udp"]))
        # A private loopback takes the first datagram and answers that nobody listens.
        sender.send(b"escaped")
        sender.send(b"escaped")


def open_a_raw_or_netlink_socket() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)


def connect_to_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + GIVEN["abstract"])


def connect_to_a_path_socket() -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(GROUND / "outside/socket"))


def signal_the_runtime() -> None:
    os.kill(GIVEN["runtime"], 0)


def trace_the_runtime() -> None:
    syscall(GIVEN["numbers"]["ptrace"], 16, GIVEN["runtime"], 0, 0)


def trace_the_parent() -> None:
    syscall(GIVEN["numbers"]["ptrace"], 16, os.getppid(), 0, 0)


def read_the_memory_of_the_parent() -> None:
    with pathlib.Path(f"/proc/{os.getppid()}/mem").open("rb"):
        pass


def read_the_environment_of_others() -> None:
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found = GIVEN["secret"].encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if found:
            return
    raise PermissionError


def write_a_kernel_setting() -> None:
    # The value that it has anyway, so that a failing test changes nothing.
    setting = pathlib.Path("/proc/sys/kernel/core_pattern")
    setting.write_text(setting.read_text())


def join_another_cgroup() -> None:
    pathlib.Path("/sys/fs/cgroup/pids/cgroup.procs").write_text("0")


def open_a_disk() -> None:
    for name in ("vda", "sda", "nvme0n1", "mem", "kmsg"):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))
        except OSError:
            continue
        return
    raise PermissionError


def become_root() -> None:
    os.setuid(0 if os.getuid() else 1)


def change_root() -> None:
    os.chroot(GROUND / "out")


def make_a_device() -> None:
    os.mknod(GROUND / "out/device", 0o20666, os.makedev(1, 1))


# -- the process that enforces the time limit: our parent, at every level


def idle_the_supervisor() -> None:
    os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))


def idle_the_supervisor_by_attributes() -> None:
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_IDLE, 0, 0, 0, 0, 0, 0)
    syscall(GIVEN["calls"]["sched_setattr"], os.getppid(), address(attributes), 0)


def set_the_supervisors_parameters() -> None:
    os.sched_setparam(os.getppid(), os.sched_param(0))


def pin_the_supervisor_to_one_cpu() -> None:
    os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})


def pin_the_supervisor_behind_high_bits() -> None:
    mask = struct.pack("=128s", bytes([1]))
    syscall(GIVEN["calls"]["sched_setaffinity"], 7 << 32 | os.getppid(), 128, address(mask))


def renice_the_supervisor() -> None:
    os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)


def renice_everybody_of_a_user() -> None:
    # Of one that does not exist, so that a failing test changes nothing.
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_USER, 54321, 19)


def renice_the_group_of_the_supervisor() -> None:
    os.setpriority(os.PRIO_PGRP, os.getpgid(os.getppid()) or os.getppid(), 19)


def lower_the_io_priority_of_the_supervisor() -> None:
    syscall(GIVEN["calls"]["ioprio_set"], 1, os.getppid(), 3 << 13)


def lower_the_io_priority_of_a_user() -> None:
    with contextlib.suppress(ProcessLookupError):
        syscall(GIVEN["calls"]["ioprio_set"], 3, 54321, 3 << 13)


def limit_the_supervisor() -> None:
    resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (3600, 3600))


def read_the_limits_of_the_supervisor() -> None:
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)


def limit_the_runtime() -> None:
    resource.prlimit(GIVEN["runtime"], resource.RLIMIT_CPU, (3600, 3600))


def hold_the_supervisor() -> None:
    os.close(os.pidfd_open(os.getppid()))


def signal_the_supervisor() -> None:
    os.kill(os.getppid(), signal.SIGCHLD)


def queue_a_signal_for_the_supervisor() -> None:
    info = struct.pack("=iii4xii104x", signal.SIGCHLD, 0, -1, os.getpid(), os.getuid())
    syscall(GIVEN["calls"]["rt_sigqueueinfo"], os.getppid(), signal.SIGCHLD, address(info))


def stop_the_supervisors_thread() -> None:
    syscall(GIVEN["calls"]["tgkill"], os.getppid(), os.getppid(), signal.SIGSTOP)


def take_a_realtime_policy() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def raise_our_own_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1)


def open_the_supervisors_proc_files_for_writing() -> None:
    opened = []
    names = ("autogroup", "oom_score_adj", "timerslack_ns", "coredump_filter", "comm", "clear_refs", "sched", "mem")
    for name in names:
        with contextlib.suppress(OSError):
            os.close(os.open(f"/proc/{os.getppid()}/{name}", os.O_WRONLY))
            opened.append(name)
    if not opened:
        raise PermissionError
    raise Escape(",".join(opened))


def read_words_of_the_runtime_from_the_supervisor() -> None:
    """What the caller typed stands in the command line of whoever was copied from it."""
    words = [word[::-1].encode() for word in GIVEN["words_backwards"]]  # ours stands in bubblewrap's, too
    shown = []
    for name in ("cmdline", "environ", "comm", "maps", "auxv", "stack", "wchan", "status", "stat"):
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{os.getppid()}/{name}").read_bytes()
            shown += [f"{name}: {word.decode()}" for word in words if word in text]
    for name in ("cwd", "exe", "root"):
        with contextlib.suppress(OSError):
            link = pathlib.Path(f"/proc/{os.getppid()}/{name}").readlink()
            known = {pathlib.Path("/proc/self", name).readlink(), pathlib.Path("/usr/bin/bwrap")}
            shown += [f"{name}={link}"] if link not in known else []
    if not shown:
        raise PermissionError
    raise Escape(",".join(shown))


def use_a_descriptor_that_was_left_open() -> None:
    left = []
    for number in range(3, 4096):
        with contextlib.suppress(OSError):
            left.append(str(pathlib.Path(f"/proc/self/fd/{number}").readlink()))
    if not left:
        raise PermissionError
    raise Escape(str(left))


# -- setuid and setgid bits


def _kept(path: pathlib.Path) -> None:
    if not path.lstat().st_mode & 0o6000:
        raise PermissionError


def _fresh(name: str) -> pathlib.Path:
    path = GROUND / "out" / name
    path.write_text("#!/bin/sh\n")
    return path


def set_bits_by_chmod() -> None:
    path = _fresh("chmod")
    for mode in (0o4777, 0o2777, 0o6755, 0o7000):
        with contextlib.suppress(OSError):
            path.chmod(mode)
        if path.stat().st_mode & 0o6000:
            return
    raise PermissionError


def set_bits_by_fchmod() -> None:
    path = _fresh("fchmod")
    with path.open() as file:
        os.fchmod(file.fileno(), 0o4755)
    _kept(path)


def set_bits_by_fchmodat() -> None:
    path = _fresh("fchmodat")
    syscall(GIVEN["calls"]["fchmodat"], -100, address(os.fsencode(path) + b"\0"), 0o4755)
    _kept(path)


def set_bits_by_fchmodat2() -> None:
    path = _fresh("fchmodat2")
    syscall(GIVEN["calls"]["fchmodat2"], -100, address(os.fsencode(path) + b"\0"), 0o4755, 0)
    _kept(path)


def set_bits_behind_high_bits() -> None:
    path = _fresh("high")
    syscall(GIVEN["calls"]["fchmodat"], -100, address(os.fsencode(path) + b"\0"), 7 << 32 | 0o4755)
    _kept(path)


def set_bits_by_open() -> None:
    path = GROUND / "out/opened"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755))
    _kept(path)


def set_bits_by_creat() -> None:
    path = GROUND / "out/creat"
    syscall(GIVEN["calls"].get("creat", -1), address(os.fsencode(path) + b"\0"), 0o4755)
    _kept(path)


def set_bits_by_an_unnamed_file() -> None:
    path = GROUND / "out/unnamed"
    file = os.open(GROUND / "out", os.O_TMPFILE | os.O_WRONLY, 0o4755)
    os.link(f"/proc/self/fd/{file}", path, follow_symlinks=True)
    _kept(path)


def set_bits_by_openat2() -> None:
    path = GROUND / "out/openat2"
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    syscall(GIVEN["calls"]["openat2"], -100, address(os.fsencode(path) + b"\0"), address(how), 24)
    _kept(path)


def set_bits_by_mknod() -> None:
    path = GROUND / "out/mknod"
    os.mknod(path, 0o104755)
    _kept(path)


def set_bits_on_a_folder() -> None:
    path = GROUND / "out/folder-with-group"
    path.mkdir(mode=0o2777)
    _kept(path)


def set_bits_on_a_folder_by_chmod() -> None:
    path = GROUND / "out/folder-changed"
    path.mkdir()
    path.chmod(0o2755)
    _kept(path)


def give_a_file_capabilities() -> None:
    path = _fresh("capable")
    os.setxattr(path, "security.capability", struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0, 0))


# -- what only namespaces hide, or the filter where there are none


def send_from_a_pair_to_a_path() -> None:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"escaped", str(GROUND / "outside/datagrams"))


def send_from_a_raw_pair_to_a_path() -> None:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    ours.connect(str(GROUND / "outside/datagrams"))
    ours.send(b"escaped")


def send_from_a_pair_to_an_abstract_name() -> None:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"escaped", "\0" + GIVEN["abstract"] + "-datagrams")


def reach_shared_memory_outside() -> None:
    syscall(GIVEN["calls"]["shmget"], GIVEN["key"], 0, 0)


def reach_a_message_queue_outside() -> None:
    syscall(GIVEN["calls"]["msgget"], GIVEN["key"], 0)


def reach_a_semaphore_outside() -> None:
    syscall(GIVEN["calls"]["semget"], GIVEN["key"], 0, 0)


def reach_a_posix_queue_outside() -> None:
    syscall(GIVEN["calls"]["mq_open"], address(GIVEN["queue"].encode() + b"\0"), os.O_RDWR, 0, 0)


def mark_a_file_outside() -> None:
    os.setxattr(GROUND / "outside/victim", "user.escaped", b"1")


def watch_a_folder_outside() -> None:
    watching = LIBC.inotify_init1(0)
    if LIBC.inotify_add_watch(watching, os.fsencode(GROUND / "outside"), 0xFFF) == -1:
        raise OSError(ctypes.get_errno(), "refused")


def refused_calls() -> list[str]:
    """Calls that must not be there at all, whatever their arguments."""
    got: list[str] = []
    for name, number in GIVEN["numbers"].items():
        try:
            syscall(number, 0x10000000, 0, 0, 0, 0)
        except OSError as error:
            if error.errno in {1, 38}:
                continue
        got.append(f"call_{name}")
    return got


ATTEMPTS: list[Callable[[], None]] = [
    *(read_ssh_key, list_home, read_hidden_in_a_readable_folder, list_hidden, read_through_a_symlink),
    *(read_the_shadow_file, make_a_file_outside, change_a_file_outside, truncate_a_file_outside),
    *(remove_a_file_outside, write_through_a_symlink, write_through_a_symlinked_folder),
    *(pull_a_file_in_by_hard_link, pull_a_file_in_by_rename, write_what_may_only_be_read),
    *(connect_by_tcp, listen_on_tcp, send_by_udp, open_a_raw_or_netlink_socket),
    *(connect_to_an_abstract_socket, connect_to_a_path_socket),
    *(signal_the_runtime, trace_the_runtime, trace_the_parent, read_the_memory_of_the_parent),
    *(read_the_environment_of_others, write_a_kernel_setting, join_another_cgroup, open_a_disk),
    *(become_root, change_root, make_a_device),
    *(idle_the_supervisor, idle_the_supervisor_by_attributes, set_the_supervisors_parameters),
    *(pin_the_supervisor_to_one_cpu, pin_the_supervisor_behind_high_bits, renice_the_supervisor),
    *(renice_everybody_of_a_user, renice_the_group_of_the_supervisor),
    *(lower_the_io_priority_of_the_supervisor, lower_the_io_priority_of_a_user, limit_the_supervisor),
    *(read_the_limits_of_the_supervisor, limit_the_runtime, hold_the_supervisor, signal_the_supervisor),
    *(queue_a_signal_for_the_supervisor, stop_the_supervisors_thread, take_a_realtime_policy, raise_our_own_priority),
    *(open_the_supervisors_proc_files_for_writing, read_words_of_the_runtime_from_the_supervisor),
    use_a_descriptor_that_was_left_open,
    *(set_bits_by_chmod, set_bits_by_fchmod, set_bits_by_fchmodat, set_bits_by_fchmodat2, set_bits_behind_high_bits),
    *(set_bits_by_open, set_bits_by_creat, set_bits_by_an_unnamed_file, set_bits_by_openat2, set_bits_by_mknod),
    *(set_bits_on_a_folder, set_bits_on_a_folder_by_chmod, give_a_file_capabilities),
    *(send_from_a_pair_to_a_path, send_from_a_raw_pair_to_a_path, send_from_a_pair_to_an_abstract_name),
    *(reach_shared_memory_outside, reach_a_message_queue_outside, reach_a_semaphore_outside),
    *(reach_a_posix_queue_outside, mark_a_file_outside, watch_a_folder_outside),
]


def main() -> None:
    escaped = refused_calls()
    # A private loopback is always up where there is a net namespace; it leads nowhere.
    allowed = [listen_on_tcp] if GIVEN["private_loopback"] else []
    for attempt in ATTEMPTS:
        if attempt in allowed:
            continue
        try:
            attempt()
        except OSError:
            continue
        except Escape as reached:
            escaped.append(f"{attempt.__name__}: {reached}")
            continue
        escaped.append(attempt.__name__)
    (GROUND / "out/result").write_text("written")
    print(json.dumps({"escaped": escaped, "read": (GROUND / "open/file").read_text()}))


if __name__ == "__main__":
    main()
