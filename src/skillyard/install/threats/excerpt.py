"""The offending line, fit to be shown: one line, no control characters, no secrets, not longer than a line."""

from skillyard.core.secrets import mask_keys
from skillyard.install.threats.files import File

_WIDTH = 160


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
    masked = mask_keys(text.strip())
    if masked.isprintable():
        return masked
    return "".join(_shown(letter) for letter in masked)


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter in "\t\n\r" else f"\\u{ord(letter):04x}"
