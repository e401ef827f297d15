"""A registry for npm on loopback, with packages made by hand: no other host is ever asked."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def make_package(name: str, source: str, version: str = "1.0.0") -> bytes:
    """A package whose install scripts leave a mark, if anybody runs them."""
    fields = {"name": name, "version": version, "main": "index.js", "scripts": {"postinstall": "touch ran"}}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for file, text in (("package.json", json.dumps(fields)), ("index.js", source)):
            entry = tarfile.TarInfo(f"package/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return stream.getvalue()


@contextmanager
def open_registry(packages: Mapping[str, str]) -> Iterator[str]:
    """Yield the address of a registry with these packages, each with the source of its index.js."""
    archives = {name: make_package(name, source) for name, source in packages.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").removesuffix(".tgz").replace("%2f", "/")
            if name not in archives:
                self.send_error(404)
                return
            archive = archives[name]
            content = archive if self.path.endswith(".tgz") else json.dumps(_described(name, archive, address)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield address
        finally:
            server.shutdown()


def _described(name: str, archive: bytes, address: str) -> dict[str, object]:
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    dist = {"tarball": f"{address}/{name}.tgz", "integrity": integrity}
    version = {"name": name, "version": "1.0.0", "main": "index.js", "hasInstallScript": True, "dist": dist}
    return {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
