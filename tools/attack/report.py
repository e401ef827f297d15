"""What was found, as a table for a terminal, as Markdown for the docs, and as JSON."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    BLOCKED = "blocked"
    ESCAPED = "ESCAPED"
    #: The run did not start at all, because this level cannot keep its promises.
    REFUSED = "refused"
    #: It got out where the documentation says that this level does not prevent it.
    UNPROMISED = "not promised"
    SKIPPED = "skipped"
    ABSENT = "absent"
    #: The payload did not run, so nothing was shown.
    BROKEN = "BROKEN"


class Cell(NamedTuple):
    verdict: Verdict
    evidence: str = ""


class Row(NamedTuple):
    layer: str
    name: str
    #: By column, `full/root` for example.
    cells: Mapping[str, Cell]


_SIGNS = {
    Verdict.BLOCKED: "·",
    Verdict.ESCAPED: "OUT",
    Verdict.REFUSED: "ref",
    Verdict.UNPROMISED: "(out)",
    Verdict.SKIPPED: "-",
    Verdict.ABSENT: " ",
    Verdict.BROKEN: "?!",
}
_SHORT = {"landlock+seccomp": "landlock", "bubblewrap": "wrapped", "nothing": "nothing"}


def as_table(rows: list[Row], columns: list[str], *, with_rows: bool = True) -> str:
    """One line for each attack, grouped by layer, with one column for each target and user."""
    heads = [_head(column) for column in columns]
    widths = [max(len(part) for part in head) for head in heads]
    first = max((len(row.name) for row in rows), default=0) + 2
    lines = []
    for level in range(2):
        cells = "  ".join(head[level].rjust(width) for head, width in zip(heads, widths, strict=True))
        lines.append(f"{'':{first}}{cells}")
    layer = ""
    for row in rows if with_rows else ():
        if row.layer != layer:
            layer = row.layer
            lines.append(layer)
        cells = "  ".join(
            _SIGNS[row.cells[column].verdict].rjust(width) if column in row.cells else " " * width
            for column, width in zip(columns, widths, strict=True)
        )
        lines.append(f"  {row.name:{first - 2}}{cells}")
    sums = "  ".join(str(escapes(rows, column)).rjust(width) for column, width in zip(columns, widths, strict=True))
    lines.append(f"{'got out':{first}}{sums}")
    return "\n".join(lines)


def _head(column: str) -> tuple[str, str]:
    name, _, user = column.partition("/")
    return _SHORT.get(name, name), user


def escapes(rows: list[Row], column: str) -> int:
    return sum(row.cells[column].verdict is Verdict.ESCAPED for row in rows if column in row.cells)


def tried(rows: list[Row], column: str) -> int:
    counted = {Verdict.BLOCKED, Verdict.ESCAPED, Verdict.UNPROMISED, Verdict.REFUSED}
    return sum(row.cells[column].verdict in counted for row in rows if column in row.cells)


def as_markdown(rows: list[Row], columns: list[str], about: str) -> str:
    """By layer how many got out, for every target and for ours; then which payload got out of which sandbox."""
    names = list(dict.fromkeys(column.partition("/")[0] for column in columns))
    ours = [name for name in names if name in OUR_LEVELS]
    # What was tried with nothing around it is a payload, the rest is a command.
    payloads = [row for row in rows if any(column.startswith("nothing/") for column in row.cells)]
    commands = [row for row in rows if row not in payloads]
    parts = [about, "### Payloads inside a sandbox", _by_layer(payloads, names)]
    if commands:
        tried_at = [name for name in ours if any(f"{name}/" in column for row in commands for column in row.cells)]
        parts += ["### Commands in a hostile place", _by_layer(commands, tried_at)]
    sandboxes = [name for name in names if name not in {"nothing", "none"}]
    parts += ["### What got out of which sandbox", _each(payloads, sandboxes)]
    return "\n\n".join(parts)


OUR_LEVELS = ("full", "bubblewrap", "landlock+seccomp", "none")


def _both(column: str) -> list[str]:
    return [f"{column}/root", f"{column}/user"]


def _by_layer(rows: list[Row], names: list[str]) -> str:
    lines = [f"| layer | {' | '.join(_SHORT.get(name, name) for name in names)} |"]
    lines.append(f"| --- | {' | '.join('---' for _ in names)} |")
    groups = [
        (layer, [row for row in rows if row.layer == layer]) for layer in dict.fromkeys(row.layer for row in rows)
    ]
    for layer, group in (*groups, ("**all**", rows)):
        cells = [" / ".join(dict.fromkeys(_sum(group, column) for column in _both(name))) for name in names]
        lines.append(f"| {layer} ({len(group)}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def _each(rows: list[Row], names: list[str]) -> str:
    lines = [f"| payload | {' | '.join(_SHORT.get(name, name) for name in names)} |"]
    lines.append(f"| --- | {' | '.join('---' for _ in names)} |")
    for row in rows:
        cells = [_who(row, name) for name in names]
        if any(cells):
            lines.append(f"| {row.name.replace('_', ' ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _who(row: Row, name: str) -> str:
    """Which user got out: `root`, `user`, both, or nobody."""
    out = {
        column.partition("/")[2]: row.cells[column].verdict
        for column in _both(name)
        if column in row.cells and row.cells[column].verdict in {Verdict.ESCAPED, Verdict.UNPROMISED}
    }
    text = "both" if len(out) == 2 else "".join(out)
    return f"({text})" if out and Verdict.ESCAPED not in out.values() else text


def _sum(rows: list[Row], column: str) -> str:
    there = [row.cells[column].verdict for row in rows if column in row.cells]
    if all(verdict in {Verdict.ABSENT, Verdict.BROKEN, Verdict.SKIPPED} for verdict in there):
        return "–"  # nothing ran, so nothing was shown
    if all(verdict is Verdict.REFUSED for verdict in there):
        return "refuses"
    excused = there.count(Verdict.UNPROMISED)
    return f"{there.count(Verdict.ESCAPED)}" + (f" (+{excused})" if excused else "")


def as_details(rows: list[Row], columns: list[str]) -> str:
    """Evidence for whatever got out, was excused or did not run, one line each."""
    shown = {Verdict.ESCAPED, Verdict.BROKEN, Verdict.UNPROMISED}
    lines = []
    for row in rows:
        for column in columns:
            cell = row.cells.get(column)
            if cell and cell.verdict in shown and not column.startswith("nothing/"):
                lines.append(f"  {cell.verdict:12} {column:22} {row.name}: {cell.evidence}")
    return "\n".join(lines)


def as_json(rows: list[Row]) -> str:
    return json.dumps(
        [
            {
                "layer": row.layer,
                "name": row.name,
                "cells": {name: {"verdict": c.verdict.value, "evidence": c.evidence} for name, c in row.cells.items()},
            }
            for row in rows
        ],
        ensure_ascii=False,
        indent=1,
    )
