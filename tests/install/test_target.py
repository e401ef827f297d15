"""Changes are whole or not at all: in one process, in two, and where one is killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillyard.core.errors import InvalidArgs, PermissionDenied, SourceRefused
from skillyard.install.names import as_safe_path, as_slug
from skillyard.install.target import (
    FolderSwap,
    InstalledSkill,
    Target,
    as_text,
    digests_of,
    exchange,
    parse_lock,
    project_target,
    tree_hash,
)


def never_exchange(one: Path, other: Path) -> bool:
    """As on a system without such a call."""
    return False


WAYS: list[FolderSwap] = [exchange, never_exchange]


@pytest.fixture
def place(project: Path) -> Target:
    return project_target(project)


def put(place: Target, name: str, content: str, swap: FolderSwap = exchange) -> None:
    with place.open(swap):
        staged = place.new_staging()
        staged.mkdir()
        for number in range(3):
            (staged / f"{number}.md").write_text(content)
        place.apply([(name, staged)], content, swap)


def content_of(place: Target, name: str) -> set[str]:
    return {path.read_text() for path in (place.skills / name).iterdir()}


@pytest.mark.parametrize("swap", WAYS)
def test_a_folder_is_replaced_whole(place: Target, swap: FolderSwap) -> None:
    put(place, "x", "old", swap)
    put(place, "x", "new", swap)

    assert content_of(place, "x") == {"new"}
    assert place.lock_file.read_text() == "new"
    assert sorted(path.name for path in place.state.iterdir()) == ["lock"] or not any((place.state / "trash").glob("*"))


def test_a_folder_is_taken_away_and_the_lock_says_so(place: Target) -> None:
    put(place, "x", "old")
    with place.open():
        place.apply([("x", None)], "gone")

    assert not (place.skills / "x").exists()
    assert place.lock_file.read_text() == "gone"


def test_nothing_is_installed_through_a_link_out_of_the_project(place: Target, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place.skills.parent.mkdir()
    place.skills.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionDenied):
        put(place, "x", "evil")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    "moves",
    ['[["../../precious", "", 0]]', '[["x", "../../../precious", 1]]', "[[1]]", "7", '[["x/../..", "", 0]]'],
)
def test_a_journal_that_came_with_a_clone_moves_nothing(place: Target, tmp_path: Path, moves: str) -> None:
    (place.bounds / "precious").mkdir()
    place.state.mkdir(parents=True)
    journal = place.state / "journal.json"
    journal.write_text(f'{{"moves": {moves}, "lock": "", "id": "{"0" * 32}"}}')
    with pytest.raises(InvalidArgs), place.open():
        pass

    assert (place.bounds / "precious").is_dir()


@pytest.mark.parametrize("name", ["staging", "trash", "lock", "../.gitignore"])
def test_a_link_in_our_own_folder_is_never_followed(place: Target, tmp_path: Path, name: str) -> None:
    (tmp_path / "precious/inner").mkdir(parents=True)
    place.state.mkdir(parents=True)
    (place.state / name).symlink_to(tmp_path / "precious" if "." not in name else tmp_path / "made")
    with pytest.raises(PermissionDenied), place.open():
        pass

    assert (tmp_path / "precious/inner").is_dir()
    assert not (tmp_path / "made").exists()


_ONE_CHANGE = """
import os, signal, sys
from pathlib import Path
from skillyard.install import target as module
from skillyard.install.target import *
root, way, kill_at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
steps = 0
def watch(frame, event, arg):
    global steps
    if frame.f_code.co_filename == module.__file__:
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    return watch
place = project_target(root)
swap = module.exchange if way == "exchange" else lambda one, other: False
sys.settrace(watch)
with place.open(swap):
    staged = place.new_staging()
    staged.mkdir()
    for number in range(3):
        (staged / f"{number}.md").write_text("new")
    place.apply([("x", staged), ("gone", None)], "new", swap)
sys.settrace(None)
print(steps)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exchange", "never_exchange"])
def test_a_kill_at_any_point_leaves_the_old_state_or_the_new(place: Target, project: Path, way: str) -> None:
    swap = WAYS[way == "never_exchange"]

    def change(kill_at: int) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-c", _ONE_CHANGE, str(project), way, str(kill_at)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    put(place, "gone", "old")
    put(place, "x", "old")
    total = int(change(0).stdout)
    seen = set()
    for kill_at in range(1, total, max(1, total // 40)):
        put(place, "gone", "old")
        put(place, "x", "old")
        assert change(kill_at).returncode == -signal.SIGKILL
        if way == "exchange":  # at no time is there no skill, or half of one
            assert content_of(place, "x") in ({"old"}, {"new"})
        with place.open(swap):
            pass
        state = (content_of(place, "x"), place.lock_file.read_text(), (place.skills / "gone").exists())
        assert state in (({"old"}, "old", True), ({"new"}, "new", False))
        assert not place.is_unfinished
        assert not any((place.state / "staging").glob("*"))
        seen.add(state[1])
    assert seen == {"old", "new"}


NAMES = st.text(min_size=1, max_size=12)


def _is_path(name: str) -> bool:
    try:
        return str(as_safe_path(name)) == name
    except SourceRefused:
        return False


@st.composite
def installed(draw: st.DrawFn) -> InstalledSkill:
    files = draw(st.dictionaries(NAMES.filter(_is_path), st.text(st.characters(exclude_categories=["Cs"])), max_size=3))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    return InstalledSkill(
        folder=as_slug(draw(st.text(max_size=8)) + "x"),
        name=draw(text),
        source=draw(text),
        ref=draw(text),
        commit=draw(text),
        path="",
        reviewed=draw(text),
        hash=tree_hash(files),
        files=files,
    )


@given(st.lists(installed(), max_size=4))
def test_a_lock_reads_back_equal(skills: list[InstalledSkill]) -> None:
    lock = {skill.folder: skill for skill in skills}

    assert parse_lock(as_text(lock)) == lock
    assert as_text(parse_lock(as_text(lock))) == as_text(lock)


@given(st.text(max_size=40))
def test_a_slug_is_one_plain_part_of_a_path_and_stays_itself(name: str) -> None:
    try:
        slug = as_slug(name)
    except InvalidArgs:
        return
    assert str(as_safe_path(slug)) == slug
    assert "/" not in slug
    assert as_slug(slug) == slug


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version = 2",
        "version = 1\n[skills]\nx = 1",
        'version = 1\n[skills."../x"]\nname = "x"\nsource = "y"\nhash = "z"',
        'version = 1\n[skills.x]\nname = "x"\nsource = "y"\nhash = "z"',
        'version = 1\n[skills.x]\nname = "x"\nsource = "y"\nhash = "z"\n[skills.x.files]\n"../../x" = "sha256:0"',
        "not toml at all",
    ],
)
def test_a_lock_that_we_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgs):
        parse_lock(text)


def test_marks_tell_files_programs_and_links_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    before = digests_of(tmp_path)
    (tmp_path / "a").chmod(0o755)

    assert digests_of(tmp_path) != before
