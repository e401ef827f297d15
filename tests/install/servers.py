"""Servers on loopback for the tests: git's own smart HTTP behind http.server, and plain files."""

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class _Git(BaseHTTPRequestHandler):
    """What a web server does for `git http-backend`."""

    root: Path

    def do_GET(self) -> None:
        self._hand_over(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            self._hand_over(b"".join(self._chunks()))
        else:
            self._hand_over(self.rfile.read(int(self.headers["Content-Length"])))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()

    def _hand_over(self, body: bytes) -> None:
        address = urlsplit(self.path)
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": address.path,
            "QUERY_STRING": address.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class _Files(SimpleHTTPRequestHandler):
    root: Path

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, directory=str(self.root), **options)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Logged(_Files):
    """Remembers what was asked for; `moved` says where everything has gone, if it has."""

    asked: list[str]
    moved: str

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if not self.moved:
            super().do_GET()
            return
        self.send_response(302)
        self.send_header("Location", self.moved + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def logged_server(root: Path, moved: str = "", certificate: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """Its address and the paths that were asked for. With a certificate (and its key, in one file) it speaks TLS."""
    asked: list[str] = []
    handler = type("Logged", (_Logged,), {"root": root, "asked": asked, "moved": moved})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def hanging_server() -> Iterator[tuple[str, Callable[[], bool]]]:
    """Takes connections and never says a word; the function waits until whoever came has left."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def has_left() -> bool:
            connection, _ = server.accept()
            connection.settimeout(60)
            with connection, suppress(ConnectionError):
                while connection.recv(4096):
                    pass
            return True

        yield f"http://127.0.0.1:{server.getsockname()[1]}", has_left


def git_server(root: Path) -> Any:
    return _served(type("Git", (_Git,), {"root": root}))


def file_server(root: Path) -> Any:
    return _served(type("Files", (_Files,), {"root": root}))
