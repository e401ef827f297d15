"""The only way out of a run that was granted single hosts: a proxy outside, on a socket inside.

The supervisor opens a listening socket on the loopback of the run's net namespace and hands it out. A socket belongs to
the namespace that it was made in, so this process, which is outside, accepts what the run connects to. It speaks HTTP
CONNECT, plain HTTP (`GET http://host/`) and SOCKS5, on one port. It resolves names itself, because there is no resolver
inside, and connects to the very address that it checked.

Covered: other hosts and ports; names that resolve to this machine, its networks or a cloud's metadata address; another
server name in TLS than the host; requests that two parsers could read in two ways; slow, huge and very many requests.
Ends with the run, and tells which hosts were refused.
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
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, Protocol

from skillyard.sandbox.hosts import HostRule, canonical_host, is_address, is_allowed, parse_rule, with_port
from skillyard.sandbox.proxy_parsers import (
    MOST_HEAD_BYTES,
    BadRequest,
    BodyFilter,
    Incomplete,
    parse_head,
    parse_server_name,
)
from skillyard.sandbox.spawn_request import send
from skillyard.sandbox.syscalls import PR_SET_PDEATHSIG, prctl

#: Connections served at once; more wait in the backlog.
_MOST_CONNECTIONS: Final = 128
#: Time limit in seconds for everything before bytes flow: greeting, head, first TLS message.
_HEAD_SECONDS: Final = 20.0
_CONNECT_SECONDS: Final = 15.0
_MOST_ADDRESSES: Final = 4
_PIECE_BYTES: Final = 65_536
_MOST_REFUSED: Final = 20
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
#: Addresses that some versions of Python call global and that are not: services of clouds (Azure, Oracle) among them.
_NOT_PUBLIC: Final = (
    *(ipaddress.ip_network(text) for text in ("192.0.0.0/24", "168.63.129.16/32", "192.88.99.0/24")),
    *(ipaddress.ip_network(text) for text in ("3fff::/20", "5f00::/16", "2001::/23", "100::/64")),
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HostRefused(Exception):
    """The host was not granted; `capability` would allow it."""

    def __init__(self, reason: str, capability: str) -> None:
        super().__init__(reason)
        self.capability = capability

    def __str__(self) -> str:
        return f"{self.args[0]}. The person can allow it: skillyard grant @SKILL {self.capability}"


class _Unreachable(Exception):
    """The host was granted, and does not answer."""


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
        self._refused: dict[str, None] = {}

    @property
    def refused(self) -> list[str]:
        return list(self._refused)

    def check(self, host: str, port: int) -> None:
        """`host` is canonical."""
        if not is_allowed(self._rules, host, port):
            self.refuse(f"{host}:{port} was not granted to this run", host, port)

    def refuse(self, reason: str, host: str, port: int) -> NoReturn:
        capability = f"network:{with_port(host, port)}"
        if len(self._refused) < _MOST_REFUSED:
            self._refused[capability] = None
        raise HostRefused(reason, capability)

    def open(self, host: str, port: int) -> socket.socket:
        """Connect to a granted host. Raises HostRefused or _Unreachable."""
        self.check(host, port)
        found = [host.strip("[]")] if is_address(host) else _resolve(host, port)
        allowed = [address for address in found if self._may_connect(host, address, port)]
        if not allowed:
            self.refuse(f"{host} is {found[0]}, an address that is not public", _as_host(found[0]), port)
        failure: OSError | None = None
        for address in allowed[:_MOST_ADDRESSES]:
            try:
                return socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
            except OSError as error:
                failure = error
        raise _Unreachable(f"{host}:{port} cannot be reached: {failure}")

    def _may_connect(self, host: str, text: str, port: int) -> bool:
        """Whether this address of the host is meant: an address that was granted itself always is."""
        if is_address(host) or is_allowed(self._rules, _as_host(text), port):
            return True
        address = ipaddress.ip_address(text.partition("%")[0])
        return address.is_loopback if host == "localhost" else is_public(address)


def _as_host(address: str) -> str:
    return canonical_host(f"[{address.partition('%')[0]}]" if ":" in address else address)


def _resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _Unreachable(f"{host} cannot be resolved: {error.strerror}") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


# -- one connection


class _Filter(Protocol):
    """What a client's bytes pass through."""

    #: Nothing more is taken from the client.
    done: bool

    def feed(self, data: bytes) -> bytes: ...


