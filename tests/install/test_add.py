"""From sources to installed skills and back, by the real command."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import InvalidArgs, SkillError, SourceFailed
from skillyard.install.address import LocalSource, locked_source, parse_source
from skillyard.install.git import GitSource
from skillyard.install.source import Limits
from skillyard.install.target import digests_of, read_lock
from skillyard.install.web import WebArchive, WebIndex
from tests.conftest import Skillyard
from tests.install.conftest import DOUBTFUL, commit, git, good, write
from tests.install.servers import file_server, git_server


def data_of(done: "subprocess.CompletedProcess[str]") -> Any:
    return json.loads(done.stdout)["data"]


def skills_in(project: Path) -> list[str]:
    folder = project / ".claude" / "skills"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_folder_is_installed_and_verifies(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "pdf", {"SKILL.md": good("pdf"), "scripts/run.py": "print(1)\n"})
    done = skillyard("add", str(tmp_path / "pdf"))

    assert (done.returncode, done.stdout) == (0, "added pdf\n")
    assert (project / ".claude/skills/pdf/scripts/run.py").read_text() == "print(1)\n"
    assert read_lock(project / "skillyard.lock")["pdf"].source == str(tmp_path / "pdf")
    assert skillyard("verify").returncode == 0
    assert skillyard("add", str(tmp_path / "pdf")).returncode == 0


@pytest.mark.parametrize("name", ["数据分析", "🧰 tools", "Ünïcode name", "../../evil", "con"])
def test_any_name_becomes_one_folder(name: str, skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    text = f"---\nname: {json.dumps(name, ensure_ascii=False)}\ndescription: x\n---\nDo it.\n"
    write(tmp_path / "some", {"SKILL.md": text, "说明 🧪.md": "x"})
    done = skillyard("add", str(tmp_path / "some"), "--json")

    assert done.returncode == 0, done.stdout
    assert skills_in(project) == data_of(done)["installed"]
    assert len(skills_in(project)) == 1
    assert (project / ".claude/skills" / skills_in(project)[0] / "说明 🧪.md").is_file()


def test_two_skills_of_one_slug_get_folders_of_their_own(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "many", {"a/SKILL.md": good("Same Name"), "b/SKILL.md": good("same-name")})
    skillyard("add", str(tmp_path / "many"), "--all")

    assert skills_in(project) == ["same-name", "same-name-2"]


def test_several_skills_are_listed_and_never_guessed(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "many", {"a/SKILL.md": good("a"), "b/SKILL.md": good("b"), "c/SKILL.md": good("c")})
    done = skillyard("add", str(tmp_path / "many"), "--json")

    assert done.returncode == 1
    assert [skill["name"] for skill in data_of(done)["skills"]] == ["a", "b", "c"]
    assert skills_in(project) == []
    assert skillyard("add", str(tmp_path / "many"), "--skill", "a", "--skill", "c").returncode == 0
    assert skills_in(project) == ["a", "c"]
    assert data_of(skillyard("add", str(tmp_path / "many"), "--skill", "x", "--json"))["type"] == "SkillNotFound"


def test_a_collection_with_a_skill_at_its_root_hides_none(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    """An index of a repository is often called SKILL.md too."""
    inner = {f"skills/{name}/SKILL.md": good(name) for name in ("one", "二")}
    parts = {"skills/one/more/SKILL.md": good("part"), "examples/x/SKILL.md": good("example")}
    write(tmp_path / "many", {"SKILL.md": good("index"), **inner, **parts})

    listed = data_of(skillyard("add", str(tmp_path / "many"), "--json"))
    done = skillyard("add", str(tmp_path / "many"), "--skill", "one", "--json")

    assert [skill["name"] for skill in listed["skills"]] == ["index", "one", "二"]
    assert (done.returncode, skills_in(project)) == (0, ["one"])


def test_a_dry_run_writes_nothing(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "pdf", {"SKILL.md": good("pdf")})
    done = skillyard("add", str(tmp_path / "pdf"), "--dry-run")

    assert done.stdout == "would add pdf (1 files, SAFE)\n"
    assert sorted(path.name for path in project.iterdir()) == [".git"]


def test_a_skill_that_we_did_not_install_is_never_replaced(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(project / ".claude/skills/pdf", {"SKILL.md": "mine"})
    write(tmp_path / "pdf", {"SKILL.md": good("pdf")})
    assert skillyard("add", str(tmp_path / "pdf")).returncode == 1
    assert (project / ".claude/skills/pdf/SKILL.md").read_text() == "mine"

    assert skillyard("add", str(tmp_path / "pdf"), "--as", "My PDF").returncode == 0
    assert skills_in(project) == ["my-pdf", "pdf"]


def test_global_skills_go_to_our_home(
    skillyard: Skillyard, places: ProjectPaths, project: Path, tmp_path: Path
) -> None:
    write(tmp_path / "pdf", {"SKILL.md": good("pdf")})
    skillyard("add", str(tmp_path / "pdf"), "--global")

    assert (places.own_home / "skills/pdf/SKILL.md").is_file()
    assert (places.own_home / "skillyard.lock").is_file()
    assert skills_in(project) == []
    assert '"pdf"' in skillyard("list", "--json").stdout


@pytest.mark.parametrize("ending", ["skill", "zip", "tar.gz"])
def test_an_archive_is_installed(ending: str, skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "in" / "pdf", {"SKILL.md": good("pdf"), "run.sh": "#!/bin/sh\n"})
    (tmp_path / "in/pdf/run.sh").chmod(0o755)
    made = shutil.make_archive(str(tmp_path / "made"), "gztar" if ending == "tar.gz" else "zip", tmp_path / "in")
    archive = Path(made).rename(tmp_path / f"x.{ending}")
    assert skillyard("add", str(archive)).returncode == 0

    assert digests_of(project / ".claude/skills/pdf") == digests_of(tmp_path / "in" / "pdf")


def test_a_hostile_archive_leaves_no_trace(
    skillyard: Skillyard, places: ProjectPaths, project: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("pdf/SKILL.md", good("pdf"))
        archive.writestr("../../../evil", "x")
    done = skillyard("add", str(tmp_path / "x.zip"), "--json")

    assert data_of(done)["type"] == "SourceRefused"
    assert skills_in(project) == []
    assert not list(tmp_path.rglob("evil"))
    assert list((places.own_home / "staging").iterdir()) == []


def test_a_git_repository_is_installed_over_smart_http(
    skillyard: Skillyard, project: Path, places: ProjectPaths, repo: Path
) -> None:
    with git_server(repo.parent.parent) as url:
        assert skillyard("add", f"{url}/owner/repo/tree/main/skills/one").returncode == 0
        (places.own_home / "config.toml").write_text(f'[install]\nforge = "{url}"\n')
        assert skillyard("add", "owner/repo@two").returncode == 0
        assert skillyard("add", "owner/repo/skills/one#main", "--as", "uno").returncode == 0
        missing = skillyard("add", f"{url}/owner/nothing", "--json")

    assert skills_in(project) == ["one", "two", "uno"]
    assert read_lock(project / "skillyard.lock")["one"].commit == git(repo, "rev-parse", "HEAD")
    assert data_of(missing)["type"] == "RuntimeFailed"


def test_lock_and_restore_on_an_empty_machine_give_identical_files(
    skillyard: Skillyard, project: Path, repo: Path, tmp_path: Path
) -> None:
    old = git(repo, "rev-parse", "HEAD")
    with git_server(repo.parent.parent) as url:
        assert skillyard("add", f"{url}/owner/repo", "--all").returncode == 0
        before = digests_of(project / ".claude/skills")
        commit(repo, {"skills/one/SKILL.md": good("one") + "newer\n"})
        other = tmp_path / "other"
        (other / ".git").mkdir(parents=True)
        shutil.copy(project / "skillyard.lock", other)
        done = skillyard("restore", cwd=other, SKILLYARD_HOME=str(tmp_path / "other-home"))

    assert done.returncode == 0, done.stdout
    assert digests_of(other / ".claude/skills") == before
    assert (other / "skillyard.lock").read_bytes() == (project / "skillyard.lock").read_bytes()
    assert read_lock(other / "skillyard.lock")["one"].commit == old


def test_a_restore_of_other_bytes_is_an_error(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(project / "vendor/pdf", {"SKILL.md": good("pdf")})
    skillyard("add", "vendor/pdf")
    assert read_lock(project / "skillyard.lock")["pdf"].source == "./vendor/pdf"
    write(project / "vendor/pdf", {"SKILL.md": good("pdf") + "other\n"})
    shutil.rmtree(project / ".claude")

    assert skillyard("restore").returncode == 1
    assert skills_in(project) == []
    shutil.rmtree(project / "vendor")
    assert "not there any more" in skillyard("restore").stdout


def test_nothing_of_a_repository_is_ever_run(skillyard: Skillyard, project: Path, repo: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    bad = tmp_path / "forge/owner/sub"
    bad.mkdir()
    git(bad, "init", "-q", "-b", "main", ".")
    commit(bad, {"SKILL.md": good("sub")})
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(bad), "skills/one/sub")
    commit(repo, {"skills/one/.gitattributes": "* filter=evil\n*.md filter=evil\n"})
    for hook in ("post-checkout", "post-merge", "pre-auto-gc", "reference-transaction"):
        write(repo / ".git/hooks", {hook: f"#!/bin/sh\ntouch {mark}\n"})
        (repo / ".git/hooks" / hook).chmod(0o755)
    home = tmp_path / "git-home"
    template = write(home / "template/hooks", {"post-checkout": f"#!/bin/sh\ntouch {mark}\n"})
    (template / "post-checkout").chmod(0o755)
    write(
        home,
        {
            ".gitconfig": f'[filter "evil"]\n smudge = touch {mark}\n clean = touch {mark}\n required = true\n'
            f"[init]\n templateDir = {home / 'template'}\n[core]\n hooksPath = {home / 'template/hooks'}\n"
        },
    )
    done = skillyard("add", f"file://{repo}", "--skill", "one", HOME=str(home))

    assert done.returncode == 0, done.stdout
    assert not mark.exists()
    assert sorted(path.name for path in (project / ".claude/skills/one").iterdir()) == [".gitattributes", "SKILL.md"]


def test_a_repository_with_a_link_out_is_refused(skillyard: Skillyard, project: Path, repo: Path) -> None:
    (repo / "skills/one/secret").symlink_to("/etc/passwd")
    (repo / "skills/three").symlink_to("/etc")
    commit(repo)

    assert data_of(skillyard("add", f"file://{repo}", "--skill", "one", "--json"))["type"] == "SourceRefused"
    assert skillyard("add", f"file://{repo}", "--skill", "two").returncode == 0
    assert skills_in(project) == ["two"]


def test_git_is_bounded_in_size_and_time(repo: Path, tmp_path: Path) -> None:
    (repo / "skills/one/big").write_bytes(os.urandom(300_000))
    commit(repo)
    for number, limits in enumerate((Limits(total_bytes=100_000), Limits(seconds=0.0))):
        staging = tmp_path / str(number)
        staging.mkdir()
        with pytest.raises(SkillError):
            GitSource(f"file://{repo}", limits=limits).fetch(staging, lambda _: None)


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c touch% /tmp/x",
        "git://x/y",
        "ftp://x/y.zip",
        "nothing",
        "--upload-pack=x",
        "https://u:p@x/y",
        "",
        "\0",
    ],
)
def test_what_names_no_source_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgs):
        parse_source(text, cwd=tmp_path, root=tmp_path)


def test_an_existing_path_wins_over_the_shorthand(tmp_path: Path) -> None:
    shorthand = parse_source("owner/repo/a/b@name#v1", cwd=tmp_path, root=tmp_path)
    assert (shorthand.source, shorthand.path, shorthand.skill) == (
        GitSource("https://github.com/owner/repo", "v1"),
        "a/b",
        "name",
    )
    (tmp_path / "owner/repo").mkdir(parents=True)
    local = parse_source("owner/repo", cwd=tmp_path, root=tmp_path)
    assert isinstance(local.source, LocalSource)
    assert local.source.text == "./owner/repo"


def test_a_lock_never_turns_a_path_into_an_address(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed):
        locked_source("./owner/repo", "", "", tmp_path)
    with pytest.raises(InvalidArgs):
        locked_source("owner/repo", "", "", tmp_path)


def test_the_web_gives_archives_and_indexes(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write(tmp_path / "in", {"SKILL.md": good("packed"), "more.md": "x"})
    (site / "files").mkdir(parents=True)
    shutil.make_archive(str(site / "files/packed"), "zip", tmp_path / "in")
    plain = good("plain").encode()
    packed = (site / "files/packed.zip").read_bytes()
    entries = [
        {"name": "plain", "type": "skill-md", "url": "plain.md", "digest": _digest(plain)},
        {"name": "packed", "type": "archive", "url": "/files/packed.zip", "digest": _digest(packed)},
        {"name": "later", "type": "hologram"},
    ]
    index = site / ".well-known/agent-skills"
    write(index, {"plain.md": plain.decode(), "index.json": json.dumps({"skills": entries})})
    with file_server(site) as url:
        assert skillyard("add", f"{url}/files/packed.zip").returncode == 0
        assert skills_in(project) == ["packed"]
        shutil.rmtree(project / ".claude")
        (project / "skillyard.lock").unlink()
        assert skillyard("add", f"{url}/.well-known/agent-skills/index.json", "--all").returncode == 0
        assert skills_in(project) == ["packed", "plain"]
        write(index, {"plain.md": "other bytes"})
        done = skillyard("add", f"{url}/.well-known/agent-skills/index.json", "--all", "--json")
        assert data_of(done)["type"] == "SourceRefused"
        assert data_of(skillyard("add", f"{url}/not-there.zip", "--json"))["type"] == "RuntimeFailed"
        for source in (WebArchive(f"{url}/files/packed.zip"), WebIndex(f"{url}/.well-known/agent-skills/index.json")):
            with pytest.raises(SkillError):
                source._replace(limits=Limits(total_bytes=10)).fetch(tmp_path, lambda _: None)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_two_adds_at_once_are_both_there(
    skillyard: Skillyard, project: Path, places: ProjectPaths, tmp_path: Path
) -> None:
    running = []
    for name in ("a", "b", "c", "d"):
        write(tmp_path / name, {"SKILL.md": good(name)})
        env = {"PATH": os.environ["PATH"], "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
        words = [sys.executable, "-m", "skillyard", "add", str(tmp_path / name)]
        running.append(subprocess.Popen(words, cwd=project, env=env, stdout=subprocess.DEVNULL))
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]

    assert skills_in(project) == ["a", "b", "c", "d"]
    assert set(read_lock(project / "skillyard.lock")) == {"a", "b", "c", "d"}
    assert skillyard("verify").returncode == 0


def test_verify_tells_changed_missing_and_added(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "pdf", {"SKILL.md": good("pdf"), "a": "1", "b": "2"})
    skillyard("add", str(tmp_path / "pdf"))
    installed = project / ".claude/skills/pdf"
    write(installed, {"a": "changed", "c": "added"})
    (installed / "b").unlink()
    done = skillyard("verify", "--json")

    assert done.returncode == 1
    assert data_of(done)["skills"] == [{"folder": "pdf", "changed": ["a"], "missing": ["b"], "added": ["c"]}]
    assert skillyard("restore").returncode == 0
    assert data_of(skillyard("verify", "--json"))["skills"][0]["missing"] == []
    assert (installed / "a").read_text() == "changed"
    assert skillyard("restore", "--theirs").returncode == 0
    assert (installed / "a").read_text() == "1"
    assert (installed / "c").read_text() == "added"


def test_remove_takes_only_what_was_installed(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "many", {"a/SKILL.md": good("a"), "b/SKILL.md": good("b")})
    write(project / ".claude/skills/mine", {"SKILL.md": good("mine")})
    skillyard("add", str(tmp_path / "many"), "--all")
    write(project / ".claude/skills/a", {"notes.md": "mine"})

    assert skillyard("remove", "a").returncode == 1
    assert skillyard("remove", "nobodys", "--yes").returncode == 1
    done = skillyard("remove", "--source", str(tmp_path / "many"), "--yes", "--json")
    assert data_of(done) == {"removed": ["a", "b"], "kept": {"a": ["notes.md"]}, "links": []}
    assert skills_in(project) == ["a", "mine"]
    assert [path.name for path in (project / ".claude/skills/a").iterdir()] == ["notes.md"]
    assert read_lock(project / "skillyard.lock") == {}


def test_an_update_tells_first_and_never_overwrites_edits(skillyard: Skillyard, project: Path, repo: Path) -> None:
    skillyard("add", f"file://{repo}", "--all")
    commit(
        repo,
        {
            "skills/one/SKILL.md": good("one") + "newer\n",
            "skills/one/new.md": "x",
            "skills/three/SKILL.md": good("three"),
        },
    )
    shutil.rmtree(repo / "skills/two")
    commit(repo)
    file = project / ".claude/skills/one/SKILL.md"
    plan = data_of(skillyard("update", "--all", "--dry-run", "--json"))

    assert [(step["folder"], step["standing"]) for step in plan["skills"]] == [("one", "changed"), ("two", "gone")]
    assert plan["skills"][0]["changed"] == ["SKILL.md"]
    assert plan["skills"][0]["added"] == ["new.md"]
    assert plan["new"] == [{"source": f"file://{repo}", "name": "three"}]

    file.write_text(good("one") + "mine\n")
    write(project / ".claude/skills/one", {"own.md": "mine"})
    refused = skillyard("update", "one", "--json")
    assert refused.returncode == 1
    assert "-mine\n+newer" in data_of(refused)["diff"]
    assert file.read_text().endswith("mine\n")

    assert skillyard("update", "one", "--keep").returncode == 0
    assert file.read_text().endswith("mine\n")
    assert (project / ".claude/skills/one/new.md").is_file()
    assert skillyard("restore", "--theirs").returncode == 0
    assert file.read_text().endswith("newer\n")
    assert (project / ".claude/skills/one/own.md").read_text() == "mine"
    assert skillyard("update", "one").returncode == 0
    assert skills_in(project) == ["one", "two"]


def test_an_update_with_theirs_replaces_edits(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "pdf", {"SKILL.md": good("pdf")})
    skillyard("add", str(tmp_path / "pdf"))
    write(tmp_path / "pdf", {"SKILL.md": good("pdf") + "newer\n"})
    write(project / ".claude/skills/pdf", {"SKILL.md": good("pdf") + "mine\n"})

    assert skillyard("add", str(tmp_path / "pdf")).returncode == 1
    assert skillyard("update", "pdf", "--theirs").returncode == 0
    assert (project / ".claude/skills/pdf/SKILL.md").read_text().endswith("newer\n")
    assert skillyard("verify").returncode == 0


def test_a_doubtful_skill_is_held_back_not_installed(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    write(tmp_path / "odd", {"SKILL.md": DOUBTFUL})
    assert skillyard("add", str(tmp_path / "odd"), "--yes").returncode == 5
    assert skills_in(project) == []


def test_names_that_clash_are_left_out_with_the_command_that_installs_them(
    skillyard: Skillyard, project: Path, tmp_path: Path
) -> None:
    one = write(tmp_path / "one", {"pdf/SKILL.md": good("pdf"), "a/SKILL.md": good("a")})
    two = write(tmp_path / "two", {"docs/pdf/SKILL.md": good("pdf") + "other\n", "b/SKILL.md": good("b")})
    write(project / ".claude/skills/b", {"SKILL.md": good("b") + "mine\n"})
    skillyard("add", str(one), "--all")
    done = skillyard("add", str(two), str(one), "--all", "--json")

    left = data_of(done)["left_out"]
    assert (done.returncode, data_of(done)["installed"]) == (3, ["a", "pdf"])
    assert [(each["name"], each["path"]) for each in left] == [("b", "b"), ("pdf", "docs/pdf")]
    assert "we did not install it" in left[0]["reason"]
    assert f"comes from {one}/pdf" in left[1]["reason"]
    commands = [f"skillyard add {two} --as b-2 --skill b", f"skillyard add {two} --as pdf-2 --skill docs/pdf"]
    assert [each["command"] for each in left] == commands
    assert (project / ".claude/skills/b/SKILL.md").read_text().endswith("mine\n")

    page = skillyard("add", str(two), "--all")
    assert page.stdout.count("left out ") == 2
    assert f"  → {commands[1]}\n" in page.stdout
    assert skillyard("add", str(two), "--all", "--dry-run").stdout == page.stdout
    for command in commands:
        assert skillyard(*command.split()[1:]).returncode == 0
    assert skills_in(project) == ["a", "b", "b-2", "pdf", "pdf-2"]
    assert skillyard("add", str(two), "--all").stdout == "added b-2\nadded pdf-2\n"


def test_of_one_name_in_two_sources_the_second_is_left_out(skillyard: Skillyard, project: Path, tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", {"SKILL.md": good("pdf")}), write(tmp_path / "two", {"SKILL.md": good("PDF")})
    done = skillyard("add", str(one), str(two), "--json")

    assert (done.returncode, skills_in(project)) == (3, ["pdf"])
    assert data_of(done)["left_out"][0]["command"] == f"skillyard add {two} --as pdf-2"


def test_a_copy_of_a_skill_in_the_same_source_is_installed_once(
    skillyard: Skillyard, project: Path, tmp_path: Path
) -> None:
    write(tmp_path / "many", {f"{folder}/pdf/SKILL.md": good("pdf") for folder in "abc"})
    done = skillyard("add", str(tmp_path / "many"), "--all")

    assert done.stdout == "added pdf\n2 identical copies of these were left out\n"
    assert done.returncode == 0
    assert skills_in(project) == ["pdf"]
    assert data_of(skillyard("update", "--all", "--json"))["new"] == []


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_skill_that_may_not_be_written_does_not_stop_the_others(
    scheme: str, skillyard: Skillyard, project: Path, repo: Path
) -> None:
    (repo / "skills/one/secret").symlink_to("/etc/passwd")
    commit(repo, {"skills/three/SKILL.md": good("three"), "skills/three/Makefile": "x", "skills/three/makefile": "y"})
    done = skillyard("add", f"{scheme}{repo}", "--all", "--json")

    assert (done.returncode, skills_in(project)) == (3, ["two"])
    reasons = {each["name"]: each["reason"] for each in data_of(done)["left_out"]}
    assert sorted(reasons) == ["one", "three"]
    assert "leads out" in reasons["one"]
    assert "one file on some systems" in reasons["three"]
    assert data_of(skillyard("add", f"{scheme}{repo}", "--skill", "three", "--json"))["type"] == "SourceRefused"


def test_an_update_tells_a_move_from_a_change(skillyard: Skillyard, project: Path, repo: Path) -> None:
    """Another commit with the same bytes, or another path in the source, is a move: the lock follows, no file does."""
    git(repo, "tag", "v1")
    skillyard("add", f"file://{repo}", "--all", "--ref", "v1")
    (project / ".claude/skills/one/SKILL.md").write_text(good("one") + "mine\n")
    (repo / "plugins").mkdir()
    git(repo, "mv", "skills/two", "plugins/two")
    head = commit(repo, {"README.md": "other"})
    git(repo, "tag", "-f", "v1")
    planned = data_of(skillyard("update", "--all", "--dry-run", "--json"))
    done = skillyard("update", "--all")

    assert [(step["folder"], step["standing"], step["path"]) for step in planned["skills"]] == [
        ("one", "moved", "skills/one"),
        ("two", "moved", "plugins/two"),
    ]
    assert planned["new"] == []
    assert done.returncode == 0
    assert f"→ {head[:12]}, skills/two → plugins/two)" in done.stdout.splitlines()[1]
    locked = read_lock(project / "skillyard.lock")
    assert {(skill.commit, skill.path) for skill in locked.values()} == {(head, "skills/one"), (head, "plugins/two")}
    assert (project / ".claude/skills/one/SKILL.md").read_text().endswith("mine\n")
    assert data_of(skillyard("update", "two", "--json"))["skills"][0]["standing"] == "current"


def test_an_update_follows_a_skill_that_moved_and_changed(skillyard: Skillyard, project: Path, repo: Path) -> None:
    skillyard("add", f"file://{repo}", "--skill", "two")
    (repo / "plugins").mkdir()
    git(repo, "mv", "skills/two", "plugins/two")
    commit(repo, {"plugins/two/SKILL.md": good("two") + DOUBTFUL})
    held = data_of(skillyard("update", "--all", "--json"))

    assert held["skills"][0]["standing"] == "changed"
    assert held["interrupted_skills"] == ["two"]
    keep = skillyard("review", "resume", held["review"], "--decisions", '{"two": "keep"}')
    assert keep.returncode == 0, keep.stdout
    assert read_lock(project / "skillyard.lock")["two"].path == "plugins/two"
    assert skillyard("verify").returncode == 0
