"""The command: `./dev attack`, `./dev attack --us`, `./dev attack --record`; see --help."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools.attack import inside
from tools.attack.report import Cell, Row, Verdict, as_details, as_json, as_markdown, as_table
from tools.attack.who import BARE, OURS, PEERS, Runtime, Who, absent, find_python, install_peers, users, version


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    if options.install_peers and (reason := install_peers()):
        print(f"sandbox-runtime is not installed: {reason}", file=sys.stderr)
    started = time.monotonic()
    base = Path(tempfile.mkdtemp(prefix="attack-")).resolve()
    base.chmod(0o755)
    try:
        rows, columns = _attack(options, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(as_json(rows) if options.json else _shown(rows, columns, time.monotonic() - started))
    return 1 if _failures(rows) else 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev attack", description=__doc__)
    parser.add_argument("--us", action="store_true", help="only our own sandbox and commands: no peers, no control")
    parser.add_argument("--only", metavar="TEXT", default="", help="attacks whose layer or name contains it")
    parser.add_argument("--who", metavar="NAME", action="append", help="only these columns: full, bwrap, nothing, …")
    parser.add_argument("--json", action="store_true", help="everything that was found, as JSON")
    parser.add_argument("--record", action="store_true", help="write the table into docs/explanation/security.md")
    parser.add_argument("--install-peers", action="store_true", help="get sandbox-runtime from npm, into a cache")
    return parser.parse_args(words)


def _columns(options: argparse.Namespace) -> list[Who]:
    names = OURS if options.us else (*OURS, *PEERS, BARE)
    return [Who(name, uid) for name in names if not options.who or name in options.who for uid in users()]


def _attack(options: argparse.Namespace, base: Path) -> tuple[list[Row], list[str]]:
    python = find_python()
    chosen = [p for p in inside.PAYLOADS if options.only in p.layer or options.only in p.name]
    whos = _columns(options)
    rows: list[Row] = [Row(payload.layer, payload.name, {}) for payload in chosen]
    for who in whos:
        column = f"{who.name}/{who.user}"
        if reason := absent(who.name):
            print(f"{column}: {reason}", file=sys.stderr)
            continue
        begun = time.monotonic()
        runtime = Runtime(who, python, base)
        try:
            for payload, row in zip(chosen, rows, strict=True):
                row.cells[column] = inside.attack(payload, runtime, base)  # type: ignore[index]
        finally:
            runtime.close()
        print(f"{column}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return rows, [f"{who.name}/{who.user}" for who in whos if not absent(who.name)]


def _shown(rows: list[Row], columns: list[str], seconds: float) -> str:
    return f"{as_table(rows, columns)}\n\n{as_details(rows, columns)}\n\n{seconds:.0f} s"


def _failures(rows: list[Row]) -> list[str]:
    return [
        f"{row.name} {column}"
        for row in rows
        for column, cell in row.cells.items()
        if column.partition("/")[0] in OURS and cell.verdict in {Verdict.ESCAPED, Verdict.BROKEN}
    ]


if __name__ == "__main__":
    raise SystemExit(main())
