"""Links in agents' folders: made, undone exactly, and never at somebody else's cost."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.envelope import from_json
from skillyard.install.links import Linker, LinkOutcome
from skillyard.install.target import project_target
from tests.conftest import TORTURE, Skillyard, WriteSkill
from tests.install.conftest import good, write

ALL = "claude-code,codex,opencode"
NAMES = ("pdf", "报告", "émile's", "🚀 launch", "-rf", "a b")


def picture(root: Path) -> dict[str, Any]:
    """Everything below, byte for byte, but for what is ours (`.skillyard`) and the repository."""
    found: dict[str, Any] = {}
    for parent, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in {".skillyard", ".git"}]
        for name in [*folders, *files]:
            path = Path(parent, name)
            status = path.lstat()
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
            found[str(path.relative_to(root))] = (content, status.st_mode)
    return found


def said(skillyard: Skillyard, *words: str, **env: str) -> list[dict[str, Any]]:
    done = skillyard(words[0], "--json", *words[1:], **env)
    assert done.stderr == ""
    links = from_json(done.stdout).data["links"]
    assert isinstance(links, list)
    return [dict(link) for link in links if isinstance(link, dict)]


def outcomes(skillyard: Skillyard, *words: str, **env: str) -> dict[str, str]:
    return {f"{link['name']} {link['agent']}": link["outcome"] for link in said(skillyard, *words, **env)}


def record(project: Path) -> Path:
    return project / ".skillyard" / "links.json"


@pytest.fixture
def skill(project: Path) -> Path:
    """A skill of the project that no agent sees by itself."""
    files = {"SKILL.md": good("pdf"), "scripts/go.sh": "#!/bin/sh\n", "docs/a.md": "a"}
    folder = write(project / "skills" / "pdf", files)
    (folder / "scripts/go.sh").chmod(0o755)
    return folder


@pytest.mark.parametrize("how", [(), ("--copy",)])
def test_a_link_is_undone_to_the_byte(skillyard: Skillyard, project: Path, skill: Path, how: tuple[str, ...]) -> None:
    (project / ".claude").mkdir()
    before = picture(project)

    made = outcomes(skillyard, "link", "pdf", "--to", ALL, *how)
    there = picture(project)
    undone = outcomes(skillyard, "unlink", "--all")

    assert made == {
        "pdf claude-code": "copied" if how else "linked",
        "pdf codex": "copied" if how else "linked",
        "pdf opencode": "visible",
    }
    assert there.keys() - before.keys() >= {".claude/skills/pdf", ".agents", ".agents/skills/pdf"}
    assert set(undone.values()) == {"removed"}
    assert picture(project) == before
    assert not record(project).exists()


def test_a_link_is_relative_and_works_where_the_project_is_moved_to(
    skillyard: Skillyard, project: Path, skill: Path, tmp_path: Path
) -> None:
    skillyard("link", "pdf", "--to", "codex")
    assert (project / ".agents/skills/pdf").readlink() == Path("../../skills/pdf")

    project.rename(tmp_path / "moved")

    assert (tmp_path / "moved/.agents/skills/pdf/SKILL.md").read_text() == good("pdf")


def test_any_folder_name_is_linked_as_it_is(skillyard: Skillyard, project: Path) -> None:
    for name in NAMES:
        write(project / "skills" / name, {"SKILL.md": good("x")})
    before = picture(project)

    made = outcomes(skillyard, "link", "--to", "codex", "--", *NAMES)

    assert made == {f"{name} codex": "linked" for name in NAMES}
    assert {path.name for path in (project / ".agents/skills").iterdir()} == set(NAMES)
    assert set(outcomes(skillyard, "unlink", "--", *NAMES).values()) == {"removed"}
    assert picture(project) == before


@pytest.mark.parametrize("name", ["../pdf", "..", ".", "/etc", "skills/../../pdf", "a\nb"])
def test_a_name_is_never_a_path(skillyard: Skillyard, project: Path, skill: Path, name: str) -> None:
    before = picture(project.parent)
    for command in (("link", "--to", "codex"), ("unlink",)):
        done = skillyard(*command, "--json", "--", name)

        assert done.returncode == 1
        assert from_json(done.stdout).data["type"] == "SkillNotFound"
    assert {path for path in picture(project.parent) if not path.startswith("skillyard-home")} == {
        path for path in before if not path.startswith("skillyard-home")
    }


def test_without_a_name_everything_that_was_installed_is_linked_and_nothing_else(
    skillyard: Skillyard, project: Path, skill: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    write(source / "one", {"SKILL.md": good("one")})
    write(source / "two", {"SKILL.md": good("two")})
    nothing = skillyard("link", "--to", "codex")
    skillyard("add", str(source), "--all")

    made = outcomes(skillyard, "link", "--to", ALL)

    assert "nothing is installed here" in nothing.stdout
    assert made == {
        **{f"{name} {agent}": "visible" for name in ("one", "two") for agent in ("claude-code", "opencode")},
        **{f"{name} codex": "linked" for name in ("one", "two")},
    }
    assert sorted(path.name for path in (project / ".agents/skills").iterdir()) == ["one", "two"]


def test_what_an_agent_sees_by_itself_is_left_alone(
    skillyard: Skillyard, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("report", good("report"))
    before = picture(project)

    made = outcomes(skillyard, "link", "report", "--to", "claude-code,opencode")

    assert set(made.values()) == {"visible"}
    assert picture(project) == before
    assert not record(project).exists()


def test_linking_twice_changes_nothing(skillyard: Skillyard, project: Path, skill: Path) -> None:
    skillyard("link", "pdf", "--to", ALL)
    before, written = picture(project), record(project).read_bytes()

    assert set(outcomes(skillyard, "link", "pdf", "--to", ALL).values()) == {"visible"}
    assert (picture(project), record(project).read_bytes()) == (before, written)


def test_a_dry_run_writes_nothing_at_all(skillyard: Skillyard, project: Path, skill: Path) -> None:
    assert set(outcomes(skillyard, "link", "pdf", "--to", "codex", "--dry-run").values()) == {"linked"}
    assert not (project / ".agents").exists()
    assert not (project / ".skillyard").exists()

    skillyard("link", "pdf", "--to", "codex")
    assert set(outcomes(skillyard, "unlink", "--all", "--dry-run").values()) == {"removed"}
    assert (project / ".agents/skills/pdf").is_symlink()


@pytest.mark.parametrize("kind", ["folder", "file", "dangling", "other link"])
@pytest.mark.parametrize("how", [(), ("--copy",)])
def test_what_stands_there_is_never_overwritten(
    skillyard: Skillyard, project: Path, kind: str, how: tuple[str, ...]
) -> None:
    write(project / ".claude/skills/pdf", {"SKILL.md": good("pdf")})
    there = project / ".agents/skills/pdf"
    there.parent.mkdir(parents=True)
    if kind == "folder":
        write(there, {"SKILL.md": "mine"})
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to("nowhere" if kind == "dangling" else project)
    before = picture(project)

    done = skillyard("link", "pdf", "--to", "claude-code,codex", "--json", *how)
    shown = from_json(done.stdout)
    conflict = shown.data["links"][1]  # type: ignore[index]

    assert (shown.state, done.returncode) == ("partial", 3)
    assert conflict["outcome"] == "conflict"  # type: ignore[index, call-overload]
    assert str(there) in conflict["next"]  # type: ignore[index, call-overload, operator]
    skillyard("unlink", "--all")
    assert picture(project) == before


def test_an_edited_copy_stays_and_is_told(skillyard: Skillyard, project: Path, skill: Path) -> None:
    skillyard("link", "pdf", "--to", ALL, "--copy")
    mine = project / ".agents/skills/pdf/docs/a.md"
    mine.write_text("edited")

    again = outcomes(skillyard, "link", "pdf", "--to", "codex", "--copy")
    undone = outcomes(skillyard, "unlink", "--all")

    assert again == {"pdf codex": "conflict"}
    assert undone == {"pdf claude-code": "removed", "pdf opencode": "kept", "pdf codex": "kept"}
    assert mine.read_text() == "edited"
    assert not (project / ".claude").exists()
    assert not record(project).exists()


@pytest.mark.parametrize("more", ["new.md", ".git/config"])
def test_a_copy_with_files_of_the_user_stays(skillyard: Skillyard, project: Path, skill: Path, more: str) -> None:
    skillyard("link", "pdf", "--to", "codex", "--copy")
    write(project / ".agents/skills/pdf", {more: "mine"})

    assert outcomes(skillyard, "unlink", "pdf") == {"pdf codex": "kept"}
    assert (project / ".agents/skills/pdf" / more).read_text() == "mine"


def test_a_link_that_somebody_replaced_or_took_away_is_told(skillyard: Skillyard, project: Path, skill: Path) -> None:
    skillyard("link", "pdf", "--to", "claude-code,codex")
    (project / ".claude/skills/pdf").unlink()
    (project / ".agents/skills/pdf").unlink()
    (project / ".agents/skills/pdf").symlink_to(project)

    assert outcomes(skillyard, "unlink", "--all") == {"pdf claude-code": "gone", "pdf codex": "kept"}
    assert (project / ".agents/skills/pdf").readlink() == project
    assert not (project / ".claude").exists()


def test_a_folder_that_others_use_by_now_stays(skillyard: Skillyard, project: Path, skill: Path) -> None:
    skillyard("link", "pdf", "--to", "claude-code,codex")
    write(project / ".agents/skills/mine", {"SKILL.md": "mine"})

    skillyard("unlink", "--all")

    assert not (project / ".claude").exists()
    assert [path.name for path in (project / ".agents/skills").iterdir()] == ["mine"]


def test_a_link_for_two_agents_stays_until_both_leave(skillyard: Skillyard, project: Path, skill: Path) -> None:
    skillyard("link", "pdf", "--to", "codex,opencode")
    assert not (project / ".opencode").exists()

    assert outcomes(skillyard, "unlink", "pdf", "--to", "codex") == {"pdf codex": "shared"}
    assert (project / ".agents/skills/pdf").is_symlink()
    assert outcomes(skillyard, "unlink", "pdf", "--to", "opencode") == {"pdf opencode": "removed"}
    assert not (project / ".agents").exists()


def test_the_users_skills_are_linked_in_the_users_folders(
    skillyard: Skillyard, project: Path, places: ProjectPaths, tmp_path: Path
) -> None:
    source = write(tmp_path / "mine", {"SKILL.md": good("mine")})
    skillyard("add", str(source), "--global")
    before = picture(places.user_home)

    made = said(skillyard, "link", "--user", "--to", ALL)
    paths = {link["agent"]: link["path"] for link in made}

    assert paths["claude-code"] == str(places.user_home / ".claude/skills/mine")
    assert paths["codex"] == str(places.user_home / ".agents/skills/mine")
    assert (places.user_home / ".agents/skills/mine").readlink() == places.own_home / "skills/mine"
    assert list(picture(project)) == []
    assert skillyard("run", "mine").returncode == 0
    skillyard("unlink", "--all", "--user")
    assert picture(places.user_home) == before


def test_a_moved_configuration_folder_is_where_the_user_links_go(
    skillyard: Skillyard, places: ProjectPaths, tmp_path: Path
) -> None:
    write(places.own_home / "skills/mine", {"SKILL.md": good("mine")})
    moved = {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    for agent in ALL.split(","):
        skillyard("link", "mine", "--user", "--to", agent, **moved)

    assert (tmp_path / "claude/skills/mine/SKILL.md").is_file()
    skillyard("unlink", "--all", "--user")
    assert not (tmp_path / "claude").exists()


def test_a_skill_of_the_other_scope_is_told_with_the_option(
    skillyard: Skillyard, skill: Path, places: ProjectPaths
) -> None:
    write(places.own_home / "skills/mine", {"SKILL.md": good("mine")})

    assert "add --user" in skillyard("link", "mine", "--to", "codex").stdout
    assert "leave out --user" in skillyard("link", "pdf", "--to", "codex", "--user").stdout


@pytest.mark.parametrize("where", [".agents", ".agents/skills"])
def test_nothing_is_linked_through_a_link_out_of_the_project(
    skillyard: Skillyard, project: Path, skill: Path, tmp_path: Path, where: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (project / where).parent.mkdir(exist_ok=True)
    (project / where).symlink_to(tmp_path / "elsewhere")

    done = skillyard("link", "pdf", "--to", "codex", "--json")

    assert from_json(done.stdout).data["type"] == "PermissionDenied"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_is_a_link_inside_the_project_is_used(skillyard: Skillyard, project: Path, skill: Path) -> None:
    """One folder for all agents is a usual way to keep skills."""
    (project / "shared").mkdir()
    (project / ".agents").mkdir()
    (project / ".agents/skills").symlink_to("../shared")
    before = picture(project)

    skillyard("link", "pdf", "--to", "codex")
    assert (project / ".agents/skills/pdf/SKILL.md").is_file()
    skillyard("unlink", "--all")
    assert picture(project) == before


def test_a_file_in_the_way_is_a_clear_error_and_nothing_is_begun(
    skillyard: Skillyard, project: Path, skill: Path
) -> None:
    (project / ".agents").write_text("a file")

    done = skillyard("link", "pdf", "--to", "claude-code,codex", "--json")

    assert "is no folder" in str(from_json(done.stdout).data["msg"])
    assert not (project / ".claude").exists()
    assert not record(project).exists()


@pytest.mark.skipif(os.access("/root", os.W_OK), reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_clear_error(skillyard: Skillyard, project: Path, skill: Path) -> None:
    (project / ".agents/skills").mkdir(parents=True)
    (project / ".agents/skills").chmod(0o555)
    try:
        done = skillyard("link", "pdf", "--to", "codex", "--json")
    finally:
        (project / ".agents/skills").chmod(0o755)

    assert from_json(done.stdout).data["type"] == "PermissionDenied"


HOSTILE: list[dict[str, Any]] = [
    {"folder": ".agents/skills", "name": "../../important", "agents": ["codex"], "source": "x", "to": "y"},
    {"folder": "important", "name": "x", "agents": ["codex"], "source": "x", "to": "y"},
    {"folder": ".agents/skills/../../important", "name": "x", "agents": ["codex"], "source": "x", "to": "y"},
    {"folder": ".agents/skills", "name": "x", "agents": ["codex"], "source": "x", "staged": "../../important"},
    {"folder": ".agents/skills", "name": "..", "agents": ["codex"], "source": "x"},
    {"folder": 1, "name": [], "agents": {}, "source": "x", "files": []},
]


@pytest.mark.parametrize("entry", HOSTILE)
def test_a_record_that_came_with_a_clone_takes_nothing_away(
    skillyard: Skillyard, project: Path, entry: dict[str, Any]
) -> None:
    write(project / "important" / "x", {"a": "b"})
    write(project, {".skillyard/links.json": json.dumps({"version": 1, "links": [entry], "made": []})})
    before = picture(project)

    done = skillyard("unlink", "--all", "--json")

    assert from_json(done.stdout).data["type"] == "InvalidArgs"
    assert picture(project) == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9}', '{"version": 1, "links": 3, "made": []}', 999 * "["])
def test_a_broken_record_is_a_clear_error(skillyard: Skillyard, project: Path, skill: Path, text: str) -> None:
    write(project, {".skillyard/links.json": text})

    for words in (("unlink", "--all"), ("link", "pdf", "--to", "codex")):
        done = skillyard(*words, "--json")
        assert done.returncode == 1
        assert "links.json" in str(from_json(done.stdout).data["msg"])


def test_a_removed_skill_is_unlinked_too(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "source" / name, {"SKILL.md": good(name)})
    skillyard("add", str(tmp_path / "source"), "--all")
    skillyard("link", "one", "--to", "codex")
    skillyard("link", "two", "--to", "codex", "--copy")
    (project / ".agents/skills/two/SKILL.md").write_text("edited")

    done = from_json(skillyard("remove", "one", "two", "--yes", "--json").stdout)

    assert done.data["removed"] == ["one", "two"]
    told = {link["name"]: link["outcome"] for link in done.data["links"]}  # type: ignore[index, union-attr, call-overload]
    assert told == {"one": "removed", "two": "kept"}
    assert [path.name for path in (project / ".agents/skills").iterdir()] == ["two"]
    assert (project / ".agents/skills/two/SKILL.md").read_text() == "edited"


def test_an_update_refreshes_copies_but_for_edited_ones(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("one", "two"):
        write(source / name, {"SKILL.md": good(name), "old.md": "old"})
    skillyard("add", str(source), "--all")
    skillyard("link", "--to", "codex", "--copy")
    write(source / "one", {"SKILL.md": good("one") + "new\n"})
    write(source / "two", {"SKILL.md": good("two") + "new\n"})
    (source / "one/old.md").unlink()
    (project / ".agents/skills/two/SKILL.md").write_text("edited")

    done = from_json(skillyard("update", "--all", "--json").stdout)

    told = {link["name"]: link["outcome"] for link in done.data["links"]}  # type: ignore[index, union-attr, call-overload]
    assert told == {"one": "copied", "two": "conflict"}
    assert picture(project / ".agents/skills/one") == picture(project / ".claude/skills/one")
    assert (project / ".agents/skills/two/SKILL.md").read_text() == "edited"
    assert outcomes(skillyard, "unlink", "one") == {"one codex": "removed"}


def test_linking_again_refreshes_a_copy_of_a_skill_that_changed(
    skillyard: Skillyard, project: Path, skill: Path
) -> None:
    skillyard("link", "pdf", "--to", "claude-code", "--copy")
    (skill / "docs/a.md").write_text("new")

    assert outcomes(skillyard, "link", "pdf", "--to", "claude-code", "--copy") == {"pdf claude-code": "copied"}
    assert (project / ".claude/skills/pdf/docs/a.md").read_text() == "new"
    assert sorted(path.name for path in (project / ".claude/skills").iterdir()) == ["pdf"]


def test_a_linked_skill_still_runs_from_its_own_folder(skillyard: Skillyard, project: Path) -> None:
    """The sandbox follows no link, and the link is in a folder that comes first."""
    text = "---\nname: say\ndescription: Says it.\ncommand: ./say.sh {x}\n---\n"
    write(project / "skills/say", {"SKILL.md": text, "say.sh": '#!/bin/sh\necho "said $1"\n'})
    (project / "skills/say/say.sh").chmod(0o755)
    skillyard("link", "say", "--to", ALL)

    done = from_json(skillyard("run", "say", "hello", "--json").stdout)

    assert str(done.data["content"]).strip() == "said hello"


def test_another_of_the_same_name_is_told(
    skillyard: Skillyard, project: Path, skill: Path, places: ProjectPaths
) -> None:
    rival = write(places.user_home / ".claude/skills/pdf", {"SKILL.md": good("pdf")})

    (told,) = said(skillyard, "link", "pdf", "--to", "claude-code")

    assert told["outcome"] == "linked"
    assert str(rival) in told["note"]
    assert "--check" in told["next"]


def test_a_skill_that_an_agent_leaves_out_is_told(skillyard: Skillyard, project: Path) -> None:
    write(project / "skills/bare", {"SKILL.md": "---\nname: bare\n---\n"})

    told = {link["agent"]: link["note"] for link in said(skillyard, "link", "bare", "--to", ALL)}

    assert "no description" in told["codex"]
    assert told["claude-code"] == ""


def test_unknown_agents_and_missing_options_are_usage(skillyard: Skillyard, skill: Path) -> None:
    assert skillyard("link", "pdf", "--to", "emacs").returncode == 2
    assert "--to" in skillyard("link", "pdf").stdout
    assert "--all" in skillyard("unlink").stdout
    assert skillyard("unlink", "pdf").returncode == 1


def command(places: ProjectPaths, *words: str) -> "subprocess.Popen[bytes]":
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "LANG": "C.UTF-8",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "skillyard", *words],
        cwd=places.project,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_two_at_once_lose_nothing(skillyard: Skillyard, places: ProjectPaths, project: Path) -> None:
    names = [f"s{number}" for number in range(8)]
    for name in names:
        write(project / "skills" / name, {"SKILL.md": good(name)})
    before = picture(project)

    running = [command(places, "link", name, "--to", "codex", "--copy") for name in names]
    for process in running:
        process.communicate(timeout=120)

    assert [process.returncode for process in running] == [0] * len(names)
    assert sorted(path.name for path in (project / ".agents/skills").iterdir()) == names
    assert len(json.loads(record(project).read_text())["links"]) == len(names)
    skillyard("unlink", "--all")
    assert picture(project) == before


#: More than any of the commands makes.
MOST_CHANGES = 200
#: Kills the process at its n-th change to the disk, whichever that is.
DOOMED = """
import os, signal, sys
left = int(sys.argv.pop(1))
def count(event, args):
    global left
    is_change = event in {"os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir", "os.chmod"}
    if is_change or event == "open" and isinstance(args[2], int) and args[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
from skillyard.faces.cli.main import main
sys.addaudithook(count)
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--copy",)])
@pytest.mark.parametrize("words", [("link", "pdf", "--to", ALL), ("unlink", "--all")])
def test_a_kill_at_any_point_loses_track_of_nothing(
    yard: Project, project: Path, skill: Path, words: tuple[str, ...], how: tuple[str, ...]
) -> None:
    """Killed at each of its changes in turn: `unlink` undoes it to the byte, also after `link` ended it."""
    before = picture(project)
    for point in range(MOST_CHANGES):
        if words[0] == "unlink":
            linked(yard, copy=bool(how))
        done = doomed(yard.paths, point, *words, *(how if words[0] == "link" else ()))
        if point % 2:
            assert LinkOutcome.CONFLICT not in linked(yard, copy=bool(how)), point
            assert (project / ".agents/skills/pdf/SKILL.md").is_file()
        assert LinkOutcome.KEPT not in unlinked(yard), point
        assert picture(project) == before, point
        assert not record(project).exists()
        if done != -signal.SIGKILL:
            break
    assert done == 0
    assert point > 8


@pytest.mark.slow
def test_a_kill_during_a_refresh_leaves_the_old_copy_or_the_new(yard: Project, project: Path, skill: Path) -> None:
    before = picture(project)
    for point in range(0, MOST_CHANGES, 1 if TORTURE else 3):
        linked(yard, copy=True)
        (skill / "docs/a.md").write_text("new")
        done = doomed(yard.paths, point, "link", "pdf", "--to", ALL, "--copy")
        assert (project / ".agents/skills/pdf/docs/a.md").read_text() in {"a", "new"}
        assert unlinked(yard) == {LinkOutcome.REMOVED}, point
        (skill / "docs/a.md").write_text("a")
        assert picture(project) == before, point
        if done != -signal.SIGKILL:
            break
    assert done == 0
    assert point > 8


def linker(yard: Project) -> Linker:
    return Linker(project_target(yard.root), yard.paths.user_home, lambda: yard.catalog, env={})


def linked(yard: Project, *, copy: bool) -> set[LinkOutcome]:
    return {step.outcome for step in linker(yard).link(["pdf"], ALL.split(","), copy=copy)}


def unlinked(yard: Project) -> set[LinkOutcome]:
    return {step.outcome for step in linker(yard).unlink()}


def doomed(places: ProjectPaths, point: int, *words: str) -> int:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        [sys.executable, "-c", DOOMED, str(point), *words],
        cwd=places.project,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    return done.returncode


def test_the_advice_of_a_conflict_can_be_read_back_by_a_shell(skillyard: Skillyard, project: Path) -> None:
    write(project / ".claude/skills/it's", {"SKILL.md": good("x")})
    there = write(project / ".agents/skills/it's", {"SKILL.md": "mine"})

    (told,) = said(skillyard, "link", "it's", "--to", "codex")

    assert str(there) in shlex.split(told["next"])
