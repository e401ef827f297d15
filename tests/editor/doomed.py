"""Runs the editor and dies by SIGKILL just before its nth touch of a file or folder."""

import os
import signal
import sys

from skillyard.faces.bin.file_editor import main

DEADLY = {"os.rename", "os.remove", "os.mkdir", "open"}


def die_before(nth: int) -> None:
    seen = 0

    def watch(event: str, args: tuple[object, ...]) -> None:
        nonlocal seen
        if event in DEADLY and not str(args[0]).endswith((".py", ".pyc")):
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


if __name__ == "__main__":
    die_before(int(sys.argv[1]))
    main(sys.argv[2:])
