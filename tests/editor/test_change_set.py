"""What a run changed is read from a real overlay, and applied whole or not at all."""

import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from skillyard.core.errors import ChangesConflict
from skillyard.editor import apply as apply_module
from skillyard.editor.apply import Applier
from skillyard.editor.change_set import (
    MAX_FILES,
    ChangeKind,
    ChangeSet,
    TooManyChangesError,
    diff,
    is_too_large,
    read_changes,
)

_CAN_MOUNT = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
pytestmark = pytest.mark.skipif(not _CAN_MOUNT, reason="this machine gives no user namespaces")


class Ground:
    """A project, and an overlay over it in which a shell line runs."""

    def __init__(self, base: Path) -> None:
        self.project, self.state, self.mount = base / "project", base / "state", base / "mount"
        self.upper = self.state / "upper"
        for folder in (self.project, self.upper, self.state / "work", self.mount):
            folder.mkdir(parents=True)
        self.started_ns = 0

    def write(self, name: str, content: str = "") -> None:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def run(self, line: str) -> ChangeSet:
        marker = self.state / "marker"
        marker.touch()
        marker.stat()
        os.utime(marker)  # an instant that is later than every change before it
        self.started_ns = marker.stat().st_ctime_ns
        options = f"userxattr,lowerdir={self.project},upperdir={self.upper},workdir={self.state / 'work'}"
        mounted = f"mount -t overlay none -o {options} {self.mount} && cd {self.mount} && {line}"
        subprocess.run(["unshare", "-rm", "sh", "-c", mounted], check=True, capture_output=True)
        return self.changes()

    def changes(self) -> ChangeSet:
        return read_changes(self.upper, self.project, _is_closed)

    def apply(self, found: ChangeSet) -> None:
        Applier(self.state, self.project).apply(self.upper, found.changes, self.started_ns)


