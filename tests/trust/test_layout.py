"""What `skillyard init` lays out: in a new folder, in one that is in use, twice, and where it may not."""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from skillyard import __version__
from skillyard.app.paths import ProjectPaths, find_paths
from skillyard.catalog.manifest import read_skill
from skillyard.core.envelope import from_json
from skillyard.core.errors import InvalidArgs, PermissionDenied
from skillyard.core.result import Result
from skillyard.trust.own_files import LAYOUT, WRITTEN, Standing, is_ours, lay_out, look
from tests.conftest import Skillyard

FILES = [piece.path for piece in LAYOUT if piece.template]
SCRIPTS = [path for path in FILES if path.startswith("bin/")]


def standings(root: Path) -> dict[str, str]:
    return {found.path: str(found.standing) for found in look(root)}


def init(skillyard: Skillyard, *args: str, cwd: Path | None = None) -> tuple[int, Result]:
    done = skillyard("init", "--json", *args, cwd=cwd)
    return done.returncode, from_json(done.stdout)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_fresh_folder_gets_everything_that_the_seeds_describe(skillyard: Skillyard, tmp_path: Path) -> None:
    code, result = init(skillyard, "new/project", cwd=tmp_path)

    root = tmp_path / "new" / "project"
    assert (code, result.summary) == (0, "project ready: 13 made, 0 kept")
    assert result.data["root"] == str(root)
    assert result.data["made"] == [piece.path for piece in LAYOUT]
    for folder in (".claude/skills", "agents", "mybox/output", "mybox/workspace", "mybox/temp"):
        assert (root / folder).is_dir()
    assert all((root / file).is_file() for file in FILES)
    assert all(os.access(root / script, os.X_OK) for script in SCRIPTS)
    assert [path.name for path in root.rglob(".*.*") if path.name != ".gitignore"] == []
    assert find_paths(root / "mybox", {"HOME": str(tmp_path / "home")}).project == root


def test_a_second_run_keeps_everything_and_changes_nothing(skillyard: Skillyard, project: Path) -> None:
    init(skillyard)
    before = contents(project)

    code, result = init(skillyard)

    assert (code, result.data["made"], result.data["differs"]) == (0, [], [])
    assert result.data["kept"] == [piece.path for piece in LAYOUT]
    assert contents(project) == before


def test_what_exists_is_never_overwritten(skillyard: Skillyard, project: Path) -> None:
    (project / "bin").mkdir()
    (project / "bin/skill_manager.py").write_text("print('mine')\n")
    (project / "skillyard.toml").write_text("[catalog]\nroots = ['more']\n")
    (project / ".claude/agents").mkdir(parents=True)
    (project / ".claude/agents/skills_agent.md").symlink_to("nowhere.md")

    code, result = init(skillyard)

    assert code == 0
    assert result.data["differs"] == [".claude/agents/skills_agent.md", "bin/skill_manager.py"]
    assert "skillyard.toml" in str(result.data["kept"])
    assert (project / "bin/skill_manager.py").read_text() == "print('mine')\n"
    assert not (project / ".claude/agents/nowhere.md").exists()


def test_a_check_writes_nothing_and_fails_on_what_is_missing(skillyard: Skillyard, tmp_path: Path) -> None:
    code, result = init(skillyard, "--check", "absent", cwd=tmp_path)

    assert (code, result.state) == (1, "error")
    assert result.data["missing"] == [piece.path for piece in LAYOUT]
    assert not (tmp_path / "absent").exists()


def test_a_check_names_what_changed(skillyard: Skillyard, project: Path) -> None:
    init(skillyard)
    with (project / "bin/skill_scanner.py").open("a") as file:
        file.write("# mine\n")
    (project / "bin/file_editor.py").unlink()

    code, result = init(skillyard, "--check")

    assert code == 1
    assert (result.data["differs"], result.data["missing"]) == (["bin/skill_scanner.py"], ["bin/file_editor.py"])
    assert "differs  bin/skill_scanner.py" in skillyard("init", "--check").stdout


