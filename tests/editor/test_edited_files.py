"""Edits of real files: where they may go, what stays as it was, and what a crash leaves."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.errors import InvalidArgs, NotGranted, PermissionDenied, RuntimeFailed, SkillError, TextNotFound
from skillyard.editor.dirfd import FileLocation, OpenFolder, user_root
from skillyard.editor.editor import Edit, Editor, EditReport
from skillyard.editor.operations import Append, Operation, Replace
from skillyard.trust.consent import trust, wants

REPO = Path(__file__).parent.parent.parent

EditFile = Callable[..., EditReport]


@pytest.fixture
def mybox(project: Path) -> Path:
    folder = project / "mybox"
    folder.mkdir()
    return folder


@pytest.fixture
def edit(yard: Project, project: Path, monkeypatch: pytest.MonkeyPatch) -> EditFile:
    monkeypatch.chdir(project)

    def run(file: Path | str, operation: Operation, *, dry_run: bool = False) -> EditReport:
        return yard.editor.edit([Edit("an edit", str(file), operation)], dry_run=dry_run)

    return run


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".skillyard-edit-*")]


# Where edits may go


def test_the_file_and_its_folders_are_made_where_they_are_missing(edit: EditFile, project: Path) -> None:
    edit("mybox/a/b/notes.md", Append(content="x"))

    assert (project / "mybox/a/b/notes.md").read_text() == "x"


@pytest.mark.parametrize(
    "file",
    ["notes.md", "../notes.md", "mybox/../notes.md", "/etc/notes", "mybox", "mybox/../.git/hooks/x", "mybox/.git/x"],
)
def test_nothing_outside_mybox_is_edited(edit: EditFile, project: Path, mybox: Path, file: str) -> None:
    with pytest.raises(PermissionDenied):
        edit(file, Append(content="x"))

    assert not (project / "notes.md").exists()


def test_links_that_lead_out_are_refused_and_links_that_stay_inside_are_followed(
    edit: EditFile, mybox: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("a")
    (mybox / "folder").symlink_to(outside)
    (mybox / "file").symlink_to(outside / "a.txt")
    (mybox / "new").symlink_to(outside / "new.txt")
    (mybox / "loop").symlink_to(mybox / "loop")
    (mybox / "inside").symlink_to("real.txt")

    for file in ("folder/a.txt", "file", "new", "loop", "folder/../a.txt"):
        with pytest.raises(PermissionDenied):
            edit(mybox / file, Append(content="x"))
    edit(mybox / "inside", Append(content="x"))

    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("a.txt", "a")]
    assert (mybox / "real.txt").read_text() == "x"
    assert (mybox / "inside").is_symlink()


def test_a_mybox_that_came_as_a_link_leads_nowhere(edit: EditFile, project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (project / "mybox").symlink_to(tmp_path / "outside")

    with pytest.raises(PermissionDenied):
        edit("mybox/x", Append(content="x"))


def test_a_folder_that_becomes_a_link_after_the_check_is_not_followed(mybox: Path, tmp_path: Path) -> None:
    location = FileLocation(mybox, ("a", "b"), "x")
    (mybox / "a").symlink_to(tmp_path)
    (tmp_path / "b").mkdir()

    with pytest.raises(PermissionDenied):
        OpenFolder(location, create=True)


def test_a_file_that_becomes_a_link_after_the_check_is_neither_read_nor_written(mybox: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (mybox / "x").symlink_to(tmp_path / "secret")

    with OpenFolder(FileLocation(mybox, (), "x"), create=False) as folder, pytest.raises(PermissionDenied):
        folder.find("x")


def test_a_folder_that_is_swapped_for_a_link_all_the_time_never_leads_out(
    yard: Project, mybox: Path, tmp_path: Path
) -> None:
    outside, folder, parked = tmp_path / "outside", mybox / "folder", mybox / "parked"
    for each in (outside, folder):
        each.mkdir()
        (each / "x").write_text("<")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            folder.rename(parked)
            folder.symlink_to(outside)
            folder.unlink()
            parked.rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(300):
            with suppress(SkillError, OSError):
                yard.editor.edit([Edit("replace", str(folder / "x"), Replace(old="<", new="<."))])
    finally:
        done.set()
        swapping.join()

    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("x", "<")]


def test_the_users_roots_count_and_our_own_home_never_does(
    places: ProjectPaths, project: Path, edit: EditFile, tmp_path: Path
) -> None:
    (places.own_home / "config.toml").write_text(f'[editor]\nroots = ["{tmp_path}"]\n')
    (project / ".claude").mkdir()

    edit(project / ".claude" / "x", Append(content="x"))
    with pytest.raises(PermissionDenied):
        edit(places.own_home / "config.toml", Append(content="x"))


def test_the_projects_roots_count_after_trust_and_never_open_what_is_closed(
    places: ProjectPaths, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "skillyard.toml").write_text('[editor]\nroots = [".", "../beside"]\n')
    (project.parent / "beside").mkdir()
    wanted = [Edit("append", file, Append(content="x")) for file in ("docs/a.md", "../beside/a.md")]

    assert [want.what for want in wants(project)] == ["edit files in .", "edit files in ../beside"]
    for one in wanted:
        with Project(places) as yard, pytest.raises(NotGranted):
            yard.editor.edit([one])
    with Project(places) as yard:
        trust(yard.grants, project)
    with Project(places) as yard:
        yard.editor.edit(wanted)
        for closed in (".git/config", "bin/x.py", ".claude/skills/x/SKILL.md", "agents/a/x", "docs/.git/config"):
            with pytest.raises(PermissionDenied):
                yard.editor.edit([Edit("append", closed, Append(content="x"))])
    assert (project / "docs/a.md").exists()


# What stays


def test_the_mode_stays_and_read_only_is_respected(edit: EditFile, mybox: Path) -> None:
    script, frozen = mybox / "run.sh", mybox / "frozen"
    script.write_text("a")
    script.chmod(0o750)
    frozen.write_text("a")
    frozen.chmod(0o444)

    edit(script, Append(content="b"))
    with pytest.raises(PermissionDenied):
        edit(frozen, Append(content="b"))

    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert frozen.read_text() == "a"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_the_owner_stays(edit: EditFile, mybox: Path) -> None:
    file = mybox / "x"
    file.write_text("a")
    os.chown(file, 12345, 54321)

    edit(file, Append(content="b"))

    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 54321)


def test_an_edit_that_changes_nothing_writes_nothing(edit: EditFile, mybox: Path) -> None:
    file = mybox / "x"
    file.write_text("a")
    before = file.stat()

    report = edit(file, Replace(old="a", new="a"))

    assert not report.edited[0].changed
    assert file.stat() == before


def test_a_dry_run_shows_the_difference_and_leaves_no_trace(
    edit: EditFile, project: Path, places: ProjectPaths
) -> None:
    report = edit("mybox/new/x.md", Append(content="中文"), dry_run=True)

    assert report.diff == "--- /dev/null\n+++ b/mybox/new/x.md\n@@ -0,0 +1 @@\n+中文\n\\ No newline at end of file\n"
    assert not (project / "mybox").exists()
    assert list(places.own_home.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"a\0b",
        b"\x7fELF\x02\0",
        b"\xff\xfe\0\0a\0\0\0",
        b"\xff\xfea",
        b"\xef\xbb\xbf\xff",
        b"caf\xe9\n",
        b"\x89PNG\r\n\x1a\n\0",
    ],
)
def test_what_is_no_text_is_refused(edit: EditFile, mybox: Path, content: bytes) -> None:
    (mybox / "x").write_bytes(content)

    with pytest.raises(RuntimeFailed, match="not a text file"):
        edit(mybox / "x", Append(content="b"))


def test_a_text_that_would_be_read_in_another_encoding_is_refused(edit: EditFile, mybox: Path) -> None:
    content = b"\xc4\xa8" + "xx中".encode("gb18030")  # the first character alone would be valid UTF-8
    (mybox / "x").write_bytes(content)

    with pytest.raises(RuntimeFailed, match="another encoding"):
        edit(mybox / "x", Replace(old="xx中", new=""))

    assert (mybox / "x").read_bytes() == content


def test_pipes_folders_and_missing_files_are_refused_at_once(edit: EditFile, mybox: Path) -> None:
    os.mkfifo(mybox / "pipe")
    (mybox / "folder").mkdir()

    for name in ("pipe", "folder"):
        with pytest.raises(PermissionDenied):
            edit(mybox / name, Append(content="x"))
    with pytest.raises(FileNotFoundError):
        edit(mybox / "missing", Replace(old="a", new="b"))


def test_ten_thousand_lines_in_chinese_with_emoji(edit: EditFile, mybox: Path) -> None:
    lines = [f"第{number}行 🧰 结束\r\n" for number in range(10_000)]
    (mybox / "x").write_bytes("".join(lines).encode())

    edit(mybox / "x", Replace(old="第7777行 🧰", new="换\n行"))

    lines[7777] = "换\r\n行 结束\r\n"
    assert (mybox / "x").read_bytes() == "".join(lines).encode()


def test_a_full_disk_leaves_the_old_file_and_nothing_else(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "x").write_text("a" * 20_000)
    (small_disk / "y").write_text("b")
    editor = Editor([user_root(small_disk)], [], tmp_path / "home")
    edits = [Edit("append", str(small_disk / name), Append(content="c" * 30_000)) for name in ("y", "x")]

    with pytest.raises(OSError, match="nothing was changed"):
        editor.edit(edits)

    assert (small_disk / "x").read_text() == "a" * 20_000
    assert (small_disk / "y").read_text() == "b"
    assert leftovers(small_disk) == []


def test_a_read_only_disk_is_told(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "x").write_text("a")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    editor = Editor([user_root(small_disk)], [], tmp_path / "home")

    with pytest.raises((PermissionDenied, OSError)):
        editor.edit([Edit("append", str(small_disk / "x"), Append(content="b"))])

    assert (small_disk / "x").read_text() == "a"


# Several at once


def start(places: ProjectPaths, *command: str) -> "subprocess.Popen[bytes]":
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(places.user_home),
        "SKILLYARD_HOME": str(places.own_home),
        "PYTHONPATH": str(REPO),
    }
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=places.project,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


MANY = """
import sys
from skillyard.app.project import open_project
from skillyard.editor.operations import Append
from skillyard.editor.editor import Edit
sys.stdin.readline()
with open_project() as yard:
    for number in range(20):
        yard.editor.edit([Edit("append", "mybox/log", Append(content=f"{sys.argv[1]} {number}"))])
