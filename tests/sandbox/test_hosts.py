"""How granted hosts are written, and that no other spelling of a host passes for one of them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.sandbox.hosts import canonical_host, is_address, is_allowed, parse_rule, proxy_variables
from skillyard.sandbox.proxy import is_public


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("api.example.com", "api.example.com"),
        ("API.Example.COM.", "api.example.com"),
        ("api.example.com:443", "api.example.com"),
        ("api.example.com:8443", "api.example.com:8443"),
        ("*.example.com", "*.example.com"),
        ("*.example.com:8080", "*.example.com:8080"),
        ("localhost:3000", "localhost:3000"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:DB8:0:0::1]:8443", "[2001:db8::1]:8443"),
        ("[::ffff:192.0.2.1]", "192.0.2.1"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("_service.example.com", "_service.example.com"),
    ],
)
def test_a_host_has_one_spelling(text: str, rule: str) -> None:
    assert str(parse_rule(text)) == rule
    assert str(parse_rule(rule)) == rule


@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "*.", "*.com", "a.*.com", "*example.com", "*.*.example.com", "*.192.0.2.1", "*.[::1]"),
        *("https://example.com", "example.com/path", "user@example.com", "example.com@evil", "exa mple.com"),
        *("example..com", ".example.com", "-example.com", "example-.com", "a" * 64 + ".com", "a." * 127 + "com"),
        *("example.com:", "example.com:0", "example.com:080", "example.com:65536", "example.com:x", "a:1:2"),
        *("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.01", "1.2.3.4.5", "256.1.1.1", "0x7f.1"),
        *("::1", "[::1", "[]", "[::1]x", "[fe80::1%eth0]", "[127.0.0.1]", "%6cocalhost", "example.com%00", "a\nb.com"),
        *("example.com\0", "faß.example", "ex\u200dample.com", "１２７.0.0.1:99999", "。", "example.com#", "a,b"),
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_rule(text)


@pytest.mark.parametrize(
    ("granted", "host", "port", "allowed"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 80, True),
        ("example.com", "example.com", 22, False),
        ("example.com:22", "example.com", 22, True),
        ("example.com:22", "example.com", 443, False),
        ("example.com", "example.com.evil.org", 443, False),
        ("example.com", "evilexample.com", 443, False),
        ("example.com", "www.example.com", 443, False),
        ("*.example.com", "www.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("127.0.0.1:80", "127.0.0.2", 80, False),
    ],
)
def test_a_rule_allows_its_host_and_ports_only(granted: str, host: str, port: int, allowed: bool) -> None:
    assert is_allowed([parse_rule(granted)], canonical_host(host), port) is allowed


@given(st.text(max_size=40))
def test_any_text_is_a_canonical_host_or_refused(text: str) -> None:
    try:
        host = canonical_host(text)
    except ValueError:
        return
    assert canonical_host(host) == host
    assert host.isascii()
    if is_address(host):
        ipaddress.ip_address(host.strip("[]"))


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *(
            "168.63.129.16",
            "192.0.0.192",
            "192.88.99.1",
            "3fff::1",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "::",
            "::1",
        ),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "fe80::1", "fc00::1", "fd00:ec2::254"),
        *("ff02::1", "fec0::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:1::1", "2001:db8::1"),
    ],
)
def test_an_address_of_this_machine_or_its_networks_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_an_address_on_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_the_private_loopback_is_reached_without_the_proxy_unless_the_hosts_own_was_granted() -> None:
    assert proxy_variables(("example.com",), 1)["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert proxy_variables(("127.0.0.1:80", "[::1]:80"), 1)["no_proxy"] == "localhost"
