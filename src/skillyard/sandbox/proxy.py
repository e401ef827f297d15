"""The only way out of a run that was granted single hosts: a proxy outside, on a socket inside.

A socket belongs to the namespace that it was made in, so this process, which is outside, accepts what the run connects
to. It speaks HTTP CONNECT and plain HTTP (`GET http://host/`). It resolves names itself, because there is no resolver
inside, and connects to the very address that it checked.

Covered: other hosts and ports; names that resolve to this machine, its networks or a cloud's metadata address; another
server name in TLS than the host; requests that two parsers could read in two ways; slow, huge and very many requests.
Not covered: what a granted server does with a request, so another site behind the same server (the Host header of plain
HTTP in a tunnel, an encrypted server name); UDP; this machine's own public address.
"""

import contextlib
import ipaddress
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterable
from typing import Final, NoReturn

from skillyard.sandbox import proxy_parsers
from skillyard.sandbox.hosts import HostRule, canonical_host, is_address, is_allowed, parse_rule, with_port
from skillyard.sandbox.ipc import send
from skillyard.sandbox.proxy_parsers import BadRequest, BodyFilter, ProxyError
from skillyard.sandbox.syscalls import prctl

_MOST_CONNECTIONS: Final = 128  # connections served at once; more wait in the backlog
#: Time limit in seconds for everything before bytes flow: greeting, head, first TLS message.
_HEAD_SECONDS: Final = 20.0
_CONNECT_SECONDS: Final = 15.0
_MOST_ADDRESSES: Final = 4
_PIECE_BYTES: Final = 65_536
_MOST_REFUSED: Final = 20
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
#: Addresses that some versions of Python call global and that are not: services of clouds (Azure, Oracle) among them.
_NOT_PUBLIC: Final = (
    *map(ipaddress.ip_network, ("192.0.0.0/24", "168.63.129.16/32", "192.88.99.0/24")),
    *map(ipaddress.ip_network, ("3fff::/20", "5f00::/16", "2001::/23", "100::/64")),
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostRefused(ProxyError):
    """The host was not granted."""

    status = "403 Forbidden"


class _Unreachable(ProxyError):
    """The host was granted, and does not answer."""

    status = "502 Bad Gateway"


def is_public(address: Address) -> bool:
    """Whether an address can only be another machine on the internet."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour or address.teredo or address.is_site_local or int(address) >> 32 == 0:
            return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


class HostGate:
    """Decides where a run may connect to, and remembers what it refused."""

    def __init__(self, rules: Iterable[HostRule]) -> None:
        self._rules = tuple(rules)
        self.refused: dict[str, None] = {}  # the capabilities that were missing, in order and each once

    def check(self, host: str, port: int) -> None:
        """`host` is canonical."""
        if not is_allowed(self._rules, host, port):
            self._refuse(f"{host}:{port} was not granted to this run", host, port)

    def _refuse(self, reason: str, host: str, port: int) -> NoReturn:
        capability = f"network:{with_port(host, port)}"
        if len(self.refused) < _MOST_REFUSED:
            self.refused[capability] = None
        raise HostRefused(f"{reason}. The person can allow it: skillyard grant @SKILL {capability}")

    def open(self, host: str, port: int) -> socket.socket:
        """Connect to a granted host. Raises HostRefused or _Unreachable."""
        self.check(host, port)
        found = [host.strip("[]")]
        if not is_address(host):
            try:
                entries = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise _Unreachable(f"{host} cannot be resolved: {error.strerror}") from None
            found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        allowed = [address for address in found if self._may_connect(host, address, port)]
        if not allowed:
            self._refuse(f"{host} is {found[0]}, an address that is not public", _as_host(found[0]), port)
        failure = ""
        for address in allowed[:_MOST_ADDRESSES]:
            try:
                return socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
            except OSError as error:
                failure = str(error)
        raise _Unreachable(f"{host}:{port} cannot be reached: {failure}")

    def _may_connect(self, host: str, text: str, port: int) -> bool:
        """Whether this address of the host is meant: an address that was granted itself always is."""
        if is_address(host) or is_allowed(self._rules, _as_host(text), port):
            return True
        address = ipaddress.ip_address(text.partition("%")[0])
        return address.is_loopback if host == "localhost" else is_public(address)


def _as_host(address: str) -> str:
    return canonical_host(f"[{address.partition('%')[0]}]" if ":" in address else address)


class NameFilter:
    """Holds a tunnel's first bytes back until it is clear that TLS, if it is that, names a granted host."""

    done = False

    def __init__(self, gate: HostGate, host: str, port: int) -> None:
        self._gate, self._host, self._port = gate, host, port
        self._held: bytes | None = None if is_address(host) else b""

    @property
    def is_holding(self) -> bool:
        """False also while nothing came yet: a server may speak first."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        if self._held is None:
            return data
        self._held += data
        try:
            named = proxy_parsers.parse_server_name(self._held)
            host = self._host if named is None else canonical_host(named.decode("ascii"))
        except proxy_parsers.Incomplete:
            return b""
        except ValueError as error:
            raise BadRequest(str(error)) from None
        if host != self._host:
            self._gate.check(host, self._port)
        held, self._held = self._held, None
        return held


class Connection:
    """Serves one connection from inside."""

    def __init__(self, client: socket.socket, gate: HostGate, head_seconds: float = _HEAD_SECONDS) -> None:
        self._client, self._gate = client, gate
        self._deadline = time.monotonic() + head_seconds

    def serve(self) -> None:
        with self._client, contextlib.suppress(OSError, EOFError):
            try:
                data = b""
                while b"\r\n\r\n" not in data:
                    if len(data) > proxy_parsers.MOST_HEAD_BYTES:
                        raise BadRequest("the head of the request is too long")
                    data += self._receive()
                head, _, rest = data.partition(b"\r\n\r\n")
                request = proxy_parsers.parse_head(head)
                server = self._gate.open(request.host, request.port)
            except ProxyError as error:
                self._answer(error.status, str(error))
                return
            with server:
                if request.is_tunnel:
                    self._client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    self._relay(server, rest, NameFilter(self._gate, request.host, request.port))
                else:
                    server.sendall(request.head)
                    self._relay(server, rest, BodyFilter(request.body_bytes))

    def _receive(self) -> bytes:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._client.settimeout(left)
        data = self._client.recv(_PIECE_BYTES)
        if not data:
            raise EOFError
        return data

    def _answer(self, status: str, reason: str) -> None:
        body = f"skillyard: {reason}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self._client.settimeout(_HEAD_SECONDS)
        self._client.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
        # Closing with unread bytes would reset the connection, and the answer might be lost.
        self._client.shutdown(socket.SHUT_WR)
        for _ in range(64):
            self._receive()

    def _relay(self, server: socket.socket, first: bytes, into: NameFilter | BodyFilter) -> None:
        """Move bytes both ways until both sides have ended; each side may end first.

        A first message of TLS must be complete by the deadline; everything else may take as long as the run.
        """
        for each in (self._client, server):
            each.settimeout(None)
        back = threading.Thread(target=_copy, args=(server, self._client), daemon=True)
        back.start()
        try:
            server.sendall(into.feed(first) if first else b"")
            while not into.done:
                left = max(0.0, self._deadline - time.monotonic()) if into.is_holding else None
                if not select.select([self._client], [], [], left)[0]:
                    raise TimeoutError
                data = self._client.recv(_PIECE_BYTES)
                if not data:
                    server.shutdown(socket.SHUT_WR)
                    break
                server.sendall(into.feed(data))
        except (ProxyError, OSError):  # in the middle of a stream there is no way to say why
            _end(self._client, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Move bytes one way, and pass the end on."""
    try:
        while data := source.recv(_PIECE_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _end(source, target)


def _end(*ends: socket.socket) -> None:
    """Wake the thread that still reads or writes here."""
    for each in ends:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket, control: socket.socket, hosts: Iterable[str]) -> NoReturn:
    """Serve connections until `control` ends or says something; then tell it what was refused."""
    prctl("PDEATHSIG", signal.SIGKILL)
    gate = HostGate(map(parse_rule, hosts))
    threading.stack_size(256 * 1024)
    threading.Thread(target=_accept, args=(listener, gate), daemon=True).start()
    with contextlib.suppress(OSError):
        control.recv(1)
        send(control, {"refused": list(gate.refused)})
    os._exit(0)


def _accept(listener: socket.socket, gate: HostGate) -> None:
    slots = threading.Semaphore(_MOST_CONNECTIONS)

    def work(client: socket.socket) -> None:
        try:
            Connection(client, gate).serve()
        finally:
            slots.release()

    while True:
        slots.acquire()
        client: socket.socket | None = None
        try:
            client, _ = listener.accept()
            threading.Thread(target=work, args=(client,), daemon=True).start()
        except (OSError, RuntimeError):  # it has gone already, or there is no thread to be had
            slots.release()
            if client:
                client.close()
