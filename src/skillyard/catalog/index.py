"""The index: a SQLite cache of the skill files, so that an unchanged skill is never parsed twice.

A lost, broken or older index is removed and made again. Where it cannot be stored (a read-only home, a full disk), one
in memory replaces it for the length of the process.

For searches it holds two full-text tables and the words of all skills; the module `search` says how they are used.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from skillyard.catalog.search import as_fts_text, can_be_misspelt, fold, inside_texts, nearest_word, score, words_of
from skillyard.core.errors import StateDamaged
from skillyard.core.messages import Message
from skillyard.core.skill import KINDS, Kind

if TYPE_CHECKING:
    from skillyard.core.skill import Skill

#: (mtime, ctime, size, inode): a file or folder with the same stamp was not changed.
Stamp: TypeAlias = tuple[int, int, int, int]

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA_VERSION = 5
#: Weights as measured: see the module `search`.
_SCORES = (
    "SELECT rowid, -bm25(head, 6.0, 2.0, 2.0, 2.0) FROM head WHERE head MATCH ?",
    "SELECT rowid, -0.5 * bm25(inside, 2.0, 1.0) FROM inside WHERE inside MATCH ?",
)
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
CREATE VIRTUAL TABLE head USING fts5(name, title, tags, description, tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE inside USING fts5(headings, text, tokenize = 'porter unicode61');
CREATE TABLE words (word TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class CatalogEntry(NamedTuple):
    """What is needed to show a skill in a list and to choose it, without reading it."""

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
    #: The worst severity of its findings, or "".
    severity: str
    #: False if its SKILL.md could not be read as one.
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


class Claim(NamedTuple):
    """A root that has a skill in a folder of this name."""

    role: str
    folder_name: str
    root: str


class ScannedFolder(NamedTuple):
    """A folder on the way to skills: its own skill file, or the names of the folders in it."""

    stamp: Stamp
    skill_file: str = ""
    children: tuple[str, ...] = ()


class IndexRow(NamedTuple):
    """The values of a skill for each table."""

    skill: tuple[str | int, ...]
    head: tuple[str, ...]
    inside: tuple[str, ...]
    words: frozenset[str]


def make_row(source: tuple[str | int, ...], skill: "Skill", *, usable: bool = True, body: str = "") -> IndexRow:
    """Return the row of a skill, without a database; `source` is the root, the file, its stamp and its digest."""
    folded = fold(f"{skill.name}\n{skill.folder_name}\n{skill.title}")
    tags = "\0".join(tag.replace("\0", "") for tag in skill.tags)
    about = (skill.name, skill.folder_name, skill.role, str(skill.kind), skill.title, skill.description, tags)
    found = (str(skill.severity or ""), folded, skill.as_record(), int(usable))
    head = (f"{skill.name} {skill.folder_name}", skill.title, " ".join(skill.tags), skill.description)
    words = frozenset(words_of(" ".join(head)))
    return IndexRow((*source, *about, *found), tuple(map(as_fts_text, head)), inside_texts(body), words)


class _Connection(sqlite3.Connection):
    """Removes the file when a statement finds it damaged, so that the next command makes it again."""

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
            _remove(self.path)
            advice = Message("run it again: the file is only a cache, it was removed and is made anew")
            raise StateDamaged(f"{self.path}: {error}", advice) from None


class Index:
    def __init__(self, path: Path | None) -> None:
        self._connection = _open(path)

    def close(self) -> None:
        self._connection.close()

    def changes_elsewhere(self) -> int:
        """Return a number that changes when another connection writes to the index."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def known_files(self, root: str) -> dict[str, Stamp]:
        """Return each skill file with its stamp."""
        rows = self._connection.execute("SELECT file, mtime, ctime, size, inode FROM skills WHERE root = ?", (root,))
        return {row[0]: row[1:] for row in rows}

    def digests(self, root: str) -> dict[str, str]:
        """Return each skill file with the digest of its content."""
        return dict(self._connection.execute("SELECT file, digest FROM skills WHERE root = ?", (root,)).fetchall())

    def known_folders(self, root: str) -> dict[str, ScannedFolder]:
        """Return the folders between the root and its skills, as the last scan found them."""
        rows = self._connection.execute(
            "SELECT path, mtime, ctime, size, inode, children FROM folders WHERE root = ?", (root,)
        )
        return {path: ScannedFolder((m, c, s, i), children=_split(names)) for path, m, c, s, i, names in rows}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run one transaction: another process sees all of a scan or nothing of it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def forget(self, root: str, files: Iterable[str]) -> None:
        for file in files:
            of_file = "FROM skills WHERE root = ? AND file = ?"
            for table in ("head", "inside"):
                self._connection.execute(f"DELETE FROM {table} WHERE rowid IN (SELECT id {of_file})", (root, file))
            self._connection.execute(f"DELETE {of_file}", (root, file))

    def add(self, rows: Sequence[IndexRow]) -> None:
        if not rows:
            return
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM skills").fetchone()
        for table, columns in (
            ("skills", ""),
            ("head", " (rowid, name, title, tags, description)"),
            ("inside", " (rowid, headings, text)"),
        ):
            part = IndexRow._fields.index(table.removesuffix("s"))
            numbered = [(number, *row[part]) for number, row in enumerate(rows, last + 1)]
            self._connection.executemany(f"INSERT INTO {table}{columns} VALUES ({_marks(numbered[0])})", numbered)
        words = frozenset().union(*(row.words for row in rows))
        self._connection.executemany("INSERT OR IGNORE INTO words VALUES (?)", ((word,) for word in sorted(words)))

    def put_folders(self, root: str, folders: Mapping[str, ScannedFolder]) -> None:
        self._connection.execute("DELETE FROM folders WHERE root = ?", (root,))
        self._connection.executemany(
            "INSERT INTO folders (root, path, mtime, ctime, size, inode, children) VALUES (?,?,?,?,?,?,?)",
            ((root, path, *folder.stamp, "\0".join(folder.children)) for path, folder in folders.items()),
        )

    def entries(self, roots: Sequence[str]) -> list[CatalogEntry]:
        return self._entries(f"WHERE root IN ({_marks(roots)})", roots)

    def named(self, roots: Sequence[str], name: str) -> list[CatalogEntry]:
        """Return the entries whose folder, name or title is the same, folded."""
        line = "\n" + fold(name) + "\n"
        where = f"WHERE root IN ({_marks(roots)}) AND instr(char(10) || folded || char(10), ?)"
        return self._entries(where, [*roots, line])

    def populated(self, roots: Sequence[str]) -> list[str]:
        """Return the roots that hold a skill."""
        has = "SELECT 1 FROM skills WHERE root = ? LIMIT 1"
        return [root for root in roots if self._connection.execute(has, (root,)).fetchone()]

    def claims(self, roots: Sequence[str], folder_names: Iterable[str]) -> list[Claim]:
        """Return the roots that have one of the folder names."""
        import json  # noqa: PLC0415  (a list does not need it)

        where = f"WHERE root IN ({_marks(roots)}) AND folder_name IN (SELECT value FROM json_each(?))"
        names = json.dumps(list(set(folder_names)))
        rows = self._connection.execute(f"SELECT role, folder_name, root FROM skills {where}", [*roots, names])
        return [Claim._make(row) for row in rows]

    def score(self, query: str) -> dict[int, float]:
        """Return how well each skill fits a query in words."""
        return score(query, self._score_fts, self._spell)

    def _score_fts(self, fts_query: str) -> dict[int, float]:
        """Return for each skill the better of its score in the head and half of that inside."""
        scores: dict[int, float] = {}
        for statement in _SCORES:
            for number, points in self._connection.execute(statement, (fts_query,)):
                if points > scores.get(number, 0.0):
                    scores[number] = points
        return scores

    def _spell(self, word: str) -> str:
        """Return the known word that a misspelt one probably means, or an empty text."""
        if not can_be_misspelt(word):
            return ""
        rows = self._connection.execute(
            "SELECT word FROM words WHERE length(word) BETWEEN ? AND ? AND (word GLOB ? OR substr(word, 2, 2) = ?)",
            (len(word) - 2, len(word) + 2, f"{word[0]}*", word[1:3]),
        )
        return nearest_word(word, (known for (known,) in rows))

    def matches(self, roots: Sequence[str], ids: Iterable[int]) -> list[Match]:
        """Return the rows with these ids that lie in these roots."""
        import json  # noqa: PLC0415  (a list does not need it)

        found = self._connection.execute(
            f"SELECT {', '.join(Match._fields)} FROM skills "
            f"WHERE id IN (SELECT value FROM json_each(?)) AND root IN ({_marks(roots)})",
            [json.dumps(list(ids)), *roots],
        )
        return [Match._make(row) for row in found]

    def numbered(self, ids: Sequence[int]) -> list[CatalogEntry]:
        """Return the entries with these ids, in this order."""
        found = {entry.id: entry for entry in self._entries(f"WHERE id IN ({_marks(ids)})", ids)}
        return [found[number] for number in ids if number in found]

    def skill(self, entry: CatalogEntry) -> "Skill":
        if skill := self.find_skill(entry):
            return skill
        raise LookupError(f"{entry.file} is no longer in the index")

    def find_skill(self, entry: CatalogEntry) -> "Skill | None":
        """Return the skill of an entry, or None if its row is gone, or another's by now."""
        from skillyard.core.skill import Skill  # noqa: PLC0415  (a list needs no whole skill)

        row = self._connection.execute(
            "SELECT record FROM skills WHERE id = ? AND file = ? AND name = ?", (entry.id, entry.file, entry.name)
        ).fetchone()
        return Skill.from_record(row[0]) if row else None

    def _entries(self, where: str, values: Sequence[str | int]) -> list[CatalogEntry]:
        rows = self._connection.execute(f"SELECT {', '.join(CatalogEntry._fields)} FROM skills {where}", values)
        return [
            CatalogEntry._make((*row[:6], KINDS[row[6]], *row[7:9], _split(row[9]), row[10], row[11] == 1))
            for row in rows
        ]


def _split(text: str) -> tuple[str, ...]:
    """Return the list that is stored as one text: no name and no tag holds a NUL."""
    return tuple(text.split("\0")) if text else ()


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _open(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        for _ in range(2):  # the second time without the damaged file
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                return _prepared(str(path), path)
            except (sqlite3.OperationalError, OSError):
                break  # no right to write, no room: removing the file would not help
            except (sqlite3.DatabaseError, UnicodeDecodeError):
                _remove(path)
    return _prepared(":memory:")


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


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
    """Drop the tables of an older version and make ours, once even if two processes start together."""
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _SCHEMA_VERSION:
        for table in ("head", "inside", "words", "skills", "folders"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        with closing(connection.cursor()) as cursor:
            for statement in _SCHEMA.split(";"):
                cursor.execute(statement)
        connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    connection.execute("COMMIT")