def _is_closed(path: str) -> bool:
    return path in {".env", ".skillyard"} or path.startswith(".skillyard/")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def _tree(folder: Path) -> dict[str, tuple[str, int, str]]:
    """Return everything below a folder but our own state, with type, mode and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == ".skillyard":
            continue
        mode = path.lstat().st_mode
        content = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found[name] = (stat.filemode(mode)[0], 0 if path.is_symlink() else stat.S_IMODE(mode), content)
    return found


def test_each_sort_of_change_is_told_apart(ground: Ground) -> None:
    for name, content in {"a.txt": "one\n", "gone": "x", "old name": "rename me", "m.sh": "#!", "same": "same"}.items():
        ground.write(name, content)
    ground.write("folder/inside", "1")

    found = ground.run(
        "echo two >> a.txt; rm gone; mv 'old name' '新 名😀'; chmod 755 m.sh; echo same > same; printf same > same; "
        "mkdir new; echo n > new/file; ln -s a.txt link; rm -r folder; mkfifo pipe"
    )

    assert {change.path: change.kind for change in found.changes} == {
        "a.txt": ChangeKind.MODIFIED,
        "gone": ChangeKind.DELETED,
        "新 名😀": ChangeKind.RENAMED,
        "m.sh": ChangeKind.MODE,
        "new": ChangeKind.ADDED,
        "new/file": ChangeKind.ADDED,
        "link": ChangeKind.ADDED,
        "folder": ChangeKind.DELETED,
    }
    assert found.skipped == ("pipe",)


def test_what_was_applied_is_what_the_run_saw(ground: Ground) -> None:
    ground.write("a.txt", "one\n")
    ground.write("deep/down/file", "1")
    ground.write("folder/inside", "1")

    found = ground.run("echo two >> a.txt; rm -r deep; mkdir deep; echo 2 > deep/other; rm -r folder; echo f > folder")
    ground.apply(found)

    assert {name: content for name, (_, _, content) in _tree(ground.project).items()} == {
        "a.txt": "one\ntwo\n",
        "deep": "",
        "deep/other": "2\n",
        "folder": "f\n",
    }
    assert ground.changes().changes == ()


@pytest.mark.parametrize("seed", range(12))
def test_random_commands_come_out_as_they_were_seen(ground: Ground, seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "b/c", "b/d", "e/f/g", "h"]
    for name in names[: chance.randrange(6)]:
        ground.write(name, f"{name} {chance.random()}")
    every: list[Callable[[str, str], str]] = [
        lambda a, _: f"mkdir -p $(dirname {a}) && echo {chance.random()} > {a}",
        lambda a, _: f"rm -rf {a}",
        lambda a, b: f"mkdir -p $(dirname {b}) && mv -f {a} {b}",
        lambda a, _: f"chmod {chance.choice(['700', '744', '755'])} {a}",
        lambda a, b: f"ln -sfn {a} {b}",
        lambda a, _: f"rm -rf {a} && mkdir -p {a} && echo x > {a}/y",
    ]
    places = [*names, "b", "e", "e/f", "new", "b/new"]
    lines = [chance.choice(every)(chance.choice(places), chance.choice(places)) for _ in range(10)]
    seen = ground.state / "seen"
    line = "; ".join(f"{{ {each}; }} 2>/dev/null" for each in lines)

    found = ground.run(f"{line}; cp -a . {seen}")
    ground.apply(found)

    assert _tree(ground.project) == _tree(seen), lines


def test_a_file_that_somebody_else_changed_meanwhile_stops_everything(ground: Ground) -> None:
    ground.write("a.txt", "one\n")
    ground.write("b.txt", "one\n")
    found = ground.run("echo two >> a.txt; echo two >> b.txt; echo new > c.txt")
    ground.write("b.txt", "mine\n")
    before = _tree(ground.project)

    with pytest.raises(ChangesConflict) as refused:
        ground.apply(found)

    assert refused.value.details["conflicts"] == ["b.txt"]
    assert _tree(ground.project) == before


@pytest.mark.parametrize(
    ("line", "meanwhile"),
    [
        ("echo new > c.txt", lambda project: (project / "c.txt").write_text("mine")),
        ("rm -r folder", lambda project: (project / "folder" / "mine").write_text("mine")),
        ("rm a.txt", lambda project: (project / "a.txt").unlink()),
        (
            "echo 2 > folder/file",
            lambda project: (project / "folder").rename(project / "moved"),
        ),
        ("mv a.txt z.txt", lambda project: (project / "z.txt").mkdir()),
    ],
)
def test_no_change_of_others_is_lost(ground: Ground, line: str, meanwhile: Callable[[Path], Any]) -> None:
    ground.write("a.txt", "one\n")
    ground.write("folder/file", "1")
    found = ground.run(line)
    meanwhile(ground.project)
    before = _tree(ground.project)

    with pytest.raises((ChangesConflict, OSError)):
        ground.apply(found)

    assert _tree(ground.project) == before


def test_a_closed_path_is_never_changed(ground: Ground) -> None:
    ground.write(".env", "SECRET=1")
    ground.write("a", "1")

    found = ground.run("echo X > .env; echo 2 > a")
    ground.apply(found)

    assert found.skipped == (".env",)
    assert (ground.project / ".env").read_text() == "SECRET=1"
    assert (ground.project / "a").read_text() == "2\n"


def test_no_set_user_id_bit_is_applied(ground: Ground) -> None:
    found = ground.run("echo x > program; chmod 4755 program; mkdir folder; chmod 2777 folder")
    ground.apply(found)

    assert stat.S_IMODE((ground.project / "program").stat().st_mode) == 0o755
    assert stat.S_IMODE((ground.project / "folder").stat().st_mode) == 0o777


def test_a_diff_shows_text_and_names_what_is_none(ground: Ground) -> None:
    ground.write("a.txt", "one\n")
    found = ground.run("echo two >> a.txt; printf 'a\\0b' > b.bin; printf x > c.txt")

    shown = "".join(diff(change, ground.upper, ground.project) for change in found.changes)

    assert shown == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n one\n+two\n"
        "binary file b.bin added (3 bytes)\n"
        "--- /dev/null\n+++ b/c.txt\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    )


@pytest.mark.ci("crash and escape rounds")
def test_a_crash_at_any_line_leaves_all_or_nothing(tmp_path: Path) -> None:
    """The child dies by SIGKILL at the n-th line of the module, for every n until it comes through."""
    outcomes = {"nothing": 0, "all": 0}
    for line_number in range(1, 5000):
        ground = Ground(tmp_path / str(line_number))
        for name in ("a", "b", "gone", "m"):
            ground.write(name, name)
        ground.write("folder/inside", "1")
        before = _tree(ground.project)
        found = ground.run(
            "echo 2 >> a; rm gone; mv b b2; chmod 755 m; rm -r folder; mkdir -p n/m; echo x > n/m/x; ln -s a l"
        )
        after = _tree_after(ground, found, tmp_path / "whole")
        came_through = _apply_and_die(ground, found, line_number)
        Applier(ground.state, ground.project).recover()
        now = _tree(ground.project)
        assert now in (before, after), line_number
        outcomes["all" if now == after else "nothing"] += 1
        assert not list((ground.project / ".skillyard").glob("apply-*"))
        (ground.state / "work/work").chmod(0o700)  # nobody but root may open it
        shutil.rmtree(tmp_path / str(line_number))
        if came_through:
            break
    assert min(outcomes.values()) > 0


def _tree_after(ground: Ground, found: ChangeSet, copy: Path) -> dict[str, tuple[str, int, str]]:
    """Return the tree that a whole apply gives, made beside the project."""
    if not copy.exists():
        shutil.copytree(ground.project, copy / "project", symlinks=True)
        (copy / "state").mkdir()
        Applier(copy / "state", copy / "project").apply(ground.upper, found.changes, sys.maxsize)
    return _tree(copy / "project")


def _apply_and_die(ground: Ground, found: ChangeSet, line_number: int) -> bool:
    """Apply in a child that kills itself at a line. Return whether it reached the end."""
    child = os.fork()
    if child == 0:
        left = line_number

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != apply_module.__file__:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        ground.apply(found)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("count", [500, pytest.param(98_000, marks=[pytest.mark.slow, pytest.mark.alone])])
def test_many_files_are_applied_in_bounded_memory(ground: Ground, count: int) -> None:
    if count > 500 and not os.environ.get("SKILLYARD_TORTURE"):
        pytest.skip("only ./dev torture")
    for number in range(count):
        place = ground.upper / f"folder{number // 100}" / str(number)
        if number % 100 == 0:
            place.parent.mkdir()
        place.write_text(str(number))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = ground.changes()
    ground.apply(found)

    assert len(found.changes) == count + count // 100
    assert (ground.project / f"folder{(count - 1) // 100}/{count - 1}").read_text() == str(count - 1)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024 < 200


@pytest.mark.slow
def test_more_files_than_a_set_may_hold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    for number in range(MAX_FILES + 1):
        place = tmp_path / "upper" / str(number // 1000) / str(number)
        if number % 1000 == 0:
            place.parent.mkdir(parents=True)
        place.touch()

    assert is_too_large(tmp_path / "upper")
    with pytest.raises(TooManyChangesError):
        read_changes(tmp_path / "upper", tmp_path / "project", lambda _: False)
