"""Runs inside the sandbox and tries to get out. Prints what it managed, as JSON: nothing is what we want.

A program on its own: standard library only, no import of ours, because it runs where our code cannot be read.
"""

import ctypes
import json
import os
import pathlib
import socket
import sys
from collections.abc import Callable
from typing import Any

GIVEN: dict[str, Any] = json.loads(sys.argv[1])
GROUND = pathlib.Path(GIVEN["ground"])
LIBC = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *args: int) -> None:
    if LIBC.syscall(number, *args) == -1:
        raise OSError(ctypes.get_errno(), "refused")


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
        escaped.append(attempt.__name__)
    (GROUND / "out/result").write_text("written")
    print(json.dumps({"escaped": escaped, "read": (GROUND / "open/file").read_text()}))


if __name__ == "__main__":
    main()
