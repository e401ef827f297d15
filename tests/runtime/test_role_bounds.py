"""What agent.yaml says of workspace and security, tried by a skill that attempts to get out."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.errors import PermissionDenied
from skillyard.core.result import Request, Result
from skillyard.core.values import Json
from skillyard.sandbox.launch import make_sandbox
from skillyard.sandbox.layers import ABI_SCOPES, Layers
from skillyard.trust.consent import distrust, is_role_trusted, trust, untrusted_roles, wants
from skillyard.trust.permissions import grant

#: Tries what it is told and says what came of it. Paths come in lists: a path in a param of its own would be named.
PROBE = """\
import json, os, socket, sys
request = json.load(sys.stdin)
told = []
for what, target in request["params"].get("tries", []):
    try:
        if what == "read":
            told.append(open(target).read())
        elif what == "list":
            told.append(sorted(os.listdir(target)))
        elif what == "write":
            open(target, "w").write("written")
            told.append("written")
        elif what == "mkdir":
            os.makedirs(target)
            told.append("made")
        elif what == "rename":
            os.rename(*target)
            told.append("renamed")
        elif what == "link":
            os.symlink(*target)
            told.append("linked")
        elif what == "connect":
            socket.create_connection(("127.0.0.1", target), 5).close()
            told.append("connected")
        elif what == "memory":
            told.append(len(bytearray(target << 20)) >> 20)
        elif what == "environment":
            told.append(os.environ.get(target))
    except (OSError, MemoryError) as error:
        told.append(f"no: {type(error).__name__}")
print(json.dumps({"success": True, "data": {"told": told}}))
"""
SKILLS = "skills:\n  - {name: probe, entry: .claude/skills/probe.py}\n"


class Role:
    """A role with the probe, whose file a test writes."""

    def __init__(self, yard: Project, name: str = "dev") -> None:
        self.yard = yard
        self.folder = yard.root / "agents" / name
        (self.folder / ".claude" / "skills").mkdir(parents=True)
        (self.folder / ".claude" / "skills" / "probe.py").write_text(PROBE)

    def says(self, more: str) -> None:
        (self.folder / "agent.yaml").write_text(SKILLS + more, "utf-8")

    def run(self, *tries: tuple[str, Json], **params: Json) -> Result:
        told: list[Json] = [list(each) for each in tries]
        given = {"tries": told, **params}
        request = Request(
            name=f"{self.folder.name}/probe", role=self.folder.name, action="try", params=given, interactive=False
        )
        return self.yard.runtime.run(request)

    def tries(self, *tries: tuple[str, Json]) -> list[Json]:
        result = self.run(*tries)
        assert result.ok, result
        told = result.data["told"]
        assert isinstance(told, list)
        return told

    def trust(self) -> None:
        trust(self.yard.grants, self.yard.root)


@pytest.fixture(params=["whole", "without namespaces"])
def role(yard: Project, request: pytest.FixtureRequest) -> Role:
    """At both levels that occur: many a machine allows no namespaces to ordinary programs."""
    if request.param != "whole":
        with closing(make_sandbox()) as probing:
            layers = getattr(probing, "layers", Layers())
        if layers.landlock < ABI_SCOPES:
            pytest.skip("this machine has no Landlock that would do alone")
        yard._sandbox = make_sandbox(Layers(landlock=layers.landlock, seccomp=True))
    return Role(yard)


@pytest.fixture
def port() -> Iterator[int]:
    """A real listener on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_a_network_that_the_file_asks_for_comes_with_trust_and_goes_with_a_change(role: Role, port: int) -> None:
    role.says("security: {network: true}\n")

    assert role.tries(("connect", port)) != ["connected"]
    role.trust()
    assert role.tries(("connect", port)) == ["connected"]
    skill = role.folder / ".claude" / "skills" / "probe.py"
    skill.write_text(f"# another program\n{PROBE}")
    assert role.tries(("connect", port)) != ["connected"]
    assert untrusted_roles(role.yard.grants, role.yard.root) == ("dev",)