def test_a_check_passes_in_a_clone_and_where_the_owner_configured_it(skillyard: Skillyard, project: Path) -> None:
    """Git keeps no empty folders, and settings are there to be changed."""
    init(skillyard)
    for folder in (".claude/skills", "agents", "mybox/output", "mybox/temp", "mybox/workspace"):
        (project / folder).rmdir()
    (project / "skillyard.toml").write_text("[catalog]\nroots = []\n")

    assert init(skillyard, "--check")[0] == 0


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_git_sees_the_layout_and_nothing_that_skills_write(skillyard: Skillyard, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(["git", "init", "-q", root], check=True, env=env)
    init(skillyard, str(root))
    (root / "mybox/output/result.html").write_text("x")

    listed = subprocess.run(
        ["git", "status", "--porcelain", "-uall"], cwd=root, env=env, check=True, capture_output=True, text=True
    )

    assert sorted(line[3:] for line in listed.stdout.splitlines()) == sorted(FILES)


def test_any_path_will_do(skillyard: Skillyard, tmp_path: Path) -> None:
    folder = tmp_path / "我的 项目 $HOME 'x'"

    assert init(skillyard, folder.name, cwd=tmp_path)[0] == 0
    assert init(skillyard, "--check", cwd=folder)[0] == 0


def test_a_folder_that_cannot_be_written_is_a_clear_error(skillyard: Skillyard, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    if os.getuid() == 0:
        folder = Path("/sys/kernel")  # root may write everywhere, but nobody makes folders here
    if not folder.is_dir():
        pytest.skip("no folder that root cannot write")

    done = skillyard("init", "--json", str(folder / "project"))

    assert (done.returncode, done.stderr) == (1, "")
    assert str(folder) in str(from_json(done.stdout).data["msg"])


def test_a_file_where_a_folder_must_be_stops_it_before_anything_is_written(project: Path) -> None:
    (project / "mybox").write_text("a file")

    with pytest.raises(InvalidArgs, match="in the way"):
        lay_out(project)
    assert sorted(path.name for path in project.iterdir()) == [".git", "mybox"]


def test_a_link_that_leads_out_of_the_project_is_not_followed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (project / ".claude").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermissionDenied, match="is a link to"):
        lay_out(project)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_home_folder_and_the_inside_of_a_role_are_nobodys_project(
    skillyard: Skillyard, places: ProjectPaths, project: Path
) -> None:
    role = project / "agents" / "analyst"
    role.mkdir(parents=True)
    (role / "agent.yaml").write_text("skills: []\n")

    for folder in (places.user_home, places.user_home.parent, role):
        code, result = init(skillyard, str(folder))
        assert (code, result.data["type"]) == (1, "InvalidArgs")
    assert list(places.user_home.iterdir()) == []


def test_many_at_once_make_each_file_once(places: ProjectPaths, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "skillyard", "init", "--json", "together"]
    env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    started = [
        subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        for _ in range(4)
    ]
    results = [from_json(process.communicate(timeout=120)[0]) for process in started]

    made = [path for result in results for path in json.loads(json.dumps(result.data["made"]))]
    assert sorted(path for path in made if path in FILES) == sorted(FILES)
    assert set(standings(tmp_path / "together").values()) == {"kept"}


def test_a_script_is_ours_only_byte_for_byte_and_under_its_own_name(project: Path) -> None:
    lay_out(project)
    ours = project / "bin/skill_manager.py"
    (project / "bin/other.py").write_bytes(ours.read_bytes())
    (project / "bin/link.py").symlink_to("skill_manager.py")
    changed = project / "bin/skill_scanner.py"
    changed.write_bytes(changed.read_bytes() + b"\n")

    assert is_ours(ours)
    for other in ("bin/other.py", "bin/link.py", "bin/skill_scanner.py", "bin/absent.py", "bin"):
        assert not is_ours(project / other)


def test_what_an_earlier_version_wrote_is_still_ours_and_is_told_as_outdated(project: Path, tmp_path: Path) -> None:
    lay_out(project)
    script = project / "bin/skill_manager.py"
    script.write_text("# as 0.0.9 wrote it\n")
    earlier = {"0.0.9": {"bin/skill_manager.py": hashlib.sha256(script.read_bytes()).hexdigest()}}
    written = tmp_path / "written.json"
    written.write_text(json.dumps({**earlier, **json.loads(WRITTEN.read_text())}))

    assert is_ours(script, written)
    assert not is_ours(script)
    assert {found.path for found in look(project, written) if found.standing is Standing.OUTDATED} == {
        "bin/skill_manager.py"
    }


def test_the_hashes_of_this_version_are_those_of_the_shipped_files() -> None:
    """`./dev docs` writes them."""
    hashes = {piece.path: hashlib.sha256(piece.content).hexdigest() for piece in LAYOUT if piece.template}

    assert json.loads(WRITTEN.read_text())[__version__] == hashes


@pytest.mark.parametrize(("file", "name"), [("skills_agent.md", "skills"), ("worker_agent.md", "worker_agent")])
def test_the_agents_have_the_frontmatter_that_claude_code_reads(project: Path, file: str, name: str) -> None:
    lay_out(project)

    reading = read_skill(project / ".claude/agents" / file)

    assert reading.skill is not None
    assert (reading.skill.fields["name"], reading.ok) == (name, True)
    assert "Bash" in str(reading.skill.fields["tools"])
    assert len(reading.skill.description) > 20
    for said in ("skillyard task", "> /dev/null", "> nul", "python -c", ".db", "cd"):
        assert said in reading.body


def test_the_worker_is_told_the_seeds_key_names(project: Path) -> None:
    lay_out(project)
    text = (project / ".claude/agents/worker_agent.md").read_text("utf-8")

    assert {"skill-list", "skill-search:<kw>", "scan-skills"} <= set(re.findall(r"`([\w<>:-]+)`", text))


def test_the_settings_that_are_written_are_all_defaults(skillyard: Skillyard) -> None:
    init(skillyard)

    assert skillyard("list").returncode == 0
    assert "skillyard.toml" not in skillyard("trust", "--check", "--json").stdout
