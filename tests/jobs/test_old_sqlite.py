"""SQLite before 3.42, as Debian 12 has it: what DBOS does on Python 3.12 works there too."""

import sqlite3
from pathlib import Path

import sqlalchemy as sa

from skillyard.jobs.dbos_engine import open_database
from skillyard.jobs.engine import EngineConfig


def test_a_table_whose_default_is_the_time_in_milliseconds_can_be_written(tmp_path: Path) -> None:
    """DBOS makes such tables on Python 3.12 and newer; a file made there must work for 3.11 as well."""
    engine = open_database(EngineConfig(tmp_path, "project", "", poll_seconds=1.0))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (a, at INT NOT NULL DEFAULT (unixepoch('subsec') * 1000))"))
        connection.execute(sa.text("INSERT INTO t (a) VALUES (1)"))
        before, written = connection.execute(sa.text("SELECT strftime('%s', 'now') * 1000, at FROM t")).one()
    engine.dispose()

    assert abs(written - before) < 60_000


def test_a_file_that_an_earlier_version_left_unusable_works_again(tmp_path: Path) -> None:
    config = EngineConfig(tmp_path, "project", "", poll_seconds=1.0)
    with sqlite3.connect(tmp_path / "engine.db") as connection:
        connection.execute("CREATE TABLE t (a, at INT NOT NULL DEFAULT (unixepoch('subsec') * 1000))")
    connection.close()

    engine = open_database(config)
    with engine.begin() as opened:
        opened.execute(sa.text("INSERT INTO t (a) VALUES (1)"))
        assert opened.execute(sa.text("SELECT count(*) FROM t")).scalar_one() == 1
    engine.dispose()
