"""A runtime that will be killed or interrupted: launches something that stays, and tells on stderr when it is up.

When the run ends by itself, or at `limit_seconds`, or because this process got SIGINT, it prints how, as JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path

from skillyard.core.cancel_token import CancelToken
from skillyard.sandbox import bubblewrap
from skillyard.sandbox.launch import Launch, Policy, python_paths
from skillyard.sandbox.launcher import Launcher
from skillyard.sandbox.layers import Layers


def tell(piece: bytes) -> None:
    os.write(2, piece)


def machine(way: str) -> Layers:
    with Launcher() as probing:
        layers = probing.layers
    if way != "full":
        layers = layers._replace(namespaces=False, bubblewrap="")
    if way == "bubblewrap":
        layers = layers._replace(landlock=0, bubblewrap=bubblewrap.find()[0])
    if way == "subreaper":
        layers = layers._replace(cgroup=Layers().cgroup)
    return layers


def main() -> None:
    given = json.loads(sys.argv[1])
    if given.get("cpu_group"):
        Path(given["cpu_group"], "cgroup.procs").write_text("0")
    if given.get("uid", os.getuid()) != os.getuid():
        os.setgroups([])
        os.setgid(given["uid"])
        os.setuid(given["uid"])
    layers = machine(given["way"])
    policy = None if given["way"] == "none" else Policy(read=python_paths())
    stop = CancelToken()
    signal.signal(signal.SIGINT, lambda *_: stop.cancel())
    code = "import os, sys\nos.dup2(2, 1)\n" + given["code"]
    launch = Launch(
        argv=(sys.executable, "-I", "-S", "-c", code),
        cwd=Path(given["cwd"]),
        env={"MARKER": given["marker"]},
        policy=policy,
        limit_seconds=given.get("limit_seconds", 600),
        on_stderr=tell,
        cancel=stop,
    )
    with Launcher(layers, weak=True) as launcher:
        done = launcher(launch)
    print(json.dumps({"code": done.code, "timed_out": done.timed_out, "sandbox": done.sandbox, "hit": done.hit}))


if __name__ == "__main__":
    main()
