"""Whoever is told of a failure: a webhook on a real loopback server, a command in the real sandbox."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skillyard.app.project import Project
from skillyard.core.values import Json
from skillyard.jobs.jobs import Job
from skillyard.jobs.notify import Notifier, untold_repeats
from skillyard.store.runs import Run

KEY = "sk-ant-api03-" + "a1B2c3D4" * 6
FAILED: dict[str, Json] = {
    "state": "error",
    "summary": f"RuntimeFailed: 失败 😀 with {KEY}",
    "data": {"type": "RuntimeFailed", "msg": "private", "content": "also private"},
}


class Heard(NamedTuple):
    path: str
    body: bytes


class Hook(NamedTuple):
    port: int
    heard: list[Heard]

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def listening(answer: Answer) -> Iterator[Hook]:
    heard: list[Heard] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(Heard(self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            answer(self)

        def do_GET(self) -> None:
            heard.append(Heard(self.path, b"GET"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Hook(server.server_port, heard)
        server.shutdown()


def accept(asked: BaseHTTPRequestHandler) -> None:
    asked.send_response(204)
    asked.end_headers()


@pytest.fixture
def notify(yard: Project) -> Notifier:
    return Notifier(lambda: yard.sandbox, yard.root, yard.paths.own_home)


def job(to: str) -> Job:
    return Job("report", name="每日", first="1a1e", attempt=3, on_failure=to)


def test_a_webhook_gets_the_outline_of_the_failure_and_no_more(notify: Notifier) -> None:
    with listening(accept) as hook:
        told = notify.notify(job(hook.url("/hook/令牌?a=1&b=%20")), FAILED)

    assert told == {"to": f"http://127.0.0.1:{hook.port}/…", "ok": True, "msg": ""}
    (heard,) = hook.heard
    assert heard.path == "/hook/%E4%BB%A4%E7%89%8C?a=1&b=%20"
    body: Any = json.loads(heard.body)
    assert {name: body[name] for name in ("job", "id", "attempts", "state", "type")} == {
        "job": "每日",
        "id": "1a1e",
        "attempts": 3,
        "state": "error",
        "type": "RuntimeFailed",
    }
    assert "失败 😀" in body["summary"]
    assert KEY not in body["summary"]
    assert b"private" not in heard.body


def test_a_summary_without_end_is_cut(notify: Notifier) -> None:
    with listening(accept) as hook:
        notify.notify(job(hook.url()), {**FAILED, "summary": "x" * 1_000_000})

    assert len(hook.heard[0].body) < 3000


def test_a_redirect_is_an_answer_and_not_followed(notify: Notifier) -> None:
    with listening(accept) as elsewhere:

        def redirect(asked: BaseHTTPRequestHandler) -> None:
            asked.send_response(307)
            asked.send_header("Location", elsewhere.url())
            asked.end_headers()

        with listening(redirect) as hook:
            told = notify.notify(job(hook.url()), FAILED)

        assert (told["ok"], told["msg"]) == (False, "HTTP 307")
        assert elsewhere.heard == []


def test_no_proxy_is_asked(notify: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(accept) as proxy, listening(accept) as hook:
        monkeypatch.setenv("http_proxy", proxy.url(""))
        told = notify.notify(job(hook.url()), FAILED)

    assert told["ok"] is True
    assert (len(hook.heard), proxy.heard) == (1, [])


def test_one_that_drips_and_one_that_never_answers_are_given_up(notify: Notifier) -> None:
    notify = notify._replace(limit_seconds=1.0)
    over = threading.Event()

    def drip(asked: BaseHTTPRequestHandler) -> None:
        try:
            while not over.wait(0.05):
                asked.wfile.write(b"H")
        except OSError:
            pass

    with listening(drip) as dripping:
        told = notify.notify(job(dripping.url()), FAILED)
        over.set()
    assert told["ok"] is False
    over.clear()

    def keep_silent(_: BaseHTTPRequestHandler) -> None:
        over.wait(60)

    with listening(keep_silent) as silent:
        told = notify.notify(job(silent.url()), FAILED)
        over.set()
    assert told["ok"] is False


def test_an_answer_without_end_is_not_read(notify: Notifier) -> None:
    gone = threading.Event()

    def pour(asked: BaseHTTPRequestHandler) -> None:
        asked.send_response(200)
        asked.end_headers()
        try:
            while True:
                asked.wfile.write(b"x" * 65536)
        except OSError:
            gone.set()

    with listening(pour) as hook:
        told = notify.notify(job(hook.url()), FAILED)
        assert gone.wait(60)

    assert told["ok"] is True


@pytest.mark.parametrize(
    "address", ["http://", "http://me:hunter2@127.0.0.1/x", "http://127.0.0.1:99999/x", "http://[::1/x"]
)
def test_an_address_that_cannot_be_meant_is_told_without_its_password(notify: Notifier, address: str) -> None:
    told = notify.notify(job(address), FAILED)

    assert told["ok"] is False
    assert "hunter2" not in json.dumps(told)


def test_where_nobody_listens_it_is_kept(notify: Notifier) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        told = notify.notify(job(f"http://127.0.0.1:{free.getsockname()[1]}/s3cret"), FAILED)

    assert told["ok"] is False
    assert "refused" in str(told["msg"])
    assert "s3cret" not in json.dumps(told)


def test_inside_an_agent_nobody_is_told(notify: Notifier, project: Path) -> None:
    notify = notify._replace(env={"SKILLYARD_DEPTH": "1"})
    with listening(accept) as hook:
        told = notify.notify(job(hook.url()), FAILED)
    by_command = notify.notify(job("cp /dev/stdin mybox/told.json"), FAILED)

    assert hook.heard == []
    assert (told["ok"], by_command["ok"]) == (False, False)
    assert "PermissionDenied" in str(told["msg"])
    assert not (project / "mybox" / "told.json").exists()


REACH = """
import socket, sys, pathlib
pathlib.Path("mybox/ran").touch()
socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
"""


def test_a_command_is_in_the_sandbox_with_network_and_without_our_home(
    notify: Notifier, yard: Project, project: Path
) -> None:
    (project / "reach.py").write_text(REACH)
    secret = yard.paths.own_home / "config.toml"
    secret.write_text("# hunter2\n")
    with listening(accept) as hook:
        reached = notify.notify(job(f"python3 reach.py {hook.port}"), FAILED)
    read = notify.notify(job(f"cp {secret} mybox/stolen"), FAILED)

    assert (project / "mybox" / "ran").exists(), "it ran"
    assert reached["ok"] is True, reached
    assert read["ok"] is False
    assert not (project / "mybox" / "stolen").exists()


def test_equal_failures_are_told_once_and_then_once_a_day_with_their_count() -> None:
    def result(text: str) -> dict[str, Json]:
        return {"state": "error", "summary": text, "data": {"type": "RuntimeFailed"}, "meta": {"code": "x"}}

    def ran(hours: float, text: str, state: str = "error") -> Run:
        return Run(f"{hours}", "skills", "s", "command", state, hours * 3600, result=result(text))

    now, asked = 60 * 3600.0, result("port 8080 is closed")
    equal = [ran(60 - hours, f"port {hours} is closed") for hours in range(1, 60)]

    def told(before: list[Run], at: float = now) -> tuple[bool, int]:
        return untold_repeats(Job("s", first="now", schedule="s"), asked, before, at)

    assert told([]) == (True, 0)
    assert told([ran(59, "something else"), *equal]) == (True, 0)
    assert told([ran(59, "fine", "success"), *equal]) == (True, 0)
    assert told(equal[:1]) == (False, 1)
    assert told(equal[:3]) == (False, 3)
    assert told(equal[:24]) == (True, 23)
    assert told(equal[:25]) == (False, 1)
    assert told(equal[:48]) == (True, 23)
    assert told([*equal[:2], ran(57, "port 1 is closed")._replace(request={"job": {"first": "now"}})]) == (False, 2)


def test_a_mistake_in_the_settings_of_runs_does_not_stop_a_notice(yard: Project, project: Path) -> None:
    (project / "skillyard.toml").write_text('[run]\nread = "nonsense"\n')
    jobs = yard.jobs

    told = Notifier(jobs.sandbox, jobs.root, jobs.own_home).notify(Job("x", on_failure="true"), FAILED)

    assert told["ok"], told
    assert not jobs.knows("nobody")
