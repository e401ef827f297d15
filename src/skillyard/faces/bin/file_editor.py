"""Change a file without a preview: `skillyard edit`, with the same words."""

from collections.abc import Sequence
from functools import partial

from skillyard.faces import edit
from skillyard.faces.command import guarded


def main(words: Sequence[str]) -> None:
    guarded(partial(edit.run, prog="python bin/file_editor.py"), words)
