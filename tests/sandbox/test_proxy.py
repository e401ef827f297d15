"""Runs that were granted single hosts: real servers outside, real clients inside, and attempts to reach more."""

import contextlib
import http.server
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillyard.core.errors import SandboxUnavailable
from skillyard.sandbox.hosts import parse_rule
from skillyard.sandbox.launch import Exit, Launch, Policy, python_paths
from skillyard.sandbox.launcher import Launcher
from skillyard.sandbox.layers import Layers, check_guards
from skillyard.sandbox.proxy import Connection, HostGate
from tests.sandbox.conftest import HERE, PYTHON, SOURCE, Drive, users


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(f"{self.headers['Host']} {self.path}".encode())

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            total = 0
            while size := int(self.rfile.readline(), 16):
                total += len(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            total = len(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(b"got %d" % total)

    def do_PUT(self) -> None:
        self.do_POST()

    def _answer(self, body: bytes) -> None:
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silent."""


@contextlib.contextmanager
def serving(handler: Any = Site) -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def site() -> Iterator[http.server.ThreadingHTTPServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as launcher:
        if not launcher.layers.namespaces:
            pytest.skip("no namespaces here")
        yield launcher


def run(launcher: Launcher, hosts: tuple[str, ...], *argv: str, **more: Any) -> Exit:
    policy = Policy(read=python_paths(), hosts=hosts)._replace(**more)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    return launcher(Launch(argv=argv, cwd=Path("/tmp"), env=env, policy=policy))


def python(launcher: Launcher, hosts: tuple[str, ...], code: str, *args: str) -> Exit:
    return run(launcher, hosts, sys.executable, "-I", "-c", code, *args)


def says(done: Exit) -> str:
    assert done.code == 0, done.stderr.decode()
    return done.stdout.decode().strip()


CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")


@CURL
@pytest.mark.parametrize("how", ["", "--proxytunnel"])
def test_curl_reaches_a_granted_host(launcher: Launcher, site: http.server.ThreadingHTTPServer, how: str) -> None:
    port = site.server_port

    done = run(launcher, (f"127.0.0.1:{port}",), "/bin/sh", "-c", f"curl -sS {how} http://127.0.0.1:{port}/a?b")

    assert says(done) == f"127.0.0.1:{port} /a?b"
    assert done.refused == ()


@CURL
def test_a_body_of_any_length_is_sent(launcher: Launcher, site: http.server.ThreadingHTTPServer) -> None:
    port = site.server_port
    script = f"""
head -c 3000000 /dev/zero > $TMPDIR/big
curl -sS -T $TMPDIR/big http://127.0.0.1:{port}/
echo
curl -sS -T - http://127.0.0.1:{port}/ < $TMPDIR/big
"""
    assert says(run(launcher, (f"127.0.0.1:{port}",), "/bin/sh", "-c", script)) == "got 3000000\ngot 3000000"


URLLIB = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"


def test_a_name_is_resolved_outside(launcher: Launcher, site: http.server.ThreadingHTTPServer) -> None:
    port = site.server_port

    done = python(launcher, (f"localhost:{port}",), URLLIB, f"http://LocalHost:{port}/x")

    assert says(done) == f"localhost:{port} /x"


NODE = """
const http = require('http'), [, host, port] = /\\/\\/(.*):(\\d+)/.exec(process.env.HTTP_PROXY)
const target = process.argv[1]
http.request({host, port, method: 'CONNECT', path: target}).on('connect', (answer, socket) => {
  http.get({createConnection: () => socket, path: '/node', headers: {host: target}}, page => {
    page.setEncoding('utf8').on('data', text => { console.log(answer.statusCode, text); socket.destroy() })
  })
}).end()
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_node_reaches_a_granted_host(launcher: Launcher, site: http.server.ThreadingHTTPServer) -> None:
    target = f"127.0.0.1:{site.server_port}"

    assert says(run(launcher, (target,), "node", "-e", NODE, target)) == f"200 {target} /node"


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_git_clones_from_a_granted_host(launcher: Launcher, tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.com")
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"], ["update-server-info"]):
        subprocess.run((*git, *words), check=True)

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *_: Any) -> None:
            """Silent."""

    with serving(Files) as server:
        target = f"127.0.0.1:{server.server_port}"
        script = f"cd $TMPDIR && git clone -q http://{target}/.git copy && git -C copy log --format=%s"
        assert says(run(launcher, (target,), "/bin/sh", "-c", script)) == "first"


@CURL
def test_another_host_is_refused_and_told(launcher: Launcher, site: http.server.ThreadingHTTPServer) -> None:
    port = site.server_port
    script = f"""
curl -sS http://evil.example/
curl -sS https://evil.example:8443/ ; curl -sS http://127.0.0.1:{port}/ ; curl -sS http://[::1]:{port}/
curl -sS --noproxy '*' http://127.0.0.1:{port}/ ; curl -sS --noproxy '*' http://example.com/
echo done
"""
    done = run(launcher, ("example.com", f"localhost:{port}"), "/bin/sh", "-c", script)

    text = says(done)
    assert "evil.example:80 was not granted" in text
    assert "skillyard grant @SKILL network:evil.example" in text
    assert set(done.refused) >= {"network:evil.example", "network:evil.example:8443"}
    assert site.seen == []  # type: ignore[attr-defined]


#: Sends raw bytes to the proxy and prints the status of each answer.
RAW = """
import json, os, socket, sys
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
for text in json.loads(sys.argv[1]):
    with socket.create_connection((host, int(port)), timeout=50) as proxy:
        proxy.sendall(text.encode("latin-1"))
        answer = b""
        while piece := proxy.recv(65536):
            answer += piece
        print(repr(answer[:12].decode("latin-1")))
"""


def test_no_other_spelling_of_a_host_passes(launcher: Launcher, site: http.server.ThreadingHTTPServer) -> None:
    port = site.server_port
    hosts = [
        *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]", "[::1]", "LOCALHOST"),
        *("0.0.0.0", "0", "example.com@127.0.0.1", "127.0.0.1%00.example.com", "%31%32%37.0.0.1", "[::]", "127.0.0.2"),
    ]
    texts = [f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n" for host in hosts]
    texts += [f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: example.com\r\n\r\n" for host in hosts]
    texts += [
        f"GET http://example.com/ HTTP/1.1\nHost: x\r\n\r\nGET http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "A" * 70_000 + "\r\n\r\n",
    ]

    done = python(launcher, ("example.com", f"example.com:{port}"), RAW, json.dumps(texts))

    answers = says(done).splitlines()
    assert len(answers) == len(texts)
    assert set(answers) <= {"'HTTP/1.1 400'", "'HTTP/1.1 403'"}
    assert site.seen == []  # type: ignore[attr-defined]


def test_a_second_request_on_the_connection_is_not_forwarded(
    launcher: Launcher, site: http.server.ThreadingHTTPServer
) -> None:
    target = f"127.0.0.1:{site.server_port}"
    texts = [
        f"GET http://{target}/one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\nHost: evil\r\n\r\n",
        f"POST http://{target}/three HTTP/1.1\r\nContent-Length: 1\r\n\r\nxGET /four HTTP/1.1\r\nHost: evil\r\n\r\n",
    ]

    done = python(launcher, (target,), RAW, json.dumps(texts))

    assert says(done).splitlines() == ["'HTTP/1.1 200'"] * 2
    assert site.seen == ["/one", "/three"]  # type: ignore[attr-defined]


def loopback_alias() -> str:
    """A name other than localhost that this machine resolves to itself."""
    for line in Path("/etc/hosts").read_text().splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if address.startswith("127.") or address == "::1":
            for name in names:
                if name != "localhost":
                    return name
    pytest.skip("no other name of this machine in /etc/hosts")


def test_a_name_that_resolves_to_this_machine_needs_its_address_granted_too(
    launcher: Launcher, site: http.server.ThreadingHTTPServer
) -> None:
    name, port = loopback_alias(), site.server_port
    address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0]
    literal = f"[{address}]" if ":" in str(address) else address

    done = python(launcher, (f"{name}:{port}",), RAW, json.dumps([f"CONNECT {name}:{port} HTTP/1.1\r\n\r\n"]))

    assert says(done) == "'HTTP/1.1 403'"
    assert done.refused == (f"network:{literal}:{port}",)


OTHER_NAME = """
import os, socket, ssl, sys
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
proxy = socket.create_connection((host, int(port)), timeout=50)
proxy.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
assert b" 200 " in proxy.recv(1000)
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    context.wrap_socket(proxy, server_hostname="evil.example")
except (OSError, ssl.SSLError):
    print("closed")
"""


def test_tls_to_another_name_than_the_host_is_closed(launcher: Launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"localhost:{server.getsockname()[1]}"

        done = python(launcher, (target,), OTHER_NAME, target)

        assert says(done) == "closed"
        assert done.refused == (f"network:evil.example:{server.getsockname()[1]}",)
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(100) == b""


HALF = """
import os, socket, sys
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
proxy = socket.create_connection((host, int(port)), timeout=50)
proxy.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
assert b" 200 " in proxy.recv(1000)
proxy.sendall(b"x" * 1_000_000)
proxy.shutdown(socket.SHUT_WR)
answer = b""
while piece := proxy.recv(65536):
    answer += piece
print(answer.decode())
"""


def test_each_side_of_a_tunnel_may_end_first(launcher: Launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def count() -> None:
            accepted, _ = server.accept()
            with accepted:
                total = 0
                while piece := accepted.recv(65536):
                    total += len(piece)
                accepted.sendall(b"%d" % total)

        thread = threading.Thread(target=count)
        thread.start()
        target = f"127.0.0.1:{server.getsockname()[1]}"
        assert says(python(launcher, (target,), HALF, target)) == "1000000"
        thread.join()


MANY = """
import os, socket, sys, urllib.request
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
idle = []
for _ in range(300):
    client = socket.create_connection((host, int(port)), timeout=50)
    client.sendall(b"GET http://")
    idle.append(client)
for client in idle:
    client.close()
print(urllib.request.urlopen(sys.argv[1], timeout=50).read().decode())
"""


def test_hundreds_of_connections_are_bounded_and_hold_nobody_up(
    launcher: Launcher, site: http.server.ThreadingHTTPServer
) -> None:
    target = f"127.0.0.1:{site.server_port}"

    assert says(python(launcher, (target,), MANY, f"http://{target}/after")) == f"{target} /after"


@pytest.mark.parametrize("sent", [b"", b"GET http://exam", b"\x05"])
def test_a_client_that_does_not_finish_its_request_is_dropped(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(sent)
        Connection(theirs, HostGate([parse_rule("example.com")]), head_seconds=0.2).serve()
        ours.settimeout(30)
        while ours.recv(1000):
            pass


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_neither_threads_nor_descriptors_are_left(site: http.server.ThreadingHTTPServer) -> None:
    target = f"127.0.0.1:{site.server_port}"
    with Launcher() as fresh:
        says(python(fresh, (target,), URLLIB, f"http://{target}/"))
        files, threads = open_files(), threading.active_count()
        for _ in range(5):
            says(python(fresh, (target,), URLLIB, f"http://{target}/"))
        # The site's own handlers may still be ending.
        until(lambda: open_files() <= files and threading.active_count() <= threads)
    # Leaving the block waits for every process of the launcher, proxies too.


HOLD = """
import os, socket, sys
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
proxy = socket.create_connection((host, int(port)), timeout=50)
proxy.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
proxy.settimeout(None)
while proxy.recv(1000):
    pass
"""


@pytest.mark.parametrize("uid", users())
def test_the_proxy_ends_when_the_runtime_is_killed(ground: Path, uid: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        given = {
            "uid": uid,
            "level": "full",
            "cwd": "/",
            "policy": {"hosts": [target]},
            "argv": [PYTHON, "-I", "-S", "-c", HOLD, target],
        }
        env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        driver = subprocess.Popen((PYTHON, str(HERE / "drive.py")), stdin=subprocess.PIPE, env=env)
        assert driver.stdin
        driver.stdin.write(json.dumps(given).encode())
        driver.stdin.close()
        server.settimeout(60)
        accepted, _ = server.accept()
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        with accepted:
            accepted.settimeout(60)
            assert accepted.recv(100) == b""


@pytest.mark.parametrize("uid", users())
def test_hosts_work_for_every_user(drive: Drive, site: http.server.ThreadingHTTPServer, uid: int) -> None:
    target = f"127.0.0.1:{site.server_port}"
    argv = [PYTHON, "-I", "-c", URLLIB, f"http://{target}/"]

    done = drive(uid, "full", argv=argv, policy={"hosts": [target]})

    assert done["stdout"].strip() == f"{target} /", done["stderr"]
    other = drive(uid, "full", argv=argv, policy={"hosts": ["example.com"]})
    assert other["code"] == 1
    assert other["refused"] == []  # the private loopback was meant, and nobody listens there


@pytest.mark.parametrize("level", ["bubblewrap", "landlock+seccomp"])
@pytest.mark.parametrize("uid", users())
def test_without_our_namespaces_hosts_are_refused_and_never_widened(drive: Drive, uid: int, level: str) -> None:
    done = drive(uid, level, argv=["/bin/true"], policy={"hosts": ["example.com"]}, weak=True)

    assert done["unavailable"] == ["hosts"]


def test_the_refusal_says_what_is_missing() -> None:
    with pytest.raises(SandboxUnavailable, match="limit the network to hosts"):
        check_guards(Layers(landlock=7, seccomp=True), Policy(hosts=("example.com",)))


def test_a_policy_with_a_bad_host_is_refused() -> None:
    with pytest.raises(ValueError, match="host"):
        Policy(hosts=("https://example.com",)).check()


def test_the_whole_network_needs_no_proxy(launcher: Launcher, site: http.server.ThreadingHTTPServer) -> None:
    code = f"import os; assert 'HTTP_PROXY' not in os.environ\n{URLLIB}"

    done = run(
        launcher,
        ("example.com",),
        *(sys.executable, "-I", "-c", code, f"http://127.0.0.1:{site.server_port}/"),
        network=True,
    )

    assert says(done).startswith("127.0.0.1")
