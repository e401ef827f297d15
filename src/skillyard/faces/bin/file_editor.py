"""Change a file without a preview: `skillyard edit`, with the same words."""

import sys
from collections.abc import Sequence

from skillyard.faces.cli.main import main as command_line


def main(words: Sequence[str]) -> None:
    sys.argv[1:] = ["edit", *words]
    command_line()
