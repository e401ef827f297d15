"""The command `skillyard`."""

import gc
import os
import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        # Asked by scripts and by agents all the time: answered before anything is imported.
        from skillyard import __version__  # noqa: PLC0415

        sys.stdout.write(f"skillyard {__version__}\n")
        return
    # A command makes many small values and ends: looking for cycles among them every 700 would take a tenth of it.
    gc.set_threshold(100_000, 20, 20)
    from skillyard.faces.cli.main import main as command_line  # noqa: PLC0415

    code: object = 0
    try:
        command_line()
    except SystemExit as ended:
        code = ended.code
    leave(code)


def leave(code: object) -> None:
    """End at once. Taking the interpreter apart, and our databases with it, would take as long as the work did;
    they are made to survive worse than this."""
    status = code if isinstance(code, int) else 0 if code is None else 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        status = status or 1  # whoever read our output has left
    os._exit(status)


if __name__ == "__main__":
    main()
