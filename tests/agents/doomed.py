"""A runtime that will be killed: runs one turn of an agent, whatever comes of it."""

import os
import sys
from pathlib import Path

from skillyard.backends.driver import Start, Turn
from skillyard.backends.registry import make_drivers


def main() -> None:
    name, folder, model = sys.argv[1:]
    running = make_drivers(os.environ)[name].start(Start(Path(folder), model=model))
    for _ in running.turn(Turn("Work."), lambda _: True):
        pass


if __name__ == "__main__":
    main()
