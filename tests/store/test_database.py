"""The file that keeps everything: for the user's eyes only, made once."""

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from skillyard.store.database import open_database


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("state.db*")}


def test_what_was_run_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "state.db")
    connection.execute("INSERT INTO usage VALUES ('project', 'skill', 1, 0, 0)")

    assert len(list(tmp_path.glob("state.db*"))) > 1  # what SQLite lays beside it is looked at too
    assert modes(tmp_path) == {0o600}
    connection.close()


def test_a_file_that_an_earlier_version_left_open_to_others_is_closed(tmp_path: Path) -> None:
    open_database(tmp_path / "state.db").close()
    (tmp_path / "state.db").chmod(0o644)

    open_database(tmp_path / "state.db").close()

    assert modes(tmp_path) == {0o600}


#: Another process that comes, adds a use and leaves; how many there are then.
ADD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("INSERT INTO usage VALUES ('project', ?, 1, 0, 0)", (sys.argv[2],))
connection.commit()
print(connection.execute("SELECT count(*) FROM usage").fetchone()[0])
connection.close()
"""


def test_whoever_opens_it_once_more_leaves_the_locks_of_this_process_alone(tmp_path: Path) -> None:
    """To close a file takes away all locks that the process has on it, of whichever connection. Without them another
    process takes itself for the last to leave, and clears away what we still write to."""
    path = tmp_path / "state.db"
    ours = open_database(path)
    ours.execute("INSERT INTO usage VALUES ('project', 'first', 1, 0, 0)")
    open_database(path).close()

    assert added(path, "second") == 2
    ours.execute("INSERT INTO usage VALUES ('project', 'third', 1, 0, 0)")
    assert added(path, "fourth") == 4
    ours.close()


def added(path: Path, skill: str) -> int:
    done = subprocess.run([sys.executable, "-c", ADD, str(path), skill], capture_output=True, text=True, check=True)
    return int(done.stdout)


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
