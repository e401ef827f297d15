"""Run every mistake as a person does, and write what they see without times, paths and ids.

usage: python -m tests.messages.shown    writes every file of tests/messages/expected anew
"""

import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.messages.mistakes import GROUPS, Mistake

EXPECTED = Path(__file__).parent / "expected"
LANGUAGES = ("en", "zh")
SKILLS = {
    "word-count": "name: word-count\ndescription: Counts words.\ncommand: python p.py {file}\n"
    "params: {file: {required: true, type: path, description: What is counted}}",
    "typed": "name: typed\ndescription: Takes a number and a colour.\ncommand: echo {count} {colour}\n"
    "params: {count: {required: true, type: int}, colour: {required: true, type: enum, enum: [red, blue]}}",
    "note": "name: note\ndescription: A note.",
}
#: What differs from run to run, and what stands for it.
_VARYING = (
    (re.compile(r"\b1a[0-9a-f]{10,}(?:\.\d+)*\b"), "RUN"),
    (re.compile(r"\d+(?:\.\d+)? s · "), "N s · "),
    (re.compile(r"(沙箱|sandbox) [\w-]+( · .*)?$", re.MULTILINE), r"\1 LEVEL"),
    (re.compile(r"Python 3[\d.]*"), "Python 3"),
    (re.compile(r"(?:/[\w.-]+)+/python3?[\d.]*"), "PYTHON"),
    (re.compile(r"damaged-\d{8}T\d{6}Z"), "damaged-TIME"),
    (re.compile(r"\[Errno \d+\]"), "[Errno N]"),
    (re.compile(r"\b(?:pid|process) \d+"), "pid N"),
)


def file_of(group: str, lang: str) -> Path:
    return EXPECTED / f"{group.replace(' ', '-')}.{lang}.txt"


def shown(group: str, lang: str) -> str:
    """Return everything that the mistakes of one group show, each with its command and its exit code."""
    with ThreadPoolExecutor(2) as pool:
        return "\n".join(pool.map(lambda mistake: _shown(mistake, lang), GROUPS[group]))


def _shown(mistake: Mistake, lang: str) -> str:
    with tempfile.TemporaryDirectory(prefix="messages-", dir="/tmp") as folder:
        root = Path(folder).resolve()
        project, home = root / "project", root / "state"
        for name, head in SKILLS.items():
            (project / ".claude/skills" / name).mkdir(parents=True)
            (project / ".claude/skills" / name / "SKILL.md").write_text(f"---\n{head}\n---\n\nText.\n")
        (project / ".claude/skills/word-count/p.py").write_text(
            "import sys\nprint(len(open(sys.argv[1]).read().split()))\n"
        )
        (project / ".git").mkdir()
        (project / "empty").mkdir()
        (project / "notes.txt").write_text("one two three\n")
        home.mkdir(mode=0o700)
        (root / "home").mkdir()
        if mistake.prepare:
            mistake.prepare(project, home)
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(root / "home"),
            "SKILLYARD_HOME": str(home),
            "SKILLYARD_LANG": lang,
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
            "TERM": "dumb",
            "TZ": "UTC",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **dict(mistake.env),
        }
        code, text = _on_terminal([sys.executable, "-m", "skillyard", *shlex.split(mistake.command)], project, env)
        text = text.replace(str(project), "PROJECT").replace(str(root), "ROOT")
    for pattern, stands in _VARYING:
        text = pattern.sub(stands, text)
    title = f"$ skillyard {mistake.command}   (exit {code})"
    return f"{title}\n{text.rstrip()}\n"


def _on_terminal(command: list[str], project: Path, env: dict[str, str]) -> tuple[int, str]:
    """Return the exit code and what a terminal showed on which nobody can answer."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=project, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the other side was closed
            while piece := os.read(ours, 65536):
                seen += piece
        os.close(ours)
        child.wait(timeout=120)
    lines = seen.decode().replace("\r\n", "\n").split("\n")
    return child.returncode, "\n".join(line.rpartition("\r")[2].removeprefix("\x1b[K") for line in lines)


def main() -> None:
    EXPECTED.mkdir(exist_ok=True)
    for group in GROUPS:
        for lang in LANGUAGES:
            file_of(group, lang).write_text(shown(group, lang), "utf-8")
    print(f"written: {EXPECTED}")


if __name__ == "__main__":
    main()
