"""The index: a cache of what the folders hold, so that an unchanged skill is never parsed twice.

The files are the truth. A lost, broken or older index is thrown away and made again; where it cannot be kept
(a read-only home, a full disk), one in memory does the same for the length of the process.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skillyard.catalog.discover import Folder, Stamp
from skillyard.catalog.fts_tokens import as_words, fold
from skillyard.core.errors import StateDamaged
from skillyard.core.kinds import Kind
from skillyard.core.messages import Message

if TYPE_CHECKING:
    from skillyard.core.skill import Skill

_SCHEMA_VERSION = 4
_SCHEMA = """
CREATE TABLE skills (
    id INTEGER PRIMARY KEY, root TEXT NOT NULL, file TEXT NOT NULL,
    mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    digest TEXT NOT NULL, name TEXT NOT NULL, folder_name TEXT NOT NULL, role TEXT NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL, description TEXT NOT NULL, tags TEXT NOT NULL, severity TEXT NOT NULL,
    folded TEXT NOT NULL, record TEXT NOT NULL, usable INTEGER NOT NULL
);
CREATE INDEX skills_by_file ON skills (root, file);
CREATE INDEX skills_by_folder ON skills (folder_name);
CREATE INDEX skills_by_folded ON skills (root, folded);
CREATE TABLE folders (
    root TEXT NOT NULL, path TEXT NOT NULL,
    mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    children TEXT NOT NULL, PRIMARY KEY (root, path)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(name, description, tags, tokenize = 'porter unicode61');
"""


class Entry(NamedTuple):
    """A line of a list: enough to show a skill and to choose it, without reading it."""

    id: int
    root: str
    file: str
    name: str
    folder_name: str
    role: str
    kind: Kind
    title: str
    description: str
    tags: tuple[str, ...]
    #: The worst finding's severity, or nothing.
    severity: str
    #: False for a folder whose SKILL.md could not be read as one.
    usable: bool

    @property
    def folder(self) -> Path:
        return Path(self.file).parent


class Match(NamedTuple):
    """What is needed of a row to rank it among many; only the best are read whole."""

    id: int
    role: str
    folder_name: str
    root: str
    name: str
    folded: str
    description: str
    rank: float


class Claim(NamedTuple):
    role: str
    folder_name: str
    root: str


class Source(NamedTuple):
    """The file that a row was read from, as it was then."""

    file: str
    stamp: Stamp
    digest: str


class Row(NamedTuple):
    """A skill as the tables want it; made without touching them, so that many can be made side by side."""

    values: tuple[str | int, ...]
    words: tuple[str, str, str]


def make_row(root: str, source: Source, skill: "Skill", *, usable: bool = True) -> Row:
    from skillyard.catalog.records import as_record  # noqa: PLC0415  (a list makes no rows)

    folded = fold(f"{skill.name}\n{skill.folder_name}\n{skill.title}")
    tags = "\0".join(tag.replace("\0", "") for tag in skill.tags)
    about = (skill.name, skill.folder_name, skill.role, str(skill.kind), skill.title, skill.description, tags)
    found = (str(skill.severity or ""), folded, as_record(skill), int(usable))
    words = (as_words(folded), as_words(skill.description), as_words(" ".join(skill.tags)))
    return Row((root, source.file, *source.stamp, source.digest, *about, *found), words)


_COLUMNS = (
    *("id", "root", "file", "mtime", "ctime", "size", "inode", "digest"),
    *("name", "folder_name", "role", "kind", "title", "description", "tags"),
    *("severity", "folded", "record", "usable"),
)
_INSERT = f"INSERT INTO skills ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_INSERT_WORDS = "INSERT INTO words (rowid, name, description, tags) VALUES (?, ?, ?, ?)"


class _Connection(sqlite3.Connection):
    """Drops the file when a statement meets damage, so that the next command makes it again."""

    path: Path | None = None

    def execute(self, *args: Any) -> sqlite3.Cursor:
        return self._guarded(super().execute, *args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        return self._guarded(super().executemany, *args)

    def _guarded(self, call: Callable[..., sqlite3.Cursor], *args: Any) -> sqlite3.Cursor:
        try:
            return call(*args)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the second: not even its message can be read
            damaged = isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
            if self.path is None or not damaged:
                raise
            for ending in ("", "-wal", "-shm"):
                Path(f"{self.path}{ending}").unlink(missing_ok=True)
            raise StateDamaged(
                f"{self.path}: {error}",
                Message("run it again: the file is only a cache, it was removed and is made anew"),
            ) from None


_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Index:
    def __init__(self, path: Path | None) -> None:
        self._connection = _open(path)

    def close(self) -> None:
        self._connection.close()

    def changes_elsewhere(self) -> int:
        """A number that changes when another connection wrote to the index; what we wrote ourselves, we know."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def known_files(self, root: str) -> dict[str, Stamp]:
        """Each skill file with its stamp."""
        rows = self._connection.execute("SELECT file, mtime, ctime, size, inode FROM skills WHERE root = ?", (root,))
        return {row[0]: row[1:] for row in rows}

    def digests(self, root: str) -> dict[str, str]:
        """Each skill file with the digest of what it held."""
        return dict(self._connection.execute("SELECT file, digest FROM skills WHERE root = ?", (root,)).fetchall())

    def known_folders(self, root: str) -> dict[str, Folder]:
        """The folders between the root and its skills, as the last scan left them."""
        rows = self._connection.execute(
            "SELECT path, mtime, ctime, size, inode, children FROM folders WHERE root = ?", (root,)
        )
        return {path: Folder((m, c, s, i), children=_parted(names)) for path, m, c, s, i, names in rows}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: another process sees all of a scan or nothing of it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def forget(self, root: str, files: Iterable[str]) -> None:
        for file in files:
            self._connection.execute(
                "DELETE FROM words WHERE rowid IN (SELECT id FROM skills WHERE root = ? AND file = ?)",
                (root, file),
            )
            self._connection.execute("DELETE FROM skills WHERE root = ? AND file = ?", (root, file))

    def add(self, rows: Sequence["Row"]) -> None:
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM skills").fetchone()
        numbered = list(enumerate(rows, last + 1))
        self._connection.executemany(_INSERT, ((number, *row.values) for number, row in numbered))
        self._connection.executemany(_INSERT_WORDS, ((number, *row.words) for number, row in numbered))

    def put_folders(self, root: str, folders: Iterable[tuple[str, Folder]]) -> None:
        self._connection.execute("DELETE FROM folders WHERE root = ?", (root,))
        self._connection.executemany(
            "INSERT INTO folders (root, path, mtime, ctime, size, inode, children) VALUES (?,?,?,?,?,?,?)",
            ((root, path, *folder.stamp, "\0".join(folder.children)) for path, folder in folders),
        )

    def entries(self, roots: Sequence[str]) -> list[Entry]:
        return self._entries(f"WHERE root IN ({_marks(roots)})", roots)

    def named(self, roots: Sequence[str], name: str) -> list[Entry]:
        """Whose folder, name or title folds to the same."""
        line = "\n" + fold(name) + "\n"
        where = f"WHERE root IN ({_marks(roots)}) AND instr(char(10) || folded || char(10), ?)"
        return self._entries(where, [*roots, line])

    def populated(self, roots: Sequence[str]) -> list[str]:
        """Those of the roots that hold a skill."""
        has = "SELECT 1 FROM skills WHERE root = ? LIMIT 1"
        return [root for root in roots if self._connection.execute(has, (root,)).fetchone()]

    def claims(self, roots: Sequence[str], folder_names: Iterable[str]) -> list[Claim]:
        """Who claims one of the folder names, in whichever root."""
        import json  # noqa: PLC0415  (a list needs none)

        where = f"WHERE root IN ({_marks(roots)}) AND folder_name IN (SELECT value FROM json_each(?))"
        names = json.dumps(list(set(folder_names)))
        rows = self._connection.execute(f"SELECT role, folder_name, root FROM skills {where}", [*roots, names])
        return [Claim._make(row) for row in rows]

    def matching(self, roots: Sequence[str], words: str, part: str) -> list[Match]:
        """What holds every word, or has the part in its name; with FTS5's own rank (lower is better)."""
        import json  # noqa: PLC0415

        rows = self._connection.execute(
            "SELECT rowid, bm25(words, 8.0, 2.0, 1.0) FROM words WHERE words MATCH ?", (words,)
        )
        ranks: dict[int, float] = dict(rows.fetchall())
        named = self._connection.execute(
            f"SELECT id FROM skills WHERE root IN ({_marks(roots)}) AND instr(folded, ?)", [*roots, part]
        )
        ids = json.dumps([*ranks, *(number for (number,) in named if number not in ranks)])
        found = self._connection.execute(
            "SELECT id, role, folder_name, root, name, folded, description FROM skills "
            f"WHERE id IN (SELECT value FROM json_each(?)) AND root IN ({_marks(roots)})",
            [ids, *roots],
        )
        return [Match._make((*row, ranks.get(row[0], 0.0))) for row in found]

    def numbered(self, ids: Sequence[int]) -> list[Entry]:
        """The entries of these rows, in this order."""
        found = {entry.id: entry for entry in self._entries(f"WHERE id IN ({_marks(ids)})", ids)}
        return [found[number] for number in ids if number in found]

    def skill(self, entry: Entry) -> "Skill":
        from skillyard.catalog.records import from_record  # noqa: PLC0415  (a list needs no whole skill)

        (record,) = self._connection.execute("SELECT record FROM skills WHERE id = ?", (entry.id,)).fetchone()
        return from_record(record)

    def find_skill(self, entry: Entry) -> "Skill | None":
        """The same from an entry that may be old: None where its row is gone, or another's by now."""
        from skillyard.catalog.records import from_record  # noqa: PLC0415

        row = self._connection.execute(
            "SELECT record FROM skills WHERE id = ? AND file = ? AND name = ?", (entry.id, entry.file, entry.name)
        ).fetchone()
        return from_record(row[0]) if row else None

    def _entries(self, where: str, values: Sequence[str | int]) -> list[Entry]:
        rows = self._connection.execute(f"SELECT {', '.join(Entry._fields)} FROM skills {where}", values)
        return [_entry(row) for row in rows]


_KINDS = {str(kind): kind for kind in Kind}


def _entry(row: tuple[Any, ...]) -> Entry:
    id_, root, file, name, folder_name, role, kind, title, description, tags, severity, usable = row
    labels = _parted(tags)
    kind = _KINDS[kind]
    return Entry(id_, root, file, name, folder_name, role, kind, title, description, labels, severity, usable == 1)


def _parted(text: str) -> tuple[str, ...]:
    """A list as one text: no name and no tag holds a NUL."""
    return tuple(text.split("\0")) if text else ()


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _open(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        for _ in range(2):  # the second time on a clean slate
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                return _prepared(str(path), path)
            except sqlite3.OperationalError:
                break  # no right to write, no room: nothing that deleting would mend
            except (sqlite3.DatabaseError, UnicodeDecodeError):
                for ending in ("", "-wal", "-shm"):
                    Path(f"{path}{ending}").unlink(missing_ok=True)
            except OSError:
                break
    return _prepared(":memory:")


def _prepared(name: str, path: Path | None = None) -> _Connection:
    connection = sqlite3.connect(name, timeout=30, isolation_level=None, check_same_thread=False, factory=_Connection)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != _SCHEMA_VERSION:
            _create(connection)
    except BaseException:
        connection.close()
        raise
    connection.path = path
    return connection


def _create(connection: sqlite3.Connection) -> None:
    """Drop whatever an older version left, and lay the tables out, once even when two start together."""
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _SCHEMA_VERSION:
        for table in ("words", "skills", "folders"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        with closing(connection.cursor()) as cursor:
            for statement in _SCHEMA.split(";"):
                cursor.execute(statement)
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    connection.execute("COMMIT")
