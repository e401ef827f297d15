"""Any text as a literal of another language: it reads back equal, and can never be more than a text."""

from collections.abc import Callable


def quoted(text: str) -> str:
    """In double quotes, for Python and for YAML: both know the same escapes."""
    return f'"{_escaped(text, _wide)}"'


def script_quoted(text: str) -> str:
    """In double quotes, for JavaScript."""
    return f'"{_escaped(text, _braced)}"'


def shell_quoted(text: str) -> str:
    """In single quotes, for a shell. A shell knows no NUL: whoever asks has refused it."""
    return "'" + text.replace("'", "'\\''") + "'"


def in_docstring(text: str) -> str:
    """Inside Python's triple double quotes, where line ends may stay."""
    return "\n".join(_escaped(line, _wide) for line in text.split("\n"))


_NAMED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(text: str, numbered: Callable[[int], str]) -> str:
    """What cannot be seen is written by its number: nothing in the file looks other than it is."""
    return "".join(_NAMED.get(c) or (c if c.isprintable() else numbered(ord(c))) for c in text)


def _wide(point: int) -> str:
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def _braced(point: int) -> str:
    return f"\\u{{{point:x}}}"
