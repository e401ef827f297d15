"""Writes down the sha256 of what this version of `skillyard init` writes; earlier versions' stay as they are.

usage: python tools/written.py [--check]
"""

import hashlib
import json
import sys

from skillyard import __version__
from skillyard.trust.own_files import LAYOUT, TEMPLATES

FILE = TEMPLATES / "written.json"


def main() -> None:
    known = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    now = {piece.path: hashlib.sha256(piece.content).hexdigest() for piece in LAYOUT if piece.template}
    if known.get(__version__) == now:
        return
    if "--check" in sys.argv:
        raise SystemExit("out of date: src/skillyard/project/written.json; `./dev docs` writes it again.")
    FILE.write_text(json.dumps({**known, __version__: now}, indent=2) + "\n", "utf-8")
    print("written: src/skillyard/project/written.json")


if __name__ == "__main__":
    main()
