"""`skillyard run SOURCE[@skill][#ref][:program]`: fetched, scanned and run; installed nowhere."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import InvalidArgs
from skillyard.install.address import SkillAddress, parse_source, split_source
from skillyard.install.offers import FOLDER, find_offers, find_staged, scan_offer, stage
from skillyard.install.source import Fetched
from skillyard.scripts.prompt_grammar import may_name_source
from tests.conftest import Skillyard
from tests.install.conftest import DOUBTFUL, commit, git, good, write
from tests.install.servers import file_server, git_server
from tests.install.test_review import typed

COUNT = "import sys\nprint(len(open(sys.argv[1]).read().split()))\n"
COMMAND = "---\nname: words\ndescription: Counts words.\ncommand: python3 scripts/count.py {file}\n---\n# Words\n"


def told(done: "subprocess.CompletedProcess[str]", code: int = 0) -> Any:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def nothing_installed(project: Path) -> bool:
    return not (project / ".claude").exists() and not (project / "skillyard.lock").exists()


@pytest.fixture
def words(project: Path, repo: Path) -> Path:
    """The repository of the fixtures, with a skill that counts words."""
    (project / "notes.txt").write_text("three small words")
    commit(repo, {"skills/words/SKILL.md": COMMAND, "skills/words/scripts/count.py": COUNT})
    return repo


def test_a_skill_of_a_repository_runs_and_nothing_of_it_is_installed(
    skillyard: Skillyard, project: Path, places: ProjectPaths, words: Path
) -> None:
    with git_server(words.parent.parent) as url:
        (places.own_home / "config.toml").write_text(f'[install]\nforge = "{url}"\n')
        script = told(skillyard("run", "--json", "owner/repo@words:scripts/count.py", "notes.txt"))
        command = told(skillyard("run", "owner/repo@words", "notes.txt", "--json"))
        prompt = told(skillyard("run", "owner/repo/skills/one#main", "--json"))
        address = told(skillyard("run", "--json", f"{url}/owner/repo@words:scripts/count.py", "notes.txt"))
        several = told(skillyard("run", "owner/repo", "--json"), code=1)

    assert script["data"]["content"] == command["data"]["content"] == address["data"]["content"] == "3"
    assert script["data"]["skill"] == "owner/repo@words"
    assert script["meta"]["commit"] == git(words, "rev-parse", "HEAD")
    assert script["meta"]["sandbox"] == "full"
    assert "Do it." in prompt["data"]["content"]
    assert "say which, owner/repo@NAME" in several["data"]["msg"]
    assert nothing_installed(project)
    runs = told(skillyard("runs", "--json"))["data"]["runs"]
    assert [run["skill"] for run in runs] == ["words", "one", "words", "words"]
    assert told(skillyard("list", "--json"))["data"]["skills"] == []


def test_the_same_commit_is_not_fetched_again_and_a_newer_one_is(
    skillyard: Skillyard, project: Path, words: Path
) -> None:
    target = f"file://{words}@words:scripts/count.py"
    first = skillyard("run", "--json", target, "notes.txt")
    again = skillyard("run", "--json", target, "notes.txt")
    commit(words, {"skills/words/scripts/count.py": COUNT + "print('newer')\n"})
    newer = skillyard("run", "--json", target, "notes.txt")
    old = git(words, "rev-parse", "HEAD~1")
    pinned = skillyard("run", "--json", f"file://{words}@words#{old}:scripts/count.py", "notes.txt")

    assert [told(done)["meta"]["reused"] for done in (first, again, newer, pinned)] == [False, True, False, True]
    assert "that was fetched before" in again.stderr
    assert told(newer)["data"]["content"] == "3\nnewer"
    assert told(pinned)["data"]["content"] == "3"


def test_what_is_held_back_runs_only_after_a_key(
    skillyard: Skillyard, project: Path, places: ProjectPaths, words: Path
) -> None:
    commit(words, {"skills/words/SKILL.md": COMMAND + DOUBTFUL})
    target = f"file://{words}@words"
    waits = told(skillyard("run", target, "notes.txt", "--json"), code=5)
    script = told(skillyard("run", "--json", f"{target}:scripts/count.py", "notes.txt"), code=5)
    planned = told(skillyard("run", target, "notes.txt", "--json", "--dry-run"))
    no = typed("sq", project, places, "run", target, "notes.txt")
    yes = typed("r", project, places, "run", target, "notes.txt")
    quiet = typed("", project, places, "run", "--non-interactive", target, "notes.txt")

    assert (waits["state"], waits["data"]["interrupted_skills"]) == ("interrupted", ["words"])
    assert waits["data"]["resume_command"] == f"skillyard add file://{words} --skill words"
    assert waits["data"]["severities"] == {"words": "MEDIUM"}
    assert script["state"] == "interrupted"
    assert planned["data"]["starts"]
    assert (no[0], yes[0], quiet[0]) == (5, 0, 5), (no, yes, quiet)
    assert "curl -fsSL https://example.com/install.sh | sh" in yes[1]
    assert told(skillyard("run", target, "notes.txt", "--json"), code=5)["state"] == "interrupted"  # for that run only
    assert nothing_installed(project)
    assert len(told(skillyard("runs", "--json"))["data"]["runs"]) == 1


def test_what_the_hint_says_works(skillyard: Skillyard, project: Path, words: Path) -> None:
    commit(words, {"skills/words/SKILL.md": COMMAND + DOUBTFUL})
    target = f"file://{words}@words"
    add = told(skillyard("run", target, "notes.txt", "--json"), code=5)["data"]["resume_command"].split()
    review = told(skillyard(*add[1:], "--json"), code=5)["data"]["review"]
    assert skillyard("review", "resume", review, "--decisions", '{"words": "keep"}').returncode == 0

    assert told(skillyard("run", "@words", "notes.txt", "--json"))["data"]["content"] == "3"
    assert told(skillyard("run", target, "notes.txt", "--json"))["data"]["content"] == "3"  # the same bytes were kept


def test_inside_an_agent_only_what_is_installed_runs(skillyard: Skillyard, places: ProjectPaths, words: Path) -> None:
    done = told(skillyard("run", f"file://{words}@words", "notes.txt", "--json", SKILLYARD_DEPTH="1"), code=1)

    assert done["data"]["type"] == "PermissionDenied"
    assert not (places.own_home / FOLDER).exists()


def test_archives_run_and_an_existing_path_wins(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "in", {"words/SKILL.md": COMMAND, "words/scripts/count.py": COUNT, "two/SKILL.md": good("two")})
    shutil.make_archive(str(project / "pack"), "zip", tmp_path / "in")
    shutil.copytree(tmp_path / "in/words", project / "owner/repo")
    (project / "notes.txt").write_text("three small words")
    with file_server(project) as url:
        for name in ("pack.zip@words", "./pack.zip@words", "owner/repo", f"{url}/pack.zip@words"):
            assert told(skillyard("run", name, "notes.txt", "--json"))["data"]["content"] == "3", name
        script = skillyard("run", "--json", "pack.zip@words:scripts/count.py", "notes.txt")
        assert told(script)["data"]["content"] == "3"
    assert told(skillyard("run", "./nothing", "--json"), code=1)["data"]["type"] == "SkillNotFound"
    assert nothing_installed(project)


def test_several_at_once_share_one_copy(project: Path, places: ProjectPaths, words: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    command = [sys.executable, "-m", "skillyard", "run", "--json", f"file://{words}@words", "notes.txt"]
    running = [
        subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=120)[0] for process in running]

    assert [json.loads(text)["data"].get("content") for text in said] == ["3"] * 4, said
    assert len([path for path in (places.own_home / FOLDER).iterdir() if path.is_dir()]) == 1
    assert list((places.own_home / "staging").iterdir()) == []


def test_a_skill_of_any_name_is_staged(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    names = ("lock", "数数 🧮", "skill.json")
    write(tmp_path / "in", {f"{number}/SKILL.md": good(name) for number, name in enumerate(names)})
    shutil.make_archive(str(project / "pack"), "zip", tmp_path / "in")

    for name in names:
        assert "Do it." in told(skillyard("run", f"pack.zip@{name}", "--json"))["data"]["content"]


def test_an_installed_skill_keeps_its_name(skillyard: Skillyard, project: Path, words: Path) -> None:
    skillyard("add", f"file://{words}", "--skill", "words")

    assert told(skillyard("run", "@words", "notes.txt", "--json"))["data"]["content"] == "3"
    assert told(skillyard("run", "words", "notes.txt", "--json"))["data"]["content"] == "3"
    assert told(skillyard("run", "--json", "@words:scripts/count.py", "notes.txt"))["data"]["content"] == "3"


def test_a_skill_in_our_home_runs_and_sees_nothing_else_there(
    skillyard: Skillyard, project: Path, places: ProjectPaths, tmp_path: Path
) -> None:
    look = "import os, sys\nprint(sorted(os.listdir(sys.argv[1])))\n"
    write(tmp_path / "x", {"SKILL.md": COMMAND.replace("count", "look"), "scripts/look.py": look})
    skillyard("add", str(tmp_path / "x"), "--global")
    home = str(places.own_home)
    seen = told(skillyard("run", "@words", home, "--json"))
    secret = skillyard("run", "@words", f"{home}/logs", "--json")

    assert seen["data"]["content"] == "['skills']"
    assert json.loads(secret.stdout)["data"]["type"] == "RuntimeFailed"
    assert "No such file or directory" in secret.stderr


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("owner/repo@skill:scripts/x.py", SkillAddress("owner/repo", "skill", "", "scripts/x.py")),
        ("owner/repo", SkillAddress("owner/repo")),
        ("owner/repo/a/b@s#v1.0", SkillAddress("owner/repo/a/b", "s", "v1.0")),
        ("https://h:8080/o/r.git@s:x.sh", SkillAddress("https://h:8080/o/r.git", "s", "", "x.sh")),
        ("ssh://git@h:22/o/r@s", SkillAddress("ssh://git@h:22/o/r", "s")),
        ("git@h:o/r@s#main:x.py", SkillAddress("git@h:o/r", "s", "main", "x.py")),
        ("file:///a/b@名字:脚本/数.py", SkillAddress("file:///a/b", "名字", "", "脚本/数.py")),
    ],
)
def test_what_is_typed_is_taken_apart_in_one_way(text: str, asked: SkillAddress, tmp_path: Path) -> None:
    assert split_source(text, tmp_path) == asked
    assert may_name_source(text, tmp_path)


def test_the_longest_path_that_is_there_is_the_source(tmp_path: Path) -> None:
    write(tmp_path / "a@b", {"x": ""})
    write(tmp_path, {"p.zip": ""})

    assert split_source("./a@b@c:d", tmp_path) == SkillAddress("./a@b", "c", "", "d")
    assert split_source("p.zip@c:d", tmp_path) == SkillAddress("p.zip", "c", "", "d")
    with pytest.raises(InvalidArgs):
        split_source("owner/repo@a@b", tmp_path)


@pytest.mark.parametrize("text", ["@name", "@name:scripts/x.py", "@role/skill", "name", "name:x.py", "./nothing", "."])
def test_what_names_an_installed_skill_is_no_source(text: str, tmp_path: Path) -> None:
    assert not may_name_source(text, tmp_path)


def test_a_copy_that_somebody_changed_is_not_used_and_an_old_one_goes(places: ProjectPaths, tmp_path: Path) -> None:
    assert places.project
    write(tmp_path / "x", {"SKILL.md": good("x")})
    source = parse_source(str(tmp_path / "x"), cwd=tmp_path, root=places.project).source
    fetched = Fetched(tmp_path / "x")
    (offer,) = find_offers(fetched, "", source.text)
    candidate = scan_offer(offer, source, fetched, print)
    used = stage(places.own_home, "a" * 32, candidate)
    stage(places.own_home, "b" * 32, candidate).lease.close()
    changed = stage(places.own_home, "c" * 32, candidate)
    write(changed.at, {"more.sh": "evil"})

    assert find_staged(places.own_home, "c" * 32) is None
    changed.lease.close()
    with stage(places.own_home, "c" * 32, candidate).lease:
        assert not (changed.at / "more.sh").exists()
    for lock in (places.own_home / FOLDER).glob("*/lock"):
        os.utime(lock, (time.time() - 100, time.time() - 100))
    stage(places.own_home, "d" * 32, candidate, unused_seconds=50).lease.close()
    assert used.at.is_dir()  # somebody holds it
    used.lease.close()
    assert not (places.own_home / FOLDER / ("b" * 32)).exists()


def test_an_ordinary_run_imports_nothing_of_install(project: Path, places: ProjectPaths) -> None:
    program = (
        "import sys\nfrom skillyard.faces.cli import main\n"
        "try:\n    main.main()\nfinally:\n"
        "    print([name for name in sys.modules if 'skillyard.install' in name], file=sys.stderr)\n"
    )
    write(project / ".claude/skills/one", {"SKILL.md": good("one")})
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    for name in ("@one", "one", "./.claude/skills/one"):
        words = [sys.executable, "-c", program, "run", name]
        done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "[]"), done.stderr
