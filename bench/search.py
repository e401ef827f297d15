"""How often a natural query finds its skill among the first three, beside plain BM25, over a corpus of real skills.

The corpus is that of tests/catalog (SKILLYARD_CORPUS, an archive or a folder); without one there is nothing to measure.
`search_queries.tsv` was written by reading descriptions: the part, the sort of the query, the query, and the skills
that answer it. The part `work` is for work on the ranking; `held` is looked at once, when that work is done.
"""

import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure
from skillyard.catalog.catalog import Catalog
from skillyard.catalog.index import Index, make_row
from skillyard.catalog.manifest import read_skill
from skillyard.catalog.roots import SkillRoot

QUERIES = Path(__file__).with_name("search_queries.tsv")
_BESIDE = Path(__file__).parents[2] / "shared" / "corpus" / "dev-corpus.tar.gz"
_GOALS = {"words": 80, "zh-words": 80, "typo": 80, "paraphrase": 60, "zh-paraphrase": 60}


class Query(NamedTuple):
    part: str
    sort: str
    text: str
    answers: frozenset[str]


def read_queries() -> list[Query]:
    rows = (line.split("\t") for line in QUERIES.read_text("utf-8").splitlines())
    return [Query(part, sort, text, frozenset(names.split(";"))) for part, sort, text, names in rows]


def measure(folder: Path) -> Iterator[Figure]:
    source = Path(os.environ.get("SKILLYARD_CORPUS") or _BESIDE)
    if not source.exists():
        print("no corpus: set SKILLYARD_CORPUS to an archive or folder of skills")
        return
    catalog = _open_catalog(source, folder)
    plain = _plain_bm25(catalog)
    queries = read_queries()
    for part in ("work", "held"):
        for sort, goal in _GOALS.items():
            asked = [query for query in queries if (query.part, query.sort) == (part, sort)]
            ours = [
                _position(query, lambda text: [hit.entry.name for hit in catalog.search(text, 10)]) for query in asked
            ]
            theirs = [_position(query, plain) for query in asked]
            told = ", ".join(
                f"hit@{most} {_share(ours, most):.0%} (plain BM25 {_share(theirs, most):.0%})" for most in (1, 10)
            )
            what = f"{part}, {sort}, {len(asked)} queries: hit@3 (plain BM25 {_share(theirs, 3):.0%}); {told}"
            yield Figure(what, 100 * _share(ours, 3), "%", at_least=goal)
    for count, goal in ((2_500, 10), (25_000, 40)):
        large = _repeated(catalog, count, folder / f"{count}.db")
        started = time.process_time()
        for query in queries:
            large.search(query.text)
        spent = (time.process_time() - started) / len(queries) * 1000
        yield Figure(f"CPU time of one search in {count:,} skills", spent, " ms", at_most=goal)


def _open_catalog(source: Path, folder: Path) -> Catalog:
    """Put every SKILL.md of the corpus into a root of its own folder, and read it."""
    unpacked = source
    if source.is_file():
        unpacked = folder / "corpus"
        with tarfile.open(source) as archive:
            archive.extractall(unpacked, filter="data")
    root = folder / "skills"
    for number, file in enumerate(sorted(path for path in unpacked.rglob("*.md") if path.is_file())):
        target = root / f"skill-{number}" / "SKILL.md"
        target.parent.mkdir(parents=True)
        shutil.copyfile(file, target)
    catalog = Catalog([SkillRoot(root, True, 0, "corpus")], Index(folder / "index.db"))
    catalog.sync()
    return catalog


def _repeated(catalog: Catalog, count: int, path: Path) -> Catalog:
    """Return a catalog of so many skills: those of the given one, again and again."""
    rows = [
        make_row(("corpus", entry.file, 0, 0, 0, 0, ""), skill, body=read_skill(Path(entry.file)).body)
        for entry in catalog.list()
        if entry.usable and (skill := catalog.index.find_skill(entry))
    ]
    index = Index(path)
    with index.writing():
        for start in range(0, count, len(rows)):
            index.add(rows[: count - start])
    return Catalog([SkillRoot(Path("corpus"), True, 0, "corpus")], index)


def _plain_bm25(catalog: Catalog) -> Callable[[str], list[str]]:
    """What a plain FTS5 table over names and descriptions finds: any word, no stop words, no help with Chinese."""
    table = sqlite3.connect(":memory:")
    table.execute("CREATE VIRTUAL TABLE skills USING fts5(name, description)")
    table.executemany("INSERT INTO skills VALUES (?, ?)", [(entry.name, entry.description) for entry in catalog.list()])

    def search(text: str) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in text.replace('"', " ").split())
        rows = table.execute("SELECT name FROM skills WHERE skills MATCH ? ORDER BY bm25(skills) LIMIT 10", (words,))
        return [name for (name,) in rows]

    return search


def _position(query: Query, search: Callable[[str], list[str]]) -> int:
    return next((place for place, name in enumerate(search(query.text)) if name in query.answers), 99)


def _share(positions: list[int], most: int) -> float:
    return sum(position < most for position in positions) / max(1, len(positions))
