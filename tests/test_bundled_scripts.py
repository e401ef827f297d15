"""Programs as skills in the wild ship them: each must just run, with one grant at most.

Made by us after what 153,533 SKILL.md files have beside them: Python, shell and JavaScript in scripts/ and elsewhere,
files and stdin in, bundled data, verdicts as exit codes, Chinese everywhere.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.envelope import from_json, parse
from tests.conftest import Skillyard, WriteSkill

PROMPT = "---\nname: kit\ndescription: A kit of scripts\n---\n# Kit\n\nRun scripts/x.py on the file.\n"

READ_FILE = """\
#!/usr/bin/env python3
import sys
text = open(sys.argv[1], encoding="utf-8").read()
print(f"{len(text)} 字")
"""
BESIDE = """\
import json
from pathlib import Path
from lib.words import WORDS
rules = json.loads((Path(__file__).parent.parent / "data" / "规则.json").read_text("utf-8"))
print(json.dumps({"rules": len(rules), "words": WORDS}, ensure_ascii=False))
"""
VERDICT = """\
#!/bin/sh
# Exit code as verdict, like a linter.
grep -q TODO "$1" && { echo "$1: TODO left" >&2; exit 1; }
echo clean
"""
WRITES = """\
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("names", nargs="+")
options = parser.parse_args()
pathlib.Path(options.out).write_text("\\n".join(options.names), "utf-8")
"""


def test_a_script_reads_the_file_that_is_named(skillyard: Skillyard, write_skill: WriteSkill, project: Path) -> None:
    write_skill("kit", PROMPT, {"scripts/count.py": READ_FILE})
    (project / "文章.md").write_text("你好世界", "utf-8")

    result = parse(skillyard("run", "@kit:scripts/count.py", "文章.md").stdout)

    assert result.data == {"skill": "kit", "content": "4 字"}


def test_a_script_finds_its_own_modules_and_data(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    files = {
        "scripts/beside.py": BESIDE,
        "scripts/lib/__init__.py": "",
        "scripts/lib/words.py": "WORDS = ['一', '二']\n",
        "data/规则.json": "[1, 2, 3]",
    }
    write_skill("kit", PROMPT, files)

    result = from_json(skillyard("run", "--json", "@kit:scripts/beside.py").stdout)

    assert result.data == {"skill": "kit", "rules": 3, "words": ["一", "二"]}


def test_a_script_outside_scripts_runs_too(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("kit", PROMPT, {"tool.py": "print('root')\n", "tools/deep/x.sh": "echo deep\n"})

    assert parse(skillyard("run", "@kit:tool.py").stdout).data["content"] == "root"
    assert parse(skillyard("run", "@kit:tools/deep/x.sh").stdout).data["content"] == "deep"


def test_piped_input_reaches_the_script(places: ProjectPaths, write_skill: WriteSkill, project: Path) -> None:
    write_skill("kit", PROMPT, {"scripts/upper.py": "import sys\nprint(sys.stdin.read().upper())\n"})

    ran = subprocess.run(
        [sys.executable, "-m", "skillyard", "run", "@kit:scripts/upper.py"],
        input="héllo 你好",
        cwd=project,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(places.user_home),
            "SKILLYARD_HOME": str(places.own_home),
            "LANG": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )

    assert parse(ran.stdout).data["content"] == "HÉLLO 你好"


def test_an_exit_code_is_a_verdict_with_its_reason(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("kit", PROMPT, {"scripts/check.sh": VERDICT})
    (project / "good.txt").write_text("fine")
    (project / "bad.txt").write_text("TODO: everything")

    good, bad = (skillyard("run", "@kit:scripts/check.sh", name) for name in ("good.txt", "bad.txt"))

    assert parse(good.stdout).data["content"] == "clean"
    assert bad.returncode == 1
    failed = parse(bad.stdout).data
    assert (failed["exit_code"], failed["msg"]) == (1, "bad.txt: TODO left")


def test_a_usage_error_of_a_script_is_invalid_args_with_its_own_usage(
    skillyard: Skillyard, write_skill: WriteSkill
) -> None:
    write_skill("kit", PROMPT, {"scripts/write.py": WRITES})

    failed = parse(skillyard("run", "@kit:scripts/write.py", "a").stdout).data

    assert failed["type"] == "InvalidArgs"
    assert "usage: write.py" in str(failed["usage"])
    assert "--out" in str(failed["msg"])


def test_options_of_a_script_are_its_own_also_those_that_look_like_ours(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("kit", PROMPT, {"scripts/say.py": "import sys\nprint(sys.argv[1:])\n"})

    result = parse(skillyard("run", "@kit:scripts/say.py", "--json", "--timeout", "5", "-x", "$(id)").stdout)

    assert result.data["content"] == "['--json', '--timeout', '5', '-x', '$(id)']"


def test_a_script_writes_into_mybox_and_the_path_is_told(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    write_skill("kit", PROMPT, {"scripts/write.py": WRITES})

    result = parse(skillyard("run", "@kit:scripts/write.py", "--out", "mybox/名单.txt", "甲", "乙").stdout)

    assert result.data == {"skill": "kit", "output_path": "mybox/名单.txt", "output_size": "7B"}
    assert (project / "mybox/名单.txt").read_text("utf-8") == "甲\n乙"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_javascript_script_runs(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("kit", PROMPT, {"scripts/x.mjs": "console.log(JSON.stringify({argv: process.argv.slice(2)}));\n"})

    assert parse(skillyard("run", "@kit:scripts/x.mjs", "你好").stdout).data["argv"] == ["你好"]


def test_a_folder_that_is_installed_nowhere_runs_ad_hoc(
    skillyard: Skillyard, write_skill: WriteSkill, tmp_path: Path, project: Path
) -> None:
    write_skill("kit", PROMPT, {"scripts/count.py": READ_FILE}, root=tmp_path / "downloads")
    (project / "a.md").write_text("abc")

    result = parse(skillyard("run", "../downloads/kit:scripts/count.py", "a.md").stdout)

    assert result.data["content"] == "3 字"


def test_a_folder_without_a_skill_md_has_scripts_all_the_same(skillyard: Skillyard, project: Path) -> None:
    folder = project / "loose"
    folder.mkdir()
    (folder / "x.py").write_text("print('loose')\n")

    assert parse(skillyard("run", "./loose:x.py").stdout).data["content"] == "loose"


@pytest.mark.parametrize("script", ["../../../etc/passwd", "/etc/passwd", "scripts/out.py"])
def test_a_script_that_leads_out_of_its_skill_is_refused(
    skillyard: Skillyard, write_skill: WriteSkill, tmp_path: Path, script: str
) -> None:
    folder = write_skill("kit", PROMPT, {"scripts/a.py": ""}).parent
    (tmp_path / "out.py").write_text("print('out')\n")
    (folder / "scripts/out.py").symlink_to(tmp_path / "out.py")

    assert parse(skillyard("run", f"@kit:{script}").stdout).data["type"] == "PermissionDenied"


def test_a_script_that_is_not_there_names_those_that_are(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("kit", PROMPT, {"scripts/a.py": "", "b.sh": ""})

    failed = parse(skillyard("run", "@kit:scripts/none.py").stdout).data

    assert (failed["type"], failed["scripts"]) == ("ScriptNotFound", ["b.sh", "scripts/a.py"])


def test_a_script_that_reads_the_whole_project_needs_one_grant_where_that_is_narrowed_and_says_which(
    skillyard: Skillyard, write_skill: WriteSkill, project: Path
) -> None:
    find = "import pathlib\nprint(sum(1 for _ in pathlib.Path('src').rglob('*.txt')), open('src/a.txt').read())\n"
    write_skill("kit", PROMPT, {"scripts/find.py": find})
    (project / "src").mkdir()
    (project / "src/a.txt").write_text("a")

    assert parse(skillyard("run", "@kit:scripts/find.py").stdout).data["content"] == "1 a"
    (project / "skillyard.toml").write_text('[run]\nread = "params"\n')
    refused = parse(skillyard("run", "@kit:scripts/find.py").stdout)
    skillyard("grant", "@kit", str(refused.data["may_need"]), "--accept")

    assert parse(skillyard("run", "@kit:scripts/find.py").stdout).data["content"] == "1 a"


def test_the_script_of_a_skill_with_a_command_runs_beside_it(skillyard: Skillyard, write_skill: WriteSkill) -> None:
    write_skill("both", "---\nname: both\ndescription: x\ncommand: echo {x}\n---\n", {"scripts/y.py": "print('y')\n"})

    assert parse(skillyard("run", "@both", "x").stdout).data["content"] == "x"
    assert parse(skillyard("run", "@both:scripts/y.py").stdout).data["content"] == "y"
