"""`skillyard env`, and runs that need packages, in processes of their own; wheels made by hand, no index."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import from_json
from skillyard.core.result import Result
from tests.conftest import Skillyard, WriteSkill
from tests.wheels import CEILING_SECONDS, make_wheel

SKILL = "---\nname: report\ndescription: Reports\n---\n# Report\n"
BLOCK = '# /// script\n# dependencies = ["words>=1"]\n# ///\n'
SCRIPT = f"{BLOCK}import sys, words\nprint(words.read(), *sys.argv[1:])\n"
WORDS = (
    "from importlib.resources import files\n"
    "def read():\n    return files(__name__).joinpath('数据.txt').read_text('utf-8')\n"
)
NOSY = (
    "import sys\nfrom pathlib import Path\nfor place in ('.', sys.prefix):\n    Path(place, 'stolen').write_text('x')\n"
)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "wheels"
    make_wheel(folder, "words", {"words/__init__.py": WORDS, "words/数据.txt": "一二三"}, version="1.5")
    make_wheel(folder, "nosy", {"nosy.py": NOSY})
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def answer(done: "subprocess.CompletedProcess[str]") -> Result:
    assert done.stdout, done.stderr
    return from_json(done.stdout)


def environments(result: Result) -> list[dict[str, Any]]:
    found = result.data["environments"]
    assert isinstance(found, list)
    return found


def run_script(places: ProjectPaths, name: str, script: str, *args: str, plan: bool = False) -> dict[str, Any]:
    """`skillyard run @name:script`, as Python, in a process of its own."""
    code = (
        "import json, sys\n"
        "from skillyard.core.result import Request\n"
        "from skillyard.app.project import open_project\n"
        "name, script, plan, *args = sys.argv[1:]\n"
        "with open_project() as yard:\n"
        "    request = Request(name=name, script=script, args=tuple(args))\n"
        "    result = (yard.runtime.plan if plan else yard.runtime.run)(request)\n"
        "loaded = sorted(name for name in sys.modules if name.startswith('skillyard.runners') or name == 'tomllib')\n"
        "print(json.dumps(result.as_dict() | {'loaded': loaded}))\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    done = subprocess.run(
        [sys.executable, "-c", code, name, script, "plan" if plan else "", *args],
        cwd=places.project,
        env=env,
        capture_output=True,
        text=True,
        timeout=CEILING_SECONDS,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_script_with_packages_runs_after_one_yes_and_asks_again_when_it_changed(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str], places: ProjectPaths
) -> None:
    folder = write_skill("report", SKILL, {"scripts/say.py": SCRIPT}).parent

    refused = run_script(places, "report", "scripts/say.py")

    assert refused["data"]["type"] == "NotGranted"
    assert refused["data"]["capability"] == "packages"
    assert refused["data"]["packages"] == ["words>=1"]
    assert refused["data"]["grant"] == "skillyard env @report:scripts/say.py"
    planned = run_script(places, "report", "scripts/say.py", plan=True)["data"]
    assert planned["missing_grants"] == ["packages"]
    assert (planned["environment"]["packages"], planned["environment"]["built"]) == (["words>=1"], False)

    unasked = answer(skillyard("env", "@report", "--json", **settings))
    assert (unasked.data["type"], unasked.data["grant"]) == ("NotGranted", "skillyard env @report --accept")
    assert answer(skillyard("env", "list", "--json")).data["environments"] == []

    built = skillyard("env", "@report", "--accept", "--json", **settings)

    assert (built.returncode, built.stderr) == (0, "")
    (environment,) = environments(answer(built))
    ran = run_script(places, "report", "scripts/say.py", "世界")
    assert ran["data"]["content"] == "一二三 世界"
    planned = run_script(places, "report", "scripts/say.py", plan=True)["data"]
    assert planned["argv"][0] == f"{environment['path']}/bin/python"
    assert (planned["missing_grants"], planned["environment"]["built"]) == ([], True)

    (folder / "scripts" / "say.py").write_text(f"{SCRIPT}# changed\n", "utf-8")
    changed = run_script(places, "report", "scripts/say.py")
    assert changed["data"]["type"] == "NotGranted"  # the packages are the same, but the yes was for other bytes

    (folder / "scripts" / "say.py").write_text(SCRIPT.replace("words>=1", "words>=1.5"), "utf-8")
    other = run_script(places, "report", "scripts/say.py", plan=True)["data"]
    assert other["environment"]["digest"] != environment["digest"]
    assert other["missing_grants"] == ["packages"]


def test_command_and_json_skills_use_their_environment_too(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str]
) -> None:
    command = "---\nname: tell\ndescription: Tells\ncommand: python scripts/say.py {x}\n---\n# Tell\n"
    entry = "---\nname: count\ndescription: Counts\nprotocol: json\nentry: main.py\n---\n# Count\n"
    code = "import json, words\nprint(json.dumps({'success': True, 'action': 'a', 'data': {'n': len(words.read())}}))\n"
    write_skill(
        "tell", command, {"scripts/say.py": "import sys, words\nprint(words.read())\n", "requirements.txt": "words"}
    )
    write_skill("count", entry, {"main.py": code, "requirements.txt": "words"})

    assert answer(skillyard("run", "--json", "@tell", "1")).data["grant"] == "skillyard env @tell"
    for name in ("tell", "count"):
        assert answer(skillyard("env", f"@{name}", "--accept", "--json", **settings)).ok

    assert answer(skillyard("run", "--json", "@tell", "1")).data["content"] == "一二三"
    assert answer(skillyard("run", "--json", "@count", "a")).data["n"] == 3
    shown = skillyard("env", "list").stdout.splitlines()
    assert len(shown) == 2  # both need the same, and share it
    gone = answer(skillyard("env", "remove", shown[1].split()[0], "--json"))
    assert len(environments(gone)) == 1
    assert answer(skillyard("run", "--json", "@tell", "1")).data["type"] == "NotGranted"


def test_a_package_that_writes_outside_when_it_is_imported_fails_in_the_sandbox(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str], places: ProjectPaths, project: Path
) -> None:
    write_skill("nosy", SKILL, {"x.py": "import nosy\n", "requirements.txt": "nosy\n"})
    (environment,) = environments(answer(skillyard("env", "@nosy", "--accept", "--json", **settings)))

    ran = run_script(places, "nosy", "x.py")

    assert ran["data"]["type"] == "RuntimeFailed"
    assert not (project / "stolen").exists()
    assert not (Path(environment["path"]) / "stolen").exists()


@pytest.mark.parametrize("line", ["--index-url http://127.0.0.1:9/", "-e .", "git+https://127.0.0.1/x.git"])
def test_a_requirements_file_that_says_where_from_is_refused_by_run_and_env(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str], places: ProjectPaths, line: str
) -> None:
    write_skill("sly", SKILL, {"x.py": "import words\n", "requirements.txt": f"words\n{line}\n"})

    built, ran = answer(skillyard("env", "@sly", "--accept", "--json", **settings)), run_script(places, "sly", "x.py")

    assert built.data["type"] == ran["data"]["type"] == "InvalidCommand"
    assert "requirements.txt, line 2" in str(built.data["msg"])


def test_a_script_without_packages_pays_nothing_for_those_with(write_skill: WriteSkill, places: ProjectPaths) -> None:
    write_skill("plain", SKILL, {"x.py": "print('hello')\n"})

    ran = run_script(places, "plain", "x.py")

    assert ran["data"]["content"] == "hello"
    assert not {"tomllib", "skillyard.runners.specifiers", "skillyard.runners.environments"} & set(ran["loaded"])


def test_inside_an_agent_nothing_is_granted(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str]
) -> None:
    write_skill("report", SKILL, {"scripts/say.py": SCRIPT})

    refused = skillyard("env", "@report", "--accept", "--json", SKILLYARD_DEPTH="1", **settings)

    assert answer(refused).data["type"] == "PermissionDenied"
    assert answer(skillyard("env", "list", "--json")).data["environments"] == []


def test_a_skill_without_packages_and_one_that_is_not_there_are_said_so(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("plain", SKILL, {"x.py": "print(1)\n"})

    assert skillyard("env", "@plain").stdout.startswith("✅ skillyard no packages needed: plain")
    assert answer(skillyard("env", "@nobody", "--json")).data["type"] == "SkillNotFound"
    assert answer(skillyard("env", "@plain:y.py", "--json")).data["type"] == "ScriptNotFound"
    assert answer(skillyard("env", "@plain", "more", "--json")).data["type"] == "InvalidArgs"
    assert answer(skillyard("env", "remove", "--json")).data["type"] == "InvalidArgs"


def on_terminal(places: ProjectPaths, settings: dict[str, str], said: str, *words: str) -> tuple[int, str, str]:
    """The command with a person at the terminal: how it ended, what it printed, what the person saw."""
    home = {"HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home), "LANG": "C.UTF-8"}
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "skillyard", *words],
        cwd=places.project,
        env={**home, **settings, "PATH": os.environ["PATH"]},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.write(terminal, said.encode())
        printed, _ = process.communicate(timeout=CEILING_SECONDS)
        seen = os.read(terminal, 4096).decode() if select.select([terminal], [], [], 0)[0] else ""
        os.close(theirs)
        os.close(terminal)
    return process.returncode, printed, seen


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("\n", 1)])
def test_on_a_terminal_the_packages_are_shown_and_only_a_clear_yes_builds(
    said: str, code: int, write_skill: WriteSkill, settings: dict[str, str], places: ProjectPaths
) -> None:
    write_skill("report", SKILL, {"scripts/say.py": SCRIPT})
    target = "./.claude/skills/report:scripts/say.py"

    ended, printed, seen = on_terminal(places, settings, said, "env", target, "--json")

    assert "@report needs words>=1. Build an environment for it? [y/N]" in seen
    assert ended == code
    assert from_json(printed).ok is (code == 0)


def test_a_run_on_a_terminal_asks_once_builds_and_runs(
    write_skill: WriteSkill, settings: dict[str, str], places: ProjectPaths
) -> None:
    write_skill("report", SKILL, {"scripts/say.py": SCRIPT})

    ended, printed, seen = on_terminal(places, settings, "y\n", "run", "--json", "@report:scripts/say.py", "世界")

    assert seen.count("Build an environment for it?") == 1
    assert (ended, from_json(printed).data["content"]) == (0, "一二三 世界")
    assert on_terminal(places, settings, "", "run", "--json", "@report:scripts/say.py")[0] == 0
