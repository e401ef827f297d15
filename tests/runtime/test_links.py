"""Links never widen anything: in mybox/, in the project, between a question and its run. Real runs, as two users."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.conftest import ORDINARY, PYTHON, SOURCE

if sys.platform != "linux":
    pytest.skip("the sandbox of Linux", allow_module_level=True)

MAKER = "---\nname: maker\ndescription: x\ncommand: python3 tool.py {output}\n---\n"
TOOL = "---\nname: tool\ndescription: x\ncommand: python3 tool.py {file}\nparams:\n  file: {}\n---\n"
SHOW = "import sys\nprint(open(sys.argv[1]).read())\n"


class Site:
    """A project, a home with a secret, and the real command as one user."""

    def __init__(self, top: Path, uid: int) -> None:
        self.top, self.uid = top, uid
        self.home, self.project = top / "home", top / "work" / "project"
        for folder in (self.home / ".ssh", self.project / ".git", top / "state"):
            folder.mkdir(parents=True)
        self.secret = self.home / ".ssh" / "id"
        self.secret.write_text("the key")

    def skill(self, name: str, text: str, program: str, folder: str = ".claude/skills") -> None:
        at = self.project / folder / name
        at.mkdir(parents=True)
        (at / "SKILL.md").write_text(text.replace("name: tool", f"name: {name}"))
        (at / "tool.py").write_text(program)

    def command(self, *words: str | bytes, **env: str) -> "subprocess.CompletedProcess[str]":
        if os.getuid() == 0:
            subprocess.run(["chown", "-hR", f"{self.uid}:{self.uid}", self.top], check=True)
        variables = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.home),
            "SKILLYARD_HOME": str(self.top / "state"),
            "LANG": "C.UTF-8",
            "SKILLYARD_LANG": "en",
            **env,
        }
        user = None if os.getuid() else self.uid
        return subprocess.run(
            [PYTHON, "-m", "skillyard", *words],
            cwd=self.project,
            env=variables,
            capture_output=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )

    def run(self, *words: str) -> dict[str, Any]:
        done = self.command("run", "--json", *words)
        assert f'File "{SOURCE}' not in done.stderr, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


AS_ROOT = pytest.param(0, marks=pytest.mark.ci("links, as root too"), id="root")


@pytest.fixture(params=[AS_ROOT, pytest.param(ORDINARY, id="ordinary")])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if not PYTHON or (os.getuid() and request.param != ORDINARY):
        pytest.skip("needs root, or a Python that an ordinary user can run")
    top = Path(tempfile.mkdtemp(prefix="links-")).resolve()
    top.chmod(0o755)
    yield Site(top, os.getuid() or request.param)
    shutil.rmtree(top, ignore_errors=True)


# What a run leaves in mybox/


LINKS = {
    "a folder of the box": "os.rmdir('mybox/output'); os.symlink({home!r}, 'mybox/output')",
    "deep inside": "os.makedirs('mybox/output/a/b'); os.symlink({home!r}, 'mybox/output/a/b/c')",
    "upwards": "os.symlink('../../../../home', 'mybox/output/up')",
    "through a name": "os.makedirs('mybox/output/d'); os.symlink('d/../../../../../home', 'mybox/output/e')",
    "a chain": "os.symlink('two', 'mybox/output/one'); os.symlink({home!r}, 'mybox/output/two')",
    "to the project": "os.symlink('../../.git', 'mybox/output/git')",
    "a name that is no text": "os.symlink({home!r}, b'mybox/output/\\xff\\n\\x1b[2J')",
    "far below many files": "[open(f'mybox/output/{{n}}', 'w').close() for n in range(10_500)]; "
    "os.mkdir('mybox/output/z'); os.symlink({home!r}, 'mybox/output/z/l')",
    "below a path that is too long": "here = os.getcwd(); os.chdir('mybox/output')\n"
    "for _ in range(50):\n    os.mkdir('x' * 200); os.chdir('x' * 200)\nos.symlink({home!r}, 'l')",
}


def links_out(box: Path) -> list[bytes]:
    """Every link below the box that leads out of it. `find` follows none and takes any depth."""
    shown = subprocess.run(["find", box, "-type", "l", "-printf", "%l\\0"], capture_output=True, check=True).stdout
    return [target for target in shown.split(b"\0") if b"home" in target or b".git" in target]


@pytest.mark.parametrize("how", LINKS)
def test_a_link_that_leads_out_of_mybox_does_not_outlive_the_run_and_is_told(site: Site, how: str) -> None:
    site.skill("tool", TOOL, "import os\n" + LINKS[how].format(home=str(site.home)))

    result = site.run("@tool")

    assert result["state"] == "success", result
    assert links_out(site.project / "mybox") == []
    (told,) = result["meta"]["removed_links"]
    assert told.startswith("mybox/")
    assert site.secret.read_text() == "the key"


def test_a_link_inside_mybox_and_one_to_a_program_of_the_system_stay(site: Site) -> None:
    program = (
        "import os\nos.makedirs('mybox/output/venv/bin')\nos.symlink('../real', 'mybox/output/venv/inside')\n"
        "os.symlink('../../..', 'mybox/output/venv/bin/box')\n"
        f"os.symlink({PYTHON!r}, 'mybox/output/venv/bin/python')\n"
        "os.symlink(os.path.abspath('mybox/output'), 'mybox/output/whole')\n"
    )
    site.skill("tool", TOOL, program)

    result = site.run("@tool")

    assert "removed_links" not in result["meta"], result
    venv = site.project / "mybox/output/venv"
    assert all(path.is_symlink() for path in (venv / "inside", venv / "bin/python", venv / "bin/box"))


def test_a_link_made_inside_that_leads_out_after_a_move_is_removed(site: Site) -> None:
    site.skill(
        "first", TOOL, "import os\nos.makedirs('mybox/a/b/c/d')\nos.symlink('../../../../home', 'mybox/a/b/c/d/l')\n"
    )
    site.skill("second", TOOL, "import os\nos.rename('mybox/a/b/c/d', 'mybox/d')\n")

    assert "removed_links" not in site.run("@first")["meta"]
    assert site.run("@second")["meta"]["removed_links"] == ["mybox/d/l -> ../../../../home"]
    assert links_out(site.project / "mybox") == []


def test_a_folder_that_the_run_closed_hides_no_link(site: Site) -> None:
    program = (
        "import os\nfor mode in (0o000, 0o500, 0o400, 0o100):\n    at = f'mybox/output/{mode:o}'\n    os.mkdir(at)\n"
    )
    program += f"    os.symlink({str(site.home)!r}, at + '/l')\n    os.chmod(at, mode)\n"
    site.skill("tool", TOOL, program)

    result = site.run("@tool")

    assert len(result["meta"]["removed_links"]) == 4, result
    assert links_out(site.project / "mybox") == []


def test_links_are_removed_after_a_failure_a_timeout_and_without_a_sandbox(site: Site) -> None:
    make = (
        "import os, sys\nos.makedirs('mybox/output', exist_ok=True)\n"
        f"os.symlink({str(site.home)!r}, 'mybox/output/l')\n"
    )
    site.skill("fails", TOOL, make + "sys.exit('no')\n")
    site.skill("hangs", TOOL, make + "import signal\nsignal.pause()\n")
    site.skill("works", TOOL, make)

    for words, state in (
        (["@fails"], "error"),
        (["--timeout", "2", "@hangs"], "timeout"),
        (["--no-sandbox", "@works"], "success"),
    ):
        result = site.run(*words)
        assert result["state"] == state, result
        assert result["meta"]["removed_links"] == [f"mybox/output/l -> {site.home}"]
        assert links_out(site.project / "mybox") == []


def test_links_that_a_script_of_bin_or_a_json_skill_leaves_are_removed(site: Site) -> None:
    make = f"import os\nos.symlink({str(site.home)!r}, 'mybox/output/l')\nprint('{{\"success\": true}}')\n"
    (site.project / "bin").mkdir()
    (site.project / "bin/evil.py").write_text(make)
    role = site.project / "agents/r"
    role.mkdir(parents=True)
    (role / "agent.yaml").write_text('{"skills": [{"name": "talk", "entry": "talk.py"}]}\n')
    (role / "talk.py").write_text(make.replace("'mybox", "'../../mybox"))

    assert site.command("trust", "--accept").returncode == 0
    done = json.loads(site.command("task", "--json", "worker", "x", "执行 python bin/evil.py").stdout)
    assert done["meta"]["removed_links"] == [f"mybox/output/l -> {site.home}"], done
    told = json.loads(site.command("role", "run", "--json", "r", "talk", "x").stdout)
    assert told["meta"]["removed_links"] == [f"mybox/output/l -> {site.home}"], told
    assert links_out(site.project / "mybox") == []


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6711, 0o4000])
def test_no_setuid_bit_outlives_a_run(site: Site, mode: int) -> None:
    program = f"import os, shutil\nshutil.copy('/bin/true', 'mybox/output/su')\nos.chmod('mybox/output/su', {mode})\n"
    site.skill("tool", TOOL, program)

    result = site.run("--no-sandbox", "@tool")

    assert (site.project / "mybox/output/su").stat().st_mode & 0o7777 == mode & 0o777
    assert result["meta"]["cleared_setuid"] == ["mybox/output/su"]


def test_no_setuid_bit_outlives_a_run_in_a_folder_that_it_was_granted(site: Site) -> None:
    site.skill(
        "maker",
        MAKER,
        "import os, shutil, sys\nat = sys.argv[1]\nshutil.copy('/bin/true', at + 'su')\n"
        f"os.symlink({str(site.home)!r}, at + 'home')\n"
        "try:\n    os.chmod(at + 'su', 0o4755)\nexcept OSError:\n    pass\n",
    )
    (site.project / "site").mkdir()
    (site.project / "site/mine").symlink_to("../../..")
    assert site.command("grant", "--accept", "@maker", "write:site/").returncode == 0

    result = site.run("@maker", "output=site")

    assert result["state"] == "success", result
    assert not (site.project / "site/su").stat().st_mode & 0o6000
    assert (result["meta"]["changes"], result["meta"]["not_applied"]) == ("applied", ["site/home"])
    assert not (site.project / "site/home").is_symlink(), "a link that leads out of the project"
    assert (site.project / "site/mine").is_symlink(), "what the person made stays"


# What a link turns a question or a path into


@pytest.mark.parametrize("place", ["mybox", "mybox/output", "mybox/temp", "mybox/workspace"])
def test_a_box_that_is_a_link_starts_nothing_and_writes_nothing_through_it(site: Site, place: str) -> None:
    site.skill("tool", TOOL, "print('ran')")
    (site.project / place).parent.mkdir(exist_ok=True)
    (site.project / place).symlink_to(site.home)

    result = site.run("@tool")

    assert result["data"]["type"] == "PermissionDenied", result
    assert str(site.home) in result["data"]["msg"]
    assert "rm " in result["meta"]["hint"]
    assert [path.name for path in site.home.iterdir()] == [".ssh"]


@pytest.mark.parametrize("output", ["mybox/output/x", "mybox/l/../x", "./mybox/output/../l/x", "{project}/mybox/l/new"])
def test_an_output_that_leads_out_of_mybox_is_refused_and_never_asked_as_if_it_were_inside(
    site: Site, output: str
) -> None:
    site.skill("maker", MAKER, "import sys\nopen(sys.argv[1], 'w').write('made')\n")
    (site.project / "mybox/output").mkdir(parents=True)
    (site.project / "mybox/output/x").symlink_to(site.home / "made")
    (site.project / "mybox/l").symlink_to(site.home)

    result = site.run("@maker", "output=" + output.format(project=site.project))

    assert result["data"]["type"] == "PermissionDenied", result
    assert str(site.home) in result["data"]["msg"] or str(site.top) in result["data"]["msg"]
    assert [path.name for path in site.home.iterdir()] == [".ssh"]


def test_what_was_granted_as_a_folder_is_not_what_a_link_makes_of_it(site: Site) -> None:
    """The question was harmless when it was asked; then the folder became a link."""
    site.skill("tool", TOOL, f"print(open({str(site.secret)!r}).read())\n")
    site.skill("maker", MAKER, "import sys, os\nopen(os.path.join(sys.argv[1], 'made'), 'w').write('x')\n")
    for name in ("data", "site"):
        (site.project / name).mkdir()
    assert site.command("grant", "--accept", "@tool", "read:data").returncode == 0
    assert site.command("grant", "--accept", "@maker", "write:site/").returncode == 0
    for name in ("data", "site"):
        (site.project / name).rmdir()
        (site.project / name).symlink_to(site.home)

    assert "the key" not in json.dumps(site.run("@tool"))
    refused = site.run("@maker", "output=site")
    assert refused["data"]["type"] == "NotGranted"
    assert refused["data"]["grant"] == f"skillyard grant @maker write:{site.home}/"
    assert [path.name for path in site.home.iterdir()] == [".ssh"]


def test_a_grant_keeps_the_resolved_path_and_says_it(site: Site) -> None:
    site.skill("tool", TOOL, SHOW)
    (site.project / "docs").symlink_to(site.home)

    done = json.loads(site.command("grant", "--json", "--accept", "@tool", "read:docs/.ssh", "write:docs/x").stdout)

    assert done["data"]["capabilities"] == [f"read:{site.home}/.ssh", f"write:{site.home}/x"]


OUTSIDE = {
    "docs": "{top}/work",
    "docs/": "{top}/work",
    "./mybox/../docs": "{top}/work",
    "{project}/docs": "{top}/work",
    "../project/docs": "{top}/work",
    "/proc/self/cwd/docs": "{top}/work",
    "README.md": "{home}/.ssh/id",
    "file=README.md": "{home}/.ssh/id",
    "--file=README.md": "{home}/.ssh/id",
    "chain/.ssh/id": "{home}/.ssh/id",
    "mybox/output/l": "{home}/.ssh/id",
    "docs/../home/.ssh": "{home}/.ssh",
    "{top}/byway/README.md": "{home}/.ssh/id",
}
#: A script of the skill takes the same way; two words show that it does.
ASKED = [*(("@tool", word) for word in OUTSIDE), *(("@tool:tool.py", word) for word in ("README.md", "docs/"))]


@pytest.mark.parametrize(("target", "word"), ASKED)
def test_a_word_in_the_project_that_leads_out_of_it_asks_with_the_resolved_path(
    site: Site, target: str, word: str
) -> None:
    site.skill("tool", TOOL, SHOW + "\n")
    (site.project / "docs").symlink_to("..")
    (site.project / "README.md").symlink_to("../../home/.ssh/id")
    (site.project / "chain").symlink_to("chain2")
    (site.project / "chain2").symlink_to(site.home)
    (site.project / "mybox/output").mkdir(parents=True)
    (site.project / "mybox/output/l").symlink_to(site.secret)
    (site.top / "byway").symlink_to(site.project)
    known = {"top": site.top, "home": site.home, "project": site.project}

    result = site.run(target, word.format_map(known))

    assert result["data"]["type"] == "NotGranted", result
    assert result["data"]["grant"] == f"skillyard grant @tool read:{OUTSIDE[word].format_map(known)}"
    assert "the key" not in json.dumps(result)


def test_the_grant_command_works_as_it_is_printed_also_with_spaces_and_quotes(site: Site) -> None:
    site.skill("tool", TOOL, SHOW)
    odd = site.home / "a b 'c' $(id) 文件"
    odd.write_text("odd")
    (site.project / "l").symlink_to(odd)

    refused = site.run("@tool", "l")
    program, *words = shlex.split(refused["data"]["grant"])
    assert program == "skillyard"
    assert words == ["grant", "@tool", f"read:{odd}"]
    assert site.command(*words, "--accept").returncode == 0
    assert site.run("@tool", "l")["data"]["content"] == "odd"


def test_a_path_that_is_plainly_outside_is_opened_as_resolved(site: Site) -> None:
    site.skill("tool", TOOL, SHOW)
    (site.top / "work/other").write_text("other")
    (site.top / "alias").symlink_to(site.top / "work/other")

    for word in ("../other", str(site.top / "work/other"), str(site.top / "alias")):
        assert site.run("@tool", word)["data"].get("content") == "other", word


def test_no_other_face_opens_what_lies_outside(site: Site) -> None:
    site.skill("tool", TOOL, SHOW)
    (site.project / "README.md").symlink_to(site.secret)
    for word in ("README.md", str(site.secret), "../../home/.ssh/id"):
        for agent in ("skills", "skills_agent"):
            done = site.command("task", "--json", agent, "x", f"执行 @tool {word}")
            assert json.loads(done.stdout)["state"] == "error", done.stdout
            assert "the key" not in done.stdout
        inside = site.command("run", "--json", "@tool", word, SKILLYARD_DEPTH="1")
        assert "the key" not in inside.stdout


# Our own writers


WRITERS = {
    "new": (["new", "fresh", "--kind", "prompt"], [".claude", ".claude/skills"]),
    "role new": (["role", "new", "fresh"], ["agents"]),
    "init": (["init"], [".claude", ".claude/agents", "agents", "bin", "mybox", "mybox/output"]),
    "add": (["add", "{top}/source", "--yes"], [".claude", ".claude/skills", ".skillyard", ".skillyard/install"]),
    "link": (["link", "tool", "--to", "codex"], [".agents", ".agents/skills"]),
}


#: `link` uses a folder for all agents that is linked inside the project: tests/install/test_link.py.
LINKED = [
    (name, place, inside)
    for name, (_, at) in WRITERS.items()
    for place in at
    for inside in (True, False)
    if not (name == "link" and inside)
]


@pytest.mark.parametrize(("writer", "place", "inside"), LINKED)
def test_no_writer_of_ours_goes_through_a_link(site: Site, writer: str, place: str, inside: bool) -> None:
    source = site.top / "source"
    source.mkdir()
    (source / "SKILL.md").write_text("---\nname: fresh\ndescription: Says x when asked\n---\n# x\n")
    if writer == "link":
        site.skill("tool", TOOL, SHOW)
    elsewhere = site.project / "elsewhere" if inside else site.home / "elsewhere"
    elsewhere.mkdir()
    target = site.project / place
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(elsewhere)

    words = [word.format(top=site.top) for word in WRITERS[writer][0]]
    done = site.command(*words, "--json")

    told = json.loads(done.stdout)
    assert told["data"].get("type") == "PermissionDenied", done.stdout + done.stderr
    assert str(elsewhere) in told["data"]["msg"]
    assert f"rm {target}" in told["meta"]["hint"]
    assert list(elsewhere.iterdir()) == []
