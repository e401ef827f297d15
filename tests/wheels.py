"""Small packages made by hand, in a folder or behind an index on loopback: no other host is ever asked."""

import hashlib
import io
import tarfile
import threading
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CEILING_SECONDS = 120


def make_wheel(
    folder: Path, name: str, files: Mapping[str, str], version: str = "1.0", tag: str = "py3-none-any"
) -> Path:
    """`files` by their path in site-packages."""
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text.encode())}\n" for path, text in contents.items())
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def make_sdist(folder: Path, name: str, setup: str, version: str = "1.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in (
            ("setup.py", setup),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


class Index:
    """A package index that says when a file is asked for, and gives it when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = threading.Event()
        self.give = threading.Event()
        self.fetched: list[str] = []
        self.address = ""


@contextmanager
def open_index(folder: Path) -> Iterator[Index]:
    index = Index(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, index))
    index.address = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield index
    finally:
        index.give.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, index: Index, *args: object) -> None:
        self.index = index
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        name = self.path.strip("/").rsplit("/", 1)[-1]
        if self.path.startswith("/simple/"):
            files = [path.name for path in self.index.folder.iterdir() if path.name.startswith(f"{name}-")]
            self._answer("".join(f'<a href="/files/{file}">{file}</a>' for file in files).encode(), "text/html")
            return
        self.index.fetched.append(name)
        self.index.asked.set()
        self.index.give.wait(CEILING_SECONDS)
        self._answer((self.index.folder / name).read_bytes(), "application/octet-stream")

    def _answer(self, content: bytes, kind: str) -> None:
        try:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            pass  # whoever asked was killed

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""
