"""One deadline over every network read, however slowly or endlessly a server answers."""

import gzip
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from skillyard.core.errors import SkillError, SourceFailed, SourceRefused
from skillyard.install.git import GitSource
from skillyard.install.source import Deadline, Limits
from skillyard.install.web import WebArchive, WebIndex, download

#: What a test may take in all, far above the limit that it sets.
CEILING_SECONDS = 60.0
LIMIT = Limits(seconds=2.0)
Talk = Callable[[socket.socket, threading.Event], None]


@contextmanager
def talking_server(talk: Talk) -> Iterator[tuple[str, threading.Event]]:
    """Each connection is talked to until the client hangs up, which sets the event."""
    ended, left = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(CEILING_SECONDS)
            connection.recv(65536)
            talk(connection, ended)
        left.set()

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", left
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)


def drip(piece: bytes, every_seconds: float = 0.2) -> Talk:
    def talk(connection: socket.socket, ended: threading.Event) -> None:
        while not ended.wait(every_seconds):
            connection.sendall(piece)

    return talk


def after(head: bytes, then: Talk) -> Talk:
    def talk(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(head)
        then(connection, ended)

    return talk


def silence(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(1)


OK = b"HTTP/1.1 200 OK\r\n"
SLOW: dict[str, Talk] = {
    "never a word": silence,
    "a byte of the status at a time": drip(b"H"),
    "a byte of a header at a time": after(OK + b"X-Long: ", drip(b"a")),
    "header after header": after(OK, drip(b"X: y\r\n", 0.4)),
    "continue after continue": drip(b"HTTP/1.1 100 Continue\r\n\r\n", 0.0),
    "a byte of the body at a time": after(OK + b"Content-Length: 1000000\r\n\r\n", drip(b"a")),
    "a body without an end, slowly": after(OK + b"\r\n", drip(b"a")),
    "chunk after chunk": after(OK + b"Transfer-Encoding: chunked\r\n\r\n", drip(b"1\r\na\r\n")),
    "a byte of a chunk's size at a time": after(OK + b"Transfer-Encoding: chunked\r\n\r\n", drip(b"0")),
    "trailers without an end": after(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", drip(b"X: y\r\n", 0.0)),
    "a silent body": after(OK + b"Content-Length: 9\r\n\r\n", silence),
    "the body of a redirect": after(b"HTTP/1.1 302 x\r\nLocation: /again.zip\r\n\r\n", drip(b"a")),
    "the body of an error, then silence": after(b"HTTP/1.1 302 x\r\nLocation: /", drip(b"a")),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_server_is_left_at_the_deadline(name: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with talking_server(SLOW[name]) as (url, left):
        with pytest.raises(SkillError):
            WebArchive(f"{url}/x.zip", limits=LIMIT).fetch(tmp_path, lambda _: None)
        assert left.wait(CEILING_SECONDS)  # the connection is closed, not left to a thread
    assert time.monotonic() - started < CEILING_SECONDS


def test_the_deadline_is_one_for_an_index_and_all_that_it_names(tmp_path: Path) -> None:
    """Each answer alone is in time; there are 200 of them."""
    text = b"---\nname: x\ndescription: y\n---\n"
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    entries = [{"name": f"n{at}", "type": "skill-md", "url": f"/{at}.md", "digest": digest} for at in range(200)]
    index = json.dumps({"skills": entries}).encode()
    answered: list[bytes] = []

    def talk(connection: socket.socket, ended: threading.Event) -> None:
        body = text if answered else index
        answered.append(body)
        ended.wait(0.2)
        connection.sendall(OK + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)

    with talking_server(talk) as (url, _), pytest.raises(SourceFailed, match="longer than"):
        WebIndex(f"{url}/.well-known/agent-skills/index.json", limits=LIMIT).fetch(tmp_path, lambda _: None)
    assert 1 < len(answered) < 100


def test_the_size_limit_is_one_for_an_index_and_all_that_it_names(tmp_path: Path) -> None:
    text = b"x" * 1000
    digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
    entries = [{"name": f"n{at}", "type": "skill-md", "url": f"/{at}.md", "digest": digest} for at in range(9)]
    index = json.dumps({"skills": entries}).encode()
    answered: list[bytes] = []

    def talk(connection: socket.socket, ended: threading.Event) -> None:
        body = text if answered else index
        answered.append(body)
        connection.sendall(OK + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)

    limits = Limits(total_bytes=3500)
    with talking_server(talk) as (url, _), pytest.raises(SourceRefused, match="more than"):
        WebIndex(f"{url}/.well-known/agent-skills/index.json", limits=limits).fetch(tmp_path, lambda _: None)
    assert len(answered) == 5


def test_redirects_without_an_end_and_bodies_without_an_end_are_errors(tmp_path: Path) -> None:
    def redirect(connection: socket.socket, ended: threading.Event) -> None:
        where = b"/%d.zip" % time.monotonic_ns()
        connection.sendall(b"HTTP/1.1 302 x\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % where)

    endless = after(OK + b"\r\n", drip(b"a" * 65536, 0.0))
    with talking_server(redirect) as (url, _), pytest.raises(SourceFailed):
        download(f"{url}/x.zip", tmp_path / "x", Limits(seconds=CEILING_SECONDS), lambda _: None)
    with talking_server(endless) as (url, left):
        with pytest.raises(SourceRefused, match="more than"):
            download(f"{url}/x.zip", tmp_path / "x", Limits(total_bytes=10**6), lambda _: None)
        assert left.wait(CEILING_SECONDS)


def test_a_compressed_answer_is_not_unpacked_and_a_short_one_is_an_error(tmp_path: Path) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"

    def whole(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(head % len(bomb) + bomb)

    def short(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(head % len(bomb) + bomb[:100])

    with talking_server(whole) as (url, _):
        download(f"{url}/x.zip", tmp_path / "x", Limits(), lambda _: None)
    assert (tmp_path / "x").stat().st_size == len(bomb)
    with talking_server(short) as (url, _), pytest.raises(SourceFailed, match="ended after"):
        download(f"{url}/x.zip", tmp_path / "x", Limits(), lambda _: None)


@pytest.mark.parametrize("name", ["never a word", "header after header", "a body without an end, slowly"])
def test_git_has_one_deadline_for_a_whole_fetch(name: str, tmp_path: Path) -> None:
    """A locked commit is asked for twice, by its name and by its branch: still one limit."""
    source = GitSource("", "main", "a" * 40, limits=LIMIT)
    with talking_server(SLOW[name]) as (url, left):
        with pytest.raises(SkillError):
            source._replace(text=f"{url}/x").fetch(tmp_path, lambda _: None)
        assert left.wait(CEILING_SECONDS)


def test_what_hangs_where_nothing_can_wake_it_is_left_too() -> None:
    """As name lookup does."""
    never = threading.Event()
    with pytest.raises(TimeoutError):
        Deadline(0.1).run(lambda: never.wait(CEILING_SECONDS))
    never.set()
