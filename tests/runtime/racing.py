"""Runs a granted skill again and again while another process swaps its files, and prints what ran.

A program of its own, because one cannot stop being root, or get rid of a seccomp filter, without ending.
Reads one JSON object on stdin: uid, level, place, swap, read_project, rounds. Prints one: what each run printed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillyard.app.paths import ProjectPaths
from skillyard.app.project import Project
from skillyard.app.task import Kernel
from skillyard.core.result import Request
from skillyard.sandbox import seccomp
from skillyard.sandbox.syscalls import MACHINE
from skillyard.trust.consent import trust
from skillyard.trust.permissions import grant

LACKS = {"full": (), "landlock+seccomp": ("unshare", "setns"), "bubblewrap": ()}
SKILL = "---\nname: racy\ndescription: x\ncommand: python3 {program}\n---\n"
SAYS = "import os\nprint('{word}', os.environ.get('APPROVED', '-'))\n"
#: Imports its module late: whoever swaps files has all the time in the world.
LATE = "import sys\nfor _ in range(200_000):\n    pass\nimport helper\n"

#: Swaps two states of a path for ever. Each is moved in by one rename, so that the path is always one or the other.
RACER = """
import os, sys
path, *states = sys.argv[1:]
print("ready", flush=True)
while True:
    for state in states:
        spare = path + ".spare"
        if os.path.islink(state):
            os.symlink(os.readlink(state), spare)
            os.rename(spare, path)
        elif os.path.isdir(state):
            try:
                os.rename(path, path + ".away")
                os.rename(state, path)
                os.rename(path, state)
                os.rename(path + ".away", path)
            except OSError:
                pass
        else:
            with open(state, "rb") as source, open(spare, "wb") as target:
                target.write(source.read())
            os.rename(spare, path)
"""


def main() -> None:
    given: dict[str, Any] = json.load(sys.stdin)
    if lacking := LACKS[given["level"]]:
        seccomp.load(seccomp.refuse(MACHINE, lacking, namespaces=False))
    if given["uid"] != os.getuid():
        os.setgroups([])
        os.setgid(given["uid"])
        os.setuid(given["uid"])
    os.environ["APPROVED"] = "yes"
    place = Path(given["place"])
    project = place / "project"
    for folder in (project / ".git", place / "home", place / "own"):
        folder.mkdir(parents=True)
    with Project(ProjectPaths(project=project, user_home=place / "home", own_home=place / "own")) as yard:
        yard.accept_weak_sandbox()  # root without namespaces
        print(json.dumps((race_bin if given["swap"] == "bin" else race)(yard, given)))


def race(yard: Project, given: dict[str, Any]) -> dict[str, Any]:
    states = yard.root.parent / "states"
    states.mkdir()
    skill = yard.root / ".claude" / "skills" / "racy"
    path, *others = lay_out(skill, states, given["swap"])
    capabilities = ("env:APPROVED", "read-project") if given["read_project"] else ("env:APPROVED",)
    grant(yard.grants, yard.runtime.resolve(Request(name="racy")), capabilities)
    first = yard.runtime.run(Request(name="racy"))
    with racing(path, *others):
        said = [yard.runtime.run(Request(name="racy")) for _ in range(given["rounds"])]
    return {
        "first": first.data.get("content"),
        "sandbox": first.meta.get("sandbox"),
        "said": [str(each.data.get("content") or each.data.get("msg")) for each in said],
    }


def lay_out(skill: Path, states: Path, swap: str) -> tuple[Path, ...]:
    """Write the skill; give the path that is swapped and the states that it has in turn."""
    good, evil = SAYS.format(word="good"), SAYS.format(word="evil")
    program = {"script": "run.py", "command": "good.py", "module": "late.py", "link": "lib/run.py", "folder": "run.py"}
    write(skill / "SKILL.md", SKILL.format(program=program[swap]))
    match swap:
        case "script":
            write(skill / "run.py", good)
            return skill / "run.py", write(states / "evil", evil), write(states / "good", good)
        case "command":
            write(skill / "good.py", good)
            write(skill / "evil.py", evil)
            other = write(states / "evil", SKILL.format(program="evil.py"))
            return skill / "SKILL.md", other, write(states / "good", SKILL.format(program="good.py"))
        case "module":
            write(skill / "late.py", LATE)
            write(skill / "helper.py", good)
            return skill / "helper.py", write(states / "evil", evil), write(states / "good", good)
        case "link":
            write(skill / "good" / "run.py", good)
            write(skill / "evil" / "run.py", evil)
            for name in ("evil", "good"):
                (states / name).symlink_to(name)
            (skill / "lib").symlink_to("good")
            return skill / "lib", states / "evil", states / "good"
        case _:
            write(skill / "run.py", good)
            write(states / "evil" / "SKILL.md", SKILL.format(program="run.py"))
            write(states / "evil" / "run.py", evil)
            return skill, states / "evil"


def race_bin(yard: Project, given: dict[str, Any]) -> dict[str, Any]:
    """The same for a script of bin/: trust stands for the grant, and reading the project shows that it counts."""
    states = yard.root.parent / "states"
    write(yard.root / "approved.txt", "yes")
    says = "import sys\nprint('{word}', open('approved.txt').read())\n"
    good, evil = says.format(word="good"), says.format(word="evil")
    write(yard.root / "bin" / "run.py", good)
    trust(yard.grants, yard.root)
    kernel = Kernel(yard)
    first = kernel.task("worker", "x", "run python bin/run.py")
    with racing(yard.root / "bin" / "run.py", write(states / "evil", evil), write(states / "good", good)):
        said = [kernel.task("worker", "x", "run python bin/run.py") for _ in range(given["rounds"])]
    return {
        "first": first.data.get("content"),
        "sandbox": first.meta.get("sandbox"),
        "said": [str(each.data.get("content") or each.data.get("msg")) for each in said],
    }


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@contextmanager
def racing(path: Path, *states: Path) -> Iterator[None]:
    command = (sys.executable, "-c", RACER, str(path), *map(str, states))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as racer:
        assert racer.stdout
        racer.stdout.readline()
        try:
            yield
        finally:
            racer.kill()


if __name__ == "__main__":
    main()