class NameFilter:
    """Holds a tunnel's first bytes back until it is clear that TLS, if it is that, names a granted host."""

    def __init__(self, gate: HostGate, host: str, port: int) -> None:
        self._gate, self._host, self._port = gate, host, port
        self._held: bytes | None = None if is_address(host) else b""
        self.done = False

    @property
    def is_open(self) -> bool:
        """Everything passes, or nothing was held back yet: a server may speak first."""
        return not self._held

    def feed(self, data: bytes) -> bytes:
        if self._held is None:
            return data
        self._held += data
        try:
            named = parse_server_name(self._held)
        except Incomplete:
            return b""
        except ValueError as error:
            raise BadRequest(str(error)) from None
        if named is not None:
            self._check(named)
        held, self._held = self._held, None
        return held

    def _check(self, named: bytes) -> None:
        try:
            host = canonical_host(named.decode("ascii"))
        except ValueError as error:
            raise BadRequest(str(error)) from None
        if host != self._host:
            self._gate.check(host, self._port)


class Connection:
    """Serves one connection from inside."""

    def __init__(self, client: socket.socket, gate: HostGate, head_seconds: float = _HEAD_SECONDS) -> None:
        self._client, self._gate = client, gate
        self._deadline = time.monotonic() + head_seconds

    def serve(self) -> None:
        with self._client, contextlib.suppress(OSError, EOFError):
            if self._receive(1, socket.MSG_PEEK) == b"\x05":
                self._serve_socks()
            else:
                self._serve_http()

    def _receive(self, size: int, flags: int = 0) -> bytes:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._client.settimeout(left)
        data = self._client.recv(size, flags)
        if not data:
            raise EOFError
        return data

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._receive(size - len(data))
        return data

    def _serve_http(self) -> None:
        try:
            data = self._head()
            head, _, rest = data.partition(b"\r\n\r\n")
            request = parse_head(head)
            server = self._gate.open(request.host, request.port)
        except BadRequest as error:
            self._answer("400 Bad Request", str(error))
        except HostRefused as error:
            self._answer("403 Forbidden", str(error))
        except _Unreachable as error:
            self._answer("502 Bad Gateway", str(error))
        else:
            with server:
                if request.is_tunnel:
                    self._client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    self._relay(server, rest, NameFilter(self._gate, request.host, request.port))
                else:
                    server.sendall(request.head)
                    self._relay(server, rest, BodyFilter(request.body_bytes))

    def _head(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            if len(data) > MOST_HEAD_BYTES:
                raise BadRequest("the head of the request is too long")
            data += self._receive(_PIECE_BYTES)
        return data

    def _answer(self, status: str, reason: str) -> None:
        body = f"skillyard: {reason}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        self._client.settimeout(_HEAD_SECONDS)
        self._client.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
        # Closing with unread bytes would reset the connection, and the answer might be lost.
        self._client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError, EOFError):
            for _ in range(64):
                self._receive(_PIECE_BYTES)

    def _serve_socks(self) -> None:
        """SOCKS5 (RFC 1928): no authentication, CONNECT only."""
        methods = self._exactly(self._exactly(2)[1])
        if 0 not in methods:
            self._client.sendall(b"\x05\xff")
            return
        self._client.sendall(b"\x05\x00")
        _, command, _, kind = self._exactly(4)
        try:
            host = self._socks_host(kind)
            port = int.from_bytes(self._exactly(2), "big")
            if command != 1:
                self._socks_reply(7)
                return
            server = self._gate.open(host, port)
        except ValueError:
            self._socks_reply(8)
        except HostRefused:
            self._socks_reply(2)
        except _Unreachable:
            self._socks_reply(4)
        else:
            with server:
                self._socks_reply(0)
                self._relay(server, b"", NameFilter(self._gate, host, port))

    def _socks_host(self, kind: int) -> str:
        if kind == 1:
            return socket.inet_ntop(socket.AF_INET, self._exactly(4))
        if kind == 3:
            return canonical_host(self._exactly(self._exactly(1)[0]).decode("ascii"))
        if kind == 4:
            return canonical_host(f"[{socket.inet_ntop(socket.AF_INET6, self._exactly(16))}]")
        raise ValueError(kind)

    def _socks_reply(self, code: int) -> None:
        self._client.sendall(bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0)))

    def _relay(self, server: socket.socket, first: bytes, into: _Filter) -> None:
        try:
            Relay(self._client, server, first, into).run(self._deadline)
        except (BadRequest, HostRefused):
            return  # in the middle of a stream there is no way to say why


