"""No process of ours imports anything from the folder it stands in, or from where a project's variables point."""

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import skillyard as package
from skillyard.app.paths import ProjectPaths
from skillyard.core.child_process import own_command, own_function
from skillyard.install.mcp_config import AGENTS, make_config
from skillyard.jobs.service import make_service
from tests.conftest import Skillyard
from tests.faces.test_init_mcp import command_in

CEILING_SECONDS = 120
#: Modules that Python imports before any program starts, if they are on its path: only `-I` helps against those.
EARLY = ("sitecustomize", "usercustomize", "encodings", "codecs", "os", "site", "io", "abc", "re")
LATE = (
    "yaml",
    "sqlite3",
    "json",
    "argparse",
    "subprocess",
    "shutil",
    "typing",
    "mcp",
    "dbos",
    "langgraph",
    "tomllib",
)
SOURCE = Path(package.__file__).parent


@pytest.fixture
def canaries(tmp_path: Path) -> Path:
    folder = tmp_path / "canaries"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def lay_traps(project: Path, canaries: Path, names: Sequence[str]) -> None:
    """Modules that leave a file behind when somebody imports them, as files and as packages."""
    for name in names:
        trap = f"open({str(canaries / name)!r}, 'w').close()\n"
        for file in (project / f"{name}.py", project / name / "__init__.py", project / name / "__main__.py"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(trap)


def hostile_variables(project: Path, canaries: Path) -> dict[str, str]:
    """Everything that Python reads, pointing into the project."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = project / "base" / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "evil.pth").write_text(f"import sys; open({str(canaries / 'pth')!r}, 'w').close()\n")
    (project / "startup.py").write_text(f"open({str(canaries / 'startup')!r}, 'w').close()\n")
    return {
        "PYTHONPATH": f"{project}:.::",
        "PYTHONHOME": str(project),
        "PYTHONSTARTUP": str(project / "startup.py"),
        "PYTHONUSERBASE": str(project / "base"),
        "PYTHONPYCACHEPREFIX": str(project / "cache"),
        "PYTHONPLATLIBDIR": str(project),
        "PYTHONWARNINGS": "error::yaml.Warning",
        "PYTHONBREAKPOINT": "yaml.stop",
        "PYTHONINSPECT": "1",
        "PYTHONSAFEPATH": "",
    }


def run(
    words: Sequence[str], places: ProjectPaths, env: Mapping[str, str], stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "LANG": "C.UTF-8",
        "SKILLYARD_LANG": "en",
        **env,
    }
    return subprocess.run(
        words, cwd=places.project, env=variables, input=stdin, capture_output=True, text=True, timeout=CEILING_SECONDS
    )


def unit_words(text: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.removeprefix("ExecStart="))]


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def test_what_we_start_by_ourselves_imports_nothing_of_the_project_whatever_the_variables_say(
    places: ProjectPaths, project: Path, canaries: Path
) -> None:
    lay_traps(project, canaries, ("skillyard", *EARLY, *LATE))
    env = hostile_variables(project, canaries)
    service = make_service(project, places.own_home, places.user_home, ("--drain",), env={}, system="linux")
    words = [word for word in unit_words(service.text) if word != "--reconnect"]
    done = {
        "unit": run(words, places, env),
        "list": run(own_command("list", "--json"), places, env),
        "keeper": run(own_function("skillyard.dispatch.warm", "serve", "{}"), places, env),
    }
    for agent in AGENTS:
        command, more = command_in(agent, make_config(project, agent, own_command(), {}).text)
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
        done[agent] = run(command, places, {**env, **more}, f"{message}\n")

    assert sorted(file.name for file in canaries.iterdir()) == [], {name: each.stderr for name, each in done.items()}
    assert done["unit"].returncode == 0, done["unit"].stderr
    assert json.loads(done["list"].stdout)["data"]["skills"] == []
    for agent in AGENTS:
        assert '"serverInfo"' in done[agent].stdout, done[agent].stderr


@pytest.mark.parametrize("way", ["module", "script", "path"])
@pytest.mark.parametrize("variables", ["none", "PYTHONPATH"])
def test_a_command_that_is_typed_in_a_hostile_folder_imports_nothing_from_it(
    way: str, variables: str, places: ProjectPaths, project: Path, canaries: Path, tmp_path: Path
) -> None:
    """With `python -m` a folder named skillyard would win, before a line of ours runs; that is Python's own rule."""
    lay_traps(project, canaries, LATE if way != "script" or variables != "none" else (*LATE, "skillyard"))
    (project / "src").mkdir()
    lay_traps(project / "src", canaries, LATE)
    start = {
        "module": (sys.executable, "-m", "skillyard"),
        "script": (str(Path(sys.executable).with_name("skillyard")),),
        "path": (sys.executable, str(SOURCE / "__main__.py")),
    }[way]
    env = {"PYTHONPATH": f":.:{project / 'src'}:src"} if variables != "none" else {}
    (project / "skills/one").mkdir(parents=True)
    (project / "skills/one/SKILL.md").write_text("---\nname: one\ndescription: does one\nparams: {a: 1}\n---\nx\n")
    for words in (
        ("list", "--json"),
        ("validate", "skills/one"),
        ("search", "one"),
        ("run", "@one", "--json"),
        ("task", "worker_agent", "x", "TaskOutput"),
        ("dispatch", "hello", "--dry-run"),
        ("jobs", "list"),
        ("doctor",),
    ):
        done = run((*start, *words), places, env)
        assert [file.name for file in canaries.iterdir()] == [], (words, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr


def test_the_scripts_of_init_import_and_start_nothing_of_the_project(
    skillyard: Skillyard, places: ProjectPaths, project: Path, canaries: Path
) -> None:
    assert skillyard("init", "--yes").returncode == 0
    scripts = {
        "skill_scanner": "scan",
        "skill_manager": "list",
        "file_editor": "--help",
        "skill_install_workflow": "--help",
    }
    lay_traps(project, canaries, ("skillyard", *LATE))
    lay_traps(project / "bin", canaries, ("skillyard", *LATE))
    evil = project / "bin" / "skillyard.sh"
    evil.write_text(f"#!/bin/sh\ntouch {canaries}/started\n")
    evil.chmod(0o755)
    (project / "tools").mkdir()
    (project / "tools/skillyard").symlink_to(evil)
    for python in (sys.executable, sys.executable.replace(sys.prefix, sys.base_prefix)):
        for name, word in scripts.items():
            env = {"PYTHONPATH": f"{project / 'bin'}:{project}", "PATH": f"tools:.::{project}/tools:/usr/bin:/bin"}
            if starts_with_traps(python, places, env, canaries):
                del env["PYTHONPATH"]
            done = run((python, f"bin/{name}.py", word), places, env if name != "skill_scanner" else {})
            assert [file.name for file in canaries.iterdir()] == [], (python, name, done.stderr)


def starts_with_traps(python: str, places: ProjectPaths, env: dict[str, str], canaries: Path) -> bool:
    """Whether this Python imports from the PYTHONPATH before any script starts (a .pth file of its own can do that)."""
    run((python, "-c", "pass"), places, env)
    found = list(canaries.iterdir())
    for file in found:
        file.unlink()
    return bool(found)


def test_every_start_of_python_in_our_source_is_isolated() -> None:
    """Only `core.child_process` composes it freely; elsewhere `-I` follows the program at once."""
    found = []
    for file in SOURCE.rglob("*.py"):
        if "templates" in file.parts or file == SOURCE / "core" / "child_process.py":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.List | ast.Tuple) and any(_is_python(each) for each in node.elts):
                following = node.elts[1] if len(node.elts) > 1 else None
                if not (isinstance(following, ast.Constant) and following.value == "-I"):
                    found.append(f"{file.relative_to(SOURCE)}:{node.lineno}")

    assert found == []


def _is_python(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "executable"


def test_no_program_of_the_user_is_found_in_the_current_folder(
    places: ProjectPaths, project: Path, canaries: Path
) -> None:
    """`.`, an empty entry and a relative one mean the current folder, or a part of it."""
    for name in ("claude", "codex", "opencode", "uv", "git", "systemctl", "node"):
        for folder in (project, project / "tools"):
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(f"#!/bin/sh\ntouch {canaries}/{name}\necho 99.0.0\n")
            (folder / name).chmod(0o755)
    env = {"PATH": f".::tools:{os.environ['PATH']}"}
    for words in (("backend", "list"), ("doctor",), ("service", "install", "--accept"), ("service", "status")):
        done = run(own_command(*words), places, env)
        assert [file.name for file in canaries.iterdir()] == [], (words, done.stdout, done.stderr)
