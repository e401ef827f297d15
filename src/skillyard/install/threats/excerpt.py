"""The offending line, fit to be shown: one line, no control characters, no secrets, not longer than a line."""

import re

from skillyard.install.threats.files import File

_WIDTH = 160
_MASK = "•••"
_SECRETS = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}"
    r"|(?<=://)[^\s/:@]{1,80}:[^\s/@]{1,80}(?=@)"
    r"|(?i:(?<=bearer )[\w.~+/-]{16,})"
)


def place(text: str, index: int) -> tuple[int, int]:
    """Line and column, both counted from 1."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def line_at(file: File, index: int) -> str:
    """The line around this place; of a long one, what is near."""
    text = file.text
    start = text.rfind("\n", 0, index) + 1
    end = text.find("\n", index)
    line = text[start : end if end >= 0 else len(text)]
    if len(line.strip()) > _WIDTH:
        near = max(index - start - _WIDTH // 3, 0)
        line = ("…" if near else "") + line[near : near + _WIDTH] + ("…" if near + _WIDTH < len(line) else "")
    return clean(line)


def clean(text: str) -> str:
    masked = _SECRETS.sub(_MASK, text.strip())
    if masked.isprintable():
        return masked
    return "".join(_shown(letter) for letter in masked)


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter in "\t\n\r" else f"\\u{ord(letter):04x}"
