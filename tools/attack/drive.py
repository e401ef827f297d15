"""A runtime as one user at one level: becomes that user, then runs what it is asked to, one after the other.

Reads one JSON object on each line of stdin and answers with one on stdout. A program of its own, because a process can
neither become root again nor get rid of a seccomp filter. `--label=…` is a secret for payloads to find.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

#: What the machine must lack for each of our levels.
LACKS: dict[str, tuple[str, ...]] = {
    "landlock+seccomp": ("unshare", "setns"),
    "none": ("unshare", "setns", "landlock_create_ruleset", "seccomp"),
}
LEVELS = ("full", "bubblewrap", *LACKS)


def main() -> None:
    uid, level = int(sys.argv[1]), sys.argv[2]
    if level in LEVELS:
        sys.path.insert(0, sys.argv[3])
    lack(level)
    become(uid)
    run = Ours(level) if level in LEVELS else run_program
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def lack(level: str) -> None:
    """Take away what a machine at this level does not have."""
    if level in LACKS:
        from skillyard.sandbox import seccomp
        from skillyard.sandbox.syscalls import MACHINE

        seccomp.load(seccomp.refuse(MACHINE, LACKS[level], namespaces=False))


def become(uid: int) -> None:
    if uid != os.getuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


class Ours:
    """Runs a payload with our sandbox, at the level that the machine seems to have."""

    def __init__(self, level: str) -> None:
        from skillyard.sandbox.bubblewrap import find
        from skillyard.sandbox.launcher import Launcher

        self.level, self.reason = level, ""
        self.launcher = Launcher()
        if level == "bubblewrap":
            program, self.reason = find()
            layers = self.launcher.layers._replace(namespaces=False, bubblewrap=program)
            self.launcher = Launcher(layers)

    def __call__(self, asked: dict[str, Any]) -> dict[str, Any]:
        from skillyard.core.errors import SandboxUnavailable
        from skillyard.sandbox.launch import Launch, Policy

        if self.reason:
            return {"absent": self.reason}
        named: dict[str, Any] = {
            name: tuple(map(Path, paths)) if isinstance(paths, list) else paths
            for name, paths in asked["policy"].items()
        }
        launch = Launch(
            argv=tuple(asked["argv"]),
            cwd=Path(asked["cwd"]),
            env=asked["env"],
            limit_seconds=asked["limit_seconds"],
            policy=Policy(**named),
        )
        try:
            done = self.launcher(launch)
        except SandboxUnavailable as error:
            return {"refused": str(error)}
        except OSError as error:
            return {"failed": str(error)}
        return {
            "stdout": done.stdout.decode("utf-8", "replace"),
            "stderr": done.stderr.decode("utf-8", "replace"),
            "sandbox": done.sandbox,
            "missing": list(done.missing),
            "code": done.code,
        }


def run_program(asked: dict[str, Any]) -> dict[str, Any]:
    """Peers and the control: the whole command line was made by the harness, and timeout(1) ends it."""
    limit = ("timeout", "-k", "0.5", str(asked["limit_seconds"]))
    done = subprocess.run(
        [*limit, *asked["argv"]],
        cwd=asked["cwd"],
        env=asked["env"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    answer = {"stdout": done.stdout[: 1 << 22], "stderr": done.stderr[: 1 << 16]}
    return {name: text.decode("utf-8", "replace") for name, text in answer.items()} | {"code": done.returncode}


if __name__ == "__main__":
    main()
