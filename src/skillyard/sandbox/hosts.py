"""Which hosts a run may reach: `HOST`, `HOST:PORT`, `*.example.com`, `192.0.2.1:8080`, `[2001:db8::1]:443`. Pure.

A host has exactly one spelling after `canonical_host`; whatever could be another spelling of an address (decimal, octal
or hexadecimal IPv4, percent-encoding, user names) is refused and never guessed.
"""

import re
import socket
from collections.abc import Iterable
from typing import Final, NamedTuple

from skillyard.core.values import lazy_pattern

DEFAULT_PORTS: Final = (80, 443)  # without a port a host is granted for HTTP and HTTPS
_LABEL: Final = lazy_pattern(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
#: What inet_aton would take for the end of an IPv4 address.
_NUMBER: Final = lazy_pattern(r"0x[0-9a-f]*|[0-9]+", re.ASCII)
_PORT: Final = lazy_pattern(r"[1-9][0-9]{0,4}", re.ASCII)
_NOT_A_HOST: Final = "a host is a name such as api.example.com, or an address; no scheme, path or user"
_LONGEST_NAME: Final = 253
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
#: Letters that IDNA 2003 and 2008 write differently: the same name would be two hosts.
_DEVIATIONS: Final = frozenset("ßς\u200c\u200d")


class HostRule(NamedTuple):
    """One granted host, in canonical form."""

    host: str
    port: int | None = None  # None is the default ports
    below: bool = False  # every name below `host`, and not `host` itself

    def allows(self, host: str, port: int) -> bool:
        """`host` is canonical."""
        if port != self.port and (self.port is not None or port not in DEFAULT_PORTS):
            return False
        return host.endswith(f".{self.host}") if self.below else host == self.host

    def __str__(self) -> str:
        return with_port(f"*.{self.host}" if self.below else self.host, self.port)


def parse_rule(text: str) -> HostRule:
    """Parse a granted host. Raise ValueError, with the reason, for anything that is not exactly one host."""
    if any(mark in text for mark in "/@?#"):
        raise ValueError(_NOT_A_HOST)
    host, port = split_port(text)
    if host == "*":
        raise ValueError("every host is the capability `network`, without a host")
    below = host.startswith("*.")
    name = canonical_host(host.removeprefix("*."))
    if below and (is_address(name) or "." not in name):
        raise ValueError("a wildcard stands before a domain of at least two parts, as in *.example.com")
    return HostRule(name, port, below)


def split_port(text: str) -> tuple[str, int | None]:
    """Split `HOST[:PORT]`; an IPv6 address is in brackets, which are kept."""
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host += bracket
    elif text.count(":") > 1:
        raise ValueError("an IPv6 address goes into brackets, as in [2001:db8::1]:443")
    else:
        host, colon, rest = text.partition(":")
        rest = colon + rest
    if not rest:
        return host, None
    if not rest.startswith(":") or not _PORT.fullmatch(rest[1:]) or int(rest[1:]) > 65535:
        raise ValueError("a port is a number from 1 to 65535")
    return host, int(rest[1:])


def canonical_host(host: str) -> str:
    """Return the one spelling of a host name or address. Raise ValueError if it is neither."""
    if host.startswith("["):
        return _canonical_ipv6(host)
    name = _as_ascii(host).lower().removesuffix(".")
    try:
        return socket.inet_ntop(socket.AF_INET, socket.inet_pton(socket.AF_INET, name))
    except OSError:
        pass
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError("an IPv4 address is four decimal numbers without leading zeros")
    if len(name) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(_NOT_A_HOST)
    return name


def _canonical_ipv6(host: str) -> str:
    try:
        packed = socket.inet_pton(socket.AF_INET6, host[1:-1] if host.endswith("]") else "")
    except (OSError, UnicodeError):
        raise ValueError("there is no IPv6 address between the brackets") from None
    if packed.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(_MAPPED) :])
    return f"[{socket.inet_ntop(socket.AF_INET6, packed)}]"


def _as_ascii(host: str) -> str:
    if host.isascii():
        return host
    if _DEVIATIONS & set(host):
        raise ValueError("this name has two forms; write the one that is meant with xn--")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("this is no internationalised host name") from None


def is_address(host: str) -> bool:
    """Whether a canonical host is an IPv4 or IPv6 address."""
    return host.startswith("[") or bool(_NUMBER.fullmatch(host.rpartition(".")[2]))


def with_port(host: str, port: int | None) -> str:
    """Write a host with its port, without a default one."""
    return host if port is None or port in DEFAULT_PORTS else f"{host}:{port}"


def is_allowed(rules: Iterable[HostRule], host: str, port: int) -> bool:
    return any(rule.allows(host, port) for rule in rules)


#: What a run finds on its own loopback; everything else goes through the proxy.
_OWN: Final = ("localhost", "127.0.0.1", "[::1]")


def proxy_variables(hosts: Iterable[str], port: int) -> dict[str, str]:
    """The variables by which programs find the proxy, which is not for their own loopback unless ours was granted."""
    granted = {parse_rule(host).host for host in hosts}
    direct = ",".join(name.strip("[]") for name in _OWN if name not in granted)
    address = f"http://127.0.0.1:{port}"
    values = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "ALL_PROXY": address, "NO_PROXY": direct}
    lower = {name.lower(): value for name, value in values.items()}
    return values | lower | {"NODE_USE_ENV_PROXY": "1"}
