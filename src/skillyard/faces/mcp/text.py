"""What a skill says of itself, made safe to stand among our own words.

Covered: control, bidirectional, zero-width, tag and other invisible characters are gone, and nothing has a second line:
a description stays a description, and what a person reads is what the model reads.
Not covered: what the words say. They are the author's, and the instructions say so.
"""

import re
import unicodedata

#: Invisible, but not by category: blanks that pass for letters, the joiner of nothing, and selectors that can carry a
#: hidden text (of them only the one of emoji stays).
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut with an ellipsis."""
    if not (text.isascii() and text.isprintable()):
        text = _BLANK.sub("", "".join(_visible(character) for character in text))
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def _visible(character: str) -> str:
    if character in "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029":
        return " "
    return "" if unicodedata.category(character) in _HIDDEN else character