def test_a_file_that_forbids_the_network_wins_over_a_grant(role: Role, port: int) -> None:
    role.says("security: {network: false}\n")
    role.yard.catalog.sync()
    grant(role.yard.grants, role.yard.catalog.resolve("dev/probe"), ("network",))

    assert role.tries(("connect", port)) != ["connected"]


@pytest.mark.parametrize("asked", ["trust", "whole network"])
def test_hosts_that_the_file_names_come_with_trust_and_narrow_a_grant(yard: Project, asked: str) -> None:
    role = Role(yard)
    role.says("security: {network: [API.example.com, 'db.example.com:5432']}\n")
    request = Request(name="dev/probe", role="dev", action="try", interactive=False)

    assert yard.runtime.plan(request).data["hosts"] == []
    if asked == "trust":
        assert [want.what for want in wants(yard.root)] == [
            "reach api.example.com for the role dev",
            "reach db.example.com:5432 for the role dev",
        ]
        role.trust()
    else:
        grant(yard.grants, yard.catalog.resolve("dev/probe"), ("network",))
    planned = yard.runtime.plan(request).data
    assert (planned["network"], planned["hosts"]) == (False, ["api.example.com", "db.example.com:5432"])


def test_a_file_that_forbids_the_network_wins_over_granted_hosts(yard: Project) -> None:
    role = Role(yard)
    role.says("security: {network: false}\n")
    yard.catalog.sync()
    grant(yard.grants, yard.catalog.resolve("dev/probe"), ("network:example.com",))

    planned = yard.runtime.plan(Request(name="dev/probe", role="dev", action="try", interactive=False)).data
    assert (planned["network"], planned["hosts"]) == (False, [])


def test_a_host_that_is_none_makes_the_role_invalid(role: Role) -> None:
    role.says("security: {network: ['https://example.com/']}\n")

    result = role.run()

    assert not result.ok
    assert "names no host" in str(result.data["msg"])


def test_a_path_outside_mybox_is_closed_until_trust_and_only_that_path_opens(role: Role, project: Path) -> None:
    for folder in ("data", "other"):
        (project / folder).mkdir()
        (project / folder / "file").write_text(folder)
    role.says("workspace: {allowed_paths: [data]}\n")
    attempts = (
        ("read", f"{project}/data/file"),
        ("write", f"{project}/data/new"),
        ("read", f"{project}/other/file"),
        ("write", f"{project}/mybox/output/x"),
    )

    before = role.tries(*attempts)
    role.trust()
    after = role.tries(*attempts)

    assert all(str(told).startswith("no: ") for told in before)
    assert after[:2] == ["data", "written"]
    assert all(str(told).startswith("no: ") for told in after[2:])
    assert (project / "data" / "new").read_text() == "written"


def test_allowed_paths_in_mybox_narrow_at_once(role: Role, project: Path) -> None:
    role.says("workspace: {allowed_paths: [mybox/reports]}\n")

    told = role.tries(("write", f"{project}/mybox/reports/a"), ("write", f"{project}/mybox/output/a"))

    assert told[0] == "written"
    assert str(told[1]).startswith("no: ")
    assert wants(project) == ()
    assert (project / "mybox/reports/a").read_text() == "written"


@pytest.mark.parametrize("allowed", [".", "agents", ".git", "bin"])
def test_what_decides_over_what_may_run_is_never_writable(role: Role, project: Path, allowed: str) -> None:
    (project / "bin").mkdir()
    (project / ".git").mkdir(exist_ok=True)
    role.says(f"workspace: {{allowed_paths: ['{allowed}', mybox]}}\n")
    role.trust()

    told = role.tries(
        ("write", str(role.folder / ".claude" / "skills" / "probe.py")),
        ("write", str(role.folder / "agent.yaml")),
        ("write", f"{project}/.git/config"),
        ("write", f"{project}/bin/x.py"),
        ("write", f"{project}/mybox/x"),
    )

    assert [str(each)[:4] for each in told] == ["no: "] * 4 + ["writ"]
    assert not (project / ".git/config").exists()
    assert "read and write" not in " ".join(want.what for want in wants(project))


