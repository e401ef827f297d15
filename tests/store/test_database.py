"""The file that keeps everything: for the user's eyes only, made once, brought up to date once."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from skillyard.store.database import open_database


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("state.db*")}


def test_what_was_run_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "state.db")
    connection.execute("INSERT INTO usage VALUES ('project', 'skill', 1, 0)")

    assert len(list(tmp_path.glob("state.db*"))) > 1  # what SQLite lays beside it is looked at too
    assert modes(tmp_path) == {0o600}
    connection.close()


def test_a_file_that_an_earlier_version_left_open_to_others_is_closed(tmp_path: Path) -> None:
    open_database(tmp_path / "state.db").close()
    (tmp_path / "state.db").chmod(0o644)

    open_database(tmp_path / "state.db").close()

    assert modes(tmp_path) == {0o600}


def test_several_that_start_together_make_one_database(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(lambda _: version_of(tmp_path / "state.db"), range(8)))

    assert len(set(versions)) == 1


def version_of(path: Path) -> int:
    connection = open_database(path)
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()
