"""The name of a skill's folder, from whatever a person called it: never a path, and the standard's where it can be."""

import re
import unicodedata

from skillyard.core.errors import InvalidArgs
from skillyard.core.messages import Message

MAX_CHARACTERS = 64
#: A file name has at most 255 bytes, and the files inside are named after the folder.
MAX_BYTES = 200
#: Windows takes these for devices, whatever their ending.
_DEVICES = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
_VARIATIONS = re.compile("[\ufe00-\ufe0f\U000e0000-\U000e01ef]")


def as_slug(name: str) -> str:
    """Small letters, digits and single hyphens; letters of other scripts stay where ASCII has none for them."""
    folded = unicodedata.normalize("NFKD", name).lower()
    plain = "".join(c for c in folded if not unicodedata.combining(c))
    is_latin = all(c.isascii() for c in plain if c.isalnum())
    whole = plain if is_latin else unicodedata.normalize("NFKC", _VARIATIONS.sub("", name)).lower()
    slug = _cut("-".join(_words(unicodedata.normalize("NFC", whole))))
    if not slug:
        raise InvalidArgs(Message("{name!r} holds no letter and no digit to name a folder with", name=name))
    return f"{slug}-skill" if _DEVICES.fullmatch(slug) else slug


def _words(text: str) -> list[str]:
    """Letters, digits, and the marks that some scripts spell with; a word starts with no mark."""
    kept = "".join(c if c.isalnum() or unicodedata.category(c) in {"Mn", "Mc"} else " " for c in text)
    return [word for word in (_without_marks(word) for word in kept.split()) if word]


def _without_marks(word: str) -> str:
    return word if not word or word[0].isalnum() else _without_marks(word[1:])


def _cut(slug: str) -> str:
    cut = slug[:MAX_CHARACTERS]
    while len(cut.encode()) > MAX_BYTES:
        cut = cut[:-1]
    return cut.rstrip("-")
