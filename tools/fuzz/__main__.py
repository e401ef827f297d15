"""The command: `./dev fuzz`, `./dev fuzz reader --seconds 600`, `./dev fuzz reader --replay FILE`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.fuzz.loop import fuzz, replay
from tools.fuzz.targets import TARGETS


def folder() -> Path:
    """Where inputs that broke something are kept, outside the repository."""
    if chosen := os.environ.get("SKILLYARD_FUZZ"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "skillyard" / "fuzz"


def main(words: Sequence[str] | None = None) -> int:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=names, help="one of them; all where none is named")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for each target (30)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same inputs")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one saved input, and show what it does")
    options = parser.parse_args(words)
    chosen = [target for target in TARGETS if options.target in {None, target.name}]
    if options.replay:
        if not options.target:
            parser.error("--replay needs the target")
        said = replay(chosen[0], options.replay.read_bytes())
        print(said or "nothing is wrong with it")
        return 1 if said else 0
    found = 0
    for target in chosen:
        report = fuzz(target, options.seconds, folder(), options.seed)
        about = f"{report.runs} inputs, {report.corpus} kept, {report.lines} lines reached"
        print(f"{report.target:10} {about}, {len(report.findings)} findings", flush=True)
        for finding in report.findings:
            print(f"  {finding.error}\n    {finding.replay}", flush=True)
        found += len(report.findings)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
