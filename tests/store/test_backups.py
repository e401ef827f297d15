"""Backups of state.db: hourly, only of a sound database, whole or not at all."""

import json
import os
import resource
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.core.errors import SkillError, StateDamaged, StoreFailed
from skillyard.store.database import is_backup_due, open_database
from skillyard.store.repair import back_up, list_backups
from skillyard.store.runs import Run, Runs
from tests.conftest import Skillyard, WriteSkill
from tests.store.killing import each_kill
from tests.store.test_damage import ECHO, GARBAGE, fill, lost, runs_in

HOUR_AGO = 3700.0


def age(home: Path) -> None:
    """As if everything there were an hour older."""
    for name in home.glob("*"):
        found = name.stat()
        os.utime(name, (found.st_atime - HOUR_AGO, found.st_mtime - HOUR_AGO))


def test_a_command_makes_one_after_its_result_and_then_not_for_an_hour(
    skillyard: Skillyard, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    write_skill("echo", ECHO)
    assert skillyard("run", "@echo", "one").returncode == 0
    assert not list_backups(places.database)  # nothing much to lose yet
    age(places.own_home)

    assert skillyard("run", "@echo", "two").returncode == 0
    (first,) = list_backups(places.database)
    assert first.stat().st_mode & 0o777 == 0o600
    made = first.stat().st_mtime_ns
    assert skillyard("run", "@echo", "three").returncode == 0
    assert first.stat().st_mtime_ns == made

    age(places.own_home)
    assert skillyard("runs").returncode == 0  # changes nothing, so it does not take the time
    assert len(list_backups(places.database)) == 1
    assert skillyard("run", "@echo", "four").returncode == 0
    newest, older = list_backups(places.database)
    with closing(sqlite3.connect(newest)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (4,)
    with closing(sqlite3.connect(older)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)


def test_what_was_backed_up_is_there_after_the_damage(
    skillyard: Skillyard, places: ProjectPaths, write_skill: WriteSkill
) -> None:
    write_skill("echo", ECHO)
    assert skillyard("run", "@echo", "one").returncode == 0
    age(places.own_home)
    assert skillyard("run", "@echo", "two").returncode == 0
    for name in places.own_home.glob("state.db-*"):
        name.unlink()
    places.database.write_bytes(GARBAGE)

    done = skillyard("runs", "--json", SKILLYARD_LANG="zh")

    assert done.returncode == 0
    assert len(json.loads(done.stdout)["data"]["runs"]) == 2
    assert "损坏" in done.stderr
    assert "已恢复" in done.stderr


def test_a_process_that_lives_long_makes_them_too(places: ProjectPaths) -> None:
    fill(places.own_home)
    age(places.own_home)
    with Project(places) as yard:
        yard.back_up_if_due()
        assert len(list_backups(places.database)) == 1
        assert not is_backup_due(places.database, time.time())
        assert is_backup_due(places.database, time.time() + HOUR_AGO)
        assert is_backup_due(places.database, time.time() - HOUR_AGO), "the clock was set back"


def test_a_large_database_is_left_to_processes_that_live_long(tmp_path: Path) -> None:
    path = fill(tmp_path)
    with closing(open_database(path)) as connection:
        runs = Runs(connection, "/p")
        for number in range(40):
            runs.put(Run(f"big{number}", "skills", "x", "command", "success", 1.0, result={"x": "x" * 1_000_000}))

    assert back_up(path, 5.0, is_short=True) is None
    assert back_up(path, 5.0) is not None


def test_a_damaged_database_never_replaces_a_good_backup(tmp_path: Path) -> None:
    path = fill(tmp_path)
    good = back_up(path, 5.0)
    assert good is not None
    before = good.read_bytes()
    lost(path)

    with pytest.raises(StateDamaged):
        back_up(path, 5.0)

    assert good.read_bytes() == before
    assert not list(tmp_path.glob("*.new*"))
    told: list[SkillError] = []
    open_database(path, 5.0, told.append).close()  # the backup was the first to notice
    assert "was restored" in told[0].msg
    assert runs_in(path) == 30


def test_a_kill_at_any_point_leaves_a_sound_backup(tmp_path: Path) -> None:
    home, seed = tmp_path / "home", tmp_path / "seed"
    seed.mkdir()
    assert back_up(fill(seed), 5.0)
    with closing(open_database(seed / "state.db")) as connection:
        Runs(connection, "/p").record_use("echo", 99.0)

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(seed, home)

    rounds = 0
    for number in each_kill(prepare, lambda: back_up(home / "state.db", 5.0)):
        rounds += 1
        found = list_backups(home / "state.db")
        assert found, number
        for name in found:
            with closing(sqlite3.connect(name)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), number
                assert connection.execute("SELECT count(*) FROM runs").fetchone() == (30,), number
        back_up(home / "state.db", 5.0)
        assert not list(home.glob("*.new*")), number
    assert rounds > 8


def test_a_full_disk_keeps_the_backup_that_is_there(tmp_path: Path) -> None:
    path = fill(tmp_path)
    good = back_up(path, 5.0)
    assert good is not None
    before = good.read_bytes()
    with closing(open_database(path)) as connection:
        Runs(connection, "/p").record_use("echo", 99.0)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            back_up(path, 5.0)
        except StoreFailed:
            os._exit(7)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    assert good.read_bytes() == before
    assert not list(tmp_path.glob("*.new*"))
