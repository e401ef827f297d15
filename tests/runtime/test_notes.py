"""What a run missed because of us is told, from what it did, with the grant that opens it."""

from pathlib import Path

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.messages import Lang
from skillyard.core.result import Request, Result
from skillyard.trust.permissions import grant, resolve_paths
from tests.conftest import WriteSkill

TOOL = "---\nname: tool\ndescription: x\ncommand: python tool.py\n---\n"


def run(yard: Project, lang: Lang = Lang.EN) -> Result:
    return yard.runtime.run(Request(name="tool", lang=lang))


def notes(result: Result) -> list[str]:
    found = result.meta.get("sandbox_notes", [])
    assert isinstance(found, list)
    return list(map(str, found))


def test_a_hidden_file_that_it_looked_for_is_named_with_its_grant(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    (project / ".env").write_text("KEY=1")
    (project / "server.pem").write_text("key")
    write_skill("tool", TOOL, {"tool.py": "import os\nprint(os.path.exists('.env'), sorted(os.listdir('.')))\n"})

    result = run(yard)

    assert str(result.data["content"]).startswith("False")
    assert notes(result) == [
        "it looked for .env, which a run does not see; the person can run: skillyard grant @tool read:.env"
    ]
    assert "它查找了 .env" in notes(run(yard, Lang.ZH))[0]
    skill = yard.runtime.resolve(Request(name="tool"))
    grant(yard.grants, skill, resolve_paths(("read:.env",), project, Path.home()))
    again = run(yard)
    assert (str(again.data["content"]).startswith("True"), notes(again)) == (True, [])


def test_what_it_looked_for_in_the_home_can_be_granted_and_is_found_there(
    yard: Project, project: Path, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    logs = places.user_home / ".tool 中文" / "logs"
    logs.mkdir(parents=True)
    (logs / "a.txt").write_text("a")
    (places.user_home / ".other").write_text("")
    program = "import pathlib\nprint([p.name for p in pathlib.Path.home().glob('.tool 中文/logs/*')])\n"
    write_skill("tool", TOOL, {"tool.py": program})

    result = run(yard)

    assert (result.data["content"], len(notes(result))) == ("[]", 1)
    assert "skillyard grant @tool 'read:~/.tool 中文'" in notes(result)[0]
    skill = yard.runtime.resolve(Request(name="tool"))
    grant(yard.grants, skill, resolve_paths(("read:~/.tool 中文",), project, places.user_home))
    again = run(yard)
    assert (again.data["content"], notes(again)) == ("['a.txt']", [])


def test_files_in_the_private_home_are_named_because_they_are_gone(yard: Project, write_skill: WriteSkill) -> None:
    program = "import pathlib\n(pathlib.Path.home() / 'report.md').write_text('x')\n"
    write_skill("tool", TOOL, {"tool.py": program})

    assert notes(run(yard)) == ["it left files in its private home, which is gone (1): report.md"]


def test_wanting_the_network_is_known_whatever_the_program_says(yard: Project, write_skill: WriteSkill) -> None:
    program = (
        "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 443), 1)\n"
        "except OSError:\n    print('cached')\n"
    )
    write_skill("tool", TOOL, {"tool.py": program})

    result = run(yard)

    assert result.data["content"] == "cached"
    assert "skillyard grant @tool network" in notes(result)[0]


def test_a_loopback_server_of_its_own_is_no_network(yard: Project, write_skill: WriteSkill) -> None:
    program = (
        "import socket, threading\ns = socket.create_server(('127.0.0.1', 0))\n"
        "threading.Thread(target=lambda: s.accept()[0].sendall(b'hi')).start()\n"
        "print(socket.create_connection(s.getsockname()).recv(9).decode(), 'network is unreachable')\n"
    )
    write_skill("tool", TOOL, {"tool.py": program})

    result = run(yard)

    assert (result.data["content"], notes(result)) == ("hi network is unreachable", [])


def test_a_file_that_is_named_for_a_run_can_be_changed_by_it(
    yard: Project, project: Path, write_skill: WriteSkill
) -> None:
    (project / "note.txt").write_text("tea")
    text = TOOL.replace("tool.py", "tool.py {file}")
    program = "import pathlib, sys\nf = pathlib.Path(sys.argv[1])\nf.write_text(f.read_text().upper())\n"
    write_skill("tool", text, {"tool.py": program})

    result = yard.runtime.run(Request(name="tool", args=("note.txt",), typed_in=project, apply=True))

    assert (result.ok, result.meta["changes"]) == (True, "applied"), result
    assert (project / "note.txt").read_text() == "TEA"
