"""What a run may touch, tried through the whole pipeline: the contract's Trust."""

import os
import shutil
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.envelope import parse
from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.result import Request, Result
from skillyard.trust.consent import is_trusted, trust, wants
from skillyard.trust.permissions import grant
from tests.conftest import Skillyard, WriteSkill

CAT = "---\nname: cat\ndescription: x\ncommand: cat {file}\n---\n"
PYTHON = "---\nname: tool\ndescription: x\ncommand: python tool.py {arg}\nparams:\n  arg: {}\n---\n"


#: A project's file that opens to a run only what is named.
NARROW = '[run]\nread = "params"\n'


def run(yard: Project, name: str, *args: str, typed: bool = True) -> Result:
    return yard.runtime.run(Request(name=name, args=args, typed_in=yard.root if typed else None))


def test_a_link_does_not_make_the_whole_project_a_skills_own_folder(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    (project / "a.txt").write_text("a")
    write_skill("", "---\nname: wide\ndescription: x\ncommand: cat a.txt\n---\n", root=project)
    skills = project / ".claude" / "skills"
    skills.mkdir(parents=True)
    (skills / "wide").symlink_to("../..")

    refused = yard.runtime.run(Request(name="wide"))
    assert (refused.data["type"], refused.data["grant"]) == ("NotGranted", "skillyard grant @wide read-project")

    grant(yard.grants, yard.runtime.resolve(Request(name="wide")), ("read-project",))
    assert yard.runtime.run(Request(name="wide")).data["content"] == "a"

    typed = yard.runtime.run(Request(name=".", typed_in=project))
    assert typed.data["content"] == "a", "whoever points at a folder means it"


def test_a_skill_that_is_the_project_sees_no_hidden_file(yard: Project, project: Path, write_skill: WriteSkill) -> None:
    (project / ".env").write_text("secret")
    write_skill("", "---\nname: wide\ndescription: x\ncommand: cat .env\n---\n", root=project)
    skills = project / ".claude" / "skills"
    skills.mkdir(parents=True)
    (skills / "wide").symlink_to("../..")
    grant(yard.grants, yard.runtime.resolve(Request(name="wide")), ("read-project",))

    for request in (Request(name="wide"), Request(name=".", typed_in=project)):
        assert "secret" not in str(yard.runtime.run(request)), request


def test_where_the_project_is_narrowed_naming_a_file_lets_the_run_read_it_and_nothing_else(
    yard: Project, project: Path, tmp_path: Path, write_skill: WriteSkill
) -> None:
    (project / "skillyard.toml").write_text(NARROW)
    read_other = "import sys\nprint(open(sys.argv[1]).read())\nprint(open('other.txt').read())\n"
    write_skill("tool", PYTHON, {"tool.py": read_other})
    (project / "named.txt").write_text("named")
    (project / "other.txt").write_text("other")

    result = run(yard, "tool", "named.txt")

    assert result.data["type"] == "RuntimeFailed"
    assert result.data["may_need"] == "read-project"
    assert "skillyard grant @tool read-project" in str(result.meta["hint"])


def test_reading_the_project_is_a_grant_for_exactly_these_bytes(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    (project / "skillyard.toml").write_text(NARROW)
    path = write_skill("tool", PYTHON, {"tool.py": "print(open('other.txt').read())\n"})
    (project / "other.txt").write_text("other")
    yard.catalog.sync()
    grant(yard.grants, yard.catalog.resolve("tool"), ("read-project",))

    assert run(yard, "tool").data["content"] == "other"
    (path.parent / "tool.py").write_text("print(open('other.txt').read() * 2)\n")
    assert run(yard, "tool").data["type"] == "RuntimeFailed"


def test_a_person_may_name_a_file_outside_the_project_and_a_task_may_not(
    yard: Project, tmp_path: Path, write_skill: WriteSkill
) -> None:
    write_skill("cat", CAT)
    outside = tmp_path / "outside.txt"
    outside.write_text("outside")

    assert run(yard, "cat", str(outside)).data["content"] == "outside"
    assert run(yard, "cat", str(outside), typed=False).data["type"] == "RuntimeFailed"


def test_the_home_folder_and_our_own_home_cannot_be_read(
    yard: Project, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    secret = places.user_home / ".ssh" / "id_rsa"
    secret.parent.mkdir()
    secret.write_text("secret key")
    program = "import sys, pathlib\nprint(pathlib.Path(sys.argv[1]).read_text())\n"
    write_skill("tool", PYTHON.replace("{arg}\n", f"{secret}\n"), {"tool.py": program})
    write_skill(
        "peek",
        PYTHON.replace("name: tool", "name: peek").replace("{arg}\n", f"{places.database}\n"),
        {"tool.py": program},
    )

    assert run(yard, "tool").data["type"] == "RuntimeFailed"
    assert run(yard, "peek").data["type"] == "RuntimeFailed"


def test_even_naming_our_own_home_does_not_open_it(
    yard: Project, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    write_skill("cat", CAT)
    (places.own_home / "token").write_text("token")

    assert run(yard, "cat", str(places.own_home / "token")).data["type"] == "RuntimeFailed"


def test_a_run_writes_mybox_and_not_the_project(yard: Project, project: Path, write_skill: WriteSkill) -> None:
    program = "import sys, pathlib\npathlib.Path(sys.argv[1]).write_text('x')\n"
    write_skill("tool", PYTHON, {"tool.py": program})

    assert run(yard, "tool", "mybox/output/a.txt").ok
    assert (project / "mybox/output/a.txt").stat().st_uid == os.getuid()
    (project / ".git").mkdir(exist_ok=True)
    for target in (".claude/skills/tool/tool.py", ".git/config", "../x"):
        assert not run(yard, "tool", target).ok, target
    changed = run(yard, "tool", "other.txt")
    assert (changed.ok, changed.meta["changes"]) == (True, "pending")
    assert not (project / "other.txt").exists()
    assert run(yard, "tool", "/tmp/skillyard-escape").ok  # a temp of its own, gone with the run
    assert not Path("/tmp/skillyard-escape").exists()
    assert (project / ".claude/skills/tool/tool.py").read_text() == program


def test_an_output_outside_mybox_waits_until_it_is_applied_and_a_grant_applies_it(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    text = "---\nname: maker\ndescription: x\ncommand: python tool.py {output}\n---\n"
    write_skill("maker", text, {"tool.py": "import sys, pathlib\npathlib.Path(sys.argv[1]).write_text('made')\n"})

    waiting = run(yard, "maker", "output=result.html")

    assert (waiting.ok, waiting.meta["changes"], waiting.data["output_path"]) == (True, "pending", "result.html")
    assert not (project / "result.html").exists()
    grant(yard.grants, yard.catalog.resolve("maker"), ("write:result.html",))
    applied = run(yard, "maker", "output=result.html")
    assert (applied.data["output_path"], applied.meta["changes"]) == ("result.html", "applied")
    assert (project / "result.html").read_text() == "made"


def test_where_the_project_is_narrowed_an_output_outside_mybox_needs_a_grant_and_says_which(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    text = "---\nname: maker\ndescription: x\ncommand: python tool.py {output}\n---\n"
    write_skill("maker", text, {"tool.py": "import sys, pathlib\npathlib.Path(sys.argv[1]).write_text('made')\n"})

    (project / "skillyard.toml").write_text(NARROW)
    refused = run(yard, "maker", "output=result.html")

    assert refused.data["type"] == "NotGranted"
    assert refused.data["grant"] == "skillyard grant @maker write:result.html"
    assert not (project / "result.html").exists()
    grant(yard.grants, yard.catalog.resolve("maker"), ("write:result.html",))
    allowed = run(yard, "maker", "output=result.html")
    assert (allowed.data["output_path"], (project / "result.html").read_text()) == ("result.html", "made")


def test_there_is_no_network_without_a_grant(yard: Project, write_skill: WriteSkill) -> None:
    program = "import socket\nsocket.create_connection(('127.0.0.1', 9), 2)\n"
    write_skill("tool", PYTHON, {"tool.py": program})

    assert not run(yard, "tool").ok


def test_an_option_smuggled_as_a_value_is_refused(yard: Project, project: Path, write_skill: WriteSkill) -> None:
    write_skill("count", "---\nname: count\ndescription: x\ncommand: wc {file}\n---\n")
    (project / ".env").write_text("SECRET=1")

    assert run(yard, "count", "file=--files0-from=.env").data["type"] == "InvalidParam"
    assert run(yard, "count", "--", "--files0-from=.env").data["type"] == "InvalidParam"


def test_shell_syntax_in_a_param_reaches_the_skill_as_plain_text(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("echo", "---\nname: echo\ndescription: x\ncommand: echo {text}\n---\n")

    result = run(yard, "echo", "$(id); rm -rf ~ | `x` > /etc/passwd")

    assert result.data == {"skill": "echo", "content": "$(id); rm -rf ~ | `x` > /etc/passwd"}


def test_a_project_that_ships_its_own_grants_is_not_believed(
    yard: Project, places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("tool", PYTHON, {"tool.py": "print(open('other.txt').read())\n"})
    (project / "skillyard.toml").write_text(NARROW)
    (project / "other.txt").write_text("other")
    yard.catalog.sync()
    grant(yard.grants, yard.catalog.resolve("tool"), ("read-project",))
    assert run(yard, "tool").data["content"] == "other"
    yard.close()
    (project / ".skillyard").mkdir()
    for file in ("state.db", "grants.json", "grants.json.copy"):
        shutil.move(places.own_home / file, project / ".skillyard" / file)
    (project / "skillyard.toml").write_text(f"{NARROW}[grants]\ntool = ['read-project', 'network']\n")

    with Project(places) as fresh:
        assert fresh.runtime.run(Request(name="tool")).data["type"] == "RuntimeFailed"


def test_grants_are_given_by_a_command_of_their_own(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("cat", CAT)

    unasked = skillyard("grant", "@cat", "network")
    given = skillyard("grant", "@cat", "network", "--accept")
    listed = skillyard("grants")
    taken = skillyard("revoke", "@cat")

    assert unasked.returncode == 1
    assert given.returncode == 0
    assert "network, and it reads the project" in listed.stdout
    assert "yes" in listed.stdout
    assert parse(taken.stdout).data["revoked"] == 1


def test_a_grant_is_taken_back_under_every_name_that_it_can_be_given_under(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    file = write_skill("cat", CAT)
    names = ("@cat", "cat", "@cat:scripts/x.py", "./.claude/skills/cat", "./.claude/skills/cat:x.py", str(file.parent))
    for name in names:
        given = skillyard("grant", name, "network", "write:out/page.html", "--accept")
        assert given.returncode == 0, name
        assert parse(skillyard("revoke", name, "write:out/page.html").stdout).data["revoked"] == 1, name
        assert parse(skillyard("revoke", name).stdout).data["revoked"] == 1, name
    assert "skillyard grants" in skillyard("revoke", "@cat").stdout
    assert parse(skillyard("revoke", "@nothing").stdout).data["type"] == "SkillNotFound"

    skillyard("role", "new", "ops")
    skillyard("grant", "ops/daily_report", "network", "--accept")
    assert parse(skillyard("revoke", "ops/daily_report").stdout).data["revoked"] == 1
    skillyard("grant", "@cat", "network", "--accept")
    shutil.rmtree(project / ".claude/skills/cat")
    assert parse(skillyard("revoke", "@cat").stdout).data["revoked"] == 1


@pytest.mark.parametrize(
    "command",
    [
        ("grant", "@cat", "network", "--accept"),
        ("trust", "--accept"),
        ("run", "--no-sandbox", "@cat", "x"),
        ("run", "--weak-sandbox", "@cat", "x"),
    ],
)
def test_inside_an_agent_nothing_can_be_allowed(
    skillyard: Skillyard, write_skill: WriteSkill, command: tuple[str, ...]
) -> None:
    write_skill("cat", CAT)

    shown = skillyard(*command, SKILLYARD_DEPTH="1")

    assert shown.returncode == 1
    assert parse(shown.stdout).data["type"] == "PermissionDenied"


@pytest.mark.parametrize("capability", ["everything", "read:", "sudo", "env"])
def test_only_known_capabilities_can_be_granted(yard: Project, write_skill: WriteSkill, capability: str) -> None:
    write_skill("cat", CAT)
    yard.catalog.sync()

    with pytest.raises(InvalidArgs):
        grant(yard.grants, yard.catalog.resolve("cat"), (capability,))


def test_a_projects_own_roots_count_only_after_trust_and_only_as_they_were_shown(
    places: ProjectPaths, project: Path, tmp_path: Path, write_skill: WriteSkill
) -> None:
    write_skill("extra", "---\nname: extra\ndescription: x\n---\n", root=project / "vendor")
    (project / "skillyard.toml").write_text('[catalog]\nroots = ["vendor"]\n')

    def names() -> list[str]:
        with Project(places) as yard:
            yard.catalog.sync()
            return [entry.name for entry in yard.catalog.list()]

    assert names() == []
    with Project(places) as yard:
        assert [want.what for want in wants(project)] == ["look for skills in vendor"]
        trust(yard.grants, project)
        assert is_trusted(yard.grants, project)
    assert names() == ["extra"]
    (project / "skillyard.toml").write_text('[catalog]\nroots = ["vendor", "/etc"]\n')
    assert names() == []


def test_without_a_sandbox_the_result_says_so(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("echo", "---\nname: echo\ndescription: x\ncommand: echo {text}\n---\n")

    result = parse(skillyard("run", "--no-sandbox", "@echo", "x").stdout)

    assert (result.data["content"], result.meta["sandbox"]) == ("x", "none")


def test_a_dry_run_shows_everything_and_starts_nothing(yard: Project, project: Path, write_skill: WriteSkill) -> None:
    write_skill("cat", "---\nname: cat\ndescription: x\ncommand: cat {file}\nparams:\n  file: {}\n  output: {}\n---\n")
    (project / "a.txt").write_text("a")
    (project / ".env").write_text("secret")

    plan = yard.runtime.plan(Request(name="cat", args=("a.txt", "output=x.html"), typed_in=project)).data

    argv = plan["argv"]
    assert isinstance(argv, list)
    assert argv[1:] == ["a.txt"]
    assert plan["cwd"] == str(project)
    assert plan["missing_grants"] == []
    reads, hides = plan["reads"], plan["hides"]
    assert isinstance(reads, list)
    assert isinstance(hides, list)
    assert str(project) in reads
    assert str(project / ".env") in hides
    assert plan["writes"] == [str(project / "mybox")]
    assert yard.history.list() == ()
    assert not (project / "mybox").exists()


def test_permission_denied_is_never_recoverable() -> None:
    assert PermissionDenied("x").data()["recoverable"] is False


def test_an_output_that_the_run_did_not_write_is_not_told(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("lazy", "---\nname: lazy\ndescription: x\ncommand: echo {output}\n---\n")
    (project / "mybox").mkdir()
    (project / "mybox/old.txt").write_text("old")

    assert "output_path" not in run(yard, "lazy", "output=mybox/old.txt").data


def test_an_output_that_the_command_has_no_place_for_is_surplus(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("cat", CAT)

    assert run(yard, "cat", "SKILL.md", "output=/etc/passwd").data["type"] == "InvalidParam"
