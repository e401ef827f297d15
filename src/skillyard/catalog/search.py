"""The words of a query and what else they may be called, so that a skill is found by other words than its own.

Any word may match, and rarer words count for more. A word counts for a skill as the best of: its score in the head
(name, title, tags, description), half of that inside (headings and the beginning of the text), and 0.7 of that of a
synonym in the head. The scores of all words add up. A word that no head has is taken for the beginning of one, else for
a misspelt one. Chinese is matched by pairs of characters, and its words are in the thesaurus beside the English ones.
Ratios and weights were measured on real queries: `./dev bench search`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from skillyard.core.skill import fold

#: Kana, ideographs (three ranges), hangul, rare ideographs.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
#: Of the text, what is searched.
INSIDE_CHARACTERS = 3000
#: A synonym counts for a little less than the word that was written.
SYNONYM = 0.7
#: A word that a larger share of the heads has says too little to be looked for inside, or as a synonym.
COMMON = 0.03
_MOST_TERMS = 40
_MISSPELT_LETTERS = 4
_ALIKE = 0.82


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
    return set(re.findall(rf"[a-z]{{{_MISSPELT_LETTERS},}}", fold(text))) - _stop_words()


def as_terms(query: str) -> list[str]:
    """Return the words of a query, and the pairs of its Chinese: stop words count only if there is nothing else."""
    every: list[str] = []
    for word in _split(fold(query), "+"):
        every += _pairs(word) if not word.isascii() and _cjk_run().match(word) else [word]
    stop = _stop_words()
    specific = [word for word in every if not stop.issuperset([word] if word.isascii() else word)]
    return list(dict.fromkeys(specific or every))[:_MOST_TERMS]


def _split(folded: str, together: str) -> list[str]:
    """Return the words; Chinese in runs if `together` is `+`, else by character."""
    if folded.isascii():
        return re.findall(r"[^\W_]+", folded)
    return re.findall(rf"[{_CJK}]{together}|[^\W_{_CJK}]+", folded)


def as_concepts(query: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each word of the query with the FTS5 phrases of its synonyms; those of a longer phrase have no word."""
    synonyms: dict[str, Sequence[str]] = dict.fromkeys(as_terms(query), ())
    words = _split(fold(query), "")[: 4 * _MOST_TERMS]
    known = _synonyms({_stem(word) for word in words})
    longest, at = max(map(len, known), default=1), 0
    while at < len(words):
        for length in range(min(longest, len(words) - at), 0, -1):
            if phrases := known.get(tuple(map(_stem, words[at : at + length]))):
                word = words[at]
                if length == 1 and word.isascii():
                    synonyms.update({word: phrases} if word in synonyms else {})
                else:
                    yield "", phrases
                break
        at += length
    yield from synonyms.items()


def _synonyms(stems: set[str]) -> dict[tuple[str, ...], Sequence[str]]:
    """Return the synonyms of each word or phrase that consists of these stems, as FTS5 phrases."""
    known: dict[tuple[str, ...], dict[str, None]] = {}
    for line in _thesaurus():
        if not any(stem in line for stem in stems):  # a stem is a part of its word
            continue
        looked_up, _, more = line.partition("#")[0].partition(">")
        keys = looked_up.split()
        phrases = {word: word if word.isascii() else " ".join(_pairs(word)) for word in (*keys, *more.split())}
        for key in keys:
            parts = tuple(map(_stem, key.split("-") if key.isascii() else key))
            if stems.issuperset(parts):
                others = (phrase for word, phrase in phrases.items() if word != key and len(word) > 1)
                known.setdefault(parts, {}).update(dict.fromkeys(others))
    return {parts: tuple(phrases) for parts, phrases in known.items()}


@cache
def _stop_words() -> frozenset[str]:
    """Return the English words and Chinese characters that say too little to be looked for."""
    return frozenset(Path(__file__).with_name("stopwords.txt").read_text("utf-8").split())


@cache
def _thesaurus() -> list[str]:
    return Path(__file__).with_name("thesaurus.txt").read_text("utf-8").splitlines()


def _stem(word: str) -> str:
    """Return the word without an English ending, enough to find `shopping` as `shop`."""
    for ending in ("ing", "ies", "ion", "ed", "es", "er", "ly", "s"):
        if word.endswith(ending) and len(word) >= len(ending) + 3 and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    if len(word) > 3:
        word = word[:-1] if word[-1] == word[-2] or word[-1] in "eiy" else word
    return word


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def nearest_words(word: str, known: Iterator[str]) -> list[str]:
    """Return the known words that a misspelt one may mean."""
    from difflib import get_close_matches  # noqa: PLC0415  (most words are known)

    return get_close_matches(word, list(known), 3, _ALIKE)


def can_be_misspelt(term: str) -> bool:
    return len(term) >= _MISSPELT_LETTERS and term.isascii() and term.isalpha()


def snippet(description: str, query: str, length: int) -> str:
    """Return the part of a description around the first word that matches, starting at a word."""
    text = " ".join(description.split())
    folded = text.lower()
    found = [place for term in as_terms(query) if (place := folded.find(term)) >= 0]
    start = max(0, min(min(found, default=0) - length // 3, len(text) - length))
    if start and (space := text.find(" ", start, start + length // 3)) > 0:
        start = space + 1
    return ("…" if start else "") + text[start : start + length] + ("…" if start + length < len(text) else "")


@cache
def _cjk_run() -> re.Pattern[str]:
    """Compiled when first needed: so large a class costs more than a whole `list`."""
    return re.compile(f"[{_CJK}]+")
