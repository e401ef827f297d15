"""Discovery, index, resolve and search over real folders."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import Index
from skillyard.catalog.manifest import MAX_FILE_BYTES
from skillyard.catalog.scan import Changes
from skillyard.core.errors import AmbiguousName, MetadataMissing, SkillNotFound
from tests.conftest import WriteSkill


def skill_text(name: str, description: str = "Does something", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n# {name}\n"


def names(catalog: Catalog) -> list[str]:
    catalog.sync()
    return [entry.name for entry in catalog.list()]


def settle(*files: Path) -> None:
    """Make files look as if they were written a while ago: a fresh stamp is never trusted."""
    past = time.time() - 3600
    for file in files:
        os.utime(file, (past, past))


def reopened(places: ProjectPaths) -> Catalog:
    return Project(places).catalog


def test_skills_are_found_in_every_root_of_project_and_user(
    yard: Project, places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    for name, root in {
        "a": project / ".claude/skills",
        "b": project / ".agents/skills",
        "c": project / "skills",
        "d": places.user_home / ".claude/skills",
        "e": places.user_home / ".agents/skills",
        "f": places.own_home / "skills",
    }.items():
        write_skill(name, skill_text(name), root=root)

    assert names(yard.catalog) == ["a", "b", "c", "d", "e", "f"]


def test_skills_in_folders_of_folders_are_found_but_not_inside_a_skill(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("office/docx", skill_text("docx"))
    write_skill("office/docx/examples/inner", skill_text("inner"))

    assert names(yard.catalog) == ["docx"]


@pytest.mark.parametrize("folder", ["node_modules/x", ".git/x", "__MACOSX/x", "PaxHeader/x", "._x"])
def test_leftovers_of_archives_and_tools_are_ignored(yard: Project, write_skill: WriteSkill, folder: str) -> None:
    write_skill(folder, skill_text("x"))

    assert names(yard.catalog) == []


def test_a_link_to_a_skill_is_followed_and_a_link_in_a_circle_is_not(
    yard: Project, tmp_path: Path, project: Path, write_skill: WriteSkill
) -> None:
    write_skill("mine", skill_text("mine"), root=tmp_path / "elsewhere")
    root = project / ".claude/skills"
    (root / "group").mkdir(parents=True)
    (root / "linked").symlink_to(tmp_path / "elsewhere" / "mine")
    (root / "group" / "back").symlink_to(root)
    (root / "nowhere").symlink_to(tmp_path / "missing")
    (root / "self").symlink_to(root / "self")

    assert names(yard.catalog) == ["mine"]


def test_too_deep_a_folder_is_left_out_and_said(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("1/2/3/4/5/6/7/deep", skill_text("deep"))

    changes = yard.catalog.sync()

    assert yard.catalog.list() == ()
    assert len(changes.left_out) == 1


def test_the_same_folder_name_in_two_roots_is_one_skill_and_the_project_wins(
    yard: Project, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    mine = write_skill("report", skill_text("report", "the project's"))
    write_skill("report", skill_text("report", "the user's"), root=places.user_home / ".claude/skills")

    assert names(yard.catalog) == ["report"]
    assert yard.catalog.resolve("report").path == mine
    assert len(yard.catalog.candidates("report")) == 2


def test_a_folder_name_is_stronger_than_a_skill_name(yard: Project, write_skill: WriteSkill) -> None:
    folder = write_skill("convert", skill_text("md-converter"))
    write_skill("other", skill_text("convert"))
    yard.catalog.sync()

    assert yard.catalog.resolve("convert").path == folder


def test_a_skill_answers_to_its_name_and_to_its_title_in_any_case(yard: Project, write_skill: WriteSkill) -> None:
    path = write_skill("md-tools-v1", skill_text("markdown-converter", more="title: Markdown转换\n"))
    yard.catalog.sync()

    assert yard.catalog.resolve("markdown-converter").path == path
    assert yard.catalog.resolve("Markdown-Converter").path == path
    assert yard.catalog.resolve("markdown转换").path == path


def test_two_skills_of_one_name_in_one_root_are_ambiguous_until_the_path_is_named(
    yard: Project, write_skill: WriteSkill
) -> None:
    write_skill("a/report", skill_text("report"))
    second = write_skill("b/report", skill_text("report"))
    yard.catalog.sync()

    with pytest.raises(AmbiguousName) as caught:
        yard.catalog.resolve("report")

    assert caught.value.details["candidates"] == ["a/report", "b/report"]
    assert yard.catalog.resolve("b/report").path == second
    assert len(yard.catalog.list()) == 2


def test_a_slip_of_the_pen_is_answered_with_the_nearest_names(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("markdown-converter", skill_text("markdown-converter"))
    yard.catalog.sync()

    with pytest.raises(SkillNotFound) as caught:
        yard.catalog.resolve("markdwon-converter")

    assert caught.value.details["nearest"] == ["markdown-converter"]


def test_a_named_folder_without_a_usable_file_is_metadata_missing(yard: Project, project: Path) -> None:
    folder = project / ".claude/skills/huge"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    yard.catalog.sync()

    with pytest.raises(MetadataMissing):
        yard.catalog.resolve("huge")


def test_the_skills_of_a_role_are_reached_by_name_and_by_role(yard: Project, project: Path) -> None:
    for role in ("analyst", "writer"):
        folder = project / "agents" / role
        folder.mkdir(parents=True)
        text = "skills:\n  - name: report\n    entry: .claude/skills/report.py\n    timeout: 600\n"
        (folder / "agent.yaml").write_text(text)
    yard.catalog.sync()

    skill = yard.catalog.resolve("analyst/report")

    assert (skill.role, skill.timeout_seconds) == ("analyst", 600.0)
    with pytest.raises(AmbiguousName):
        yard.catalog.resolve("report")


def test_an_entry_outside_its_role_is_not_a_skill(yard: Project, project: Path) -> None:
    folder = project / "agents" / "sly"
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text("skills:\n  - {name: bad, entry: ../../../etc/passwd}\n  - 3\n")

    assert names(yard.catalog) == []


def test_a_change_an_addition_and_a_removal_are_each_seen_at_the_next_look(
    places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    first = write_skill("first", skill_text("first"))
    second = write_skill("second", skill_text("second"))
    settle(first, second, project / ".claude/skills")
    reopened(places).sync()

    write_skill("first", skill_text("first", "Now it does more"))
    third = write_skill("third", skill_text("third"))
    shutil.rmtree(second.parent)
    catalog = reopened(places)

    changes = catalog.sync()

    assert changes == Changes(added=(str(third),), updated=(str(first),), removed=(str(second),))
    assert catalog.resolve("first").description == "Now it does more"


def test_an_unchanged_tree_is_not_read_again(places: ProjectPaths, project: Path, write_skill: WriteSkill) -> None:
    path = write_skill("quiet", skill_text("quiet"))
    reopened(places).sync()
    time_of = path.stat()
    # Change the bytes but restore every stamp that a stat would show, except the change time: still seen.
    path.write_text(skill_text("quiet", "Changed behind").ljust(time_of.st_size), "utf-8")
    os.utime(path, ns=(time_of.st_atime_ns, time_of.st_mtime_ns))

    catalog = reopened(places)
    catalog.sync()

    assert catalog.resolve("quiet").description == "Changed behind"


def test_touching_a_file_without_changing_it_is_no_update(places: ProjectPaths, write_skill: WriteSkill) -> None:
    path = write_skill("same", skill_text("same"))
    reopened(places).sync()
    settle(path)

    assert reopened(places).sync() == Changes()


def test_a_broken_index_is_thrown_away_and_made_again(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("safe", skill_text("safe"))
    reopened(places).sync()
    places.index_file.write_bytes(b"this is no database" * 1000)
    for leftover in places.index_file.parent.glob("index.db-*"):
        leftover.unlink()

    assert names(reopened(places)) == ["safe"]


def test_an_index_of_another_version_is_made_again(places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("safe", skill_text("safe"))
    reopened(places).sync()
    with sqlite3.connect(places.index_file) as connection:
        connection.execute("PRAGMA user_version = 999")
        connection.execute("DROP TABLE folders")
    connection.close()

    assert names(reopened(places)) == ["safe"]


def test_a_home_that_cannot_be_written_still_answers(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("safe", skill_text("safe"))

    catalog = Catalog(roots=yard.catalog.roots, index=Index(Path("/proc/nothing/here.db")))

    assert names(catalog) == ["safe"]


def test_many_processes_that_scan_at_once_corrupt_nothing(
    places: ProjectPaths, project: Path, write_skill: WriteSkill
) -> None:
    for number in range(200):
        write_skill(f"skill-{number}", skill_text(f"skill-{number}"))
    env = {**os.environ, "HOME": str(places.user_home), "SKILLYARD_HOME": str(places.own_home)}
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "skillyard", "list", "--json"], cwd=project, env=env, stdout=subprocess.PIPE
        )
        for _ in range(6)
    ]

    outputs = [racer.communicate(timeout=120)[0] for racer in racers]

    assert [racer.returncode for racer in racers] == [0] * 6
    assert {output.count(b'"folder_name"') for output in outputs} == {200}
    catalog = reopened(places)
    assert catalog.sync().added == ()
    assert len(catalog.list()) == 200


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("report", "report"),  # exact before prefix and part
        ("repo", "report"),
        ("weekly", "weekly-report"),
        ("summar", "digest"),  # only in the description, and unfinished
        ("周报", "zh-weekly"),  # two characters inside a longer run
        ("发票", "tagged"),  # only in the tags
        ("ＲＥＰＯＲＴ", "report"),  # full width
    ],
)
def test_search_puts_the_best_match_first(yard: Project, write_skill: WriteSkill, query: str, first: str) -> None:
    write_skill("report", skill_text("report", "Writes things"))
    write_skill("report-mailer", skill_text("report-mailer", "Sends things"))
    write_skill("weekly-report", skill_text("weekly-report", "Every Friday"))
    write_skill("digest", skill_text("digest", "Makes summaries of long reports"))
    write_skill("zh-weekly", skill_text("zh-weekly", "自动生成项目周报并发送"))
    write_skill("tagged", skill_text("tagged", "Reads paper", "tags: [发票, 报销]\n"))
    yard.catalog.sync()

    hits = yard.catalog.search(query)

    assert hits[0].entry.name == first


def test_of_two_equal_matches_the_more_used_comes_first(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("a-tool", skill_text("a-tool", "resizes images"))
    write_skill("b-tool", skill_text("b-tool", "resizes images"))
    catalog = Catalog(roots=yard.catalog.roots, index=yard.catalog.index, uses=lambda: {"b-tool": 5})
    catalog.sync()

    assert [hit.entry.name for hit in catalog.search("images")] == ["b-tool", "a-tool"]


@pytest.mark.parametrize(
    "query", ['"', "AND OR NOT", "a* OR b", "^x", "(", "{}", "%", "'; DROP TABLE skills", "🎉", "\0"]
)
def test_search_takes_any_text_for_plain_words(yard: Project, write_skill: WriteSkill, query: str) -> None:
    write_skill("x", skill_text("x"))
    yard.catalog.sync()

    assert isinstance(yard.catalog.search(query), tuple)


def test_a_shadowed_skill_is_not_found_by_search(yard: Project, places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("report", skill_text("report", "one"))
    write_skill("report", skill_text("report", "unmistakable"), root=places.user_home / ".claude/skills")
    yard.catalog.sync()

    assert yard.catalog.search("unmistakable") == ()


def test_a_snippet_shows_the_words_around_the_match(yard: Project, write_skill: WriteSkill) -> None:
    write_skill("long", skill_text("long", "first " * 60 + "needle " + "last " * 60))
    yard.catalog.sync()

    snippet = yard.catalog.search("needle")[0].snippet

    assert "needle" in snippet
    assert len(snippet) < 130


@pytest.mark.parametrize("name", ["", " ", "/", "x/"])
def test_nobody_answers_to_an_empty_name(yard: Project, write_skill: WriteSkill, name: str) -> None:
    write_skill("a", skill_text("a"))
    write_skill("b", skill_text("b"))
    yard.catalog.sync()

    with pytest.raises(SkillNotFound):
        yard.catalog.resolve(name)
