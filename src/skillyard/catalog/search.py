"""How well each skill answers a query: any word may match, and rarer words count for more.

A word's score in a skill is the better of two: in its head (name, title, tags, description) and, for half as much,
inside (headings and the beginning of the text). The scores of all words add up. A word that no skill has is taken for
the beginning of one, then for a misspelt one. Chinese is matched by pairs of characters, and its developers' words in
English too. Ratios and weights were measured on real queries: `./dev bench search`.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import cache

Scores = Mapping[int, float]
#: Gives the scores of an FTS5 query, by the skill's row.
Scorer = Callable[[str], Scores]

_CJK = (
    "\u3040-\u30ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # ideographs
    "\uac00-\ud7af"  # hangul
    "\U00020000-\U0003ffff"  # rare ideographs
)
#: Of the text, what is searched.
INSIDE_CHARACTERS = 3000
#: A translated word counts for a little less than one that was written.
_TRANSLATED = 0.8
_MOST_TERMS = 40
_STOP = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "get", "give"),
        *("has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "just", "like", "make", "me", "my"),
        *("need", "no", "not", "of", "on", "or", "our", "out", "so", "some", "that", "the", "their", "them"),
        *("then", "there", "these", "they", "this", "to", "too", "up", "us", "use", "used", "using", "want", "was"),
        *("we", "what", "when", "where", "which", "who", "why", "will", "with", "would", "you", "your", "help"),
        *("please", "about", "all", "any", "more"),
    )
)
_STOP_CJK = frozenset(
    "的了吗呢吧我你他它们个是在有和与及或把被给让请帮这那哪怎么什能不要就都还也会里上下做用对从为到一"
)
_MISSPELT_LETTERS = 4
_ALIKE = 0.8


def fold(text: str) -> str:
    """Return the text for comparisons: without differences of case, full-width letters and ligatures."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def as_fts_text(text: str) -> str:
    """Return the text for the full-text index: each run of CJK as overlapping pairs and its last character.

    SQLite's own tokenisers take such a run for one word, so that a word of two characters inside it is never found.
    """

    def pairs(run: re.Match[str]) -> str:
        return f" {' '.join(run[0][i : i + 2] for i in range(len(run[0])))} "

    folded = fold(text)
    return folded if folded.isascii() else _cjk_run().sub(pairs, folded)


def inside_texts(body: str) -> tuple[str, str]:
    """Return the headings and the beginning of a skill's text, as the index takes them."""
    text = body[: 4 * INSIDE_CHARACTERS]
    headings = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    return as_fts_text(headings), as_fts_text(text[:INSIDE_CHARACTERS])


def words_of(text: str) -> set[str]:
    """Return the words of a skill's head that a misspelt one may mean."""
    return set(re.findall(r"[a-z]{4,}", fold(text)))


def as_terms(query: str) -> list[str]:
    """Return the words of a query: stop words count only if there is nothing else."""
    every: list[str] = []
    told: list[str] = []
    for word in re.findall(rf"[{_CJK}]+|[^\W_{_CJK}]+", fold(query)):
        if _cjk_run().match(word):
            pieces = [word[i : i + 2] for i in range(len(word) - 1)] or [word]
            told += (piece for piece in pieces if not _STOP_CJK.issuperset(piece))
        else:
            pieces = [word]
            told += (piece for piece in pieces if piece not in _STOP)
        every += pieces
    return list(dict.fromkeys(told or every))[:_MOST_TERMS]


def score(query: str, scorer: Scorer, spell: Callable[[str], str]) -> dict[int, float]:
    """Return how well each skill fits, the higher the better. `spell` gives a known word for a misspelt one, or ""."""
    total: dict[int, float] = {}
    for term in as_terms(query):
        _add(total, _score_term(term, scorer, spell), 1.0)
    for meanings in _translations(query):
        best: dict[int, float] = {}
        for meaning in meanings:
            for row, points in scorer(f'"{meaning}"').items():
                best[row] = max(points, best.get(row, 0.0))
        _add(total, best, _TRANSLATED)
    return total


def nearest_word(word: str, known: Iterator[str]) -> str:
    """Return the known word that is most like this one, if one is alike enough."""
    from difflib import get_close_matches  # noqa: PLC0415  (most words are known)

    return next(iter(get_close_matches(word, list(known), 1, _ALIKE)), "")


def snippet(description: str, query: str, length: int) -> str:
    """Return the part of a description around the first word that matches, starting at a word."""
    text = " ".join(description.split())
    folded = text.lower()
    found = [place for term in as_terms(query) if (place := folded.find(term)) >= 0]
    start = max(0, min(min(found, default=0) - length // 3, len(text) - length))
    if start and (space := text.find(" ", start, start + length // 3)) > 0:
        start = space + 1
    return ("…" if start else "") + text[start : start + length] + ("…" if start + length < len(text) else "")


def _score_term(term: str, scorer: Scorer, spell: Callable[[str], str]) -> Scores:
    if len(term) == 1 and _cjk_run().match(term):
        return scorer(f'"{term}"*')
    return scorer(f'"{term}"') or scorer(f'"{term}"*') or (scorer(f'"{word}"') if (word := spell(term)) else {})


def can_be_misspelt(term: str) -> bool:
    return len(term) >= _MISSPELT_LETTERS and term.isascii() and term.isalpha()


def _add(total: dict[int, float], scores: Scores, weight: float) -> None:
    for row, points in scores.items():
        total[row] = total.get(row, 0.0) + weight * points


def _translations(query: str) -> Iterator[tuple[str, ...]]:
    """Yield the English words for each Chinese word of the dictionary in the query, the longest ones first."""
    if query.isascii():
        return
    from skillyard.catalog.chinese_words import LONGEST, MEANINGS  # noqa: PLC0415  (few queries are Chinese)

    text, position = fold(query), 0
    while position < len(text):
        for length in range(min(LONGEST, len(text) - position), 0, -1):
            if meanings := MEANINGS.get(text[position : position + length]):
                yield meanings
                position += length - 1
                break
        position += 1


@cache
def _cjk_run() -> re.Pattern[str]:
    """Compiled when first needed: so large a class costs more than a whole `list`."""
    return re.compile(f"[{_CJK}]+")
