"""The proxy's parsers: one reading of every request, or none."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.sandbox.hosts import parse_rule
from skillyard.sandbox.proxy import HostGate, HostRefused, NameFilter
from skillyard.sandbox.proxy_parsers import BadRequest, BodyFilter, Incomplete, parse_head, parse_server_name


def test_a_plain_request_is_forwarded_with_the_host_of_its_target() -> None:
    head = (
        b"POST http://Example.com:8080?q HTTP/1.1\r\nHost: evil.example\r\nProxy-Connection: keep-alive\r\n"
        b"Connection: X-Drop\r\nX-Drop: 1\r\nX-Keep: 2\r\nContent-Length: 3"
    )

    request = parse_head(head)

    assert (request.host, request.port, request.is_tunnel, request.body_bytes) == ("example.com", 8080, False, 3)
    assert request.head == (
        b"POST /?q HTTP/1.1\r\nHost: example.com:8080\r\nConnection: close\r\nContent-Length: 3\r\nX-Keep: 2\r\n\r\n"
    )


def test_a_tunnel_names_its_host_and_port() -> None:
    assert parse_head(b"CONNECT [::1]:443 HTTP/1.1\r\nHost: x")[:3] == ("[::1]", 443, True)


@pytest.mark.parametrize(
    "head",
    [
        b"CONNECT example.com HTTP/1.1",
        b"CONNECT example.com:443@evil.example:443 HTTP/1.1",
        b"CONNECT evil@example.com:443 HTTP/1.1",
        b"CONNECT http://example.com:443 HTTP/1.1",
        b"CONNECT 2130706433:443 HTTP/1.1",
        b"CONNECT example.com:443 HTTP/1.1 x",
        b"CONNECT  example.com:443 HTTP/1.1",
        b"CONNECT example.com:443",
        b"GET / HTTP/1.1\r\nHost: example.com",
        b"GET https://example.com/ HTTP/1.1",
        b"GET http://example.com@evil.example/ HTTP/1.1",
        b"GET http://example.com%2eevil.example/ HTTP/1.1",
        b"GET http://example.com\\@evil.example/ HTTP/1.1",
        b"GET http:///x HTTP/1.1",
        b"GET http://ex\xc3\xa4mple.com/ HTTP/1.1",
        b"GET http://example.com/ HTTP/2.0",
        b"GET http://example.com/ HTTP/1.1\nX: 1",
        b"GET http://example.com/\r HTTP/1.1",
        b"GET http://example.com/ HTTP/1.1\r\nX: a\rb",
        b"GET http://example.com/ HTTP/1.1\r\nX: a\nHost: evil",
        b"GET http://example.com/ HTTP/1.1\r\nX : 1",
        b"GET http://example.com/ HTTP/1.1\r\nX: 1\r\n folded",
        b"GET http://example.com/ HTTP/1.1\r\n: 1",
        b"GET http://example.com/ HTTP/1.1\r\nX: \x00",
        b"POST http://example.com/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
        b"POST http://example.com/ HTTP/1.1\r\nContent-Length: +1",
        b"POST http://example.com/ HTTP/1.1\r\nContent-Length: 1, 1",
        b"POST http://example.com/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"POST http://example.com/ HTTP/1.1\r\nTransfer-Encoding: chunked, chunked",
        b"POST http://example.com/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
        b"POST http://example.com/ HTTP/1.1\r\nTransfer-Encoding: xchunked",
        b"POST http://example.com/ HTTP/1.0\r\nTransfer-Encoding: chunked",
        b"GET http://example.com/ HTTP/1.1" + b"\r\nX: 1" * 200,
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_head(head)


@given(st.binary(max_size=200))
def test_any_head_is_read_or_refused(head: bytes) -> None:
    try:
        parse_head(head)
    except BadRequest:
        return


def fed(filter_: BodyFilter, data: bytes, step: int) -> bytes:
    return b"".join(filter_.feed(data[at : at + step]) for at in range(0, len(data), step))


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_exactly_the_body_passes_and_no_second_request(step: int) -> None:
    second = b"GET http://example.com/ HTTP/1.1\r\nHost: evil\r\n\r\n"

    assert fed(BodyFilter(4), b"body" + second, step) == b"body"
    assert fed(BodyFilter(0), second, step) == b""
    chunked = b"4;ext=1\r\nbody\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
    assert fed(BodyFilter(-1), chunked + second, step) == b"4\r\nbody\r\na\r\n0123456789\r\n0\r\n\r\n"


@pytest.mark.parametrize("body", [b"x\r\n", b"\r\n", b"-1\r\n", b"1\r\nabc\r\n", b"0x1\r\na\r\n", b"1" * 70_000])
def test_a_broken_chunk_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        BodyFilter(-1).feed(body)


def hello(name: str | None) -> bytes:
    """The first bytes of a real TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def split_records(data: bytes, size: int) -> bytes:
    """The same message in many small records."""
    body = data[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(data[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def test_the_server_name_of_tls_is_found() -> None:
    whole = hello("example.com")

    assert parse_server_name(whole) == b"example.com"
    assert parse_server_name(split_records(whole, 3)) == b"example.com"
    assert parse_server_name(hello(None)) is None
    assert parse_server_name(b"GET / HTTP/1.1") is None
    for end in (0, 1, 4, 50, len(whole) - 1):
        with pytest.raises(Incomplete):
            parse_server_name(whole[:end])


@given(st.binary(max_size=300))
def test_any_first_message_is_read_or_refused(data: bytes) -> None:
    for text in (data, b"\x16\x03\x01" + data, b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc" + data):
        try:
            parse_server_name(text)
        except (Incomplete, ValueError):
            continue


def test_a_tunnel_whose_tls_names_another_host_is_closed() -> None:
    gate = HostGate([parse_rule("example.com"), parse_rule("*.cdn.example")])

    assert NameFilter(gate, "example.com", 443).feed(hello("EXAMPLE.com")) != b""
    assert NameFilter(gate, "example.com", 443).feed(hello("a.cdn.example")) != b""
    assert NameFilter(gate, "192.0.2.1", 443).feed(hello("other.example")) != b""
    slow = NameFilter(gate, "example.com", 443)
    *first, last = (bytes((byte,)) for byte in split_records(hello("evil.example"), 7))
    assert {slow.feed(byte) for byte in first} == {b""}
    with pytest.raises(HostRefused):
        slow.feed(last)
    assert list(gate.refused) == ["network:evil.example"]
