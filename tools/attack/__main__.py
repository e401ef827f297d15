"""The command: `./dev attack`, `./dev attack --us`, `./dev attack --record`; see --help."""

import argparse
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.attack import inside, product
from tools.attack.report import Cell, Row, Verdict, as_details, as_json, as_markdown, as_table
from tools.attack.stage import Install
from tools.attack.who import (
    BARE,
    OURS,
    PEERS,
    Runtime,
    Who,
    absent,
    find_python,
    install_peers,
    lay_out_peers,
    users,
    version,
)

PAGE = Path(__file__).parents[2] / "docs/explanation/security.md"
BEGIN, END = "<!-- attack:begin -->", "<!-- attack:end -->"


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
    if options.record:
        record(as_markdown(rows, columns, _about()))
    failures = _failures(rows)
    if not options.json:
        print(f"{len(failures)} of ours failed" if failures else "nothing got out of ours")
    return 1 if failures else 0


def record(text: str, page: Path = PAGE) -> None:
    """Put the tables between the two marks of the page."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page.name} has no {BEGIN} and {END}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")


def _about() -> str:
    there = [f"{name} {version(name)}" for name in PEERS if not absent(name)]
    missing = [f"{name} was not installed" for name in PEERS if absent(name)]
    kernel = ".".join(platform.release().split(".")[:2])
    return f"Recorded on {time.strftime('%Y-%m-%d')}, Linux {kernel}: {', '.join((*there, *missing))}."


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev attack", description=__doc__)
    parser.add_argument("--us", action="store_true", help="only our own sandbox and commands: no peers, no control")
    parser.add_argument("--only", metavar="TEXT", default="", help="attacks whose layer or name contains it")
    parser.add_argument("--who", metavar="NAME", action="append", help="only these columns: full, bwrap, nothing, …")
    parser.add_argument("--json", action="store_true", help="everything that was found, as JSON")
    parser.add_argument("--record", action="store_true", help="write the table into docs/explanation/security.md")
    parser.add_argument("--install-peers", action="store_true", help="get sandbox-runtime from npm, into a cache")
    parser.add_argument(
        "--at-once", type=int, default=3, metavar="N", help="columns that are tried at the same time (3)"
    )
    return parser.parse_args(words)


def _columns(options: argparse.Namespace) -> list[Who]:
    names = OURS if options.us else (*OURS, *PEERS, BARE)
    return [Who(name, uid) for name in names if not options.who or name in options.who for uid in users()]


def _attack(options: argparse.Namespace, base: Path) -> tuple[list[Row], list[str]]:
    python = find_python()
    payloads = [p for p in inside.PAYLOADS if options.only in p.layer or options.only in p.name]
    products = [p for p in product.PRODUCTS if options.only in p.layer or options.only in p.name]
    whos = []
    for who in _columns(options):
        if reason := absent(who.name):
            print(f"{who.name}/{who.user}: {reason}", file=sys.stderr)
        else:
            whos.append(who)
    if any(who.name == "srt" for who in whos):
        lay_out_peers(base)
    table = Table([*payloads, *products])
    install = Install.make(base, python) if products else None
    # Two at once, but for what fills the machine: that runs alone, at the end.
    quiet = [p for p in payloads if p.layer != inside.LIMITS]
    calm = [p for p in products if p.layer != product.STARVING]
    with ThreadPoolExecutor(options.at_once) as pool:
        waiting = [pool.submit(_payloads, table, quiet, who, python, base) for who in whos]
        if install:
            waiting += [pool.submit(_products, table, calm, who, base, install) for who in whos]
        for each in waiting:
            each.result()
    for who in whos:
        _payloads(table, [p for p in payloads if p.layer == inside.LIMITS], who, python, base)
        if install:
            _products(table, [p for p in products if p.layer == product.STARVING], who, base, install)
    return table.rows(), [f"{who.name}/{who.user}" for who in whos]


class Table:
    """Cells by attack and column, filled in from several threads."""

    def __init__(self, attacks: Sequence[inside.Payload | product.Product]) -> None:
        self._cells: dict[tuple[str, str], dict[str, Cell]] = {(a.layer, a.name): {} for a in attacks}

    def put(self, attack: inside.Payload | product.Product, who: Who, cell: Cell) -> None:
        self._cells[attack.layer, attack.name][f"{who.name}/{who.user}"] = cell

    def rows(self) -> list[Row]:
        return [Row(layer, name, cells) for (layer, name), cells in self._cells.items()]


def _payloads(table: Table, payloads: Sequence[inside.Payload], who: Who, python: str, base: Path) -> None:
    begun = time.monotonic()
    runtime = Runtime(who, python, base)
    refused: Cell | None = None
    try:
        for payload in payloads:
            # A level that refuses one run refuses them all; a few are enough to see it.
            cell = refused or inside.attack(payload, runtime, base)
            table.put(payload, who, cell)
            if cell.verdict in {Verdict.REFUSED, Verdict.ABSENT}:
                refused = cell
    finally:
        runtime.close()
    print(f"{who.name}/{who.user}: {len(payloads)} payloads, {time.monotonic() - begun:.0f} s", file=sys.stderr)


def _products(table: Table, products: Sequence[product.Product], who: Who, base: Path, install: Install) -> None:
    begun = time.monotonic()
    chosen = [found for found in products if who.name in found.levels]
    for found in chosen:
        table.put(found, who, product.attack(found, who, base, install))
    if chosen:
        print(f"{who.name}/{who.user}: {len(chosen)} commands, {time.monotonic() - begun:.0f} s", file=sys.stderr)


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
