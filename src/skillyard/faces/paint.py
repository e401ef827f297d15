"""Colours for a terminal, by rich: the one module that imports it, and only where colours can be shown."""

import os
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TextIO, TypeAlias


class Span(NamedTuple):
    """A piece of a line; `style` says what it means, a name of `_STYLES`. No line is understood only by its colour."""

    text: str
    style: str = ""


Line: TypeAlias = tuple[Span, ...]

#: The style of a text that has its own colours, as SGR sequences.
ANSI = "ansi"

#: The sixteen colours of the terminal's own theme, so that light and dark ones are both readable.
_STYLES = {
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "note": "cyan",
    "dim": "dim",
    "strong": "bold",
    "heading": "bold underline",
    "label": "bold",
    "code": "cyan",
    "link": "underline",
    "command": "bold cyan",
    "added": "green",
    "removed": "red",
    "hunk": "cyan",
}


def find_painter(out: TextIO) -> Callable[[Iterable[Line]], None] | None:
    """Return what prints lines in colour; None where the stream, the environment or the installation has none."""
    forced = os.environ.get("FORCE_COLOR", "")
    if os.environ.get("NO_COLOR") or not (out.isatty() or forced):
        return None
    dumb = os.environ.get("TERM", "dumb") in {"dumb", "unknown"}
    if dumb and not forced:
        return None
    try:
        from rich.console import Console  # noqa: PLC0415  (only where colours are shown)
        from rich.text import Text  # noqa: PLC0415
    except ImportError:  # installed without what it depends on
        return None
    system: Literal["standard", "auto"] = "standard" if dumb else "auto"
    console = Console(
        file=out, force_terminal=True, color_system=system, highlight=False, markup=False, emoji=False, soft_wrap=True
    )

    def paint(lines: Iterable[Line]) -> None:
        text = Text(no_wrap=True, overflow="ignore")
        for line in lines:
            for span in line:
                if span.style == ANSI:
                    text.append_text(Text.from_ansi(span.text))
                else:
                    text.append(span.text, _STYLES.get(span.style, ""))
            text.append("\n")
        console.print(text, end="")

    return paint
