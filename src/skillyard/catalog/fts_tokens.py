"""Words for the full-text index: Chinese, Japanese and Korean runs become pairs of characters.

SQLite's own tokenisers keep such a run as one word, so that a word of two characters inside it is never found.
"""

import re
import unicodedata
from functools import cache

_CJK = (
    "\u3040-\u30ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # ideographs
    "\uac00-\ud7af"  # hangul
    "\U00020000-\U0003ffff"  # rare ideographs
)


@cache
def _run() -> re.Pattern[str]:
    """Compiled when first needed: as large a class costs more than a whole `list`."""
    return re.compile(f"[{_CJK}]+")


@cache
def _query_word() -> re.Pattern[str]:
    return re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")


def fold(text: str) -> str:
    """Full-width letters, ligatures and case are one and the same to somebody who searches."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def as_words(text: str) -> str:
    """Text for the index: each run of CJK as overlapping pairs, the rest as it is."""
    return _run().sub(lambda run: f" {_pairs(run[0])} ", fold(text))


def _pairs(run: str) -> str:
    """Overlapping pairs and the last character: every character then starts some word of the index."""
    return " ".join([*(run[i : i + 2] for i in range(len(run) - 1)), run[-1]])


def as_query(text: str) -> str:
    """An FTS5 query: every word must occur, the last one may be unfinished; nothing of FTS5's own syntax."""
    parts: list[str] = []
    for word in _query_word().findall(fold(text)):
        if _run().match(word):
            parts += [f'"{word[i : i + 2]}"' for i in range(len(word) - 1)] or [f'"{word}"*']
        else:
            parts.append(f'"{word}"*')
    return " AND ".join(parts)
