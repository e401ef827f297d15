"""`network:HOST` through the whole pipeline: granted, listed, planned, enforced, and told when it was refused."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from skillyard.app.project import Project
from skillyard.core.envelope import parse
from skillyard.core.result import Request
from skillyard.sandbox.launch import make_sandbox
from skillyard.sandbox.layers import ABI_SCOPES, Layers
from skillyard.trust.permissions import grant
from tests.conftest import Skillyard, WriteSkill

FETCH = "---\nname: fetch\ndescription: x\ncommand: python fetch.py {url}\n---\n"
CODE = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=50).read().decode())
"""


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_granted_host_is_reached_and_another_is_named_with_its_command(
    yard: Project, write_skill: WriteSkill, site: str
) -> None:
    write_skill("fetch", FETCH, {"fetch.py": CODE})
    skill = yard.runtime.resolve(Request(name="fetch"))
    request = Request(name="fetch", args=(f"http://{site}/",))

    grant(yard.grants, skill, (f"network:{site.replace('127.0.0.1', 'Localhost.')}",))
    missed = yard.runtime.run(request._replace(args=("http://other.example:8080/",)))
    grant(yard.grants, skill, (f"network:{site}",))
    reached = yard.runtime.run(request)

    assert reached.data["content"] == "hello"
    assert missed.data["type"] == "RuntimeFailed"
    assert missed.data["may_need"] == "network:other.example:8080"
    assert missed.meta["refused"] == ["network:other.example:8080"]
    assert "skillyard grant @fetch network:other.example:8080" in str(missed.meta["hint"])
    planned = yard.runtime.plan(request).data
    assert (planned["network"], planned["hosts"]) == (False, [site, site.replace("127.0.0.1", "localhost")])


def test_a_run_that_succeeds_without_a_host_still_tells_that_it_was_refused(
    yard: Project, write_skill: WriteSkill
) -> None:
    code = CODE.replace("print", "try: print").rstrip() + "\nexcept OSError: print('offline')\n"
    write_skill("fetch", FETCH, {"fetch.py": code})
    grant(yard.grants, yard.runtime.resolve(Request(name="fetch")), ("network:example.com",))

    result = yard.runtime.run(Request(name="fetch", args=("http://other.example/",)))

    assert (result.data["content"], result.meta["refused"]) == ("offline", ["network:other.example"])


def test_without_namespaces_a_host_grant_is_refused_and_says_why(yard: Project, write_skill: WriteSkill) -> None:
    with closing(make_sandbox()) as probing:
        layers = getattr(probing, "layers", Layers())
    if layers.landlock < ABI_SCOPES:
        pytest.skip("this machine has no Landlock that would do alone")
    yard._sandbox = make_sandbox(Layers(landlock=layers.landlock, seccomp=True))
    write_skill("fetch", FETCH, {"fetch.py": CODE})
    grant(yard.grants, yard.runtime.resolve(Request(name="fetch")), ("network:example.com",))

    result = yard.runtime.run(Request(name="fetch", args=("http://example.com/",)))

    assert result.data["type"] == "SandboxUnavailable"
    assert "limit the network to hosts" in str(result.data["msg"])


def test_hosts_are_granted_listed_and_taken_back_in_one_spelling(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("fetch", FETCH, {"fetch.py": CODE})

    given = skillyard("grant", "@fetch", "network:API.Example.com.", "network:*.example.org:8443", "--accept")
    listed = skillyard("grants")
    taken = skillyard("revoke", "@fetch", "network:api.EXAMPLE.com:443")

    assert parse(given.stdout).data["capabilities"] == ["network:api.example.com", "network:*.example.org:8443"]
    assert "network:api.example.com" in listed.stdout
    assert parse(taken.stdout).data["revoked"] == 1


@pytest.mark.parametrize(
    "host", ["https://example.com", "example.com/x", "a@b", "*", "127.1", "::1", "example.com:0", ""]
)
def test_what_is_no_host_is_not_granted(skillyard: Skillyard, write_skill: WriteSkill, host: str) -> None:
    write_skill("fetch", FETCH, {"fetch.py": CODE})

    shown = skillyard("grant", "@fetch", f"network:{host}", "--accept")

    assert parse(shown.stdout).data["type"] == "InvalidArgs"
    assert "Traceback" not in shown.stderr
    assert "network:" not in skillyard("grants").stdout
