"""Figures about the code itself: lines, files, names used twice, and the modules that each main command loads.

usage: python tools/house.py

The table in docs/explanation/2026-11-18-one-house.md is made with it; compare two states by running it in both.
"""

import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "skillyard"
#: Counts in the process of the command alone, however it ends: the sandbox has processes of its own.
_COUNT = """
import atexit, os, sys, threading
process, leave, passed = os.getpid(), os._exit, set()
def note(frame, event, _):
    if event == "call" and frame.f_code.co_flags & 1:  # a function, and no body of a class or a module
        passed.add(frame.f_globals.get("__name__", ""))
def tell():
    sys.setprofile(None)
    if os.getpid() == process:
        loaded = [name for name in sys.modules if name.startswith("skillyard.")]
        through = [name for name in passed if name.startswith("skillyard.")]
        os.write(2, b"\\nMODULES %d %d %s\\n" % (len(loaded), len(through), " ".join(sys.modules).encode()))
def tell_and_leave(code):
    tell()
    leave(code)
atexit.register(tell)
os._exit = tell_and_leave
from skillyard.__main__ import main
sys.setprofile(note)
threading.setprofile(note)
main()
"""
_SKILL = "---\nname: echo\ndescription: Says it again.\ncommand: python echo.py {text}\n---\n"


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def classes_used_twice() -> dict[str, int]:
    """Return the names of classes that more than one module defines."""
    trees = (ast.parse(file.read_text("utf-8")) for file in sources())
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name: count for name, count in names.items() if count > 1}


def imports_in_functions() -> int:
    return sum(1 for file in sources() for _ in _inner_imports(ast.parse(file.read_text("utf-8"))))


def _inner_imports(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (each for each in node.body if isinstance(each, ast.Import | ast.ImportFrom))


def modules_of(*command: str, before: tuple[tuple[str, ...], ...] = ()) -> tuple[int, int]:
    """Return how many modules of ours one command loads and how many of them it calls, with one command skill there."""
    loaded, called, *_ = _told_by(*command, before=before)
    return int(loaded), int(called)


def loaded_by(*command: str) -> frozenset[str]:
    """Return the names of all modules that are loaded when a command has ended."""
    return frozenset(_told_by(*command)[2:])


def _told_by(*command: str, before: tuple[tuple[str, ...], ...] = ()) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        skill = project / ".claude" / "skills" / "echo"
        skill.mkdir(parents=True)
        (project / ".git").mkdir()
        (skill / "SKILL.md").write_text(_SKILL)
        (skill / "echo.py").write_text("import sys\nprint(sys.argv[1])\n")
        (Path(name) / "other").mkdir()
        (Path(name) / "other" / "SKILL.md").write_text("---\nname: other\ndescription: Another one.\n---\n\nHello.\n")
        source = {"PYTHONPATH": str(PACKAGE.parent)}
        home = {**source, "HOME": name, "SKILLYARD_HOME": f"{name}/home", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        for words in (*before, command):  # the second run finds what the first remembered
            for _ in range(1 if words in before else 2):
                done = subprocess.run(
                    [sys.executable, "-c", _COUNT, *words],
                    cwd=project,
                    env=home,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
        told = [line for line in done.stderr.splitlines() if line.startswith("MODULES ")]
        return told[-1].split()[1:]


def main() -> None:
    lines = sum(len(file.read_text("utf-8").splitlines()) for file in sources())
    print(f"files                      {len(sources())}")
    print(f"lines                      {lines}")
    print(f"class names used twice     {len(classes_used_twice())}")
    print(f"imports in functions       {imports_in_functions()}")
    print("modules: loaded, called")
    for label, words, before in (
        ("list", ("list",), ()),
        ("list after init", ("list",), (("init",),)),
        ("run", ("run", "@echo", "hi"), ()),
        ("add", ("add", "../other"), ()),
        ("dispatch", ("dispatch", "x", "--dry-run"), ()),
        ("worker", ("worker", "--drain"), ()),
    ):
        loaded, called = modules_of(*words, before=before)
        print(f"  {label:<24} {loaded:>4} {called:>4}")


if __name__ == "__main__":
    main()