def test_denied_paths_win_over_allowed_ones_a_grant_and_trust(role: Role, project: Path) -> None:
    (project / "data" / "private").mkdir(parents=True)
    (project / "data" / "private" / "key").write_text("the key")
    (project / "data" / "open").write_text("open")
    role.says("workspace: {allowed_paths: [data, mybox], denied_paths: [data/private, mybox/secret]}\n")
    role.trust()
    role.yard.catalog.sync()
    grant(role.yard.grants, role.yard.catalog.resolve_in("dev", "probe"), ("read-project",))

    told = role.tries(
        ("read", f"{project}/data/open"),
        ("read", f"{project}/data/private/key"),
        ("write", f"{project}/data/private/new"),
        ("rename", [f"{project}/data/private", f"{project}/data/mine"]),
        ("link", [f"{project}/data/private/key", f"{project}/mybox/output/link"]),
        ("read", f"{project}/mybox/output/link"),
        ("write", f"{project}/mybox/secret/x"),
        ("mkdir", f"{project}/mybox/secret/deep"),
    )

    assert told[0] == "open"
    assert told[4] == "linked"  # a name is no content
    assert "the key" not in str(told)
    assert [str(told[at])[:4] for at in (1, 2, 3, 5, 6, 7)] == ["no: "] * 6
    assert sorted(path.name for path in (project / "data/private").iterdir()) == ["key"]
    assert list((project / "mybox/secret").iterdir()) == []


def test_denied_patterns_are_read_as_in_gitignore(role: Role, project: Path) -> None:
    names = ("a.secret", "data/b.secret", "data/keep.secret", "data/tmp/c", "src/tmp/d", "src/键 1.txt", "src/键 2.txt")
    for name in names:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    role.says("workspace: {denied_paths: ['*.secret', '!keep.secret', tmp/, 'src/键 [1].txt', ' ']}\n")

    told = role.tries(*(("read", f"{project}/{name}") for name in names))

    assert [text for text in told if not str(text).startswith("no: ")] == ["data/keep.secret", "src/键 2.txt"]


def test_an_allowed_pattern_opens_what_it_matches_once_it_is_trusted(role: Role, project: Path, tmp_path: Path) -> None:
    (tmp_path / "far.csv").write_text("far")
    (project / "data" / "deep").mkdir(parents=True)
    for name in ("data/a.csv", "data/b.txt", "data/deep/c.csv"):
        (project / name).write_text(name)
    (project / "data" / "link.csv").symlink_to(tmp_path / "far.csv")
    role.says("workspace: {allowed_paths: ['data/*.csv', 'mybox/out/**']}\n")
    tries = [
        (what, f"{project}/{name}")
        for what, name in (
            ("read", "data/a.csv"),
            ("write", "data/a.csv"),
            ("read", "data/b.txt"),
            ("read", "data/deep/c.csv"),
            ("read", "data/link.csv"),
            ("write", "data/new.csv"),
            ("write", "mybox/out/x"),
            ("write", "mybox/y"),
        )
    ]

    before = role.tries(*tries)
    role.trust()
    after = role.tries(*tries)

    assert [str(each)[:4] for each in before] == ["no: "] * 6 + ["writ", "no: "]
    assert [str(each)[:4] for each in after] == ["data", "writ"] + ["no: "] * 4 + ["writ", "no: "]
    assert [want.what for want in wants(project)] == ["read and write data/*.csv for the role dev"]


