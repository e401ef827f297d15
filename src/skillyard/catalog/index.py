"""The index: a SQLite cache of the skill files, so that an unchanged skill is never parsed twice.

A lost, broken or older index is removed and made again. Where it cannot be stored (a read-only home, a full disk), one
in memory replaces it for the length of the process. Its tables are in index.sql; the module `search` says how a search
uses them.
"""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from skillyard.catalog import search
from skillyard.core.errors import StateDamaged
from skillyard.core.messages import Message
from skillyard.core.skill import KINDS, Kind, fold

if TYPE_CHECKING:
    from skillyard.core.skill import Skill

#: (mtime, ctime, size, inode): a file or folder with the same stamp was not changed.
Stamp: TypeAlias = tuple[int, int, int, int]

_STAMP = "mtime, ctime, size, inode"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA_VERSION = 8
#: Weights as measured: see the module `search`.
_SCORE_HEAD = "SELECT rowid, -bm25(head, 6.0, 2.0, 2.0, 2.0) FROM head WHERE head MATCH ?"
_SCORE_INSIDE = "SELECT rowid, -0.5 * bm25(inside, 2.0, 1.0) FROM inside WHERE inside MATCH ?"


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

    @property
    def qualified(self) -> str:
        """A name that only this entry of its root has."""
        return f"{self.role}/{self.name}" if self.role else str(self.folder.relative_to(self.root))


