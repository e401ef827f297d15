"""Requirements that cannot be had, packages that nobody declares, and other programs than Python's."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import Skillyard, WriteSkill
from tests.faces.test_env import SKILL, answer
from tests.wheels import make_wheel

NEEDS = "import words\nprint(words.read())\n"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    make_wheel(tmp_path / "wheels", "words", {"words.py": "def read():\n    return 'read'\n"}, version="1.5")
    make_wheel(tmp_path / "wheels", "extra", {"extra.py": "VALUE = 7\n"})
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}


def test_a_requirement_that_cannot_be_had_is_named_with_its_line_and_can_be_left_out(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str]
) -> None:
    write_skill("report", SKILL, {"x.py": NEEDS, "requirements.txt": "words\n\nnot-to-be-had==9\n"})

    failed = answer(skillyard("env", "@report", "--accept", "--json", **settings))

    assert failed.data["requirement"] == "not-to-be-had==9"
    assert failed.data["place"] == "requirements.txt, line 3"
    assert failed.data["grant"] == "skillyard env @report --without not-to-be-had"
    unasked = answer(skillyard("env", "@report", "--without", "not-to-be-had", "--json", **settings))
    assert unasked.data["grant"] == "skillyard env @report --without not-to-be-had --accept"
    assert answer(skillyard("env", "@report", "--without", "not-to-be-had", "--accept", "--json", **settings)).ok
    assert answer(skillyard("run", "--json", "@report:x.py")).data["content"] == "read"


def test_a_python_that_is_not_here_can_be_left_out(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str]
) -> None:
    block = '# /// script\n# requires-python = ">=3.99"\n# dependencies = []\n# ///\nprint("went on")\n'
    write_skill("report", SKILL, {"x.py": block})
    refused = answer(skillyard("run", "--json", "@report:x.py"))
    assert "x.py needs Python >=3.99; this machine has" in str(refused.data["msg"])
    assert refused.data["grant"] == "skillyard env @report:x.py --without=python"

    assert answer(skillyard("env", "@report:x.py", "--without=python", "--accept", "--json", **settings)).ok

    assert answer(skillyard("run", "--json", "@report:x.py")).data["content"] == "went on"


def test_of_a_project_file_that_is_broken_the_imports_count(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str]
) -> None:
    """What only installers read must not stop a program."""
    write_skill("report", SKILL, {"x.py": NEEDS, "pyproject.toml": '[project]\nname = "report\n'})
    assert answer(skillyard("run", "--json", "@report:x.py")).data["imported"] == ["words"]

    assert answer(skillyard("env", "@report:x.py", "--accept", "--json", **settings)).ok

    assert answer(skillyard("run", "--json", "@report:x.py")).data["content"] == "read"


def test_a_line_that_is_refused_can_be_left_out_too(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str]
) -> None:
    write_skill("report", SKILL, {"x.py": NEEDS, "requirements.txt": "words\n-e .\n"})
    refused = answer(skillyard("run", "--json", "@report:x.py"))
    assert refused.data["grant"] == "skillyard env @report:x.py '--without=-e .'"

    assert answer(skillyard("env", "@report:x.py", "--without=-e .", "--accept", "--json", **settings)).ok

    assert answer(skillyard("run", "--json", "@report:x.py")).data["content"] == "read"


def test_a_package_that_is_imported_later_is_named_when_it_is_missing_and_can_be_added(
    skillyard: Skillyard, write_skill: WriteSkill, settings: dict[str, str]
) -> None:
    write_skill("report", SKILL, {"x.py": "def main():\n    import extra\n    print(extra.VALUE)\nmain()\n"})
    failed = answer(skillyard("run", "--json", "@report:x.py"))
    assert failed.data["grant"] == "skillyard env @report:x.py --with extra"

    assert answer(skillyard("env", "@report:x.py", "--with", "extra", "--accept", "--json", **settings)).ok

    assert answer(skillyard("run", "--json", "@report:x.py")).data["content"] == "7"


@pytest.mark.parametrize("words", [("--with", "a b c"), ("--with", "npm:"), ("--with", "git+https://127.0.0.1/x")])
def test_what_names_no_package_is_refused(
    skillyard: Skillyard, write_skill: WriteSkill, words: tuple[str, str]
) -> None:
    write_skill("report", SKILL, {"x.py": NEEDS})

    assert answer(skillyard("env", "@report", *words, "--accept", "--json")).data["type"] in {
        "InvalidArgs",
        "InvalidCommand",
    }


@pytest.mark.parametrize(
    ("script", "files"),
    [
        (
            "scripts/run.py",
            {"scripts/run.py": "from scripts.helper import W\nprint(W)\n", "scripts/helper.py": "W = 'ran'\n"},
        ),
        (
            "scripts/run.py",
            {
                "scripts/run.py": "from .helper import W\nprint(W)\n",
                "scripts/__init__.py": "",
                "scripts/helper.py": "W = 'ran'\n",
            },
        ),
        ("tool", {"tool/__main__.py": "from tool.helper import W\nprint(W)\n", "tool/helper.py": "W = 'ran'\n"}),
        ("run.py", {"run.py": "from pack.helper import W\nprint(W)\n", "src/pack/helper.py": "W = 'ran'\n"}),
        (
            "bin/run.py",
            {
                "bin/run.py": "import sys\nfrom pathlib import Path\n"
                "sys.path.insert(0, str(Path(__file__).parent.parent / 'inner' / 'code'))\n"
                "import helper\nprint(helper.W)\n",
                "inner/code/helper.py": "W = 'ran'\n",
            },
        ),
    ],
)
def test_a_program_finds_the_modules_of_its_skill(
    skillyard: Skillyard, write_skill: WriteSkill, script: str, files: dict[str, str]
) -> None:
    write_skill("report", SKILL, files)

    assert answer(skillyard("run", "--json", f"@report:{script}")).data["content"] == "ran"


def test_python_dash_m_runs_a_module_of_the_skill(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    text = "---\nname: report\ndescription: Reports\ncommand: python -m pack.tool {x}\n---\n# Report\n"
    files = {
        "src/pack/__init__.py": "",
        "src/pack/tool.py": "import sys\nfrom . import __name__ as n\nprint(n, sys.argv[1])\n",
    }
    write_skill("report", text, files)

    assert answer(skillyard("run", "--json", "@report", "a")).data["content"] == "pack a"


def test_a_compiled_program_runs_as_a_script_and_one_of_another_system_is_named(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    folder = write_skill("report", SKILL, {"other": "MZ\0\0"}).parent
    shutil.copy("/bin/echo", folder / "tool")

    assert answer(skillyard("run", "--json", "@report:tool", "hello")).data["content"] == "hello"
    assert "another system" in str(answer(skillyard("run", "--json", "@report:other")).data["msg"])


@pytest.mark.skipif(bool(shutil.which("pwsh")), reason="pwsh is installed")
def test_a_missing_program_is_named_with_where_to_get_it(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("report", SKILL, {"x.ps1": "Write-Host 1\n"})

    missing = answer(skillyard("run", "--json", "@report:x.ps1"))

    assert (missing.data["type"], missing.data["program"]) == ("InvalidCommand", "pwsh")
    assert "https://" in str(missing.meta["hint"])


def test_a_server_on_loopback_needs_no_grant(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    code = (
        "import threading, urllib.request\nfrom http.server import HTTPServer, SimpleHTTPRequestHandler\n"
        "server = HTTPServer(('127.0.0.1', 0), SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "with urllib.request.urlopen(f'http://127.0.0.1:{server.server_port}/') as reply:\n    print(reply.status)\n"
    )
    write_skill("report", SKILL, {"x.py": code})

    ran = answer(skillyard("run", "--json", "@report:x.py"))

    if ran.meta["sandbox"] != "full":
        pytest.skip(f"the sandbox here is {ran.meta['sandbox']}")
    assert ran.data["content"] == "200"


def test_exit_codes_that_the_skill_or_the_caller_names_are_success(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    code = "import sys\nprint('found 3')\nprint('why', file=sys.stderr)\nsys.exit(1)\n"
    declared = SKILL.replace(
        "description: Reports\n", "description: Reports\nmetadata:\n  success_exit_codes: [0, 1]\n"
    )
    write_skill("report", SKILL, {"x.py": code})
    write_skill("lint", declared.replace("report", "lint"), {"x.py": code})

    assert answer(skillyard("run", "--json", "@report:x.py")).data["type"] == "RuntimeFailed"
    for words in (("--check-exit", "0,1", "@report:x.py"), ("@lint:x.py",)):
        ran = answer(skillyard("run", "--json", *words))
        assert ran.ok
        assert (ran.data["exit_code"], ran.data["content"], ran.data["stderr"]) == (1, "found 3", "why")
    assert answer(skillyard("run", "--json", "--check-exit", "0,x", "@report:x.py")).data["type"] == "InvalidArgs"
    assert answer(skillyard("run", "--json", "--check-exit", "2", "@lint:x.py")).data["type"] == "RuntimeFailed"


def test_another_installed_python_runs_a_program_that_asks_for_it(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    wanted = f"!={sys.version_info.major}.{sys.version_info.minor}.*,>=3.9"
    block = f'# /// script\n# requires-python = "{wanted}"\n# ///\n'
    write_skill("report", SKILL, {"x.py": f"{block}import sys\nprint(sys.version_info[:2])\n"})

    ran = answer(skillyard("run", "--json", "@report:x.py"))

    if not ran.ok:
        assert "this machine has" in str(ran.data["msg"])
        pytest.skip("there is only one Python here")
    assert ran.data["content"] != str(sys.version_info[:2])
