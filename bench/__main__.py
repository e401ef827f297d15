"""Measures, prints, and with --record writes docs/reference/performance.md."""

import argparse
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench import catalog, dispatch, install, jobs, mcp, reader, run, scan, search, start
from bench.figures import Figure

GROUPS = {
    "start": start,
    "reader": reader,
    "catalog": catalog,
    "search": search,
    "scan": scan,
    "run": run,
    "install": install,
    "dispatch": dispatch,
    "mcp": mcp,
    "jobs": jobs,
}
PAGE = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"
HEAD = """\
# Performance

Written by `./dev bench --record`: each figure is a ratio taken in one run, turn by turn, on one machine, because
seconds on a busy machine say little. Goals are those of the issues. Nothing here gates a build.

Last recorded {date} on {machine}, Python {python}; a group that was not measured then keeps its figures.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "groups",
        nargs="*",
        help=f"which of {', '.join(GROUPS)}; all where none is named; folders for scan after `scan`",
    )
    parser.add_argument("--record", action="store_true", help="write the page in docs/reference")
    options = parser.parse_args()
    folders: list[Path] = []
    if "scan" in options.groups:
        after = options.groups.index("scan") + 1
        folders = [Path(name) for name in options.groups[after:]]
        options.groups = options.groups[:after]
    if unknown := set(options.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}")
    sections: dict[str, list[str]] = {}
    missed: list[Figure] = []
    for name in options.groups or GROUPS:
        lines = sections[name] = [f"## {name}", "", "| what | measured | goal | met |", "| --- | --- | --- | --- |"]
        print("\n".join(["", *lines]), flush=True)
        with tempfile.TemporaryDirectory(prefix="skillyard-bench-") as folder:
            figures = scan.measure(Path(folder), folders) if name == "scan" else GROUPS[name].measure(Path(folder))
            for figure in figures:
                lines.append(figure.as_row())
                print(lines[-1], flush=True)
                missed += [] if figure.met else [figure]
    if options.record:
        machine = f"{platform.system()} {platform.machine()}"
        head = HEAD.format(date=datetime.now(UTC).date(), machine=machine, python=platform.python_version())
        kept = _recorded() | {name: "\n".join(lines) for name, lines in sections.items()}
        PAGE.write_text("\n\n".join([head.rstrip(), *(kept[name] for name in GROUPS if name in kept)]) + "\n", "utf-8")
    if missed:
        print(f"\n{len(missed)} goals missed", file=sys.stderr)


def _recorded() -> dict[str, str]:
    """What the page says of each group: a group that was not measured now keeps its figures."""
    _, *sections = PAGE.read_text("utf-8").split("\n## ")
    return {text.split("\n", 1)[0]: f"## {text.rstrip()}" for text in sections}


if __name__ == "__main__":
    main()
