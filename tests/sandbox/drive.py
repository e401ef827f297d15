"""A runtime of its own: becomes the user, on the machine, that a test asks for, and launches what it says.

Reads one JSON object on stdin, prints one. It is a program because one cannot stop being root, or get rid of
a seccomp filter, without ending.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from skillyard.core.errors import SandboxUnavailable
from skillyard.core.messages import Lang
from skillyard.sandbox import bubblewrap, seccomp
from skillyard.sandbox.launch import CopyOnWrite, Launch, Policy
from skillyard.sandbox.launcher import Launcher
from skillyard.sandbox.layers import Layers
from skillyard.sandbox.syscalls import MACHINE

#: What a machine lacks at each level.
LACKS: dict[str, tuple[str, ...]] = {
    "full": (),
    "namespaces+seccomp": ("landlock_create_ruleset",),
    "bubblewrap": (),
    "landlock+seccomp": ("unshare", "setns"),
    "none": ("unshare", "setns", "landlock_create_ruleset", "seccomp"),
}


def main() -> None:
    given: dict[str, Any] = json.load(sys.stdin)
    if lacking := LACKS[given["level"]]:
        seccomp.load(seccomp.refuse(MACHINE, lacking, namespaces="unshare" not in lacking))
    if given["uid"] != os.getuid():
        os.setgroups([])
        os.setgid(given["uid"])
        os.setuid(given["uid"])
    print(json.dumps(launch(given)))


def wrapped(program: str) -> Layers:
    """This machine, if it let nobody but bubblewrap make namespaces."""
    with Launcher() as probing:
        return probing.layers._replace(namespaces=False, landlock=0, bubblewrap=program)


def launch(given: dict[str, Any]) -> dict[str, Any]:
    paths = {name: tuple(map(Path, given["policy"].get(name, ()))) for name in ("read", "write", "tools", "hide")}
    if layers := given["policy"].get("copy_on_write"):
        folder, upper, work, *granted = map(Path, layers)
        below = given["policy"].pop("below", None)
        over = CopyOnWrite(folder, upper, work, below and Path(below), tuple(granted))
        given["policy"]["copy_on_write"] = over
    argv = [word.replace("{runtime}", str(os.getpid())) for word in given["argv"]]
    chosen = None
    if given["level"] == "bubblewrap":
        wrapper, reason = bubblewrap.find()
        if not wrapper:
            return {"skip": f"bubblewrap: {reason}"}
        chosen = wrapped(wrapper)
    with Launcher(chosen, weak=given.get("weak", False)) as launcher:
        try:
            done = launcher(
                Launch(
                    argv=tuple(argv),
                    cwd=Path(given["cwd"]),
                    env={"PATH": "/usr/bin:/bin"},
                    limit_seconds=given.get("limit_seconds", 60),
                    policy=Policy(**(given["policy"] | paths)),
                )
            )
        except SandboxUnavailable as error:
            return {
                "unavailable": error.details["missing"],
                "reasons": dict(launcher.layers.reasons),
                "hint": error.hint(Lang.EN),
            }
    return {
        "code": done.code,
        "stdout": done.stdout.decode(),
        "stderr": done.stderr.decode(errors="replace"),
        "sandbox": done.sandbox,
        "missing": done.missing,
        "timed_out": done.timed_out,
        "hit": done.hit,
        "refused": done.refused,
        "seconds": done.seconds,
        "copied_on_write": done.copied_on_write,
        "read_only": done.read_only,
        "home_files": done.home_files,
        "looked_for": done.looked_for,
    }


if __name__ == "__main__":
    main()