"""


def test_eight_processes_that_append_to_one_file_lose_no_line(places: ProjectPaths, project: Path) -> None:
    writers = [start(places, "-c", MANY, str(number)) for number in range(8)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=120)[0] for writer in writers]

    assert said == [b""] * 8
    lines = (project / "mybox/log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{writer} {number}" for writer in range(8) for number in range(20))


def test_a_folder_that_somebody_holds_too_long_is_an_error_not_a_hang(mybox: Path) -> None:
    location = FileLocation(mybox, (), "x")
    with OpenFolder(location, create=False) as one, OpenFolder(location, create=False) as two:
        one.lock()
        with pytest.raises(RuntimeFailed, match="locked"):
            two.lock(seconds=0.05)


# All or nothing


def batch(*files: str) -> str:
    edits = [{"operation": "replace", "file": f"mybox/{name}", "old": "old", "new": "new"} for name in files]
    return json.dumps([*edits, {"operation": "append", "file": "mybox/made/c", "content": "new"}])


def state(project: Path) -> list[str]:
    names = ("a", "b", "made/c")
    return [(project / "mybox" / name).read_text() if (project / "mybox" / name).exists() else "old" for name in names]


def test_a_batch_changes_all_its_files_and_sees_its_own_edits(yard: Project, mybox: Path, places: ProjectPaths) -> None:
    (mybox / "a").write_text("1")
    name = str(mybox / "a")
    edits = [
        Edit("replace", name, Replace(old="1", new="2")),
        Edit("replace", str(mybox / "x/../a"), Replace(old="2", new="3")),
        Edit("append", str(mybox / "b"), Append(content="4")),
    ]

    assert [edited.changed for edited in yard.editor.edit(edits).edited] == [True, True, True]

    assert [(mybox / name).read_text() for name in "ab"] == ["3", "4"]
    assert leftovers(mybox) == []
    assert list((places.own_home / "edits").iterdir()) == []


def test_a_batch_with_one_edit_that_fails_changes_nothing_and_names_it(yard: Project, mybox: Path) -> None:
    (mybox / "a").write_text("1")
    name = str(mybox / "a")

    with pytest.raises(TextNotFound) as failed:
        yard.editor.edit(
            [Edit("append", name, Append(content="x")), Edit("replace", name, Replace(old="nope", new="y"))]
        )

    assert failed.value.data()["edit"] == 2
    assert (mybox / "a").read_text() == "1"


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", "[1]", '[{"operation": "append"}]', '[{"operation": "append", "file": "x"}]', "[" * 100_000],
)
def test_a_batch_that_is_none_is_a_usage_error(content: str) -> None:
    with pytest.raises(InvalidArgs):
        Editor.parse_batch(content)


@contextmanager
def unswappable(file: Path) -> Iterator[None]:
    """A file that something is mounted on cannot be renamed over."""
    other = file.with_name("other")
    other.write_text(file.read_text())
    if subprocess.run(["mount", "--bind", other, file], capture_output=True).returncode != 0:
        pytest.skip("only root may mount")
    try:
        yield
    finally:
        subprocess.run(["umount", file], check=True)


def test_a_swap_that_fails_puts_back_what_was_swapped(yard: Project, mybox: Path, places: ProjectPaths) -> None:
    for name in "abc":
        (mybox / name).write_text("old")
    edits = [Edit("replace", str(mybox / name), Replace(old="old", new="new")) for name in "abc"]
    with unswappable(mybox / "b"), pytest.raises(OSError, match="nothing was changed"):
        yard.editor.edit([*edits, Edit("append", str(mybox / "d"), Append(content="new"))])

    assert [(mybox / name).read_text() for name in "abc"] == ["old"] * 3
    assert not (mybox / "d").exists()
    assert leftovers(mybox) == []
    assert list((places.own_home / "edits").iterdir()) == []


def doomed(places: ProjectPaths, nth: int, *words: str) -> int:
    child = start(places, "-m", "tests.editor.doomed", str(nth), *words)
    child.communicate(timeout=60)
    return child.returncode


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_all_old_or_the_next_edit_makes_all_new(
    places: ProjectPaths, project: Path, mybox: Path
) -> None:
    plan = project / "plan.json"
    plan.write_text(batch("a", "b"))
    outcomes: set[str] = set()
    nth, ended = 0, -9
    while ended == -9:
        nth += 1
        for name in ("a", "b"):
            (mybox / name).write_text("old")
        (mybox / "made" / "c").unlink(missing_ok=True)
        ended = doomed(places, nth, "batch", str(plan))
        with Project(places) as yard:
            yard.editor.edit([Edit("append", str(mybox / "log"), Append(content="x"))])
        (outcome,) = set(state(project))
        outcomes.add(outcome)
        assert list((places.own_home / "edits").glob("*.json")) == []

    assert ended == 0
    assert nth > 10
    assert outcomes == {"old", "new"}
    with Project(places) as yard:
        yard.editor.edit([Edit("append", str(mybox / name), Append(content="x")) for name in ("log", "made/log")])
    assert leftovers(mybox) == []


@pytest.mark.slow
def test_a_kill_while_a_failed_batch_is_put_back_is_settled_by_the_next_edit(
    places: ProjectPaths, project: Path, mybox: Path
) -> None:
    plan = project / "plan.json"
    plan.write_text(batch("a", "b"))
    nth, ended = 0, -9
    while ended == -9:
        nth += 1
        for name in ("a", "b"):
            (mybox / name).write_text("old")
        (mybox / "made" / "c").unlink(missing_ok=True)
        with unswappable(mybox / "b"):
            ended = doomed(places, nth, "batch", str(plan))
        with Project(places) as yard:
            yard.editor.edit([Edit("append", str(mybox / "log"), Append(content="x"))])
        assert len(set(state(project))) == 1

    assert ended == 1
    assert state(project) == ["old"] * 3


@pytest.mark.slow
def test_a_kill_at_any_moment_never_leaves_half_a_file(places: ProjectPaths, project: Path, mybox: Path) -> None:
    file = mybox / "a"
    nth, ended = 0, -9
    while ended == -9:
        nth += 1
        file.write_text("old" * 100_000)
        ended = doomed(places, nth, "append", "mybox/a", "new")
        assert file.read_text() in {"old" * 100_000, "old" * 100_000 + "\nnew"}

    assert ended == 0
    assert nth > 3


def test_what_somebody_changed_after_a_crash_stays_and_is_named(
    places: ProjectPaths, project: Path, mybox: Path
) -> None:
    plan = project / "plan.json"
    plan.write_text(batch("a", "b"))
    nth = 0
    while not list((places.own_home / "edits").glob("*.json")):
        nth += 1
        for name in ("a", "b"):
            (mybox / name).write_text("old")
        assert doomed(places, nth, "batch", str(plan)) == -9
    (mybox / "b").write_text("mine")

    with Project(places) as yard:
        report = yard.editor.edit([Edit("append", str(mybox / "log"), Append(content="x"))])

    assert report.recovered.settled == (str(mybox / "a"), str(mybox / "made/c"))
    assert report.recovered.kept == (str(mybox / "b"),)
    assert state(project) == ["new", "mine", "new"]