class Match(NamedTuple):
    """What is needed of a row to rank it among many; only the best are read whole."""

    id: int
    role: str
    folder_name: str
    root: str
    name: str
    folded: str


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
    kept = (skill.name, skill.folder_name, skill.role, str(skill.kind), str(skill.severity or ""), int(usable), folded)
    shown = (skill.title, skill.description, tags, skill.as_record())
    head = (f"{skill.name} {skill.folder_name}", skill.title, " ".join(skill.tags), skill.description)
    words = frozenset(search.words_of(" ".join(head)))
    return IndexRow((*source, *kept, *shown), tuple(map(search.as_fts_text, head)), search.inside_texts(body), words)


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
        rows = self._connection.execute(f"SELECT file, {_STAMP} FROM skills WHERE root = ?", (root,))
        return {row[0]: row[1:] for row in rows}

    def digests(self, root: str) -> dict[str, str]:
        return dict(self._connection.execute("SELECT file, digest FROM skills WHERE root = ?", (root,)).fetchall())

    def known_folders(self, root: str) -> dict[str, ScannedFolder]:
        """Return the folders between the root and its skills, as the last scan found them."""
        rows = self._connection.execute(f"SELECT path, {_STAMP}, children FROM folders WHERE root = ?", (root,))
        return {row[0]: ScannedFolder(row[1:5], children=_split(row[5])) for row in rows}

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
            self._connection.execute("DELETE FROM published WHERE file = ?", (file,))

    def published(self, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return the stamps and the files with digests of these SKILL.md, as `put_published` stored them."""
        import json  # noqa: PLC0415  (a list does not need it)

        wanted = "SELECT file, stamps, files FROM published WHERE file IN (SELECT value FROM json_each(?))"
        return {row[0]: row[1:] for row in self._connection.execute(wanted, (json.dumps(list(files)),))}

    def put_published(self, rows: Sequence[tuple[str, str, str]]) -> None:
        with self.writing():
            self._connection.executemany("INSERT OR REPLACE INTO published VALUES (?, ?, ?)", rows)

    def add(self, rows: Sequence[IndexRow]) -> None:
        if not rows:
            return
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM skills").fetchone()
        tables = ("skills", "head (rowid, name, title, tags, description)", "inside (rowid, headings, text)")
        for part, table in enumerate(tables):  # in the order of IndexRow
            numbered = [(number, *row[part]) for number, row in enumerate(rows, last + 1)]
            self._connection.executemany(f"INSERT INTO {table} VALUES ({_marks(numbered[0])})", numbered)
        words = frozenset().union(*(row.words for row in rows))
        self._connection.executemany("INSERT OR IGNORE INTO words VALUES (?)", ((word,) for word in sorted(words)))

    def put_folders(self, root: str, folders: Mapping[str, ScannedFolder]) -> None:
        self._connection.execute("DELETE FROM folders WHERE root = ?", (root,))
        rows = ((root, path, *folder.stamp, "\0".join(folder.children)) for path, folder in folders.items())
        self._connection.executemany("INSERT INTO folders VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def entries(self, roots: Sequence[str]) -> list[CatalogEntry]:
        return self._entries(f"WHERE root IN ({_marks(roots)})", roots)

    def named(self, roots: Sequence[str], name: str) -> list[CatalogEntry]:
        """Return the entries whose folder, name or title is the same, folded."""
        where = f"WHERE root IN ({_marks(roots)}) AND instr(char(10) || folded || char(10), ?)"
        return self._entries(where, [*roots, f"\n{fold(name)}\n"])

    def populated(self, roots: Sequence[str]) -> list[str]:
        has = "SELECT 1 FROM skills WHERE root = ? LIMIT 1"
        return [root for root in roots if self._connection.execute(has, (root,)).fetchone()]

    def matches(self, roots: Sequence[str], ids: Iterable[int], folder_names: Iterable[str]) -> list[Match]:
        """Return the rows with these ids or folder names that lie in these roots."""
        import json  # noqa: PLC0415  (a list does not need it)

        by_name = "SELECT id FROM skills WHERE folder_name IN (SELECT value FROM json_each(?))"
        # `+` keeps SQLite from reading all rows of the roots.
        where = f"id IN (SELECT value FROM json_each(?) UNION {by_name}) AND +root IN ({_marks(roots)})"
        values = [json.dumps(list(ids)), json.dumps(list(folder_names)), *roots]
        rows = self._connection.execute(f"SELECT {', '.join(Match._fields)} FROM skills WHERE {where}", values)
        return list(map(Match._make, rows))

    def score(self, query: str) -> dict[int, float]:
        """Return how well each skill fits a query in words, the higher the better."""
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM skills").fetchone()
        most = max(20, search.COMMON * last)
        total: dict[int, float] = {}
        for word, synonyms in search.as_concepts(query):
            best = self._score_word(word, most, spell=not synonyms) if word else {}
            for phrase in (f'"{synonym}"' for synonym in synonyms):
                counted = self._connection.execute("SELECT count(*) FROM head WHERE head MATCH ?", (phrase,))
                if counted.fetchone()[0] <= most:
                    _raise_to(best, self._scores(_SCORE_HEAD, phrase), search.SYNONYM)
            for number, points in best.items():
                total[number] = total.get(number, 0.0) + points
        return total

    def _score_word(self, word: str, most: float, *, spell: bool) -> dict[int, float]:
        scores = self._scores(_SCORE_HEAD, f'"{word}"')
        if not scores and (word.isascii() or len(word) == 1):
            scores = self._scores(_SCORE_HEAD, f'"{word}"*')
        if not scores and spell and search.can_be_misspelt(word):
            alike = "length(word) BETWEEN ? AND ? AND (word GLOB ? OR substr(word, 2, 2) = ?)"
            values = (len(word) - 2, len(word) + 2, f"{word[0]}*", word[1:3])
            rows = self._connection.execute(f"SELECT word FROM words WHERE {alike}", values)
            for near in search.nearest_words(word, (known for (known,) in rows)):
                _raise_to(scores, self._scores(_SCORE_HEAD, f'"{near}"'))
        if len(scores) <= most:
            _raise_to(scores, self._scores(_SCORE_INSIDE, f'"{word}"'))
        return scores

    def _scores(self, statement: str, fts_query: str) -> dict[int, float]:
        return dict(self._connection.execute(statement, (fts_query,)).fetchall())

    def numbered(self, ids: Sequence[int]) -> list[CatalogEntry]:
        """Return the entries with these ids, in this order."""
        found = {entry.id: entry for entry in self._entries(f"WHERE id IN ({_marks(ids)})", ids)}
        return [found[number] for number in ids if number in found]

    def find_skill(self, entry: CatalogEntry) -> "Skill | None":
        """Return the skill of an entry, or None if its row is gone, or another's by now."""
        from skillyard.core.skill import Skill  # noqa: PLC0415  (a list needs no whole skill)

        wanted = "SELECT record FROM skills WHERE id = ? AND file = ? AND name = ?"
        row = self._connection.execute(wanted, (entry.id, entry.file, entry.name)).fetchone()
        return Skill.from_record(row[0]) if row else None

    def _entries(self, where: str, values: Sequence[str | int]) -> list[CatalogEntry]:
        rows = self._connection.execute(f"SELECT {', '.join(CatalogEntry._fields)} FROM skills {where}", values)
        parts = ((*row[:6], KINDS[row[6]], *row[7:9], _split(row[9]), row[10], row[11] == 1) for row in rows)
        return list(map(CatalogEntry._make, parts))


def _raise_to(best: dict[int, float], scores: Mapping[int, float], weight: float = 1.0) -> None:
    """Set each score to the better one."""
    for number, points in scores.items():
        if weight * points > best.get(number, 0.0):
            best[number] = weight * points


def _split(text: str) -> tuple[str, ...]:
    """Return the list that is stored as one text: no name and no tag holds a NUL."""
    return tuple(text.split("\0")) if text else ()


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _open(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        for _ in range(2):  # the second time without the damaged file
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if os.path.lexists(path) and not os.access(path, os.W_OK):
                    break  # it can be opened, until something in it has to be changed
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
        if not _is_current(connection):
            connection.execute("BEGIN IMMEDIATE")
            if not _is_current(connection):  # two processes may start together
                for table in ("head", "inside", "words", "skills", "folders", "published"):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in Path(__file__).with_name("index.sql").read_text("utf-8").split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    connection.path = path
    return connection


def _is_current(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA user_version").fetchone() == (_SCHEMA_VERSION,))