@pytest.mark.parametrize("path", ["agents/**/*.py", "**/*.py", "./*", "bin/*.py", "*/x.py"])
def test_no_pattern_makes_what_decides_over_what_may_run_writable(role: Role, project: Path, path: str) -> None:
    (project / "bin").mkdir(exist_ok=True)
    (project / "bin" / "x.py").write_text("print()")
    role.says(f"workspace: {{allowed_paths: ['{path}']}}\n")
    role.trust()

    told = role.tries(("write", f"{project}/bin/x.py"), ("write", str(role.folder / ".claude" / "skills" / "probe.py")))

    assert [str(each)[:4] for each in told] == ["no: ", "no: "]


@pytest.mark.parametrize("path", ["/**/x", "!data"])
def test_a_pattern_over_the_whole_machine_or_that_allows_nothing_runs_nothing(role: Role, path: str) -> None:
    role.says(f"workspace: {{allowed_paths: ['{path}']}}\n")
    role.trust()

    assert role.run().data["type"] in {"MetadataMissing", "PermissionDenied"}


def test_patterns_that_match_too_much_to_hide_run_nothing(role: Role, project: Path) -> None:
    (project / "many").mkdir()
    for number in range(5001):
        (project / "many" / f"{number}.log").touch()
    role.says("workspace: {denied_paths: ['many/*.log']}\n")

    assert "name folders" in str(role.run().data["msg"])


def test_naming_a_path_does_not_open_what_the_role_closes(role: Role, project: Path) -> None:
    for folder in ("data", "closed", "elsewhere"):
        (project / folder).mkdir()
        (project / folder / "file").write_text(folder)
    role.says("workspace: {allowed_paths: [data, closed], denied_paths: [closed]}\n")

    named = role.run(("read", f"{project}/data/file"), file="data/file")
    denied = role.run(file="closed/file")
    outside = role.run(file="elsewhere/file")

    assert named.data["told"] == ["data"]
    assert (denied.data["type"], outside.data["type"]) == (PermissionDenied.type, PermissionDenied.type)
    assert "denied_paths" in str(denied.data["msg"])
    assert "allowed_paths" in str(outside.data["msg"])


def test_an_allowed_path_that_leads_out_through_a_link_runs_nothing(
    role: Role, project: Path, places: ProjectPaths
) -> None:
    (places.user_home / ".ssh").mkdir()
    (places.user_home / ".ssh" / "id").write_text("the key")
    (project / "data").symlink_to(places.user_home / ".ssh")
    role.says("workspace: {allowed_paths: [data]}\n")
    role.trust()

    result = role.run(("read", f"{project}/data/id"))

    assert result.data["type"] == "MetadataMissing"
    assert "leads out of the project" in str(result.data["msg"])


def test_a_link_that_appears_after_trust_opens_nothing(role: Role, project: Path, places: ProjectPaths) -> None:
    (places.user_home / ".ssh").mkdir()
    (places.user_home / ".ssh" / "id").write_text("the key")
    (project / "data").mkdir()
    role.says("workspace: {allowed_paths: [data]}\n")
    role.trust()
    (project / "data").rmdir()
    (project / "data").symlink_to(places.user_home / ".ssh")

    assert not role.run(("read", f"{project}/data/id")).ok


def test_our_own_home_stays_closed_whatever_a_role_asks_for(role: Role, places: ProjectPaths) -> None:
    (places.own_home / "token").write_text("token")
    role.says(f"workspace: {{allowed_paths: ['{places.own_home}', '{places.own_home.parent}']}}\n")
    role.trust()

    assert str(role.tries(("read", f"{places.own_home}/token"))).startswith("['no: ")


def test_memory_and_processes_are_narrowed_at_once_and_widened_by_trust(role: Role) -> None:
    role.says("security: {memory_mb: 64, processes: 400}\n")
    narrow = role.tries(("memory", 300))
    role.says("security: {memory_mb: 6000, processes: 2000}\n")

    def limits() -> tuple[Json, Json]:
        told = role.yard.runtime.plan(Request(name="dev/probe", role="dev", action="try")).data["limits"]
        assert isinstance(told, dict)
        return told["memory_bytes"], told["processes"]

    before = limits()
    asked = [want.what for want in wants(role.yard.root)]
    role.trust()
    after = limits()

    assert narrow == ["no: MemoryError"]
    assert before == (4096 << 20, 512)
    assert after == (6000 << 20, 2000)
    assert asked == ["use 6000 MB of memory for the role dev", "start 2000 processes for the role dev"]


