"""A web address for `skillyard mcp`, for peers that speak HTTP only: each POST is one line of its stdio."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from skillyard.app.paths import ProjectPaths
from tests.faces.mcp_client import variables


class _Bridge(BaseHTTPRequestHandler):
    server_process: "subprocess.Popen[bytes]"
    lock: threading.Lock

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self._ask(message) if "id" in message else None
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(202 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _ask(self, message: Any) -> Any:
        """One at a time: the ids of several clients may be the same."""
        process = self.server_process
        assert process.stdin
        assert process.stdout
        with self.lock:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                if (answer := json.loads(line)).get("id") == message["id"] and "method" not in answer:
                    return answer
        return None

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextlib.contextmanager
def bridged(places: ProjectPaths) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "skillyard", "mcp"],
        cwd=places.project,
        env=variables(places),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        handler = type("Bridge", (_Bridge,), {"server_process": process, "lock": threading.Lock()})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
            finally:
                server.shutdown()
                thread.join()
                process.kill()
