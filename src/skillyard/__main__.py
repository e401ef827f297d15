"""The command `skillyard`."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        # Asked by scripts and by agents all the time: answered before anything is imported.
        from skillyard import __version__  # noqa: PLC0415

        sys.stdout.write(f"skillyard {__version__}\n")
        return
    from skillyard.faces.cli.main import main as command_line  # noqa: PLC0415

    command_line()


if __name__ == "__main__":
    main()
