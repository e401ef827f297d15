"""What a run reaches of the network: nothing but its own loopback without the grant, TCP and UDP over IP with it."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.conftest import PYTHON, Drive, users

LEVELS = ["full", "namespaces+seccomp", "bubblewrap", "landlock+seccomp"]

#: Opens every kind of socket that is neither TCP nor UDP over IP, and prints those that opened.
OTHER_SOCKETS = """
import json, socket
names = {
    "netlink route": (16, 3, 0), "netlink dgram": (16, 2, 9), "packet": (17, 3, 3), "packet dgram": (17, 2, 3),
    "raw": (2, 3, 1), "raw6": (10, 3, 58), "ping": (2, 2, 1), "ping6": (10, 2, 58), "vsock": (40, 1, 0),
    "vsock dgram": (40, 2, 0), "alg": (38, 5, 0), "bluetooth": (31, 3, 0), "can": (29, 3, 1), "tipc": (30, 5, 0),
    "sctp": (2, 1, 132), "sctp seq": (2, 5, 132), "mptcp": (2, 1, 262), "udplite": (2, 2, 136), "dccp": (2, 6, 33),
    "key": (15, 3, 2), "xdp": (44, 3, 0), "smc": (43, 1, 0), "qrtr": (42, 2, 0), "kcm": (41, 5, 0), "rds": (21, 5, 0),
    "ax25": (3, 2, 0), "appletalk": (5, 2, 0), "x25": (9, 5, 0), "phonet": (35, 2, 0), "nfc": (39, 3, 0),
}
opened = []
for name, (family, kind, protocol) in names.items():
    for flags in (0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK):
        try:
            socket.socket(family, kind | flags, protocol).close()
        except OSError as error:
            if error.errno == 13:
                continue
            opened.append(f"{name}: {error}")
        else:
            opened.append(name)
for kind in ((socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, 6), (socket.SOCK_DGRAM, 0), (socket.SOCK_DGRAM, 17)):
    for family in (socket.AF_INET, socket.AF_INET6):
        socket.socket(family, *kind).close()
print(json.dumps(opened))
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", users())
def test_a_network_grant_gives_tcp_and_udp_and_no_other_socket(drive: Drive, uid: int, level: str) -> None:
    done = drive(uid, level, argv=[PYTHON, "-I", "-S", "-c", OTHER_SOCKETS], policy={"network": True}, weak=True)

    assert done["code"] == 0, done["stderr"]
    assert json.loads(done["stdout"]) == []


RESOLVE = """
import socket
print(socket.getaddrinfo("localhost", 80, proto=socket.IPPROTO_TCP)[0][4][:2])
try:
    socket.getaddrinfo("no-such-host.invalid", 80)
except socket.gaierror as error:
    print("no such host")
"""


@pytest.mark.parametrize("level", LEVELS)
def test_names_resolve_without_netlink_sockets(drive: Drive, level: str) -> None:
    done = drive(os.getuid(), level, argv=[PYTHON, "-I", "-S", "-c", RESOLVE], policy={"network": True}, weak=True)

    address, missing = done["stdout"].splitlines()
    assert address in {"('127.0.0.1', 80)", "('::1', 80)"}
    assert missing == "no such host"


@pytest.fixture
def abstract() -> Iterator[tuple[str, list[socket.socket]]]:
    name = f"skillyard-test-{os.urandom(8).hex()}"
    listening = []
    for kind, suffix in ((socket.SOCK_STREAM, "s"), (socket.SOCK_DGRAM, "d")):
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(f"\0{name}{suffix}")
        listening.append(listener)
    listening[0].listen()
    yield name, listening
    for listener in listening:
        listener.close()


#: Tries a host's abstract sockets: by a stream, a datagram, and a datagram socketpair.
ABSTRACT = """
import socket, sys
name = "\\0" + sys.argv[1]
def stream():
    socket.socket(socket.AF_UNIX).connect(name + "s")
def datagram():
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"escaped", name + "d")
def pair():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"escaped", name + "d")
for attempt in (stream, datagram, pair):
    try:
        attempt()
    except OSError:
        continue
    print(attempt.__name__)
"""


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", users())
def test_abstract_sockets_of_the_host_are_out_of_reach(
    drive: Drive, abstract: tuple[str, list[socket.socket]], uid: int, level: str, network: bool
) -> None:
    argv = [PYTHON, "-I", "-S", "-c", ABSTRACT, abstract[0]]

    done = drive(uid, level, argv=argv, policy={"network": network}, weak=True)

    assert (done["code"], done["stdout"]) == (0, ""), done["stderr"]
    for listener in abstract[1]:
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.recv(100) if listener.type == socket.SOCK_DGRAM else listener.accept()


#: A server and a client of one run talk over 127.0.0.1 and ::1, by TCP and UDP.
LOOPBACK = """
import socket, threading
said = []
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((address, 0), family=family)
    client = socket.create_connection(server.getsockname()[:2], timeout=20)
    client.sendall(b"tcp ")
    said.append(server.accept()[0].recv(10))
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind((address, 0))
    receiver.settimeout(20)
    socket.socket(family, socket.SOCK_DGRAM).sendto(b"udp ", receiver.getsockname()[:2])
    said.append(receiver.recv(10))
print(b"".join(said).decode())
"""
PRIVATE = ["full", "namespaces+seccomp", "bubblewrap"]


@pytest.mark.parametrize("level", PRIVATE)
@pytest.mark.parametrize("uid", users())
def test_a_private_loopback_is_always_up(drive: Drive, uid: int, level: str) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")

    done = drive(uid, level, argv=[PYTHON, "-I", "-S", "-c", LOOPBACK], policy={}, weak=True)

    assert done["stdout"].strip() == "tcp udp tcp udp", done["stderr"]


#: Everything but the private loopback: the host's loopback, its other addresses, and beyond.
BEYOND = """
import socket, sys
tcp, udp, *addresses = sys.argv[1:]
for address in ("127.0.0.1", "::1", *addresses, "169.254.169.254", "192.0.2.1", "2001:db8::1", "255.255.255.255"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        client = socket.socket(family)
        client.settimeout(20)
        client.connect((address, int(tcp)))
        print("tcp", address)
    except OSError:
        pass
    try:
        sender = socket.socket(family, socket.SOCK_DGRAM)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.connect((address, int(udp)))
        sender.send(b"escaped")
        sender.send(b"escaped")
        print("udp", address)
    except OSError:
        pass
print("done")
"""


def own_addresses() -> list[str]:
    """An address of this machine that is not loopback, where there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [str(probe.getsockname()[0])]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("uid", users())
def test_nothing_outside_is_reached_without_the_grant(drive: Drive, uid: int, level: str) -> None:
    with socket.create_server(("", 0)) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("", 0))
        ports = [str(each.getsockname()[1]) for each in (tcp, udp)]
        argv = [PYTHON, "-I", "-S", "-c", BEYOND, *ports, *own_addresses()]

        done = drive(uid, level, argv=argv, policy={}, weak=True)

        assert done["stdout"].split() == ["done"], done["stderr"]
        for listener in (tcp, udp):
            listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            tcp.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(100)
