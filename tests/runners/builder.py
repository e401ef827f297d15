"""Builds one environment in a process of its own and says each step: for tests that race or kill it."""

import sys
from contextlib import closing
from pathlib import Path

from skillyard.runners.environments import build
from skillyard.runners.interpreters import version_of
from skillyard.runners.requirements import Requirements
from skillyard.sandbox.launch import make_sandbox


def main() -> None:
    own_home, *packages = sys.argv[1:]
    needs = Requirements(tuple(packages), "", "x.py", sys.executable, version_of(sys.executable))
    with closing(make_sandbox()) as sandbox:
        built = build(needs, Path(own_home), sandbox, lambda step: print(step, flush=True))
    print(f"built {built}", flush=True)


if __name__ == "__main__":
    main()
