"""A runtime that will be killed: launches something that stays, and tells on stderr when it is up."""

import json
import os
import sys
from pathlib import Path

from skillyard.sandbox.launch import Launch, Layers, Policy
from skillyard.sandbox.launcher import Launcher
from skillyard.sandbox.policy import python_paths


def tell(piece: bytes) -> None:
    os.write(2, piece)


def main() -> None:
    given = json.loads(sys.argv[1])
    with Launcher() as probing:
        layers = probing.layers
    if given["way"] != "full":
        layers = layers._replace(namespaces=False, bubblewrap="")
    if given["way"] == "subreaper":
        layers = layers._replace(cgroup=Layers().cgroup)
    policy = None if given["way"] == "none" else Policy(read=python_paths())
    code = "import os, sys\nos.dup2(2, 1)\n" + given["code"]
    launch = Launch(
        argv=(sys.executable, "-I", "-S", "-c", code),
        cwd=Path(given["cwd"]),
        env={"MARKER": given["marker"]},
        policy=policy,
        limit_seconds=600,
        on_stderr=tell,
    )
    with Launcher(layers) as launcher:
        launcher(launch)


if __name__ == "__main__":
    main()