@pytest.mark.parametrize(
    "broken",
    [
        "workspace: {denied_paths: data}\n",
        "workspace: {denied_paths: [{a: b}]}\n",
        "security: {network: perhaps}\n",
        "security: [network]\n",
        "secrets: [{name: LD_PRELOAD, source: env, key: X}]\n",
        "security: {network: false}\nsecurity: {network: true}\n",
        "workspace:\n  denied_paths: [data]\n  denied_paths: []\n",
    ],
)
def test_a_bound_that_cannot_be_read_runs_nothing(role: Role, broken: str) -> None:
    role.says(broken)
    role.trust()

    result = role.run()

    assert result.data["type"] == "MetadataMissing"
    assert re.match(r"agents/dev/agent.yaml:[3-5]: ", str(result.data["msg"])), result.data["msg"]
    assert "skillyard role validate" in str(result.meta["hint"])


@pytest.mark.parametrize("path", ["loop/x", "x" * 300, "~nobody-of-that-name/x", "../" * 50, "~/x", "data/../.."])
def test_a_path_that_is_hardly_one_is_a_result_and_no_crash(role: Role, project: Path, path: str) -> None:
    (project / "loop").symlink_to("loop")
    for key in ("allowed_paths", "denied_paths"):
        role.says(f"workspace: {{{key}: ['{path}']}}\n")
        role.trust()

        result = role.run(("write", f"{project}/evil"))
        told = result.data.get("told")
        assert told in (None, ["no: OSError"], ["no: PermissionError"]) or result.meta["changes"] == "pending"

    assert not (project / "evil").exists()


@pytest.mark.parametrize("path", ["/", ".", "agents", "agents/dev/.claude/skills/probe.py"])
def test_a_role_that_hides_its_own_program_says_so(role: Role, path: str) -> None:
    role.says(f"workspace: {{denied_paths: ['{path}']}}\n")

    assert "hides the role's own program" in str(role.run().data["msg"])


def test_trust_lists_everything_that_a_role_asks_for(role: Role, project: Path) -> None:
    role.says(
        "secrets: [{name: TOKEN, source: env, key: MY_TOKEN}]\n"
        "allowed_tools: [Bash, Read]\n"
        "workspace: {allowed_paths: [data, /srv/shared]}\n"
        "security: {network: true}\n"
        "schedule:\n"
        "  - {cron: '0 9 * * 1-5', skill: probe, action: try, on_failure: {command: mail me}}\n"
        "  - {interval: 15m, task: run @x, on_failure: {webhook: 'https://example.com/x'}}\n"
    )

    told = [want.what.removesuffix(" for the role dev") for want in wants(project)]

    assert told == [
        "reach the network",
        "read and write data",
        "read /srv/shared",
        "give TOKEN, from your environment variable MY_TOKEN, to the skills",
        "start 2 scheduled jobs",
        "after a failure run `mail me`",
        "after a failure post to https://example.com/x",
        "let a backend agent use Bash, Read unasked",
    ]
    role.trust()
    grants = role.yard.grants
    assert all(is_role_trusted(grants, role.folder, each) for each in ("schedule", "on-failure", "allowed-tools"))
    distrust(grants, project)
    assert not is_role_trusted(grants, role.folder, "schedule")


def test_trusting_one_role_does_not_trust_what_another_becomes(yard: Project, port: int) -> None:
    quiet, loud = Role(yard, "quiet"), Role(yard, "loud")
    quiet.says("")
    loud.says("security: {network: true}\n")
    loud.trust()
    quiet.says("security: {network: true}\n")

    assert loud.tries(("connect", port)) == ["connected"]
    assert quiet.tries(("connect", port)) != ["connected"]
