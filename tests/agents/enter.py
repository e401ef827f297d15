"""Started as a program: `enter.py DOOR PORT PROGRAM ARGUMENTS…` becomes PROGRAM, in a network of nothing but loopback.

There the stub listens on the same port as outside. A socket belongs to the network in which it was made, whoever serves
it: so one is made here and handed to the stub through its door (a Unix socket, which no network bounds). Nothing stays
behind that would have to be stopped. User and process stay the same: signals and the exit code are the program's own.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def leave_every_network() -> None:
    """A new network, empty but for its loopback. Root may do that; anybody else in a user namespace of their own."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", "ascii")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def hand_over(door: str, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener, socket.socket(socket.AF_UNIX) as stub:
        stub.connect(door)
        socket.send_fds(stub, [b"!"], [listener.fileno()])
        if stub.recv(1) != b"!":
            raise OSError("the stub did not take the socket")


def main() -> None:
    door, port, *command = sys.argv[1:]
    leave_every_network()
    if door:
        hand_over(door, int(port))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
