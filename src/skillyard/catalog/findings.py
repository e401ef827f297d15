"""Makes findings. Severity, message and advice of each code are in findings.json.

Errors break the reading or a limit of the standard; warnings break its other rules or are likely mistakes; notes are
good to know. `--strict` takes warnings for errors. The messages are templates: `./dev messages` collects them for the
translators.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from skillyard.core.messages import Message
from skillyard.core.skill import Finding, Severity

#: Line and column in a file, both counted from 1.
Position: TypeAlias = tuple[int, int]
START: Position = (1, 1)
#: The keys and indexes that lead to a value.
KeyPath: TypeAlias = tuple[str | int, ...]
#: Severity, message and advice by code.
RULES: Mapping[str, tuple[str, str, str]] = json.loads(Path(__file__).with_name("findings.json").read_text("utf-8"))
_LONGEST_VALUE = 80


def make_finding(code: str, line: int = 1, column: int = 1, /, **values: object) -> Finding:
    """Return the finding with this code at this position of the file."""
    severity, message, advice = RULES[code]
    shown = {name: _shorten(value) for name, value in values.items()}
    return Finding(code, Severity(severity), Message(message, **shown), Message(advice, **shown), line, column)


def position_in(text: str, index: int, first_line: int = 1) -> Position:
    """Return the position of a character in a text whose first line has this number."""
    return text.count("\n", 0, index) + first_line, index - text.rfind("\n", 0, index)


def one_line(text: str) -> str:
    """Return the text without control characters: findings are printed on terminals."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def _shorten(value: object) -> str:
    text = str(value)  # a message stays one
    longest = 3 * _LONGEST_VALUE if isinstance(value, Message) else _LONGEST_VALUE  # a sentence of ours about a value
    return one_line(text if len(text) <= longest else text[: longest - 1] + "…")
