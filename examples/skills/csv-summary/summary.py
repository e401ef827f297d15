#!/usr/bin/env python3
"""Describes the columns of a CSV file as one JSON object.

usage: summary.py FILE [--delimiter CHARACTER]
"""

import argparse
import csv
import io
import json
import math
import re
import sys
from collections import Counter
from datetime import date
from pathlib import Path

ENCODINGS = ("utf-8-sig", "gb18030")
DELIMITERS = ",;\t|"
INT = re.compile(r"[-+]?\d{1,18}")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
BOOLS = {"true", "false", "yes", "no", "是", "否"}


def read(path: Path) -> tuple[str, str]:
    """The text, and the encoding it was in."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SystemExit(f"summary.py: no such file: {path}") from None
    except OSError as error:
        raise SystemExit(f"summary.py: {path}: {error.strerror}") from None
    if b"\0" in content:
        raise SystemExit(f"summary.py: {path} is not a text file")
    for encoding in ENCODINGS:
        try:
            return content.decode(encoding), encoding.removesuffix("-sig")
        except UnicodeDecodeError:
            continue
    raise SystemExit(f"summary.py: {path} is in none of {', '.join(ENCODINGS)}")


def guess_delimiter(text: str) -> str:
    """The candidate that splits the first rows into the same number of cells, and the most of them."""
    best, most = ",", 1
    for candidate in DELIMITERS:
        rows = list(csv.reader(io.StringIO(text[:65536], newline=""), delimiter=candidate))[:20]
        widths = {len(row) for row in rows[: max(1, len(rows) - 1)] if row}
        if len(widths) == 1 and (width := widths.pop()) > most:
            best, most = candidate, width
    return best


def type_of(cells: list[str]) -> str:
    if not cells:
        return "empty"
    if all(INT.fullmatch(cell) for cell in cells):
        return "int"
    if all(NUMBER.fullmatch(cell) and math.isfinite(float(cell)) for cell in cells):
        return "number"
    if all(is_date(cell) for cell in cells):
        return "date"
    return "bool" if all(cell.lower() in BOOLS for cell in cells) else "text"


def is_date(cell: str) -> bool:
    if not DATE.fullmatch(cell):
        return False
    try:
        date.fromisoformat(cell)
    except ValueError:
        return False
    return True


def describe(name: str, column: list[str]) -> dict[str, object]:
    cells = [cell.strip() for cell in column if cell.strip()]
    kind = type_of(cells)
    facts: dict[str, object] = {
        "name": name,
        "type": kind,
        "filled": len(cells),
        "empty": len(column) - len(cells),
        "distinct": len(set(cells)),
    }
    if kind in {"int", "number"}:
        numbers = [int(cell) if kind == "int" else float(cell) for cell in cells]
        total = sum(numbers) if kind == "int" else round(math.fsum(numbers), 6)
        facts |= {"min": min(numbers), "max": max(numbers), "mean": round(total / len(numbers), 6), "sum": total}
    elif kind == "date":
        facts |= {"min": min(cells), "max": max(cells)}
    elif kind in {"bool", "text"}:
        ranked = sorted(Counter(cells).items(), key=lambda item: (-item[1], item[0]))
        facts["common"] = [{"value": value[:80], "count": count} for value, count in ranked[:3]]
    return facts


def summarise(text: str, delimiter: str) -> dict[str, object]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header: list[str] = []
    rows: list[list[str]] = []
    ragged, first_ragged = 0, 0
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if not header:
            header = row
            continue
        if len(row) != len(header):
            ragged += 1
            first_ragged = first_ragged or reader.line_num
        rows.append((row + [""] * len(header))[: len(header)])
    if not header:
        raise SystemExit("summary.py: the file is empty")
    names = [name.strip() or f"column {position}" for position, name in enumerate(header, 1)]
    return {
        "rows": len(rows),
        "columns": [describe(name, [row[i] for row in rows]) for i, name in enumerate(names)],
        "ragged": {"rows": ragged, "first_line": first_ragged} if ragged else {"rows": 0},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="summary.py", description="Describe the columns of a CSV file.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--delimiter", help="one character; found out when it is not given")
    options = parser.parse_args()
    given = {"tab": "\t", "\\t": "\t"}.get(options.delimiter, options.delimiter)
    if given is not None and (len(given) != 1 or given in '"\r\n'):
        parser.error(f"--delimiter takes one character or `tab`, not {options.delimiter!r}")

    csv.field_size_limit(10_000_000)
    text, encoding = read(options.file)
    delimiter = given or guess_delimiter(text)
    try:
        facts = summarise(text, delimiter)
    except csv.Error as error:
        raise SystemExit(f"summary.py: {options.file} is not CSV: {error}") from None
    json.dump({"encoding": encoding, "delimiter": delimiter, **facts}, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
