"""A state.db that is damaged, empty, newer or locked: named, kept, repaired, and never a traceback."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.core.errors import SkillError, StateDamaged, StateLocked, StateNewer
from skillyard.store.activations import Activation, Activations
from skillyard.store.conversations import ConversationEvent, ConversationLocks, Conversations
from skillyard.store.database import open_database
from skillyard.store.repair import back_up
from skillyard.store.runs import Keys, Run, Runs
from tests.conftest import TORTURE, Skillyard, WriteSkill
from tests.store.killing import each_kill

ECHO = "---\nname: echo\ndescription: Says a text again.\ncommand: echo {text}\n---\n"
GARBAGE = b"this is not a database" * 500
#: Of each: how to say it, and what is there to be seen afterwards.
COMMANDS = (
    "list",
    "run @echo hi",
    "runs",
    "grants",
    "grant @echo network --accept",
    "revoke @echo",
    "trust --accept",
    "active",
    "dispatch --dry-run --json hello",
    "doctor",
)


def fill(home: Path, runs: int = 30) -> Path:
    """A database with something in every table, wholly in its own file."""
    path = home / "state.db"
    with closing(open_database(path)) as connection:
        history = Runs(connection, "/p")
        for number in range(runs):
            done = Run(f"run{number:04}", "skills", "echo", "command", "success", float(number), result={"n": number})
            history.put(done)
            history.record_use("echo", float(number))
        Activations(connection).add("u", [Activation("/s", "", "/p")], 1.0)
        talks = Conversations(connection, ConversationLocks(home / "conversations"))
        talk = talks.open("codex", "/p", "main", 1.0)
        talks.record(talk, ConversationEvent("r", 1.0, "text", "hello", {"a": 1}))
        Keys(connection).begin("digest", "prompt", "boot", 1.0)
    return path


def look(path: Path) -> None:
    """Everything that reads it. Raises SkillError and nothing else."""
    with closing(open_database(path, 5.0)) as connection:
        runs = Runs(connection, "/p")
        for run in runs.list(1000):
            assert isinstance(run.result, dict)
        runs.find("run0001")
        runs.uses()
        Activations(connection).list("u", "", "/p")
        talks = Conversations(connection, ConversationLocks(path.parent / "conversations"))
        for talk in talks.list():
            talks.history(talk)
        Keys(connection).find("digest")
        runs.record_use("echo", 1.0)
        runs.forget_before(0.0, 5000)


def runs_in(path: Path) -> int:
    with closing(open_database(path)) as connection:
        return len(Runs(connection, "/p").list(1000))


def test_a_changed_byte_anywhere_is_survived_and_nothing_is_deleted(tmp_path: Path) -> None:
    path = fill(tmp_path)
    whole = path.read_bytes()
    back_up(path, 5.0)
    step = 7 if TORTURE else 397
    # All of the first page's header and the first definitions, then a sample.
    for offset in (*range(0, 160, 1 if TORTURE else 3), *range(160, len(whole), step)):
        for name in tmp_path.glob("state.db*"):
            if ".backup" not in name.name:
                name.unlink()
        damaged = bytearray(whole)
        damaged[offset] ^= 0xFF
        path.write_bytes(damaged)
        for _ in range(3):  # found, then repaired, then as if nothing had been
            try:
                look(path)
            except StateNewer:  # the version's own byte
                path.unlink()
            except StateDamaged:
                continue
        look(path)
        assert runs_in(path) >= 29, offset
        for kept in tmp_path.glob("state.db.damaged-*"):
            if not kept.name.endswith(("-wal", "-shm")):
                assert kept.stat().st_size >= len(whole) - 4096


@pytest.mark.parametrize("length", [1, 15, 16, 99, 100, 1024, 4095, 4096, 5000, 12288])
def test_a_file_that_was_cut_off_is_repaired_from_the_backup(tmp_path: Path, length: int) -> None:
    path = fill(tmp_path)
    back_up(path, 5.0)
    os.truncate(path, length)

    for _ in range(3):
        try:
            look(path)
        except StateDamaged:
            continue
    assert runs_in(path) == 30
    assert [file.stat().st_size for file in tmp_path.glob("state.db.damaged-*Z")] == [length]


def test_an_empty_file_whose_content_is_still_in_the_wal_is_kept_with_it(tmp_path: Path) -> None:
    """SQLite itself deletes the -wal file of an empty database."""
    path = tmp_path / "state.db"
    connection = open_database(path)
    Runs(connection, "/p").put(Run("r1", "skills", "echo", "command", "success", 1.0))
    wal = Path(f"{path}-wal").read_bytes()
    shutil.copyfile(f"{path}-wal", tmp_path / "wal")
    connection.close()
    os.truncate(path, 0)
    shutil.move(tmp_path / "wal", f"{path}-wal")
    assert wal
    told: list[SkillError] = []

    open_database(path, 5.0, told.append).close()

    assert "is empty" in told[0].msg
    assert [file.read_bytes() for file in tmp_path.glob("state.db.damaged-*-wal")] == [wal]


def test_a_backup_that_is_damaged_itself_is_passed_over_for_the_older_one(tmp_path: Path) -> None:
    path = fill(tmp_path)
    first = back_up(path, 5.0)
    assert first is not None
    shutil.move(first, tmp_path / "state.db.backup.1")
    (tmp_path / "state.db.backup").write_bytes(GARBAGE)
    path.write_bytes(GARBAGE)
    told: list[SkillError] = []

    open_database(path, 5.0, told.append).close()

    assert "was restored" in told[0].msg
    assert runs_in(path) == 30


@pytest.mark.parametrize("make", ["folder", "pipe", "link to nothing", "foreign", "unreleased", "missing"])
def test_what_is_no_database_of_ours_is_set_aside(tmp_path: Path, make: str) -> None:
    path = fill(tmp_path)
    back_up(path, 5.0)
    path.unlink()
    if make == "foreign":
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE cookies (x)")
    elif make == "unreleased":
        with closing(sqlite3.connect(path)) as other:
            other.executescript("CREATE TABLE runs (x); PRAGMA user_version = 5;")
    elif make == "folder":
        (path / "x").mkdir(parents=True)
    elif make == "pipe":
        os.mkfifo(path)
    elif make == "link to nothing":
        path.symlink_to(tmp_path / "nowhere")
    told: list[SkillError] = []

    open_database(path, 5.0, told.append).close()

    assert len(told) == 1
    assert runs_in(path) == 30
    assert len(list(tmp_path.glob("state.db.damaged-*Z"))) == (make != "missing")


@pytest.mark.ci("crash and escape rounds")
def test_a_kill_at_any_point_of_the_repair_leaves_everything_to_the_next(tmp_path: Path) -> None:
    home, seed = tmp_path / "home", tmp_path / "seed"
    seed.mkdir()
    backup = back_up(fill(seed), 5.0)
    assert backup is not None
    content = {"state.db": GARBAGE, "state.db-wal": b"wal" * 3000, "state.db-shm": b"shm" * 3000}

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        shutil.copyfile(backup, home / "state.db.backup")
        for name, data in content.items():
            (home / name).write_bytes(data)

    rounds = 0
    for number in each_kill(prepare, lambda: open_database(home / "state.db", 5.0)):
        rounds += 1
        assert runs_in(home / "state.db") == 30, number
        kept = {file.read_bytes() for file in home.glob("state.db.damaged-*")}
        assert {content["state.db"], content["state.db-wal"]} <= kept, number
        assert len(list(home.glob("state.db.damaged-*Z"))) == 1, number
        assert (home / "state.db.backup").exists()
    assert rounds > 15


#: A process that opens the database, says so, and ends when its stdin does.
HOLD = """
import sys
from pathlib import Path
from skillyard.store.database import open_database
connection = open_database(Path(sys.argv[1]))
connection.execute("SELECT count(*) FROM runs").fetchone()
if len(sys.argv) > 2:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("UPDATE usage SET count = count")
print("ready", flush=True)
sys.stdin.read()
"""


def holder(path: Path, *words: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_damaged_file_that_another_process_uses_is_left_to_it(tmp_path: Path) -> None:
    """What it still writes would go into the file that was set aside."""
    path = fill(tmp_path)
    back_up(path, 5.0)
    with holder(path) as other:
        with path.open("r+b") as file:
            file.write(GARBAGE)
        with pytest.raises(StateDamaged, match=rf"used by process {other.pid} "):
            open_database(path, 0.1)
        assert not list(tmp_path.glob("state.db.damaged-*"))
        other.communicate("")

    open_database(path, 5.0).close()

    assert runs_in(path) == 30


def test_of_several_that_meet_the_damage_one_repairs_it(
    skillyard: Skillyard, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    write_skill("echo", ECHO)
    assert skillyard("run", "@echo", "before").returncode == 0
    assert back_up(places.database, 5.0)
    for name in places.own_home.glob("state.db-*"):
        name.unlink()
    places.database.write_bytes(GARBAGE)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: skillyard("runs"), range(4)))

    assert [each.returncode for each in done] == [0] * 4, [each.stdout for each in done]
    assert all("echo" in each.stdout for each in done)
    assert sum("is damaged" in each.stderr for each in done) == 1
    assert [file.read_bytes() for file in places.own_home.glob("state.db.damaged-*Z")] == [GARBAGE]


def test_a_database_that_is_locked_for_long_is_said_with_who_holds_it(
    skillyard: Skillyard, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    write_skill("echo", ECHO)
    fill(places.own_home)
    (places.own_home / "config.toml").write_text("[store]\nlock_seconds = 0.2\n")
    with holder(places.database, "exclusive") as other:
        with (
            pytest.raises(StateLocked, match=f"process {other.pid} "),
            closing(open_database(places.database, 0.1)) as connection,
        ):
            Runs(connection, "/p").record_use("echo", 1.0)
        for command in COMMANDS:
            done = skillyard(*command.split())
            assert "Traceback" not in done.stderr + done.stdout, command
            if command.startswith("run"):
                assert done.returncode == 1
                assert "locked by another process" in done.stdout
                assert str(other.pid) in done.stdout
        other.communicate("")

    assert skillyard("run", "@echo", "hi").returncode == 0


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def test_a_database_of_a_newer_version_is_refused_and_not_touched(
    skillyard: Skillyard, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    write_skill("echo", ECHO)
    newer(fill(places.own_home))
    before = places.database.read_bytes()

    for command in COMMANDS:
        done = skillyard(*command.split())
        assert "Traceback" not in done.stderr + done.stdout, command
        if command.startswith("run") or command == "doctor":
            assert done.returncode == 1, command
            assert "newer Skillyard" in done.stdout, command
    with pytest.raises(StateNewer):
        open_database(places.database)
    assert places.database.read_bytes() == before
    assert not list(places.own_home.glob("*.damaged-*"))


def empty(path: Path) -> None:
    os.truncate(path, 0)


def cut(path: Path) -> None:
    os.truncate(path, 6000)


def garbage(path: Path) -> None:
    path.write_bytes(GARBAGE)


def lost(path: Path) -> None:
    """The middle of the file, as a bad block leaves it."""
    whole = bytearray(path.read_bytes())
    whole[4096:20480] = bytes(16384)
    path.write_bytes(whole)


def folder(path: Path) -> None:
    path.unlink()
    (path / "x").mkdir(parents=True)


@pytest.mark.ci("every command on every damage")
@pytest.mark.parametrize("damage", [empty, cut, garbage, lost, folder])
@pytest.mark.parametrize("backed_up", [True, False])
def test_no_command_ends_in_a_traceback_and_the_grants_survive(
    skillyard: Skillyard,
    places: ProjectPaths,
    write_skill: WriteSkill,
    damage: Callable[[Path], None],
    backed_up: bool,
) -> None:
    write_skill("echo", ECHO)
    fill(places.own_home)
    assert skillyard("run", "@echo", "before").returncode == 0
    assert skillyard("grant", "@echo", "network", "--accept").returncode == 0
    if backed_up:
        assert back_up(places.database, 5.0)
    for name in places.own_home.glob("state.db-*"):
        name.unlink()
    damage(places.database)

    seen = skillyard("doctor", "--json")
    done = {command: skillyard(*command.split()) for command in COMMANDS}

    assert seen.returncode == 1
    assert "state.db" in seen.stdout
    for command, each in done.items():
        assert "Traceback" not in each.stderr + each.stdout, command
    shown = done["grants"].stdout + skillyard("grants").stdout
    assert "network" in done["grants"].stdout or "revoke" in shown
    again = {command: skillyard(*command.split()) for command in ("run @echo after", "runs", "doctor")}
    assert [each.returncode for each in again.values()] == [0, 0, 0], again
    if backed_up:
        assert len(list(places.own_home.glob("state.db.damaged-*Z"))) == 1
        with closing(open_database(places.database)) as connection:
            assert len(Runs(connection, "/p").list(1000)) == 30
    assert "damaged-" in again["doctor"].stdout


def test_a_damaged_database_of_jobs_is_named_and_not_replaced(skillyard: Skillyard, places: ProjectPaths) -> None:
    engine = places.own_home / "engine" / "engine.db"
    engine.parent.mkdir()
    engine.write_bytes(GARBAGE)

    listed, seen = skillyard("jobs"), skillyard("doctor")

    assert listed.returncode == 1
    assert "Traceback" not in listed.stderr + listed.stdout
    assert f"mv {engine}" in listed.stdout
    assert seen.returncode == 1
    assert f"mv {engine}" in seen.stdout
    assert engine.read_bytes() == GARBAGE


def test_a_damaged_index_is_made_again(skillyard: Skillyard, places: ProjectPaths, write_skill: WriteSkill) -> None:
    write_skill("echo", ECHO)
    assert skillyard("list").returncode == 0
    for name in places.index_file.parent.glob("index.db-*"):
        name.unlink()
    whole = bytearray(places.index_file.read_bytes())
    whole[4096:] = bytes(len(whole) - 4096)
    places.index_file.write_bytes(whole)

    first, second = skillyard("list"), skillyard("list")

    assert "Traceback" not in first.stderr + first.stdout
    assert second.returncode == 0
    assert "echo" in second.stdout