class _Direction:
    """The bytes that go one way through a relay."""

    def __init__(self, source: socket.socket, target: socket.socket, take: Callable[[bytes], bytes]) -> None:
        self.source, self.target, self._take = source, target, take
        self.waiting = b""
        self.is_ended = False
        #: The end was passed on.
        self.is_closed = False

    @property
    def wants_input(self) -> bool:
        return not self.is_ended and len(self.waiting) < _PIECE_BYTES

    def read(self) -> None:
        data = self.source.recv(_PIECE_BYTES)
        self.is_ended = not data
        self.waiting += self._take(data) if data else b""

    def write(self) -> None:
        self.waiting = self.waiting[self.target.send(self.waiting) :]

    def close(self) -> None:
        """Pass a half close on, once everything before it is sent."""
        if self.is_ended and not self.waiting and not self.is_closed:
            self.is_closed = True
            with contextlib.suppress(OSError):
                self.target.shutdown(socket.SHUT_WR)


class Relay:
    """Moves bytes both ways until both sides have ended; each side may end first."""

    def __init__(self, client: socket.socket, server: socket.socket, first: bytes, into: _Filter) -> None:
        for each in (client, server):
            each.setblocking(False)
        self._filter = into
        self._out = _Direction(client, server, into.feed)
        self._back = _Direction(server, client, lambda data: data)
        self._out.waiting = into.feed(first) if first else b""

    def run(self, deadline: float) -> None:
        """`deadline` is for the first message of TLS: a client must not hold the connection with half of one."""
        while not (self._back.is_closed and (self._out.is_closed or self._filter.done)):
            self._move(deadline)
            for flow in (self._out, self._back):
                flow.close()

    def _move(self, deadline: float) -> None:
        events: dict[int, int] = {}
        for flow in (self._out, self._back):
            if flow.wants_input and not (flow is self._out and self._filter.done):
                events[flow.source.fileno()] = events.get(flow.source.fileno(), 0) | select.POLLIN
            if flow.waiting:
                events[flow.target.fileno()] = events.get(flow.target.fileno(), 0) | select.POLLOUT
        poll = select.poll()
        for file, wanted in events.items():
            poll.register(file, wanted)
        # A held back message has a deadline; everything else may take as long as the run.
        seconds = None if getattr(self._filter, "is_open", True) else max(0.0, deadline - time.monotonic())
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if not ready:
            raise TimeoutError
        for flow in (self._out, self._back):
            self._step(flow, events, ready)

    def _step(self, flow: _Direction, events: dict[int, int], ready: dict[int, int]) -> None:
        source, target = flow.source.fileno(), flow.target.fileno()
        broken = select.POLLERR | select.POLLHUP
        with contextlib.suppress(BlockingIOError):
            if flow.waiting and ready.get(target, 0) & (select.POLLOUT | broken):
                flow.write()
        with contextlib.suppress(BlockingIOError):
            if (
                flow.wants_input
                and events.get(source, 0) & select.POLLIN
                and ready.get(source, 0) & (select.POLLIN | broken)
            ):
                flow.read()


# -- the process


def serve(listener: socket.socket, control: socket.socket, hosts: Iterable[str]) -> None:
    """Serve connections until `control` ends or says something; then tell it what was refused. Never returns."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    gate = HostGate(map(parse_rule, hosts))
    threading.stack_size(256 * 1024)
    listener.setblocking(False)
    freed, free = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    slots = threading.Semaphore(_MOST_CONNECTIONS)

    def work(client: socket.socket) -> None:
        try:
            Connection(client, gate).serve()
        finally:
            slots.release()
            with contextlib.suppress(BlockingIOError):
                os.write(free, b".")

    while True:
        has_slot = slots.acquire(blocking=False)
        if has_slot:
            slots.release()
        waited = [control.fileno(), freed, *([listener.fileno()] if has_slot else [])]
        ready, _, _ = select.select(waited, [], [])
        if control.fileno() in ready:
            break
        if freed in ready:
            os.read(freed, 4096)
        if listener.fileno() in ready:
            _accept(listener, slots, work)
    with contextlib.suppress(OSError):
        send(control, {"refused": gate.refused})
    os._exit(0)


def _accept(listener: socket.socket, slots: threading.Semaphore, work: Callable[[socket.socket], None]) -> None:
    try:
        client, _ = listener.accept()
    except OSError:  # it has gone already
        return
    slots.acquire()
    try:
        threading.Thread(target=work, args=(client,), daemon=True).start()
    except RuntimeError:  # no thread to be had
        client.close()
        slots.release()
